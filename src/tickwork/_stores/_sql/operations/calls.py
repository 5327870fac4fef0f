"""Runs that other runs have called: adds them, and lets the callers continue when they end.

An edge is a row for each call whose run has not ended. The transaction that ends a run settles the
steps of its callers, deletes its edges, and makes a caller ready that has none left. Two runs that
end together lock the gate of their caller first, and then look for edges in a new statement.

A caller whose row another transaction has locked keeps its edge, and :func:`sweep_calls` continues
it. That also helps where a run has ended without this: a row that was deleted, or an older worker.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from tickwork._domain.identity import RunId
from tickwork._domain.limits.limits import gate_of
from tickwork._domain.runs.links import CALLED, CALLS
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.steps import Step, StepState, describe_end
from tickwork._domain.runs.transitions import Transition
from tickwork._kernel.ids import first_id
from tickwork._stores._sql.operations.inserts import add_runs
from tickwork._stores._sql.operations.notifications import ANY_QUEUE, notify_queues
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import micros, shown_text
from tickwork._stores._sql.statement import Operation

CALLER: Final = "caller"
"""The kind of a row of the outbox: the runs that this one has called are to be canceled."""

_TAIL: Final = 12


class Edge(NamedTuple):
    child: RunId
    parent: RunId
    step: str

    @property
    def gate(self) -> int:
        """The lock row under which the edges of the parent are counted."""
        return gate_of_caller(self.parent)


def gate_of_caller(run_id: RunId) -> int:
    return gate_of(f"caller:{run_id}")


def add_calls(
    query: Queries, transitions: Sequence[Transition]
) -> Operation[list[tuple[RunId, Step]]]:
    """Add the runs that these suspended runs call; return the steps to store, with their ids."""
    made = [(each.claim.run_id, call) for each in transitions for call in each.calls]
    if not made:
        return []
    added = yield from add_runs(query, [call.run for _, call in made])
    own = sorted(answer.run_id for answer in added if answer.is_new)
    if own:
        yield query.command("mark_called", ids=own, links=CALLED)
    pairs = list(zip(made, added, strict=True))
    edges = [
        (answer.run_id, parent, call.step.name, int(answer.is_new))
        for (parent, call), answer in pairs
    ]
    yield query.command("insert_edges", many=sorted(edges))
    return [(parent, call.step._replace(ref=answer.run_id)) for (parent, call), answer in pairs]


def find_edges(query: Queries, children: Collection[RunId]) -> Operation[list[Edge]]:
    """The edges of runs that have ended."""
    if not children:
        return []
    rows = yield query("edges_of_children", ids=sorted(children))
    return [Edge(*row) for row in rows]


def called_runs(transitions: Iterable[Transition]) -> list[RunId]:
    """The runs among those that have ended for which others may wait."""
    return [
        each.claim.run_id
        for each in transitions
        if each.due_at is None and each.claim.links & CALLED
    ]


def release(query: Queries, edges: Sequence[Edge], *, now: datetime) -> Operation[None]:
    """Settle the calls of runs that have ended. The gates of the callers must be locked."""
    children = sorted({edge.child for edge in edges})
    parents = sorted({edge.parent for edge in edges})
    ends = {row[0]: row[1:] for row in (yield query("ends_of_runs", ids=children))}
    locked: dict[RunId, str] = dict((yield query("lock_suspended", ids=parents)))
    live = {row[0] for row in (yield query("live_ids", ids=parents))}
    for child, parent, step in edges:
        if parent in live and parent not in locked:
            continue  # another transaction has locked it
        job, status, result, reason = ends.get(child, ("", "deleted", None, "Its row was deleted."))
        is_done = status == RunStatus.COMPLETED.value
        failure = describe_end(shown_text(job), shown_text(status), shown_text(reason))
        yield query.command(
            "settle_call",
            run=parent,
            name=step,
            state=(StepState.DONE if is_done else StepState.FAILED).value,
            # The result is copied as it is stored: it may be encrypted.
            value=result if is_done else query.mappers.write_payload(failure),
        )
        yield query.command("delete_edge", child=child, parent=parent)
    waiting = [run_id for run_id, phase in locked.items() if phase == Phase.WAITING.value]
    yield from _wake_without_edges(query, waiting, now=now)


def continue_callers(query: Queries, callers: Sequence[RunId], *, now: datetime) -> Operation[None]:
    """Wake those of these suspended runs whose calls have all ended. Their gates are locked."""
    rows = yield query("edges_of_parents", ids=sorted(callers))
    foreign = sorted({child for _, child, is_own in rows if not is_own})
    if foreign:
        # The run that held the unique key may have ended long ago.
        live = {row[0] for row in (yield query("live_ids", ids=foreign))}
        found = yield from find_edges(query, set(foreign) - live)
        edges = [edge for edge in found if edge.parent in set(callers)]
        if edges:
            yield from release(query, edges, now=now)
    yield from _wake_without_edges(query, callers, now=now)


def _wake_without_edges(
    query: Queries, callers: Sequence[RunId], *, now: datetime
) -> Operation[None]:
    if not callers:
        return
    left = {row[0] for row in (yield query("edges_of_parents", ids=sorted(callers)))}
    ready = sorted(set(callers) - left)
    if ready:
        yield query.command("wake_runs", ids=ready, now=micros(now))
        yield from notify_queues(query, [ANY_QUEUE])


def leave_calls(query: Queries, callers: Collection[RunId], *, now: datetime) -> Operation[None]:
    """Have the calls of runs canceled that ended without success: by :func:`work_outbox`."""
    if not callers:
        return
    rows = yield query("edges_of_parents", ids=sorted(callers))
    for parent in sorted({row[0] for row in rows}):
        yield query.command(
            "insert_outbox",
            id=first_id(now)[:-_TAIL] + parent[-_TAIL:],
            kind=CALLER,
            tenant="",
            event="",
            key=parent,
        )


def failed_callers(transitions: Iterable[Transition]) -> list[RunId]:
    """The runs among those that ended without success that have called others."""
    return [
        each.claim.run_id
        for each in transitions
        if each.due_at is None
        and each.claim.links & CALLS
        and each.to_status is not RunStatus.COMPLETED
    ]


def sweep_calls(
    query: Queries, *, now: datetime, limit: int, after: RunId
) -> Operation[tuple[int, RunId | None]]:
    """Continue callers whose calls have ended without that: a page of edges, in their order.

    Returns how many edges were worked off, and where the next page begins; None: at the beginning.
    """
    page = [row[0] for row in (yield query("edges_after", after=after, limit=limit))]
    if not page:
        return 0, None
    live = {row[0] for row in (yield query("live_ids", ids=page))}
    edges = yield from find_edges(query, set(page) - live)
    if edges:
        yield query.command("lock_gates", gates=sorted({edge.gate for edge in edges}))
        # Others may have worked them off before the gate was free.
        edges = yield from find_edges(query, {edge.child for edge in edges})
        yield from release(query, edges, now=now)
    return len(edges), page[-1] if len(page) == limit else None


def find_callers(query: Queries, run_id: RunId, *, limit: int = 10) -> Operation[list[RunId]]:
    """The runs that have called this one, finished ones included."""
    return [row[0] for row in (yield query("find_callers", id=run_id, limit=limit))]
