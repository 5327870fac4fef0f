"""``aio``: the same methods for coroutines, each one call in a thread that ends."""

import asyncio
import inspect
import os
import threading
import time
import typing
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar

import pytest

from docs import async_methods
from tickwork import RunStatus, Tickwork
from tickwork import app as app_module
from tickwork._control import locks
from tickwork._control.async_schedules import AsyncLimits, AsyncSchedules
from tickwork._control.limits import Limits
from tickwork._control.schedules import Schedules
from tickwork._dispatch import builder, emitter, jobs, runs
from tickwork._dispatch.builder import JobBuilder
from tickwork._dispatch.dispatch_options import DispatchOptionMethods
from tickwork._dispatch.jobs import AsyncDraft, Draft, Job
from tickwork._dispatch.runs import AsyncRunHandle, RunHandle
from tickwork._domain import explain, health
from tickwork.app import async_tickwork as async_app
from tickwork.app import composition
from tickwork.app.async_tickwork import AsyncTickwork
from tickwork.errors import (
    AlreadyClaimed,
    ArgumentError,
    InvalidOption,
    LockHeld,
    RunNotFound,
    RunUnsuccessful,
    WaitTimeout,
)
from tickwork.testing import ManualClock

# ---------------------------------------------------------------- kept equal

OPTIONS = {name for name in dir(DispatchOptionMethods) if not name.startswith("_")} | {"using"}
DEFINING = {
    "from_config",
    "load_config",
    "job",
    "schedule",
    "adhoc",
    "remote",
    "handler",
    "middleware",
    "calendar",
    "on",
    "on_worker_start",
    "on_worker_stop",
    "args",
    "at",
    "delay",
    "cli",
    "use_celery",
}
"""Methods that only change this process: they wait for no database."""

WORKING = {
    "start",
    "stop",
    "join",
    "forever",
    "running",
    "collect",
    "release_dead",
    "watch",
    "execute_handovers",
}
"""Methods of the worker, which has threads of its own."""

PLANNING = {"plan", "named"}
"""Methods that only make a value, for ``ctx.call`` and ``ctx.aio.call``."""

PAIRS = [
    (RunHandle, AsyncRunHandle, set()),
    (Draft, AsyncDraft, OPTIONS | PLANNING),
    (Schedules, AsyncSchedules, set()),
    (Limits, AsyncLimits, set()),
    (Tickwork, AsyncTickwork, DEFINING | WORKING),
]


def verbs_of(kind: type) -> set[str]:
    return {
        name
        for name in dir(kind)
        if not name.startswith("_") and inspect.isfunction(inspect.getattr_static(kind, name))
    }


def pairs():
    for sync, twin, others in PAIRS:
        for operation in sorted(verbs_of(sync) - others):
            yield pytest.param(sync, twin, operation, id=f"{twin.__name__}.{operation}")


def signature_of(function):
    """Its signature, with annotations that are the same wherever they are written."""
    places = (
        *(composition, async_app, builder, emitter, explain, health, jobs, locks, runs, app_module),
    )
    names = {name: value for place in places for name, value in vars(place).items()}
    hints = {
        name: repr(hint) for name, hint in typing.get_type_hints(function, localns=names).items()
    }
    signature = inspect.signature(function)
    kinds = [(p.name, p.kind, p.default) for p in signature.parameters.values()]
    return kinds, hints


@pytest.mark.parametrize(("sync", "twin", "operation"), list(pairs()))
def test_each_method_has_an_async_twin(sync, twin, operation):
    there, here = getattr(sync, operation), getattr(twin, operation)

    if operation == "lock":  # a context manager, and not a call
        assert signature_of(here)[0] == signature_of(there)[0]
        return
    assert inspect.iscoroutinefunction(here)
    assert signature_of(here) == signature_of(there)


def test_methods_that_are_one_call_are_what_the_generator_writes():
    for path, text in async_methods.contents().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run make docs"


@pytest.mark.parametrize(("sync", "twin", "others"), PAIRS)
def test_async_classes_have_no_methods_of_their_own(sync, twin, others):
    own = {"status"} if twin is AsyncRunHandle else set()  # a property cannot be awaited

    assert verbs_of(twin) - own <= verbs_of(sync)


def test_each_class_that_dispatches_has_aio():
    for kind in (Job, Draft, JobBuilder, RunHandle, Tickwork):
        assert isinstance(inspect.getattr_static(kind, "aio"), property)


