import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tickwork import Tickwork
from tickwork._stores.sqlite.memory import MemoryStore
from tickwork.app import composition
from tickwork.app.composition import Services, built_once
from tickwork.errors import InvalidOption
from tickwork.testing import ManualClock

ALWAYS = {"opened_store", "clock"}
NOW_ONLY: Any = SimpleNamespace(now=ManualClock().now)
DISPATCHING = ALWAYS | {"store", "inserter", "runs"}


@pytest.fixture
def app():
    with Tickwork("memory://") as made:
        made.job(name="double")(lambda number: 2 * number)
        yield made


def built(app):
    kinds = vars(Services)
    return {name for name in vars(app._services) if isinstance(kinds.get(name), built_once)}


class TestServices:
    """Services are built when they are first used, and only then."""

    def test_defining_jobs_builds_nothing(self, app):
        assert built(app) == set()

    def test_a_dispatch_builds_only_what_it_uses(self, app):
        app.dispatch("double", 1)

        assert built(app) == DISPATCHING

    def test_a_service_is_built_once(self, app):
        assert app.runs is app.runs
        assert app._services.passes is app._services.passes

    def test_close_drops_all_but_the_store_and_the_clock(self, app):
        runs, clock = app.runs, app.clock
        app.run()
        app.close()

        assert built(app) == ALWAYS
        assert app.runs is not runs
        assert app.clock is clock

    def test_a_forked_child_builds_its_own(self, app):
        runs, lock = app.runs, app._services.building
        app.run()
        app._services.after_fork()

        assert built(app) == ALWAYS
        assert app._services.building is not lock
        assert app.runs is not runs

    def test_threads_get_the_same_service(self, app, monkeypatch):
        opened = []

        def open_slowly(url):
            time.sleep(0.02)
            opened.append(MemoryStore())
            return opened[-1]

        monkeypatch.setattr(composition, "open_store", open_slowly)
        found = []
        threads = [
            threading.Thread(target=lambda name=name: found.append(getattr(app._services, name)))
            for name in ("runs", "limits", "runs", "opened_store", "passes", "runs")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)

        assert len(opened) == 1
        assert len(found) == len(threads)
        assert found.count(app.runs) == 3


class TestSwapped:
    """Another store and clock are used in the block, and the own ones afterwards."""

    def test_services_are_built_anew_in_the_block_and_kept_for_afterwards(self, app):
        clock = ManualClock()
        run, runs = app.dispatch("double", 1), app.runs

        with app._services.swapped(MemoryStore(clock), clock):
            assert app.clock is clock
            assert app.runs is not runs
            assert app.runs.recent() == []

        assert app.runs is runs
        assert [each.id for each in app.runs.recent()] == [run.id]

    def test_an_error_in_the_block_restores_them_as_well(self, app):
        store = app._services.store

        def fail():
            with app._services.swapped(MemoryStore()):
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert app._services.store is store


class TestClocks:
    """A clock has now() and monotonic(). Anything else is refused where it is given."""

    def test_a_clock_without_monotonic_is_refused(self):
        with pytest.raises(InvalidOption, match=r"clock must have now\(\) and monotonic\(\)"):
            Tickwork("memory://", clock=NOW_ONLY)

    def test_so_is_one_for_a_block(self, app):
        with (
            pytest.raises(InvalidOption, match="clock must have"),
            app._services.swapped(MemoryStore(ManualClock()), NOW_ONLY),
        ):
            pass
