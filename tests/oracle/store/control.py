"""Limits, pauses, locks and workers in memory."""

from collections.abc import Mapping
from datetime import datetime

from oracle.store.keys import advance_turns, unblock
from oracle.store.tables import TableHolder, Tables
from tickwork._domain.identity import WorkerId
from tickwork._domain.limits.limits import limit_of
from tickwork._domain.limits.rates import is_rate
from tickwork._stores.contract import LimitRow, LockRow, Pause, PauseKind, WorkerRow


class OracleControl(TableHolder):
    """Implements ControlStore."""

    # ------------------------------------------------------------ limits

    def set_limits(self, slots_by_name: Mapping[str, int]) -> None:
        with self._writing() as tables:
            for name, slots in slots_by_name.items():
                row = tables.limits.get(name, LimitRow(name, slots))
                tables.limits[name] = row._replace(slots=slots)
                _unblock_limit(tables, name)

    def change_limit(self, name: str, slots: int | None, *, now: datetime) -> None:
        with self._writing() as tables:
            row = tables.limits.get(name, LimitRow(name, 0))
            tables.limits[name] = row._replace(override=slots)
            _unblock_limit(tables, name)

    def list_limits(self) -> list[LimitRow]:
        with self._reading() as tables:
            return sorted(tables.limits.values())

    # ------------------------------------------------------------ pauses

    def pause(self, pause: Pause) -> None:
        with self._writing() as tables:
            tables.pauses[pause.kind, pause.name] = pause

    def resume(self, kind: PauseKind, name: str) -> bool:
        with self._writing() as tables:
            return tables.pauses.pop((kind, name), None) is not None

    def list_pauses(self) -> list[Pause]:
        with self._reading() as tables:
            return [tables.pauses[key] for key in sorted(tables.pauses)]

    # ------------------------------------------------------------ locks

    def acquire_lock(self, lock: LockRow, *, now: datetime) -> LockRow | None:
        with self._writing() as tables:
            held = tables.locks.get(lock.name)
            if held is not None and held.owner != lock.owner and held.until > now:
                return held
            tables.locks[lock.name] = lock
            return None

    def get_lock(self, name: str) -> LockRow | None:
        with self._reading() as tables:
            return tables.locks.get(name)

    def renew_lock(self, name: str, owner: str, *, until: datetime, now: datetime) -> bool:
        with self._writing() as tables:
            held = tables.locks.get(name)
            if held is None or held.owner != owner or held.until <= now:
                return False
            tables.locks[name] = held._replace(until=until)
            return True

    def release_lock(self, name: str, owner: str | None = None) -> bool:
        with self._writing() as tables:
            held = tables.locks.get(name)
            if held is None or owner not in {None, held.owner}:
                return False
            del tables.locks[name]
            return True

    # ------------------------------------------------------------ workers

    def beat_worker(self, worker: WorkerRow) -> None:
        with self._writing() as tables:
            tables.workers[worker.id] = worker

    def remove_worker(self, worker: WorkerId) -> None:
        with self._writing() as tables:
            tables.workers.pop(worker, None)

    def list_workers(self) -> list[WorkerRow]:
        with self._reading() as tables:
            by_id = sorted(tables.workers.values(), key=lambda worker: worker.id)
            return sorted(by_id, key=lambda worker: worker.beat_at, reverse=True)


def _unblock_limit(tables: Tables, limit: str) -> None:
    if is_rate(limit):
        advance_turns(tables, limit)
        return
    blocked_on = {run.blocked_on for run in tables.runs.values() if run.blocked_on is not None}
    unblock(tables, (key for key in blocked_on if limit_of(key) == limit))
