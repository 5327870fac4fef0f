import asyncio
import threading
from contextvars import ContextVar

import pytest

from tickwork._client.asynchronous import hop
from tickwork._client.hops import Hops

asked_by: ContextVar[str] = ContextVar("asked_by", default="nobody")


@pytest.fixture
def hops():
    made = Hops(lambda: 1)
    yield made
    made.close()


def name() -> str:
    return threading.current_thread().name


class TestHops:
    """A few threads, made when they are needed."""

    def test_there_is_none_before_the_first_hop(self, hops):
        assert hops._pool is None
        assert hops.begin(name).result(5).startswith("tickwork-hop")

    def test_what_is_raised_is_raised_where_it_is_awaited(self, hops):
        with pytest.raises(ZeroDivisionError):
            asyncio.run(hop(hops, lambda: 1 // 0))
        with pytest.raises(ZeroDivisionError):
            hops.begin_apart(lambda: 1 // 0).result(5)

    def test_what_is_set_over_there_stays_there(self, hops):
        asked_by.set("ann")

        def change() -> str:
            before = asked_by.get()
            asked_by.set("bob")
            return before

        assert hops.begin(change).result(5) == "ann"
        assert hops.begin_apart(change).result(5) == "ann"
        assert asked_by.get() == "ann"

    def test_one_that_was_cancelled_before_it_began_is_not_done(self, hops):
        go_on = threading.Event()
        done: list[str] = []
        hops.begin(go_on.wait, 5)
        waiting = hops.begin(done.append, "it")
        assert waiting.cancel()
        go_on.set()
        hops.close()

        assert done == []

    def test_closing_waits_for_what_has_begun(self, hops):
        go_on = threading.Event()
        done: list[str] = []

        def work() -> None:
            go_on.wait(5)
            done.append("it")

        hops.begin(work)
        threading.Timer(0.05, go_on.set).start()
        hops.close()

        assert done == ["it"]

    def test_closed_it_begins_anew(self, hops):
        hops.begin(name).result(5)
        hops.close()
        hops.close()

        assert hops.begin(name).result(5)

    def test_a_child_has_none_of_the_parents_threads(self, hops):
        hops.begin(name).result(5)
        pool = hops._pool
        hops.after_fork()

        assert hops._pool is None
        assert hops.begin(name).result(5)
        pool.shutdown()


class TestHopsInHops:
    """Who hops over there gets a thread of its own: nobody waits for one in all of them."""

    def test_a_hop_in_a_hop(self, hops):
        assert hops.begin(lambda: hops.begin(name).result(5)).result(5) == "tickwork-apart"

    def test_a_coroutine_that_is_run_over_there(self, hops):
        async def inner() -> str:
            return await asyncio.create_task(hop(hops, name))

        async def outer() -> str:
            return await hop(hops, asyncio.run, inner())

        assert asyncio.run(outer()) == "tickwork-apart"

    def test_what_is_done_apart_hops_as_anybody(self, hops):
        found = hops.begin_apart(lambda: hops.begin(name).result(5)).result(5)

        assert found.startswith("tickwork-hop")

    def test_afterwards_the_caller_hops_as_before(self, hops):
        hops.begin(lambda: None).result(5)

        assert hops.begin(name).result(5).startswith("tickwork-hop")
