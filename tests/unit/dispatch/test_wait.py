import threading
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tickwork._dispatch.wait import PAUSE_MAX, PAUSE_MIN, RunWaiter, _Wait
from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork.errors import RunNotFound
from unit.builders import NOON

PENDING = Run(
    id=RunId("run-1"),
    job="send_email",
    status=RunStatus.PENDING,
    phase=Phase.READY,
    created_at=NOON,
    due_at=NOON,
)


def finished(run: Run) -> Run:
    return replace(run, status=RunStatus.COMPLETED, phase=None, ended_at=NOON)


class Table:
    """Runs by id, and the ids of each query."""

    def __init__(self, *runs: Run) -> None:
        self.runs = {run.id: run for run in runs}
        self.looks: list[list[RunId]] = []

    def look(self, ids):
        self.looks.append(sorted(ids))
        return [self.runs[run_id] for run_id in ids if run_id in self.runs]


def pollers():
    return [each for each in threading.enumerate() if each.name == "tickwork-waits"]


def assert_no_poller():
    for poller in pollers():
        poller.join(timeout=5)
    assert not pollers()


class TestPolling:
    """A run is polled after a third of the time waited so far; long waits are polled together."""

    def test_the_pause_grows_with_the_time_waited(self):
        wait = _Wait(PENDING.id, now=100.0)
        assert wait.poll_at == 100.0 + PAUSE_MIN
        wait.postpone(now=100.001)
        assert wait.poll_at == 100.001 + PAUSE_MIN
        wait.postpone(now=100.3)
        assert wait.poll_at == pytest.approx(100.4)

    def test_long_waits_are_polled_at_the_same_time(self):
        waits = [_Wait(PENDING.id, now=100.0 + n / 100) for n in range(9)]
        for n, wait in enumerate(waits):
            wait.postpone(now=102.01 + n / 100)

        assert {wait.poll_at for wait in waits} == {102.25}
        assert 102.25 % PAUSE_MAX == 0


class TestRunWaiter:
    """One thread polls for all waits, and ends with the last of them."""

    def test_the_future_is_done_when_the_run_has_finished(self):
        table = Table(PENDING)
        waiter = RunWaiter(table.look)

        with waiter.watch(PENDING.id) as done:
            assert not done.done()
            table.runs[PENDING.id] = finished(PENDING)
            assert done.result(5).status is RunStatus.COMPLETED

        assert_no_poller()

    def test_two_waits_for_one_run_need_one_query(self):
        table = Table(PENDING)
        waiter = RunWaiter(table.look)

        with waiter.watch(PENDING.id) as one, waiter.watch(PENDING.id) as other:
            table.runs[PENDING.id] = finished(PENDING)
            assert one.result(5) == other.result(5)

        assert all(look == [PENDING.id] for look in table.looks)

    def test_a_missing_run_fails_only_its_own_wait(self):
        table = Table(PENDING)
        waiter = RunWaiter(table.look)

        with waiter.watch(RunId("missing")) as lost, waiter.watch(PENDING.id) as other:
            with pytest.raises(RunNotFound):
                lost.result(5)
            assert not other.done()

    def test_a_failed_query_fails_its_waits_and_the_next_query_may_succeed(self):
        table = Table(finished(PENDING))
        faults = [ConnectionError("gone")]

        def look(ids):
            if faults:
                raise faults.pop()
            return table.look(ids)

        waiter = RunWaiter(look)
        with waiter.watch(PENDING.id) as done, pytest.raises(ConnectionError):
            done.result(5)
        with waiter.watch(PENDING.id) as done:
            assert done.result(5).is_finished

    def test_a_wait_that_was_left_is_not_polled_any_more(self):
        table = Table(PENDING)
        waiter = RunWaiter(table.look)

        with waiter.watch(PENDING.id) as done:
            pass

        assert isinstance(done, Future)
        assert done.cancelled()
        assert_no_poller()

    def test_a_forked_child_starts_without_waits(self):
        waiter = RunWaiter(Table(finished(PENDING)).look)
        # As after a fork: there is a wait, and the polling thread does not exist.
        waiter._waits.add(_Wait(RunId("of the parent"), now=0))
        waiter._poller = threading.Thread()

        waiter.after_fork()

        with waiter.watch(PENDING.id) as done:
            assert done.result(5).is_finished

    def test_many_waits_at_once(self):
        runs = [replace(PENDING, id=RunId(f"run-{n}")) for n in range(1200)]
        table = Table(*runs)
        waiter = RunWaiter(table.look)
        with ExitStack() as stack:
            done = [stack.enter_context(waiter.watch(run.id)) for run in runs]
            table.runs = {run.id: finished(run) for run in runs}
            assert all(each.result(10).is_finished for each in done)

        assert max(map(len, table.looks)) <= 500
