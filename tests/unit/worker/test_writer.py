"""The writer, on a store whose answers the test chooses."""

from typing import Any

import pytest

from tickwork._domain.identity import RunId
from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.status import RunStatus
from tickwork._domain.transitions import Transition
from tickwork._worker.held_runs import HeldRuns
from tickwork._worker.log_capture import LogCapture
from tickwork._worker.writer import REJECTED_RETRY_AFTER, UNWRITABLE, Writer
from tickwork.errors import OutcomeUnknown, StoreBusy, StoreUnavailable
from tickwork.stores.contract import LogLine
from tickwork.testing import ManualClock
from unit.builders import NOON, a_claim


class RecordingStore:
    """A store that remembers each write."""

    def __init__(self):
        self.writes = []
        self.faults: list[Exception] = []
        self.bad: set[str] = set()
        self.logs: list[Any] = []
        self.log_faults: list[Exception] = []
        self.lost: list[str] = []

    def record(self, steps, *, may_be_stored=False):
        self.writes.append(([step.claim.run_id for step in steps], may_be_stored))
        if self.faults:
            raise self.faults.pop(0)
        if self.bad & {step.claim.run_id for step in steps}:
            raise ValueError("a value that no database takes")
        return self.lost

    def append_logs(self, lines, *, lines_max):
        if self.log_faults:
            raise self.log_faults.pop(0)
        self.logs.append(dict(lines))


class RecordingReporter:
    def __init__(self):
        self.recorded_ids = []

    def report_written(self, steps, *, lost, at):
        self.recorded_ids += [step.claim.run_id for step in steps]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store():
    return RecordingStore()


@pytest.fixture
def reporter():
    return RecordingReporter()


@pytest.fixture
def held():
    return HeldRuns()


@pytest.fixture
def log_capture(clock):
    return LogCapture()


@pytest.fixture
def writer(store, clock, held, reporter, log_capture):
    return Writer(
        store=store, clock=clock, held=held, reporter=reporter, log_capture=log_capture, batch=4
    )


def put(writer, held, *names, token=1, limit_keys=()):
    for name in names:
        claim = a_claim(run_id=RunId(name), token=token, limit_keys=limit_keys)
        held.add([claim], extended_at=0.0)
        step = Transition(claim, RunStatus.COMPLETED, OutcomeKind.SUCCEEDED, NOON, NOON)
        writer.outbox.append(step)


def write_all(writer, rounds=50):
    for _ in range(rounds):
        if not writer.write().size:
            return


class TestWriting:
    def test_in_batches_and_in_order(self, writer, held, store, reporter):
        put(writer, held, *"abcdef")

        assert writer.write().size == 4
        assert writer.write().size == 2
        assert writer.write().size == 0

        assert store.writes == [(list("abcd"), False), (list("ef"), False)]
        assert reporter.recorded_ids == list("abcdef")
        assert len(held) == 0

    @pytest.mark.parametrize(("limited", "is_limited"), [("", False), ("cd", False), ("bcd", True)])
    def test_the_result_has_whether_most_had_limits(self, writer, held, limited, is_limited):
        put(writer, held, *limited, limit_keys=("job:send",))
        put(writer, held, *"abcd"[: 4 - len(limited)])

        assert writer.write().is_limited is is_limited

    def test_a_run_that_was_claimed_again_is_still_held(self, writer, held):
        put(writer, held, "a")
        again = a_claim(run_id=RunId("a"), token=2)
        held.add([again], extended_at=0.0)

        writer.write()

        assert held.of(again) is not None


class TestUnreachableDatabase:
    @pytest.mark.parametrize(
        "fault", [StoreUnavailable("db://", "gone"), StoreBusy("db://", waited=NOON - NOON)]
    )
    def test_all_outcomes_are_kept_in_order(self, writer, held, store, fault):
        put(writer, held, *"abcdef")
        store.faults = [fault]

        with pytest.raises(type(fault)):
            writer.write()

        assert len(writer) == 6
        write_all(writer)
        assert store.writes[1:] == [(list("abcd"), False), (list("ef"), False)]

    def test_a_batch_whose_answer_was_lost_is_written_again_as_a_repeat(self, writer, held, store):
        put(writer, held, *"abcdef")
        store.faults = [OutcomeUnknown("db://", "gone"), StoreUnavailable("db://", "gone")]

        for kind in (OutcomeUnknown, StoreUnavailable):
            with pytest.raises(kind):
                writer.write()
        write_all(writer)

        assert store.writes[1:] == [
            (list("abcd"), True),
            (list("abcd"), True),
            (list("ef"), False),
        ]
        assert len(writer) == len(held) == 0

    def test_outcomes_are_kept_when_log_lines_cannot_be_written(
        self, writer, held, store, log_capture, clock
    ):
        put(writer, held, "a")
        line = LogLine(clock.now(), "INFO", "shop", "hello")
        log_capture.add(RunId("a"), line)
        store.log_faults = [StoreUnavailable("db://", "gone")]

        with pytest.raises(StoreUnavailable):
            writer.write()
        write_all(writer)

        assert store.logs == [{"a": [line]}]
        assert len(writer) == 0


class TestRejectedOutcomes:
    def test_a_bad_outcome_does_not_block_the_others(self, writer, held, store, reporter):
        put(writer, held, *"abcdefgh")
        store.bad = {"c"}

        write_all(writer)

        assert sorted(reporter.recorded_ids) == list("abdefgh")
        assert len(writer) == 1  # kept: the worker holds the lease, and tries again
        assert writer.pending == 0
        assert held.get(RunId("c")) is not None

    def test_it_is_written_without_its_result(self, writer, held, store):
        put(writer, held, "a")
        store.faults = [ValueError("the result cannot be stored")]

        write_all(writer)

        assert store.writes == [(["a"], False), (["a"], True)]
        assert len(writer) == 0

    def test_it_is_written_again_after_a_while(self, writer, held, store, clock, reporter):
        put(writer, held, "a")
        store.bad = {"a"}
        write_all(writer)
        count = len(store.writes)
        write_all(writer)
        assert len(store.writes) == count
        store.bad = set()

        clock.advance(seconds=REJECTED_RETRY_AFTER)
        write_all(writer)

        assert reporter.recorded_ids == ["a"]
        assert len(writer) == len(held) == 0

    def test_its_reason_is_that_it_could_not_be_written(self, writer, held, store, monkeypatch):
        put(writer, held, "a")
        seen = []

        def record(steps, *, may_be_stored=False):
            seen.extend(steps)
            if len(seen) == 1:
                raise ValueError
            return []

        monkeypatch.setattr(store, "record", record)
        write_all(writer)

        assert seen[1].to_status is RunStatus.FAILED_PERMANENT
        assert seen[1].reason.startswith(UNWRITABLE)


class TestLogs:
    def test_log_lines_of_a_lost_attempt_are_not_written(
        self, writer, held, store, log_capture, clock
    ):
        put(writer, held, "a", "b")
        line = LogLine(clock.now(), "INFO", "shop", "hello")
        log_capture.add(RunId("a"), line)
        log_capture.add(RunId("b"), line)

        held.revoke(RunId("a"), token=1)
        writer.write_logs()

        assert store.logs == [{"b": [line]}]
