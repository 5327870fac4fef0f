"""Hands runs over to a Dask cluster, whose workers make the attempts.

A task of the cluster is a message about runs. Its key begins with the external id of the first
run. What Dask forgets or executes twice does no harm: the database decides which process has a run.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import count
from typing import Any, Final

from tickwork._domain.runs.handover import Handover, encode_message
from tickwork._engines.contract import EngineSetup
from tickwork._engines.remote.dask_cluster import (
    DaskConnection,
    check_location,
    check_options,
    load_app,
)
from tickwork._engines.remote.remote_engine import RemoteEngine
from tickwork._kernel.plain_text import count_of

ENGINE: Final = "dask"
RUNS_MAX: Final = 20
"""The most runs of one message, which Dask executes as one task: it cannot steal half a task."""

CONFIRM_SECONDS: Final = 5.0
CONFIRM_EVERY: Final = 0.01
"""Seconds for the confirmation of tasks by the scheduler, and between queries for it.

Dask sends tasks without an answer: a submission that is not confirmed may be lost.
"""

_log: Final = logging.getLogger("tickwork.worker")


def build_engine(setup: EngineSetup) -> RemoteEngine:
    """Build the engine. The option is the address of the scheduler, or arguments of a client.

    Raises:
        EngineMissing: The package ``distributed`` is not installed.
        InvalidOption: There is no address, or no module holds the application.
    """
    options = check_options(setup.options, ENGINE)
    location = check_location(setup.app_location(), ENGINE)
    return RemoteEngine(setup, DaskTransport(options, location.module, location.attribute))


def check_scheduler(options: object) -> str:
    """Connect to the scheduler; return a description of it.

    Raises:
        EngineUnavailable: It does not answer.
        InvalidOption: There is no address.
        EngineMissing: The package ``distributed`` is not installed.
    """
    transport = DaskTransport(check_options(options, ENGINE), "", "")
    try:
        return transport.check()
    finally:
        transport.close()


class DaskTransport:
    """Submits messages as tasks."""

    name = ENGINE
    runs_max = RUNS_MAX

    def __init__(self, options: Mapping[str, Any], module: str, attribute: str) -> None:
        self._address = options["address"]
        self._module = module
        self._attribute = attribute
        self._connection = DaskConnection(options, ENGINE)
        self._futures: dict[str, Any] = {}
        self._numbers = count(1)

    def submit(self, messages: Sequence[Sequence[Handover]]) -> None:
        distributed: Any = import_module("distributed")

        client = self._connection.connect()
        futures = [
            client.submit(
                execute_message,
                self._module,
                self._attribute,
                encode_message(message),
                key=self._make_key(message),
                pure=False,
                retries=0,
            )
            for message in messages
        ]
        distributed.fire_and_forget(futures)  # the cluster keeps them if this process dies
        # As long as this process has a future, the scheduler does not forget its task.
        self._confirm(client, [future.key for future in futures])
        for future in futures:
            self._futures[future.key] = future
            future.add_done_callback(self._on_done)

    def check(self) -> str:
        """Describe the cluster."""
        client = self._connection.connect()
        workers = len(client.scheduler_info().get("workers", {}))
        return f"Dask at {self._address}: {count_of(workers, 'worker')}"

    def cancel(self, handover: Handover) -> None:
        future = self._find(handover)
        if future is not None:
            future.cancel()

    def _make_key(self, message: Sequence[Handover]) -> str:
        """Make a new key. Dask does not execute a task again that it knows by its key."""
        more = f"+{len(message) - 1}" if len(message) > 1 else ""
        return f"{message[0].external_id}{more}#{next(self._numbers)}"

    def _find(self, handover: Handover) -> Any:
        """The task of a run that has a message of its own."""
        start = f"{handover.external_id}#"
        return next(
            (each for key, each in list(self._futures.items()) if key.startswith(start)), None
        )

    def close(self) -> None:
        self._futures.clear()
        self._connection.close()

    def _confirm(self, client: Any, keys: list[str]) -> None:
        """Wait until the scheduler knows these tasks.

        It may take its time, as long as it goes on: submitting them again would only delay it.
        """
        deadline = time.monotonic() + CONFIRM_SECONDS
        # It ends with the last confirmation, or some time after one that no other has followed.
        while missing := [key for key, state in self._states(client, keys).items() if not state]:
            if len(missing) < len(keys):
                deadline = time.monotonic() + CONFIRM_SECONDS
            elif time.monotonic() >= deadline:
                reason = f"It did not accept {len(missing)} of {len(keys)} tasks in time."
                raise self._connection.unavailable_error(TimeoutError(reason))
            time.sleep(CONFIRM_EVERY)
            keys = missing

    def _states(self, client: Any, keys: list[str]) -> dict[str, str | None]:
        try:
            states: dict[str, str | None] = client.sync(
                client.scheduler.get_task_status, keys=keys, callback_timeout=CONFIRM_SECONDS
            )
        except Exception as error:  # noqa: BLE001  # errors of its connections have many types
            self.close()
            raise self._connection.unavailable_error(error) from None
        return states

    def _on_done(self, future: Any) -> None:
        """Log why a message could not be executed. Outcomes of runs are not among the reasons."""
        self._futures.pop(future.key, None)
        if future.status == "error":
            _log.warning("Dask could not execute %s: %r", future.key, future.exception())


def execute_message(module: str, attribute: str, message: dict[str, Any]) -> int:
    """Make attempts at the runs of a message. A Dask worker calls this.

    When a worker dies, Dask calls it again in another one. The runs that the dead worker had
    accepted then become due at once, if it was on the same machine.
    """
    executed: int = load_app(module, attribute).execute_handovers(message, is_redelivered=True)
    return executed
