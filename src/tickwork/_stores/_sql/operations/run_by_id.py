"""Lists the runs that could start now, and claims one run by its id."""

from datetime import datetime, timedelta
from typing import Any

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.limits.limits import keys_needed
from tickwork._domain.runs.run import Claim, Run
from tickwork._stores._sql.operations.claim import read_claims
from tickwork._stores._sql.operations.limits import grant_one
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import micros
from tickwork._stores._sql.statement import Operation
from tickwork._stores.contract import ClaimRequest


def due_runs(query: Queries, wanted: ClaimRequest, *, now: datetime) -> Operation[list[Run]]:
    rows = yield query(
        "due_runs",
        queues=None if wanted.queues is None else list(wanted.queues),
        jobs=None if wanted.jobs is None else list(wanted.jobs),
        is_ahead=0,
        now=micros(now),
        limit=wanted.limit,
    )
    return [query.mappers.listed_run_of(row) for row in rows]


def claim_run(
    query: Queries, run_id: RunId, *, worker: WorkerId, tag: str, now: datetime, lease: timedelta
) -> Operation[Claim | None]:
    # The same conditions as for other claims, except those on queues and jobs.
    free: dict[str, Any] = {"queues": None, "jobs": None, "is_ahead": 0}
    rows = yield query("lock_claimable", id=run_id, now=micros(now), **free)
    claims = yield from read_claims(query, rows, now=now, lease=lease)
    if not claims or not (yield from _take_slots(query, claims[0], now=now)):
        return None
    [claimed] = claims
    yield query.command(
        "take_run",
        id=run_id,
        tag=tag,
        worker=worker,
        lease_until=micros(claimed.lease_until),
        started_at=micros(now),
    )
    return claimed


def _take_slots(query: Queries, claim: Claim, *, now: datetime) -> Operation[bool]:
    """Take a slot of each limit; take none, and return False, when one of them is full.

    The run does not become blocked: it may not be due, and an unblock would make it ready early.
    """
    if not claim.limit_keys:
        return True
    held = {row[1] for row in (yield query("held_slots", ids=[claim.run_id]))}
    wanted = keys_needed(claim.limit_keys, held=held, expires_at=claim.expires_at, now=now)
    return not wanted or (yield from grant_one(query, claim.run_id, wanted, now=now))
