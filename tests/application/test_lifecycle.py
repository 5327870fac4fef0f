"""``on_worker_start`` and ``on_worker_stop``, and a worker on the caller's event loop."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tickwork import RunContext, Tickwork
from tickwork.errors import AlreadyStarted, DefinitionError, InvalidOption, WorkerStartFailed


@pytest.fixture
def app() -> Iterator[Tickwork]:
    with Tickwork("memory://") as app:
        yield app


class TestHooks:
    def test_they_are_called_before_the_first_and_after_the_last_attempt(self, app):
        seen: list[str] = []

        @app.on_worker_start
        def open_pool() -> None:
            seen.append("start 1")

        app.on_worker_start(lambda: seen.append("start 2"))
        app.on_worker_stop(lambda: seen.append("stop 1"))
        app.on_worker_stop(lambda: seen.append("stop 2"))
        run = app.schedule("it", lambda: seen.append("run")).dispatch()

        with app.running():
            run.wait(10)

        assert seen == ["start 1", "start 2", "run", "stop 2", "stop 1"]

    def test_coroutines_run_on_the_loop_of_the_handlers(self, app):
        seen: dict[str, asyncio.AbstractEventLoop] = {}

        @app.on_worker_start
        async def connect() -> None:
            await asyncio.sleep(0)
            seen["start"] = asyncio.get_running_loop()

        @app.on_worker_stop
        async def disconnect() -> None:
            await asyncio.sleep(0)
            seen["stop"] = asyncio.get_running_loop()

        @app.job
        async def work() -> None:
            seen["run"] = asyncio.get_running_loop()

        run = work.dispatch()
        with app.running():
            run.wait(10)

        assert seen["start"] is seen["run"] is seen["stop"]
        assert seen["run"].is_closed()

    def test_a_failure_at_the_start_is_an_error(self, app):
        seen: list[str] = []

        @app.on_worker_start
        async def connect() -> None:
            raise OSError("no route")

        app.on_worker_start(lambda: seen.append("not called"))
        app.schedule("it", lambda: seen.append("run")).dispatch()

        with pytest.raises(
            WorkerStartFailed, match=r"connect raised an exception\.\nOSError: no route"
        ) as caught:
            app.start()

        assert isinstance(caught.value.__cause__, OSError)
        assert seen == []
        assert app.status()["workers"] == []
        assert "tickwork-asyncio" not in {thread.name for thread in threading.enumerate()}

    def test_a_failure_at_the_stop_is_logged(self, app, caplog):
        seen: list[str] = []
        app.on_worker_stop(lambda: seen.append("first"))
        app.on_worker_stop(lambda: 1 / 0)

        with app.running():
            pass

        assert seen == ["first"]
        assert "failed while the worker stopped" in caplog.text

    def test_they_take_no_arguments(self, app):
        with pytest.raises(DefinitionError, match="must take no arguments"):
            app.on_worker_start(lambda worker: None)
        with pytest.raises(DefinitionError, match="needs a function"):
            app.on_worker_stop(3)

    def test_a_pass_calls_none(self, app):
        app.on_worker_start(lambda: 1 / 0)
        run = app.schedule("it", lambda: "done").dispatch()

        app.run()

        assert run.result() == "done"


class TestLoops:
    """Coroutines on the caller's loop share its clients, locks and queues."""

    @pytest.fixture
    def work(self, app):
        @app.job
        async def work(ctx: RunContext) -> str:
            await asyncio.sleep(0.01)
            return str(id(asyncio.get_running_loop()))

        return work

    def test_async_with_runs_them_on_the_loop_of_the_caller(self, app, work):
        seen: list[asyncio.AbstractEventLoop] = []

        @app.on_worker_start
        async def connect() -> None:
            seen.append(asyncio.get_running_loop())

        @app.on_worker_stop
        async def disconnect() -> None:
            seen.append(asyncio.get_running_loop())

        async def main() -> bool:
            async with app.aio.running(threads=1):
                run = await work.aio.dispatch()
                result: str = await run.aio.result(timeout=10)
            loop = asyncio.get_running_loop()
            assert seen == [loop, loop]
            assert not loop.is_closed()
            return result == str(id(loop))

        assert asyncio.run(asyncio.wait_for(main(), 30))

    def test_attempts_that_run_at_the_end_are_drained(self, app):
        is_begun, seen = asyncio.Event(), list[str]()

        @app.job
        async def long() -> None:
            is_begun.set()  # it runs on the loop of the test
            await asyncio.sleep(0.2)
            seen.append("ended")

        async def main() -> None:
            async with app.aio.running():
                await long.aio.dispatch()
                await is_begun.wait()

        asyncio.run(asyncio.wait_for(main(), 30))

        assert seen == ["ended"]

    def test_a_task_that_is_cancelled_stops_the_worker(self, app, work):
        async def serve(is_ready: asyncio.Event) -> None:
            async with app.aio.running():
                is_ready.set()
                await asyncio.sleep(60)

        async def main() -> None:
            is_ready = asyncio.Event()
            task = asyncio.create_task(serve(is_ready))
            await is_ready.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with app.aio.running():
                pass

        asyncio.run(asyncio.wait_for(main(), 30))

    def test_a_second_worker_is_refused_and_the_first_goes_on(self, app, work):
        async def main() -> None:
            async with app.aio.running():
                with pytest.raises(AlreadyStarted):
                    async with app.aio.running():
                        pass
                run = await work.aio.dispatch()
                await run.aio.result(timeout=10)

        asyncio.run(asyncio.wait_for(main(), 30))

    def test_a_loop_of_another_thread(self, app, work):
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            with app.running(loop=loop):
                assert work.dispatch().result(timeout=10) == str(id(loop))
            assert loop.is_running()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    @pytest.mark.parametrize("count", [0, 1, 2])
    def test_join_returns_how_many_attempts_could_not_be_ended(self, app, monkeypatch, count):
        monkeypatch.setattr("tickwork._worker.services.engine_services.INTERRUPT_SECONDS", 0.0)
        begun, may_end = threading.Semaphore(0), threading.Event()

        @app.job
        def ignores_everything() -> None:
            begun.release()
            may_end.wait(30)

        for _ in range(count):
            ignores_everything.dispatch()
        app.start(threads=3, drain=0)
        for _ in range(count):
            assert begun.acquire(timeout=10)
        app.stop()

        assert app.join() == count
        may_end.set()

    def test_calls_that_would_block_the_loop_are_refused(self, app):
        async def main() -> None:
            loop = asyncio.get_running_loop()
            with pytest.raises(InvalidOption, match="this call would block it"):
                app.start(loop=loop)
            async with app.aio.running():
                app.stop()
                with pytest.raises(InvalidOption, match="this call would block it"):
                    app.join()
            assert app.join() == 0

        asyncio.run(asyncio.wait_for(main(), 30))

    def test_a_wait_for_a_coroutine_of_the_same_loop_is_refused(self, app, work):
        async def main() -> None:
            async with app.aio.running():
                run = await work.aio.delay("1h").dispatch()
                with pytest.raises(InvalidOption, match=r"await run\.aio\.result"):
                    run.result(timeout=5)

        asyncio.run(asyncio.wait_for(main(), 30))

    def test_a_loop_that_does_not_run_is_refused(self, app):
        loop = asyncio.new_event_loop()
        with pytest.raises(InvalidOption, match="must be running"):
            app.start(loop=loop)
        loop.close()
