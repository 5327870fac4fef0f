"""How an application works off what is due: in passes, or with a worker in the background."""

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

from tickwork._client.runs import RunHandle
from tickwork._define.options import Length
from tickwork._domain.identity import RunId
from tickwork._domain.run import Run
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import as_duration
from tickwork._kernel.origins import place_of
from tickwork._kernel.signals import stopping_on_signals
from tickwork._wiring.services import Services
from tickwork._worker.desk import StoreDesk
from tickwork._worker.once import attempts_in
from tickwork._worker.options import WorkerOptions, worker_options
from tickwork._worker.stats import Stats
from tickwork._worker.worker import Worker
from tickwork.engines.wire import Here, Origin
from tickwork.errors import AlreadyStarted, InvalidOption, TickworkError

BATCH_MAX: Final = 500
DUE_MAX: Final = 10_000


class Working(ABC):
    """The verbs with which an application does what is due."""

    def __init__(self) -> None:
        self._forget_worker()
        self.path = ""  # module:attribute, where somebody loaded it by that

    def _forget_worker(self) -> None:
        self._starting = threading.Lock()
        self._worker: Worker | None = None

    @property
    @abstractmethod
    def clock(self) -> Clock:
        """What time it is for the application."""

    @abstractmethod
    def _served(self) -> Services:
        """Everything behind the face."""

    def run(self, batch: int = 32) -> int:
        """One tick and one claim of at most ``batch``, executed here; return the attempts made.

        Failed ones are included. What it takes to be due again is the next call's.
        """
        return self._run_until(threading.Event(), batch)

    def due(self, limit: int = 100) -> list[Run]:
        """The runs that this process could start now, in the order in which it would.

        Schedules that fell due are fired first, as :meth:`run` does, so that this is a whole
        scheduler: ``for run in app.due(): app.execute(run.id)``.
        """
        if not 1 <= limit <= DUE_MAX:
            raise InvalidOption("limit", limit, f"it lies between 1 and {DUE_MAX}.")
        return self._served().due(limit)

    def execute(self, run_id: str) -> RunHandle:
        """Claim exactly this run, due or not, and make an attempt at it here and now.

        What comes of the attempt is recorded as any other's: ``app.execute(id).status``.

        Raises:
            RunNotFound: There is no such run.
            InvalidTransition: It is claimed, or has finished.
            RunError: Its queue or job is paused, or a limit that it needs is full.
            JobNotFound: This process does not know its job.
        """
        self._served().execute(RunId(run_id))
        return self._served().runs.handle(RunId(run_id))

    def start(self, options: WorkerOptions | None = None) -> None:
        """Start a worker in the background of this process.

        Raises:
            AlreadyStarted: There is one.
        """
        with self._starting:
            if self._worker is not None:
                raise AlreadyStarted
            if Here.is_child:
                raise TickworkError(
                    "This is a child process of a worker: it starts none itself.",
                    why="The module of the application starts a worker when it is imported.",
                    fix='Put the start below `if __name__ == "__main__":`.',
                )
            services = self._served()
            services.catalog.refresh()
            services.known.look()
            worker = services.worker(options or WorkerOptions())
            self._worker = worker  # before it starts: somebody may stop it meanwhile
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
                self._served().keeper.listen(is_on=False)
        return worker.left_behind

    def forever(self, poll: Length = 0.2, **options: Any) -> None:
        """Work until :meth:`stop` is called, from a handler, a signal or another thread.

        In the main thread SIGTERM and SIGINT stop it; the second one ends the process.
        """
        with stopping_on_signals(self.stop):
            self.start(worker_options(poll=poll, **options))
            self.join()

    @contextmanager
    def running(self, options: WorkerOptions | None = None) -> Iterator[Self]:
        """A worker in the background for as long as the block runs."""
        self.start(options)
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
        stop = stop or threading.Event()
        services = self._served()
        until = self.clock.monotonic() + as_duration(length).total_seconds()
        before = services.stats.failures
        # It ends at the given moment, once nothing is due.
        while True:
            if self._run_until(stop, batch) and not stop.is_set():
                continue
            left = until - self.clock.monotonic()
            if left <= 0 or stop.is_set():
                return services.stats.failures - before
            stop.wait(min(left, services.seconds_to_next(0.2)))

    @property
    def desk(self) -> StoreDesk:
        """Where handlers that run in a process of their own leave their words."""
        services = self._served()
        return StoreDesk(store=services.store, clock=services.clock)

    @property
    def origin(self) -> Origin:
        """Where other processes find this application.

        Raises:
            InvalidOption: No module has it under a name.
        """
        if self.path:
            module, _, attribute = self.path.partition(":")
            return Origin(module, attribute or "app", "", tuple(sys.path))
        place = place_of(self)
        if place is None:
            raise InvalidOption(
                "engine",
                "process",
                "no other process could find this application: no module has it under a name.",
                fix="Keep it in a module: app = Tickwork(...) at its top.",
            )
        return Origin(place.module, place.attribute, place.file, tuple(sys.path))

    @property
    def stats(self) -> Stats:
        """How this process has done so far."""
        return self._served().stats

    def release_dead(self, pid: int) -> int:
        """End the leases of a worker process of this machine that is known to be dead."""
        return self._served().reaper.release_process(pid)

    def _run_until(self, stop: threading.Event, batch: int) -> int:
        if not 1 <= batch <= BATCH_MAX:
            raise InvalidOption("batch", batch, f"it lies between 1 and {BATCH_MAX}.")
        services = self._served()
        with services.keeper.listening():
            return attempts_in(services.passes(batch, stop=stop).steps)
