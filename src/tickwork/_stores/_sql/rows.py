"""Maps rows to domain values and back, by the declarations in ``columns.py``."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Final

from tickwork._domain.alert_history import AlertRow
from tickwork._domain.identity import RunId
from tickwork._domain.job import (
    EXPECT_MIN,
    GRACE_MAX,
    JITTER_MAX,
    Misfire,
    Overlap,
    ScheduleOrigin,
    ScheduleRow,
    ScheduleSpec,
)
from tickwork._domain.limits.limits import check_key, check_slots
from tickwork._domain.limits.rates import Rate, window_of
from tickwork._domain.rollups import Histogram, Rollup, RollupLevel
from tickwork._domain.runs.links import CALLS, SUSPENDED, WAITS
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.replacement import ReplacedRun, WaitingRun
from tickwork._domain.runs.run import PRIORITY_LIMIT, Claim, NewRun, Run
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.steps import Step, StepKind, StepState
from tickwork._domain.runs.transitions import Transition
from tickwork._domain.shared_names import DefinitionKind, DefinitionRow
from tickwork._domain.tick import Skip
from tickwork._stores._sql import columns
from tickwork._stores._sql.columns import StoredColumn
from tickwork._stores._sql.statement import Row
from tickwork._stores.cipher import Cipher
from tickwork._stores.contract import (
    Attempt,
    AuditEntry,
    IdempotentRequest,
    JobRow,
    LimitRow,
    LockRow,
    LogLine,
    NewSchedule,
    Pause,
    PauseKind,
    RunSummary,
    WorkerRow,
)

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNREADABLE: Final = "The row cannot be read"

NUMBER_MAX: Final = 2**31 - 2
"""The largest number in a column of counts to which one can be added, in every database."""

_MICROS_MIN: Final = -62_135_596_800_000_000
_MICROS_MAX: Final = 253_402_300_799_999_999
"""The first and the last instant of a datetime."""

_SHOWN_MAX: Final = 80


def describe_fault(error: Exception) -> str:
    """Describe why a row cannot be used."""
    return f"{UNREADABLE}: {str(error) or repr(error)}"


# ---------------------------------------------------------------- values


def micros(moment: datetime) -> int:
    """An instant as the database stores it: microseconds since 1970."""
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def micros_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


def moment(value: int) -> datetime:
    # By position: timedelta(microseconds=value) takes twice as long.
    return EPOCH + timedelta(0, 0, value)


def moment_or_none(value: int | None) -> datetime | None:
    return None if value is None else EPOCH + timedelta(0, 0, value)


def length_micros(length: timedelta) -> int:
    return (length.days * 86_400 + length.seconds) * 1_000_000 + length.microseconds


def clamped_moment(value: int | None) -> datetime | None:
    """An instant of a row that may be unreadable, within the range of ``datetime``.

    The operation that reads the whole row finds out that it cannot be read, and reports it.
    """
    return None if value is None else shown_moment(value)


def shown_moment(value: int) -> datetime:
    """An instant of a row that may be unreadable, for people."""
    return moment(min(max(value, _MICROS_MIN), _MICROS_MAX))


@lru_cache(maxsize=4096)
def _texts(value: str) -> tuple[str, ...]:
    texts = json.loads(value)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{value[:_SHOWN_MAX]!r} is not a list of texts")
    "".join(texts).encode()  # half a surrogate pair could not be written or shown
    return tuple(texts)


@lru_cache(maxsize=4096)
def _keys(value: str) -> tuple[str, ...]:
    keys = _texts(value)
    if len(set(keys)) < len(keys):
        raise ValueError(f"{value[:_SHOWN_MAX]!r} has a key twice")
    for key in keys:
        check_key(key)
    return keys


@lru_cache(maxsize=4096)
def _histogram(value: str) -> Histogram:
    counts = json.loads(value)
    if not isinstance(counts, list) or not all(type(each) is int and each >= 0 for each in counts):
        raise ValueError(f"{value[:_SHOWN_MAX]!r} is not a list of counts")
    return tuple(counts)


def keys_of(value: str | None) -> tuple[str, ...]:
    """The limit keys of a run; none if they cannot be read."""
    try:
        return _keys(value) if value else ()
    except Exception:  # noqa: BLE001  # any error is the value's own
        return ()


# ---------------------------------------------------------------- compiled mappers

_SCOPE: Final[Mapping[str, Any]] = {
    "EPOCH": EPOCH,
    "MISFIRES": {misfire.value: misfire for misfire in Misfire},
    "ORIGINS": {origin.value: origin for origin in ScheduleOrigin},
    "OVERLAPS": {overlap.value: overlap for overlap in Overlap},
    "PauseKind": PauseKind,
    "DefinitionKind": DefinitionKind,
    "Phase": Phase,
    "RunStatus": RunStatus,
    "StepKind": StepKind,
    "StepState": StepState,
    "dumps": json.dumps,
    "histogram": _histogram,
    "keys": _keys,
    "instant": lru_cache(maxsize=1024)(moment),
    "length": lru_cache(maxsize=256)(partial(timedelta, 0, 0)),
    "length_micros": length_micros,
    "micros": micros,
    "texts": _texts,
    "timedelta": timedelta,
}
"""The names that the expressions of column kinds use."""


def compile_function(params: str, *lines: str, **names: Any) -> Callable[..., Any]:
    """Compile a mapper as ``dataclasses`` does.

    A loop over the columns takes three times as long, and a claim is made for every run.
    """
    scope: dict[str, Any] = {**_SCOPE, **names}
    exec(f"def function({params}):\n    " + "\n    ".join(lines), scope)  # noqa: S102  # our own text
    function: Callable[..., Any] = scope["function"]
    return function


def _unpacked(declared: Sequence[StoredColumn], value: str = "row") -> str:
    return f"{', '.join(columns.names(declared))}, = {value}"


def _reads(declared: Sequence[StoredColumn], **instead: str) -> dict[str, str]:
    """The expression of each field; ``instead`` replaces those of some columns."""
    return {
        column.field_name: instead.get(column.name) or column.kind.read.format(column.name)
        for column in declared
    }


def _compile_mapper(
    params: str, declared: Sequence[StoredColumn], *lines: str, **names: Any
) -> Callable[..., Any]:
    """Compile a function of a row that has these columns.

    It raises for a text that is no Unicode: another program can store that in SQLite, and it is
    read as bytes. The tables guarantee all other types.
    """

    def reject(row: Row) -> None:
        [name, *_] = [
            c.name for c, value in zip(declared, row, strict=True) if type(value) is bytes
        ]
        raise TypeError(f"{name} is no Unicode text")

    return compile_function(
        params,
        "if bytes in map(type, row):",
        "    reject(row)",
        _unpacked(declared),
        *lines,
        reject=reject,
        **names,
    )


def _compile_reader(
    kind: type, declared: Sequence[StoredColumn], **names: Any
) -> Callable[[Row], Any]:
    """Compile the mapping of a row to a value."""
    arguments = ", ".join(f"{name}={text}" for name, text in _reads(declared).items())
    return _compile_mapper("row", declared, f"return Made({arguments})", Made=kind, **names)


def _compile_cleaner(declared: Sequence[StoredColumn], **names: Any) -> Callable[[Row], Row]:
    """Compile a function that replaces the values of a row that cannot be read by defaults."""
    reads = [
        compile_function("value", f"return {column.kind.read.format('value')}", **names)
        for column in declared
    ]

    def clean(row: Row) -> Row:
        return tuple(
            value if _is_readable(value, read) else _default_of(value, column)
            for value, column, read in zip(row, declared, reads, strict=True)
        )

    return clean


def _is_readable(value: object, read: Callable[[Any], Any]) -> bool:
    if isinstance(value, bytes):
        return False
    try:
        read(value)
    except Exception:  # noqa: BLE001  # any error is the value's own
        return False
    return True


def _default_of(value: object, column: StoredColumn) -> object:
    if column.kind.default == "?" and isinstance(value, bytes):
        return shown_text(value)
    return column.kind.default


def shown_text(value: object) -> str:
    """The value of a text column, for people: a text of SQLite that is no Unicode is bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _compile_lister(kind: type, declared: Sequence[StoredColumn]) -> Callable[[Row], Any]:
    """Compile a reader for lists: of a row that cannot be read, it returns what can be read."""
    read, clean = _compile_reader(kind, declared), _compile_cleaner(declared)

    def list_one(row: Row) -> Any:
        try:
            return read(row)
        except Exception:  # noqa: BLE001  # any error is the row's own
            return read(clean(row))

    return list_one


