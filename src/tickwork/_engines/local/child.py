"""The main program of a child process: loads the application, and makes one attempt at a time.

It ends with its parent: the pipe between them is closed then, and on Linux the kernel kills the
child even while a handler blocks it.
"""

import ctypes
import importlib
import importlib.util
import os
import queue
import resource
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from multiprocessing.connection import Connection
from operator import attrgetter
from typing import Any, Final

from tickwork._define.attempt_context import open_attempt
from tickwork._define.definition import Definition
from tickwork._domain.runs.outcome import Crashed, Failed, Interrupted, Outcome
from tickwork._domain.runs.run import Claim
from tickwork._engines.attempt import AttemptEnd, Stopped
from tickwork._engines.local.thread_caller import ThreadCaller
from tickwork._engines.log_records import RECORD_CAPTURE
from tickwork._engines.wire import (
    AppLocation,
    AttemptDecision,
    AttemptReply,
    AttemptRequest,
    ChildReady,
    LoadReply,
    LoadRequest,
    LogMessage,
    ProcessRole,
)
from tickwork._handlers.context import RunContext
from tickwork._kernel.clock import SystemClock
from tickwork._kernel.fork import ForkCount, exit_if_forked, reset_after_fork
from tickwork.errors import TickworkError

_PR_SET_PDEATHSIG: Final = 1
_MAIN: Final = "__tickwork_main__"
_UNKNOWN: Final = (
    "Its process does not know the job: it must be defined when the module of the application, or "
    "that of the handler, is imported."
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
            self._send(ChildReady())
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
                loaded = self._load(message)
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

    def _send(
        self, message: ChildReady | LoadReply | LogMessage | AttemptDecision | AttemptReply
    ) -> None:
        with self._send_lock:
            self._pipe.send(message)

    def _send_line(self, claim: Claim, level: str, logger: str, message: str) -> None:
        self._send(LogMessage(claim.run_id, claim.token, self._clock.now(), level, logger, message))

    def _load(self, request: LoadRequest) -> LoadReply:
        location = request.location
        sys.path[:] = location.path
        is_limited = not _restore_limits(request)
        try:
            self._app = _load_app(location)
            self._app.lifecycle.call_start(self._caller.wait)
        except Stopped:
            raise
        except BaseException as error:  # noqa: BLE001  # a user's module may raise anything
            return LoadReply(_describe(error), is_limited)
        return LoadReply()

    def _make_attempt(self, request: AttemptRequest) -> AttemptReply:
        self._clock.set(request.now, request.monotonic)
        store: Any = ChildAttemptStore(self._app, lambda: self._is_ending, self._send_line)
        claim = request.claim
        try:
            definition = self._find_definition(request)
        except Stopped:
            raise
        except BaseException as error:  # noqa: BLE001  # a user's module may raise anything
            return _crash(claim, f"Its process could not import the job: {_describe(error)}")
        if definition is None:
            return _crash(claim, _UNKNOWN)
        try:
            ctx = open_attempt(definition, claim, store, request.deadline)
        except TickworkError as error:
            return _reject(claim, str(error))
        outcome = self._call(definition, ctx)
        return AttemptReply(
            claim.run_id,
            claim.token,
            _without_exception(outcome),
            ctx.has_seen_cancel,
            ctx.is_completed,
            ctx.follow_ups,
            ctx.saved_steps,
        )

    def _find_definition(self, request: AttemptRequest) -> Definition | None:
        """The job. If the module of the application does not import it, its own modules do."""
        job, find = request.claim.job, self._app.registry.find
        definition: Definition | None = find(job)
        for location in request.modules:
            if definition is None:
                _import_module(location.module, location.file)
                definition = find(job)
        return definition

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
                ctx.saved_steps,
            )
        )
        decision: AttemptDecision = self._requests.get()
        return end if decision.outcome is None else AttemptEnd(decision.outcome)

    def _call(self, definition: Definition, ctx: RunContext) -> Outcome:
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


def _crash(claim: Claim, reason: str) -> AttemptReply:
    """Reply that this process cannot make the attempt. Another one may be able to."""
    return AttemptReply(claim.run_id, claim.token, Crashed(reason), has_seen_cancel=False)


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _restore_limits(request: LoadRequest) -> bool:
    """Set the limits that the worker had when it started; False if they cannot be set."""
    sys.setrecursionlimit(request.recursion_limit)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        if soft != request.files_max:
            resource.setrlimit(resource.RLIMIT_NOFILE, (request.files_max, hard))
    except (OSError, ValueError):  # a handler has lowered the hard limit, too
        return False
    return True


def _load_app(location: AppLocation) -> Any:
    """Import the application, and read the configuration files that its program has read."""
    if location.module or location.file:
        app = attrgetter(location.attribute)(_import_module(location.module, location.file))
    else:
        app = importlib.import_module("tickwork").Tickwork.from_config(location.config_files[0])
    for file in location.config_files:
        if file not in app.config_files:
            app.load_config(file)
    return app


def _import_module(module: str, file: str) -> Any:
    return importlib.import_module(module) if module else _import_file(file)


def _import_file(file: str) -> Any:
    if getattr(sys.modules.get(_MAIN), "__file__", None) == file:
        return sys.modules[_MAIN]
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
