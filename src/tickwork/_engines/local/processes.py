"""The process engine: attempts in child processes, which can be killed. The parent's side.

Children are spawned, never forked: a fork of a process with threads may find locks held that no
thread of the child will ever release. Each thread of the engine has one child and gives it one
claim at a time. If a child dies, its run has crashed, and the worker continues.

Children start from a snapshot that is taken when the worker starts: handlers may change the
environment, the path or the limits of their process, or leave it without free descriptors. A child
that cannot start gives its run back.
"""

import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe
from subprocess import DEVNULL, Popen, TimeoutExpired
from typing import Final, NamedTuple

from tickwork._domain.identity import RunId
from tickwork._domain.runs.outcome import Crashed, Interrupted, Outcome, Succeeded
from tickwork._domain.runs.run import Claim
from tickwork._engines.attempt import AttemptEnd, timeout_failure
from tickwork._engines.contract import EngineSetup, RunningAttempt
from tickwork._engines.local.thread_caller import ThreadCaller
from tickwork._engines.local.thread_pool import ThreadPoolEngine
from tickwork._engines.wire import (
    AppLocation,
    AttemptDecision,
    AttemptReply,
    AttemptRequest,
    ChildReady,
    LoadReply,
    LoadRequest,
    LogMessage,
)
from tickwork._handlers.context import RunContext
from tickwork._kernel.clock import SystemClock
from tickwork._kernel.fork import reset_after_fork
from tickwork._kernel.import_location import find_defining_modules
from tickwork.errors import InvalidOption

KILL_AFTER: Final = 1.0
"""Seconds between SIGTERM and SIGKILL, because a handler may clean up."""

LOAD_SECONDS: Final = 60.0
"""How long a child may take to start, because an application may import much on a slow disk."""

POLL_EVERY: Final = 0.5
"""Seconds after which a thread checks whether the engine has stopped or the run was canceled.

A result ends the wait at once: a poll only notices a request to stop.
"""

START_FAILURES_MAX: Final = 5
"""So many children in a row could not start: then the engine starts no more.

One may fail because memory is short for a moment.
"""

START_PAUSE: Final = 0.1
"""Seconds for which a slot is not used after its child could not start. They double each time.

Without a pause, five failures would be over before the machine recovers.
"""

_log: Final = logging.getLogger("tickwork.worker")


class ChildSnapshot(NamedTuple):
    """What children start from."""

    executable: str
    environment: Mapping[str, str]
    recursion_limit: int
    files_max: int
    location: AppLocation

    @classmethod
    def take(cls, location: AppLocation) -> "ChildSnapshot":
        """Take it from this process, as it is now."""
        # A relative entry means the current folder, which a handler may change.
        location = location._replace(path=tuple(map(os.path.abspath, location.path)))
        files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(sys.executable, os.environ.copy(), sys.getrecursionlimit(), files_max, location)


class ChildNotStarted(NamedTuple):
    """No child could be started, for a reason in this process and not in the application."""

    reason: str


class ChildEnded(NamedTuple):
    """The child process ended before it replied."""

    is_late: bool  # the attempt exceeded its timeout
    is_canceled: bool  # stop() was called
    reason: str