def _compile_params(
    declared: Sequence[StoredColumn], **names: Any
) -> Callable[[Any], dict[str, Any]]:
    """Values by the names of their columns, for a statement with ``:name`` parameters."""
    pairs = ", ".join(
        f"{column.name!r}: {column.kind.write.format(f'value.{column.field_name}')}"
        for column in declared
    )
    return compile_function("value", f"return {{{pairs}}}", **names)


def draft_class(kind: type[Any]) -> type[Any]:
    """A class with the slots of a frozen dataclass, which can be filled and then become it."""
    slots = tuple(field.name for field in fields(kind))
    return type(f"{kind.__name__}Draft", (), {"__slots__": slots})


# ---------------------------------------------------------------- runs and schedules


def waiting_run_of(row: Row) -> WaitingRun:
    """A row of ``lock_waiting``, without its key."""
    run_id, created_at, due_at, phase, queue, limit_keys, blocked_on = row
    return WaitingRun(
        run_id,
        moment(created_at),
        moment(due_at),
        Phase(phase),
        queue,
        keys_of(limit_keys),
        blocked_on,
    )


class RowMappers:
    """The mappers of rows that have payloads, compiled for a store with this cipher or without.

    Without a cipher, payloads are columns of texts: no function is called for them.
    """

    def __init__(self, cipher: Cipher | None = None) -> None:
        self._names: Mapping[str, Any] = (
            {} if cipher is None else {"encrypt": cipher.encrypt, "decrypt": cipher.decrypt}
        )
        self._is_plain = cipher is None
        payload = self._columns([StoredColumn("value", columns.PAYLOAD_OR_NONE)])[0].kind
        self.write_payload: Callable[[str | None], str | None] = compile_function(
            "value", f"return {payload.write.format('value')}", **self._names
        )
        self.read_payload: Callable[[str], str] = compile_function(
            "value", f"return {payload.read.format('value')}", **self._names
        )
        self.new_run_row: Callable[[NewRun], Row] = self._compile_new_run_row()
        """For ``insert_runs``."""
        replaced = self._columns(columns.REPLACED_RUN)
        values = ", ".join(c.kind.write.format(c.name) for c in replaced)
        self.replaced_run_row: Callable[[ReplacedRun], Row] = compile_function(
            "replaced",
            "run, phase, blocked_on, *_ = replaced",
            f"{', '.join(NewRun._fields)}, = run",
            f"return ({values})",
            **self._names,
        )
        """For ``replace_runs``."""
        self.claim_of: Callable[[Row, datetime], Claim] = self._compile_claim_of(
            "row, new_lease_until",
            "attempt < attempts_max",
            attempt="attempt + 1",
            token="token + 1",  # noqa: S106  # of a claim
            lease_until="new_lease_until",
        )
        """A row of ``claim_columns`` as it was before the claim, to the claim it becomes."""
        self.stored_claim_of: Callable[[Row], Claim] = self._compile_claim_of(
            "row", "1 <= attempt <= attempts_max and 1 <= token"
        )
        """A row of ``claim_columns`` of a run that is claimed."""
        run = self._columns(columns.RUN)
        self._run_of: Callable[[Row], Run] = _compile_reader(Run, run, **self._names)
        self._clean_run = _compile_cleaner(run, **self._names)
        summary = self._columns(columns.SUMMARY)
        self._summary_of: Callable[[Row], RunSummary] = compile_function(
            "row",
            _unpacked(summary),
            f"return RunSummary({', '.join(_reads(summary).values())})",
            RunSummary=RunSummary,
            **self._names,
        )
        step = self._columns(columns.STEP)
        self.step_of: Callable[[Row], Step] = _compile_reader(Step, step, **self._names)
        """A row of ``step_columns``."""
        self._clean_step = _compile_cleaner(step, **self._names)
        values = ", ".join(c.kind.write.format(c.name) for c in step)
        self.step_row: Callable[[Step], Row] = compile_function(
            "step", _unpacked(step, "step"), f"return ({values})", **self._names
        )
        """For ``insert_steps``, after the id of the run."""
        self.spec_params: Callable[[ScheduleSpec], dict[str, Any]] = _compile_params(
            self._columns(columns.SPEC), **self._names
        )
        """For ``update_schedule``."""
        self.schedule_of: Callable[[Row], ScheduleRow] = self._compile_schedule_of()
        """A row of ``schedule_columns``."""
        schedule = self._columns(columns.SCHEDULE)
        self._check_schedule = _compile_mapper("row", schedule, "return None")
        self._clean_schedule = _compile_cleaner(schedule, **self._names)

    def _columns(self, declared: Sequence[StoredColumn]) -> Sequence[StoredColumn]:
        return [column.without_cipher() for column in declared] if self._is_plain else declared

    # ------------------------------------------------------------ compiled for every run

    def _compile_new_run_row(self) -> Callable[[NewRun], Row]:
        # Most runs are due when they are created, and a firing is due at its nominal instant: then
        # the same object is converted once.
        shared = {
            "phase": "ready if due_at is created_at else run.phase.value",
            "due_at": "due",
            "created_at": "due if created_at is due_at else micros(created_at)",
            "nominal_at": "None if nominal_at is None else due if nominal_at is due_at"
            " else micros(nominal_at)",
        }
        values = [
            shared.get(column.name) or column.kind.write.format(column.name)
            for column in self._columns(columns.NEW_RUN)
        ]
        return compile_function(
            "run",
            f"{', '.join(NewRun._fields)}, = run",
            # micros(), written out: this runs for every run.
            "since = due_at - EPOCH",
            "due = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds",
            f"return ({', '.join(values)})",
            ready=Phase.READY.value,
            **self._names,
        )

    def _compile_claim_of(self, params: str, check: str, **instead: str) -> Callable[..., Claim]:
        # Most types are not checked, because that takes half a microsecond for each run. If one of
        # them makes a statement fail, the store finds the run by halves.
        claim = self._columns(columns.CLAIM)
        values = ", ".join(_reads(claim, **instead).values())
        return compile_function(
            params,
            _unpacked(claim),
            # The bits of all numbers together: this fails for anything but integers.
            f"if not ({check} and attempt | attempts_max | token | crashes | postponements >= 0"
            " and attempts_max <= most and token <= most and crashes <= most"
            " and postponements <= most):",
            '    raise ValueError(f"attempt {attempt} of {attempts_max}, token {token}, '
            'crashes: {crashes}, postponed: {postponements}")',
            "if (schedule is None) is not (nominal_at is None):",
            '    raise ValueError("only one of schedule and nominal_at is set")',
            f"return new(Claim, ({values}))",
            new=tuple.__new__,
            Claim=Claim,
            most=NUMBER_MAX,
            **self._names,
        )

    def listed_step_of(self, row: Row) -> Step:
        """The same for lists: of a row that makes no sense, what can be read."""
        try:
            return self.step_of(row)
        except Exception:  # noqa: BLE001  # any error is the row's own
            return self.step_of(self._clean_step(row))

    # ------------------------------------------------------------ lists of runs

    def listed_run_of(self, row: Row) -> Run:
        """A row of ``live_run_columns`` or ``history_run_columns``.

        A row that makes no sense is listed as such, and hides no others.
        """
        try:
            return self._run_of(row)
        except Exception as error:  # noqa: BLE001  # any error is the row's own
            values = dict(zip(columns.names(columns.RUN), self._clean_run(row), strict=True))
            values["args"] = self.read_payload(values["args"])
            return Run(
                **{
                    name: values[name] for name in ("id", "job", "tenant", "queue", "args", "token")
                },
                status=RunStatus.FAILED_PERMANENT,
                phase=None,
                created_at=EPOCH,
                due_at=EPOCH,
                ended_at=EPOCH,
                reason=describe_fault(error),
                outcome=OutcomeKind.FAILED.value,
            )

    def summary_of(self, row: Row) -> RunSummary:
        """For ``summarize_live`` and ``summarize_history``; an unknown status means failed."""
        try:
            return self._summary_of(row)
        except Exception as error:  # noqa: BLE001  # any error is the row's own
            return RunSummary(
                RunId(str(row[0])),
                str(row[1]),
                RunStatus.FAILED_PERMANENT,
                EPOCH,
                EPOCH,
                None,
                EPOCH,
                describe_fault(error),
                None,
                "",
            )

    # ------------------------------------------------------------ transitions

    def _with_stored_result(self, transition: Transition) -> Transition:
        return transition._replace(result=self.write_payload(transition.result))

    def finished_row(self, transition: Transition) -> Row:
        """For ``finish_runs``."""
        return (
            transition.claim.run_id,
            transition.claim.token,
            transition.to_status.value,
            transition.uncounted_attempts,
            transition.crash,
            micros_or_none(transition.started_at),
            micros(transition.ended_at),
            transition.outcome.value,
            self.write_payload(transition.result),
            transition.reason,
        )

    def plain_rows(self, transitions: Iterable[Transition]) -> list[Row]:
        """For ``finish_plain``."""
        if not self._is_plain:
            transitions = map(self._with_stored_result, transitions)
        rows: list[Row] = []
        started: int | None
        last_at, ended = EPOCH, 0
        for transition in transitions:
            claim, started_at = transition.claim, transition.started_at
            # A pump starts an attempt when the one before it ended: then both have the same
            # object, which is converted once.
            if started_at is last_at:
                started = ended
            else:
                started = None if started_at is None else micros(started_at)
            last_at = transition.ended_at
            ended = micros(last_at)
            rows.append((claim.run_id, claim.token, started, ended, transition.result))
        return rows

    # ------------------------------------------------------------ schedules

    def new_schedule_row(self, new: NewSchedule, *, now: int) -> Row:
        """For ``insert_schedules``."""
        values = self.spec_params(new.spec)
        values |= {"id": new.id, "created_at": now, "seen_at": now}
        values["next_due_at"] = micros_or_none(new.next_due_at)
        return tuple(values[column.name] for column in columns.NEW_SCHEDULE)

    def _compile_schedule_of(self) -> Callable[[Row], ScheduleRow]:
        spec = [
            f"spec.{name} = {text}" for name, text in _reads(self._columns(columns.SPEC)).items()
        ]
        state = [f"made.{name} = {text}" for name, text in _reads(columns.SCHEDULE_STATE).items()]
        return compile_function(
            "row",
            _unpacked(columns.SCHEDULE),
            # Checked when it was written; only what would make a tick fail is checked again.
            "if id.__class__ is not str:",
            '    raise TypeError(f"id is {id!r}, not a text")',
            "if not (grace <= grace_max and jitter <= jitter_max"
            " and (expect_within is None or expect_min <= expect_within <= grace_max)):",
            '    raise ValueError(f"grace {grace}, jitter {jitter}, '
            'expect_within {expect_within}")',
            "if priority is not None and not -priority_limit <= priority <= priority_limit:",
            '    raise ValueError(f"priority {priority}")',
            "if paused_at is None:",
            "    paused_at, paused_until, pause_note = None, None, ''",
            "spec = SpecDraft()",
            *spec,
            "spec.__class__ = ScheduleSpec",
            "made = RowDraft()",
            "made.id = id",
            "made.fault = ''",
            "made.spec = spec",
            *state,
            "made.__class__ = ScheduleRow",
            "return made",
            SpecDraft=draft_class(ScheduleSpec),
            RowDraft=draft_class(ScheduleRow),
            expect_min=length_micros(EXPECT_MIN),
            grace_max=length_micros(GRACE_MAX),
            jitter_max=length_micros(JITTER_MAX),
            priority_limit=PRIORITY_LIMIT,
            ScheduleSpec=ScheduleSpec,
            ScheduleRow=ScheduleRow,
            **self._names,
        )

    def listed_schedule_of(self, row: Row) -> ScheduleRow:
        """The same for lists: of a row that makes no sense, what can be read, and the reason.

        Such a schedule is not fired: a tick reads the row strictly, and reports it as unfired.
        """
        try:
            self._check_schedule(row)
            return self.schedule_of(row)
        except Exception as error:  # noqa: BLE001  # any error is the row's own
            clean = self._clean_schedule(row)
            values = dict(zip(columns.names(columns.SCHEDULE), clean, strict=True))
            values |= {"grace": 0, "jitter": 0, "expires": None, "priority": None}
            values["expect_within"] = None
            return replace(self.schedule_of(tuple(values.values())), fault=describe_fault(error))

    def skip_row(self, skip: Skip, *, now: int, queue: str, priority: int) -> Row:
        """For ``insert_skips``."""
        spec = skip.schedule.spec
        first = micros(skip.first_at)
        return (
            skip.id,
            spec.tenant,
            spec.job,
            spec.queue or queue,
            priority if spec.priority is None else spec.priority,
            first,
            self.write_payload(spec.args),
            spec.name,
            first,
            micros(skip.last_at),
            skip.instants,
            now,
            now,
            skip.reason,
        )


