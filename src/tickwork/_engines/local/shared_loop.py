"""The event loop that the coroutines of a worker share: in a thread of its own, or the caller's.

Code of a handler may stop the loop: with ``loop.stop()``, or with an exception such as SystemExit
in a callback or a task. ``stop()`` is refused. After an exception the loop runs on, with the other
coroutines and with the clients that were opened on it. A loop that fails again and again, though no
attempt is the cause, is broken.
"""

import asyncio
import inspect
import logging
import threading
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from tickwork._engines.contract import EngineHealth
from tickwork._handlers.context import CURRENT, RunContext
from tickwork._kernel.clock import Clock
from tickwork._kernel.descriptors import DescriptorGuard
from tickwork._kernel.fork import exit_forked, reset_after_fork
from tickwork.errors import EngineBroken

STOP_SECONDS: Final = 2.0
"""How long the loop may take to stop: a coroutine that blocks it longer is left behind."""

RESTARTS_MAX: Final = 10
RESTARTS_SECONDS: Final = 60.0
"""A loop that fails so often within so many seconds is not run again: each costs its coroutines."""

_ENGINE: Final = "async"
_log: Final = logging.getLogger("tickwork.worker")

T = TypeVar("T")


class SharedLoop:
    """Starts the loop when it is first needed, and runs it again when code of a handler stops it.

    ``on_stopped`` gets the exception that stopped it, and the attempt whose code raised that, if
    it is known; it returns whether it has ended the cause. ``on_broken`` gets the reason, once,
    when no coroutine will be called any more.
    A loop that was ``given`` runs elsewhere: it is neither started nor stopped here.
    """

    def __init__(
        self,
        callers_loop: asyncio.AbstractEventLoop | None,
        *,
        clock: Clock,
        on_stopped: Callable[[BaseException | None, RunContext | None], bool],
        on_broken: Callable[[str], None],
    ) -> None:
        self._loop = callers_loop
        self._clock = clock
        self._on_stopped = on_stopped
        self._on_broken = on_broken
        self._thread: threading.Thread | None = None
        self._guard: DescriptorGuard | None = None
        self._lock = threading.Lock()
        self._is_stopped = False
        self._start_error = ""  # why it could not be started
        self._broken = ""  # why it does not run any more
        self._restarts = 0
        self._failed_at: deque[float] = deque(maxlen=RESTARTS_MAX)
        self._pinged_at: float | None = None  # when it got a ping that it has not answered
        self._waits: set[Future[Any]] = set()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Have a process that a coroutine forked end at its next ``await``.

        Otherwise its loop would go on with the coroutines of the parent.
        """
        loop = self._loop
        if loop is not None and self._thread is threading.current_thread():
            loop.call_soon(exit_forked)
            ready = getattr(loop, "_ready", None)  # other coroutines that would come before it
            if isinstance(ready, deque):
                ready.rotate(1)

    @property
    def is_started(self) -> bool:
        return self._loop is not None

    @property
    def is_broken(self) -> bool:
        return bool(self._broken)

    def call(self, callback: Callable[[], object]) -> None:
        """Have the loop call a function soon.

        Raises:
            EngineBroken: It does not run any more, or cannot be started.
        """
        try:
            self._ensure().call_soon_threadsafe(callback)
        except RuntimeError as error:  # it is closed
            raise EngineBroken(_ENGINE, reason=str(error)) from error

    def wait(self, awaitable: Awaitable[T], seconds: float | None = None) -> T:
        """Run an awaitable, and return its result. Not from the loop itself.

        Raises:
            TimeoutError: It took longer than ``seconds``, and was cancelled.
            EngineBroken: It does not run any more, or cannot be started.
        """
        try:
            loop = self._ensure()
        except EngineBroken:
            if inspect.iscoroutine(awaitable):
                awaitable.close()
            raise

        async def run() -> T:
            return await awaitable

        # Not both: if it is cancelled before it begins, the inner one would never be awaited.
        wanted: Coroutine[Any, Any, T] = awaitable if inspect.iscoroutine(awaitable) else run()
        future = asyncio.run_coroutine_threadsafe(wanted, loop)
        self._waits.add(future)
        try:
            return future.result(seconds)  # by this thread's time: the loop may be blocked
        finally:
            self._waits.discard(future)
            future.cancel()

    def stop(self) -> None:
        """Stop a loop that was started here."""
        self._is_stopped = True
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        with suppress(RuntimeError):  # it is closed already
            loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(timeout=STOP_SECONDS)

    def health(self) -> EngineHealth:
        """Return whether the loop runs, and send it a ping."""
        loop, guard = self._loop, self._guard
        if self._broken or self._is_stopped or loop is None:
            reason = self._broken or self._start_error
            return EngineHealth(not reason, reason, self._restarts)
        if guard is not None and not guard.is_intact():
            # It may wait for ever. Its coroutines have not ended, so their claims are kept.
            reason = "Code of this process has closed the descriptors of the event loop."
            return EngineHealth(is_alive=False, reason=reason, restarts=self._restarts)
        if loop.is_closed():
            self._break("The program has closed its event loop.")
            return EngineHealth(is_alive=False, reason=self._broken, restarts=self._restarts)
        return EngineHealth(restarts=self._restarts, silent_seconds=self._ping(loop))

    def _ping(self, loop: asyncio.AbstractEventLoop) -> float:
        """Send the loop a ping; return for how many seconds it has not answered one."""
        now, pinged_at = self._clock.monotonic(), self._pinged_at
        if pinged_at is not None:
            return now - pinged_at
        self._pinged_at = now
        with suppress(RuntimeError):  # it was closed just now
            loop.call_soon_threadsafe(self._on_answer)
        return 0.0

    def _on_answer(self) -> None:
        self._pinged_at = None

    # ------------------------------------------------------------ the thread

    def _ensure(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._broken:
                raise EngineBroken(_ENGINE, reason=self._broken)
            if self._loop is None:
                try:
                    self._loop = self._start()
                except Exception as error:
                    self._start_error = f"{type(error).__name__}: {error}"
                    raise EngineBroken(_ENGINE, reason=self._start_error) from error
                self._start_error = ""
            return self._loop

    def _start(self) -> asyncio.AbstractEventLoop:
        guard = DescriptorGuard()
        try:
            loop = asyncio.new_event_loop()
            loop.stop = partial(self._stop_loop, loop)  # type: ignore[method-assign]
            self._thread = threading.Thread(
                target=self._run, args=(loop, guard), name="tickwork-asyncio", daemon=True
            )
            try:
                self._thread.start()
            except BaseException:
                self._thread = None
                loop.close()
                raise
        except BaseException:
            guard.close()
            raise
        self._guard = guard
        return loop

    def _stop_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_stopped:
            raise RuntimeError("A handler must not stop the event loop: other runs share it.")
        type(loop).stop(loop)

    def _run(self, loop: asyncio.AbstractEventLoop, guard: DescriptorGuard) -> None:
        asyncio.set_event_loop(loop)
        try:
            if self._run_until_stopped(loop):
                loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
            guard.close()

    def _run_until_stopped(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return when the engine is stopped; False if the loop is broken."""
        # It ends at the latest when the loop has failed too often.
        while True:
            error: BaseException | None = None
            try:
                loop.run_forever()
            except BaseException as raised:  # noqa: BLE001  # the other coroutines go on
                error = raised
            if self._is_stopped:
                return True
            self._restarts += 1
            if self._on_stopped(error, None if error is None else _find_attempt(error)):
                continue
            failed_at, now = self._failed_at, self._clock.monotonic()
            failed_at.append(now)
            if len(failed_at) == RESTARTS_MAX and now - failed_at[0] < RESTARTS_SECONDS:
                self._break(f"Its event loop failed {RESTARTS_MAX} times in a row: {error!r}")
                return False

    def _break(self, reason: str) -> None:
        with self._lock:
            if self._broken:
                return
            self._broken = reason
        _log.error("The %s engine of this process can start no attempt: %s", _ENGINE, reason)
        self._on_broken(reason)
        for future in list(self._waits):
            with suppress(InvalidStateError):
                future.set_exception(EngineBroken(_ENGINE, reason=reason))


def _find_attempt(error: BaseException) -> RunContext | None:
    """Return the attempt in whose context a callback or a step of a task raised an exception."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        handle = frame.f_locals.get("self")
        if isinstance(handle, asyncio.Handle):
            context = getattr(handle, "_context", {})
            ctx: RunContext | None = context.get(CURRENT)
            return ctx
    return None
