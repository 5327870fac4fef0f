"""For all unit tests: an application on a store that can lose answers, and modules without a file.

modules["shop"] = "import blog"      can be imported, and imported again
"""

import sys
from collections.abc import Iterator
from datetime import timedelta
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from tickwork import Tickwork
from tickwork._stores.sqlite.memory import MemoryStore
from tickwork.errors import OutcomeUnknown, StoreBusy, StoreUnavailable
from tickwork.testing import ManualClock


class FaultyStore(MemoryStore):
    """A store in memory that can lose answers, or be unavailable.

    ``faults`` has, by operation, what happens to each of the next calls of it.

    ``lost`` makes the call and loses the answer, ``undone`` loses both, ``late`` answers too late,
    ``away`` says that the store is unavailable, ``busy`` that it is locked, ``rejected`` that it
    rejects the call. ``calls`` has all calls.
    """

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.faults: dict[str, list[str]] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def add_runs(self, *args: Any, **kwargs: Any) -> Any:
        return self._faulty("add_runs", super().add_runs, args, kwargs)

    def acquire_lock(self, *args: Any, **kwargs: Any) -> Any:
        return self._faulty("acquire_lock", super().acquire_lock, args, kwargs)

    def release_lock(self, *args: Any, **kwargs: Any) -> Any:
        return self._faulty("release_lock", super().release_lock, args, kwargs)

    def renew_lock(self, *args: Any, **kwargs: Any) -> Any:
        return self._faulty("renew_lock", super().renew_lock, args, kwargs)

    def get_runs(self, *args: Any, **kwargs: Any) -> Any:
        return self._faulty("get_runs", super().get_runs, args, kwargs)

    def _faulty(self, operation: str, act: Any, args: Any, kwargs: Any) -> Any:
        self.calls.append((operation, kwargs))
        fault = self.faults[operation].pop(0) if self.faults.get(operation) else ""
        if fault == "away":
            raise StoreUnavailable("memory://", "no answer")
        if fault == "busy":
            raise StoreBusy("memory://", waited=timedelta(seconds=1))
        if fault == "rejected":
            raise RuntimeError("an error of the driver")
        answer = None if fault == "undone" else act(*args, **kwargs)
        if fault:
            is_late = fault == "late"
            raise OutcomeUnknown("memory://", "the line went dead", has_timed_out=is_late)
        return answer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> FaultyStore:
    return FaultyStore(clock)


@pytest.fixture
def app(store: FaultyStore, clock: ManualClock) -> Iterator[Tickwork]:
    with Tickwork("memory://", store=store, clock=clock) as made:
        yield made


class Modules(dict[str, str], MetaPathFinder, Loader):
    """Sources by module name, on Python's own way to find them."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name not in self:
            return None
        is_package = any(other.startswith(f"{name}.") for other in self)
        return ModuleSpec(name, self, origin=f"{name}.py", is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        text = self[module.__name__]
        exec(compile(text, f"{module.__name__}.py", "exec"), module.__dict__)


@pytest.fixture
def modules() -> Iterator[Modules]:
    before = set(sys.modules)
    made = Modules()
    sys.meta_path.insert(0, made)
    yield made
    sys.meta_path.remove(made)
    for name in set(sys.modules) - before:
        if name in made:
            del sys.modules[name]