PLAIN_MAPPERS: Final = RowMappers()
"""The mappers of all stores without a cipher."""

# ---------------------------------------------------------------- transitions


def returned_row(transition: Transition) -> Row:
    """For ``return_runs``."""
    assert transition.due_at is not None, transition
    assert transition.phase is not None, transition
    return (
        transition.claim.run_id,
        transition.claim.token,
        transition.to_status.value,
        transition.phase.value,
        micros(transition.due_at),
        transition.uncounted_attempts,
        transition.crash,
        transition.postponements,
        transition.attempts_max,
        transition.reason,
        _links_of(transition),
    )


def _links_of(transition: Transition) -> int:
    """The bits that the run gets."""
    if transition.outcome is not OutcomeKind.SUSPENDED:
        return 0
    waits = 0 if transition.wait is None else WAITS
    return SUSPENDED | waits | (CALLS if transition.waits_for_runs else 0)


def attempt_row(transition: Transition) -> Row:
    """For ``insert_attempts``."""
    return (
        transition.claim.run_id,
        transition.claim.token,
        transition.claim.attempt,
        transition.outcome.value,
        micros_or_none(transition.started_at),
        micros(transition.ended_at),
        transition.reason,
        transition.traceback,
    )


attempt_of: Final[Callable[[Row], Attempt]] = _compile_lister(Attempt, columns.ATTEMPT)
log_line_of: Final[Callable[[Row], LogLine]] = _compile_lister(LogLine, columns.LOG)