# ---------------------------------------------------------------- helpers


OTHERS: "weakref.WeakSet[threading.Thread]" = weakref.WeakSet()


@pytest.fixture(autouse=True)
def _of_others():
    """Threads that existed before the test do not count."""
    OTHERS.clear()
    OTHERS.update(threading.enumerate())


def threads_of(*kinds):
    found = [each for each in threading.enumerate() if each not in OTHERS]
    return [each.name for each in found if each.name.startswith(kinds)]


def bridge_threads():
    return threads_of("tickwork-bridge")


def own_threads():
    """The threads of async calls, without those of a worker or a lock."""
    return threads_of("tickwork-bridge", "tickwork-call", "tickwork-waits")


def gone(threads, within=5.0):
    """Whether all of these threads have ended, after a moment."""
    give_up_at = time.monotonic() + within
    while time.monotonic() < give_up_at:
        if not threads():
            return True
        time.sleep(0.002)
    return False


@pytest.fixture
def double(app):
    @app.job
    def double(number: int) -> int:
        return 2 * number

    return double


# ---------------------------------------------------------------- the verbs


class TestDispatching:
    """Every way to dispatch has an async form."""

    def test_a_job_a_draft_a_builder_and_a_name(self, app, double):
        async def main():
            runs = [
                await double.aio.dispatch(1),
                await double.delay(10).aio.dispatch(number=2),
                await app.aio.dispatch("double", 3),
                await app.aio.dispatch(double, number=4),
                await app.args(number=5).aio.dispatch("double"),
                await app.schedule("triple", lambda n: 3 * n).aio.dispatch(n=6),
            ]
            runs += await double.aio.dispatch_many({"number": n} for n in (7, 8))
            runs += await app.draft.queue("q").aio.dispatch_many("double", [{"number": 9}])
            return [(await run.aio.read()).args for run in runs]

        assert asyncio.run(main()) == [
            *(f'{{"number":{n}}}' for n in range(1, 6)),
            '{"n":6}',
            *(f'{{"number":{n}}}' for n in range(7, 10)),
        ]

    def test_wrong_arguments_raise_in_the_coroutine_and_store_nothing(self, app, double):
        async def main():
            with pytest.raises(ArgumentError):
                await double.aio.dispatch(no="number")
            with pytest.raises(InvalidOption):
                await double.aio.dispatch_many(["no mapping"])

        asyncio.run(main())

        assert app.runs.recent() == []

    def test_a_generator_of_arguments_is_read_in_the_callers_thread(self, app, double):
        read_in = []

        def numbers():
            for number in range(3):
                read_in.append(threading.current_thread())
                yield {"number": number}

        asyncio.run(double.aio.dispatch_many(numbers()))

        assert set(read_in) == {threading.main_thread()}

    def test_a_sync_connection_is_rejected(self, double):
        with pytest.raises(InvalidOption, match="must be an async connection"):
            double.using(object()).aio  # noqa: B018  # to ask is enough


class TestRuns:
    """Every method of a run has an async form."""

    def test_everything_that_a_handle_does(self, app, clock, double):
        async def main():
            run = await double.aio.dispatch(21)
            assert await run.aio.status() is RunStatus.PENDING
            moved = await run.aio.delay(60)
            assert moved is run
            later = (await run.aio.read()).due_at
            assert (later - clock.now()).total_seconds() == 60
            await run.aio.at(clock.now())
            assert await app.aio.run() == 1
            assert await run.aio.wait() is RunStatus.COMPLETED
            assert await run.aio.result() == 42
            assert await run.aio.attempts() == []
            assert await run.aio.log() == []
            assert not await run.aio.cancel()
            with pytest.raises(AlreadyClaimed):
                await run.aio.at(clock.now())
            again = await run.aio.retry()
            assert await again.aio.cancel("on purpose")
            with pytest.raises(RunUnsuccessful, match="canceled"):
                await again.aio.result()
            assert (await app.aio.get_run(run.id)) == run

        asyncio.run(main())

    def test_a_run_that_is_not_there(self, app):
        async def main():
            run = await app.aio.get_run("019cb0d2-0000-7000-8000-ffffffffffff")
            with pytest.raises(RunNotFound):
                await run.aio.wait()

        asyncio.run(main())


