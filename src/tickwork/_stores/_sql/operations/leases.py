"""Extends leases, hands claims over, expires leases of a dead worker, stores progress and logs."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.runs.handover import Handover
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.status import RunStatus
from tickwork._stores._sql.operations.claim import read_stored_claims
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import micros, micros_or_none
from tickwork._stores._sql.statement import Operation, Row
from tickwork._stores.contract import ClaimCheck, HeartbeatResult, HeldClaim, LogLine


def extend_leases(
    query: Queries, held: Sequence[HeldClaim], *, until: datetime
) -> Operation[HeartbeatResult]:
    held = sorted(held)
    lease_until = micros(until)
    yield query.command(
        "extend_leases",
        many=[(lease_until, micros_or_none(one.started_at), one.run_id, one.token) for one in held],
    )
    token_by_id = {one.run_id: one.token for one in held}
    lost: list[RunId] = []
    cancel_requested: list[RunId] = []
    for run_id, token, status, requested_at in (yield query("held_rows", ids=list(token_by_id))):
        if token != token_by_id[run_id] or status != RunStatus.RUNNING:
            lost.append(run_id)
        elif requested_at is not None:
            cancel_requested.append(run_id)
    return HeartbeatResult(lost, cancel_requested)


def check_claims(query: Queries, held: Sequence[HeldClaim]) -> Operation[ClaimCheck]:
    rows = yield query("held_rows", ids=[one.run_id for one in held])
    state_by_claim = {(run_id, token): (status, at) for run_id, token, status, at in rows}
    check = ClaimCheck([], [])
    for run_id, token, _ in held:
        status, requested_at = state_by_claim.get((run_id, token), (None, None))
        if status != RunStatus.RUNNING:
            check.gone.append(run_id)
        elif requested_at is not None:
            check.cancel_requested.append(run_id)
    return check


def hand_over(query: Queries, handovers: Sequence[Handover]) -> Operation[None]:
    rows: list[Row] = [(one.external_id, *one) for one in sorted(handovers)]
    yield query.command("hand_over", many=rows)


def accept(
    query: Queries,
    handovers: Sequence[Handover],
    *,
    worker: WorkerId,
    tag: str,
    until: datetime,
    started_at: datetime | None,
) -> Operation[list[Claim]]:
    handovers = sorted(set(handovers))
    ids = [one.run_id for one in handovers]
    if query.optional.accept_and_read:
        rows = yield query.final(
            "accept_and_read",
            tag=tag,
            worker=worker,
            lease_until=micros(until),
            started_at=micros_or_none(started_at),
            ids=ids,
            tokens=[one.token for one in handovers],
        )
        return read_stored_claims(query, rows)
    shared = (tag, worker, micros(until), micros_or_none(started_at))
    yield query.command("accept_runs", many=[(*shared, *one) for one in handovers])
    return read_stored_claims(
        query, (yield query("accepted_runs", ids=ids, worker=worker, tag=tag))
    )


def release_worker(query: Queries, worker: WorkerId, *, now: datetime) -> Operation[int]:
    return int((yield query("release_worker", worker=worker, now=micros(now)))[0][0])


def save_progress(
    query: Queries, claim: Claim, *, progress: str | None = None, checkpoint: str | None = None
) -> Operation[bool]:
    write = query.mappers.write_payload
    rows = yield query(
        "save_progress",
        id=claim.run_id,
        token=claim.token,
        progress=write(progress),
        checkpoint=write(checkpoint),
    )
    return bool(rows[0][0])


def append_logs(
    query: Queries, lines_by_run: Mapping[RunId, Sequence[LogLine]], *, lines_max: int
) -> Operation[None]:
    counts = yield query("count_logs", ids=sorted(lines_by_run))
    # In one order everywhere, so that two transactions do not deadlock.
    rows = [
        (run_id, count + place, micros(line.at), line.level, line.logger, line.message)
        for run_id, count in sorted(counts)
        for place, line in enumerate(lines_by_run[run_id][: max(0, lines_max - count)])
    ]
    if rows:
        yield query.command("insert_log", many=rows)
