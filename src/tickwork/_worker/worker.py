"""The order of starting and stopping. Nothing else."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tickwork._domain.outcome import Interrupted
from tickwork._domain.run import Claim
from tickwork._kernel.clock import Clock
from tickwork._worker.heartbeat import Heartbeat
from tickwork._worker.held import HeldRuns
from tickwork._worker.options import WorkerOptions
from tickwork._worker.pump import Pump
from tickwork._worker.timer import Timer
from tickwork._worker.wake import Backoff, Wake
from tickwork._worker.writer import Writer
from tickwork.engines.contract import Engine
from tickwork.errors import StoreError
from tickwork.stores.contract import Listener

_log: Final = logging.getLogger("tickwork.worker")

UPKEEP_EVERY: Final = 1.0
TIMER_LONGEST: Final = 1.0
WATCH_EVERY: Final = 0.25
LISTEN_FOR: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a worker is made of."""

    clock: Clock
    options: WorkerOptions
    engines: Sequence[Engine]
    pumps: Sequence[Pump]
    writer: Writer
    held: HeldRuns
    heartbeat: Heartbeat
    timer: Timer
    upkeep: Callable[[], bool]
    register: Callable[[int], None]
    leave: Callable[[], None]
    give_back: Callable[[Claim, Interrupted], None]
    watch: Callable[[], bool]
    listener: Listener | None
    wake: Wake
    timer_wake: Wake


class Worker:
    """One process, a few plain threads."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._is_stopping = threading.Event()
        self._is_drained = threading.Event()
        self._threads: list[threading.Thread] = []
        self.started_at: datetime = parts.clock.now()

    @property
    def is_stopping(self) -> bool:
        """Whether it takes no new work."""
        return self._is_stopping.is_set()

    def start(self) -> None:
        """Start all threads."""
        parts = self._parts
        parts.register(0)
        for engine in parts.engines:
            engine.start()
        for pump in parts.pumps:
            self._spawn(lambda pump=pump: self._pumping(pump), "pump")  # type: ignore[misc]
        self._spawn(self._timing, "timer")
        self._spawn(self._beating, "heartbeat")
        self._spawn(self._keeping_up, "upkeep")
        self._spawn(self._watching, "watch")
        if parts.listener is not None:
            self._spawn(self._listening, "listener", is_daemon=True)

    def stop(self) -> None:
        """Take no new work; what runs may end. Returns at once."""
        self._is_stopping.set()
        self._parts.wake.call()
        self._parts.timer_wake.stop()

    def join(self) -> None:
        """Wait for :meth:`stop`, then for the drain; give back the rest, and leave."""
        self._is_stopping.wait()
        parts = self._parts
        for engine in parts.engines:
            for claim in engine.take_back():
                parts.give_back(claim, Interrupted("The worker was stopped before it began."))
        parts.wake.call()
        self._wait_for_engines(parts.options.drain.total_seconds())
        for engine in parts.engines:
            for claim in engine.interrupt():
                parts.give_back(claim, Interrupted("The worker was stopped while it ran."))
        self._is_drained.set()
        parts.wake.call()
        for thread in self._threads:
            thread.join(timeout=10)
        for engine in parts.engines:
            engine.stop()
        parts.leave()
        parts.wake.stop()
        if parts.listener is not None:
            parts.listener.close()

    # ------------------------------------------------------------ threads

    def _spawn(self, work: Callable[[], None], name: str, *, is_daemon: bool = True) -> None:
        thread = threading.Thread(target=work, name=f"tickwork-{name}", daemon=is_daemon)
        if name != "listener":
            self._threads.append(thread)
        thread.start()

    def _pumping(self, pump: Pump) -> None:
        parts, options = self._parts, self._parts.options
        idle = Backoff(options.poll.total_seconds(), options.poll_idle.total_seconds())
        # It ends when everything is drained and written.
        while True:
            since = parts.wake.seen()
            try:
                is_busy = pump.step(may_claim=not self.is_stopping)
            except Exception:  # noqa: BLE001  # whatever it is, leases must not wait for it
                _log.exception("A pump stumbled, and goes on.")
                is_busy = False
            if self._is_drained.is_set() and not len(parts.writer):
                return
            if is_busy or parts.wake.wait(since, idle.seconds()):
                idle.reset()

    def _timing(self) -> None:
        parts = self._parts
        backoff = Backoff(0.05, 5.0)
        # It ends when the worker is stopped.
        while not self.is_stopping:
            since = parts.timer_wake.seen()
            try:
                if parts.timer.step():
                    parts.wake.call()
                seconds = parts.timer.seconds_left(TIMER_LONGEST)
                backoff.reset()
            except StoreError as fault:
                _log.warning("Nothing was fired: %s", fault.what)
                seconds = backoff.seconds()
            parts.timer_wake.wait(since, seconds)

    def _beating(self) -> None:
        parts = self._parts
        # It ends when nothing is held any more.
        while not self._is_drained.wait(min(parts.heartbeat.pace(), 10.0)):
            self._carefully(parts.heartbeat.step)
            self._carefully(lambda: parts.register(len(parts.held)))

    def _keeping_up(self) -> None:
        parts = self._parts
        # It ends when the worker is stopped.
        while not self._is_stopping.wait(UPKEEP_EVERY):
            self._carefully(lambda: parts.wake.call() if parts.upkeep() else None)

    def _watching(self) -> None:
        # It ends when everything is drained.
        while not self._is_drained.wait(WATCH_EVERY):
            if self._parts.watch():
                self.stop()

    def _listening(self) -> None:
        parts = self._parts
        listener = parts.listener
        assert listener is not None, parts
        # It ends when the worker is stopped.
        while not self.is_stopping:
            if listener.wait(LISTEN_FOR):
                parts.wake.call()
                parts.timer_wake.call()

    def _carefully(self, act: Callable[[], object]) -> None:
        try:
            act()
        except StoreError as fault:
            _log.warning("%s", fault.what)
        except Exception:  # noqa: BLE001  # as above
            _log.exception("A part of the worker stumbled, and goes on.")

    def _wait_for_engines(self, seconds: float) -> None:
        deadline = self._parts.clock.monotonic() + seconds
        # It ends at the deadline.
        while any(engine.running for engine in self._parts.engines):
            if self._parts.clock.monotonic() >= deadline:
                return
            self._is_drained.wait(0.02)
