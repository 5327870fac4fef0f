"""Every engine with the attempt runner of a worker, and without a database."""

import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from contract.engines import jobs
from tickwork._engines.contract import Engine, EngineSetup
from tickwork._engines.local.asyncio_ import AsyncEngine
from tickwork._engines.local.inline import InlineEngine
from tickwork._engines.local.processes import ProcessEngine
from tickwork._engines.local.threads import ThreadEngine
from tickwork_conformance.engines import EngineHarness, TestedEngine, harness

__all__ = ["harness"]

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


ENGINES: dict[str, TestedEngine] = {
    "inline": TestedEngine(build_inline, can_end_attempts=False),
    "threads": TestedEngine(ThreadEngine, can_end_attempts=False),
    "asyncio": TestedEngine(AsyncEngine, calls_coroutines=True),
    "processes": TestedEngine(ProcessEngine),
}


@pytest.fixture(params=list(ENGINES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tested_engine(kind: str) -> TestedEngine:
    return ENGINES[kind]


@pytest.fixture
def make_harness(tested_engine: TestedEngine) -> Iterator[Callable[[int], EngineHarness]]:
    """As in the suite, with more jobs."""
    made: list[EngineHarness] = []

    def make(slots: int, module: ModuleType = jobs) -> EngineHarness:
        made.append(EngineHarness(tested_engine, slots, module))
        return made[-1]

    yield make
    for each in made:
        each.interrupt()
        each.engine.stop()