class TestInstallPruneAndLocks:
    """The other methods of the application."""

    def test_install_and_prune(self, app, clock, double):
        async def main():
            assert await app.aio.install() >= 1
            run = await double.aio.dispatch(1)
            await app.aio.run()
            clock.advance(days=31)
            assert (await app.aio.prune()).runs == 1
            with pytest.raises(RunNotFound):
                await run.aio.read()

        asyncio.run(main())

    def test_a_lock_is_held_in_the_block_and_nowhere_else(self, app):
        async def main():
            async with app.aio.lock("nightly") as lock:
                assert not lock.is_lost
                with pytest.raises(LockHeld):
                    async with app.aio.lock("nightly"):
                        raise AssertionError("It is held.")
                with pytest.raises(LockHeld), app.lock("nightly"):
                    raise AssertionError("It is held.")
            async with app.aio.lock("nightly", ttl="10s"):
                pass

        asyncio.run(main())

    def test_an_error_in_the_block_releases_the_lock(self, app):
        async def main():
            with pytest.raises(ZeroDivisionError):
                async with app.aio.lock("nightly"):
                    raise ZeroDivisionError
            async with app.aio.lock("nightly"):
                pass

        asyncio.run(main())

    def test_close_ends_the_threads_and_the_next_use_starts_new_ones(self, app, double):
        async def main():
            await double.aio.dispatch(1)
            await app.aio.close()
            left = own_threads()
            await double.aio.dispatch(2)
            return left

        left = asyncio.run(main())
        app.close()

        assert set(left) <= {"tickwork-call"}
        assert gone(own_threads)

    def test_aio_is_a_context_manager_that_closes_the_application(self, app, double):
        async def main():
            async with app.aio as aio:
                run = await aio.dispatch("double", 21)
                await aio.run()
                return await run.aio.result()

        assert asyncio.run(main()) == 42
        assert gone(own_threads)


# ---------------------------------------------------------------- how


class TestThreads:
    """Each call is one call in a thread pool with as many threads as connections."""

    def test_a_method_is_one_call_in_a_thread(self, app, double, monkeypatch):
        async def main():
            run = await double.aio.dispatch(1)
            begin, begun = app._services.bridge.submit, []

            def counted(work, *args, **kwargs):
                begun.append(work.__name__)
                return begin(work, *args, **kwargs)

            monkeypatch.setattr(app._services.bridge, "submit", counted)
            await double.aio.dispatch(1)
            await double.aio.dispatch_many([{"number": n} for n in range(100)])
            await double.unique().aio.dispatch(1)
            await run.aio.cancel()
            await run.aio.wait()
            return begun

        assert asyncio.run(main()) == [
            *("dispatch", "dispatch_many", "dispatch", "cancel", "_read_before_wait"),
        ]

    def test_the_default_executor_of_the_loop_is_not_used(self, app, double):
        class Refusing(ThreadPoolExecutor):
            def submit(self, *_args, **_kwargs):
                raise AssertionError("These threads are the program's.")

        async def main():
            asyncio.get_running_loop().set_default_executor(Refusing(1))
            run = await double.aio.dispatch(1)
            await app.aio.run()
            await run.aio.wait()
            async with app.aio.lock("nightly"):
                pass

        asyncio.run(main())

    def test_there_are_as_many_threads_as_connections(self, app, double):
        async def main():
            await asyncio.gather(*(double.aio.dispatch(n) for n in range(100)))
            return len(bridge_threads())

        assert asyncio.run(main()) <= app._services.opened_store.connections_max
        assert len(app.runs.recent(limit=200)) == 100

    def test_context_variables_are_visible_in_the_thread(self, app):
        caller = ContextVar("caller", default="unset")
        heard = []

        @app.job
        def note() -> None:
            heard.append(caller.get())

        async def main():
            caller.set("ann")
            await note.aio.dispatch()
            await app.aio.run()

        asyncio.run(main())

        assert heard == ["ann"]

    def test_two_loops_in_two_threads_share_the_pool(self, app, double):
        def use():
            async def main():
                return [await double.aio.dispatch(n) for n in range(20)]

            asyncio.run(main())

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(app.runs.recent(limit=200)) == 80
        assert len(bridge_threads()) <= app._services.opened_store.connections_max

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_child_starts_its_own_threads(self, app, double):
        asyncio.run(double.aio.dispatch(1))  # the parent has threads now
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                asyncio.run(asyncio.wait_for(double.aio.dispatch(2), 10))
                os._exit(0)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        asyncio.run(double.aio.dispatch(3))

        assert os.waitstatus_to_exitcode(status) == 0
        assert len(app.runs.recent()) == 3

    def test_blocking_methods_work_on_a_running_loop(self, app, double):
        async def main():
            run = double.dispatch(21)
            app.run()
            return run.result()

        assert asyncio.run(main()) == 42


