"""The writer, on a store whose answers the test chooses."""

from contextlib import suppress
from typing import Any

import pytest

from tickwork._domain.identity import RunId
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.transitions import Transition
from tickwork._stores.contract import LogLine
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork._worker.attempts.log_capture import LogCapture
from tickwork._worker.attempts.writer import ASIDE_LONGEST, ENDING_LONGEST, Writer
from tickwork.errors import (
    AccessDenied,
    OutcomeUnknown,
    RowRejected,
    SchemaMissing,
    StatementFailed,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    ValueRejected,
)
from tickwork.testing import ManualClock
from unit.builders import MINUTE, NOON, a_claim


class RecordingStore:
    """A store that remembers each write."""

    def __init__(self):
        self.writes = []
        self.results: list[str | None] = []
        self.faults: list[Exception] = []
        self.ill: Exception | None = None
        self.refused: dict[str, Exception] = {}
        self.bad_values: set[str] = set()
        self.written: list[Transition] = []
        self.logs: list[Any] = []
        self.log_faults: list[Exception] = []
        self.lost: list[str] = []

    def record(self, steps, *, may_be_stored=False):
        self.writes.append(([step.claim.run_id for step in steps], may_be_stored))
        self.results += [step.result for step in steps]
        if self.faults:
            raise self.faults.pop(0)
        if self.ill is not None:
            raise self.ill
        for step in steps:
            run_id = step.claim.run_id
            if run_id in self.refused:
                raise self.refused[run_id]
            if run_id in self.bad_values and not step.is_short:
                raise ValueRejected("out of range", state="22003")
        self.written += steps
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


def put(writer, held, *names, token=1, limit_keys=(), result=None):
    for name in names:
        claim = a_claim(run_id=RunId(name), token=token, limit_keys=limit_keys)
        held.add([claim], extended_at=0.0)
        step = Transition(
            claim, RunStatus.COMPLETED, OutcomeKind.SUCCEEDED, NOON, NOON, result=result
        )
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


class TestRejectedValues:
    """Only an error that depends on a value shortens an outcome, and it stays what it is."""

    def test_a_bad_value_does_not_block_the_others(self, writer, held, store, reporter):
        put(writer, held, *"abcdefgh", result="7")
        store.bad_values = {"c"}

        write_all(writer)

        assert sorted(reporter.recorded_ids) == list("abcdefgh")
        assert len(writer) == len(held) == 0

    def test_a_run_that_succeeded_is_completed_without_its_result(self, writer, held, store):
        put(writer, held, "a", result="7")
        store.bad_values = {"a"}

        write_all(writer)

        [step] = store.written
        assert (step.to_status, step.outcome) == (RunStatus.COMPLETED, OutcomeKind.SUCCEEDED)
        assert (step.result, step.reason) == (
            None,
            "The result was not stored. The database rejected a value (22003).",
        )

    def test_a_run_that_failed_keeps_its_retry(self, writer, held, store):
        claim = a_claim(run_id=RunId("a"))
        held.add([claim], extended_at=0.0)
        failed = Transition(
            claim,
            RunStatus.FAILED,
            OutcomeKind.FAILED,
            NOON,
            NOON,
            due_at=NOON + MINUTE,
            reason="no \u2713",
            traceback="…",
        )
        writer.outbox.append(failed)
        store.bad_values = {"a"}

        write_all(writer)

        [step] = store.written
        assert step._replace(reason="", traceback="") == failed._replace(reason="", traceback="")
        assert step.reason.startswith("no \\u2713\nThe complete text was not stored.")

    def test_an_outcome_that_is_rejected_without_its_values_is_kept_whole(
        self, writer, held, store, clock
    ):
        put(writer, held, "a", result="7")
        store.refused = {"a": ValueRejected("a constraint", state="23514")}
        write_all(writer)
        assert len(writer) == 1
        store.refused = {}

        clock.advance(seconds=ASIDE_LONGEST)
        write_all(writer)

        assert [step.result for step in store.written] == ["7"]


