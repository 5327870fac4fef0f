"""The conformance suite for stores.

A test module imports everything from here, and has a fixture ``store``, which opens an empty store
with the clock of the fixture ``clock``:

    from tickwork_conformance.stores import *

    @pytest.fixture
    def store(tmp_path, clock): ...
"""

from importlib import import_module
from pkgutil import iter_modules

import pytest

from tickwork._stores.contract import Store
from tickwork.testing.clock import ManualClock
from tickwork_conformance.builders import BOB, NOON, StoreDriver


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands at noon."""
    return ManualClock(NOON)


@pytest.fixture
def worker(store: Store, clock: ManualClock) -> StoreDriver:
    return StoreDriver(store, clock)


@pytest.fixture
def other_worker(store: Store, clock: ManualClock) -> StoreDriver:
    return StoreDriver(store, clock, BOB)


def _load_tests() -> dict[str, object]:
    """The tests of all modules here. Their names differ."""
    modules = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if name.startswith(("Test", "test_")) and value.__module__ == module.__name__
    }


_tests = _load_tests()
globals().update(_tests)
__all__ = ["clock", "other_worker", "worker", *_tests]  # noqa: PLE0604  # computed
