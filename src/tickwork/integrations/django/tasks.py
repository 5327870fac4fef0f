"""A backend for Django's tasks: ``django.tasks``, or the package django-tasks before Django 6.

In the settings::

    TASKS = {"default": {"BACKEND": "tickwork.integrations.django.tasks.TickworkBackend"}}

A task that is enqueued in ``atomic()`` exists when the transaction is committed. Workers of
tickwork execute tasks and jobs alike.
"""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from inspect import iscoroutinefunction
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.utils import timezone
from django.utils.module_loading import import_string

from tickwork._define.context import RunContext
from tickwork._domain.identity import RunId
from tickwork._domain.run import Run
from tickwork._domain.status import RunStatus
from tickwork._kernel.codec import decode
from tickwork.errors import RunNotFound
from tickwork.events import RunCanceled, RunFailed, RunSkipped, RunSucceeded
from tickwork.integrations.django.application import app
from tickwork.stores.contract import Attempt

try:
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:  # before Django 6
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

__all__ = ["TickworkBackend"]

FUNCTIONS: Final = "django.tasks"
COROUTINES: Final = "django.tasks.async"
"""The jobs that execute tasks."""

PRIORITY_MAX: Final = 100
"""Of a task. Higher ones come first; in tickwork, lower ones do."""

_STATUSES: Final = {
    RunStatus.PENDING: TaskResultStatus.READY,
    RunStatus.RUNNING: TaskResultStatus.RUNNING,
    RunStatus.FAILED: TaskResultStatus.READY,  # it waits for its next attempt
    RunStatus.COMPLETED: TaskResultStatus.SUCCESSFUL,
    RunStatus.SKIPPED: TaskResultStatus.FAILED,
    RunStatus.CANCELED: TaskResultStatus.FAILED,
    RunStatus.FAILED_PERMANENT: TaskResultStatus.FAILED,
}
_EXCEPTION_LINE: Final = re.compile(r"([A-Za-z_][\w.]*)(?::|$)")


class TickworkBackend(BaseTaskBackend):
    """Enqueues tasks as runs of tickwork."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Add a run for a task.

        Raises:
            InvalidTask: The backend cannot execute it, for example in such a queue.
            TypeError: Its arguments cannot be JSON.
        """
        self.validate_task(task)
        result = _build_result(task, self.alias, args=args, kwargs=kwargs)  # it normalizes them
        run = self._draft(task).dispatch(
            path=task.module_path, backend=self.alias, args=result.args, kwargs=result.kwargs
        )
        _set(result, id=run.id, enqueued_at=_local(app.clock.now()))
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The result of a task, also in the transaction that enqueues it.

        Raises:
            TaskResultDoesNotExist: No task has that id.
        """
        try:
            run = app.get_run(result_id).read()
        except RunNotFound:
            raise TaskResultDoesNotExist(result_id) from None
        if run.job not in {FUNCTIONS, COROUTINES}:
            raise TaskResultDoesNotExist(result_id)
        return read_result(run)

    def _draft(self, task: Any) -> Any:
        job = execute_async if iscoroutinefunction(task.func) else execute
        draft = job.queue(task.queue_name).priority(PRIORITY_MAX - task.priority)
        draft = draft.target(task.module_path)
        if task.run_after is None:
            return draft
        run_after = task.run_after
        return draft.at(
            run_after if timezone.is_aware(run_after) else timezone.make_aware(run_after)
        )


@app.job(name=FUNCTIONS, attempts=1)
def execute(
    path: str, backend: str, args: list[Any], kwargs: dict[str, Any], ctx: RunContext
) -> Any:
    """Execute a task that is a function."""
    result = _start(path, backend, ctx)
    context = [TaskContext(task_result=result)] if result.task.takes_context else []
    return _as_json(result.task.func(*context, *args, **kwargs))


@app.job(name=COROUTINES, attempts=1)
async def execute_async(
    path: str, backend: str, args: list[Any], kwargs: dict[str, Any], ctx: RunContext
) -> Any:
    """Execute a task that is a coroutine function."""
    result = await sync_to_async(_start)(path, backend, ctx)
    context = [TaskContext(task_result=result)] if result.task.takes_context else []
    return _as_json(await result.task.func(*context, *args, **kwargs))


def _start(path: str, backend: str, ctx: RunContext) -> Any:
    task = import_string(path).using(backend=backend)
    run = app.get_run(ctx.run_id).read()
    result = read_result(run, task=task)
    now = _local(app.clock.now())
    _set(result, status=TaskResultStatus.RUNNING, last_attempted_at=now)
    if result.started_at is None:
        _set(result, started_at=now)
    if not result.worker_ids:
        result.worker_ids.append(str(run.worker))
    task_started.send(type(task.get_backend()), task_result=result)
    return result


def _report_end(event: Any) -> None:
    """Send Django's signal for a task that has finished."""
    if event.job not in {FUNCTIONS, COROUTINES}:
        return
    result = read_result(app.get_run(event.run_id).read())
    try:
        _raise_again(getattr(event, "exception", None))
    except BaseException:  # noqa: BLE001  # receivers may log the current exception
        task_finished.send(type(result.task.get_backend()), task_result=result)
    else:
        task_finished.send(type(result.task.get_backend()), task_result=result)


