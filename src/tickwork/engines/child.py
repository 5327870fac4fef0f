"""A child process of a worker: loads the application, and makes one attempt at a time.

It ends when its parent does: the pipe between them is closed then, and on Linux the system
sees to it even while a handler holds everything up.
"""

import ctypes
import importlib
import importlib.util
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from typing import Any, Final

from tickwork._define.context import CURRENT, RunContext
from tickwork._domain.outcome import Failed, Interrupted, Outcome, bounded
from tickwork._domain.run import Claim
from tickwork._kernel.clock import SystemClock
from tickwork._kernel.codec import decode
from tickwork.engines.inline import InlineEngine
from tickwork.engines.invoke import Stopped
from tickwork.engines.wire import Answer, Here, Line, Load, Loaded, Order, Origin

_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_MESSAGE_MAX: Final = 2_000
_MAIN: Final = "__tickwork_main__"


class ChildClock:
    """The database's time, as the parent told it with its last order."""

    def __init__(self) -> None:
        self._base = SystemClock()
        self._told = self._base.now(), self._base.monotonic()

    def tell(self, now: datetime, monotonic: float) -> None:
        """It was this moment, when the machine's clock said so."""
        self._told = now, monotonic

    def now(self) -> datetime:
        """This moment."""
        now, then = self._told
        return now + timedelta(seconds=self._base.monotonic() - then)

    def monotonic(self) -> float:
        """As the machine's."""
        return self._base.monotonic()


class ChildDesk:
    """Carries a handler's words to the store, by way of the application that was loaded.

    Most handlers say nothing, and then no connection is made.
    """

    def __init__(self, app: Any, told: Callable[[], bool]) -> None:
        self._app = app
        self._is_told = told

    def save(
        self, claim: Claim, *, progress: str | None = None, checkpoint: str | None = None
    ) -> bool:
        """Keep it with the run; False when the claim was lost."""
        kept: bool = self._app.desk.save(claim, progress=progress, checkpoint=checkpoint)
        return kept

    def complete(self, claim: Claim, connection: object, *, result: str | None) -> bool:
        """Finish the run inside the transaction of this connection; False when it was lost."""
        is_ours: bool = self._app.desk.complete(claim, connection, result=result)
        return is_ours

    async def complete_async(self, claim: Claim, connection: object, *, result: str | None) -> bool:
        """The same for an async connection."""
        is_ours: bool = await self._app.desk.complete_async(claim, connection, result=result)
        return is_ours

    def has_landed(self, claim: Claim) -> bool:
        """Whether the run was completed under this claim, for everybody to see."""
        has_landed: bool = self._app.desk.has_landed(claim)
        return has_landed

    def shall_stop(self, claim: Claim) -> bool:  # noqa: ARG002  # there is but one
        """Whether this process is being ended."""
        return self._is_told()

    def is_canceled(self, claim: Claim) -> bool:
        """As above: the parent decides what it means."""
        return self.shall_stop(claim)


class LineSender(logging.Handler):
    """Sends what is logged during an attempt to the parent, line by line: no crash undoes it."""

    def __init__(self, send: Callable[[Line], None], clock: ChildClock) -> None:
        super().__init__()
        self._send = send
        self._clock = clock

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record, if an attempt is being made here."""
        if CURRENT.get() is None:
            return
        try:
            message = self.format(record)
        except Exception:  # noqa: BLE001  # a record with the wrong arguments must not fail a run
            message = str(record.msg)
        message = bounded(message, _MESSAGE_MAX)
        with suppress(OSError):
            self._send(Line(self._clock.now(), record.levelname, record.name, message))


class Child:
    """Takes orders until the pipe is closed."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._clock = ChildClock()
        self._is_told = False
        self._app: Any = None

    def run(self) -> None:
        """Work. It ends with the parent, or when it is told to."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the parent
        signal.signal(signal.SIGTERM, self._told)
        threading.Thread(target=self._listen, name="tickwork-parent", daemon=True).start()
        logging.getLogger().addHandler(LineSender(self._send, self._clock))
        with suppress(Stopped):
            # It ends as it says above.
            while not self._is_told:
                message = self._orders.get()
                if isinstance(message, Load):
                    self._send(self._load(message.origin))
                elif isinstance(message, Order):
                    self._send(self._made(message))

    def _told(self, _number: int, _frame: object) -> None:
        # Raised in whatever runs now: a handler can clean up behind itself, for a moment.
        if not self._is_told:
            self._is_told = True
            raise Stopped

    def _listen(self) -> None:
        # It ends when the parent hangs up, or is gone.
        while True:
            try:
                self._orders.put(self._pipe.recv())
            except (EOFError, OSError):
                os._exit(0)

    def _send(self, message: Loaded | Line | Answer) -> None:
        with self._sending:
            self._pipe.send(message)

    def _load(self, origin: Origin) -> Loaded:
        sys.path[:] = origin.path
        try:
            if origin.module:
                module = importlib.import_module(origin.module)
            else:
                module = _loaded_file(origin.file)
            self._app = getattr(module, origin.attribute)
        except Stopped:
            raise
        except BaseException as fault:  # noqa: BLE001  # a user's module may raise anything
            return Loaded(f"{type(fault).__name__}: {fault}")
        return Loaded()

    def _made(self, order: Order) -> Answer:
        self._clock.tell(order.now, order.monotonic)
        desk = ChildDesk(self._app, lambda: self._is_told)
        claim = order.claim
        ctx = RunContext(claim, desk=desk, args=decode(claim.args), deadline=order.deadline)
        outcome = self._outcome(order, ctx)
        return Answer(outcome, ctx.has_seen_cancel, ctx.is_completed)

    def _outcome(self, order: Order, ctx: RunContext) -> Outcome:
        definition = self._app.registry.find(order.claim.job)
        if definition is None:
            return Failed(
                "Its process does not know the job: it must be defined when the module of the "
                "application is imported.",
                retry=False,
            )
        engine = InlineEngine(clock=self._clock, construct=lambda: self._app.construct)
        try:
            return engine(definition, ctx, None)  # the parent ends what takes too long
        except KeyboardInterrupt:
            return Failed("KeyboardInterrupt")  # Ctrl-C does not reach us: the handler raised it
        except Stopped:
            self._is_told = True
            return Interrupted("Its process was ended.")
        finally:
            engine.close()


def _loaded_file(file: str) -> Any:
    spec = importlib.util.spec_from_file_location(_MAIN, file)
    assert spec is not None, file
    assert spec.loader is not None, file
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MAIN] = module
    spec.loader.exec_module(module)
    return module


def _end_with(parent: int) -> None:
    """Have the system kill us when the parent is gone; where it cannot, the pipe tells."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def main() -> None:
    """Be a child of the process that started us."""
    number, parent = map(int, sys.argv[1:3])
    _end_with(parent)
    Here.is_child = True
    os.set_inheritable(number, False)  # what a handler starts must not hold it open
    Child(Connection(number)).run()


if __name__ == "__main__":
    main()
