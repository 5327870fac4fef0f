"""The threads of a worker: how they start, what they repeat, and how they stop."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from tickwork._domain.health import WorkerState
from tickwork._domain.outcome import Interrupted
from tickwork._domain.run import Claim
from tickwork._kernel.clock import Clock
from tickwork._kernel.plurals import count_of
from tickwork._worker.attempt_runner import STOPPED, AttemptRunner
from tickwork._worker.heartbeat import Heartbeat
from tickwork._worker.held_runs import HeldRuns
from tickwork._worker.options import WorkerOptions
from tickwork._worker.pump import NOT_STARTED, TURN_SECONDS, Pump
from tickwork._worker.stats import Stats
from tickwork._worker.timer import Timer
from tickwork._worker.wakeup import Backoff, Wakeup
from tickwork._worker.writer import Writer
from tickwork.engines.contract import Engine
from tickwork.errors import StoreBusy, StoreError, StoreUnavailable
from tickwork.stores.contract import Listener

_log: Final = logging.getLogger("tickwork.worker")

MAINTAIN_EVERY: Final = 1.0
TIMER_LONGEST: Final = 1.0
WATCH_EVERY: Final = 0.1
ALIVE_SECONDS: Final = 10.0
"""A worker whose watch has not run for so long hangs: its handlers block the interpreter."""

LISTEN_FOR: Final = 0.5
LISTEN_AT_LEAST: Final = 0.05
"""How often the listener listens while the pumps are busy: schedules may have changed."""

WRITE_EVERY: Final = 0.05
"""Seconds after which outcomes are written while claims still wait for a slot."""

TIMER_PAUSE: Final = 0.01
"""Seconds between two steps of the timer when notifications arrive all the time."""

RESTART_AFTER: Final = 0.1
"""Seconds after which a thread is restarted that raised an exception."""

BACKOFF_POLL: Final = 0.002
"""Seconds between two checks whether the back-off of a lane is over."""

REGISTER_EVERY: Final = 10.0
REQUESTS_EVERY: Final = 2.0
"""How often the worker reads whether it shall drain."""

CHECKS_PER_BEAT: Final = 4
SIGNALS_EVERY: Final = 1.0
"""Seconds after which a thread that waits for the end wakes up to handle signals."""

INTERRUPT_SECONDS: Final = 2.0
"""How long coroutines and processes that are ended may take to report their outcomes."""

WRITE_SECONDS: Final = 10.0
"""How long the last outcomes may take to be written."""

STOPPED_WHILE_RUNNING: Final = Interrupted(STOPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    clock: Clock
    options: WorkerOptions
    engines: Sequence[Engine]
    runner: AttemptRunner
    pumps: Sequence[Pump]
    writer: Writer
    held: HeldRuns
    heartbeat: Heartbeat
    beat_pace: Callable[[], float]  # seconds between two beats of the shortest lease
    timer: Timer
    maintain: Callable[[], bool]
    on_disconnect: Callable[[], None]
    register: Callable[[int, bool], None]  # its running attempts, and whether it is stopping
    is_drain_requested: Callable[[], bool]
    unregister: Callable[[], None]
    stats: Stats
    should_stop: Callable[[], bool]
    listener: Listener | None
    wakeup: Wakeup
    timer_wakeup: Wakeup
    call_start_hooks: Callable[[], None]
    call_stop_hooks: Callable[[], None]


class PumpDriver:
    """The thread that drives a pump, which also makes quick attempts.

    A thread that gets stuck in a handler is replaced by another, so that outcomes are written and
    runs are claimed meanwhile. It ends when its handler returns.
    """

    def __init__(self, pump: Pump) -> None:
        self.pump = pump
        self.thread: threading.Thread | None = None
        self._batches = 0
        self._is_attempting = False
        self._batches_seen = 0

    def make_quick_attempts(self, engines: Sequence[Engine]) -> bool:
        """Make quick attempts; True if there were any."""
        self._batches += 1
        self._is_attempting = True
        try:
            return any(engine.make_quick_attempts() for engine in engines)
        finally:
            self._is_attempting = False

    def is_stuck(self) -> bool:
        """Whether it makes the same attempts as at the last call. Quick ones would have ended."""
        seen, self._batches_seen = self._batches_seen, self._batches
        return self._is_attempting and seen == self._batches

    @property
    def is_replaced(self) -> bool:
        """Whether the calling thread is no longer the one that drives the pump."""
        return self.thread is not threading.current_thread()


class Worker:
    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._is_stopping = threading.Event()
        self._is_drain_unlimited = False
        self._is_drained = threading.Event()
        self._is_over = threading.Event()
        self._join_lock = threading.Lock()
        self._pump_drivers = [PumpDriver(pump) for pump in parts.pumps]
        self._threads: list[threading.Thread] = []
        self.options: WorkerOptions = parts.options
        self.started_at: datetime = parts.clock.now()
        self._started = self._watched_at = parts.clock.monotonic()
        self._has_started = False
        self.left_behind = 0  # attempts that still run though the worker has ended

    @property
    def uptime(self) -> timedelta:
        return timedelta(seconds=self._parts.clock.monotonic() - self._started)

    @property
    def is_stopping(self) -> bool:
        """Whether it claims nothing any more."""
        return self._is_stopping.is_set()

    @property
    def state(self) -> WorkerState:
        """Whether it starts, runs, is stuck or stops. An unavailable database changes nothing."""
        if not self._has_started:
            return WorkerState.STARTING
        if self._is_drained.is_set():
            return WorkerState.STOPPING
        is_watched = self._parts.clock.monotonic() - self._watched_at < ALIVE_SECONDS
        if not is_watched or self._parts.stats.is_stuck:
            return WorkerState.STUCK
        return WorkerState.STOPPING if self.is_stopping else WorkerState.RUNNING

    def start(self, *, on_registered: Callable[[], None] = lambda: None) -> None:
        """Start all threads, after ``on_registered`` was called.

        Raises:
            WorkerStartFailed: A start hook raised an exception. Nothing was started.
            StoreError: The database is unreachable. Nothing was started.
        """
        parts = self._parts
        try:
            parts.call_start_hooks()
            try:
                parts.register(0, False)
            except BaseException:
                parts.call_stop_hooks()
                raise
        except BaseException:
            if parts.listener is not None:
                parts.listener.close()
            for engine in parts.engines:
                engine.stop()
            raise
        on_registered()
        for engine in parts.engines:
            engine.start()
        self._spawn(self._run_timer, "timer")
        self._spawn(self._run_heartbeat, "heartbeat")
        self._spawn(self._run_registration, "register")
        self._spawn(self._run_maintenance, "maintenance")
        self._spawn(self._run_watch, "watch")
        if parts.listener is not None:
            self._spawn(self._run_listener, "listener")
        # Last: a handler that runs out of memory would keep the other threads from starting.
        for driver in self._pump_drivers:
            self._drive(driver)
        self._watched_at = parts.clock.monotonic()
        self._has_started = True

    def stop(self) -> None:
        """Claim nothing more; running attempts may finish. Returns at once."""
        self._is_drain_unlimited = False
        self._stop_claiming()

    def drain(self) -> None:
        """Claim nothing more, and wait for running attempts until :meth:`stop` sets a limit."""
        if self.is_stopping:
            return
        _log.info("A drain was requested: the worker finishes its runs, and claims no others.")
        self._parts.stats.is_drained = True
        self._is_drain_unlimited = True
        self._stop_claiming()

    def _stop_claiming(self) -> None:
        self._is_stopping.set()
        self._parts.wakeup.notify()
        self._parts.timer_wakeup.stop()

    def join(self) -> None:
        """Wait for :meth:`stop`, then drain; give back the remaining runs, and unregister."""
        # In short waits: a signal that arrives just as this thread falls asleep is handled by
        # Python only when the thread wakes up again.
        while not self._is_stopping.wait(SIGNALS_EVERY):
            pass
        with self._join_lock:
            if not self._is_over.is_set():
                self._shut_down()

    def _shut_down(self) -> None:
        parts = self._parts
        self._wait_for_engines(parts.options.drain.total_seconds())
        self._is_drain_unlimited = False
        parts.runner.begin_shutdown()
        for engine in parts.engines:
            self._give_back(engine.interrupt(), STOPPED_WHILE_RUNNING)
        parts.wakeup.notify()
        self._wait_for_engines(INTERRUPT_SECONDS, is_interrupted=True)
        for engine in parts.engines:
            left = engine.unfinished()
            self.left_behind += len(left)
            self._give_back(left, STOPPED_WHILE_RUNNING)
        self._is_drained.set()
        parts.wakeup.notify()
        self._wait_for_pumps()
        self._is_over.set()
        parts.wakeup.stop()
        for thread in self._threads:
            thread.join(timeout=2 * LISTEN_FOR)
        parts.call_stop_hooks()
        for engine in parts.engines:
            engine.stop()
        unwritten = len(parts.writer)
        if unwritten:
            # The row of this worker stays, so that others see that its process is gone.
            count = count_of(unwritten, "outcome")
            _log.error("%s could not be written. The attempts will be repeated.", count)
            return
        with suppress(StoreError):
            parts.unregister()

    # ------------------------------------------------------------ threads

    def _spawn(self, work: Callable[[], None], name: str) -> None:
        thread = self._make_thread(work, name)
        self._threads.append(thread)
        thread.start()

    def _make_thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(
            target=restart_after_errors,
            args=(work, self._is_over),
            name=f"tickwork-{name}",
            daemon=True,
        )

    def _drive(self, driver: PumpDriver) -> None:
        before = driver.thread
        # Before the start: the thread ends when it finds that another one drives the pump.
        driver.thread = self._make_thread(partial(self._run_pump, driver), "pump")
        try:
            driver.thread.start()
        except RuntimeError:
            driver.thread = before  # it goes on when its handler returns
            raise

    def _replace_stuck_drivers(self) -> None:
        for driver in self._pump_drivers:
            if driver.is_stuck():
                self._drive(driver)

    def _run_pump(self, driver: PumpDriver) -> None:
        parts, options, pump = self._parts, self._parts.options, driver.pump
        idle = Backoff(options.poll.total_seconds(), options.poll_idle.total_seconds())
        is_polling = True
        # It ends when everything is drained and written, or that took too long.
        while not self._is_over.is_set():
            since = parts.wakeup.count
            try:
                is_busy = pump.step(may_claim=not self.is_stopping, is_polling=is_polling)
            except Exception:  # noqa: BLE001  # one bad step must not be the last
                _log.exception("Claiming runs failed; retrying.")
                is_busy = False
            if self._is_drained.is_set() and not parts.writer.pending:
                return
            if driver.make_quick_attempts(parts.engines):
                is_busy = True
                if driver.is_replaced:
                    return
            is_notified = is_busy or parts.wakeup.wait(since, self._idle_seconds(pump, idle))
            is_polling = not is_notified
            if is_notified:
                idle.reset()

    def _idle_seconds(self, pump: Pump, idle: Backoff) -> float:
        if pump.is_deferred:
            return TURN_SECONDS
        if pump.is_backing_off:
            return BACKOFF_POLL
        if self.is_stopping or any(engine.waiting for engine in self._parts.engines):
            # Engines do not notify the pumps while claims are waiting.
            return WRITE_EVERY
        return idle.seconds()

    def _run_timer(self) -> None:
        parts = self._parts
        backoff = Backoff(0.05, 2.0)
        is_notified = is_unavailable = False
        # It ends when the worker is stopped.
        while not self.is_stopping:
            since = parts.timer_wakeup.count
            try:
                # A notification may be about anything: check before doing a whole step.
                if (not is_notified or parts.timer.is_due()) and parts.timer.step():
                    parts.wakeup.notify_new_work()
                seconds = parts.timer.seconds_left(TIMER_LONGEST)
                backoff.reset()
                is_unavailable = False
            except (StoreUnavailable, StoreBusy) as error:
                if not is_unavailable:
                    _log.warning("Firing schedules waits for the database: %s", error.what)
                is_unavailable = True
                seconds = backoff.seconds()
            except Exception:  # noqa: BLE001  # one bad tick must not be the last
                _log.exception("Firing schedules failed; retrying.")
                seconds = backoff.seconds()
            is_notified = parts.timer_wakeup.wait(since, seconds)
            if is_notified:
                # A busy database notifies all the time: handle those notifications together.
                self._is_stopping.wait(min(seconds, TIMER_PAUSE))

    def _run_heartbeat(self) -> None:
        parts = self._parts
        # It ends when nothing is held any more. Claims come at any time, so it checks a few times
        # for each beat that the shortest of all leases would need.
        while not self._is_drained.wait(min(parts.beat_pace() / CHECKS_PER_BEAT, 1.0)):
            self._try(parts.heartbeat.step_if_due)
            self._try(parts.heartbeat.stop_expired)

    def _run_registration(self) -> None:
        parts = self._parts
        registered_at, is_known = parts.clock.monotonic(), False
        # It ends when everything is drained.
        while not self._is_drained.wait(min(REQUESTS_EVERY, REGISTER_EVERY)):
            if not self.is_stopping:
                self._try(lambda: self.drain() if parts.is_drain_requested() else None)
            is_stopping = self.is_stopping
            is_due = parts.clock.monotonic() - registered_at >= REGISTER_EVERY
            if is_due or (is_stopping and not is_known):
                registered_at, is_known = parts.clock.monotonic(), is_stopping
                self._try(partial(parts.register, len(parts.held), is_stopping))

    def _run_maintenance(self) -> None:
        parts = self._parts
        is_unavailable = False
        # It ends when everything is drained: until then handlers write logs.
        while not self._is_drained.wait(MAINTAIN_EVERY):
            try:
                if parts.maintain():
                    parts.wakeup.notify_new_work()
                is_unavailable = False
            except (StoreUnavailable, StoreBusy) as error:
                if isinstance(error, StoreUnavailable) and error.is_permanent:
                    self._stop_on_fault(error)
                elif not is_unavailable:
                    _log.warning("Maintenance waits for the database: %s", error.what)
                is_unavailable = True
                parts.on_disconnect()
            except Exception:  # noqa: BLE001  # as above
                _log.exception("Maintenance failed; retrying.")

    def _stop_on_fault(self, error: StoreUnavailable) -> None:
        """Stop: a new process can open the store that is there now, or report what is wrong."""
        if self._parts.stats.fault is None:
            self._parts.stats.fault = error
            _log.error("The worker stops: %s %s", error.what, error.why)
            self.stop()

    def _run_watch(self) -> None:
        # It ends when everything is drained.
        while not self._is_drained.wait(WATCH_EVERY):
            self._watched_at = self._parts.clock.monotonic()
            self._try(lambda: self.stop() if self._parts.should_stop() else None)
            self._try(self._replace_stuck_drivers)
            for engine in self._parts.engines:
                engine.rebalance()

    def _run_listener(self) -> None:
        parts = self._parts
        listener = parts.listener
        assert listener is not None, parts
        # It ends when the worker is stopped, and closes its connection.
        while not self.is_stopping:
            # Busy pumps claim runs anyway, and most changes are their own.
            parts.wakeup.wait_for_idle(LISTEN_AT_LEAST)
            try:
                if listener.wait(LISTEN_FOR):
                    parts.wakeup.notify_new_work()
                    parts.timer_wakeup.notify()
            except Exception:  # noqa: BLE001  # without notifications, polling goes on
                _log.exception("Listening for notifications failed; retrying.")
                self._is_stopping.wait(1.0)
        listener.close()

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except StoreError as error:
            _log.warning("%s", error.what)
        except Exception:  # noqa: BLE001  # as above
            _log.exception("A background task of the worker failed; retrying.")

    # ------------------------------------------------------------ stopping

    def _wait_for_engines(self, seconds: float, *, is_interrupted: bool = False) -> None:
        """Wait for attempts to end; give back claims that have not started.

        A pump may have been claiming when the worker was stopped. After a request to drain, it
        waits until all have ended, or until a stop sets the limit.
        """
        engines, clock = self._parts.engines, self._parts.clock
        deadline = clock.monotonic() + seconds
        # It ends at the deadline.
        while True:
            for engine in engines:
                self._give_back(engine.take_back(), NOT_STARTED)
            if not any(self._is_busy(engine, is_interrupted=is_interrupted) for engine in engines):
                return
            if self._is_drain_unlimited:
                deadline = clock.monotonic() + seconds
            elif clock.monotonic() >= deadline:
                return
            self._is_drained.wait(0.02)

    def _is_busy(self, engine: Engine, *, is_interrupted: bool) -> bool:
        if not is_interrupted:
            return bool(engine.running)
        # Attempts that were given back already need not be waited for.
        held = self._parts.held
        runs = map(held.of, engine.unfinished())
        return any(run is not None and not run.is_settled for run in runs)

    def _wait_for_pumps(self) -> None:
        clock = self._parts.clock
        can_write = self._parts.stats.fault is None
        deadline = clock.monotonic() + (WRITE_SECONDS if can_write else 0)
        for driver in self._pump_drivers:
            if driver.thread is not None:
                driver.thread.join(timeout=max(deadline - clock.monotonic(), 0))
        # A pump that was claiming until now submitted its claims to a stopped engine.
        for engine in self._parts.engines:
            self._give_back(engine.take_back(), NOT_STARTED)
        with suppress(StoreError):
            while self._parts.writer.pending and clock.monotonic() < deadline:
                self._parts.writer.write()

    def _give_back(self, claims: Sequence[Claim], outcome: Interrupted) -> None:
        for claim in claims:
            self._parts.runner.give_back(claim, outcome)
        if claims:
            self._parts.wakeup.notify()


def restart_after_errors(work: Callable[[], None], is_over: threading.Event) -> None:
    """Call ``work`` again after an exception, until it returns or all is over.

    Each thread handles the errors that it expects. Where there is no memory left, even handling
    fails, and a worker that lost one of its threads would still look alive.
    """
    while not is_over.is_set():
        try:
            work()
        except BaseException:  # noqa: BLE001  # see above
            with suppress(BaseException):
                _log.exception("A thread of the worker failed; restarting it.")
            is_over.wait(RESTART_AFTER)
        else:
            return
