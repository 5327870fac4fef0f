"""A store in memory that can lose answers, or be unavailable."""

from collections.abc import Iterator
from typing import Any

import pytest

from tickwork import Tickwork
from tickwork.errors import OutcomeUnknown, StoreUnavailable
from tickwork.stores.memory import MemoryStore
from tickwork.testing import ManualClock


class FaultyStore(MemoryStore):
    """``faults`` has, by operation, what happens to each of the next calls of it.

    ``lost`` makes the call and loses the answer, ``undone`` loses both, ``away`` says
    that the store is unavailable. ``calls`` has all calls.
    """

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.faults: dict[str, list[str]] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        return self._faulty("enqueue", super().enqueue, args, kwargs)

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
        answer = None if fault == "undone" else act(*args, **kwargs)
        if fault:
            raise OutcomeUnknown("memory://", "the line went dead")
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
