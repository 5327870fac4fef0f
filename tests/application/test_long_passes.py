"""``run()`` with handlers that take long, that are interrupted, and that kill their process."""

import logging
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from tickwork import RunContext, RunStatus, Tickwork
from tickwork.errors import LeaseLost
from tickwork.events import RunLost

PATIENCE = 10.0


def beat(app):
    app._services.passes.heartbeat.step()


class TestLeasesOfAPass:
    """A pass keeps its claims for as long as it works, and no longer."""

    def test_a_heartbeat_keeps_others_from_taking_a_run_that_takes_long(self, make_app, clock):
        app, other = make_app(), make_app()
        calls = []

        def work():
            calls.append(clock.now())
            for _ in range(3):
                clock.advance(seconds=50)
                beat(app)
                other.run()
            return "done"

        run = app.schedule("work", work).dispatch()
        other.schedule("work", work)

        assert app.run() == 1
        assert len(calls) == 1
        assert run.result() == "done"

    def test_without_one_another_worker_takes_it_and_the_first_cannot_write(self, make_app, clock):
        app, other = make_app(), make_app()
        lost: list[RunLost] = []
        app.on(RunLost)(lost.append)
        answers = iter(["late", "in time"])

        def work():
            answer = next(answers)
            if answer == "late":
                clock.advance(minutes=2)
                assert other.run() == 1
            return answer

        run = app.schedule("work", work).dispatch()
        other.schedule("work", work)
        app.run()

        assert run.result() == "in time"
        assert [event.run_id for event in lost] == [run.id]

    def test_an_attempt_that_polls_learns_that_its_run_was_lost(self, make_app, clock):
        app, other = make_app(), make_app()
        seen: list[bool] = []

        def work(ctx: RunContext):
            if seen:
                return
            seen.append(ctx.is_canceled())
            clock.advance(minutes=2)
            other.run()
            seen.append(ctx.is_canceled())
            with pytest.raises(LeaseLost):
                ctx.progress(0.5)

        run = app.schedule("work", work).dispatch()
        other.schedule("work", work)
        app.run()

        assert seen == [False, True]
        assert run.status is RunStatus.COMPLETED

    def test_polling_extends_the_lease(self, make_app, clock):
        app, other = make_app(), make_app()

        def work(ctx: RunContext):
            for _ in range(5):
                clock.advance(seconds=40)
                assert not ctx.is_canceled()
                assert other.run() == 0

        run = app.schedule("work", work).dispatch()
        other.schedule("work", work)
        app.run()

        assert run.status is RunStatus.COMPLETED

    def test_the_other_claims_of_the_batch_are_extended_too(self, make_app, clock):
        app, other = make_app(), make_app()
        worked = []

        def work(number: int, ctx: RunContext):
            worked.append((ctx.run_id, number))
            clock.advance(seconds=50)
            other.run()

        app.schedule("work", work).dispatch_many({"number": number} for number in range(4))
        other.schedule("work", work)

        assert app.run() == 4
        assert [number for _, number in worked] == [0, 1, 2, 3]

    def test_a_lost_claim_is_not_started(self, make_app, clock):
        app, other = make_app(), make_app()
        worked = []

        def work(number: int):
            worked.append(number)
            if len(worked) == 1:
                clock.advance(minutes=2)
                other.run()

        app.schedule("work", work).dispatch_many({"number": number} for number in range(2))
        other.schedule("work", work)
        app.run()

        assert worked == [0, 0, 1]

    def test_log_lines_of_a_lost_attempt_are_not_stored(self, make_app, clock):
        app, other = make_app(), make_app()
        attempts = []

        def work():
            attempts.append(1)
            logging.getLogger("shop").warning("attempt %d", len(attempts))
            if len(attempts) == 1:
                clock.advance(minutes=2)
                other.run()

        run = app.schedule("work", work).dispatch()
        other.schedule("work", work)
        app.run()

        assert [line.message for line in run.log()] == ["attempt 2"]


class TestHeartbeatThread:
    """While a handler blocks the pass, a thread extends the leases."""

    def test_a_lease_is_extended_behind_a_handler_that_blocks(self, url):
        with Tickwork(url, install=True) as app:
            begun = threading.Event()

            def work(ctx: RunContext):
                first = app.get_run(ctx.run_id).read().lease_until
                deadline = time.monotonic() + PATIENCE
                begun.set()
                while app.get_run(ctx.run_id).read().lease_until == first:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                return "kept"

            run = app.schedule("work", work).lease(1).dispatch()
            app.run()

            assert run.result() == "kept"
            assert run.read().started_at is not None

    def test_the_thread_ends_with_the_application(self, url):
        with Tickwork(url, install=True) as app:
            app.schedule("work", lambda: None).dispatch()
            app.run()
            beating = app._services.passes.heartbeat_loop

        assert not beating.is_running

    def test_no_thread_is_started_while_a_test_moves_the_time(self, app):
        app.schedule("work", lambda: None).dispatch()
        app.run()

        assert not app._services.passes.heartbeat_loop.is_running


class TestInterruptions:
    """When a pass is interrupted, outcomes are written, and the other runs are given back."""

    def test_outcomes_are_written_and_the_other_runs_are_due_again(self, app, clock):
        worked = []

        def work(number: int):
            if number == 1 and number not in worked:
                worked.append(number)
                raise KeyboardInterrupt
            worked.append(number)

        runs = app.schedule("work", work).dispatch_many({"number": n} for n in range(3))
        with pytest.raises(KeyboardInterrupt):
            app.run()

        assert [run.status for run in runs] == ["completed", "pending", "pending"]
        assert [run.read().attempt for run in runs] == [1, 0, 0]
        assert app.run() == 2
        assert worked == [0, 1, 1, 2]

    def test_an_interrupted_attempt_is_recorded(self, app):
        def work():
            raise KeyboardInterrupt

        run = app.schedule("work", work).dispatch()
        with pytest.raises(KeyboardInterrupt):
            app.run()

        [attempt] = run.attempts()
        assert attempt.outcome == "interrupted"


POISON = """
import os, sys
from datetime import datetime
from tickwork import Tickwork
from tickwork.testing import ManualClock

app = Tickwork(sys.argv[1], clock=ManualClock(datetime.fromisoformat(sys.argv[2])))
job = app.schedule("poison", lambda: os._exit(1))
if sys.argv[3:]:
    print(job.dispatch().id)
else:
    app.run()
"""


class TestPoison:
    """A run that kills its process is given up after a few times."""

    def test_it_is_given_up_after_three_crashes(self, tmp_path):
        url, start = f"sqlite:///{tmp_path}/jobs.db", datetime(2026, 1, 1, tzinfo=UTC)

        def process(minutes, *words):
            at = start + timedelta(minutes=minutes)
            return subprocess.run(
                [sys.executable, "-c", POISON, url, at.isoformat(), *words],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )

        run_id = process(0, "dispatch").stdout.strip()
        ends = [process(2 * minutes).returncode for minutes in range(1, 7)]

        # The first death is not charged: only from then on is each start recorded.
        assert ends == [1, 1, 1, 1, 0, 0]
        with Tickwork(url) as app:
            run = app.get_run(run_id).read()
            assert run.status is RunStatus.FAILED_PERMANENT
            assert run.crashes == 3
            assert "died 3 times" in run.reason
