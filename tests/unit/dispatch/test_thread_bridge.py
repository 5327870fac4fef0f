import asyncio
import threading
from contextvars import ContextVar

import pytest

from tickwork._dispatch.thread_bridge import ThreadBridge

caller: ContextVar[str] = ContextVar("caller", default="unset")


@pytest.fixture
def bridge():
    made = ThreadBridge(lambda: 1)
    yield made
    made.close()


def name() -> str:
    return threading.current_thread().name


class TestThreadBridge:
    """A thread pool that is created when it is first used."""

    def test_there_is_no_pool_before_the_first_call(self, bridge):
        assert bridge._pool is None
        assert bridge.submit(name).result(5).startswith("tickwork-bridge")

    def test_errors_are_raised_where_the_call_is_awaited(self, bridge):
        with pytest.raises(ZeroDivisionError):
            asyncio.run(bridge.call(lambda: 1 // 0))
        with pytest.raises(ZeroDivisionError):
            bridge.submit_to_new_thread(lambda: 1 // 0).result(5)

    def test_context_variables_set_in_the_thread_stay_there(self, bridge):
        caller.set("ann")

        def change() -> str:
            before = caller.get()
            caller.set("bob")
            return before

        assert bridge.submit(change).result(5) == "ann"
        assert bridge.submit_to_new_thread(change).result(5) == "ann"
        assert caller.get() == "ann"

    def test_a_call_that_was_cancelled_before_it_began_is_not_made(self, bridge):
        go_on = threading.Event()
        done: list[str] = []
        bridge.submit(go_on.wait, 5)
        waiting = bridge.submit(done.append, "it")
        assert waiting.cancel()
        go_on.set()
        bridge.close()

        assert done == []

    def test_close_waits_for_calls_that_have_begun(self, bridge):
        go_on = threading.Event()
        done: list[str] = []

        def work() -> None:
            go_on.wait(5)
            done.append("it")

        bridge.submit(work)
        threading.Timer(0.05, go_on.set).start()
        bridge.close()

        assert done == ["it"]

    def test_it_can_be_used_after_close(self, bridge):
        bridge.submit(name).result(5)
        bridge.close()
        bridge.close()

        assert bridge.submit(name).result(5)

    def test_a_forked_child_has_no_threads_of_the_parent(self, bridge):
        bridge.submit(name).result(5)
        pool = bridge._pool
        bridge.after_fork()

        assert bridge._pool is None
        assert bridge.submit(name).result(5)
        pool.shutdown()


class TestNestedCalls:
    """A call from inside the pool gets a new thread, so that calls never wait for each other."""

    def test_a_call_inside_a_call(self, bridge):
        assert bridge.submit(lambda: bridge.submit(name).result(5)).result(5) == "tickwork-call"

    def test_a_coroutine_that_runs_in_the_thread(self, bridge):
        async def inner() -> str:
            return await asyncio.create_task(bridge.call(name))

        async def outer() -> str:
            found: str = await bridge.call(asyncio.run, inner())
            return found

        assert asyncio.run(outer()) == "tickwork-call"

    def test_a_call_from_a_new_thread_uses_the_pool(self, bridge):
        found = bridge.submit_to_new_thread(lambda: bridge.submit(name).result(5)).result(5)

        assert found.startswith("tickwork-bridge")

    def test_after_a_call_the_caller_uses_the_pool_as_before(self, bridge):
        bridge.submit(lambda: None).result(5)

        assert bridge.submit(name).result(5).startswith("tickwork-bridge")
