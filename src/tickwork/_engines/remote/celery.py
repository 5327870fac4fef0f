"""The Celery engine: attempts in the processes of Celery workers, over RabbitMQ or Redis.

``app.use_celery(celery)`` connects both sides: it registers the task ``tickwork.execute``, which
Celery workers execute, and jobs with ``engine="celery"`` are handed over to it.
"""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol

from tickwork._domain.runs.handover import RUNS_MAX, Handover, encode_message
from tickwork._engines.contract import EngineSetup
from tickwork._engines.remote.remote_engine import RemoteEngine
from tickwork._masks.url import mask_url
from tickwork.errors import (
    DefinitionError,
    EngineMissing,
    EngineUnavailable,
    HandoverRejected,
    InvalidOption,
    StoreError,
)

ENGINE: Final = "celery"
TASK: Final = "tickwork.execute"
SECONDS_MAX: Final = 2.0
"""How long a broker may take to answer, because a person waits for ``tickwork doctor``."""

HEADER_OPTIONS: Final = ("countdown", "expires", "ignore_result", "soft_time_limit", "time_limit")
TASK_OPTIONS: Final = frozenset({*HEADER_OPTIONS, "exchange", "priority", "queue", "routing_key"})
"""The options of ``apply_async`` that a message can have."""

_log: Final = logging.getLogger("tickwork.worker")


class ExecuteMessage(Protocol):
    def __call__(self, message: object, *, is_redelivered: bool = False) -> int:
        """Execute a message: ``app.execute_handovers``."""
        ...


class CeleryOptions(NamedTuple):
    """How an application uses Celery."""

    celery: Any  # the Celery application
    queue: str
    runs_max: int


def connect(
    celery: Any,
    execute: ExecuteMessage,
    *,
    queue: str | None,
    runs_max: int,
    close: Callable[[], None] = lambda: None,
) -> CeleryOptions:
    """Register the task that Celery workers execute; return the options of the engine.

    Raises:
        InvalidOption: It is not a Celery application, or an option is invalid.
        EngineMissing: Celery is not installed.
    """
    if not isinstance(celery, load_module("celery").Celery):
        raise InvalidOption("celery", celery, "must be a Celery application")
    if not 1 <= runs_max <= RUNS_MAX:
        raise InvalidOption("runs_max", runs_max, f"must be between 1 and {RUNS_MAX}")
    # A broker that delivers a message again as soon as its worker is gone saves waiting for the
    # lease. Redis does so after an hour, also for a task that is still running.
    is_acked_late = not _address(celery).startswith(("redis", "sentinel"))
    reject = import_module("celery.exceptions").Reject

    def run(task: Any, message: object) -> int:
        is_redelivered = bool((task.request.delivery_info or {}).get("redelivered"))
        try:
            return execute(message, is_redelivered=is_redelivered)
        except HandoverRejected as error:
            _log.error("%s", error)
            return 0
        except StoreError as error:
            _log.error("A message waits for the database: %s", error)
            raise reject(str(error), requeue=is_acked_late) from error

    celery.task(
        run,
        name=TASK,
        bind=True,
        shared=False,  # with other Celery applications of the process
        acks_late=is_acked_late,
        reject_on_worker_lost=is_acked_late,
        ignore_result=True,
    )
    # This removes a Celery process that ends from the list of workers.
    import_module("celery.signals").worker_process_shutdown.connect(lambda **_: close(), weak=False)
    return CeleryOptions(celery, queue or celery.conf.task_default_queue, runs_max)


def build_engine(setup: EngineSetup) -> RemoteEngine:
    """Build the engine of a worker.

    Raises:
        DefinitionError: The application has no Celery application.
        EngineMissing: Celery is not installed.
    """
    return RemoteEngine(setup, CeleryTransport(_check_options(setup.options)))


def check_broker(options: object) -> str:
    """Connect to the broker; return a description of it.

    Raises:
        EngineUnavailable: It does not answer.
        DefinitionError: The application has no Celery application.
        EngineMissing: Celery is not installed.
    """
    transport = CeleryTransport(_check_options(options))
    try:
        return transport.check()
    finally:
        transport.close()


def _check_options(options: object) -> CeleryOptions:
    load_module("celery")
    if not isinstance(options, CeleryOptions):
        raise DefinitionError(
            "A job has engine='celery', and the application has no Celery application.",
            why="The engine needs to know the broker.",
            fix="Call app.use_celery(celery), where celery is a celery.Celery.",
        )
    return options


class CeleryTransport:
    """Publishes messages, with one confirmation for many, on a connection of its own."""

    name: str = ENGINE

    def __init__(self, options: CeleryOptions) -> None:
        self.runs_max = options.runs_max
        self._celery = options.celery
        self._queue = options.queue
        self._options = {"queue": options.queue, "ignore_result": True}
        self._publisher = Publisher(options.celery)

    def submit(self, messages: Sequence[Sequence[Handover]]) -> None:
        self._publisher.publish(map(self._task_message, messages))

    def cancel(self, handover: Handover) -> None:
        self._celery.control.revoke(handover.external_id)

    def check(self) -> str:
        """Connect to the broker, as :func:`check_broker` does."""
        self._publisher.publish(())
        return f"{_masked_address(self._celery)}, queue {self._queue}"

    def close(self) -> None:
        self._publisher.close()

    def _task_message(self, handovers: Sequence[Handover]) -> "TaskMessage":
        more = len(handovers) - 1
        task_id = handovers[0].external_id + (f"+{more}" if more else "")
        args = (encode_message(handovers),)
        return TaskMessage(TASK, task_id, args, {}, self._options, shown=task_id)


