import threading
from datetime import timedelta

import pytest

from tickwork import RunStatus
from tickwork.errors import StoreUnavailable, WaitTimeout


@pytest.fixture
def send(app):
    @app.job
    def send(to: str) -> str:
        return to

    return send


class TestHandles:
    """A handle holds its id; everything else is read from the store."""

    def test_dispatching_reads_nothing(self, store, send):
        run = send.dispatch("ann")

        assert [operation for operation, _ in store.calls] == ["add_runs"]
        assert run.status is RunStatus.PENDING

    def test_handles_on_the_same_run_are_equal(self, app, send):
        run, other = send.dispatch("ann"), send.dispatch("ann")

        assert run == app.get_run(run.id) != other
        assert run != run.id


class TestWaiting:
    """A wait ends when the run finishes, when its time is up, or when the store fails."""

    def test_a_run_that_finishes_between_the_last_poll_and_the_timeout(
        self, app, store, send, monkeypatch
    ):
        run = send.dispatch("ann")
        look = store.get_runs
        monkeypatch.setattr(app.runs.waiter, "_read_runs", lambda ids: [])
        monkeypatch.setattr(app.runs.waiter, "_check", lambda waits: None)
        threading.Timer(0.05, app.run).start()

        assert run.wait(timeout=0.5) is RunStatus.COMPLETED
        assert look([run.id])

    def test_an_unavailable_store_raises(self, store, send):
        run = send.dispatch("ann")
        threading.Timer(0.05, lambda: store.faults.update(get_runs=["away"])).start()

        with pytest.raises(StoreUnavailable):
            run.wait(timeout=10)

    def test_a_zero_or_negative_timeout_reads_once(self, send):
        run = send.dispatch("ann")

        for timeout in (0, timedelta(0), "0s"):
            with pytest.raises(WaitTimeout):
                run.wait(timeout)

    def test_many_threads_wait_for_many_runs(self, app, send):
        runs = send.dispatch_many({"to": str(n)} for n in range(20))
        found: dict[int, object] = {}

        def wait(place):
            found[place] = runs[place].result(timeout=10)

        threads = [threading.Thread(target=wait, args=(n,)) for n in range(20)]
        for thread in threads:
            thread.start()
        while app.run():
            pass
        for thread in threads:
            thread.join()

        assert found == {n: str(n) for n in range(20)}


class TestReading:
    """Attempts, log and lists of runs."""

    def test_attempts_and_log(self, app):
        import logging

        @app.job(retries={"max": 2, "delay": 0})
        def work() -> None:
            logging.getLogger("shop").warning("trying")
            raise ValueError("no")

        run = work.dispatch()
        app.run()
        app.run()

        assert [attempt.error for attempt in run.attempts()] == ["ValueError: no"] * 2
        assert [line.message for line in run.log()] == ["trying"] * 2

    def test_recent_runs_are_listed_newest_first(self, app, send):
        runs = [send.dispatch(str(n)) for n in range(3)]

        assert [run.id for run in app.runs.recent()] == [run.id for run in runs[::-1]]
        assert len(app.runs.recent(limit=2)) == 2
