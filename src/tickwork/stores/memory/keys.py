"""How runs come in, and what they compete for: unique keys, overlap keys and slots."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from tickwork._domain.identity import RunId
from tickwork._domain.limits import Candidate, decide_grants, is_kept_between_attempts
from tickwork._domain.run import NewRun, Run
from tickwork._domain.status import Phase, RunStatus
from tickwork.stores.contract import Enqueued
from tickwork.stores.memory.rows import changed
from tickwork.stores.memory.tables import Protected, Tables

_BLANK: Final = Run(
    id=RunId(""),
    job="",
    status=RunStatus.PENDING,
    phase=Phase.READY,
    created_at=datetime(1970, 1, 1, tzinfo=UTC),
    due_at=datetime(1970, 1, 1, tzinfo=UTC),
)


def claim_order(run: Run) -> tuple[int, datetime, RunId]:
    """The order in which runs are claimed, and let out when they were blocked."""
    return run.priority, run.due_at, run.id


# ---------------------------------------------------------------- coming in


def add_runs(tables: Tables, runs: Sequence[NewRun], *, is_repeat: bool = False) -> list[Enqueued]:
    """Add those runs whose keys are free; for the others, say who was there first."""
    overlapping = overlap_holders(tables)
    answers = []
    for new in runs:
        if is_repeat and (new.id in tables.runs or new.id in tables.history):
            answers.append(Enqueued(new.id, is_new=False))
            continue
        holder = None if new.overlap_key is None else overlapping.get(new.overlap_key)
        if holder is None and new.unique is not None:
            holder = unique_holder(tables, new.unique.key, now=new.created_at)
        if holder is not None:
            answers.append(Enqueued(holder, is_new=False))
            continue
        assert new.id not in tables.runs, new
        tables.runs[new.id] = run = _unfinished(new)
        tables.note_firing(run)
        if new.unique is not None:
            tables.uniques[new.unique.key] = Protected(new.id, new.unique.until)
        if new.overlap_key is not None:
            overlapping[new.overlap_key] = new.id
        answers.append(Enqueued(new.id, is_new=True))
    return answers


def overlap_holders(tables: Tables) -> dict[str, RunId]:
    """The overlap keys that unfinished runs hold, and who holds them."""
    return {run.overlap_key: run.id for run in tables.runs.values() if run.overlap_key is not None}


def unique_holder(tables: Tables, key: str, *, now: datetime) -> RunId | None:
    """The run that protects this key now."""
    held = tables.uniques.get(key)
    if held is None or (held.until is not None and held.until <= now):
        return None
    return held.run_id


def free_unique_keys(tables: Tables, run_id: RunId, *, now: datetime) -> None:
    """Free what a run that has ended protects, except where a window goes on."""
    for key, held in list(tables.uniques.items()):
        if held.run_id == run_id and (held.until is None or held.until <= now):
            del tables.uniques[key]


def _unfinished(new: NewRun) -> Run:
    return changed(
        _BLANK,
        id=new.id,
        job=new.job,
        phase=new.phase,
        created_at=new.created_at,
        due_at=new.due_at,
        tenant=new.tenant,
        queue=new.queue,
        priority=new.priority,
        expires_at=new.expires_at,
        args=new.args,
        tags=new.tags,
        attempts_max=new.attempts_max,
        overlap_key=new.overlap_key,
        limit_keys=new.limit_keys,
        schedule=new.schedule,
        nominal_at=new.nominal_at,
        target=new.target,
        retry_of=new.retry_of,
        trace=new.trace,
    )


# ---------------------------------------------------------------- slots


def taken_by_key(tables: Tables) -> Counter[str]:
    """How many slots of each key are taken."""
    return Counter(key for keys in tables.slots.values() for key in keys)


def slots_by_limit(tables: Tables) -> dict[str, int]:
    """How many slots each limit has: what is in force."""
    return {limit.name: limit.in_force for limit in tables.limits.values()}


def free_slots(tables: Tables, run_id: RunId, *, is_final: bool) -> frozenset[str]:
    """Give up a run's slots, but not those it keeps between attempts; return the freed keys."""
    held = tables.slots.pop(run_id, frozenset())
    kept = frozenset(() if is_final else filter(is_kept_between_attempts, held))
    if kept:
        tables.slots[run_id] = kept
    return held - kept


def let_out(tables: Tables, keys: Iterable[str], *, limit: int | None = None) -> int:
    """Make blocked runs ready, by claim order, as many as there is room for in their keys."""
    chosen = sorted(set(keys))
    if not chosen:
        return 0
    taken = taken_by_key(tables)
    slots = slots_by_limit(tables)
    out = 0
    for key in chosen:
        blocked = [run for run in tables.runs.values() if run.blocked_on == key]
        candidates = [Candidate(run.id, (key,)) for run in sorted(blocked, key=claim_order)]
        granted = decide_grants(candidates, taken=taken, slots_by_limit=slots).granted
        for run_id in granted if limit is None else granted[: limit - out]:
            tables.runs[run_id] = changed(tables.runs[run_id], phase=Phase.READY, blocked_on=None)
            out += 1
    return out
