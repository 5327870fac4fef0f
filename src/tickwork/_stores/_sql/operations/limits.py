"""Takes slots of limits for claims, frees them at the end, and unblocks waiting runs.

A rate is a limit, too; ``rates.py`` has the operations that only rates need.

The lock order is the same everywhere: run rows by id, gates ascending, slots, blocked runs, job
rows. Slots are counted by a separate statement that starts after the gates are locked: one that
started earlier would miss the slots that other transactions took meanwhile.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from tickwork._domain.identity import RunId
from tickwork._domain.limits.limits import (
    GATES,
    Candidate,
    Grants,
    decide_grants,
    gate_of,
    is_key,
    keys_needed,
    room_of,
    slots_in,
    slots_in_force,
)
from tickwork._domain.limits.rates import Rate, is_rate
from tickwork._domain.runs.run import Claim
from tickwork._stores._sql.faults import report_fault
from tickwork._stores._sql.operations.eras import restart_eras
from tickwork._stores._sql.operations.notifications import ANY_QUEUE, notify_queues
from tickwork._stores._sql.operations.rates import read_rates, set_missing_turns, write_starts
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.statement import Operation

RESTARTED_MAX: Final = 5000
"""How many runs with foreign eras one sweep changes. The others are still found."""

UNBLOCK_MAX: Final = 1000
"""How many runs are unblocked for one key at a time; the sweeper unblocks the rest."""


def grant(
    query: Queries, claims: Sequence[Claim], *, now: datetime, limit: int
) -> Operation[Grants]:
    """Decide, in this order, which of these locked runs get their slots; take them."""
    # A run that was never claimed before cannot hold a slot.
    again = sorted(claim.run_id for claim in claims if claim.limit_keys and claim.token > 1)
    held: dict[RunId, set[str]] = {}
    for run_id, key in (yield query("held_slots", ids=again)) if again else ():
        held.setdefault(run_id, set()).add(key)
    candidates = [
        Candidate(
            claim.run_id,
            keys_needed(
                claim.limit_keys,
                held=held.get(claim.run_id, ()),
                expires_at=claim.expires_at,
                now=now,
            ),
        )
        for claim in claims
    ]
    gates = sorted({gate_of(key) for candidate in candidates for key in candidate.keys})
    # Runs whose gate another transaction has locked are left to that transaction.
    locked = {row[0] for row in (yield query("try_gates", gates=gates))}
    grants, rates = yield from _decide(query, candidates, gates=locked, now=now, limit=limit)
    yield from _take(query, candidates, grants, rates, now=now)
    if grants.blocked_on:
        blocked = sorted((run, key) for run, key in grants.blocked_on.items())
        yield query.command("block_runs", many=[(key, run) for run, key in blocked])
    yield from _unblock_up_to(query, grants.room_by_key)
    return grants


def grant_one(
    query: Queries, run_id: RunId, keys: Sequence[str], *, now: datetime
) -> Operation[bool]:
    """Take a slot of each of these keys for this locked run, or no slot at all.

    It waits for gates that are locked.
    """
    candidates = [Candidate(run_id, tuple(keys))]
    yield query.command("lock_gates", gates=sorted({gate_of(key) for key in keys}))
    grants, rates = yield from _decide(query, candidates, gates=None, now=now, limit=1)
    if not grants.granted:
        return False
    yield from _take(query, candidates, grants, rates, now=now)
    return True


def _decide(
    query: Queries,
    candidates: Sequence[Candidate],
    *,
    gates: Collection[int] | None,
    now: datetime,
    limit: int,
) -> Operation[tuple[Grants, dict[str, Rate]]]:
    """The grants, and the rates among the keys. The gates must be locked."""
    wanted = Counter(key for candidate in candidates for key in candidate.keys)
    taken, slots = yield from taken_and_slots(query, sorted(slots_in(wanted)), gates=gates)
    most = {
        key: min(count, limit)
        for key, count in wanted.items()
        if is_rate(key) and (gates is None or gate_of(key) in gates)
    }
    rates = (yield from read_rates(query, most, slots, now=now)) if most else {}
    starts = {key: rate.room(now=now, most=most[key]) for key, rate in rates.items()}
    grants = decide_grants(
        candidates,
        taken=taken,
        slots_by_limit=slots,
        starts_by_rate=starts,
        gates=gates,
        limit=limit,
    )
    return grants, rates


def _take(
    query: Queries,
    candidates: Sequence[Candidate],
    grants: Grants,
    rates: Mapping[str, Rate],
    *,
    now: datetime,
) -> Operation[None]:
    granted = set(grants.granted)
    needed = [(run, key) for run, keys in candidates if run in granted for key in keys]
    rows = sorted((run, key) for run, key in needed if not is_rate(key))
    if rows:
        yield query.command("insert_slots", many=rows)
    if rates:
        yield from write_starts(
            query,
            rates,
            starts_by_key=Counter(key for _, key in needed if key in rates),
            blocked=set(grants.blocked_on.values()),
            now=now,
        )


def taken_and_slots(
    query: Queries,
    keys: Sequence[str],
    *,
    gates: Collection[int] | None = None,
    has_freed: bool = False,
) -> Operation[tuple[dict[str, int], dict[str, int]]]:
    """How many slots of these keys are taken, and how many each limit has.

    In one statement: other workers wait while the gates are locked; ``gates`` are those, if they
    are not all. Only under its gate the first slot of a key is a lower bound for later ones. After
    this transaction has freed slots it is none, because the transaction may be rolled back.
    """
    memory = query.eras
    first_slots = {} if memory is None else memory.first_slots
    numbers = [first_slots.get(key, 0) for key in keys]
    taken: dict[str, int] = {}
    slots: dict[str, int] = {}
    for is_limit, name, count, more in (
        yield query("slots_and_limits", keys=list(keys), numbers=numbers)
    ):
        if is_limit:
            slots[name] = slots_in_force(count, more)
            continue
        taken[name] = count
        is_bound = not has_freed and (gates is None or gate_of(name) in gates)
        if memory is not None and is_bound:
            memory.note_first_slot(name, more)
    return taken, slots


def free_slots(query: Queries, slots: Collection[tuple[RunId, str]]) -> Operation[None]:
    """Free these slots, and unblock runs that wait for them."""
    keys = sorted({key for _, key in slots})
    yield query.command("lock_gates", gates=sorted({gate_of(key) for key in keys}))
    yield query.command("delete_slots", many=sorted(slots))
    yield from unblock(query, keys)


def unblock(query: Queries, keys: Sequence[str]) -> Operation[int]:
    """Unblock runs of these keys, as many as there is room for. The gates must be locked."""
    taken, slots = yield from taken_and_slots(query, keys, has_freed=True)
    rooms = {}
    for key in keys:
        room = room_of(key, taken=taken, slots_by_limit=slots)
        if room is None or room > 0:
            rooms[key] = UNBLOCK_MAX if room is None else room
    return (yield from _unblock_up_to(query, rooms))


def _unblock_up_to(query: Queries, room_by_key: Mapping[str, int]) -> Operation[int]:
    if not room_by_key:
        return 0
    rows = [(key, min(room, UNBLOCK_MAX)) for key, room in sorted(room_by_key.items())]
    count = int((yield query("unblock", many=rows))[0][0])
    if count:
        yield from notify_queues(query, [ANY_QUEUE])
    return count


def sweep(query: Queries, *, now: datetime, limit: int, after: str) -> Operation[tuple[int, str]]:
    """Unblock runs whose limit has room, in case an unblock was missed.

    Checks ``limit`` keys in order, starting after ``after``. Returns the number of unblocked runs,
    and the key to continue after: "" at the end of the keys.
    """
    rows = yield query("keys_blocked", after=after, limit=limit)
    swept_keys = sorted(row[0] for row in rows if is_key(row[0]))
    last = swept_keys[-1] if len(rows) == limit and swept_keys else ""
    # What is not a key belongs to no limit: runs that wait for it are unblocked.
    count = yield from _unblock_up_to(
        query, {row[0]: UNBLOCK_MAX for row in rows if not is_key(row[0])}
    )
    yield from _restore_gates(query)
    yield from restart_eras(query, limit=RESTARTED_MAX)
    keys = list(slots_in(swept_keys))
    if len(keys) < len(swept_keys):
        yield from set_missing_turns(query, [key for key in swept_keys if is_rate(key)], now=now)
    if keys:
        yield query.command("lock_gates", gates=sorted({gate_of(key) for key in keys}))
        # A run that ends frees its slots. Only another program can leave one behind.
        orphans = [tuple(row) for row in (yield query("orphan_slots", keys=keys))]
        if orphans:
            yield query.command("delete_slots", many=orphans)
            for run_id, key in orphans:
                report_fault("tickwork_slot", key, f"There is no run {run_id}.")
        count += yield from unblock(query, keys)
    return count, last


def _restore_gates(query: Queries) -> Operation[None]:
    """Add gates that are missing: without its gate, no run of a key could be claimed."""
    if query.optional.count_gates and (yield query("count_gates"))[0][0] < GATES:
        yield query.command("restore_gates")


def set_limits(query: Queries, slots_by_name: Mapping[str, int]) -> Operation[None]:
    before = {row[0]: row[1] for row in (yield query("list_limits"))}
    changed = sorted(
        (name, slots) for name, slots in slots_by_name.items() if before.get(name) != slots
    )
    if changed:
        yield from _lock_all_gates(query)
        yield query.command("set_limits", many=changed)
        for name, _ in changed:
            yield from _unblock_limit(query, name)


def change_limit(query: Queries, name: str, slots: int | None) -> Operation[None]:
    yield from _lock_all_gates(query)
    yield query.command("override_limit", name=name, slots=slots)
    yield from _unblock_limit(query, name)


def _lock_all_gates(query: Queries) -> Operation[None]:
    yield query.command("lock_gates", gates=list(range(GATES)))


def _unblock_limit(query: Queries, name: str) -> Operation[None]:
    if is_rate(name):
        yield query.command("advance_turns", name=name)
        yield from notify_queues(query, [ANY_QUEUE])
        return
    keys = sorted(row[0] for row in (yield query("keys_blocked_by", name=name)))
    if keys:
        yield from unblock(query, keys)