def _raise_again(exception: BaseException | None) -> None:
    if exception is not None:
        raise exception


for _kind in (RunSucceeded, RunFailed, RunCanceled, RunSkipped):
    app.on(_kind)(_report_end)


# ---------------------------------------------------------------- results


def read_result(run: Run, *, task: Any = None) -> Any:
    """The result of a task, from its run."""
    stored = decode(run.args)
    if task is None:
        task = import_string(stored["path"])
        task = task.using(
            priority=PRIORITY_MAX - run.priority,
            queue_name=run.queue,
            backend=stored["backend"],
            run_after=_local(run.due_at) if run.due_at > run.created_at else None,
        )
    attempts = app.runs.attempts_and_log(RunId(run.id))[0] if run.attempt else []
    result = _build_result(task, stored["backend"], args=stored["args"], kwargs=stored["kwargs"])
    workers = [str(each.worker) for each in attempts if each.worker]
    if run.worker is not None and len(workers) < run.attempt:
        workers.append(str(run.worker))  # of an attempt that runs, or has succeeded
    started = [each.started_at for each in attempts if each.started_at]
    first, last = (started[0], started[-1]) if started else (run.started_at, run.started_at)
    _set(
        result,
        id=run.id,
        status=_STATUSES[run.status],
        enqueued_at=_local(run.created_at),
        started_at=_local(first),
        last_attempted_at=_local(max(filter(None, (last, run.started_at)), default=None)),
        finished_at=_local(run.ended_at),
        errors=[_error_of(each) for each in attempts if each.error],
        worker_ids=workers,
    )
    if run.status is RunStatus.COMPLETED and run.result is not None:
        _set(result, _return_value=decode(run.result))
    return result


def _build_result(task: Any, alias: str, *, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return TaskResult(
        task=task,
        id="",
        status=TaskResultStatus.READY,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=list(args),
        kwargs=dict(kwargs),
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def _set(result: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)  # results are frozen; Django sets them so, too


def _error_of(attempt: Attempt) -> Any:
    return TaskError(
        exception_class_path=find_exception_path(attempt.traceback, attempt.error),
        traceback=attempt.traceback or attempt.error,
    )


def find_exception_path(traceback: str, error: str) -> str:
    r"""The import path of the exception at the end of a traceback.

    >>> find_exception_path("Traceback ...\n  File ...\nshop.errors.NoStock: none\nleft", "")
    'shop.errors.NoStock'
    >>> find_exception_path("", "ValueError: no")
    'builtins.ValueError'
    """
    lines = traceback.splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
    text = lines[frames[-1] + 1] if frames and frames[-1] + 1 < len(lines) else error
    found = _EXCEPTION_LINE.match(text)
    name = found[1] if found else "Exception"
    return name if "." in name else f"builtins.{name}"


def _as_json(value: Any) -> Any:
    """The value as JSON has it.

    Raises:
        TypeError: It cannot be JSON.
    """
    return json.loads(json.dumps(value))


def _local(moment: datetime | None) -> datetime | None:
    """A time as the project has it: with a zone, unless ``USE_TZ`` is off."""
    if moment is None or timezone.settings.USE_TZ:
        return moment
    return timezone.make_naive(moment)
