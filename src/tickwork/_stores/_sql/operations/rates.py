"""Counts starts under a rate at a claim, and unblocks runs when their turn comes.

The caller must have locked the gates of the keys. As with slots, counts are read by statements that
start after that: one that started earlier would miss the starts of other transactions.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeGuard

from tickwork._domain.identity import RunId
from tickwork._domain.limits.limits import gate_of, is_key, limit_of, slots_in_force
from tickwork._domain.limits.rates import (
    SLACK,
    TURNS_MAX,
    Rate,
    Turn,
    is_rate,
    latest_turn,
    window_of,
)
from tickwork._stores._sql.columns import RUN, names
from tickwork._stores._sql.faults import report_fault
from tickwork._stores._sql.operations.notifications import ANY_QUEUE, is_soon, notify_queues
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import micros, rate_row, rates_by_key
from tickwork._stores._sql.statement import Operation, Row

NO_KEY: Final = "No rate limit has this key."
PLACE_CAP: Final = 10_000
_BLOCKED_ON: Final = names(RUN).index("blocked_on")


def read_rates(
    query: Queries,
    most_by_key: Mapping[str, int],
    slots_by_limit: Mapping[str, int],
    *,
    now: datetime | None,
) -> Operation[dict[str, Rate]]:
    """Read the rates of these keys, with as many past starts as ``most`` new ones depend on.

    A rate without a row, or with 0 starts, limits nothing and is left out. A row that cannot be
    used is deleted if ``now`` is given. Readers do not give it.
    """
    limited = {key: most for key, most in most_by_key.items() if slots_by_limit.get(limit_of(key))}
    return (yield from _read(query, limited, slots_by_limit, now=now)) if limited else {}


def _read(
    query: Queries,
    most_by_key: Mapping[str, int],
    slots_by_limit: Mapping[str, int],
    *,
    now: datetime | None,
) -> Operation[dict[str, Rate]]:
    counts = {key: slots_by_limit.get(limit_of(key), 0) for key in sorted(most_by_key)}
    # One more, to know when the next run may start.
    wanted = [[key, count, most_by_key[key] + 1] for key, count in counts.items()]
    rows = yield query("read_rates", wanted=wanted)
    rates, broken = rates_by_key(rows, counts, now=now)
    if broken and now is not None:
        yield from _reset(query, broken)
    return rates


def _reset(query: Queries, reason_by_key: Mapping[str, str]) -> Operation[None]:
    """Delete the rows of keys that cannot be used: counting starts again from zero."""
    yield query.command("reset_rates", many=[(key,) for key in reason_by_key])
    for key, reason in reason_by_key.items():
        report_fault("tickwork_rate", key, reason)


def write_starts(
    query: Queries,
    rates: Mapping[str, Rate],
    *,
    starts_by_key: Mapping[str, int],
    blocked: Collection[str],
    now: datetime,
) -> Operation[None]:
    """Store the new starts, and when the next blocked run may start."""
    starts: list[Row] = []
    changed: dict[str, Rate] = {}
    is_turn_soon = False
    for key, rate in sorted(rates.items()):
        count = starts_by_key.get(key, 0)
        after = rate.add_starts(count, now=now, is_blocked=key in blocked)
        if count:
            at = micros(after.past[after.number])
            starts += [(key, number, at) for number in range(rate.number + 1, after.number + 1)]
        if count or after.next_start_at != rate.next_start_at:
            changed[key] = after
        if after.next_start_at is not None and rate.next_start_at is None:
            is_turn_soon = is_turn_soon or is_soon(after.next_start_at, now=now)
    if starts:
        yield query.command("insert_starts", many=starts)
        old = [(key, rate.forgotten) for key, rate in changed.items() if rate.forgotten > 0]
        if old:
            yield query.command("forget_starts", many=old)
    if changed:
        yield query.command("save_rates", many=[rate_row(key, changed[key]) for key in changed])
    if is_turn_soon:
        yield from notify_queues(query, [ANY_QUEUE])


def unblock_rated(query: Queries, *, now: datetime, limit: int) -> Operation[int]:
    due_keys = [row[0] for row in (yield query("due_turns", now=micros(now), limit=limit))]
    due = sorted(filter(_is_rate_key, due_keys))
    if len(due) < len(due_keys):
        # No run can need such a key.
        yield from _reset(query, {key: NO_KEY for key in due_keys if not _is_rate_key(key)})
    if not due:
        return 0
    # Keys whose gate another transaction has locked are left to the next call.
    gates = {
        row[0] for row in (yield query("try_gates", gates=sorted({gate_of(key) for key in due})))
    }
    keys = [key for key in due if gate_of(key) in gates]
    if not keys:
        return 0
    slots = yield from _slots_by_limit(query)
    most = {key: min(slots.get(limit_of(key), 0) // SLACK + 1, TURNS_MAX) for key in keys}
    rates = yield from _read(query, most, slots, now=now)
    opened = {key: rate.open_turn(now=now) for key, rate in rates.items() if rate.is_due(now=now)}
    if not opened:
        return 0
    past = [(key, micros(now), TURNS_MAX) for key in opened]
    count = int((yield query("unblock_expired", many=past))[0][0])
    rooms = [(key, room) for key, (room, _) in opened.items() if room]
    if rooms:
        count += int((yield query("unblock", many=rooms))[0][0])
    waiting = {row[0] for row in (yield query("keys_waiting", keys=list(opened)))}
    rows = [
        rate_row(key, after if key in waiting else after.clear_turn())
        for key, (_, after) in opened.items()
    ]
    yield query.command("save_rates", many=rows)
    if count:
        yield from notify_queues(query, [ANY_QUEUE])
    return count


def _is_rate_key(key: object) -> TypeGuard[str]:
    return is_key(key) and is_rate(key)


def _slots_by_limit(query: Queries) -> Operation[dict[str, int]]:
    rows = yield query("slots_and_limits", keys=[], numbers=[])
    return {
        name: slots_in_force(slots, override)
        for is_limit, name, slots, override in rows
        if is_limit
    }


def set_missing_turns(query: Queries, keys: Sequence[str], *, now: datetime) -> Operation[None]:
    """Set a turn for keys that have blocked runs but no turn, or one that no decision has set."""
    turns: dict[str, object] = dict((yield query("read_turns", keys=list(keys))))
    latest_by_key = {key: micros(latest_turn(window_of(key), now=now)) for key in keys}
    stuck = sorted(
        key
        for key, latest in latest_by_key.items()
        if not isinstance(at := turns.get(key), int) or at > latest
    )
    if stuck:
        # If another transaction has set a turn since, this one is only earlier. A turn never
        # unblocks more runs than the rate allows.
        yield query.command("lock_gates", gates=sorted({gate_of(key) for key in stuck}))
        yield query.command("set_turns", many=[(key,) for key in stuck])


def find_turn(query: Queries, run_id: RunId) -> Operation[Turn | None]:
    rows = yield query("get_runs", ids=[run_id])
    key = rows[0][_BLOCKED_ON] if rows else None
    if not _is_rate_key(key):
        return None
    [(place,)] = yield query("queue_position", id=run_id, cap=PLACE_CAP)
    slots = yield from _slots_by_limit(query)
    rate = (yield from read_rates(query, {key: 0}, slots, now=None)).get(key)
    at = None if rate is None else rate.turn_of(place)
    return None if rate is None or at is None else Turn(key, rate.starts_max, place, at)


def prune_rates(query: Queries, *, before: datetime, limit: int) -> Operation[None]:
    """Delete keys whose last start left its window before this instant."""
    edge = micros(before)
    idle_keys = [row[0] for row in (yield query("idle_rates", before=edge, limit=limit))]
    keys = sorted(filter(_is_rate_key, idle_keys))
    if len(keys) < len(idle_keys):
        yield from _reset(query, {key: NO_KEY for key in idle_keys if not _is_rate_key(key)})
    if not keys:
        return
    gates = sorted({gate_of(key) for key in keys})
    locked = {row[0] for row in (yield query("try_gates", gates=gates))}
    deletable = [key for key in keys if gate_of(key) in locked]
    if deletable:
        yield query.command("delete_rates", keys=deletable, before=edge)
