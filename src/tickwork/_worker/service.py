"""What a worker is made of: services, each with its own thread, its pace and its reason to end."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import ClassVar, Final, Protocol

from tickwork._kernel.clock import Clock, ObservedTime
from tickwork._kernel.durations import human_duration
from tickwork._worker.wakeup import Backoff
from tickwork.errors import StoreError

RETRY_FIRST: Final = 0.1
RETRY_LONGEST: Final = 5.0
"""Seconds until a step that failed is repeated. Shorter, and a fault fills the log and a core."""

UNAVAILABLE_FIRST: Final = 0.05
UNAVAILABLE_LONGEST: Final = 2.0
"""The same while the database does not answer: shorter, since it may answer at any moment."""

FAILING_SECONDS: Final = 10.0
FAILURES_MIN: Final = 4
"""A service whose steps all failed for so long, and so often, cannot do its work.

A shorter fault may pass, and between two failures the process may have been suspended.
"""

PATIENCE: Final = 180.0
"""A step that takes longer hangs, because each wait for the database ends sooner, with an error."""

JOIN_SECONDS: Final = 1.0
"""How long a stopped service may take to end, because its thread may wait for the database."""

_log: Final = logging.getLogger("tickwork.worker")


class Service(Protocol):
    """A part of a worker. Services start in the order of a list, and stop in reverse."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def start(self) -> None:
        """Start. When it raises, the services that have started are stopped."""
        ...

    def stop(self) -> None:
        """Stop, and return when it has stopped or took too long. It may not have started."""
        ...

    def find_problem(self) -> str:
        """Return why it cannot do its work; empty if it can."""
        ...


def find_problems(services: Iterable[Service]) -> list[str]:
    """Return why services cannot do their work."""
    return [problem for service in services if (problem := service.find_problem())]


class RepeatedService(ABC):
    """A service that repeats a step in a thread of its own.

    A step that fails is repeated after a back-off. While the database does not answer, that is no
    problem of the service: its step handles it, or the next one may succeed.
    """

    name: ClassVar[str]
    activity: ClassVar[str]
    """What it does, as the subject of a sentence in the log."""
    first_wait: ClassVar[float] = 0.0
    """Seconds before the first step."""
    patience: ClassVar[float] = PATIENCE
    is_essential: ClassVar[bool] = True
    """Whether a worker in which this always fails is replaced. A hanging thread always counts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._steps = 0  # that have ended or failed
        self._steps_seen = 0  # by the last look for problems
        self._without_progress = ObservedTime(clock.monotonic)
        self._failing_since: float | None = None
        self._failures = 0  # in a row
        self._error: BaseException | None = None  # of the last failure
        self._retry = Backoff(RETRY_FIRST, RETRY_LONGEST)
        self._retry_unavailable = Backoff(UNAVAILABLE_FIRST, UNAVAILABLE_LONGEST)
        self._is_unavailable = False

    @abstractmethod
    def step(self) -> float:
        """Do what is due; return the seconds until the next step."""

    @property
    def is_over(self) -> bool:
        """Whether there is no next step."""
        return self._is_stopped.is_set()

    def wait(self, seconds: float) -> None:
        """Wait for the next step."""
        self._is_stopped.wait(seconds)

    def start(self) -> None:
        """Start the thread, or another one in its place."""
        self._steps += 1
        before = self._thread
        self._thread = threading.Thread(target=self._run, name=f"tickwork-{self.name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = before
            raise

    def stop(self) -> None:
        """End after the current step."""
        self._is_stopped.set()
        self.join(JOIN_SECONDS)

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(max(seconds, 0))

    def find_problem(self) -> str:
        """Return why it cannot do its work; empty if it can, or is not expected to."""
        if self._thread is None or self.is_over:
            return ""
        now, since = self._clock.monotonic(), self._failing_since
        seen, self._steps_seen = self._steps_seen, self._steps
        hangs_for = self._without_progress.look(is_same=seen == self._steps_seen)
        if not self._thread.is_alive():
            return f"{self.activity} has ended: its thread is gone."
        is_failing = since is not None and now - since >= FAILING_SECONDS
        if self.is_essential and is_failing and self._failures >= FAILURES_MIN:
            kind = type(self._error).__name__
            return f"{self.activity} has failed {self._failures} times in a row: {kind}."
        if hangs_for >= self.patience:
            took = human_duration(timedelta(seconds=hangs_for))
            return f"{self.activity} has made no progress for {took}."
        return ""

    @property
    def is_replaced(self) -> bool:
        """Whether another thread has taken the place of the calling one."""
        return self._thread is not threading.current_thread()

    def on_available(self) -> None:  # noqa: B027  # most services need not react
        """Called when the database answers again."""

    def _run(self) -> None:
        seconds = self.first_wait
        # It ends when the service is stopped, or another thread has taken its place.
        while True:
            try:
                self.wait(seconds)
                if self.is_over:
                    return
                seconds = self.step()
                if self.is_replaced:
                    return
                self._on_success()
            except BaseException as error:  # noqa: BLE001  # without memory, even handling fails
                if self.is_replaced:
                    return
                seconds = 0.0
                if isinstance(error, StoreError):
                    seconds = self._on_unavailable(error)
                    continue
                with suppress(BaseException):
                    self._on_failure(error)
                with suppress(BaseException):
                    self._is_stopped.wait(self._retry.seconds())

    def _on_success(self) -> None:
        self._steps += 1
        if self._is_unavailable:
            self._is_unavailable = False
            self._retry_unavailable.reset()
            self.on_available()
        if self._failures:
            self._failures, self._failing_since, self._error = 0, None, None
            self._retry.reset()

    def _on_unavailable(self, error: StoreError) -> float:
        self._steps += 1
        if not self._is_unavailable:
            self._is_unavailable = True
            _log.warning("%s waits for the database: %s", self.activity, error.what)
        return self._retry_unavailable.seconds()

    def _on_failure(self, error: BaseException) -> None:
        self._steps += 1
        if self._failing_since is None:
            self._failing_since = self._clock.monotonic()
        self._error = error
        self._failures += 1
        # The first, second, fourth, eighth … failure: a fault that stays does not fill the log.
        if self._failures & (self._failures - 1) == 0:
            _log.error(
                "%s failed (%d in a row); retrying.",
                self.activity,
                self._failures,
                exc_info=error,
            )
