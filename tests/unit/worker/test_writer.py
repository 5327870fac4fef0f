"""Outcomes on their way to a database that answers as it is told."""

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


class Books:
    """A store that remembers what it was asked to write."""

    def __init__(self):
        self.asked = []
        self.faults: list[Exception] = []
        self.bad: set[str] = set()
        self.logs: list[Any] = []
        self.log_faults: list[Exception] = []
        self.lost: list[str] = []

    def record(self, steps, *, is_repeat=False):
        self.asked.append(([step.claim.run_id for step in steps], is_repeat))
        if self.faults:
            raise self.faults.pop(0)
        if self.bad & {step.claim.run_id for step in steps}:
            raise ValueError("a value that no database takes")
        return self.lost

    def append_logs(self, lines, *, lines_max):
        if self.log_faults:
            raise self.log_faults.pop(0)
        self.logs.append(dict(lines))


class Told:
    def __init__(self):
        self.recorded_ids = []

    def recorded(self, steps, *, lost, at):
        self.recorded_ids += [step.claim.run_id for step in steps]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def books():
    return Books()


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def held():
    return HeldRuns()


@pytest.fixture
def log_capture(clock):
    return LogCapture(now=clock.now)


@pytest.fixture
def writer(books, clock, held, told, log_capture):
    return Writer(
        store=books, clock=clock, held=held, reporter=told, log_capture=log_capture, batch=4
    )


def put(writer, held, *names, token=1, limit_keys=()):
    for name in names:
        claim = a_claim(run_id=RunId(name), token=token, limit_keys=limit_keys)
        held.add([claim], extended_at=0.0)
        step = Transition(claim, RunStatus.COMPLETED, OutcomeKind.SUCCEEDED, NOON, NOON)
        writer.done.append(step)


def write_all(writer, rounds=50):
    for _ in range(rounds):
        if not writer.write().size:
            return


class TestWriting:
    def test_in_batches_and_in_order(self, writer, held, books, told):
        put(writer, held, *"abcdef")

        assert writer.write().size == 4
        assert writer.write().size == 2
        assert writer.write().size == 0

        assert books.asked == [(list("abcd"), False), (list("ef"), False)]
        assert told.recorded_ids == list("abcdef")
        assert len(held) == 0

    @pytest.mark.parametrize(("limited", "is_limited"), [("", False), ("cd", False), ("bcd", True)])
    def test_it_tells_whether_most_had_limits(self, writer, held, limited, is_limited):
        put(writer, held, *limited, limit_keys=("job:send",))
        put(writer, held, *"abcd"[: 4 - len(limited)])

        assert writer.write().is_limited is is_limited

    def test_what_was_claimed_anew_meanwhile_is_still_held(self, writer, held):
        put(writer, held, "a")
        again = a_claim(run_id=RunId("a"), token=2)
        held.add([again], extended_at=0.0)

        writer.write()

        assert held.of(again) is not None


class TestAway:
    @pytest.mark.parametrize(
        "fault", [StoreUnavailable("db://", "gone"), StoreBusy("db://", waited=NOON - NOON)]
    )
    def test_everything_is_kept_in_order(self, writer, held, books, fault):
        put(writer, held, *"abcdef")
        books.faults = [fault]

        with pytest.raises(type(fault)):
            writer.write()

        assert len(writer) == 6
        write_all(writer)
        assert books.asked[1:] == [(list("abcd"), False), (list("ef"), False)]

    def test_a_batch_whose_answer_was_lost_is_written_again_as_a_repeat(self, writer, held, books):
        put(writer, held, *"abcdef")
        books.faults = [OutcomeUnknown("db://", "gone"), StoreUnavailable("db://", "gone")]

        for kind in (OutcomeUnknown, StoreUnavailable):
            with pytest.raises(kind):
                writer.write()
        write_all(writer)

        assert books.asked[1:] == [
            (list("abcd"), True),
            (list("abcd"), True),
            (list("ef"), False),
        ]
        assert len(writer) == len(held) == 0

    def test_log_lines_that_cannot_be_written_take_no_outcome_with_them(
        self, writer, held, books, log_capture, clock
    ):
        put(writer, held, "a")
        line = LogLine(clock.now(), "INFO", "shop", "hello")
        log_capture.add(RunId("a"), line)
        books.log_faults = [StoreUnavailable("db://", "gone")]

        with pytest.raises(StoreUnavailable):
            writer.write()
        write_all(writer)

        assert books.logs == [{"a": [line]}]
        assert len(writer) == 0


class TestRefused:
    def test_a_bad_step_does_not_hold_the_others(self, writer, held, books, told):
        put(writer, held, *"abcdefgh")
        books.bad = {"c"}

        write_all(writer)

        assert sorted(told.recorded_ids) == list("abdefgh")
        assert len(writer) == 1  # kept: its lease is ours, and it is tried again
        assert writer.pending == 0
        assert held.get(RunId("c")) is not None

    def test_it_is_written_as_plainly_as_can_be(self, writer, held, books):
        put(writer, held, "a")
        books.faults = [ValueError("what it returned cannot be stored")]

        write_all(writer)

        assert books.asked == [(["a"], False), (["a"], True)]
        assert len(writer) == 0

    def test_it_is_tried_again_after_a_while(self, writer, held, books, clock, told):
        put(writer, held, "a")
        books.bad = {"a"}
        write_all(writer)
        count = len(books.asked)
        write_all(writer)
        assert len(books.asked) == count
        books.bad = set()

        clock.advance(seconds=REJECTED_RETRY_AFTER)
        write_all(writer)

        assert told.recorded_ids == ["a"]
        assert len(writer) == len(held) == 0

    def test_the_reason_says_so(self, writer, held, books, monkeypatch):
        put(writer, held, "a")
        seen = []

        def record(steps, *, is_repeat=False):
            seen.extend(steps)
            if len(seen) == 1:
                raise ValueError
            return []

        monkeypatch.setattr(books, "record", record)
        write_all(writer)

        assert (seen[1].to_status, seen[1].reason) == (RunStatus.FAILED_PERMANENT, UNWRITABLE)


class TestLogs:
    def test_what_a_lost_run_still_says_is_not_kept(self, writer, held, books, log_capture, clock):
        put(writer, held, "a", "b")
        line = LogLine(clock.now(), "INFO", "shop", "hello")
        log_capture.add(RunId("a"), line)
        log_capture.add(RunId("b"), line)

        held.revoke(RunId("a"), token=1)
        writer.write_logs()

        assert books.logs == [{"b": [line]}]
