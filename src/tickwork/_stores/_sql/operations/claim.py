"""Stages runs that are due, and claims ready runs in order, within their limits."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.status import RunStatus
from tickwork._stores._sql.columns import CLAIM, names
from tickwork._stores._sql.era_memory import BEGINNING
from tickwork._stores._sql.faults import report_fault
from tickwork._stores._sql.operations.calls import find_edges, leave_calls, release
from tickwork._stores._sql.operations.eras import (
    NO_ERAS,
    EraView,
    count_dead,
    list_eras,
    move_boundary,
    view_eras,
)
from tickwork._stores._sql.operations.limits import grant
from tickwork._stores._sql.operations.notifications import ANY_QUEUE, notify_queues
from tickwork._stores._sql.operations.rollups import count_history
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import (
    clamped_moment,
    describe_fault,
    micros,
    micros_or_none,
)
from tickwork._stores._sql.statement import Operation, Row, Rows
from tickwork._stores.contract import ClaimRequest, PendingWork, UpcomingRuns

HEAD_FACTORS: Final = (2, 8)
"""A claim first reads this many times its limit from the head of the index: see ``_pick``."""
HEAD_MIN: Final = 64

ROUNDS_MAX: Final = 12
ROUND_SIZE_MAX: Final = 1000
"""How often a claim picks again when limits were full, and how many runs at a time."""

_ID, _CRASHES = (names(CLAIM).index(name) for name in ("id", "crashes"))


def stage(query: Queries, *, now: datetime, limit: int) -> Operation[int]:
    lowest = BEGINNING if query.eras is None else query.eras.waiting.lowest
    rows = yield query("stage_runs", now=micros(now), limit=limit, lowest=lowest)
    count = int(rows[0][0])
    if count:
        yield from notify_queues(query, [ANY_QUEUE])
    return count


def next_due(query: Queries, *, now: datetime) -> Operation[UpcomingRuns]:
    floor = None if query.eras is None else query.eras.waiting
    lowest = BEGINNING if floor is None else floor.lowest
    [(due_at, next_start_at, outbox, *counts)] = yield query("next_due", lowest=lowest)
    if floor is not None and lowest == BEGINNING:
        before, after = counts
        first = micros(now) if due_at is None else min(due_at, micros(now))
        floor.learn(first, dead=after - before)
    return UpcomingRuns(
        clamped_moment(due_at), clamped_moment(next_start_at), has_outbox=outbox is not None
    )


def pending_work(query: Queries) -> Operation[PendingWork]:
    [(due_at, lease_until, blocked_on, priority, next_start_at, outbox)] = yield query(
        "pending_work"
    )
    return PendingWork(
        clamped_moment(due_at),
        clamped_moment(lease_until),
        is_blocked=blocked_on is not None,
        is_ready=priority is not None,
        next_start_at=clamped_moment(next_start_at),
        has_outbox=outbox is not None,
    )


def claim(
    query: Queries,
    wanted: ClaimRequest,
    *,
    worker: WorkerId,
    tag: str,
    now: datetime,
    lease: timedelta,
    lease_by_job: Mapping[str, timedelta] | None = None,
    only: Collection[RunId] | None = None,
    seen: list[RunId] | None = None,
) -> Operation[list[Claim]]:
    """Claim runs. ``only`` some of them, if others are at fault; ``seen`` gets all candidates."""
    claims: list[Claim] = []
    prefetched: list[Claim] = []
    may_be_more = True
    started_at = now if wanted.is_starting else None
    claimant = _Claimant(worker, tag, now, lease, lease_by_job or {})
    size = most = wanted.limit + wanted.hold
    # Runs whose limit is full become blocked; the next round picks the runs behind them.
    for number in range(ROUNDS_MAX if size else 0):
        left, room = most - len(claims), max(wanted.limit - len(claims), 0)
        # The first round also picks the runs to prefetch: there is rarely a second one.
        more = 0 if number else wanted.ahead
        rows = yield from _pick(query, wanted, limit=size + more, now=now)
        may_be_more = number > 0 or len(rows) == size + more
        if seen is not None:
            seen += [row[_ID] for row in rows]
        if only is not None:
            rows = [row for row in rows if row[_ID] in only]
        candidates = yield from read_claims(
            query, _limit_crashed(rows, claims), now=now, lease=lease
        )
        if not candidates:
            break
        if more:
            prefetched = [
                claim
                for claim in candidates[size:]
                if not claim.limit_keys and _may_wait(claim, wanted)
            ]
            candidates = candidates[:size]
        if wanted.hold:
            candidates = candidates[:room] + [
                claim for claim in candidates[room:] if _may_wait(claim, wanted)
            ]
        granted, is_blocked = yield from _grant_claims(query, candidates, now=now, limit=left)
        claims += yield from _take(query, granted[:room], claimant, started_at=started_at)
        claims += yield from _take(query, granted[room:], claimant, started_at=None)
        if len(claims) == most or not is_blocked:
            break
        size = min(4 * size, ROUND_SIZE_MAX)
        prefetched = []  # they are still ready: the next round finds them again
    if len(claims) < wanted.limit or not wanted.ahead:
        return claims
    # A later round may have claimed one of the prefetched runs to start it.
    started = {claim.run_id for claim in claims}
    prefetched = [claim for claim in prefetched if claim.run_id not in started]
    claims += yield from _take(query, prefetched, claimant, started_at=None)
    left = wanted.ahead - len(prefetched)
    if left and may_be_more and only is None:
        if wanted.may_wait is not None:
            jobs = wanted.may_wait.intersection(wanted.jobs or wanted.may_wait)
            wanted = wanted._replace(jobs=tuple(sorted(jobs)))
        rows = yield from _pick(query, wanted, limit=left, now=now, is_ahead=True)
        candidates = yield from read_claims(query, rows, now=now, lease=lease)
        claims += yield from _take(query, candidates, claimant, started_at=None)
    return claims


class _Claimant(NamedTuple):
    """The worker that claims, and the lengths of its leases."""

    worker: WorkerId
    tag: str
    now: datetime
    lease: timedelta
    lease_by_job: Mapping[str, timedelta]


def _take(
    query: Queries, claims: list[Claim], claimant: _Claimant, *, started_at: datetime | None
) -> Operation[list[Claim]]:
    worker, tag, now, lease, lease_by_job = claimant
    ids_by_lease = {now + lease: [claim.run_id for claim in claims]} if claims else {}
    if lease_by_job:
        claims = [_with_lease(claim, lease_by_job, now=now) for claim in claims]
        ids_by_lease = _group_by_lease(claims)
    for lease_until, ids in ids_by_lease.items():
        yield query.command(
            "take_runs",
            ids=ids,
            tag=tag,
            worker=worker,
            lease_until=micros(lease_until),
            started_at=micros_or_none(started_at),
        )
    return claims


def _may_wait(claim: Claim, wanted: ClaimRequest) -> bool:
    """Whether a run may wait in the worker: its job allows it, and this is its first claim."""
    return claim.token == 1 and (wanted.may_wait is None or claim.job in wanted.may_wait)


def read_claims(
    query: Queries, rows: Rows, *, now: datetime, lease: timedelta
) -> Operation[list[Claim]]:
    """Turn rows into claims. A run whose row cannot be read fails permanently."""
    lease_until = now + lease
    claim_of = query.mappers.claim_of
    try:
        return [claim_of(row, lease_until) for row in rows]
    except Exception:  # noqa: BLE001, S110  # one of them cannot be read: find out which
        pass
    claims: list[Claim] = []
    broken: list[tuple[RunId, Exception]] = []
    for row in rows:
        try:
            claims.append(claim_of(row, lease_until))
        except Exception as error:  # noqa: BLE001  # whatever fails, the row is the cause
            broken.append((row[_ID], error))
    if broken:
        yield from fail_unusable(query, broken, now=now)
    return claims


def fail_unusable(
    query: Queries, broken: Sequence[tuple[RunId, Exception]], *, now: datetime
) -> Operation[None]:
    """Fail runs permanently whose rows cannot be used: they must not stop other runs."""
    status, outcome = RunStatus.FAILED_PERMANENT, OutcomeKind.FAILED
    ended = [UnusableRun(run_id, now, error, status, outcome) for run_id, error in broken]
    yield from end_unusable(query, ended)


class UnusableRun(NamedTuple):
    """A run whose row cannot be used, and how it ends."""

    run_id: RunId
    ended_at: datetime
    error: Exception
    status: RunStatus
    outcome: OutcomeKind


def end_unusable(query: Queries, runs: Sequence[UnusableRun]) -> Operation[None]:
    """Move runs to history whose rows cannot be used."""
    rows: list[Row] = [
        (
            run.run_id,
            micros(run.ended_at),
            describe_fault(run.error),
            run.status.value,
            run.outcome.value,
        )
        for run in runs
    ]
    yield query.command("end_unusable", many=rows)
    yield query.command("delete_waits", ids=sorted(run.run_id for run in runs))
    yield from count_history(query, [run.run_id for run in runs])
    ids, now = [run.run_id for run in runs], max(run.ended_at for run in runs)
    yield from leave_calls(query, ids, now=now)
    edges = yield from find_edges(query, ids)
    if edges:
        yield query.command("lock_gates", gates=sorted({edge.gate for edge in edges}))
        yield from release(query, edges, now=now)
    for run_id, _, reason, *_ in rows:
        report_fault("tickwork_run", run_id, reason)


def _grant_claims(
    query: Queries, claims: list[Claim], *, now: datetime, limit: int
) -> Operation[tuple[list[Claim], bool]]:
    """The claims that may start, and whether a limit was full for another."""
    if not any(claim.limit_keys for claim in claims):
        return claims[:limit], False
    grants = yield from grant(query, claims, now=now, limit=limit)
    granted = set(grants.granted)
    return [claim for claim in claims if claim.run_id in granted], bool(grants.blocked_on)


def _with_lease(claim: Claim, lease_by_job: Mapping[str, timedelta], *, now: datetime) -> Claim:
    length = lease_by_job.get(claim.job)
    return claim if length is None else claim._replace(lease_until=now + length)


def find_claims(query: Queries, *, worker: WorkerId, tag: str) -> Operation[list[Claim]]:
    return read_stored_claims(query, (yield query("find_claims", worker=worker, tag=tag)))


def read_stored_claims(query: Queries, rows: Iterable[Row]) -> list[Claim]:
    """Turn rows of runs that are claimed into claims."""
    claims: list[Claim] = []
    for row in rows:
        try:
            claims.append(query.mappers.stored_claim_of(row))
        except Exception as error:  # noqa: BLE001  # any error is the row's own
            # The reaper fails the run when its lease has expired.
            report_fault("tickwork_run", row[_ID], describe_fault(error))
    return claims


def ready_pairs(query: Queries) -> Operation[list[tuple[str, str]]]:
    eras = yield from list_eras(query)
    pairs = [
        (queue, job)
        for queue, job, *_ in (yield query("ready_pairs", **eras))
        if isinstance(queue, str) and isinstance(job, str)
    ]
    return list(dict.fromkeys(pairs))


def _pick(
    query: Queries, wanted: ClaimRequest, *, limit: int, now: datetime, is_ahead: bool = False
) -> Operation[Rows]:
    """Lock the first candidates: from the head of the index, or pair by pair.

    The head is enough while it has runs for this worker. Other workers may have locked a short
    head, so a longer one is read next. When all of it is for other workers, one query for each
    (queue, job) pair costs more, but its cost does not grow with the backlog.
    """
    values: dict[str, Any] = {
        "queues": None if wanted.queues is None else list(wanted.queues),
        "jobs": None if wanted.jobs is None else list(wanted.jobs),
        "is_ahead": int(is_ahead),
        "now": micros(now),
        "limit": limit,
    }
    rows: Rows = ()
    view = (yield from view_eras(query)) if query.optional.look_at_eras else NO_ERAS
    for factor in HEAD_FACTORS:
        head_size = max(factor * limit, HEAD_MIN)
        values["head_size"] = head_size
        rows = yield from _pick_heads(query, view, values)
        if len(rows) == limit or (rows and wanted.may_stop_early):
            return rows
        count_head = query.for_eras("count_head", view.heads, head_size=head_size, **view.params)
        [(seen, *is_known)] = yield count_head
        if is_known == [False]:
            # Another worker has moved the boundary, or a transaction that was open has ended. No
            # row was locked: look, and pick again.
            view = yield from view_eras(query, is_stale=True)
            rows = yield from _pick_heads(query, view, values)
            if len(rows) == limit:
                return rows
            [(seen, *_)] = yield query.for_eras(
                "count_head", view.heads, head_size=head_size, **view.params
            )
        if seen < head_size and view.is_complete:
            return rows
    pairs = [
        list(pair)
        for pair in (yield query("ready_pairs", **view.all_eras))
        if (wanted.queues is None or pair[0] in wanted.queues)
        and (wanted.jobs is None or pair[1] in wanted.jobs)
    ]
    return (yield query("pick_by_pairs", pairs=pairs, **values)) if pairs else rows


def _pick_heads(query: Queries, view: EraView, values: Mapping[str, Any]) -> Operation[Rows]:
    """Pick from the heads of the eras. Now and then, count the dead entries that this reads."""
    pick = query.for_eras("pick_ready", view.heads, **values, **view.params)
    memory = query.eras
    if memory is None:
        return (yield pick)
    is_watched = memory.should_check()
    before = (yield from count_dead(query)) if is_watched else None
    rows = yield pick
    memory.count_rows(len(rows))
    if before is not None:
        dead = (yield from count_dead(query)).ready - before.ready
        if memory.should_move(dead=dead, rows=len(rows)):
            yield from move_boundary(query, view.eras[0])
    return rows


def _limit_crashed(rows: Rows, claims: Iterable[Claim]) -> list[Row]:
    """Keep at most one run that crashed before: it may crash the worker, with all its runs."""
    has_crashed = any(claim.crashes for claim in claims)
    kept = []
    for row in rows:
        if row[_CRASHES]:
            if has_crashed:
                continue
            has_crashed = True
        kept.append(row)
    return kept


def _group_by_lease(claims: Iterable[Claim]) -> dict[datetime, list[RunId]]:
    ids_by_lease: dict[datetime, list[RunId]] = {}
    for claimed in claims:
        ids_by_lease.setdefault(claimed.lease_until, []).append(claimed.run_id)
    return ids_by_lease