# ---------------------------------------------------------------- the rest


worker_params: Final[Callable[[WorkerRow], dict[str, Any]]] = _compile_params(columns.WORKER)
worker_of: Final[Callable[[Row], WorkerRow]] = _compile_lister(WorkerRow, columns.WORKER)
lock_params: Final[Callable[[LockRow], dict[str, Any]]] = _compile_params(columns.LOCK)
lock_of: Final[Callable[[Row], LockRow]] = _compile_lister(LockRow, columns.LOCK)
pause_params: Final[Callable[[Pause], dict[str, Any]]] = _compile_params(columns.PAUSE)
pause_of: Final[Callable[[Row], Pause]] = _compile_lister(Pause, columns.PAUSE)
audit_params: Final[Callable[[AuditEntry], dict[str, Any]]] = _compile_params(columns.AUDIT)
audit_of: Final[Callable[[Row], AuditEntry]] = _compile_lister(AuditEntry, columns.AUDIT)
alert_of: Final[Callable[[Row], AlertRow]] = _compile_lister(AlertRow, columns.ALERT)
_alert_params: Final[Callable[[AlertRow], dict[str, Any]]] = _compile_params(columns.ALERT)
request_params: Final[Callable[[IdempotentRequest], dict[str, Any]]] = _compile_params(
    columns.REQUEST
)
request_of: Final[Callable[[Row], IdempotentRequest]] = _compile_lister(
    IdempotentRequest, columns.REQUEST
)
limit_row_of: Final[Callable[[Row], LimitRow]] = _compile_lister(LimitRow, columns.LIMIT)
definition_of: Final[Callable[[Row], DefinitionRow]] = _compile_lister(
    DefinitionRow, columns.DEFINITION
)
definition_params: Final[Callable[[DefinitionRow], dict[str, Any]]] = _compile_params(
    columns.DEFINITION
)
job_of: Final[Callable[[Row], JobRow]] = _compile_lister(JobRow, columns.JOB)


