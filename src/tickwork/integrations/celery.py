"""For programs that have Celery: a job that sends one of its tasks.

The engine with which Celery workers execute jobs needs no import: ``app.use_celery(celery)``.
"""

import threading
from collections.abc import Sequence
from typing import Any

from tickwork._engines.remote.celery import TASK_OPTIONS, Publisher, TaskMessage, load_module
from tickwork._handlers.context import RunContext
from tickwork.errors import InvalidOption, UnknownOption

__all__ = ["CeleryTask", "celery_task"]


class CeleryTask:
    """A handler that sends a Celery task by name, as celery beat does."""

    def __init__(
        self, name: str, *, celery: Any = None, args: Sequence[Any] = (), **options: Any
    ) -> None:
        self.name = name
        self.__name__ = name
        self._celery = celery
        self._args = tuple(args)
        self._options = options
        self._local = threading.local()

    def __repr__(self) -> str:
        return f"<CeleryTask {self.name}>"

    def __call__(self, ctx: RunContext, **kwargs: Any) -> str:
        """Send the task; return its id, which is the id of the run.

        Raises:
            EngineUnavailable: The broker does not answer. The job may be retried.
        """
        message = TaskMessage(self.name, ctx.run_id, self._args, kwargs, self._options)
        self._publisher().publish([message])
        return ctx.run_id

    def _publisher(self) -> Publisher:
        publisher: Publisher | None = getattr(self._local, "publisher", None)
        if publisher is None:
            celery = self._celery or load_module("celery").current_app
            publisher = self._local.publisher = Publisher(celery)
        return publisher


def celery_task(
    name: str, *, celery: Any = None, args: Sequence[Any] = (), **options: Any
) -> CeleryTask:
    """Schedule or dispatch an existing Celery task by name, without a change of the task.

    The run has succeeded when the broker has stored the message; tickwork does not follow the
    task. The arguments of the run are the keyword arguments of the task. Without ``celery``, the
    current Celery application is used. The options are those of ``apply_async``: ``queue``,
    ``exchange``, ``routing_key``, ``priority``, ``expires``, ``countdown``, ``time_limit``,
    ``soft_time_limit`` and ``ignore_result``.

    >>> celery_task("shop.tasks.send", queue="mail")
    <CeleryTask shop.tasks.send>

    Raises:
        InvalidOption: The name is empty.
        UnknownOption: There is no such option.
        EngineMissing: Celery is not installed.
    """
    if not name.strip():
        raise InvalidOption("name", name, "must be the name of a Celery task")
    for unknown in options.keys() - TASK_OPTIONS:
        raise UnknownOption("celery_task()", unknown, known=TASK_OPTIONS)
    load_module("celery")
    return CeleryTask(name, celery=celery, args=args, **options)
