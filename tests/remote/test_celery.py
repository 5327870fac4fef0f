"""Runs in Celery workers: real processes, RabbitMQ and Redis."""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from remote.shop import Shop, parent_of
from servers.private import children_of
from servers.rabbitmq import RabbitMQServer
from tickwork._domain.runs.status import RunStatus

pytestmark = [pytest.mark.servers("postgres"), pytest.mark.timeout(300)]

SLOWNESS = 3 if os.getloadavg()[0] > 2 * (os.cpu_count() or 1) else 1
"""Processes get less time on a machine that others use, too."""


def report(text: str) -> None:
    sys.stderr.write(f"\n{text}\n")


def kill_at_random(
    shop: Shop,
    *,
    runs: int,
    kills: int,
    seconds: float,
    restart_broker: Callable[[], None] | None = None,
    seed: int = 7,
) -> str:
    """Dispatch runs, and kill processes at random moments until all have finished.

    The checker of chaos judges what happened.
    """
    choose, record = random.Random(seed), shop.record
    record.prepare()
    start = {"celery": shop.start_celery, "worker": shop.start_worker}
    alive = {kind: [begin(), begin()] for kind, begin in start.items()}
    program = shop.program
    dispatched = program.journaled.dispatch_many([{"seconds": seconds}] * runs)
    dispatched += program.limited.dispatch_many([{"seconds": 0.02}] * (runs // 20))
    doomed = [shop.app.dispatch("patient") for _ in range(3)]
    record.note_dispatched(run.id for run in [*dispatched, *doomed])
    shop.until_completed(runs // 50)
    for number in range(kills):
        # Spread over the work: a machine that is busy starts processes slowly.
        shop.until_completed(runs * number // (kills + 1))
        time.sleep(choose.uniform(0.0, 0.3))
        if number == kills // 2:
            for run in doomed:
                record.note_cancel(run.id)
                run.cancel()
        if restart_broker is not None and number % 20 == 19:
            restart_broker()
            continue
        kind = choose.choice(["celery", "celery", "worker"])
        victim = alive[kind].pop(0)
        record.note_kill(kind, [victim.pid, *children_of(victim.pid)])
        shop.kill(victim)
        alive[kind].append(start[kind]())
    left = shop.counts().get("unfinished", 0)
    shop.until(lambda: "unfinished" not in shop.counts(), seconds=600)
    verdict = record.judge()
    assert not verdict.violations, verdict.render()
    assert verdict.counts["runs"] == len(dispatched) + len(doomed)
    assert set(shop.counts()) <= {"completed", "canceled"}
    text = f"{runs} runs, {kills} kills ({left} runs were left then)."
    return f"{text} {record.describe_reruns()} {verdict.render()}"


@pytest.fixture
def make_shop(tmp_path, postgres_url) -> Iterator[Callable[..., Shop]]:
    made: list[Shop] = []

    def make(broker: str, **given: str) -> Shop:
        shop = Shop(tmp_path, url=postgres_url, broker=broker, **given)
        shop.app.install()
        made.append(shop)
        return shop

    yield make
    for shop in made:
        shop.close()


class TestRabbitMQ:
    @pytest.mark.servers("rabbitmq")
    def test_runs_are_executed_by_celery_workers(self, make_shop, rabbitmq_server):
        shop = make_shop(rabbitmq_server.url())
        celery, worker = shop.start_celery(), shop.start_worker()
        app = shop.app

        there, here = app.dispatch("there"), app.dispatch("here")
        notes = [app.dispatch("note", number=number) for number in range(30)]
        sent = app.dispatch("send", to="ann")
        slow = app.dispatch("patient")

        assert there.result(timeout=60) not in {celery.pid, worker.pid}
        assert here.result(timeout=60) == worker.pid
        assert [note.result(timeout=60) for note in notes] == [2 * n for n in range(30)]
        assert sent.result(timeout=60) == sent.id
        shop.until(lambda: shop.notes("sent-ann"))
        assert there.read().external_id == f"{there.id}:1"

        # A cancel reaches the process that makes the attempt.
        shop.until(lambda: shop.notes("patient"))
        assert app.explain(slow.id).reasons == ("running",)
        slow.cancel()
        shop.until(lambda: slow.read().is_finished, seconds=10)
        assert slow.read().status is RunStatus.CANCELED

    @pytest.mark.servers("rabbitmq")
    def test_another_process_takes_over_soon_after_a_kill(self, make_shop, rabbitmq_server):
        """Far sooner than the lease of a minute: the broker delivers the message again."""
        shop = make_shop(rabbitmq_server.url(), lease="60s")
        workers = [shop.start_celery(), shop.start_celery()]
        shop.start_worker()
        for number in range(4):  # one for each process
            shop.app.dispatch("note", number=number, seconds=2)
        shop.until(lambda: all(shop.parents_of_notes() & {each.pid} for each in workers))
        shop.until(lambda: "unfinished" not in shop.counts())
        run = shop.app.dispatch("note", number=9, seconds=2)
        shop.until(lambda: shop.notes("note-9"))
        [note] = shop.notes("note-9")
        dead = next(each for each in workers if parent_of(note.pid) == each.pid)
        killed_at = time.monotonic()
        shop.kill(dead)
        shop.until(lambda: len(shop.notes("note-9")) == 2, seconds=30)

        took = shop.notes("note-9")[1].at - killed_at
        report(f"The first rerun began {took:.2f} s after the kill.")
        assert run.result(timeout=30) == 18
        assert took < 3 * SLOWNESS

    @pytest.mark.servers("rabbitmq")
    def test_kills_lose_and_double_nothing(self, make_shop, rabbitmq_server):
        shop = make_shop(rabbitmq_server.url())

        report(kill_at_random(shop, runs=150, kills=6, seconds=0.03))

    @pytest.mark.long
    @pytest.mark.servers("rabbitmq")
    @pytest.mark.timeout(3600)
    def test_many_kills_and_restarts_of_the_broker(self, make_shop):
        with RabbitMQServer(fsync=False) as broker:
            shop = make_shop(broker.url())

            def restart() -> None:
                broker.crash()
                broker.start()

            text = kill_at_random(shop, runs=2_000, kills=55, seconds=0.05, restart_broker=restart)
        report(text)


class TestBrokerIsAway:
    def test_runs_wait(self, make_shop):
        shop = make_shop("amqp://guest:guest@127.0.0.1:9/")
        shop.start_worker()
        run = shop.app.dispatch("there")
        shop.until(lambda: run.read().external_id)

        [cause] = shop.app.explain(run.id).causes

        assert run.read().status is RunStatus.RUNNING
        assert cause.why == "submitted"
        assert "No process of its engine has accepted it" in cause.text
        check = next(each for each in shop.app.check_health() if each.name == "engine celery")
        assert check.level == "bad"
        assert "does not answer" in check.text


class TestRedis:
    @pytest.mark.servers("redis")
    def test_runs_are_executed_and_taken_over(self, make_shop, redis_server):
        shop = make_shop(redis_server.url(), lease="6s")
        first, _ = shop.start_celery(), shop.start_worker()
        run = shop.app.dispatch("note", number=1, seconds=1.5)
        shop.until(lambda: shop.notes("note-1"))
        shop.start_celery()

        killed_at = time.monotonic()
        shop.kill(first)
        shop.until(lambda: len(shop.notes("note-1")) == 2, seconds=60)

        took = shop.notes("note-1")[1].at - killed_at
        report(f"The first rerun began {took:.2f} s after the kill.")
        assert run.result(timeout=30) == 2
        assert took < (6 + 2) * SLOWNESS

    @pytest.mark.long
    @pytest.mark.servers("redis")
    @pytest.mark.timeout(3600)
    def test_many_kills(self, make_shop, redis_server):
        shop = make_shop(redis_server.url())

        report(kill_at_random(shop, runs=2_000, kills=55, seconds=0.05))