rollup_of: Final[Callable[[Row], Rollup]] = _compile_reader(Rollup, columns.ROLLUP)
_rollup_params: Final[Callable[[Rollup], dict[str, Any]]] = _compile_params(columns.ROLLUP)


def alert_row(alert: AlertRow) -> Row:
    """For ``insert_alerts``."""
    return tuple(_alert_params(alert).values())


def new_rollup_row(level: RollupLevel, rollup: Rollup) -> Row:
    """For ``insert_rollups``."""
    return (int(level), *_rollup_params(rollup).values())


_check_limit: Final = _compile_mapper(
    "row", columns.LIMIT, "check_slots(slots, override)", check_slots=check_slots
)
CHECKED_TABLES: Final[Sequence[tuple[str, int, Callable[[Row], object]]]] = (
    ("limit", 0, _check_limit),
    ("pause", 1, _compile_reader(Pause, columns.PAUSE)),
    ("worker", 0, _compile_reader(WorkerRow, columns.WORKER)),
    ("job", 1, _compile_reader(JobRow, columns.JOB)),
)
"""Small tables: the place of the name in a row, and what raises if a row cannot be read."""


def rates_by_key(
    rows: Iterable[Row], count_by_key: Mapping[str, int], *, now: datetime | None
) -> tuple[dict[str, Rate], dict[str, str]]:
    """Rows of ``read_rates``, one for each start, to rates; a key without a row is new.

    Also the keys whose rows cannot be used, with the reasons: they count as new.
    """
    rows_by_key: dict[str, list[Row]] = {}
    for row in rows:
        rows_by_key.setdefault(row[0], []).append(row)
    rates: dict[str, Rate] = {}
    broken: dict[str, str] = {}
    for key, count in count_by_key.items():
        rates[key] = rate = Rate(count, window_of(key))
        try:
            rates[key] = _rate_of(rate, rows_by_key.get(key, ()), now=now)
        except Exception as error:  # noqa: BLE001  # any error is the rows' own
            broken[key] = describe_fault(error)
    return rates, broken


def _rate_of(rate: Rate, rows: Sequence[Row], *, now: datetime | None) -> Rate:
    if not rows:
        return rate
    _, number, idle_at, next_start_at, opened, _, _ = rows[0]
    changed = rate._replace(
        number=number,
        last_at=None if idle_at is None else moment(idle_at) - rate.window,
        next_start_at=moment_or_none(next_start_at),
        opened=opened,
        past={row[5]: moment(row[6]) for row in rows if row[5] is not None},
    )
    if now is not None:
        changed.check(now=now)
    return changed


def rate_row(key: str, rate: Rate) -> Row:
    """For ``save_rates``."""
    idle_at = None if rate.last_at is None else micros(rate.last_at + rate.window)
    return (key, rate.number, idle_at, micros_or_none(rate.next_start_at), rate.opened)
