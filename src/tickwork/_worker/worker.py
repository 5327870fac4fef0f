"""The order of starting and stopping. Nothing else."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tickwork._domain.outcome import Interrupted
from tickwork._domain.run import Claim
from tickwork._kernel.clock import Clock
from tickwork._worker.heartbeat import Heartbeat
from tickwork._worker.held import HeldRuns
from tickwork._worker.options import WorkerOptions
from tickwork._worker.pump import NOT_BEGUN, TURN_SECONDS, Pump
from tickwork._worker.timer import Timer
from tickwork._worker.wake import Backoff, Wake
from tickwork._worker.writer import Writer
from tickwork.engines.contract import Engine
from tickwork.errors import StoreBusy, StoreError, StoreUnavailable
from tickwork.stores.contract import Listener

_log: Final = logging.getLogger("tickwork.worker")

UPKEEP_EVERY: Final = 1.0
TIMER_LONGEST: Final = 1.0
WATCH_EVERY: Final = 0.1
LISTEN_FOR: Final = 0.5
WRITE_EVERY: Final = 0.05
"""Seconds after which outcomes are written while other claims still wait for their turn."""

TIMER_REST: Final = 0.01
"""Seconds between two looks at what is due that somebody else asked for."""

FELL_OVER_FOR: Final = 0.1
"""Seconds after which a thread goes on that has fallen over."""

HOLD_BACK: Final = 0.002
"""Seconds between two looks whether it is time to look for work that one was told of."""

REGISTER_EVERY: Final = 10.0
BEATS_IN_A_PACE: Final = 4
SIGNALS_EVERY: Final = 1.0
"""Seconds after which whoever waits for the end looks for signals, should one have been missed."""

INTERRUPT_SECONDS: Final = 2.0
"""How long coroutines and processes that are ended may take to hand over what they came to."""

WRITE_SECONDS: Final = 10.0
"""How long the last outcomes may take to be written."""

STOPPED: Final = Interrupted("The worker was stopped while it ran.")


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
    beat_pace: Callable[[], float]  # seconds between two beats of the shortest lease
    timer: Timer
    upkeep: Callable[[], bool]
    was_away: Callable[[], None]
    register: Callable[[int], None]
    leave: Callable[[], None]
    give_back: Callable[[Claim, Interrupted], None]
    leaving: Callable[[], None]
    watch: Callable[[], bool]
    nudge: Callable[[], None]
    listener: Listener | None
    wake: Wake
    timer_wake: Wake


class Worker:
    """One process, a few plain threads."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._is_stopping = threading.Event()
        self._is_drained = threading.Event()
        self._is_over = threading.Event()
        self._joining = threading.Lock()
        self._pumping_threads: list[threading.Thread] = []
        self._threads: list[threading.Thread] = []
        self.started_at: datetime = parts.clock.now()
        self.left_behind = 0  # attempts that go on though the worker has ended

    @property
    def is_stopping(self) -> bool:
        """Whether it takes no new work."""
        return self._is_stopping.is_set()

    def start(self) -> None:
        """Start all threads.

        Raises:
            StoreError: The database cannot be reached. Nothing was started.
        """
        parts = self._parts
        try:
            parts.register(0)
        except BaseException:
            if parts.listener is not None:
                parts.listener.close()
            raise
        for engine in parts.engines:
            engine.start()
        for pump in parts.pumps:
            self._spawn(lambda pump=pump: self._pumping(pump), "pump")  # type: ignore[misc]
        self._pumping_threads = list(self._threads)
        self._spawn(self._timing, "timer")
        self._spawn(self._beating, "heartbeat")
        self._spawn(self._registering, "register")
        self._spawn(self._keeping_up, "upkeep")
        self._spawn(self._watching, "watch")
        if parts.listener is not None:
            self._spawn(self._listening, "listener")

    def stop(self) -> None:
        """Take no new work; what runs may end. Returns at once."""
        self._is_stopping.set()
        self._parts.wake.call()
        self._parts.timer_wake.stop()

    def join(self) -> None:
        """Wait for :meth:`stop`, then for the drain; give back the rest, and leave."""
        # Not for good: a signal that arrives just as this thread falls asleep is not seen by
        # Python before the thread wakes up again.
        while not self._is_stopping.wait(SIGNALS_EVERY):
            pass
        with self._joining:
            if not self._is_over.is_set():
                self._end()

    def _end(self) -> None:
        parts = self._parts
        self._wait_for_engines(parts.options.drain.total_seconds())
        parts.leaving()
        for engine in parts.engines:
            self._give_back(engine.interrupt(), STOPPED)
        parts.wake.call()
        self._wait_for_engines(INTERRUPT_SECONDS, is_told=True)
        for engine in parts.engines:
            left = engine.unfinished()
            self.left_behind += len(left)
            self._give_back(left, STOPPED)
        self._is_drained.set()
        parts.wake.call()
        self._wait_for_pumps()
        self._is_over.set()
        parts.wake.stop()
        for thread in self._threads:
            thread.join(timeout=2 * LISTEN_FOR)
        for engine in parts.engines:
            engine.stop()
        unwritten = len(parts.writer)
        if unwritten:
            # Our row stays: others see that this process is gone, and need not wait.
            _log.error("%d outcomes could not be written; their runs are made again.", unwritten)
            return
        with suppress(StoreError):
            parts.leave()

    # ------------------------------------------------------------ threads

    def _spawn(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(
            target=keep_going, args=(work, self._is_over), name=f"tickwork-{name}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _pumping(self, pump: Pump) -> None:
        parts, options = self._parts, self._parts.options
        idle = Backoff(options.poll.total_seconds(), options.poll_idle.total_seconds())
        is_polling = True
        # It ends when everything is drained and written, or it took too long.
        while not self._is_over.is_set():
            since = parts.wake.seen()
            try:
                is_busy = pump.step(may_claim=not self.is_stopping, is_polling=is_polling)
            except Exception:  # noqa: BLE001  # whatever it is, leases must not wait for it
                _log.exception("A pump stumbled, and goes on.")
                is_busy = False
            if self._is_drained.is_set() and not parts.writer.pending:
                return
            is_called = is_busy or parts.wake.wait(since, self._idle_seconds(pump, idle))
            is_polling = not is_called
            if is_called:
                idle.reset()

    def _idle_seconds(self, pump: Pump, idle: Backoff) -> float:
        if pump.is_put_off:
            return TURN_SECONDS
        if pump.is_holding_back:
            return HOLD_BACK
        if self.is_stopping or any(engine.waiting for engine in self._parts.engines):
            # Whoever finishes one and takes the next does not call us.
            return WRITE_EVERY
        return idle.seconds()

    def _timing(self) -> None:
        parts = self._parts
        backoff = Backoff(0.05, 2.0)
        is_called = False
        # It ends when the worker is stopped.
        while not self.is_stopping:
            since = parts.timer_wake.seen()
            try:
                # Whoever calls may have added something that is due earlier, or anything else.
                if (not is_called or parts.timer.is_due()) and parts.timer.step():
                    parts.wake.tell()
                seconds = parts.timer.seconds_left(TIMER_LONGEST)
                backoff.reset()
            except (StoreUnavailable, StoreBusy) as fault:
                _log.warning("Nothing was fired: %s", fault.what)
                seconds = backoff.seconds()
            except Exception:  # noqa: BLE001  # one bad tick must not be the last
                _log.exception("A tick stumbled; the next one comes.")
                seconds = backoff.seconds()
            is_called = parts.timer_wake.wait(since, seconds)
            if is_called:
                # A busy database calls all the time: those calls are answered together.
                self._is_stopping.wait(min(seconds, TIMER_REST))

    def _beating(self) -> None:
        parts = self._parts
        # It ends when nothing is held any more. Claims come at any time: it looks a few times
        # for each beat that the shortest of all leases would need.
        while not self._is_drained.wait(min(parts.beat_pace() / BEATS_IN_A_PACE, 1.0)):
            self._carefully(parts.heartbeat.keep)
            self._carefully(parts.heartbeat.let_go)

    def _registering(self) -> None:
        parts = self._parts
        # It ends when everything is drained.
        while not self._is_drained.wait(REGISTER_EVERY):
            self._carefully(lambda: parts.register(len(parts.held)))

    def _keeping_up(self) -> None:
        parts = self._parts
        is_away = False
        # It ends when everything is drained: what handlers log is kept until then.
        while not self._is_drained.wait(UPKEEP_EVERY):
            try:
                if parts.upkeep():
                    parts.wake.tell()
                is_away = False
            except (StoreUnavailable, StoreBusy) as fault:
                if not is_away:
                    _log.warning("No upkeep: %s", fault.what)
                is_away = True
                parts.was_away()
            except Exception:  # noqa: BLE001  # as above
                _log.exception("The upkeep stumbled, and goes on.")

    def _watching(self) -> None:
        # It ends when everything is drained.
        while not self._is_drained.wait(WATCH_EVERY):
            self._carefully(lambda: self.stop() if self._parts.watch() else None)
            self._parts.nudge()

    def _listening(self) -> None:
        parts = self._parts
        listener = parts.listener
        assert listener is not None, parts
        # It ends when the worker is stopped, and lets go of what it alone uses.
        while not self.is_stopping:
            try:
                if listener.wait(LISTEN_FOR):
                    parts.wake.tell()
                    parts.timer_wake.call()
            except Exception:  # noqa: BLE001  # without it, polling goes on
                _log.exception("The listener stumbled, and goes on.")
                self._is_stopping.wait(1.0)
        listener.close()

    def _carefully(self, act: Callable[[], object]) -> None:
        try:
            act()
        except StoreError as fault:
            _log.warning("%s", fault.what)
        except Exception:  # noqa: BLE001  # as above
            _log.exception("A part of the worker stumbled, and goes on.")

    # ------------------------------------------------------------ stopping

    def _wait_for_engines(self, seconds: float, *, is_told: bool = False) -> None:
        """Wait for attempts to end. What comes in meanwhile is given back.

        A pump may have been claiming when it was told to stop.
        """
        engines, clock = self._parts.engines, self._parts.clock
        deadline = clock.monotonic() + seconds
        # It ends at the deadline.
        while True:
            for engine in engines:
                self._give_back(engine.take_back(), NOT_BEGUN)
            if not any(self._is_busy(engine, is_told=is_told) for engine in engines):
                return
            if clock.monotonic() >= deadline:
                return
            self._is_drained.wait(0.02)

    def _is_busy(self, engine: Engine, *, is_told: bool) -> bool:
        if not is_told:
            return bool(engine.running)
        # What was given back already may take as long as it wants.
        held = self._parts.held
        runs = map(held.of, engine.unfinished())
        return any(run is not None and not run.is_settled for run in runs)

    def _wait_for_pumps(self) -> None:
        clock = self._parts.clock
        deadline = clock.monotonic() + WRITE_SECONDS
        for thread in self._pumping_threads:
            thread.join(timeout=max(deadline - clock.monotonic(), 0))
        # A pump that was claiming until now has put it where nobody looks any more.
        for engine in self._parts.engines:
            self._give_back(engine.take_back(), NOT_BEGUN)
        with suppress(StoreError):
            while self._parts.writer.pending and clock.monotonic() < deadline:
                self._parts.writer.write()

    def _give_back(self, claims: Sequence[Claim], outcome: Interrupted) -> None:
        for claim in claims:
            self._parts.give_back(claim, outcome)
        if claims:
            self._parts.wake.call()


def keep_going(work: Callable[[], None], is_over: threading.Event) -> None:
    """Have a thread's work go on, whatever it raised, until it ends by itself or all is over.

    Each has dealt with what can go wrong. But where there is no memory left, even that goes wrong,
    and a worker without one of its threads would look alive.
    """
    while not is_over.is_set():
        try:
            work()
        except BaseException:  # noqa: BLE001  # see above
            with suppress(BaseException):
                _log.exception("A thread of the worker fell over, and goes on.")
            is_over.wait(FELL_OVER_FOR)
        else:
            return
