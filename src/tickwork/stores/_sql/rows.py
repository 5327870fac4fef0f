"""Rows to domain values and back: the only Python that knows the columns and their order."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Final, TypeVar

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.job import Misfire, Overlap, ScheduleOrigin, ScheduleRow, ScheduleSpec
from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.rates import Rate, window_of
from tickwork._domain.run import Claim, NewRun, Run
from tickwork._domain.status import Phase, RunStatus
from tickwork._domain.tick import Move, Skip
from tickwork._domain.transitions import Transition
from tickwork.stores._sql.statement import Row
from tickwork.stores.contract import (
    Attempt,
    JobRow,
    LimitRow,
    LockRow,
    LogLine,
    NewSchedule,
    Pause,
    PauseKind,
    WorkerRow,
)

T = TypeVar("T")

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNREADABLE: Final = "The row cannot be read"


# ---------------------------------------------------------------- values


def micros(moment: datetime) -> int:
    """An instant as the database keeps it: microseconds since 1970."""
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def micros_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


def moment(value: int) -> datetime:
    # Days and seconds by place: naming the microseconds costs twice as much.
    return EPOCH + timedelta(0, 0, value)


def moment_or_none(value: int | None) -> datetime | None:
    return None if value is None else EPOCH + timedelta(0, 0, value)


def length_micros(length: timedelta) -> int:
    return (length.days * 86_400 + length.seconds) * 1_000_000 + length.microseconds


@lru_cache(maxsize=4096)
def _texts(value: str | None) -> tuple[str, ...]:
    return tuple(json.loads(value)) if value else ()


def _texts_column(values: Sequence[str]) -> str | None:
    return json.dumps(list(values)) if values else None


# ---------------------------------------------------------------- runs


def new_run_row(run: NewRun) -> Row:
    """For ``insert_runs``."""
    (
        run_id,
        job,
        created_at,
        due_at,
        tenant,
        queue,
        priority,
        expires_at,
        args,
        tags,
        attempts_max,
        overlap_key,
        limit_keys,
        _,
        schedule,
        nominal_at,
        target,
        retry_of,
        trace,
    ) = run
    due = micros(due_at)
    nominal = None
    if nominal_at is not None:
        nominal = due if nominal_at is due_at else micros(nominal_at)
    return (
        run_id,
        tenant,
        job,
        queue,
        priority,
        run.phase.value,
        due,
        None if expires_at is None else micros(expires_at),
        args,
        json.dumps(tags) if tags else None,
        attempts_max,
        overlap_key,
        json.dumps(limit_keys) if limit_keys else None,
        schedule,
        nominal,
        target,
        retry_of,
        trace,
        due if created_at is due_at else micros(created_at),
    )


def claim_of(row: Row, *, lease_until: datetime) -> Claim:
    """A row of ``claim_columns`` as it was before the claim, to the claim it becomes.

    Made for every run, so it builds the tuple at once, and checks what it must by itself.
    """
    (
        run_id,
        job,
        tenant,
        queue,
        args,
        attempt,
        attempts_max,
        crashes,
        token,
        due_at,
        _,
        put_offs,
        expires_at,
        schedule,
        nominal_at,
        limit_keys,
        target,
        trace,
        checkpoint,
    ) = row
    if not (0 <= attempt < attempts_max and token >= 0 and crashes >= 0):
        raise ValueError(f"attempt {attempt} of {attempts_max}, token {token}, {crashes} crashes")
    return _new_claim(
        Claim,
        (
            run_id,
            job,
            tenant,
            queue,
            args,
            attempt + 1,
            attempts_max,
            crashes,
            token + 1,
            EPOCH + timedelta(0, 0, due_at),
            lease_until,
            put_offs,
            None if expires_at is None else moment(expires_at),
            schedule,
            None if nominal_at is None else moment(nominal_at),
            _texts(limit_keys) if limit_keys else (),
            target,
            trace,
            checkpoint,
        ),
    )


_new_claim = tuple.__new__


def standing_claim_of(row: Row) -> Claim:
    """A row of ``claim_columns`` of a run that is claimed already."""
    before = (*row[:5], row[5] - 1, *row[6:8], row[8] - 1, *row[9:])
    return claim_of(before, lease_until=moment(row[10]))


def run_of(row: Row) -> Run:
    """A row of ``live_as_run`` or ``history_as_run``."""
    return Run(
        id=RunId(row[0]),
        tenant=row[1],
        job=row[2],
        queue=row[3],
        priority=row[4],
        status=RunStatus(row[5]),
        phase=None if row[6] is None else Phase(row[6]),
        due_at=moment(row[7]),
        expires_at=moment_or_none(row[8]),
        args=row[9],
        tags=_texts(row[10]),
        attempt=row[11],
        attempts_max=row[12],
        crashes=row[13],
        put_offs=row[14],
        token=row[15],
        lease_until=moment_or_none(row[16]),
        worker=row[17],
        overlap_key=row[18],
        limit_keys=_texts(row[19]),
        blocked_on=row[20],
        schedule=row[21],
        nominal_at=moment_or_none(row[22]),
        target=row[23],
        external_id=row[24],
        retry_of=row[25],
        trace=row[26],
        progress=row[27],
        checkpoint=row[28],
        cancel_requested_at=moment_or_none(row[29]),
        created_at=moment(row[30]),
        started_at=moment_or_none(row[31]),
        ended_at=moment_or_none(row[32]),
        result=row[33],
        reason=row[34],
        instants=row[35],
        last_nominal_at=moment_or_none(row[36]),
        outcome=row[37],
    )


def shown_run_of(row: Row) -> Run:
    """The same for lists: a row that makes no sense is shown as such, and stops nobody."""
    try:
        return run_of(row)
    except Exception as error:  # noqa: BLE001  # whatever is wrong with it is its own
        now = EPOCH
        return Run(
            id=RunId(str(row[0])),
            job=str(row[2]),
            status=RunStatus.FAILED_PERMANENT,
            phase=None,
            created_at=now,
            due_at=now,
            ended_at=now,
            tenant=str(row[1]),
            queue=str(row[3]),
            args=str(row[9]),
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
    claim, _, _, ended_at, started_at, _, _, _, _, _, result, _, _, _ = step
    since = ended_at - EPOCH
    return (
        claim[0],
        claim[8],
        None if started_at is None else micros(started_at),
        (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds,
        result,
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


def attempt_of(row: Row) -> Attempt:
    return Attempt(
        row[0], row[1], row[2], row[3], moment_or_none(row[4]), moment(row[5]), *row[6:9]
    )


# ---------------------------------------------------------------- schedules


def spec_params(spec: ScheduleSpec) -> dict[str, Any]:
    """For ``update_schedule``, and in this order a part of ``insert_schedules``."""
    return {
        "tenant": spec.tenant,
        "name": spec.name,
        "job": spec.job,
        "rule": spec.rule,
        "zone": spec.zone,
        "args": spec.args,
        "queue": spec.queue,
        "priority": spec.priority,
        "expires": None if spec.expires is None else length_micros(spec.expires),
        "overlap": spec.overlap.value,
        "misfire": spec.misfire.value,
        "grace": length_micros(spec.grace),
        "jitter": length_micros(spec.jitter),
        "until": micros_or_none(spec.until),
        "target": spec.target,
        "tags": _texts_column(spec.tags),
        "origin": spec.origin.value,
    }


def new_schedule_row(new: NewSchedule, *, now: int) -> Row:
    """For ``insert_schedules``."""
    return (new.id, *spec_params(new.spec).values(), now, micros_or_none(new.next_due_at))


_OVERLAPS: Final = {overlap.value: overlap for overlap in Overlap}
_MISFIRES: Final = {misfire.value: misfire for misfire in Misfire}
_ORIGINS: Final = {origin.value: origin for origin in ScheduleOrigin}

# Schedules are added, seen and due together: their times are few.
_instant: Final = lru_cache(maxsize=1024)(moment)
_length: Final = lru_cache(maxsize=256)(partial(timedelta, 0, 0))


def schedule_of(row: Row, *, now: int | None = None) -> ScheduleRow:
    """A row of ``schedule_columns``; a pause that ended before ``now`` is none.

    What was checked when it was written is not checked again, except for what would make
    arithmetic go wrong.
    """
    _, tenant, name, job, rule, zone, args, queue, priority, expires, overlap, misfire = row[:12]
    grace, jitter, until, target, tags, origin = row[12:18]
    if grace < 0 or jitter < 0 or (expires is not None and expires <= 0):
        raise ValueError(f"grace {grace}, jitter {jitter}, expires {expires}")
    spec = _new_spec(
        name,
        job,
        rule,
        zone,
        tenant,
        args,
        queue,
        priority,
        None if expires is None else _length(expires),
        _OVERLAPS[overlap],
        _MISFIRES[misfire],
        _length(grace),
        _length(jitter),
        None if until is None else _instant(until),
        target,
        _texts(tags) if tags else (),
        _ORIGINS[origin],
    )
    return _with_spec(row, spec, now=now)


def shown_schedule_of(row: Row) -> ScheduleRow:
    """The same for lists: of a row that makes no sense, what can be said about it.

    Such a schedule is not fired: there the row is read strictly, and set aside.
    """
    try:
        return schedule_of(row)
    except Exception:  # noqa: BLE001  # whatever is wrong with it is its own
        spec = ScheduleSpec(tenant=row[1], name=row[2], job=row[3], rule=row[4], zone=row[5])
        return _with_spec(row, spec)


def _with_spec(row: Row, spec: ScheduleSpec, *, now: int | None = None) -> ScheduleRow:
    created_at, next_due_at, last_fired_at, revision, paused_at, until, note, seen_at = row[18:]
    if paused_at is None or (now is not None and until is not None and until <= now):
        paused_at, until, note = None, None, ""
    return _new_schedule(
        row[0],
        spec,
        _instant(created_at),
        None if next_due_at is None else _instant(next_due_at),
        None if last_fired_at is None else _instant(last_fired_at),
        revision,
        None if paused_at is None else _instant(paused_at),
        None if until is None else _instant(until),
        note,
        None if seen_at is None else _instant(seen_at),
    )


def _filler(kind: type[T]) -> Callable[..., T]:
    """Makes a value of a slotted class from all of its fields, in their order, unchecked.

    Both are made for every firing, and so it takes a third of the time.
    """
    puts = tuple(getattr(kind, name).__set__ for name in kind.__slots__)  # type: ignore[attr-defined]

    def filled(*values: Any) -> T:
        made = object.__new__(kind)
        for put, value in zip(puts, values, strict=True):
            put(made, value)
        return made

    return filled


_new_spec: Final = _filler(ScheduleSpec)
_new_schedule: Final = _filler(ScheduleRow)


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


def worker_params(worker: WorkerRow) -> dict[str, Any]:
    return {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "boot_id": worker.boot_id,
        "process_started": worker.process_started,
        "started_at": micros(worker.started_at),
        "beat_at": micros(worker.beat_at),
        "queues": None if worker.queues is None else json.dumps(worker.queues),
        "jobs": json.dumps(worker.jobs),
        "slots": worker.slots,
        "running": worker.running,
        "version": worker.version,
    }


def worker_of(row: Row) -> WorkerRow:
    return WorkerRow(
        id=WorkerId(row[0]),
        host=row[1],
        pid=row[2],
        boot_id=row[3],
        process_started=row[4],
        started_at=moment(row[5]),
        beat_at=moment(row[6]),
        queues=None if row[7] is None else _texts(row[7]),
        jobs=_texts(row[8]),
        slots=row[9],
        running=row[10],
        version=row[11],
    )


def lock_of(row: Row) -> LockRow:
    return LockRow(row[0], row[1], row[2], row[3], moment(row[4]), moment(row[5]))


def pause_of(row: Row) -> Pause:
    return Pause(PauseKind(row[0]), row[1], moment(row[2]), row[3], moment_or_none(row[4]))


def limits_of(rows: Iterable[Row]) -> list[LimitRow]:
    return [LimitRow(*row) for row in rows]


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


def job_of(row: Row) -> JobRow:
    seen_at, last_run_at, last_success_at, last_error_at = map(moment_or_none, row[2:6])
    return JobRow(
        row[0], row[1], seen_at, last_run_at, last_success_at, last_error_at, row[6], row[7]
    )


def log_line_of(row: Row) -> LogLine:
    return LogLine(moment(row[0]), *row[1:4])