class TaskMessage(NamedTuple):
    """A call of a Celery task."""

    task: str
    task_id: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any]  # without a queue: where Celery routes the task
    shown: str | None = None  # the arguments, for people; None: Celery makes a text of them


class Publisher:
    """Publishes calls of tasks on one connection. Only one thread at a time may use it."""

    def __init__(self, celery: Any) -> None:
        self._celery = celery
        self._pid = 0
        self._connection: Any = None
        self._channel: Any = None
        self._producer: Any = None
        self._confirms: Confirms | None = None
        self._declared: set[str] = set()

    def publish(self, messages: Iterable[TaskMessage]) -> None:
        """Publish messages; return when the broker has stored them.

        Raises:
            EngineUnavailable: The broker does not answer. Some may have been published.
        """
        try:
            if self._connection is None or self._pid != os.getpid():
                self._connect()
            for message in messages:
                self._publish_one(message)
            if self._confirms is not None:
                self._confirms.wait()
        except Exception as error:
            address = _masked_address(self._celery)
            self.close()
            raise EngineUnavailable(ENGINE, address, reason=str(error)) from error

    def close(self) -> None:
        """Close the connection. The next message opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            try:
                connection.release()
            except Exception as error:  # noqa: BLE001  # it may be broken
                _log.debug("Closing the connection to the broker failed: %s", error)

    def _connect(self) -> None:
        self._pid = os.getpid()
        options = {"socket_timeout": SECONDS_MAX, "socket_connect_timeout": SECONDS_MAX}
        is_amqp = _address(self._celery).startswith(("amqp", "pyamqp", "librabbitmq"))
        self._connection = self._celery.connection_for_write(
            connect_timeout=SECONDS_MAX,
            # Each message is not confirmed alone, whatever the program of the user configures:
            # one wait for all of them takes less.
            transport_options={"confirm_publish": False} if is_amqp else options,
        )
        self._connection.connect()
        self._channel = self._connection.default_channel
        self._producer = load_module("kombu").Producer(
            self._channel, auto_declare=False, serializer="json"
        )
        self._confirms = Confirms(self._connection, self._channel) if is_amqp else None
        self._declared.clear()

    def _publish_one(self, message: TaskMessage) -> None:
        amqp = self._celery.amqp
        route = amqp.router.route(dict(message.options), message.task, message.args, message.kwargs)
        queue = route["queue"]
        if queue.name not in self._declared:
            queue.bind(self._channel).declare()
            self._declared.add(queue.name)
        headers, properties, body, _ = amqp.as_task_v2(
            message.task_id,
            message.task,
            message.args,
            dict(message.kwargs),
            argsrepr=message.shown,
            **{name: route[name] for name in HEADER_OPTIONS if name in route},
        )
        exchange, routing_key = "", queue.name  # to the queue itself
        if queue.exchange.type != "direct" or (route.get("exchange") and route.get("routing_key")):
            exchange = route.get("exchange") or queue.exchange
            routing_key = route.get("routing_key") or queue.routing_key
        if self._confirms is not None:
            self._confirms.expect()
        self._producer.publish(
            body,
            exchange=exchange,
            routing_key=routing_key,
            headers=headers,
            delivery_mode=2,
            mandatory=self._confirms is not None,
            **properties,
            **({"priority": route["priority"]} if "priority" in route else {}),
        )


class Confirms:
    """Waits until RabbitMQ has confirmed all messages of a channel."""

    def __init__(self, connection: Any, channel: Any) -> None:
        self._connection = connection
        self._published = 0
        self._unconfirmed: set[int] = set()
        self._errors: list[str] = []
        channel.confirm_select()
        channel.events["basic_ack"].add(self._on_ack)
        channel.events["basic_nack"].add(self._on_nack)
        channel.events["basic_return"].add(self._on_return)

    def expect(self) -> None:
        """Expect a confirmation of the next message."""
        self._published += 1
        self._unconfirmed.add(self._published)

    def wait(self) -> None:
        """Wait for all confirmations. The connection is broken if one does not come in time."""
        while self._unconfirmed:  # ends: each round gets a frame, or raises
            self._connection.drain_events(timeout=SECONDS_MAX)
        if self._errors:
            errors, self._errors = self._errors, []
            raise ConnectionError(errors[0])

    def _on_ack(self, tag: int, multiple: bool) -> None:  # noqa: FBT001  # of the driver
        if multiple:
            self._unconfirmed = {each for each in self._unconfirmed if each > tag}
        else:
            self._unconfirmed.discard(tag)

    def _on_nack(self, tag: int, multiple: bool) -> None:  # noqa: FBT001  # of the driver
        self._on_ack(tag, multiple)
        self._errors.append("The broker did not accept a message.")

    def _on_return(self, *details: object) -> None:
        self._errors.append(f"The broker has no queue for a message: {details[1:2]}.")


def _address(celery: Any) -> str:
    return str(celery.conf.broker_write_url or celery.conf.broker_url or "amqp://")


def _masked_address(celery: Any) -> str:
    return mask_url(_address(celery))


def load_module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise EngineMissing(name, extra=ENGINE) from error
