"""Actions on many runs, carried out in the background of the dashboard."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tickwork._control.audit import NAMES_MAX
from tickwork._domain.identity import RunId
from tickwork._kernel.ids import new_id
from tickwork.dashboard.access import Caller
from tickwork.dashboard.actions import Act, Actions
from tickwork.dashboard.acts.runs import cancel_run, delete_run, retry_run
from tickwork.dashboard.problems import ProblemError
from tickwork.errors import TickworkError

RUNS_MAX: Final = 10_000
"""The most runs that one bulk action changes."""

KEPT_MAX: Final = 50
BULK_ACTS: Final[Mapping[str, Act[[RunId], Any]]] = {
    "retry": retry_run,
    "cancel": cancel_run,
    "delete": delete_run,
}


def find_act(action: str) -> Act[[RunId], Any]:
    """The act that a bulk action repeats.

    Raises:
        ProblemError: There is no such action.
    """
    if action not in BULK_ACTS:
        raise ProblemError(422, "The action must be retry, cancel or delete.", field="action")
    return BULK_ACTS[action]


class BulkAction:
    """One action on many runs, and how much of it is done."""

    def __init__(self, bulk_id: str, action: str, ids: Sequence[RunId]) -> None:
        self.id = bulk_id
        self.action = action
        self.total = len(ids)
        self.done = 0
        self.refused = 0
        self._ids = ids
        self._stop = threading.Event()

    @property
    def is_finished(self) -> bool:
        return self.done >= self.total or self.is_stopped

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        self._stop.set()

    def work(self, act: Callable[[RunId], object]) -> None:
        """Act on each run. A run whose state does not allow it is counted as refused."""
        for run_id in self._ids:
            if self._stop.is_set():
                return
            try:
                act(run_id)
            except (TickworkError, ProblemError):
                self.refused += 1
            self.done += 1


class BulkActions:
    """The newest bulk actions of this process."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._kept: OrderedDict[str, BulkAction] = OrderedDict()

    def start(self, caller: Caller, action: str, ids: Sequence[RunId]) -> BulkAction:
        """Act on these runs in a thread. The audit log gets one entry about all of them.

        Raises:
            ProblemError: There is no such action, or the caller may not take it.
        """
        act = find_act(action)
        self._actions.check(caller, act)
        chosen = list(ids)[:RUNS_MAX]
        bulk = BulkAction(new_id(self._actions.app.clock.now()), action, chosen)
        self._record(caller, act.action, bulk, {"runs": chosen[:NAMES_MAX]})
        self._kept[bulk.id] = bulk
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)[1].stop()
        threading.Thread(
            target=bulk.work,
            args=(lambda run_id: self._actions.take_part(caller, act, run_id),),
            name=f"tickwork-bulk-{action}",
            daemon=True,
        ).start()
        return bulk

    def stop(self, caller: Caller, bulk_id: str) -> None:
        """Stop a bulk action, if the caller has the role that its action needs.

        Raises:
            ProblemError: This process does not know it, or the caller may not take its action.
        """
        bulk = self.get(bulk_id)
        self._actions.check(caller, BULK_ACTS[bulk.action])
        self._record(caller, "bulk.stop", bulk, {"action": bulk.action, "done": bulk.done})
        bulk.stop()

    def _record(
        self, caller: Caller, action: str, bulk: BulkAction, detail: Mapping[str, Any]
    ) -> None:
        self._actions.app.audit.record(
            action,
            f"bulk/{bulk.id}",
            actor=caller.user.name,
            source=caller.address,
            detail={"total": bulk.total, **detail},
        )

    def get(self, bulk_id: str) -> BulkAction:
        """Find a bulk action by its id.

        Raises:
            ProblemError: This process does not know it.
        """
        if bulk_id not in self._kept:
            raise ProblemError(404, "This server does not know this bulk action.")
        return self._kept[bulk_id]
