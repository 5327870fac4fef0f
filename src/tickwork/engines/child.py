"""The main program of a child process: loads the application, and makes one attempt at a time.

It ends with its parent: the pipe between them is closed then, and on Linux the kernel kills the
child even while a handler blocks it.
"""

import ctypes
import importlib
import importlib.util
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

from tickwork._define.context import RunContext
from tickwork._define.definition import Definition
from tickwork._domain.outcome import Failed, Interrupted, Outcome
from tickwork._domain.run import Claim
from tickwork._kernel.clock import SystemClock
from tickwork._kernel.fork import ForkCount, exit_if_forked, reset_after_fork
from tickwork.engines.attempt import AttemptEnd, Stopped
from tickwork.engines.log_records import RECORD_CAPTURE
from tickwork.engines.thread_caller import ThreadCaller
from tickwork.engines.wire import (
    AppLocation,
    AttemptDecision,
    AttemptReply,
    AttemptRequest,
    LoadReply,
    LoadRequest,
    LogMessage,
    ProcessRole,
)
from tickwork.errors import TickworkError

_PR_SET_PDEATHSIG: Final = 1
_MAIN: Final = "__tickwork_main__"
_UNKNOWN: Final = (
    "Its process does not know the job: it must be defined when the module of the application is "
    "imported."
)


class ChildClock:
    """The database's time, as the parent measured it for its last request."""

    def __init__(self) -> None:
        self._base = SystemClock()
        self._measured = self._base.now(), self._base.monotonic()

    def set(self, now: datetime, monotonic: float) -> None:
        self._measured = now, monotonic

    def now(self) -> datetime:
        now, then = self._measured
        return now + timedelta(seconds=self._base.monotonic() - then)

    def monotonic(self) -> float:
        return self._base.monotonic()


class ChildAttemptStore:
    """What a handler stores during its attempt, through the application that was loaded.

    Most handlers store nothing, and then no connection is made.
    """

    def __init__(
        self, app: Any, is_ending: Callable[[], bool], send: Callable[[Claim, str, str, str], None]
    ) -> None:
        self._app = app
        self._is_ending = is_ending
        self._send = send

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app.attempt_store, name)

    def should_stop(self, claim: Claim) -> bool:  # noqa: ARG002  # there is only one
        return self._is_ending()

    def is_canceled(self, claim: Claim) -> bool:
        """Whether the process is being ended. The parent knows why."""
        return self.should_stop(claim)

    def keep_line(self, claim: Claim, *, level: str, logger: str, message: str) -> None:
        """Send a log line to the parent at once, so that it survives a crash."""
        self._send(claim, level, logger, message)


