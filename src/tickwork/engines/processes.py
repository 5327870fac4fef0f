"""Attempts in processes of their own, which can be killed: the parent's side.

Children are spawned, never forked: a fork of a process with threads may find locks held that
nobody will ever release. Each thread of the engine has one child, and gives it one claim at a
time. A child that dies is a crash of that run, never of the worker.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tickwork._define.context import RunContext
from tickwork._define.definition import Definition
from tickwork._domain.identity import RunId
from tickwork._domain.outcome import (
    Crashed,
    Failed,
    Interrupted,
    Outcome,
    Succeeded,
    outcome_of_exception,
)
from tickwork._domain.run import Claim
from tickwork._kernel.clock import Clock, SystemClock
from tickwork.engines.contract import Engine
from tickwork.engines.invoke import after_hooks, drive_attempt
from tickwork.engines.wire import Answer, Line, Load, Loaded, Order, Origin
from tickwork.errors import AttemptTimeout

if TYPE_CHECKING:
    import subprocess
    from multiprocessing.connection import Connection

KILL_AFTER: Final = 1.0
"""Seconds between the polite end of a child and the other one."""

LOAD_SECONDS: Final = 60.0
LOOK_EVERY: Final = 0.5

_log: Final = logging.getLogger("tickwork.worker")


class Ended(NamedTuple):
    """A child did not come to an end with its attempt by itself."""

    is_late: bool  # it took too long
    is_told: bool  # somebody wanted it to stop
    reason: str


class Child:
    """One process, or the place for one. Used by one thread, but ended by any."""

    def __init__(self, origin: Callable[[], Origin]) -> None:
        self._origin = origin
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._lock = threading.Lock()
        self._attempts = 0  # so that nobody ends the next one instead of this one
        self._is_told = False
        self._kill_at: float | None = None

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        process = self._process
        return None if process is None else process.pid

    def begin(self) -> int:
        """The number of the attempt that is made next, for :meth:`tell`."""
        with self._lock:
            self._attempts += 1
            self._is_told, self._kill_at = False, None
            return self._attempts

    def tell(self, attempt: int) -> None:
        """Have it end: politely, and if that does not help, at once. From any thread."""
        with self._lock:
            if attempt == self._attempts:
                self._is_told = True
                self._end()

    def attempt(self, order: Order, *, keep: Callable[[Line], None]) -> Answer | Ended | Failed:
        """Let the child make one attempt. Nothing that it does can raise here.

        ``keep`` is given what it logs.
        """
        failed = self._ready()
        if failed is not None:
            # Told to end while it was still loading, it could not load.
            return Ended(is_late=False, is_told=True, reason="") if self._is_told else failed
        late_at = None if order.timeout is None else _later(order.timeout.total_seconds())
        answer: Answer | None = None
        with suppress(EOFError, OSError):
            self._send(order)
            answer = self._answer(late_at, keep)
        with self._lock:
            self._attempts += 1  # it is too late to end it
            is_told, is_ending = self._is_told, self._kill_at is not None
        if answer is not None and not isinstance(answer.outcome, Interrupted) and not is_ending:
            return answer
        code = self._buried()
        if answer is not None and is_told and isinstance(answer.outcome, Succeeded):
            return answer  # it was quicker
        return Ended(is_ending and not is_told, is_told, _told(code))

    def close(self) -> None:
        """End it, now that nothing is asked of it any more."""
        self._hang_up()
        self._buried()

    # ------------------------------------------------------------ one attempt

    def _send(self, order: Order) -> None:
        assert self._pipe is not None, order
        if not self._is_told:
            self._pipe.send(order)

    def _answer(self, late_at: float | None, keep: Callable[[Line], None]) -> Answer | None:
        """What it says; None when it ended without a word."""
        pipe, process = self._pipe, self._process
        assert pipe is not None, self
        assert process is not None, self
        # It ends with an answer, with the process, or by killing it.
        while True:
            if pipe.poll(self._patience(late_at)):
                message = pipe.recv()
                if isinstance(message, Answer):
                    return message
                if isinstance(message, Line):
                    keep(message)
                continue
            now = time.monotonic()
            with self._lock:
                if self._kill_at is None and late_at is not None and now >= late_at:
                    self._end()
                elif self._kill_at is not None and now >= self._kill_at:
                    _kill(process)
                    return None
            if process.poll() is not None and not pipe.poll(0):
                return None

    def _patience(self, late_at: float | None) -> float:
        moment = late_at if self._kill_at is None else self._kill_at
        if moment is None:
            return LOOK_EVERY
        return min(max(moment - time.monotonic(), 0.0), LOOK_EVERY)

    def _end(self) -> None:
        if self._kill_at is None:
            self._kill_at = _later(KILL_AFTER)
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(OSError):
                process.send_signal(signal.SIGTERM)

    # ------------------------------------------------------------ the process

    def _ready(self) -> Failed | None:
        """Have a process that knows the application; what went wrong, if something did."""
        if self._process is not None and self._process.poll() is None:
            return None
        self._hang_up()
        try:
            self._spawn()
            loaded = self._loaded()
        except Exception as fault:  # noqa: BLE001  # whatever it is, it is told with the run
            loaded = Loaded(f"{type(fault).__name__}: {fault}")
        if not loaded.error:
            return None
        self._buried()
        return Failed(f"Its process could not load the application: {loaded.error}")

    def _spawn(self) -> None:
        # Loaded when the first job asks for a process: few do.
        import subprocess  # noqa: PLC0415
        from multiprocessing.connection import Pipe  # noqa: PLC0415

        ours, theirs = Pipe()
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(  # noqa: S603  # our own command
                [sys.executable, "-m", "tickwork.engines.child", str(number), str(os.getpid())],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                process_group=0,  # so that what it starts can be killed with it
            )
        self._pipe = ours

    def _loaded(self) -> Loaded:
        assert self._pipe is not None, self
        self._pipe.send(Load(self._origin()))
        if not self._pipe.poll(LOAD_SECONDS):
            return Loaded(f"it took longer than {LOAD_SECONDS:.0f} s.")
        try:
            answer = self._pipe.recv()
        except EOFError:
            return Loaded("it ended while it did so.")
        assert isinstance(answer, Loaded), answer
        return answer

    def _buried(self) -> int:
        """End the process, whatever it does, and let go of it; return how it ended."""
        process, self._process = self._process, None
        self._hang_up()
        if process is None:
            return 0
        from subprocess import TimeoutExpired  # noqa: PLC0415  # loaded by now

        try:
            return process.wait(KILL_AFTER)
        except TimeoutExpired:
            _kill(process)
            return process.wait()

    def _hang_up(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


class Children:
    """A child for each thread that asks for one."""

    def __init__(self, origin: Callable[[], Origin]) -> None:
        self._origin = origin
        self._local = threading.local()
        self._all: list[Child] = []

    def own(self) -> Child:
        """The child of this thread."""
        child: Child | None = getattr(self._local, "child", None)
        if child is None:
            child = self._local.child = Child(self._origin)
            self._all.append(child)
        return child

    def close(self) -> None:
        """End all of them."""
        for child in self._all:
            child.close()


class ChildAttempts:
    """Makes attempts in children, and calls the hooks of those that were ended from outside."""

    def __init__(
        self, children: Children, *, clock: Clock, keep: Callable[[RunId, Line], None]
    ) -> None:
        self._children = children
        self._clock = clock
        self._keep = keep

    def __call__(  # noqa: PLR0917  # as the maker of attempts hands them over
        self,
        claim: Claim,
        definition: Definition,
        ctx: RunContext,
        timeout: timedelta | None,
        ended_by: Callable[[BaseException], Outcome],
        may_stop: Callable[[Callable[[], None]], None],
    ) -> Outcome:
        """Make one attempt; ``may_stop`` is told how it can be ended."""
        child = self._children.own()
        may_stop(partial(child.tell, child.begin()))
        order = Order(claim, timeout, ctx.deadline, self._clock.now(), SystemClock().monotonic())
        answer = child.attempt(order, keep=lambda line: self._keep(claim.run_id, line))
        if isinstance(answer, Answer):
            ctx.has_seen_cancel = answer.has_seen_cancel
            if answer.is_completed:
                ctx.note_completed()
            return answer.outcome
        if isinstance(answer, Failed):
            return answer
        outcome: Outcome
        if answer.is_told:
            outcome = ended_by(RuntimeError("Its process was ended."))
        elif answer.is_late and timeout is not None:
            outcome = outcome_of_exception(AttemptTimeout(claim.run_id, timeout=timeout))
        else:
            outcome = Crashed(f"Its process {answer.reason}.")
        if not isinstance(outcome, Interrupted):
            call_after_hooks(definition, ctx, outcome)
        return outcome


def call_after_hooks(definition: Definition, ctx: RunContext, outcome: Outcome) -> None:
    """Call the hooks of an attempt that another process was making, in this thread."""
    from tickwork.engines.awaiting import Waiter  # noqa: PLC0415  # few need it

    waiter = Waiter()
    try:
        hooks = after_hooks(definition, ctx, outcome)
        drive_attempt(hooks, ctx, wait=lambda what: waiter.wait(what, None))
    finally:
        waiter.close()


class ProcessEngine:
    """Threads, each of which waits for a child of its own."""

    def __init__(self, threads: Engine, children: Children) -> None:
        self._threads = threads
        self._children = children

    @property
    def slots(self) -> int:
        """How many attempts it makes at the same time."""
        return self._threads.slots

    @property
    def waiting(self) -> int:
        """How many claims it has that have not started."""
        return self._threads.waiting

    @property
    def running(self) -> int:
        """How many attempts it is making."""
        return self._threads.running

    def start(self) -> None:
        """Nothing yet: each child starts when it is first needed."""
        self._threads.start()

    def submit(self, claims: Sequence[Claim]) -> None:
        """Take these: they start in this order, as soon as there is room."""
        self._threads.submit(claims)

    def take_back(self) -> list[Claim]:
        """Give back what has not started."""
        return self._threads.take_back()

    def interrupt(self) -> list[Claim]:
        """Start nothing any more; what is being made is killed once it was given back."""
        return self._threads.interrupt()

    def unfinished(self) -> list[Claim]:
        """The claims whose attempts are being made now."""
        return self._threads.unfinished()

    def stop(self) -> None:
        """End the children."""
        self._threads.stop()
        self._children.close()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End it, and what it has started, whatever they do."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _told(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _later(seconds: float) -> float:
    return time.monotonic() + seconds
