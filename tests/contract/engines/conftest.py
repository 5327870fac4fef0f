"""Every engine on its bench: with hands that make attempts, and no database behind them."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contract.engines.jobs import app
from tickwork._domain.identity import RunId
from tickwork._domain.outcome import Interrupted
from tickwork._domain.run import Claim
from tickwork._domain.transitions import Transition
from tickwork._kernel.clock import SystemClock
from tickwork._worker.attempts import Attempts
from tickwork._worker.desk import HeldDesk
from tickwork._worker.held import HeldRuns
from tickwork._worker.making import AsyncMaker, Hands, Maker, ProcessMaker
from tickwork._worker.writer import Writer
from tickwork.engines.asyncio_ import AsyncEngine, attempt_on_loop
from tickwork.engines.contract import Engine
from tickwork.engines.inline import InlineEngine
from tickwork.engines.processes import ChildAttempts, Children, ProcessEngine
from tickwork.engines.threads import ThreadEngine
from tickwork.engines.wire import Origin
from tickwork.events.bus import EventBus
from unit.builders import a_claim

NOBODY: Any = None


class Bench:
    """One engine, and what it hands over."""

    def __init__(self, kind: str, slots: int) -> None:
        self.kind = kind
        self.held = HeldRuns()
        self.clock = SystemClock()
        self.writer = Writer(
            store=NOBODY,
            clock=self.clock,
            held=self.held,
            reporter=NOBODY,
            keeper=NOBODY,
            batch=500,
        )
        attempts = Attempts(
            clock=self.clock,
            desk=HeldDesk(store=NOBODY, clock=self.clock, held=self.held),
            bus=EventBus(),
            find=app.registry.find,
        )
        self.hands = Hands(clock=self.clock, attempts=attempts, held=self.held, writer=self.writer)
        self.calls = 0
        self._names = 0
        self.engine: Engine = getattr(self, f"_{kind}")(slots)
        self.engine.start()

    # ------------------------------------------------------------ engines

    def _threads(self, slots: int) -> Engine:
        maker = Maker(
            self.hands,
            engine=lambda: InlineEngine(clock=self.clock, construct=lambda: app.construct),
        )
        return ThreadEngine(slots=slots, make=maker.make, call=self._call, done=self._done)

    def _asyncio(self, slots: int) -> Engine:
        engine: AsyncEngine
        maker = AsyncMaker(
            self.hands,
            attempt=lambda *told: attempt_on_loop(*told, construct=app.construct),
            stop=lambda claim: engine.cancel(claim),  # noqa: PLW0108  # it is made below
        )
        engine = AsyncEngine(slots=slots, make=maker.make, call=self._call, done=self._done)
        return engine

    def _processes(self, slots: int) -> Engine:
        origin = Origin("contract.engines.jobs", "app", "", tuple(sys.path))
        children = Children(lambda: origin)
        attempt = ChildAttempts(children, clock=self.clock, keep=lambda _run, _line: None)
        maker = ProcessMaker(self.hands, attempt=attempt)
        threads = ThreadEngine(slots=slots, make=maker.make, call=self._call, done=self._done)
        return ProcessEngine(threads, children)

    def _call(self) -> None:
        self.calls += 1

    def _done(self) -> int:
        return len(self.writer.done)

    # ------------------------------------------------------------ what a test does

    def claim(self, job: str, **args: Any) -> Claim:
        self._names += 1
        name = f"{job}_too" if self.kind == "asyncio" else job
        claim = a_claim(run_id=RunId(f"run-{self._names}"), job=name, args=json.dumps(args))
        self.held.add([claim], extended_at=self.clock.monotonic())
        return claim

    def submit(self, *claims: Claim) -> None:
        self.engine.submit(claims)

    def steps(self, count: int, *, seconds: float = 30) -> list[Transition]:
        """What was handed over, once there are so many."""
        self.until(lambda: len(self.writer.done) >= count, seconds=seconds)
        return list(self.writer.done)

    def until(self, check: Callable[[], object], *, seconds: float = 30) -> None:
        # Threads, loops and processes are real here, and no clock of ours can hurry them.
        deadline = time.monotonic() + seconds
        while not check():
            assert time.monotonic() < deadline, "It did not happen in time."
            time.sleep(0.002)

    def interrupt(self) -> None:
        """As a worker does it."""
        self.hands.leave()
        for claim in self.engine.interrupt():
            self.hands.give_back(claim, Interrupted("as told"))
        for claim in self.engine.take_back():
            self.hands.give_back(claim, Interrupted("not begun"))


@pytest.fixture(params=["threads", "asyncio", "processes"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_bench(kind: str) -> Iterator[Callable[[int], Bench]]:
    made: list[Bench] = []

    def make(slots: int) -> Bench:
        made.append(Bench(kind, slots))
        return made[-1]

    yield make
    for bench in made:
        bench.interrupt()
        bench.engine.stop()


@pytest.fixture
def bench(make_bench: Callable[[int], Bench]) -> Bench:
    return make_bench(2)
