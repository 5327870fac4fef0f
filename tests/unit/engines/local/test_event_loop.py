import asyncio
import gc
import os
import threading
from contextlib import suppress

import pytest

from tickwork._engines.attempt import Stopped
from tickwork._engines.local.event_loop import PrivateLoop


async def loop_of_its_own():
    return id(asyncio.get_running_loop())


class TestPrivateLoop:
    """An event loop for a thread without one, kept from one coroutine to the next."""

    @pytest.fixture
    def private_loop(self):
        made = PrivateLoop()
        yield made
        made.close()

    def test_it_is_the_same_loop_each_time(self, private_loop):
        assert private_loop.wait(loop_of_its_own(), None) == private_loop.wait(
            loop_of_its_own(), None
        )

    def test_what_takes_too_long_is_stopped(self, private_loop):
        with pytest.raises(Stopped):
            private_loop.wait(asyncio.sleep(10), 0.01)

    def test_a_time_out_of_its_own_is_its_own(self, private_loop):
        async def give_up():
            raise TimeoutError("mine")

        with pytest.raises(TimeoutError, match="mine"):
            private_loop.wait(give_up(), 10)

    def test_from_a_coroutine_it_is_another_loop(self, private_loop):
        async def main():
            return private_loop.wait(loop_of_its_own(), None), id(asyncio.get_running_loop())

        one, other = asyncio.run(main())
        assert one != other

    def test_two_threads_at_once(self, private_loop):
        meet = threading.Barrier(2, timeout=10)
        done: list[bool] = []

        async def arrive():
            await asyncio.to_thread(meet.wait)
            return True

        threads = [
            threading.Thread(target=lambda: done.append(private_loop.wait(arrive(), None)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert done == [True, True]

    def test_a_loop_that_was_not_closed_is_closed_with_its_owner(self):
        private_loop = PrivateLoop()
        private_loop.wait(asyncio.sleep(0), None)
        loop = private_loop._runner.get_loop()  # type: ignore[union-attr]
        del private_loop
        gc.collect()

        assert loop.is_closed()

    def test_closed_it_begins_anew(self, private_loop):
        first = private_loop.wait(loop_of_its_own(), None)
        private_loop.close()

        assert private_loop.wait(loop_of_its_own(), None)
        assert first

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_child_leaves_the_loop_to_its_parent(self, private_loop):
        private_loop.wait(asyncio.sleep(0), None)
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                private_loop.wait(asyncio.sleep(0.01), None)
                private_loop.close()
                os._exit(0)
            os._exit(1)
        _, status = os.waitpid(child, 0)

        async def woken_from_outside():
            future = asyncio.get_running_loop().create_future()
            call = asyncio.get_running_loop().call_soon_threadsafe
            threading.Timer(0.02, call, (future.set_result, "here")).start()
            return await asyncio.wait_for(future, 5)

        assert os.waitstatus_to_exitcode(status) == 0
        assert private_loop.wait(woken_from_outside(), None) == "here"
