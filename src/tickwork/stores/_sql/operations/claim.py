"""Runs out: staged when due, claimed in order, under their limits."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.run import Claim
from tickwork._domain.status import Phase
from tickwork.stores._sql.operations.limits import grant
from tickwork.stores._sql.operations.waking import ANY_QUEUE, wake
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.rows import (
    UNREADABLE,
    claim_of,
    micros,
    moment_or_none,
    standing_claim_of,
)
from tickwork.stores._sql.statement import Operation, Row, Rows
from tickwork.stores.contract import Ahead, Wanted

LOOK: Final = 4
"""How many times the wanted number a claim looks at before it goes by queue and job."""
LOOK_MIN: Final = 64

ROUNDS_MAX: Final = 12
ROUND_SIZE_MAX: Final = 1000
"""How often a claim looks again when limits were full, and at how many runs at a time."""

_ID, _CRASHES = 0, 7


def stage(query: Queries, *, now: datetime, limit: int) -> Operation[int]:
    """Move runs that fell due among the ready ones."""
    count = int((yield query("stage_runs", now=micros(now), limit=limit))[0][0])
    if count:
        yield from wake(query, [ANY_QUEUE])
    return count


def next_due_at(query: Queries) -> Operation[datetime | None]:
    """When the next waiting run falls due."""
    return moment_or_none((yield query("next_waiting"))[0][0])


def look_ahead(query: Queries) -> Operation[Ahead]:
    """What there is to stage, reap, sweep and claim, now or later."""
    [(due_at, lease_until, blocked_on, priority)] = yield query("look_ahead")
    return Ahead(
        moment_or_none(due_at),
        moment_or_none(lease_until),
        is_blocked=blocked_on is not None,
        is_ready=priority is not None,
    )


def claim(
    query: Queries,
    wanted: Wanted,
    *,
    worker: WorkerId,
    tag: str,
    now: datetime,
    lease: timedelta,
    lease_by_job: Mapping[str, timedelta] | None = None,
) -> Operation[list[Claim]]:
    """Claim ready runs by (priority, due_at, id)."""
    claims: list[Claim] = []
    size = wanted.limit
    # Runs that find a limit full make room for those behind them, which need none.
    for _ in range(ROUNDS_MAX):
        left = wanted.limit - len(claims)
        rows = yield from _pick(query, wanted._replace(limit=size), now=now)
        made = yield from readable(query, _one_crashed(rows, claims), now=now, lease=lease)
        if not made:
            break
        granted, is_blocked = yield from _granted(query, made, limit=left)
        ids_by_lease = {now + lease: [claim.run_id for claim in granted]}
        if lease_by_job:
            granted = [_leased(claim, lease_by_job, now=now) for claim in granted]
            ids_by_lease = _by_lease(granted)
        for lease_until, ids in ids_by_lease.items():
            yield query.tell(
                "take_runs",
                ids=ids,
                tag=tag,
                worker=worker,
                lease_until=micros(lease_until),
                started_at=micros(now) if wanted.is_starting else None,
            )
        claims += granted
        if len(claims) == wanted.limit or not is_blocked:
            break
        size = min(4 * size, ROUND_SIZE_MAX)
    return claims


def readable(
    query: Queries, rows: Iterable[Row], *, now: datetime, lease: timedelta
) -> Operation[list[Claim]]:
    """The claims that these rows become. A row that makes no sense is set aside."""
    claims: list[Claim] = []
    broken: list[Row] = []
    lease_until = now + lease
    for row in rows:
        try:
            claims.append(claim_of(row, lease_until=lease_until))
        except Exception as error:  # noqa: BLE001  # whatever is wrong with it is its own
            broken.append((row[_ID], micros(now), f"{UNREADABLE}: {error!r}"))
    if broken:
        yield query.tell("set_aside", many=broken)
    return claims


def _granted(
    query: Queries, claims: list[Claim], *, limit: int
) -> Operation[tuple[list[Claim], bool]]:
    """Those that may start, and whether any found a limit full."""
    if not any(claim.limit_keys for claim in claims):
        return claims[:limit], False
    keys_by_run = {claim.run_id: claim.limit_keys for claim in claims}
    grants = yield from grant(query, keys_by_run, limit=limit)
    granted = set(grants.granted)
    return [claim for claim in claims if claim.run_id in granted], bool(grants.blocked_on)


def _leased(claim: Claim, lease_by_job: Mapping[str, timedelta], *, now: datetime) -> Claim:
    length = lease_by_job.get(claim.job)
    return claim if length is None else claim._replace(lease_until=now + length)


def find_claims(query: Queries, *, worker: WorkerId, tag: str) -> Operation[list[Claim]]:
    """The claims made under this tag that still hold."""
    rows = yield query("find_claims", worker=worker, tag=tag)
    return [standing_claim_of(row) for row in rows]


def ready_pairs(query: Queries, *, phase: Phase) -> Operation[list[tuple[str, str]]]:
    """The (queue, job) pairs that have ready, or parked, runs."""
    assert phase in {Phase.READY, Phase.PARKED}, phase
    return [(row[0], row[1]) for row in (yield query(f"pairs_{phase.value}"))]


def park(query: Queries, pairs: Iterable[tuple[str, str]], *, limit: int) -> Operation[int]:
    """Move ready runs of these pairs out of the way."""
    rows = [(queue, job, limit) for queue, job in sorted(pairs)]
    return int((yield query("park_runs", many=rows))[0][0]) if rows else 0


def unpark(query: Queries, pairs: Iterable[tuple[str, str]], *, limit: int) -> Operation[int]:
    """Move parked runs of these pairs back."""
    rows = [(queue, job, limit) for queue, job in sorted(pairs)]
    return int((yield query("unpark_runs", many=rows))[0][0]) if rows else 0


def _pick(query: Queries, wanted: Wanted, *, now: datetime) -> Operation[Rows]:
    """The best candidates, locked: from the head of the index, or pair by pair.

    The head is enough while it holds runs that this worker may take. When it belongs to
    others, a look at each (queue, job) pair costs more, but never more than that.
    """
    if wanted.limit <= 0:
        return []
    look = max(LOOK * wanted.limit, LOOK_MIN)
    values: dict[str, Any] = {
        "queues": None if wanted.queues is None else list(wanted.queues),
        "jobs": None if wanted.jobs is None else list(wanted.jobs),
        "is_ahead": int(wanted.is_ahead),
        "now": micros(now),
        "limit": wanted.limit,
    }
    rows = yield query("pick_ready", look=look, **values)
    if len(rows) == wanted.limit:
        return rows
    seen = (yield query("count_look", look=look))[0][0]
    if seen < look:
        return rows
    pairs = [
        list(pair)
        for pair in (yield query("pairs_ready"))
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
