"""One suite, every store. A new store is one more line in STORES."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

import pytest

from contract.builders import BOB, NOON, Hands
from tickwork._kernel.clock import Clock
from tickwork.stores.contract import Store
from tickwork.stores.memory import MemoryStore
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.testing import ManualClock

Opener: TypeAlias = Callable[[pytest.FixtureRequest, Clock], AbstractContextManager[Store]]
"""Gives a fresh, empty, installed store. Other fixtures are had by ``request.getfixturevalue``."""


@contextmanager
def open_memory(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Store]:
    yield MemoryStore(clock)


@contextmanager
def open_sqlite(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Store]:
    # Nothing here is about power cuts, and waiting for the disk is most of the time.
    path = request.getfixturevalue("tmp_path") / "jobs.db"
    store = SqliteStore(path, synchronous="NORMAL", clock=clock)
    store.install()
    try:
        yield store
    finally:
        store.close()


STORES: dict[str, Opener] = {
    "memory": open_memory,
    "sqlite": open_sqlite,
}
SERVERS = frozenset({"postgres", "mariadb"})
"""Stores that need a private server of the same name: their tests get its marker."""


def _parameters() -> list[object]:
    return [
        pytest.param(name, marks=[pytest.mark.servers(name)] if name in SERVERS else [])
        for name in STORES
    ]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture(params=_parameters())
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Store]:
    with STORES[request.param](request, clock) as opened:
        yield opened


@pytest.fixture
def worker(store: Store, clock: ManualClock) -> Hands:
    return Hands(store, clock)


@pytest.fixture
def other_worker(store: Store, clock: ManualClock) -> Hands:
    return Hands(store, clock, BOB)
