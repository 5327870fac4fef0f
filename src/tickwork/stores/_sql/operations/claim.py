"""Runs out: staged when due, claimed in order, under their limits."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.run import Claim
from tickwork.stores._sql.columns import CLAIM, names
from tickwork.stores._sql.operations.limits import grant
from tickwork.stores._sql.operations.notifications import ANY_QUEUE, notify_queues
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.rows import (
    UNREADABLE,
    claim_of,
    micros,
    micros_or_none,
    moment_or_none,
    standing_claim_of,
)
from tickwork.stores._sql.statement import Operation, Row, Rows
from tickwork.stores.contract import ClaimRequest, PendingWork

LOOK: Final = 4
"""How many times the wanted number a claim looks at before it goes by queue and job."""
LOOK_MIN: Final = 64

ROUNDS_MAX: Final = 12
ROUND_SIZE_MAX: Final = 1000
"""How often a claim looks again when limits were full, and at how many runs at a time."""

_ID, _CRASHES = (names(CLAIM).index(name) for name in ("id", "crashes"))


def stage(query: Queries, *, now: datetime, limit: int) -> Operation[int]:
    """Move runs that fell due among the ready ones."""
    count = int((yield query("stage_runs", now=micros(now), limit=limit))[0][0])
    if count:
        yield from notify_queues(query, [ANY_QUEUE])
    return count


def pending_work(query: Queries) -> Operation[PendingWork]:
    """What there is to stage, reap, sweep and claim, now or later."""
    [(due_at, lease_until, blocked_on, priority, turn_at)] = yield query("pending_work")
    return PendingWork(
        moment_or_none(due_at),
        moment_or_none(lease_until),
        is_blocked=blocked_on is not None,
        is_ready=priority is not None,
        turn_at=moment_or_none(turn_at),
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
) -> Operation[list[Claim]]:
    """Claim ready runs by (priority, due_at, id)."""
    claims: list[Claim] = []
    spare: list[Claim] = []
    may_be_more = True
    started_at = now if wanted.is_starting else None
    taking = _Taking(worker, tag, now, lease, lease_by_job or {})
    size = most = wanted.limit + wanted.hold
    # Runs that find a limit full make room for those behind them, which need none.
    for number in range(ROUNDS_MAX if size else 0):
        left, room = most - len(claims), max(wanted.limit - len(claims), 0)
        # What may wait comes with the first look: most of the time there is no other.
        more = 0 if number else wanted.ahead
        rows = yield from _pick(query, wanted, limit=size + more, now=now)
        may_be_more = number > 0 or len(rows) == size + more
        made = yield from readable(query, _one_crashed(rows, claims), now=now, lease=lease)
        if not made:
            break
        if more:
            spare = [
                claim for claim in made[size:] if not claim.limit_keys and _may_wait(claim, wanted)
            ]
            made = made[:size]
        if wanted.hold:
            made = made[:room] + [claim for claim in made[room:] if _may_wait(claim, wanted)]
        granted, is_blocked = yield from _granted(query, made, now=now, limit=left)
        claims += yield from _take(query, granted[:room], taking, started_at=started_at)
        claims += yield from _take(query, granted[room:], taking, started_at=None)
        if len(claims) == most or not is_blocked:
            break
        size = min(4 * size, ROUND_SIZE_MAX)
        spare = []  # they are still ready, and the next look finds them again
    if len(claims) < wanted.limit or not wanted.ahead:
        return claims
    # A later round may have found a place for one of them to start.
    started = {claim.run_id for claim in claims}
    spare = [claim for claim in spare if claim.run_id not in started]
    claims += yield from _take(query, spare, taking, started_at=None)
    left = wanted.ahead - len(spare)
    if left and may_be_more:
        if wanted.may_wait is not None:
            jobs = wanted.may_wait.intersection(wanted.jobs or wanted.may_wait)
            wanted = wanted._replace(jobs=tuple(sorted(jobs)))
        rows = yield from _pick(query, wanted, limit=left, now=now, is_ahead=True)
        made = yield from readable(query, rows, now=now, lease=lease)
        claims += yield from _take(query, made, taking, started_at=None)
    return claims


class _Taking(NamedTuple):
    """By whom runs are taken, and for how long."""

    worker: WorkerId
    tag: str
    now: datetime
    lease: timedelta
    lease_by_job: Mapping[str, timedelta]


def _take(
    query: Queries, claims: list[Claim], taking: _Taking, *, started_at: datetime | None
) -> Operation[list[Claim]]:
    worker, tag, now, lease, lease_by_job = taking
    ids_by_lease = {now + lease: [claim.run_id for claim in claims]} if claims else {}
    if lease_by_job:
        claims = [_leased(claim, lease_by_job, now=now) for claim in claims]
        ids_by_lease = _by_lease(claims)
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
    """Whether it was never claimed before, and its job is one of those that may wait."""
    return claim.token == 1 and (wanted.may_wait is None or claim.job in wanted.may_wait)


def readable(
    query: Queries, rows: Iterable[Row], *, now: datetime, lease: timedelta
) -> Operation[list[Claim]]:
    """The claims that these rows become. A row that makes no sense is set aside."""
    claims: list[Claim] = []
    broken: list[Row] = []
    lease_until = now + lease
    for row in rows:
        try:
            claims.append(claim_of(row, lease_until))
        except Exception as error:  # noqa: BLE001  # whatever is wrong with it is its own
            broken.append((row[_ID], micros(now), f"{UNREADABLE}: {error!r}"))
    if broken:
        yield query.command("fail_unreadable", many=broken)
    return claims


def _granted(
    query: Queries, claims: list[Claim], *, now: datetime, limit: int
) -> Operation[tuple[list[Claim], bool]]:
    """Those that may start, and whether any found a limit full."""
    if not any(claim.limit_keys for claim in claims):
        return claims[:limit], False
    grants = yield from grant(query, claims, now=now, limit=limit)
    granted = set(grants.granted)
    return [claim for claim in claims if claim.run_id in granted], bool(grants.blocked_on)


def _leased(claim: Claim, lease_by_job: Mapping[str, timedelta], *, now: datetime) -> Claim:
    length = lease_by_job.get(claim.job)
    return claim if length is None else claim._replace(lease_until=now + length)


def find_claims(query: Queries, *, worker: WorkerId, tag: str) -> Operation[list[Claim]]:
    """The claims made under this tag that still hold."""
    rows = yield query("find_claims", worker=worker, tag=tag)
    return [standing_claim_of(row) for row in rows]


def ready_pairs(query: Queries) -> Operation[list[tuple[str, str]]]:
    return [(row[0], row[1]) for row in (yield query("ready_pairs"))]


def _pick(
    query: Queries, wanted: ClaimRequest, *, limit: int, now: datetime, is_ahead: bool = False
) -> Operation[Rows]:
    """The best candidates, locked: from the head of the index, or pair by pair.

    The head is enough while it holds runs that this worker may take. When it belongs to
    others, a look at each (queue, job) pair costs more, but never more than that.
    """
    look = max(LOOK * limit, LOOK_MIN)
    values: dict[str, Any] = {
        "queues": None if wanted.queues is None else list(wanted.queues),
        "jobs": None if wanted.jobs is None else list(wanted.jobs),
        "is_ahead": int(is_ahead),
        "now": micros(now),
        "limit": limit,
    }
    rows = yield query("pick_ready", look=look, **values)
    if len(rows) == limit:
        return rows
    seen = (yield query("count_head", look=look))[0][0]
    if seen < look:
        return rows
    pairs = [
        list(pair)
        for pair in (yield query("ready_pairs"))
        if (wanted.queues is None or pair[0] in wanted.queues)
        and (wanted.jobs is None or pair[1] in wanted.jobs)
    ]
    return (yield query("pick_by_pairs", pairs=pairs, **values)) if pairs else rows


def _one_crashed(rows: Rows, claims: Iterable[Claim]) -> list[Row]:
    """At most one run that has crashed before: it may take the others with it."""
    found = any(claim.crashes for claim in claims)
    kept = []
    for row in rows:
        if row[_CRASHES]:
            if found:
                continue
            found = True
        kept.append(row)
    return kept


def _by_lease(claims: Iterable[Claim]) -> dict[datetime, list[RunId]]:
    ids_by_lease: dict[datetime, list[RunId]] = {}
    for made in claims:
        ids_by_lease.setdefault(made.lease_until, []).append(made.run_id)
    return ids_by_lease
