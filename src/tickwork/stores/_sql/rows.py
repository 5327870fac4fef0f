"""Maps rows to domain values and back, by the declarations in ``columns.py``."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Final

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
from tickwork._domain.limits import check_key, check_slots
from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.rates import Rate, window_of
from tickwork._domain.run import PRIORITY_LIMIT, Claim, NewRun, Run
from tickwork._domain.status import Phase, RunStatus
from tickwork._domain.tick import Skip
from tickwork._domain.transitions import Transition
from tickwork.stores._sql import columns
from tickwork.stores._sql.columns import StoredColumn
from tickwork.stores._sql.statement import Row
from tickwork.stores.contract import (
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

_NONE: Final = type(None)
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


def clamped_moment(value: object) -> datetime | None:
    """An instant of a row that may be unreadable.

    A number beyond the range of ``datetime`` is clamped to it; anything but a number is None.
    The operation that reads the whole row finds out that it cannot be read, and reports it.
    """
    if not isinstance(value, int):
        return None
    return moment(min(max(value, _MICROS_MIN), _MICROS_MAX))


@lru_cache(maxsize=4096)
def _texts(value: str) -> tuple[str, ...]:
    found = json.loads(value)
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise ValueError(f"{value[:_SHOWN_MAX]!r} is not a list of texts")
    return tuple(found)


@lru_cache(maxsize=4096)
def _keys(value: str) -> tuple[str, ...]:
    keys = _texts(value)
    if len(set(keys)) < len(keys):
        raise ValueError(f"{value[:_SHOWN_MAX]!r} has a key twice")
    for key in keys:
        check_key(key)
    return keys


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
    "Phase": Phase,
    "RunStatus": RunStatus,
    "dumps": json.dumps,
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


_TYPES_MAX: Final = 4096
_TYPES_LINES: Final = (
    "types = tuple(map(type, row))",
    "if types not in known_types:",
    "    check_types(types)",
)


def _compile_mapper(
    params: str, declared: Sequence[StoredColumn], *lines: str, **names: Any
) -> Callable[..., Any]:
    """Compile a function of a row that has these columns.

    It raises for a value of another type: SQLite stores anything in any column. Few combinations
    of types and NULL occur, and each is checked once.
    """
    known: set[tuple[type, ...]] = set()

    def check_types(types: tuple[type, ...]) -> None:
        for column, found in zip(declared, types, strict=True):
            if found is not column.kind.stored and found is not _NONE:
                wanted = "an integer" if column.kind.stored is int else "a text"
                raise TypeError(f"{column.name} is of the type {found.__name__}, not {wanted}")
        if len(known) < _TYPES_MAX:
            known.add(types)

    return compile_function(
        params,
        *_TYPES_LINES,
        _unpacked(declared),
        *lines,
        known_types=known,
        check_types=check_types,
        **names,
    )


def _compile_reader(kind: type, declared: Sequence[StoredColumn]) -> Callable[[Row], Any]:
    """Compile the mapping of a row to a value."""
    arguments = ", ".join(f"{name}={text}" for name, text in _reads(declared).items())
    return _compile_mapper("row", declared, f"return Made({arguments})", Made=kind)


def _compile_cleaner(declared: Sequence[StoredColumn]) -> Callable[[Row], Row]:
    """Compile a function that replaces the values of a row that cannot be read by defaults."""
    reads = [
        compile_function("value", f"return {column.kind.read.format('value')}")
        for column in declared
    ]

    def clean(row: Row) -> Row:
        return tuple(
            value if _is_readable(value, column, read) else _default_of(value, column)
            for value, column, read in zip(row, declared, reads, strict=True)
        )

    return clean


def _is_readable(value: object, column: StoredColumn, read: Callable[[Any], Any]) -> bool:
    if not isinstance(value, column.kind.stored | _NONE):
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
    """The value of a text column, for people: SQLite also stores bytes there, and numbers."""
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


def _compile_params(declared: Sequence[StoredColumn]) -> Callable[[Any], dict[str, Any]]:
    """Values by the names of their columns, for a statement with ``:name`` parameters."""
    pairs = ", ".join(
        f"{column.name!r}: {column.kind.write.format(f'value.{column.field_name}')}"
        for column in declared
    )
    return compile_function("value", f"return {{{pairs}}}")


def draft_class(kind: type[Any]) -> type[Any]:
    """A class with the slots of a frozen dataclass, which can be filled and then become it."""
    slots = tuple(field.name for field in fields(kind))
    return type(f"{kind.__name__}Draft", (), {"__slots__": slots})


# ---------------------------------------------------------------- runs


def _compile_new_run_row() -> Callable[[NewRun], Row]:
    # Most runs are due when they are created, and a firing is due at its nominal instant: then the
    # same object is converted once.
    shared = {
        "phase": "ready if due_at is created_at else run.phase.value",
        "due_at": "due",
        "created_at": "due if created_at is due_at else micros(created_at)",
        "nominal_at": "None if nominal_at is None else due if nominal_at is due_at"
        " else micros(nominal_at)",
    }
    values = [shared.get(c.name) or c.kind.write.format(c.name) for c in columns.NEW_RUN]
    return compile_function(
        "run",
        f"{', '.join(NewRun._fields)}, = run",
        # micros(), written out: this runs for every run.
        "since = due_at - EPOCH",
        "due = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds",
        f"return ({', '.join(values)})",
        ready=Phase.READY.value,
    )


new_run_row: Final = _compile_new_run_row()
"""For ``insert_runs``."""


def _compile_claim_of(params: str, check: str, **instead: str) -> Callable[..., Claim]:
    # Most types are not checked, because that takes half a microsecond for each run. If one of them
    # makes a statement fail, the store finds the run by halves.
    values = ", ".join(_reads(columns.CLAIM, **instead).values())
    return compile_function(
        params,
        _unpacked(columns.CLAIM),
        # The bits of all numbers together: this fails for anything but integers.
        f"if not ({check} and attempt | attempts_max | token | crashes | put_offs >= 0"
        " and attempts_max <= most and token <= most and crashes <= most and put_offs <= most):",
        '    raise ValueError(f"attempt {attempt} of {attempts_max}, token {token}, '
        'crashes: {crashes}, postponed: {put_offs}")',
        "if (schedule is None) is not (nominal_at is None):",
        '    raise ValueError("only one of schedule and nominal_at is set")',
        f"return new(Claim, ({values}))",
        new=tuple.__new__,
        Claim=Claim,
        most=NUMBER_MAX,
    )


claim_of: Final = _compile_claim_of(
    "row, new_lease_until",
    "attempt < attempts_max",
    attempt="attempt + 1",
    token="token + 1",  # noqa: S106  # of a claim
    lease_until="new_lease_until",
)
"""A row of ``claim_columns`` as it was before the claim, to the claim it becomes."""

stored_claim_of: Final = _compile_claim_of("row", "1 <= attempt <= attempts_max and 1 <= token")
"""A row of ``claim_columns`` of a run that is claimed."""

run_of: Final[Callable[[Row], Run]] = _compile_reader(Run, columns.RUN)
"""A row of ``live_run_columns`` or ``history_run_columns``."""


_clean_run: Final = _compile_cleaner(columns.RUN)


def listed_run_of(row: Row) -> Run:
    """The same for lists: a row that makes no sense is listed as such and hides no others."""
    try:
        return run_of(row)
    except Exception as error:  # noqa: BLE001  # any error is the row's own
        facts = dict(zip(columns.names(columns.RUN), _clean_run(row), strict=True))
        return Run(
            **{name: facts[name] for name in ("id", "job", "tenant", "queue", "args", "token")},
            status=RunStatus.FAILED_PERMANENT,
            phase=None,
            created_at=EPOCH,
            due_at=EPOCH,
            ended_at=EPOCH,
            reason=describe_fault(error),
            outcome=OutcomeKind.FAILED.value,
        )


def summary_of(row: Row) -> RunSummary:
    """For ``summarize_live`` and ``summarize_history``; a status that is unknown means failed."""
    run_id, job, status, created_at, due_at, started_at, ended_at, *texts = row
    try:
        return RunSummary(
            run_id,
            job,
            RunStatus(status),
            moment(created_at),
            moment(due_at),
            moment_or_none(started_at),
            moment_or_none(ended_at),
            *texts,
        )
    except Exception as error:  # noqa: BLE001  # any error is the row's own
        failed = RunStatus.FAILED_PERMANENT
        return RunSummary(
            RunId(str(run_id)),
            str(job),
            failed,
            EPOCH,
            EPOCH,
            None,
            EPOCH,
            describe_fault(error),
            None,
            "",
        )


# ---------------------------------------------------------------- transitions


def finished_row(step: Transition) -> Row:
    """For ``finish_runs``."""
    return (
        step.claim.run_id,
        step.claim.token,
        step.to_status.value,
        step.refund,
        step.crash,
        micros_or_none(step.started_at),
        micros(step.ended_at),
        step.outcome.value,
        step.result,
        step.reason,
    )


def plain_rows(steps: Iterable[Transition]) -> list[Row]:
    """For ``finish_plain``."""
    rows: list[Row] = []
    started: int | None
    last_at, ended = EPOCH, 0
    for step in steps:
        claim, started_at = step.claim, step.started_at
        # A pump starts an attempt when the one before it ended: then both steps have the same
        # object, which is converted once.
        if started_at is last_at:
            started = ended
        else:
            started = None if started_at is None else micros(started_at)
        last_at = step.ended_at
        ended = micros(last_at)
        rows.append((claim.run_id, claim.token, started, ended, step.result))
    return rows


def returned_row(step: Transition) -> Row:
    """For ``return_runs``."""
    assert step.due_at is not None, step
    assert step.phase is not None, step
    return (
        step.claim.run_id,
        step.claim.token,
        step.to_status.value,
        step.phase.value,
        micros(step.due_at),
        step.refund,
        step.crash,
        step.put_off,
        step.attempts_max,
        step.reason,
    )


def attempt_row(step: Transition) -> Row:
    """For ``insert_attempts``."""
    return (
        step.claim.run_id,
        step.claim.token,
        step.claim.attempt,
        step.outcome.value,
        micros_or_none(step.started_at),
        micros(step.ended_at),
        step.reason,
        step.traceback,
    )


attempt_of: Final[Callable[[Row], Attempt]] = _compile_lister(Attempt, columns.ATTEMPT)
log_line_of: Final[Callable[[Row], LogLine]] = _compile_lister(LogLine, columns.LOG)


# ---------------------------------------------------------------- schedules

spec_params: Final[Callable[[ScheduleSpec], dict[str, Any]]] = _compile_params(columns.SPEC)
"""For ``update_schedule``."""


def new_schedule_row(new: NewSchedule, *, now: int) -> Row:
    """For ``insert_schedules``."""
    values = spec_params(new.spec)
    values |= {"id": new.id, "created_at": now, "seen_at": now}
    values["next_due_at"] = micros_or_none(new.next_due_at)
    return tuple(values[column.name] for column in columns.NEW_SCHEDULE)


def _compile_schedule_of() -> Callable[[Row, int | None], ScheduleRow]:
    spec = [f"spec.{name} = {text}" for name, text in _reads(columns.SPEC).items()]
    state = [f"made.{name} = {text}" for name, text in _reads(columns.SCHEDULE_STATE).items()]
    return compile_function(
        "row, now",
        _unpacked(columns.SCHEDULE),
        # Checked when it was written; only what would make a tick fail is checked again.
        "if id.__class__ is not str:",
        '    raise TypeError(f"id is {id!r}, not a text")',
        "if next_due_at is not None and next_due_at.__class__ is not int:",
        '    raise TypeError(f"next_due_at is {next_due_at!r}, not an integer")',
        "if not (0 <= grace <= grace_max and 0 <= jitter <= jitter_max"
        " and (expires is None or expires > 0)"
        " and (expect_within is None or expect_min <= expect_within <= grace_max)):",
        '    raise ValueError(f"grace {grace}, jitter {jitter}, expires {expires}, '
        'expect_within {expect_within}")',
        "if priority is not None and not -priority_limit <= priority <= priority_limit:",
        '    raise ValueError(f"priority {priority}")',
        "has_ended = now is not None and paused_until is not None and paused_until <= now",
        "if paused_at is None or has_ended:",
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
    )


_read_schedule: Final = _compile_schedule_of()


def schedule_of(row: Row, *, now: int | None = None) -> ScheduleRow:
    """A row of ``schedule_columns``; a pause that ended before ``now`` is left out."""
    return _read_schedule(row, now)


_check_schedule: Final = _compile_mapper("row", columns.SCHEDULE, "return None")
_clean_schedule: Final = _compile_cleaner(columns.SCHEDULE)


def listed_schedule_of(row: Row) -> ScheduleRow:
    """The same for lists: of a row that makes no sense, what can be read of it, and the reason.

    Such a schedule is not fired: a tick reads the row strictly, and reports it as unfired.
    """
    try:
        _check_schedule(row)
        return schedule_of(row)
    except Exception as error:  # noqa: BLE001  # any error is the row's own
        facts = dict(zip(columns.names(columns.SCHEDULE), _clean_schedule(row), strict=True))
        facts |= {"grace": 0, "jitter": 0, "expires": None, "priority": None}
        facts["expect_within"] = None
        return replace(schedule_of(tuple(facts.values())), fault=describe_fault(error))


def skip_row(skip: Skip, *, now: int, queue: str, priority: int) -> Row:
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
        spec.args,
        spec.name,
        first,
        micros(skip.last_at),
        skip.instants,
        now,
        now,
        skip.reason,
    )


# ---------------------------------------------------------------- the rest


worker_params: Final[Callable[[WorkerRow], dict[str, Any]]] = _compile_params(columns.WORKER)
worker_of: Final[Callable[[Row], WorkerRow]] = _compile_lister(WorkerRow, columns.WORKER)
lock_params: Final[Callable[[LockRow], dict[str, Any]]] = _compile_params(columns.LOCK)
lock_of: Final[Callable[[Row], LockRow]] = _compile_lister(LockRow, columns.LOCK)
pause_params: Final[Callable[[Pause], dict[str, Any]]] = _compile_params(columns.PAUSE)
pause_of: Final[Callable[[Row], Pause]] = _compile_lister(Pause, columns.PAUSE)
audit_params: Final[Callable[[AuditEntry], dict[str, Any]]] = _compile_params(columns.AUDIT)
audit_of: Final[Callable[[Row], AuditEntry]] = _compile_lister(AuditEntry, columns.AUDIT)
request_params: Final[Callable[[IdempotentRequest], dict[str, Any]]] = _compile_params(
    columns.REQUEST
)
request_of: Final[Callable[[Row], IdempotentRequest]] = _compile_lister(
    IdempotentRequest, columns.REQUEST
)
limit_row_of: Final[Callable[[Row], LimitRow]] = _compile_lister(LimitRow, columns.LIMIT)
job_of: Final[Callable[[Row], JobRow]] = _compile_lister(JobRow, columns.JOB)


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
    _, number, idle_at, turn_at, opened, _, _ = rows[0]
    found = rate._replace(
        number=number,
        last_at=None if idle_at is None else moment(idle_at) - rate.window,
        turn_at=moment_or_none(turn_at),
        opened=opened,
        past={row[5]: moment(row[6]) for row in rows if row[5] is not None},
    )
    if not isinstance(number, int) or not isinstance(opened, int):
        raise TypeError("a column has a value of another type")
    if now is not None:
        found.check(now=now)
    return found


def rate_row(key: str, rate: Rate) -> Row:
    """For ``save_rates``."""
    idle_at = None if rate.last_at is None else micros(rate.last_at + rate.window)
    return (key, rate.number, idle_at, micros_or_none(rate.turn_at), rate.opened)
