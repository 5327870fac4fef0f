import asyncio
import threading
from contextvars import ContextVar

import pytest

from tickwork._client.asynchronous import call_in_thread
from tickwork._client.thread_bridge import ThreadBridge

asked_by: ContextVar[str] = ContextVar("asked_by", default="nobody")


@pytest.fixture
def bridge():
    made = ThreadBridge(lambda: 1)
    yield made
    made.close()


def name() -> str:
    return threading.current_thread().name


class TestHops:
    """A few threads, made when they are needed."""

    def test_there_is_none_before_the_first_hop(self, bridge):
        assert bridge._pool is None
        assert bridge.submit(name).result(5).startswith("tickwork-bridge")

    def test_what_is_raised_is_raised_where_it_is_awaited(self, bridge):
        with pytest.raises(ZeroDivisionError):
            asyncio.run(call_in_thread(bridge, lambda: 1 // 0))
        with pytest.raises(ZeroDivisionError):
            bridge.submit_to_new_thread(lambda: 1 // 0).result(5)

    def test_what_is_set_over_there_stays_there(self, bridge):
        asked_by.set("ann")

        def change() -> str:
            before = asked_by.get()
            asked_by.set("bob")
            return before

        assert bridge.submit(change).result(5) == "ann"
        assert bridge.submit_to_new_thread(change).result(5) == "ann"
        assert asked_by.get() == "ann"

    def test_one_that_was_cancelled_before_it_began_is_not_done(self, bridge):
        go_on = threading.Event()
        done: list[str] = []
        bridge.submit(go_on.wait, 5)
        waiting = bridge.submit(done.append, "it")
        assert waiting.cancel()
        go_on.set()
        bridge.close()

        assert done == []

    def test_closing_waits_for_what_has_begun(self, bridge):
        go_on = threading.Event()
        done: list[str] = []

        def work() -> None:
            go_on.wait(5)
            done.append("it")

        bridge.submit(work)
        threading.Timer(0.05, go_on.set).start()
        bridge.close()

        assert done == ["it"]

    def test_closed_it_begins_anew(self, bridge):
        bridge.submit(name).result(5)
        bridge.close()
        bridge.close()

        assert bridge.submit(name).result(5)

    def test_a_child_has_none_of_the_parents_threads(self, bridge):
        bridge.submit(name).result(5)
        pool = bridge._pool
        bridge.after_fork()

        assert bridge._pool is None
        assert bridge.submit(name).result(5)
        pool.shutdown()


class TestHopsInHops:
    """Who bridge over there gets a thread of its own: nobody waits for one in all of them."""

    def test_a_hop_in_a_hop(self, bridge):
        assert bridge.submit(lambda: bridge.submit(name).result(5)).result(5) == "tickwork-call"

    def test_a_coroutine_that_is_run_over_there(self, bridge):
        async def inner() -> str:
            return await asyncio.create_task(call_in_thread(bridge, name))

        async def outer() -> str:
            return await call_in_thread(bridge, asyncio.run, inner())

        assert asyncio.run(outer()) == "tickwork-call"

    def test_what_is_done_apart_hops_as_anybody(self, bridge):
        found = bridge.submit_to_new_thread(lambda: bridge.submit(name).result(5)).result(5)

        assert found.startswith("tickwork-bridge")

    def test_afterwards_the_caller_hops_as_before(self, bridge):
        bridge.submit(lambda: None).result(5)

        assert bridge.submit(name).result(5).startswith("tickwork-bridge")
