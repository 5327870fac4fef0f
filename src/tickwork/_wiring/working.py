"""The verbs with which an application executes what is due."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from tickwork._client.runs import RunHandle
from tickwork._define.options import Length
from tickwork._domain.identity import RunId
from tickwork._domain.run import Run
from tickwork._kernel.signals import stop_on_signals
from tickwork._wiring.services import Services
from tickwork.errors import AlreadyStarted

if TYPE_CHECKING:
    from tickwork._worker.desk import StoreDesk
    from tickwork._worker.options import WorkerOptions
    from tickwork._worker.stats import Stats
    from tickwork._worker.worker import Worker
    from tickwork.engines.wire import Origin


class Working(ABC):
    """The verbs with which an application does what is due."""

    def __init__(self) -> None:
        self._forget_worker()
        self.path = ""  # module:attribute, where somebody loaded it by that

    def _forget_worker(self) -> None:
        self._starting = threading.Lock()
        self._worker: Worker | None = None

    @abstractmethod
    def _served(self) -> Services:
        """Everything behind the face."""

    def run(self, batch: int = 32) -> int:
        """One tick and one claim of at most ``batch``, executed here; return the attempts made.

        Failed ones are included. What it takes to be due again is the next call's.
        """
        return self._served().worker.run(batch, threading.Event())

    def due(self, limit: int = 100) -> list[Run]:
        """The runs that this process could start now, in the order in which it would.

        Schedules that fell due are fired first, as :meth:`run` does, so that this is a whole
        scheduler: ``for run in app.due(): app.execute(run.id)``.
        """
        return self._served().worker.due(limit)

    def execute(self, run_id: str) -> RunHandle:
        """Claim exactly this run, due or not, and make an attempt at it here and now.

        What comes of the attempt is recorded as any other's: ``app.execute(id).status``.

        Raises:
            RunNotFound: There is no such run.
            InvalidTransition: It is claimed, or has finished.
            RunError: Its queue or job is paused, or a limit that it needs is full.
            JobNotFound: This process does not know its job.
        """
        self._served().worker.execute(RunId(run_id))
        return self._served().runs.handle(RunId(run_id))

    def start(self, options: "WorkerOptions | None" = None, **said: Any) -> None:
        """Start a worker in the background of this process.

        What a worker can be told is said by name: ``app.start(threads=4, drain="5s")``.

        Raises:
            AlreadyStarted: There is one.
        """
        with self._starting:
            if self._worker is not None:
                raise AlreadyStarted
            services = self._served().worker
            worker = services.worker(options, said)
            self._worker = worker  # before it starts: another thread may stop it meanwhile
            services.keeper.listen()
            try:
                worker.start()
            except BaseException:
                self._worker = None
                services.keeper.listen(is_on=False)
                raise

    def stop(self) -> None:
        """Let the worker take no new work. Returns at once; what runs may end."""
        worker = self._worker
        if worker is not None:
            worker.stop()

    def join(self) -> int:
        """Wait until the worker was stopped and has ended.

        Returns how many attempts go on all the same: threads that nothing can end. Their
        runs were given back.
        """
        with self._starting:
            worker = self._worker
        if worker is None:
            return 0
        worker.join()
        with self._starting:
            if self._worker is worker:
                self._worker = None
                self._served().worker.keeper.listen(is_on=False)
        return worker.left_behind

    def forever(self, poll: Length = 0.2, **options: Any) -> None:
        """Work until :meth:`stop` is called, from a handler, a signal or another thread.

        In the main thread SIGTERM and SIGINT stop it; the second one ends the process.
        """
        with stop_on_signals(self.stop):
            self.start(poll=poll, **options)
            self.join()

    @contextmanager
    def running(self, options: "WorkerOptions | None" = None, **said: Any) -> Iterator[Self]:
        """A worker in the background for as long as the block runs."""
        self.start(options, **said)
        try:
            yield self
        finally:
            self.stop()
            self.join()

    def collect(
        self, length: Length = 0, *, batch: int = 32, stop: threading.Event | None = None
    ) -> int:
        """Run what is due until nothing is, for at least this long; return how many failed.

        With a length, what falls due meanwhile runs on time. Once ``stop`` is set it ends with
        the attempt that is being made, and gives back what it had claimed.
        """
        return self._served().worker.collect(length, batch, stop or threading.Event())

    @property
    def desk(self) -> "StoreDesk":
        """Where handlers that run in a process of their own save their progress."""
        return self._served().worker.desk

    @property
    def origin(self) -> "Origin":
        """Where other processes find this application.

        Raises:
            InvalidOption: No module has it under a name.
        """
        from tickwork._wiring.worker_services import find_origin  # noqa: PLC0415

        return find_origin(self)  # type: ignore[arg-type]  # an application

    @property
    def stats(self) -> "Stats":
        """How this process has done so far."""
        return self._served().worker.stats

    def release_dead(self, pid: int) -> int:
        """End the leases of a worker process of this machine that is known to be dead."""
        return self._served().worker.reaper.release_process(pid)
