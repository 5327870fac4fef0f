"""Actions on many runs, carried out in the background of the dashboard."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from tickwork._domain.identity import RunId
from tickwork._kernel.ids import new_id
from tickwork.dashboard.access import Caller
from tickwork.dashboard.actions import Actions
from tickwork.dashboard.problems import ProblemError
from tickwork.errors import TickworkError

RUNS_MAX: Final = 10_000
"""The most runs that one bulk action changes."""

TASKS_MAX: Final = 50
ACTIONS: Final = {"retry": "run.retry", "cancel": "run.cancel", "delete": "run.delete"}


class BulkTask:
    """One action on many runs, and how much of it is done."""

    def __init__(self, task_id: str, action: str, ids: Sequence[RunId]) -> None:
        self.id = task_id
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


class BulkTasks:
    """The newest bulk tasks of this process."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._tasks: OrderedDict[str, BulkTask] = OrderedDict()

    def start(self, caller: Caller, action: str, ids: Sequence[RunId]) -> BulkTask:
        """Act on these runs in a thread.

        Raises:
            ProblemError: There is no such action, or the caller may not take it.
        """
        if action not in ACTIONS:
            raise ProblemError(422, "The action must be retry, cancel or delete.", field="action")
        self._actions.check(caller, ACTIONS[action])
        chosen = list(ids)[:RUNS_MAX]
        task = BulkTask(new_id(self._actions.app.clock.now()), action, chosen)
        self._tasks[task.id] = task
        while len(self._tasks) > TASKS_MAX:
            self._tasks.popitem(last=False)[1].stop()
        act = {
            "retry": lambda run_id: self._actions.retry(caller, run_id),
            "cancel": lambda run_id: self._actions.cancel(caller, run_id),
            "delete": lambda run_id: self._actions.delete(caller, run_id),
        }[action]
        threading.Thread(
            target=task.work, args=(act,), name=f"tickwork-bulk-{action}", daemon=True
        ).start()
        return task

    def stop(self, caller: Caller, task_id: str) -> None:
        """Stop a task, if the caller has the role that its action needs.

        Raises:
            ProblemError: This process does not know it, or the caller may not take its action.
        """
        task = self.get(task_id)
        self._actions.check(caller, ACTIONS[task.action])
        self._actions.app.audit.record(
            "bulk.stop",
            f"bulk/{task_id}",
            actor=caller.user.name,
            source=caller.address,
            detail={"action": task.action, "done": task.done, "total": task.total},
        )
        task.stop()

    def get(self, task_id: str) -> BulkTask:
        """A task by its id.

        Raises:
            ProblemError: This process does not know it.
        """
        if task_id not in self._tasks:
            raise ProblemError(404, "This server does not know this bulk action.")
        return self._tasks[task_id]
