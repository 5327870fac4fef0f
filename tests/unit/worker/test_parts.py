"""The small parts of a worker, each on its own, without waiting."""

import asyncio
import os
import queue
import threading
from datetime import datetime, timedelta

import pytest

from tickwork import RunStatus, Tickwork
from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.tick import TickPlan
from tickwork._kernel.clock import StoreClock
from tickwork._kernel.processes import ThisProcess, has_ended, read_process_start
from tickwork._stores.contract import ClaimRequest, HeldClaim, UpcomingRuns, WorkerRow
from tickwork._worker.attempts.cancel_poller import CancelPoller
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork._worker.options import worker_options
from tickwork._worker.services.maintenance import maintain
from tickwork._worker.services.reaper import ALIVE_GRACE, FORGET_AFTER, Reaper
from tickwork._worker.services.timer import Timer
from tickwork._worker.wakeup import Backoff, Wakeup
from tickwork.errors import InvalidOption, StatementFailed, StoreUnavailable
from tickwork.testing import ManualClock
from unit.builders import NOON, a_claim


class TestWakeup:
    def test_a_signal_between_the_count_and_the_wait_is_not_lost(self):
        wakeup = Wakeup()
        since = wakeup.count

        wakeup.notify()

        assert wakeup.wait(since, 60)

    def test_a_signal_before_the_count_does_not_end_the_wait(self):
        wakeup = Wakeup()
        wakeup.notify()

        assert not wakeup.wait(wakeup.count, 0)

    def test_each_signal_wakes_one_thread(self):
        wakeup = Wakeup()
        woken: queue.SimpleQueue[bool] = queue.SimpleQueue()
        since = wakeup.count
        threads = [
            threading.Thread(target=lambda: woken.put(wakeup.wait(since, 30))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()

        for _ in threads:
            wakeup.notify()
            assert woken.get(timeout=30)

        for thread in threads:
            thread.join(30)

    def test_a_stop_wakes_all_threads(self):
        wakeup = Wakeup()
        left: queue.SimpleQueue[bool] = queue.SimpleQueue()
        threads = [
            threading.Thread(target=lambda: left.put(wakeup.wait(wakeup.count, 30)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()

        wakeup.stop()

        assert [left.get(timeout=30) for _ in threads] == [True] * 3

    def test_after_a_stop_no_wait_takes_time(self):
        wakeup = Wakeup()

        wakeup.stop()

        assert wakeup.wait(wakeup.count, 60)


class TestBackoff:
    def test_it_doubles_up_to_its_limit_with_jitter(self):
        backoff = Backoff(0.1, 1.0)

        waits = [backoff.seconds() for _ in range(8)]

        for wait, length in zip(waits, [0.1, 0.2, 0.4, 0.8, 1, 1, 1, 1], strict=True):
            assert length / 2 <= wait <= length

    def test_it_can_be_reset(self):
        backoff = Backoff(0.1, 1.0)
        for _ in range(8):
            backoff.seconds()

        backoff.reset()

        assert backoff.seconds() <= 0.1


def the(held, run_id):
    run = held.get(run_id)
    assert run is not None, run_id
    return run


class TestHeld:
    @pytest.fixture
    def held(self):
        return HeldRuns()

    def test_only_the_first_caller_settles_a_run(self, held):
        held.add([a_claim()], extended_at=0.0)
        [run] = held.snapshot()

        assert not run.is_settled
        assert [run.try_settle() for _ in range(3)] == [True, False, False]
        assert run.is_settled

    def test_an_older_claim_is_not_held(self, held):
        old, new = a_claim(token=1), a_claim(token=2)
        held.add([old], extended_at=0.0)
        held.add([new], extended_at=0.0)

        assert held.of(old) is None
        held.drop_all([old])
        assert held.of(new) is not None

    def test_the_loss_of_an_older_claim_stops_no_attempt(self, held):
        held.add([a_claim(token=1)], extended_at=0.0)
        held.add([claim := a_claim(token=2)], extended_at=0.0)

        held.revoke(claim.run_id, token=1)  # the answer to a heartbeat of the first claim came late

        assert not the(held, claim.run_id).is_lost

    def test_a_cancel_and_a_loss_cancel_the_attempt(self, held):
        stopped = []
        for name in "ab":
            claim = a_claim(run_id=RunId(name))
            held.add(
                [claim], extended_at=0.0, cancel_attempt=lambda each: stopped.append(each.run_id)
            )

        held.cancel(RunId("a"))
        held.cancel(RunId("a"))
        held.revoke(RunId("b"), token=1)
        held.revoke(RunId("unknown"), token=1)

        assert stopped == ["a", "b"]
        assert (the(held, RunId("a")).is_canceled, the(held, RunId("a")).is_lost) == (True, False)
        assert (the(held, RunId("b")).is_canceled, the(held, RunId("b")).is_lost) == (False, True)


class Rows:
    def __init__(self):
        self.rows = []
        self.requests = []

    def get_runs(self, ids):
        self.requests.append(list(ids))
        return [row for row in self.rows if row.id in ids]


class Row:
    def __init__(self, name, token=1, canceled=None):
        self.id, self.token, self.cancel_requested_at = name, token, canceled
        self.is_finished = False


def a_poller(rows, held, clock):
    return CancelPoller(store=rows, held=held, clock=clock)


class TestCancels:
    @pytest.fixture
    def clock(self):
        return ManualClock()

    def test_long_attempts_are_polled(self, clock):
        held, rows = HeldRuns(), Rows()
        for name in ("young", "old", "taken", "waiting"):
            held.add([a_claim(run_id=RunId(name))], extended_at=0.0)
        for name, age in {"young": 0, "old": 2, "taken": 2}.items():
            the(held, RunId(name)).started_at = clock.now() - timedelta(seconds=age)
        rows.rows = [Row("old", canceled=NOON), Row("taken", token=2)]

        a_poller(rows, held, clock).poll()

        assert rows.requests == [["old", "taken"]]
        assert the(held, RunId("old")).is_canceled
        assert the(held, RunId("taken")).is_lost

    def test_of_very_many_each_is_polled_in_turn(self, clock):
        held, rows = HeldRuns(), Rows()
        for n in range(500):
            held.add([a_claim(run_id=RunId(f"run-{n}"))], extended_at=0.0)
            the(held, RunId(f"run-{n}")).started_at = clock.now() - timedelta(seconds=9)
        cancels = a_poller(rows, held, clock)

        for _ in range(5):
            cancels.poll()

        assert {len(each) for each in rows.requests} == {200}
        assert len({run_id for each in rows.requests for run_id in each}) == 500


class TestTimer:
    """When the next step is due."""

    @pytest.fixture
    def clock(self):
        return ManualClock()

    def a_timer(self, clock, *, firing=None, later=None, waiting=None, turn=None, moves=0):
        plan = TickPlan([], [], [object()] * moves, [], [])  # type: ignore[list-item]
        self.turns = turns = []

        class Store:
            def stage(self, *, now, limit):
                return 0

            def unblock_rated(self, *, now, limit):
                turns.append(now)
                return 0

            def next_due(self, *, now):
                return UpcomingRuns(waiting, turn)

            def fire(self, **_):
                return plan

        class Quiet:
            def report_tick(self, plan, *, at):
                pass

        def next_at(*, after=None):
            return firing if after is None else later

        timer = Timer(
            store=Store(),  # type: ignore[arg-type]
            clock=clock,
            specs=dict,
            reporter=Quiet(),  # type: ignore[arg-type]
            retire_after=timedelta(days=7),
        )
        timer.next_firing_at = next_at  # type: ignore[method-assign]
        return timer

    def test_at_the_next_moment_or_after_a_while(self, clock):
        soon = clock.now() + timedelta(seconds=0.3)

        assert self.a_timer(clock).seconds_left(1.0) == 1.0
        assert self.a_timer(clock, firing=soon).seconds_left(1.0) == pytest.approx(0.3)
        assert self.a_timer(clock, waiting=soon).seconds_left(1.0) == pytest.approx(0.3)
        assert self.a_timer(clock, waiting=soon).seconds_left(0.1) == 0.1

    def test_what_a_check_has_read_is_not_read_again(self, clock):
        soon = clock.now() + timedelta(seconds=0.3)
        timer = self.a_timer(clock, firing=soon)

        assert not timer.is_due()
        timer._store.next_due = timer.next_firing_at = None
        assert timer.seconds_left(1.0) == pytest.approx(0.3)
        with pytest.raises(TypeError):
            timer.seconds_left(1.0)  # reads again

    def test_a_step_or_something_due_is_read_again(self, clock):
        timer = self.a_timer(clock, firing=clock.now(), moves=1)

        assert timer.is_due()
        timer.next_firing_at = lambda **_: clock.now() + timedelta(seconds=0.3)
        assert timer.seconds_left(1.0) == pytest.approx(0.3)
        assert not timer.is_due()
        timer.next_firing_at = lambda **_: clock.now() + timedelta(seconds=0.2)
        timer.step()
        assert timer.seconds_left(1.0) == pytest.approx(0.2)

    def test_at_the_turn_of_a_run_that_waits_for_a_rate(self, clock):
        timer = self.a_timer(clock, turn=clock.now() + timedelta(seconds=0.3))

        timer.step()
        assert timer.seconds_left(1.0) == pytest.approx(0.3)
        clock.advance(seconds=0.2)
        timer.step()
        clock.advance(seconds=0.1)
        timer.step()

        assert self.turns == [clock.now()]

    def test_rate_slots_that_follow_each_other_fast_are_handled_together(self, clock):
        timer = self.a_timer(clock, turn=clock.now() - timedelta(seconds=1))

        assert timer.seconds_left(1.0) == pytest.approx(0.01)

    def test_at_once_while_there_is_more_to_fire(self, clock):
        timer = self.a_timer(clock, firing=clock.now(), moves=1)
        timer.step()

        assert timer.seconds_left(1.0) == 0.0

    def test_a_schedule_that_cannot_be_fired_does_not_keep_the_timer_busy(self, clock):
        timer = self.a_timer(clock, firing=clock.now() - timedelta(days=1))

        waits = []
        for _ in range(12):
            timer.step()
            waits.append(timer.seconds_left(1.0))

        assert waits[0] <= 0.01
        assert min(waits[-3:]) >= 0.5

    def test_nor_does_it_hide_later_schedules(self, clock):
        soon = clock.now() + timedelta(seconds=0.2)
        timer = self.a_timer(clock, firing=clock.now() - timedelta(days=1), later=soon)
        for _ in range(12):
            timer.step()
            left = timer.seconds_left(1.0)

        assert left <= 0.2


class TestMaintenance:
    def test_a_task_that_fails_does_not_stop_the_others(self, caplog):
        def fail():
            raise ValueError("no")

        assert maintain({"A": fail, "B": lambda: True}, set())
        assert "A failed" in caplog.text

    def test_the_caller_gets_the_error_of_an_unreachable_database(self):
        def fail():
            raise StoreUnavailable("db://", "gone")

        with pytest.raises(StoreUnavailable):
            maintain({"A": fail}, set())

    def test_a_task_that_the_database_cannot_execute_is_logged_once(self, caplog):
        def fail():
            raise StatementFailed("db://", "permission denied", state="42501")

        waiting: set[str] = set()
        for _ in range(3):
            assert maintain({"A": fail, "B": lambda: True}, waiting)

        [record] = caplog.records
        assert record.getMessage() == (
            "A waits for the database: The store at db:// cannot execute a statement (42501). "
            "permission denied"
        )


def raising(error):
    def act():
        raise error

    return act


class Workers:
    def __init__(self, *rows):
        self.rows = list(rows)
        self.released = []
        self.held = 1  # runs of the dead worker

    def list_workers(self):
        return list(self.rows)

    def release_worker(self, worker, *, now):
        self.released.append(worker)
        count, self.held = self.held, 0
        return count

    def remove_worker(self, worker):
        self.rows = [row for row in self.rows if row.id != worker]

    def reap(self, *, now, limit, decide):
        return ["taken"]


def a_row(name, me, **changes):
    facts = {
        "id": WorkerId(name),
        "host": me.host,
        "pid": me.pid,
        "boot_id": me.boot_id,
        "process_started": me.started,
        "started_at": NOON,
        "beat_at": NOON,
        "queues": None,
        "jobs": (),
    }
    return WorkerRow(**facts | changes)


def _known(app):
    known = app._services.worker_context.known
    known.names()
    return known


class TestReaper:
    @pytest.fixture
    def me(self):
        return ThisProcess.current()

    @pytest.fixture
    def clock(self):
        return ManualClock()

    def a_reaper(self, store, clock, me):
        return Reaper(store=store, clock=clock, crashes_max=lambda _: 3, grace=lambda: 20.0, me=me)

    def test_only_a_process_of_this_machine_that_is_gone_is_dead(self, clock, me):
        store = Workers(
            a_row("alive", me),
            a_row("elsewhere", me, host="another", process_started="1"),
            a_row("before the boot", me, boot_id="another", process_started="1"),
            a_row("another space of pids", me, boot_id=f"{me.boot_id}0", process_started="1"),
            a_row("unknown start", me, process_started=""),
            a_row("gone", me, process_started="1"),
        )

        self.a_reaper(store, clock, me).release_dead()

        assert store.released == ["gone"]

    def test_its_leases_are_ended_once_more_before_it_is_forgotten(self, clock, me):
        store = Workers(a_row("gone", me, process_started="1"))
        reaper = self.a_reaper(store, clock, me)

        reaper.release_dead()
        assert store.rows
        clock.advance(seconds=FORGET_AFTER)
        reaper.release_dead()

        assert store.released == ["gone", "gone"]
        assert store.rows == []

    def test_only_the_process_that_released_runs_logs_it(self, clock, me, caplog):
        """Every worker sees the dead one, and one of them ends its leases."""
        store = Workers(a_row("gone", me, process_started="1"))
        store.held = 2

        for _ in range(3):
            self.a_reaper(store, clock, me).release_dead()

        [record] = caplog.records
        assert record.getMessage().endswith("is gone; 2 runs are due again.")

    def test_after_an_outage_it_waits_for_one_heartbeat(self, clock, me):
        reaper = self.a_reaper(Workers(), clock, me)
        assert reaper.step() == 1

        reaper.postpone()

        assert reaper.step() == 0
        clock.advance(seconds=19)
        assert reaper.step() == 0
        clock.advance(seconds=1)
        assert reaper.step() == 1

    def test_it_waits_as_well_after_the_database_could_not_take_runs_back(
        self, clock, me, monkeypatch
    ):
        """Live workers could not extend their leases either."""
        reaper = self.a_reaper(Workers(), clock, me)
        full = StatementFailed("db://", "no space", state="53100")

        with monkeypatch.context() as patch:
            patch.setattr(reaper, "reap", raising(full))
            with pytest.raises(StatementFailed):
                reaper.step()

        assert reaper.step() == 0
        clock.advance(seconds=20)
        assert reaper.step() == 1

    def test_a_heartbeat_is_that_of_the_longest_lease(self):
        app = Tickwork("memory://")
        app.schedule("short", lambda: None).lease(3)
        assert _known(app).pace_longest() == 1

        app.schedule("long", lambda: None).lease(30)

        assert _known(app).pace_longest() == 10

    def test_after_it_was_frozen_it_waits_too(self, clock, me):
        reaper = self.a_reaper(Workers(), clock, me)
        assert reaper.step() == 1

        clock.advance(minutes=2)

        assert reaper.step() == 0
        clock.advance(seconds=20)
        assert reaper.step() == 1

    @pytest.mark.parametrize(
        ("row", "seconds"),
        [
            ({}, ALIVE_GRACE),
            ({"host": "another"}, 0),
            ({"boot_id": "another"}, 0),
            ({"process_started": "1"}, 0),
            (None, 0),
        ],
    )
    def test_a_live_worker_of_this_machine_has_time_to_extend_an_expired_lease(
        self, clock, me, row, seconds
    ):
        """If the clock of the machine was set forward, all leases seem expired."""
        app = Tickwork("memory://", clock=clock)
        app.schedule("report", lambda: None)
        run = app.dispatch("report")
        store = app._services.store
        if row is not None:
            store.beat_worker(a_row("ann", me, **row))
        [claim] = store.claim(
            ClaimRequest(1),
            worker=WorkerId("ann"),
            tag="",
            now=clock.now(),
            lease=timedelta(seconds=60),
        )
        clock.advance(seconds=60)
        reaper = self.a_reaper(store, clock, me)

        if seconds:
            assert reaper.reap() == 0
            clock.advance(seconds=seconds - 1)
            assert reaper.reap() == 0
            # A heartbeat arrives: the next expiry counts anew.
            held = HeldClaim(claim.run_id, claim.token, None)
            store.extend_leases([held], until=clock.now() + timedelta(seconds=60))
            clock.advance(seconds=60)
            assert reaper.reap() == 0
            clock.advance(seconds=seconds)
        assert reaper.reap() == 1
        assert run.status is RunStatus.PENDING

    def test_a_zombie_process_has_ended(self):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        try:
            while read_process_start(pid):
                pass
            assert has_ended(pid, "1")
        finally:
            os.waitpid(pid, 0)


class TestStoreClock:
    @pytest.mark.parametrize("hours", [1, -1])
    def test_it_reports_that_the_clock_of_the_database_was_set(self, hours):
        base = ManualClock()
        wall = [timedelta(0)]
        clock = StoreClock(lambda: base.now() + wall[0], base=base, every=1.0)
        steps: list[timedelta] = []
        clock.on_step = steps.append
        for _ in range(3):
            clock.now()
            base.advance(hours=2)  # time that passes is no step
        assert steps == []

        wall[0] = timedelta(hours=hours)

        assert clock.now() == base.now() + wall[0]
        assert steps == [timedelta(hours=hours)]

    def test_it_is_measured_anew_after_a_reconnect_and_keeps_its_last_word_while_away(self):
        base = ManualClock()
        answers = [base.now(), StoreUnavailable("db://", "gone"), base.now() + timedelta(hours=1)]

        def measure():
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        clock = StoreClock(measure, base=base)
        first = clock.now()

        clock.forget()

        assert clock.now() == first  # the database is away: what was true goes on
        clock.forget()
        assert clock.now() == first + timedelta(hours=1)

    @pytest.mark.parametrize(("there", "back"), [(4, 0), (0, 4), (2, 2)])
    def test_an_answer_that_was_long_under_way_moves_nothing(self, there, back):
        base = ManualClock()
        delays = [(0, 0), (there, back)]

        def measure():
            out, home = delays.pop(0)
            base.advance(seconds=out)
            measured = base.now() + timedelta(hours=1)
            base.advance(seconds=home)
            return measured

        clock = StoreClock(measure, base=base)
        clock.now()
        clock.forget()

        # Others go by it when they take a lease: two seconds off, and they would take it early.
        assert clock.now() == base.now() + timedelta(hours=1)

    def test_an_answer_that_does_not_fit_is_believed(self):
        base, ahead = ManualClock(), [timedelta(hours=1)]

        def measure():
            measured = base.now() + ahead[0]
            base.advance(seconds=4)
            return measured

        clock = StoreClock(measure, base=base)
        clock.now()
        ahead[0] = timedelta(hours=2)  # another server
        clock.forget()

        off_by = clock.now() - base.now() - timedelta(hours=2)
        assert abs(off_by) <= timedelta(seconds=4)

    def test_an_event_loop_does_not_wait_for_a_new_measurement(self):
        base, queried_at = ManualClock(), []

        def measure():
            queried_at.append(base.now())
            return base.now()

        clock = StoreClock(measure, base=base, every=30.0)

        async def read() -> datetime:
            return clock.now()

        clock.now()
        base.advance(seconds=31)
        clock.forget()

        assert asyncio.run(read()) == base.now()
        assert len(queried_at) == 1
        clock.refresh()  # by a thread of the worker
        assert len(queried_at) == 2
        base.advance(seconds=300)  # no thread has measured again
        asyncio.run(read())
        assert len(queried_at) == 3

    def test_a_slow_first_answer_is_not_the_last(self):
        base = ManualClock()
        delays = [4.0, 0.0]

        def measure():
            base.advance(seconds=delays.pop(0))
            return base.now()

        clock = StoreClock(measure, base=base)

        assert clock.now() == base.now()
        assert not delays

    def test_a_background_thread_measures_early(self):
        base, requests = ManualClock(), []

        def measure():
            requests.append(1)
            return base.now()

        clock = StoreClock(measure, base=base, every=30.0)
        clock.refresh()
        clock.refresh()
        base.advance(seconds=16)
        clock.refresh()
        base.advance(seconds=16)

        clock.now()

        assert len(requests) == 2


class TestOptions:
    def test_plain_words_will_do(self):
        options = worker_options(queues="emails", drain="5s", poll=0.5)

        assert options.queues == ("emails",)
        assert (options.drain, options.poll) == (timedelta(seconds=5), timedelta(seconds=0.5))

    def test_an_unknown_one_is_named(self):
        with pytest.raises(InvalidOption, match="A worker has no option"):
            worker_options(thread=3)
