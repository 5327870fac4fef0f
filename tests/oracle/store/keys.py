"""Adds runs, and manages what they compete for: unique keys, overlap keys, slots and starts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from oracle.store.rows import replace_fields
from oracle.store.tables import Protected, Tables
from tickwork._domain.identity import RunId
from tickwork._domain.limits.limits import (
    Candidate,
    Grants,
    decide_grants,
    is_kept_between_attempts,
    keys_needed,
    limit_of,
    slots_in,
)
from tickwork._domain.limits.rates import TURNS_MAX, Rate, is_rate, window_of
from tickwork._domain.runs.run import NewRun, Run
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._stores.contract import AddedRun

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_BLANK: Final = Run(
    id=RunId(""),
    job="",
    status=RunStatus.PENDING,
    phase=Phase.READY,
    created_at=EPOCH,
    due_at=EPOCH,
)


def claim_order(run: Run) -> tuple[int, datetime, RunId]:
    """The order in which runs are claimed and unblocked."""
    return run.priority, run.due_at, run.id


# ---------------------------------------------------------------- adding runs


def add_runs(
    tables: Tables, runs: Sequence[NewRun], *, may_be_stored: bool = False
) -> list[AddedRun]:
    """Add the runs whose keys are free; for the others, return the holder of the key."""
    overlapping = overlap_holders(tables)
    answers = []
    for new in runs:
        if may_be_stored and (new.id in tables.runs or new.id in tables.history):
            answers.append(AddedRun(new.id, is_new=False))
            continue
        holder = None if new.overlap_key is None else overlapping.get(new.overlap_key)
        if holder is not None and new.replaces is not None:
            replace_waiting(tables, tables.runs[holder], new)
            answers.append(AddedRun(holder, is_new=False, is_replaced=True))
            continue
        if holder is None and new.unique is not None:
            holder = unique_holder(tables, new.unique.key, now=new.created_at)
        if holder is not None:
            answers.append(AddedRun(holder, is_new=False))
            continue
        assert new.id not in tables.runs, new
        tables.runs[new.id] = run = _build_run(new)
        tables.note_firing(run)
        if new.unique is not None:
            tables.uniques[new.unique.key] = Protected(new.id, new.unique.until)
        if new.overlap_key is not None:
            overlapping[new.overlap_key] = new.id
        answers.append(AddedRun(new.id, is_new=True))
    return answers


def replace_waiting(tables: Tables, old: Run, new: NewRun) -> None:
    """Give a run that waits all facts of a newer one. A claim has freed the key of any other."""
    now = new.created_at
    if old.due_at <= now:
        due_at = old.due_at
    elif new.replaces is None or new.replaces.max is None:
        due_at = new.due_at
    else:
        due_at = max(now, min(new.due_at, old.created_at + new.replaces.max))
    length = None if new.expires_at is None else new.expires_at - new.due_at
    stays_blocked = due_at <= now and old.limit_keys == new.limit_keys and old.blocked_on
    phase = Phase.WAITING if due_at > now else Phase.BLOCKED if stays_blocked else Phase.READY
    tables.runs[old.id] = replace_fields(
        old,
        phase=phase,
        due_at=due_at,
        expires_at=None if length is None else max(due_at, now) + length,
        blocked_on=old.blocked_on if phase is Phase.BLOCKED else None,
        queue=new.queue,
        priority=new.priority,
        args=new.args,
        tags=new.tags,
        attempts_max=new.attempts_max,
        limit_keys=new.limit_keys,
        target=new.target,
        trace=new.trace,
    )


def overlap_holders(tables: Tables) -> dict[str, RunId]:
    """The runs that hold overlap keys, by key."""
    return {run.overlap_key: run.id for run in tables.runs.values() if run.overlap_key is not None}


def unique_holder(tables: Tables, key: str, *, now: datetime) -> RunId | None:
    held = tables.uniques.get(key)
    if held is None or (held.until is not None and held.until <= now):
        return None
    return held.run_id


def free_unique_keys(tables: Tables, run_id: RunId, *, now: datetime) -> None:
    """Free the unique keys of a finished run, except those whose window has not passed."""
    for key, held in list(tables.uniques.items()):
        if held.run_id == run_id and (held.until is None or held.until <= now):
            del tables.uniques[key]


def _build_run(new: NewRun) -> Run:
    facts = new._asdict()
    del facts["unique"], facts["replaces"]
    return replace_fields(_BLANK, phase=new.phase, **facts)


# ---------------------------------------------------------------- slots


def taken_by_key(tables: Tables) -> Counter[str]:
    return Counter(key for keys in tables.slots.values() for key in keys)


def slots_by_limit(tables: Tables) -> dict[str, int]:
    return {limit.name: limit.in_force for limit in tables.limits.values()}


def decide_and_take(
    tables: Tables, runs: Sequence[Run], *, now: datetime, may_block: bool = True
) -> Grants:
    """Decide which runs may start, in this order; take their slots and count their starts."""
    candidates = []
    for run in runs:
        held = tables.slots.get(run.id, frozenset())
        needed = keys_needed(run.limit_keys, held=held, expires_at=run.expires_at, now=now)
        candidates.append(Candidate(run.id, needed))
    rates = rates_of(tables, {key for _, keys in candidates for key in keys if is_rate(key)})
    grants = decide_grants(
        candidates,
        taken=taken_by_key(tables),
        slots_by_limit=slots_by_limit(tables),
        starts_by_rate={
            key: rate.room(now=now, most=len(runs))
            for key, rate in rates.items()
            if rate.starts_max
        },
    )
    if not (grants.granted or may_block):
        return grants
    needed_by: dict[RunId, tuple[str, ...]] = dict(candidates)
    for run_id in grants.granted:
        if slots := slots_in(needed_by[run_id]):
            tables.slots[run_id] = tables.slots.get(run_id, frozenset()) | set(slots)
    starts = Counter(key for run_id in grants.granted for key in needed_by[run_id])
    for key, rate in rates.items():
        is_blocked = key in grants.blocked_on.values()
        if rate.starts_max and (starts[key] or is_blocked):
            keep_rate(tables, key, rate.add_starts(starts[key], now=now, is_blocked=is_blocked))
    return grants


def rates_of(tables: Tables, keys: Iterable[str]) -> dict[str, Rate]:
    """The rates of these keys, with the limit that is in force now."""
    slots = slots_by_limit(tables)
    return {
        key: tables.rates.get(key, Rate(0, window_of(key)))._replace(
            starts_max=slots.get(limit_of(key), 0)
        )
        for key in sorted(keys)
    }


def keep_rate(tables: Tables, key: str, rate: Rate) -> None:
    """Store a rate without the starts that are no longer needed."""
    kept = {number: at for number, at in rate.past.items() if number > rate.forgotten}
    tables.rates[key] = rate._replace(past=kept)


def unblock_rated(tables: Tables, *, now: datetime, limit: int) -> int:
    due = [(rate.next_start_at, key) for key, rate in tables.rates.items() if rate.is_due(now=now)]
    count = 0
    for key, rate in rates_of(tables, [key for _, key in sorted(due)[:limit]]).items():
        blocked = sorted((run for run in _blocked(tables, key)), key=claim_order)
        expired = [run for run in blocked if run.expires_at is not None and now > run.expires_at]
        room, after = rate.open_turn(now=now)
        left = [run for run in blocked if run not in expired]
        chosen = [*expired[:TURNS_MAX], *left[:room]]
        _make_ready(tables, [run.id for run in chosen])
        count += len(chosen)
        keep_rate(tables, key, after if len(chosen) < len(blocked) else after.clear_turn())
    return count


def set_missing_turns(tables: Tables, keys: Iterable[str]) -> None:
    """Set a turn for keys that have blocked runs but no turn."""
    for key in keys:
        rate = tables.rates.get(key, Rate(0, window_of(key)))
        if rate.next_start_at is None:
            tables.rates[key] = rate._replace(next_start_at=EPOCH)


def advance_turns(tables: Tables, limit: str) -> None:
    """Make the next turn of each key of this rate due at once."""
    for key, rate in list(tables.rates.items()):
        if limit_of(key) == limit and rate.next_start_at is not None:
            tables.rates[key] = rate._replace(next_start_at=EPOCH)


def _blocked(tables: Tables, key: str) -> list[Run]:
    return [run for run in tables.runs.values() if run.blocked_on == key]


def _make_ready(tables: Tables, run_ids: Iterable[RunId]) -> None:
    for run_id in run_ids:
        tables.runs[run_id] = replace_fields(
            tables.runs[run_id], phase=Phase.READY, blocked_on=None
        )


def free_slots(tables: Tables, run_id: RunId, *, is_final: bool) -> frozenset[str]:
    """Free a run's slots, except those it keeps between attempts; return the freed keys."""
    held = tables.slots.pop(run_id, frozenset())
    kept = frozenset(() if is_final else filter(is_kept_between_attempts, held))
    if kept:
        tables.slots[run_id] = kept
    return held - kept


def unblock(tables: Tables, keys: Iterable[str], *, limit: int | None = None) -> int:
    """Make blocked runs ready, in claim order, as many as their keys have room for."""
    chosen_keys = sorted(set(slots_in(keys)))
    if not chosen_keys:
        return 0
    taken = taken_by_key(tables)
    slots = slots_by_limit(tables)
    count = 0
    for key in chosen_keys:
        blocked = sorted(_blocked(tables, key), key=claim_order)
        candidates = [Candidate(run.id, (key,)) for run in blocked]
        granted = decide_grants(candidates, taken=taken, slots_by_limit=slots).granted
        chosen = granted if limit is None else granted[: limit - count]
        _make_ready(tables, chosen)
        count += len(chosen)
    return count