class ChildMain:
    """Handles requests until the pipe is closed."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._send_lock = threading.Lock()
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._clock = ChildClock()
        self._is_ending = False
        self._app: Any = None
        self._caller = ThreadCaller(clock=self._clock, construct=lambda: self._app.construct)

    def run(self) -> None:
        """Work until the parent closes the pipe or sends SIGTERM."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the parent
        signal.signal(signal.SIGTERM, self._on_sigterm)
        reset_after_fork(self)
        threading.Thread(target=self._receive, name="tickwork-parent", daemon=True).start()
        RECORD_CAPTURE.start()
        with suppress(Stopped):
            # It ends after SIGTERM. The other thread ends the process when the pipe is closed.
            while not self._is_ending:
                self._send(self._reply_to(self._requests.get()))

    def after_fork(self) -> None:
        """Close the pipe in a process that a handler forked: only its parent may reply."""
        self._send_lock = threading.Lock()
        self._pipe.close()

    def _reply_to(self, message: LoadRequest | AttemptRequest) -> LoadReply | AttemptReply:
        error: object = "It was stopped."
        forks = ForkCount.value
        try:
            if isinstance(message, LoadRequest):
                loaded = self._load(message.location)
                error = loaded.error
                return loaded
            reply = self._make_attempt(message)
            error = isinstance(reply.outcome, Failed)
            return reply
        finally:
            # A process that a handler forked would reply for a run that it does not have.
            exit_if_forked(forks, is_failed=bool(error))

    def _on_sigterm(self, _number: int, _frame: object) -> None:
        # Raised in the code that runs now, so that a handler has a moment to clean up.
        if not self._is_ending:
            self._is_ending = True
            raise Stopped

    def _receive(self) -> None:
        # It ends when the parent closes the pipe, or is gone.
        while True:
            try:
                self._requests.put(self._pipe.recv())
            except (EOFError, OSError):
                os._exit(0)

    def _send(self, message: LoadReply | LogMessage | AttemptDecision | AttemptReply) -> None:
        with self._send_lock:
            self._pipe.send(message)

    def _send_line(self, claim: Claim, level: str, logger: str, message: str) -> None:
        self._send(LogMessage(claim.run_id, claim.token, self._clock.now(), level, logger, message))

    def _load(self, location: AppLocation) -> LoadReply:
        sys.path[:] = location.path
        try:
            if location.module:
                module = importlib.import_module(location.module)
            else:
                module = _import_file(location.file)
            self._app = getattr(module, location.attribute)
            self._app.lifecycle.call_start(self._caller.wait)
        except Stopped:
            raise
        except BaseException as error:  # noqa: BLE001  # a user's module may raise anything
            return LoadReply(f"{type(error).__name__}: {error}")
        return LoadReply()

    def _make_attempt(self, request: AttemptRequest) -> AttemptReply:
        self._clock.set(request.now, request.monotonic)
        store: Any = ChildAttemptStore(self._app, lambda: self._is_ending, self._send_line)
        claim = request.claim
        definition = self._app.registry.find(claim.job)
        if definition is None:
            return _reject(claim, _UNKNOWN)
        try:
            args = definition.payload.decode(claim.args)
        except TickworkError as error:
            return _reject(claim, str(error))
        ctx = RunContext(
            claim,
            store=store,
            args=args,
            deadline=request.deadline,
            encode=definition.payload.encode_result,
        )
        outcome = self._call(definition, ctx)
        return AttemptReply(
            claim.run_id,
            claim.token,
            _without_exception(outcome),
            ctx.has_seen_cancel,
            ctx.is_completed,
            ctx.follow_ups,
        )

    def _decide(self, ctx: RunContext, end: AttemptEnd) -> AttemptEnd:
        """Ask the parent how the attempt is recorded."""
        if self._is_ending:
            raise Stopped  # the parent knows why, and calls the hooks
        outcome = _without_exception(end.outcome)
        self._send(
            AttemptDecision(
                ctx.run_id,
                ctx.token,
                outcome,
                ctx.has_seen_cancel,
                ctx.is_completed,
                ctx.follow_ups,
            )
        )
        decision: AttemptDecision = self._requests.get()
        return end if decision.outcome is None else AttemptEnd(decision.outcome)

    def _call(self, definition: Definition, ctx: RunContext) -> Outcome:
        if definition.secrets:
            ctx.mask_with(definition.mask_for)
        try:
            # The parent ends attempts that take too long.
            return self._caller(definition, ctx, decide=partial(self._decide, ctx))
        except KeyboardInterrupt:
            return Failed("KeyboardInterrupt")  # the handler raised it: SIGINT is ignored here
        except Stopped:
            self._is_ending = True
            return Interrupted("Its process was ended.")
        finally:
            if self._app.lifecycle.is_empty:
                self._caller.close()  # otherwise start hooks may have opened clients on its loop


def _without_exception(outcome: Outcome) -> Outcome:
    """An outcome that can be sent to another process: not every exception can be pickled."""
    return outcome._replace(exception=None) if isinstance(outcome, Failed) else outcome


def _reject(claim: Claim, reason: str) -> AttemptReply:
    """Reply that no attempt can be made, and that another one would not help."""
    failed = Failed(reason, retry=False)
    return AttemptReply(claim.run_id, claim.token, failed, has_seen_cancel=False)


def _import_file(file: str) -> Any:
    spec = importlib.util.spec_from_file_location(_MAIN, file)
    assert spec is not None, file
    assert spec.loader is not None, file
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MAIN] = module
    spec.loader.exec_module(module)
    return module


def _die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process with its parent; elsewhere the pipe is enough."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def main() -> None:
    number, parent = map(int, sys.argv[1:3])
    _die_with_parent(parent)
    ProcessRole.is_child = True
    os.set_inheritable(number, False)  # processes that a handler starts must not inherit it
    ChildMain(Connection(number)).run()


if __name__ == "__main__":
    main()