class TestRunning:
    """``run`` calls handlers, so it has a thread of its own."""

    def test_handlers_that_use_the_pool_never_wait_for_each_other(self, app, double):
        size = app._services.opened_store.connections_max

        @app.job
        async def spread(count: int) -> list[str]:
            runs = [await double.aio.dispatch(n) for n in range(count)]
            return [run.id for run in runs]

        spread.dispatch_many([{"count": 2}] * 2 * size)

        async def main():
            passes = [app.aio.run(batch=1) for _ in range(2 * size)]
            return await asyncio.wait_for(asyncio.gather(*passes), 30)

        assert sum(asyncio.run(main())) == 2 * size
        assert len(app.runs.recent(limit=200)) == 6 * size
        assert gone(lambda: threads_of("tickwork-call"))

    def test_log_lines_are_kept_when_passes_overlap(self, app):
        arrived = threading.Barrier(2, timeout=10)

        @app.job
        def tell(number: int, ctx_free: bool = True) -> None:
            arrived.wait()
            if number:
                time.sleep(0.05)
            import logging

            logging.getLogger("shop").warning("number %d", number)

        runs = tell.dispatch_many({"number": number} for number in range(2))

        async def main():
            await asyncio.gather(app.aio.run(batch=1), app.aio.run(batch=1))

        asyncio.run(main())

        assert [[line.message for line in run.log()] for run in runs] == [
            ["number 0"],
            ["number 1"],
        ]


class TestDueAndExecute:
    """``due`` and ``execute``, awaited."""

    def test_due_and_execute_are_a_scheduler(self, app, double):
        async def main():
            run = await double.aio.dispatch(21)
            for each in await app.aio.due():
                await app.aio.execute(each.id)
            return await run.aio.result()

        assert asyncio.run(main()) == 42


