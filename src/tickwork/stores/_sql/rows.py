"""Maps rows to domain values and back, by the declarations in ``columns.py``."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Final

from tickwork._domain.job import Misfire, Overlap, ScheduleOrigin, ScheduleRow, ScheduleSpec
from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.rates import Rate, window_of
from tickwork._domain.run import Claim, NewRun, Run
from tickwork._domain.status import Phase, RunStatus
from tickwork._domain.tick import Move, Skip
from tickwork._domain.transitions import Transition
from tickwork.stores._sql import columns
from tickwork.stores._sql.columns import StoredColumn
from tickwork.stores._sql.statement import Row
from tickwork.stores.contract import (
    Attempt,
    JobRow,
    LockRow,
    LogLine,
    NewSchedule,
    Pause,
    PauseKind,
    WorkerRow,
)

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNREADABLE: Final = "The row cannot be read"


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


@lru_cache(maxsize=4096)
def _texts(value: str) -> tuple[str, ...]:
    return tuple(json.loads(value))


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


def _compile_reader(kind: type, declared: Sequence[StoredColumn]) -> Callable[[Row], Any]:
    arguments = ", ".join(f"{name}={text}" for name, text in _reads(declared).items())
    return compile_function("row", _unpacked(declared), f"return Made({arguments})", Made=kind)


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
        "phase": "run.phase.value",
        "due_at": "due",
        "created_at": "due if created_at is due_at else micros(created_at)",
        "nominal_at": "None if nominal_at is None else due if nominal_at is due_at"
        " else micros(nominal_at)",
    }
    values = [shared.get(c.name) or c.kind.write.format(c.name) for c in columns.NEW_RUN]
    return compile_function(
        "run",
        f"{', '.join(NewRun._fields)}, = run",
        "due = micros(due_at)",
        f"return ({', '.join(values)})",
    )


new_run_row: Final = _compile_new_run_row()
"""For ``insert_runs``."""


def _compile_claim_of(params: str, check: str, **instead: str) -> Callable[..., Claim]:
    values = ", ".join(_reads(columns.CLAIM, **instead).values())
    return compile_function(
        params,
        _unpacked(columns.CLAIM),
        f"if not ({check} and crashes >= 0):",
        "    raise ValueError("
        'f"attempt {attempt} of {attempts_max}, token {token}, {crashes} crashes")',
        f"return new(Claim, ({values}))",
        new=tuple.__new__,
        Claim=Claim,
    )


claim_of: Final = _compile_claim_of(
    "row, new_lease_until",
    "0 <= attempt < attempts_max and token >= 0",
    attempt="attempt + 1",
    token="token + 1",  # noqa: S106  # of a claim
    lease_until="new_lease_until",
)
"""A row of ``claim_columns`` as it was before the claim, to the claim it becomes."""

standing_claim_of: Final = _compile_claim_of("row", "1 <= attempt <= attempts_max and token >= 1")
"""A row of ``claim_columns`` of a run that is claimed."""

run_of: Final[Callable[[Row], Run]] = _compile_reader(Run, columns.RUN)
"""A row of ``live_run_columns`` or ``history_run_columns``."""


def listed_run_of(row: Row) -> Run:
    """The same for lists: a row that makes no sense is listed as such and hides no others."""
    try:
        return run_of(row)
    except Exception as error:  # noqa: BLE001  # any error is the row's own
        facts = dict(zip(columns.names(columns.RUN), map(str, row), strict=True))
        return Run(
            **{name: facts[name] for name in ("id", "job", "tenant", "queue", "args")},  # type: ignore[arg-type]
            status=RunStatus.FAILED_PERMANENT,
            phase=None,
            created_at=EPOCH,
            due_at=EPOCH,
            ended_at=EPOCH,
            reason=f"{UNREADABLE}: {error!r}",
            outcome=OutcomeKind.FAILED.value,
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


def plain_row(step: Transition) -> Row:
    """For ``finish_plain``."""
    claim, started_at = step.claim, step.started_at
    return (
        claim.run_id,
        claim.token,
        None if started_at is None else micros(started_at),
        micros(step.ended_at),
        step.result,
    )


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


attempt_of: Final[Callable[[Row], Attempt]] = _compile_reader(Attempt, columns.ATTEMPT)
log_line_of: Final[Callable[[Row], LogLine]] = _compile_reader(LogLine, columns.LOG)


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
        # Checked when it was written; only what would make arithmetic go wrong is checked again.
        "if grace < 0 or jitter < 0 or (expires is not None and expires <= 0):",
        '    raise ValueError(f"grace {grace}, jitter {jitter}, expires {expires}")',
        "has_ended = now is not None and paused_until is not None and paused_until <= now",
        "if paused_at is None or has_ended:",
        "    paused_at, paused_until, pause_note = None, None, ''",
        "spec = SpecDraft()",
        *spec,
        "spec.__class__ = ScheduleSpec",
        "made = RowDraft()",
        "made.id = id",
        "made.spec = spec",
        *state,
        "made.__class__ = ScheduleRow",
        "return made",
        SpecDraft=draft_class(ScheduleSpec),
        RowDraft=draft_class(ScheduleRow),
        ScheduleSpec=ScheduleSpec,
        ScheduleRow=ScheduleRow,
    )


_read_schedule: Final = _compile_schedule_of()


def schedule_of(row: Row, *, now: int | None = None) -> ScheduleRow:
    """A row of ``schedule_columns``; a pause that ended before ``now`` is left out."""
    return _read_schedule(row, now)


def listed_schedule_of(row: Row) -> ScheduleRow:
    """The same for lists: of a row that makes no sense, what can be read of it.

    Such a schedule is not fired: a tick reads the row strictly, and sets it aside.
    """
    try:
        return schedule_of(row)
    except Exception:  # noqa: BLE001  # any error is the row's own
        facts = dict(zip(columns.names(columns.SCHEDULE), row, strict=True))
        known = {name: facts[name] for name in ("tenant", "name", "job", "rule", "zone")}
        return schedule_of(tuple((facts | spec_params(ScheduleSpec(**known))).values()))


def move_row(move: Move) -> Row:
    """For ``move_schedules``."""
    return (
        move.schedule_id,
        micros(move.due_at),
        micros_or_none(move.next_due_at),
        micros_or_none(move.last_fired_at),
    )


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
worker_of: Final[Callable[[Row], WorkerRow]] = _compile_reader(WorkerRow, columns.WORKER)
lock_params: Final[Callable[[LockRow], dict[str, Any]]] = _compile_params(columns.LOCK)
lock_of: Final[Callable[[Row], LockRow]] = _compile_reader(LockRow, columns.LOCK)
pause_params: Final[Callable[[Pause], dict[str, Any]]] = _compile_params(columns.PAUSE)
pause_of: Final[Callable[[Row], Pause]] = _compile_reader(Pause, columns.PAUSE)
job_of: Final[Callable[[Row], JobRow]] = _compile_reader(JobRow, columns.JOB)


def rates_by_key(rows: Iterable[Row], count_by_key: Mapping[str, int]) -> dict[str, Rate]:
    """Rows of ``read_rates``, one for each start, to rates; a key without a row is new."""
    rates = {key: Rate(count, window_of(key)) for key, count in count_by_key.items()}
    past: dict[str, dict[int, datetime]] = {key: {} for key in rates}
    for key, number, idle_at, turn_at, opened, start, at in rows:
        if start is not None:
            past[key][start] = moment(at)
        rates[key] = rates[key]._replace(
            number=number,
            last_at=None if idle_at is None else moment(idle_at) - rates[key].window,
            turn_at=moment_or_none(turn_at),
            opened=opened,
        )
    return {key: rate._replace(past=past[key]) for key, rate in rates.items()}


def rate_row(key: str, rate: Rate) -> Row:
    """For ``save_rates``."""
    idle_at = None if rate.last_at is None else micros(rate.last_at + rate.window)
    return (key, rate.number, idle_at, micros_or_none(rate.turn_at), rate.opened)