class TestRefusedRows:
    """A row that is rejected does not block the others, and nothing of its outcome is lost."""

    @pytest.mark.parametrize(
        "error", [RowRejected("not today", state="P0001"), RuntimeError("a bug")]
    )
    def test_the_others_are_written(self, writer, held, store, reporter, error):
        put(writer, held, *"abcdefgh")
        store.refused = {"c": error}

        write_all(writer)

        assert sorted(reporter.recorded_ids) == list("abdefgh")
        assert (len(writer), writer.pending) == (1, 0)
        assert held.get(RunId("c")) is not None  # the heartbeat keeps its lease

    def test_it_is_written_whole_when_the_trigger_is_gone(self, writer, held, store, clock):
        put(writer, held, "a", result="7")
        store.refused = {"a": RowRejected("not today", state="P0001")}
        write_all(writer)
        count = len(store.writes)
        write_all(writer)
        assert len(store.writes) == count  # not yet
        store.refused = {}

        clock.advance(seconds=ASIDE_LONGEST)
        write_all(writer)

        assert [step.to_status for step in store.written] == [RunStatus.COMPLETED]
        assert set(store.results) == {"7"}  # in no try without its result
        assert len(writer) == len(held) == 0

    def test_while_all_are_refused_one_is_tried_at_a_time(self, writer, held, store, clock):
        put(writer, held, *"abcdefgh")
        store.refused = dict.fromkeys("abcdefgh", RowRejected("not today", state="P0001"))
        write_all(writer)
        count = len(store.writes)

        for _ in range(3):
            clock.advance(seconds=ASIDE_LONGEST)
            write_all(writer)

        assert len(store.writes) == count + 3
        assert len(writer) == 8

    def test_when_one_is_written_all_follow(self, writer, held, store, clock):
        put(writer, held, *"abcdefgh")
        store.refused = dict.fromkeys("abcdefgh", RowRejected("not today", state="P0001"))
        write_all(writer)
        store.refused = {}

        clock.advance(seconds=ASIDE_LONGEST)
        write_all(writer)

        assert len(writer) == len(held) == 0

    def test_they_are_tried_more_often_while_the_worker_ends(self, writer, held, store, clock):
        put(writer, held, *"ab")
        store.refused = dict.fromkeys("ab", RowRejected("not today", state="P0001"))
        write_all(writer)

        writer.hurry()
        write_all(writer)
        assert len(writer) == 2
        store.refused = {}
        clock.advance(seconds=ENDING_LONGEST)
        write_all(writer)

        assert len(writer) == 0


class TestIllDatabase:
    """A full disk or a missing right says nothing about a run: its outcome is kept whole."""

    ILL = StatementFailed("db://", "no space left on device", state="53100")

    @pytest.mark.parametrize("error", [ILL, SchemaMissing("db://"), AccessDenied("db://", "no")])
    def test_all_outcomes_are_written_when_it_is_well_again(
        self, writer, held, store, clock, error
    ):
        put(writer, held, *"abcdefgh", result="7")
        store.ill = error
        for _ in range(20):
            with suppress(StoreError):
                writer.write()
        assert len(writer) == len(held) == 8
        store.ill = None

        clock.advance(seconds=ASIDE_LONGEST)
        write_all(writer)

        assert {(step.to_status, step.result) for step in store.written} == {
            (RunStatus.COMPLETED, "7")
        }
        assert sorted(step.claim.run_id for step in store.written) == list("abcdefgh")
        assert len(held) == 0

    def test_the_pump_gets_the_error(self, writer, held, store):
        put(writer, held, *"ab")
        store.ill = self.ILL

        with pytest.raises(StatementFailed):
            writer.write()

    def test_a_row_with_which_a_statement_fails_does_not_block_the_others(
        self, writer, held, store, reporter
    ):
        # As with the row policies of PostgreSQL, which have the same code as a missing right.
        put(writer, held, *"abcdefgh")
        store.refused = {"c": StatementFailed("db://", "a policy", state="42501")}

        for _ in range(20):
            with suppress(StoreError):
                writer.write()

        assert sorted(reporter.recorded_ids) == list("abdefgh")
        assert len(writer) == 1

    def test_the_log_has_one_record_for_many_tries(self, writer, held, store, clock, caplog):
        put(writer, held, *"ab")
        store.ill = self.ILL
        for _ in range(20):
            clock.advance(seconds=1)
            with suppress(StoreError):
                writer.write()
        store.ill = None
        clock.advance(seconds=ASIDE_LONGEST)
        write_all(writer)

        assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
        assert "no space left on device" in caplog.text

    def test_health_checks_get_the_number_and_the_reason(self, writer, held, store, clock):
        put(writer, held, *"ab")
        assert writer.find_unwritten() is None  # they are not late
        store.ill = self.ILL
        with suppress(StoreError):
            writer.write()
        clock.advance(seconds=3)

        unwritten: Any = writer.find_unwritten()

        assert (unwritten.number, unwritten.is_store_ill) == (2, True)
        assert str(unwritten) == (
            "2 outcomes not written for 3s: The store at db:// cannot execute a statement (53100)."
            " no space left on device"
        )
        store.ill = None
        write_all(writer)
        assert writer.find_unwritten() is None

    def test_the_reason_has_no_values_of_rows(self, writer, held, store):
        put(writer, held, "a")
        store.refused = {"a": RowRejected("not for customer 4711", state="P0001")}
        write_all(writer)

        assert "4711" not in writer.find_unwritten().reason
        assert not writer.find_unwritten().is_store_ill

    def test_log_lines_that_cannot_be_written_do_not_block_outcomes(
        self, writer, held, store, log_capture, clock
    ):
        put(writer, held, "a")
        line = LogLine(clock.now(), "INFO", "shop", "hello")
        log_capture.add(RunId("a"), line)
        store.log_faults = [self.ILL]

        write_all(writer)
        assert len(writer) == 0

        writer.write_logs()
        assert store.logs == [{"a": [line]}]


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
