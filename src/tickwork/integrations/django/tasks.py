"""A backend for Django's tasks: ``django.tasks``, or the package django-tasks before Django 6.

In the settings::

    TASKS = {"default": {"BACKEND": "tickwork.integrations.django.tasks.TickworkBackend"}}

A task that is enqueued in ``atomic()`` exists when the transaction is committed. Each task is a job
whose name is the import path of the task. ``OPTIONS`` of the backend are options of all its jobs,
and :func:`job_options` sets those of one.
"""

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from inspect import iscoroutinefunction
from typing import Any, Final, TypeVar

from asgiref.sync import sync_to_async
from django.utils import timezone
from django.utils.module_loading import import_string

from tickwork._dispatch.jobs import Job
from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import RunStatus
from tickwork._handlers.context import RunContext
from tickwork._payload.codec import decode
from tickwork._stores.contract import Attempt
from tickwork.errors import InvalidOption, RunNotFound
from tickwork.events import RunCanceled, RunFailed, RunSkipped, RunSucceeded
from tickwork.integrations.django.application import app
from tickwork.integrations.django.fields import TickworkIdField

try:
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
except ImportError:  # before Django 6
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

__all__ = ["TickworkBackend", "job_options"]

F = TypeVar("F", bound=Callable[..., Any])

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
_OF_TASKS: Final = ("name", "queue", "priority")
"""The options of jobs that a task has itself."""
_EXCEPTION_LINE: Final = re.compile(r"([A-Za-z_][\w.]*)(?::|$)")


class TickworkBackend(BaseTaskBackend):
    """Enqueues tasks as runs of tickwork."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: Any) -> None:
        """Check a task, and define its job. Django calls it for each task that is made.

        Raises:
            InvalidTask: The backend cannot execute it, for example in such a queue.
        """
        super().validate_task(task)
        _jobs.define(task, self.options)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Add a run for a task.

        Raises:
            InvalidTask: The backend cannot execute it, for example in such a queue.
            TypeError: Its arguments cannot be JSON.
        """
        self.validate_task(task)
        call = _build_result(task, self.alias, args=args, kwargs=kwargs)  # it normalizes them
        run = self._draft(task).dispatch(backend=self.alias, args=call.args, kwargs=call.kwargs)
        result = read_result(run.read(), task=task)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The result of a task, also in the transaction that enqueues it.

        Raises:
            TaskResultDoesNotExist: No task has that id.
        """
        if not TickworkIdField.is_valid(result_id):
            raise TaskResultDoesNotExist(result_id)
        try:
            run = app.get_run(result_id).read()
        except RunNotFound:
            raise TaskResultDoesNotExist(result_id) from None
        if not _jobs.has(run.job):
            raise TaskResultDoesNotExist(result_id)
        return read_result(run)

    def _draft(self, task: Any) -> Any:
        job = _jobs.get(task.module_path)
        draft = job.queue(task.queue_name).priority(PRIORITY_MAX - task.priority)
        if task.run_after is None:
            return draft
        run_after = task.run_after
        return draft.at(
            run_after if timezone.is_aware(run_after) else timezone.make_aware(run_after)
        )


def job_options(**options: Any) -> Callable[[F], F]:
    """Set options of the job of a task. It takes those of ``app.job``, and stands below ``@task``.

    ::

        @task
        @job_options(attempts=3, timeout="30s")
        def add(one, other): ...

    Raises:
        InvalidOption: The task has this option itself.
    """
    for name in _OF_TASKS:
        if name in options:
            raise InvalidOption(
                name, options[name], "belongs to the task", fix="Pass it to @task(...)."
            )

    def set_options(function: F) -> F:
        vars(function)["tickwork_options"] = options
        return function

    return set_options


class _TaskJobs:
    """The jobs of tasks, by name. As a handler of the application it finds more of them."""

    def __init__(self) -> None:
        self._defining = threading.Lock()
        self._job_by_name: dict[str, Job[..., Any]] = {}

    def define(self, task: Any, options: dict[str, Any]) -> None:
        """Define the job of a task, once."""
        name, function = task.module_path, task.func
        with self._defining:
            if name not in self._job_by_name:
                chosen = {**options, **vars(function).get("tickwork_options", {})}
                handler = _build_handler(name, is_async=iscoroutinefunction(function))
                handler.__module__, handler.__qualname__ = function.__module__, name
                self._job_by_name[name] = app.job(name=name, **chosen)(handler)

    def get(self, name: str) -> Job[..., Any]:
        return self._job_by_name[name]

    def has(self, name: str) -> bool:
        """Whether a job is that of a task, which may be in a module that is not imported yet."""
        self.supports(name)
        return name in self._job_by_name

    def supports(self, job_type: str) -> bool:
        """Import the module of a task, which defines its job. It is False: no job is without."""
        if job_type not in self._job_by_name and self._is_allowed(job_type):
            with suppress(ImportError):
                import_string(job_type)
        return False

    def handle(self, ctx: RunContext) -> None:
        """Nothing: each job has a handler of its own."""

    def _is_allowed(self, name: str) -> bool:
        # A row may name any module. Only those of the project are imported.
        module, dot, _ = name.rpartition(".")
        paths = app.settings.handler_paths
        return bool(dot) and any(f"{module}.".startswith(f"{path}.") for path in paths)


_jobs: Final = _TaskJobs()
app.handler(_jobs)


def _build_handler(path: str, *, is_async: bool) -> Callable[..., Any]:
    """The handler of the job of one task."""

    def execute(backend: str, args: list[Any], kwargs: dict[str, Any], ctx: RunContext) -> Any:
        result = _start(path, backend, ctx)
        context = [TaskContext(task_result=result)] if result.task.takes_context else []
        return normalize_json(result.task.func(*context, *args, **kwargs))

    async def execute_async(
        backend: str, args: list[Any], kwargs: dict[str, Any], ctx: RunContext
    ) -> Any:
        result = await sync_to_async(_start)(path, backend, ctx)
        context = [TaskContext(task_result=result)] if result.task.takes_context else []
        return normalize_json(await result.task.func(*context, *args, **kwargs))

    return execute_async if is_async else execute


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
    if not _jobs.has(event.job):
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
        task = import_string(run.job)
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
    match = _EXCEPTION_LINE.match(text)
    name = match[1] if match else "Exception"
    return name if "." in name else f"builtins.{name}"


def _local(moment: datetime | None) -> datetime | None:
    """A time as the project has it: with a zone, unless ``USE_TZ`` is off."""
    if moment is None or timezone.settings.USE_TZ:
        return moment
    return timezone.make_naive(moment)
