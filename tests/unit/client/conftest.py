"""A store in memory that can be told to lose answers, or to be away."""

from collections.abc import Iterator
from typing import Any

import pytest

from tickwork import Tickwork
from tickwork.errors import OutcomeUnknown, StoreUnavailable
from tickwork.stores.memory import MemoryStore
from tickwork.testing import ManualClock


class FaultyStore(MemoryStore):
    """``faults`` has, by verb, what happens to each of the next calls of it.

    ``lost`` does what was asked and loses the answer, ``undone`` loses both, ``away`` says
    that nobody was reached. ``calls`` has what was asked for.
    """

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.faults: dict[str, list[str]] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def enqueue(self, *args: Any, **said: Any) -> Any:
        return self._faulty("enqueue", super().enqueue, args, said)

    def acquire_lock(self, *args: Any, **said: Any) -> Any:
        return self._faulty("acquire_lock", super().acquire_lock, args, said)

    def release_lock(self, *args: Any, **said: Any) -> Any:
        return self._faulty("release_lock", super().release_lock, args, said)

    def renew_lock(self, *args: Any, **said: Any) -> Any:
        return self._faulty("renew_lock", super().renew_lock, args, said)

    def get_runs(self, *args: Any, **said: Any) -> Any:
        return self._faulty("get_runs", super().get_runs, args, said)

    def _faulty(self, verb: str, act: Any, args: Any, said: Any) -> Any:
        self.calls.append((verb, said))
        fault = self.faults[verb].pop(0) if self.faults.get(verb) else ""
        if fault == "away":
            raise StoreUnavailable("memory://", "nobody answers")
        answer = None if fault == "undone" else act(*args, **said)
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
