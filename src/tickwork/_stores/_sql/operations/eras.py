"""Looks where ready runs are while dead rows cannot be removed: see ADR 26."""

from typing import Any, Final, NamedTuple

from tickwork._domain.eras import (
    LAST_ERA,
    NOTHING_KNOWN,
    EraLook,
    EraMap,
    FirstRun,
    TransactionSnapshot,
    is_sound,
    learn,
    select_small,
)
from tickwork._stores._sql.era_memory import EraMemory
from tickwork._stores._sql.queries import ERAS_MAX, Queries
from tickwork._stores._sql.statement import Operation, Rows

GATHERED: Final = 8
GATHERED_SIZE_MAX: Final = 4096
"""How many old eras are gathered into one, each with fewer runs than this."""

_END: Final = FirstRun(LAST_ERA, 2**31 - 1, 2**63 - 1, "ffffffff-ffff-ffff-ffff-ffffffffffff")


class EraView(NamedTuple):
    """The eras that a claim reads, as parameters of its statements."""

    eras: list[int]  # of all ready runs; the current one is the first
    heads: int  # how many of them a claim merges
    is_complete: bool  # these are all of them
    params: dict[str, Any]

    @property
    def all_eras(self) -> dict[str, Any]:
        return {"eras": self.eras} if self.eras else {}


NO_ERAS: Final = EraView([], 0, is_complete=True, params={})
"""Of a dialect without eras."""


def view_eras(query: Queries, *, is_stale: bool = False) -> Operation[EraView]:
    """Return where ready runs are: as remembered, or after a look.

    ``is_stale`` demands a look.
    """
    memory = query.eras
    if memory is not None and not is_stale and not memory.should_look():
        return view_known(memory.map)
    known = NOTHING_KNOWN if memory is None else memory.map
    learned = yield from _look(query, known)
    if memory is not None and len(learned.rest) >= ERAS_MAX:
        yield from _gather(query, memory, learned)
    return view_known(learned, is_fresh=True)


class DeadCounts(NamedTuple):
    """The dead index entries that a session has read."""

    ready: int
    leases: int


def count_dead(query: Queries) -> Operation[DeadCounts]:
    return DeadCounts(*(yield query("count_dead"))[0])


def move_boundary(query: Queries, boundary: int) -> Operation[None]:
    """Begin a new era, unless another worker does so: dead rows stay in the old ones."""
    yield query.command("move_boundary", boundary=boundary)


def restart_eras(query: Queries, *, limit: int | None = None) -> Operation[None]:
    """Begin anew if the tables are from another server, whose transaction numbers were higher.

    Until then, each transaction has an era of its own, and each claim looks at all of them.
    """
    if query.optional.look_at_eras and (yield query("foreign_eras")):
        yield query.command("restart_eras", limit=limit)


def list_eras(query: Queries) -> Operation[dict[str, Any]]:
    """Return all eras that have ready runs, as a parameter; none if the dialect has no eras.

    A store that claims knows the old ones. Runs of late transactions are missing until it looks.
    """
    if not query.optional.look_at_eras:
        return {}
    known = NOTHING_KNOWN if query.eras is None else query.eras.map
    eras = [row[0] for row in (yield query("list_eras", low=known.boundary or 0))]
    return {"eras": sorted({*eras, *(first.era for first in known.rest)})}


def _look(query: Queries, known: EraMap) -> Operation[EraMap]:
    spans = known.spans()
    looked_up = known.rest[: ERAS_MAX - 1]
    rows = yield query(
        "look_at_eras",
        lows=[low for low, _, _ in spans],
        highs=[high for _, high, _ in spans],
        late=["" if late is None else str(late) for _, _, late in spans],
        **_columns(looked_up),
    )
    look = _read_look(rows)
    learned = learn(known, look, looked_up=len(looked_up))
    if query.eras is not None and is_sound(known, look):
        query.eras.remember(known, learned)
    return learned


def _read_look(rows: Rows) -> EraLook:
    firsts: dict[str, list[FirstRun]] = {"found": [], "moved": []}
    *others, (kind, boundary, _, number, snapshot) = rows
    for name, *first in others:
        firsts[name].append(FirstRun(*first))
    _, end, running = snapshot.split(":")
    numbers = frozenset(map(int, running.split(","))) if running else frozenset[int]()
    return EraLook(
        boundary,
        number,
        TransactionSnapshot(int(end), numbers),
        is_first=kind == "first",
        **firsts,
    )


def _gather(query: Queries, memory: EraMemory, known: EraMap) -> Operation[None]:
    """Move what is left in the smallest of many old eras to the current one."""
    memory.large &= frozenset(known.eras)
    firsts = {first.era: first for first in known.rest if first.era not in memory.large}
    if len(firsts) < ERAS_MAX:
        return
    params = _columns(tuple(firsts.values()))
    sizes: dict[int, int] = dict((yield query("count_eras", cap=GATHERED_SIZE_MAX, **params)))
    memory.large |= {era for era, size in sizes.items() if size >= GATHERED_SIZE_MAX}
    small = select_small(sizes.items(), most=GATHERED, size_max=GATHERED_SIZE_MAX)
    if len(small) > 1:
        chosen = tuple(firsts[era] for era in small)
        yield query.command("gather_eras", cap=GATHERED_SIZE_MAX, **_columns(chosen))


def view_known(known: EraMap, *, is_fresh: bool = False) -> EraView:
    """The view of a map; ``is_fresh`` if it is from a look in the same transaction."""
    heads, next_first = known.heads(ERAS_MAX)
    end = next_first or _END
    params = {
        **_columns(tuple(heads)),
        "end_priority": end.priority,
        "end_due_at": end.due_at,
        "end_id": end.run_id,
        # With a fresh map, the claim is as of the look: what happened since makes no difference.
        "boundary": None if is_fresh else known.boundary,
        "late": [] if is_fresh else list(map(str, sorted(known.late))),
    }
    return EraView(known.eras, len(heads), next_first is None, params)


def _columns(firsts: tuple[FirstRun, ...]) -> dict[str, Any]:
    return {
        "eras": [first.era for first in firsts],
        "priorities": [first.priority for first in firsts],
        "due_ats": [first.due_at for first in firsts],
        "ids": [first.run_id for first in firsts],
    }
