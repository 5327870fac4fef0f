"""Every engine with the attempt runner of a worker, and without a database."""

import json
import sys
import threading
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
from tickwork._worker.attempt_runner import AttemptRunner
from tickwork._worker.attempt_store import HeldAttemptStore
from tickwork._worker.held_runs import HeldRuns
from tickwork._worker.writer import Writer
from tickwork.engines.asyncio_ import AsyncEngine
from tickwork.engines.contract import Engine, EngineSetup
from tickwork.engines.inline import InlineEngine
from tickwork.engines.processes import ProcessEngine
from tickwork.engines.threads import ThreadEngine
from tickwork.engines.wire import AppLocation
from tickwork.events.bus import EventBus
from unit.builders import a_claim

UNUSED: Any = None


class SteppedInlineEngine(InlineEngine):
    """The inline engine, with a thread that plays its owner."""

    def start(self) -> None:
        threading.Thread(target=self._step, daemon=True).start()

    def _step(self) -> None:
        while not self._is_interrupted:
            if not self.run_next():
                time.sleep(0.002)

    def stop(self) -> None:
        self.interrupt()
        super().stop()


def build_inline(setup: EngineSetup) -> Engine:
    return SteppedInlineEngine(setup, while_waiting=lambda: None)


ENGINES: dict[str, Callable[[EngineSetup], Engine]] = {
    "inline": build_inline,
    "threads": ThreadEngine,
    "asyncio": AsyncEngine,
    "processes": ProcessEngine,
}


class EngineBench:
    """One engine, and the transitions that its attempts lead to."""

    def __init__(self, kind: str, slots: int) -> None:
        self.kind = kind
        self.held = HeldRuns()
        self.clock = SystemClock()
        self.notifications = 0
        self.log: list[tuple[RunId, str]] = []
        self.writer = Writer(
            store=UNUSED,
            clock=self.clock,
            held=self.held,
            reporter=UNUSED,
            log_capture=UNUSED,
            batch=500,
        )
        self.runner = AttemptRunner(
            clock=self.clock,
            store=HeldAttemptStore(store=UNUSED, clock=self.clock, held=self.held),
            bus=EventBus(),
            find=app.registry.find,
            held=self.held,
            writer=self.writer,
            notify=self._notify,
        )
        self._names = 0
        location = AppLocation("contract.engines.jobs", "app", "", tuple(sys.path))
        self.engine = ENGINES[kind](
            EngineSetup(
                host=self.runner,
                clock=self.clock,
                slots=slots,
                construct=lambda: app.construct,
                app_location=lambda: location,
                add_log_line=lambda run_id, line: self.log.append((run_id, line.message)),
            )
        )
        self.engine.start()

    def _notify(self) -> None:
        self.notifications += 1

    def claim(self, job: str, **args: Any) -> Claim:
        self._names += 1
        name = f"{job}_too" if self.kind == "asyncio" else job
        claim = a_claim(run_id=RunId(f"run-{self._names}"), job=name, args=json.dumps(args))
        self.held.add(
            [claim], extended_at=self.clock.monotonic(), cancel_attempt=self.engine.cancel
        )
        return claim

    def submit(self, *claims: Claim) -> None:
        self.engine.submit(claims)

    def steps(self, count: int, *, seconds: float = 30) -> list[Transition]:
        """Return the transitions, once there are this many."""
        self.until(lambda: len(self.writer.done) >= count, seconds=seconds)
        return list(self.writer.done)

    def until(self, check: Callable[[], object], *, seconds: float = 30) -> None:
        # Threads, event loops and processes are real here: no test clock can speed them up.
        deadline = time.monotonic() + seconds
        while not check():
            assert time.monotonic() < deadline, "It did not happen in time."
            time.sleep(0.002)

    def interrupt(self) -> None:
        """Interrupt the engine as a worker does."""
        self.runner.leave()
        for claim in self.engine.interrupt():
            self.runner.give_back(claim, Interrupted("stopped"))
        for claim in self.engine.take_back():
            self.runner.give_back(claim, Interrupted("not started"))


@pytest.fixture(params=list(ENGINES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_bench(kind: str) -> Iterator[Callable[[int], EngineBench]]:
    made: list[EngineBench] = []

    def make(slots: int) -> EngineBench:
        made.append(EngineBench(kind, slots))
        return made[-1]

    yield make
    for bench in made:
        bench.interrupt()
        bench.engine.stop()


@pytest.fixture
def bench(make_bench: Callable[[int], EngineBench]) -> EngineBench:
    return make_bench(2)