class ChildProcess:
    """One child process, started when it is needed. One thread uses it; any thread may end it."""

    def __init__(self, snapshot: ChildSnapshot) -> None:
        self._snapshot = snapshot
        self._process: Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._lock = threading.Lock()
        self._reap_lock = threading.Lock()
        self._attempt_number = 0  # so that stop() never ends the next attempt instead
        self._is_canceled = False
        self._kill_at: float | None = None
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Close the pipe in a forked process: the child must notice when its parent ends."""
        self._close_pipe()
        self._process = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def begin(self) -> int:
        """Return the number of the next attempt, for :meth:`stop`."""
        with self._lock:
            self._attempt_number += 1
            self._is_canceled, self._kill_at = False, None
            return self._attempt_number

    def stop(self, attempt_number: int) -> None:
        """End the child: SIGTERM, then SIGKILL. From any thread."""
        with self._lock:
            if attempt_number == self._attempt_number:
                self._is_canceled = True
                self._terminate()

    def attempt(
        self,
        request: AttemptRequest,
        *,
        on_log: Callable[[LogMessage], None],
        decide: Callable[[AttemptDecision], Outcome],
    ) -> AttemptReply | ChildEnded | ChildNotStarted | Crashed:
        """Have the child make one attempt. Nothing that it does raises an exception here."""
        failed = self._ensure_started()
        if failed is not None:
            # It may have failed to load because stop() ended it.
            if self._is_canceled:
                return ChildEnded(is_late=False, is_canceled=True, reason="")
            return failed
        decided: Outcome | None = None
        reply: AttemptReply | AttemptDecision | None = None
        with suppress(EOFError, OSError):
            try:
                self._send(request)
            except (MemoryError, RecursionError) as error:  # nothing was sent
                return ChildNotStarted(f"{type(error).__name__}: {error}")
            reply = self._receive(request.claim, _late_at(request), on_log)
            if isinstance(reply, AttemptDecision) and self._accept_end():
                decided = decide(reply)
                is_changed = decided is not reply.outcome
                self._send(reply._replace(outcome=decided if is_changed else None))
                reply = self._receive(request.claim, _late_at(request), on_log)
        with self._lock:
            self._attempt_number += 1  # from here on stop() comes too late
            is_canceled, is_ending = self._is_canceled, self._kill_at is not None
        if isinstance(reply, AttemptDecision):
            reply = None  # it was made while stop() ended the process
        if decided is not None and (reply is None or is_ending):
            # The process ended while it called hooks. They cannot change the outcome.
            self._reap()
            claim = request.claim
            return AttemptReply(claim.run_id, claim.token, decided, has_seen_cancel=False)
        if reply is not None and not isinstance(reply.outcome, Interrupted) and not is_ending:
            return reply
        code = self._reap()
        if reply is not None and is_canceled and isinstance(reply.outcome, Succeeded):
            return reply  # it finished before the signal arrived
        return ChildEnded(is_ending and not is_canceled, is_canceled, _describe_exit(code))

    def _accept_end(self) -> bool:
        """Accept the end of an attempt; False if the process is being ended already."""
        with self._lock:
            self._attempt_number += 1  # from here on stop() comes too late
            return self._kill_at is None

    def close(self) -> None:
        self._close_pipe()
        self._reap()

    def _send(self, request: AttemptRequest | AttemptDecision) -> None:
        assert self._pipe is not None, request
        if not self._is_canceled:
            self._pipe.send(request)

    def _receive(
        self, claim: Claim, late_at: float | None, on_log: Callable[[LogMessage], None]
    ) -> AttemptReply | AttemptDecision | None:
        """Return the reply, or the request for a decision; None when the process ended without one.

        Messages for another run or token are rejected: code that an earlier handler left
        behind may have sent them.
        """
        pipe, process = self._pipe, self._process
        assert pipe is not None, self
        assert process is not None, self
        # It ends with a reply, with the process, or by killing it.
        while True:
            if pipe.poll(self._poll_seconds(late_at)):
                message = pipe.recv()
                if not isinstance(message, AttemptReply | AttemptDecision | LogMessage):
                    continue
                is_ours = message.run_id == claim.run_id and message.token == claim.token
                if isinstance(message, LogMessage):
                    if is_ours:
                        on_log(message)
                elif is_ours:
                    return message
                else:
                    _log.warning(
                        "The process of run %s replied for run %s; the reply is ignored.",
                        claim.run_id,
                        message.run_id,
                    )
                continue
            now = time.monotonic()
            with self._lock:
                if self._kill_at is None and late_at is not None and now >= late_at:
                    self._terminate()
                elif self._kill_at is not None and now >= self._kill_at:
                    _kill(process)
                    return None
            if process.poll() is not None and not pipe.poll(0):
                return None

    def _poll_seconds(self, late_at: float | None) -> float:
        moment = late_at if self._kill_at is None else self._kill_at
        if moment is None:
            return POLL_EVERY
        return min(max(moment - time.monotonic(), 0.0), POLL_EVERY)

    def _terminate(self) -> None:
        if self._kill_at is None:
            self._kill_at = _later(KILL_AFTER)
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(OSError):
                process.send_signal(signal.SIGTERM)

    def _ensure_started(self) -> ChildNotStarted | Crashed | None:
        """Start a process and load the application, unless there is one; return what failed."""
        if self.is_running:
            return None
        self._close_pipe()
        try:
            self._spawn()
            reply = self._load_app()
        except Exception as error:  # noqa: BLE001  # whatever a handler did to this process
            self._reap()
            return ChildNotStarted(f"{type(error).__name__}: {error}")
        if not reply.error:
            return None
        self._reap()
        if reply.is_limited:
            return ChildNotStarted(f"Its limits could not be restored: {reply.error}")
        return Crashed(f"Its process could not load the application: {reply.error}")

    def _spawn(self) -> None:
        """Start a process, and wait until its interpreter has started."""
        snapshot = self._snapshot
        self._pipe, theirs = Pipe()
        with theirs:
            number = theirs.fileno()
            self._process = Popen(  # noqa: S603  # our own command
                [
                    snapshot.executable,
                    "-m",
                    "tickwork._engines.local.child",
                    str(number),
                    str(os.getpid()),
                ],
                env=snapshot.environment,
                pass_fds=[number],
                stdin=DEVNULL,
                process_group=0,  # so that processes it starts are killed with it
            )
        if not self._pipe.poll(LOAD_SECONDS):
            raise TimeoutError(f"Its interpreter did not start within {LOAD_SECONDS:.0f} s.")
        try:
            ready = self._pipe.recv()
        except EOFError:
            raise ChildProcessError("Its interpreter ended before it was ready.") from None
        assert isinstance(ready, ChildReady), ready

    def _load_app(self) -> LoadReply:
        assert self._pipe is not None, self
        snapshot = self._snapshot
        self._pipe.send(
            LoadRequest(snapshot.location, snapshot.recursion_limit, snapshot.files_max)
        )
        if not self._pipe.poll(LOAD_SECONDS):
            return LoadReply(f"it took longer than {LOAD_SECONDS:.0f} s.")
        try:
            reply = self._pipe.recv()
        except EOFError:
            return LoadReply("the process ended while it loaded the application.")
        assert isinstance(reply, LoadReply), reply
        return reply

    def _reap(self) -> int:
        """Wait for the process to end, kill it if it does not, and return its exit code."""
        with self._reap_lock:  # close() waits for a reap by another thread
            process, self._process = self._process, None
            self._close_pipe()
            if process is None:
                return 0
            try:
                return process.wait(KILL_AFTER)
            except TimeoutExpired:
                _kill(process)
                return process.wait()

    def _close_pipe(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


class ProcessEngine(ThreadPoolEngine):
    """Threads, each of which waits for a child process of its own."""

    _name = "process"

    def __init__(self, setup: EngineSetup) -> None:
        super().__init__(setup)
        self._snapshot: ChildSnapshot | None = None
        self._start_failures = 0  # in a row
        self._clock = setup.clock
        self._app_location = setup.app_location
        self._add_log_line = setup.add_log_line
        self._caller = ThreadCaller(clock=setup.clock, construct=setup.construct)
        self._local = threading.local()
        self._children: list[ChildProcess] = []
        self._attempt_by_run: dict[RunId, tuple[Claim, ChildProcess, int]] = {}

    def start(self) -> None:
        with suppress(InvalidOption):  # a module may have the application later
            self._snapshot = ChildSnapshot.take(self._app_location())

    def cancel(self, claim: Claim) -> None:
        """End the child process that makes this attempt."""
        attempt = self._attempt_by_run.get(claim.run_id)
        if attempt is not None and attempt[0].token == claim.token:
            _, child, attempt_number = attempt
            child.stop(attempt_number)

    def stop(self) -> None:
        super().stop()
        for child in self._children:
            child.close()

    def interrupt(self) -> list[Claim]:
        super().stop()
        return self.unfinished()

    def _attempt(self, claim: Claim) -> bool:
        host = self._host
        try:
            child = self._own_child()
            # Registered before the checks, so that a cancel() after them finds the child.
            self._attempt_by_run[claim.run_id] = claim, child, child.begin()
            attempt = host.begin(claim, is_timed=False)
            if attempt is None:
                return False
            was_running = child.is_running
            outcome = self._call(attempt, child)
            if isinstance(outcome, ChildNotStarted):
                host.end(attempt, Interrupted(f"No process could be started. {outcome.reason}"))
                self._on_not_started(outcome.reason)
            else:
                host.end(attempt, outcome)
                if not was_running:
                    self._start_failures = 0
        except BaseException as error:  # noqa: BLE001  # each claim must get an outcome
            host.fail(claim, error)
            return False
        finally:
            self._attempt_by_run.pop(claim.run_id, None)
        return True

    def _on_not_started(self, reason: str) -> None:
        """Pause, because the cause may pass. After too many failures, start no more children."""
        with self._condition:
            self._start_failures = failures = self._start_failures + 1
        _log.warning("A child process could not be started: %s", reason)
        if failures == START_FAILURES_MAX:
            self._break(f"Its child processes do not start. {reason}")
        elif failures < START_FAILURES_MAX:
            self._host.notify()
            time.sleep(START_PAUSE * 2 ** (failures - 1))

    def _own_child(self) -> ChildProcess:
        child: ChildProcess | None = getattr(self._local, "child", None)
        if child is None:
            if self._snapshot is None:
                self._snapshot = ChildSnapshot.take(self._app_location())
            child = self._local.child = ChildProcess(self._snapshot)
            self._children.append(child)
        return child

    def _call(self, attempt: RunningAttempt, child: ChildProcess) -> Outcome | ChildNotStarted:
        claim, ctx, timeout = attempt.claim, attempt.ctx, attempt.timeout
        file, _, _ = attempt.definition.place.rpartition(":")
        module, _, _ = attempt.definition.handler.path.partition(":")
        try:
            request = AttemptRequest(
                claim,
                timeout,
                ctx.deadline,
                self._clock.now(),
                SystemClock().monotonic(),
                find_defining_modules(file, module),
            )
        except Exception as error:  # noqa: BLE001  # it says nothing about the run
            return ChildNotStarted(f"{type(error).__name__}: {error}")
        reply = child.attempt(
            request,
            on_log=lambda message: self._add_log_line(claim.run_id, message),
            decide=partial(self._decide, attempt),
        )
        if isinstance(reply, AttemptReply):
            _update_context(ctx, reply)
            return reply.outcome
        if isinstance(reply, Crashed | ChildNotStarted):
            return reply
        outcome: Outcome
        if reply.is_canceled:
            outcome = self._host.outcome_of_stop(attempt, RuntimeError("Its process was ended."))
        elif reply.is_late and timeout is not None:
            outcome = timeout_failure(attempt.definition, ctx)
        else:
            outcome = Crashed(f"Its process {reply.reason}.")
        return self._caller.call_hooks(
            attempt.definition, ctx, outcome, partial(self._host.decide, attempt)
        )

    def _decide(self, attempt: RunningAttempt, decision: AttemptDecision) -> Outcome:
        assert decision.outcome is not None, decision
        _update_context(attempt.ctx, decision)
        return self._host.decide(attempt, AttemptEnd(decision.outcome)).outcome


def _update_context(ctx: RunContext, message: AttemptReply | AttemptDecision) -> None:
    ctx.has_seen_cancel = ctx.has_seen_cancel or message.has_seen_cancel
    ctx.follow_ups = message.follow_ups or ctx.follow_ups
    ctx.note_saved_steps(message.saved_steps)
    if message.is_completed:
        ctx.note_completed()


def _late_at(request: AttemptRequest) -> float | None:
    return None if request.timeout is None else _later(request.timeout.total_seconds())


def _kill(process: Popen[bytes]) -> None:
    """Kill a process and the processes that it started."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _later(seconds: float) -> float:
    return time.monotonic() + seconds
