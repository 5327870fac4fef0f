"""Places in limits: taken at a claim, freed at an end, passed on to whoever waits.

One lock order everywhere: run rows by id, gates ascending, slots, blocked runs, job rows.
Slots are counted in a statement of its own, begun after the gates are held: one that
began earlier would count what it saw then.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from tickwork._domain.identity import RunId
from tickwork._domain.limits import Candidate, Grants, decide_grants, gate_of, room_of
from tickwork.stores._sql.operations.waking import ANY_QUEUE, wake
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.statement import Operation

LET_OUT_MAX: Final = 1000
"""Blocked runs let out for one key at a time; the sweeper comes for the rest."""


def grant(
    query: Queries, keys_by_run: Mapping[RunId, Sequence[str]], *, limit: int
) -> Operation[Grants]:
    """Decide, in this order, which of these locked runs get their slots; take them."""
    limited = sorted(run for run, keys in keys_by_run.items() if keys)
    held = yield query("held_slots", ids=limited)
    kept: set[tuple[RunId, str]] = {(row[0], row[1]) for row in held}
    candidates = [
        Candidate(run, tuple(key for key in keys if (run, key) not in kept))
        for run, keys in keys_by_run.items()
    ]
    wanted = sorted({key for candidate in candidates for key in candidate.keys})
    gates = sorted({gate_of(key) for key in wanted})
    # Somebody who holds a gate decides about its keys; we leave those runs alone.
    ours = {row[0] for row in (yield query("try_gates", gates=gates))}
    taken, slots = yield from taken_and_slots(query, wanted)
    grants = decide_grants(candidates, taken=taken, slots_by_limit=slots, gates=ours, limit=limit)
    granted = set(grants.granted)
    rows = [(run, key) for run, keys in candidates if run in granted for key in keys]
    if rows:
        yield query.tell("insert_slots", many=sorted(rows))
    if grants.blocked_on:
        blocked = sorted((run, key) for run, key in grants.blocked_on.items())
        yield query.tell("block_runs", many=[(key, run) for run, key in blocked])
    if grants.room_by_key:
        yield from _let_out(query, grants.room_by_key)
    return grants


def taken_and_slots(
    query: Queries, keys: Sequence[str]
) -> Operation[tuple[dict[str, int], dict[str, int]]]:
    """How many slots of these keys are taken, and how many each limit has.

    In one statement: everybody else waits while we hold the gates.
    """
    taken: dict[str, int] = {}
    slots: dict[str, int] = {}
    for is_limit, name, count in (yield query("slots_and_limits", keys=keys)):
        (slots if is_limit else taken)[name] = count
    return taken, slots


def free(query: Queries, slots: Collection[tuple[RunId, str]]) -> Operation[None]:
    """Free these slots, and let out whoever waits for them."""
    keys = sorted({key for _, key in slots})
    yield query.tell("lock_gates", gates=sorted({gate_of(key) for key in keys}))
    yield query.tell("delete_slots", many=sorted(slots))
    yield from unblock(query, keys)


def unblock(query: Queries, keys: Sequence[str]) -> Operation[int]:
    """Let out blocked runs of these keys, whose gates are held, while there is room."""
    taken, slots = yield from taken_and_slots(query, keys)
    rooms = {}
    for key in keys:
        room = room_of(key, taken=taken, slots_by_limit=slots)
        if room is None or room > 0:
            rooms[key] = LET_OUT_MAX if room is None else room
    return (yield from _let_out(query, rooms)) if rooms else 0


def _let_out(query: Queries, room_by_key: Mapping[str, int]) -> Operation[int]:
    rows = [(key, min(room, LET_OUT_MAX)) for key, room in sorted(room_by_key.items())]
    count = int((yield query("let_out", many=rows))[0][0])
    if count:
        yield from wake(query, [ANY_QUEUE])
    return count


def sweep(query: Queries, *, limit: int) -> Operation[int]:
    """Let out blocked runs whose limit has room: a second look, for wake-ups that were lost."""
    keys = sorted(row[0] for row in (yield query("keys_blocked", limit=limit)))
    if not keys:
        return 0
    yield query.tell("lock_gates", gates=sorted({gate_of(key) for key in keys}))
    return (yield from unblock(query, keys))


def set_limits(query: Queries, slots_by_name: Mapping[str, int]) -> Operation[None]:
    """What code says about limits."""
    before = {row[0]: row[1] for row in (yield query("list_limits"))}
    changed = sorted(
        (name, slots) for name, slots in slots_by_name.items() if before.get(name) != slots
    )
    if changed:
        yield from _lock_all_gates(query)
        yield query.tell("set_limits", many=changed)
        for name, _ in changed:
            yield from _unblock_limit(query, name)


def change_limit(query: Queries, name: str, slots: int | None) -> Operation[None]:
    """What an operator says about one limit."""
    yield from _lock_all_gates(query)
    yield query.tell("override_limit", name=name, slots=slots)
    yield from _unblock_limit(query, name)


def _lock_all_gates(query: Queries) -> Operation[None]:
    yield query.tell("lock_gates", gates=list(range(1024)))


def _unblock_limit(query: Queries, name: str) -> Operation[None]:
    keys = sorted(row[0] for row in (yield query("keys_blocked_by", name=name)))
    if keys:
        yield from unblock(query, keys)
