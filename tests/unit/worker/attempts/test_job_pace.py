"""The row of a job: written at most once a second, after each failure, and at the end."""

from datetime import timedelta

import pytest

from tickwork._domain.identity import RunId
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.transitions import Transition
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork._worker.attempts.log_capture import LogCapture
from tickwork._worker.attempts.writer import Writer
from tickwork.errors import StoreBusy
from tickwork.testing import ManualClock
from unit.builders import NOON, a_claim


class JobStore:
    """A store that remembers which outcomes changed the row of a job."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.fault: Exception | None = None

    def record(self, steps, *, may_be_stored=False, touches_jobs=True):
        if touches_jobs:
            self.touch_jobs(steps)
        return []

    def touch_jobs(self, steps):
        if self.fault is not None:
            raise self.fault
        self.rows += [step.claim.run_id for step in steps]

    def append_logs(self, lines, *, lines_max):
        pass


class Quiet:
    def report_written(self, steps, *, lost, at):
        pass


@pytest.fixture
def store():
    return JobStore()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def writer(store, clock):
    writer = Writer(
        store=store,
        clock=clock,
        held=HeldRuns(),
        reporter=Quiet(),  # type: ignore[arg-type]
        log_capture=LogCapture(),
        batch=1,
    )
    writer.pace_jobs()
    return writer


def end(writer, name, *, job="job", is_failed=False):
    claim = a_claim(run_id=RunId(name), job=job)
    status = RunStatus.FAILED_PERMANENT if is_failed else RunStatus.COMPLETED
    outcome = OutcomeKind.FAILED if is_failed else OutcomeKind.SUCCEEDED
    writer.outbox.append(Transition(claim, status, outcome, NOON, NOON))
    writer.write()


class TestPace:
    def test_the_first_outcome_is_written_and_the_next_ones_wait(self, writer, store, clock):
        for name in "abc":
            end(writer, name)
        assert store.rows == ["a"]

        clock.advance(seconds=1)
        end(writer, "d")

        assert store.rows == ["a", "d"]
        writer.write_jobs(is_ending=True)
        assert store.rows == ["a", "d"]

    def test_an_idle_worker_writes_the_latest_outcome(self, writer, store, clock):
        for name in "abc":
            end(writer, name)

        writer.write_jobs()
        assert store.rows == ["a"]
        clock.advance(seconds=1)
        writer.write_jobs()

        assert store.rows == ["a", "c"]

    def test_each_job_has_its_own_pace(self, writer, store):
        end(writer, "a")
        end(writer, "b", job="other")

        assert store.rows == ["a", "b"]

    def test_a_failure_is_written_at_once_after_the_successes_before_it(self, writer, store):
        for name in "abc":
            end(writer, name)

        end(writer, "d", is_failed=True)

        assert store.rows == ["a", "c", "d"]

    def test_what_is_left_is_written_when_the_worker_ends(self, writer, store):
        for name in "ab":
            end(writer, name)

        writer.write_jobs(is_ending=True)

        assert store.rows == ["a", "b"]

    def test_what_could_not_be_written_is_kept(self, writer, store, clock):
        for name in "ab":
            end(writer, name)
        clock.advance(seconds=1)
        store.fault = StoreBusy("store", waited=timedelta(seconds=1))
        with pytest.raises(StoreBusy):
            writer.write_jobs()
        store.fault = None

        writer.write_jobs()

        assert store.rows == ["a", "b"]