class TestCancelling:
    """A cancelled task leaves nothing half done, and no thread behind."""

    def test_a_call_that_has_begun_is_completed(self, app, double, monkeypatch):
        app.runs  # noqa: B018  # opened before it is slowed down
        add_runs, begun, go_on = (
            app._services.opened_store.add_runs,
            threading.Event(),
            threading.Event(),
        )

        def slowly(runs, **kwargs):
            begun.set()
            assert go_on.wait(10)
            return add_runs(runs, **kwargs)

        monkeypatch.setattr(app._services.opened_store, "add_runs", slowly)

        async def main():
            task = asyncio.create_task(double.aio.dispatch_many([{"number": n} for n in range(9)]))
            await asyncio.to_thread(begun.wait, 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()

        asyncio.run(main())
        app._services.bridge.close()

        assert len(app.runs.recent()) == 9

    def test_a_call_that_has_not_begun_is_dropped(self, app, double):
        go_on = threading.Event()
        busy = [
            app._services.bridge.submit(go_on.wait, 10)
            for _ in range(app._services.opened_store.connections_max)
        ]

        async def main():
            task = asyncio.create_task(double.aio.dispatch(1))
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        go_on.set()
        app._services.bridge.close()

        assert all(each.done() for each in busy)
        assert app.runs.recent() == []

    def test_a_cancelled_wait_ends_the_polling(self, app, double):
        async def main():
            run = await double.aio.dispatch(1)
            task = asyncio.create_task(run.aio.wait())
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())

        assert gone(lambda: threads_of("tickwork-waits"))

    def test_a_lock_that_was_acquired_too_late_is_released(self, app, monkeypatch):
        app.runs  # noqa: B018  # opened before it is slowed down
        acquire, begun, go_on = (
            app._services.opened_store.acquire_lock,
            threading.Event(),
            threading.Event(),
        )

        def slowly(*args, **kwargs):
            begun.set()
            assert go_on.wait(10)
            return acquire(*args, **kwargs)

        async def locked():
            async with app.aio.lock("nightly"):
                raise AssertionError("It was cancelled before.")

        async def main():
            monkeypatch.setattr(app._services.opened_store, "acquire_lock", slowly)
            task = asyncio.create_task(locked())
            await asyncio.to_thread(begun.wait, 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()
            monkeypatch.undo()

        asyncio.run(main())
        app._services.bridge.close()

        with app.lock("nightly"):
            pass

    def test_a_lock_is_released_even_if_the_release_is_cancelled(self, app):
        go_on = threading.Event()

        async def locked(inside):
            async with app.aio.lock("nightly"):
                inside.set()
                for _ in range(app._services.opened_store.connections_max):
                    app._services.bridge.submit(go_on.wait, 10)

        async def main():
            inside = asyncio.Event()
            task = asyncio.create_task(locked(inside))
            await inside.wait()
            await asyncio.sleep(0.02)  # it waits for a thread to release it in
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()

        asyncio.run(main())
        app._services.bridge.close()

        with app.lock("nightly"):
            pass

    def test_a_pass_finishes_its_attempt_and_gives_back_the_rest(self, app):
        begun, go_on, done = threading.Event(), threading.Event(), []

        @app.job
        def work(number: int) -> None:
            begun.set()
            assert go_on.wait(10)
            done.append(number)

        runs = work.dispatch_many({"number": number} for number in range(3))

        async def main():
            task = asyncio.create_task(app.aio.run())
            await asyncio.to_thread(begun.wait, 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()

        asyncio.run(main())

        assert gone(lambda: threads_of("tickwork-call"))
        assert done == [0]
        assert [run.status for run in runs] == ["completed", "pending", "pending"]
        assert [run.read().attempt for run in runs] == [1, 0, 0]


class TestWaiting:
    """Waits block no thread of the pool, and one query serves them all."""

    def test_a_hundred_waits_block_no_thread(self, app, double):
        async def main():
            runs = await double.aio.dispatch_many({"number": n} for n in range(100))
            waits = [asyncio.create_task(run.aio.result()) for run in runs]
            await asyncio.sleep(0.1)
            # All of them wait, and other verbs go through.
            await asyncio.wait_for(double.aio.dispatch(0), 5)
            while await app.aio.run(batch=50):
                pass
            return await asyncio.wait_for(asyncio.gather(*waits), 10)

        assert asyncio.run(main()) == [2 * n for n in range(100)]
        assert gone(lambda: threads_of("tickwork-waits"))

    def test_one_query_reads_all_of_them(self, app, double, monkeypatch):
        runs = double.dispatch_many({"number": n} for n in range(30))
        get_runs, looks = app._services.opened_store.get_runs, []

        def counted(ids):
            looks.append(len(ids))
            return get_runs(ids)

        async def main():
            waits = [asyncio.create_task(run.aio.wait()) for run in runs]
            await asyncio.sleep(1)  # all of them are old enough to be polled together
            monkeypatch.setattr(app._services.opened_store, "get_runs", counted)
            await asyncio.sleep(1)
            monkeypatch.undo()
            for wait in waits:
                wait.cancel()

        asyncio.run(main())

        assert len(looks) < 15  # each for itself would be a hundred
        assert max(looks) > 15

    def test_sync_and_async_waits_share_the_polling(self, app, double):
        run = double.dispatch(21)
        found = []
        threads = [threading.Thread(target=lambda: found.append(run.wait(10))) for _ in range(5)]
        for thread in threads:
            thread.start()
        app.run()
        for thread in threads:
            thread.join()

        assert found == [RunStatus.COMPLETED] * 5

    def test_a_timeout_names_the_status_of_the_run(self, double):
        run = double.dispatch(1)

        with pytest.raises(WaitTimeout, match="pending") as found:
            asyncio.run(run.aio.wait(timeout=0.05))
        with pytest.raises(WaitTimeout):
            asyncio.run(run.aio.result("20ms"))
        assert found.value.status == "pending"
        assert isinstance(found.value, TimeoutError)

    def test_an_error_of_the_store_is_raised_by_the_wait(self, app, double, monkeypatch):
        run = double.dispatch(1)

        def fail(_):
            raise ConnectionError("gone")

        async def main():
            task = asyncio.create_task(run.aio.wait(10))
            await asyncio.sleep(0.05)
            monkeypatch.setattr(app._services.opened_store, "get_runs", fail)
            with pytest.raises(ConnectionError, match="gone"):
                await task

        asyncio.run(main())


def test_an_application_in_memory_has_async_methods():
    with Tickwork("memory://", clock=ManualClock()) as app:

        @app.job
        async def double(number: int) -> int:
            return 2 * number

        async def main():
            run = await double.aio.dispatch(21)
            await app.aio.run()
            return await run.aio.result()

        assert asyncio.run(main()) == 42
