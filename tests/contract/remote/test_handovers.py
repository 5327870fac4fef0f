"""What happens to messages: they are lost, late, delivered twice, or cannot be read.

Outcomes are those of the conformance suite (``test_remote_conformance.py``).
"""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from contract.remote.transport import ListTransport
from tickwork import Tickwork
from tickwork._domain.handover import MESSAGE_VERSION, decode_message
from tickwork._domain.identity import WorkerId
from tickwork._domain.status import RunStatus
from tickwork._kernel.ids import new_id
from tickwork._kernel.processes import ThisProcess
from tickwork.contracts import EngineRegistration, EngineSetup
from tickwork.engines import remote
from tickwork.engines.remote import RemoteEngine
from tickwork.errors import HandoverRejected
from tickwork.events import Event, RunAccepted, RunSubmitted
from tickwork.stores.contract import WorkerRow


class Bench:
    """One program with a worker, and the remote processes that a test plays."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.transport = ListTransport()
        self.registration = EngineRegistration(self.build_engine, "handovers", is_remote=True)
        self.calls: list[int] = []
        self.app = self.make_app()
        self.events: list[Event] = []
        self.app.on(Event)(self.events.append)
        self.others: list[Tickwork] = []

    def build_engine(self, setup: EngineSetup) -> RemoteEngine:
        return RemoteEngine(setup, self.transport)

    def make_app(self) -> Tickwork:
        app = Tickwork(self.url, engines={"list": self.registration})

        @app.job(engine="list")
        def note(number: int) -> int:
            self.calls.append(number)
            return 2 * number

        self.note = note

        @app.job(engine="list")
        def odd() -> object:
            return object()

        @app.job(engine="list")
        def leave() -> None:
            raise SystemExit(3)

        return app

    def other(self) -> Tickwork:
        """Another process, which gets messages."""
        self.others.append(self.make_app())
        return self.others[-1]

    def messages(self, count: int = 1) -> list[dict[str, Any]]:
        self.until(lambda: len(self.transport.messages) >= count)
        return list(self.transport.messages)

    def until(self, check: Callable[[], object], *, seconds: float = 10) -> None:
        # Threads are real here.
        deadline = time.monotonic() + seconds
        while not check():
            assert time.monotonic() < deadline, "It did not happen in time."
            time.sleep(0.005)

    def deliver(self, message: object, **given: Any) -> int:
        return self.other().execute_handovers(message, **given)

    def accept_and_die(self, message: dict[str, Any]) -> None:
        """Accept the runs of a message as a process of this machine that is gone now."""
        me, store = ThisProcess.current(), self.app._services.store
        now, worker = self.app.clock.now(), WorkerId(new_id(self.app.clock.now()))
        store.beat_worker(
            WorkerRow(
                id=worker,
                host=me.host,
                pid=me.pid,
                boot_id=me.boot_id,
                process_started="1",  # the pid was used again since
                started_at=now,
                beat_at=now,
                queues=(),
                jobs=(),
            )
        )
        handovers = decode_message(message)
        until = now + timedelta(minutes=1)
        claims = store.accept(handovers, worker=worker, tag="t", until=until, started_at=now)
        assert len(claims) == len(handovers)

    def held(self) -> int:
        return self.app.inspect.status().running


@pytest.fixture
def bench(tmp_path, monkeypatch) -> Iterator[Bench]:
    monkeypatch.setattr(remote, "POLL_IDLE", 0.02)
    monkeypatch.setattr(remote, "RETRY_FIRST", 0.02)
    monkeypatch.setattr("tickwork._worker.worker.MAINTAIN_EVERY", 60.0)
    bench = Bench(f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL")
    bench.app.start(poll=0.02)
    yield bench
    bench.app.stop()
    bench.app.join()
    for app in [bench.app, *bench.others]:
        app.close()


class TestHandOver:
    def test_the_external_id_is_stored_before_the_run_is_submitted(self, bench):
        run = bench.app.dispatch("note", number=1)
        seen: list[str | None] = []
        submit = bench.transport.submit

        def look_first(messages):
            seen.extend(run.read().external_id for _ in messages)
            submit(messages)

        bench.transport.submit = look_first
        [message] = bench.messages()

        assert message == {"v": MESSAGE_VERSION, "runs": [[run.id, 1]]}
        assert seen == [f"{run.id}:1"]

    def test_a_second_delivery_does_nothing(self, bench):
        bench.app.dispatch("note", number=4)
        [message] = bench.messages()

        assert bench.deliver(message) == 1
        assert bench.deliver(message, is_redelivered=True) == 0

        assert bench.calls == [4]

    def test_events_show_where_it_is(self, bench):
        run = bench.app.dispatch("note", number=4)
        [message] = bench.messages()
        other = bench.other()
        there: list[Event] = []
        other.on(Event)(there.append)
        other.execute_handovers(message)
        bench.until(lambda: any(isinstance(event, RunAccepted) for event in bench.events))

        here = [event for event in bench.events if isinstance(event, RunSubmitted | RunAccepted)]
        assert [(type(event), event.external_id) for event in here] == [
            (RunSubmitted, f"{run.id}:1"),
            (RunAccepted, f"{run.id}:1"),
        ]
        assert [type(event).__name__ for event in there] == ["RunStarted", "RunSucceeded"]


class TestOutcomes:
    def test_a_result_that_is_not_json_is_a_failure(self, bench):
        run = bench.app.dispatch("odd")
        [message] = bench.messages()

        bench.deliver(message)

        assert "object" in run.read().reason
        assert run.read().is_finished

    def test_an_exit_does_not_end_the_process(self, bench):
        run = bench.app.dispatch("leave")
        [message] = bench.messages()

        assert bench.deliver(message) == 1

        assert run.read().status is RunStatus.FAILED_PERMANENT
        assert "SystemExit" in run.read().reason

    def test_a_process_that_does_not_know_the_job(self, bench):
        run = bench.app.dispatch("note", number=1)
        [message] = bench.messages()
        with Tickwork(bench.url) as stranger:
            stranger.execute_handovers(message)

        assert run.read().status is RunStatus.FAILED_PERMANENT
        assert "does not know the job 'note'" in run.read().reason


class TestTrouble:
    def test_a_system_that_is_unavailable_loses_nothing(self, bench):
        bench.transport.is_unavailable = True
        runs = [bench.app.dispatch("note", number=number) for number in range(3)]
        bench.until(lambda: runs[0].read().external_id is not None)
        assert bench.transport.messages == []

        bench.transport.is_unavailable = False

        for message in bench.messages(3):
            bench.deliver(message)
        assert sorted(bench.calls) == [0, 1, 2]

    def test_a_message_that_was_lost_is_sent_again(self, bench, monkeypatch):
        monkeypatch.setattr(remote, "RESUBMIT_AFTER", 0.05)
        bench.transport.is_lossy = True
        run = bench.app.dispatch("note", number=1)
        bench.until(lambda: run.read().external_id is not None)

        bench.transport.is_lossy = False

        message = bench.messages()[0]
        assert message["runs"] == [[run.id, 1]]
        bench.deliver(message)
        assert run.result() == 2

    def test_after_an_outage_runs_are_submitted_again_in_batches(self, bench, monkeypatch):
        """All at once would take a slow system longer than it may take to confirm them."""
        monkeypatch.setattr(remote, "RESUBMIT_MAX", 2)
        bench.transport.is_lossy = True
        runs = [bench.app.dispatch("note", number=number) for number in range(5)]
        bench.until(lambda: all(run.read().external_id for run in runs))
        bench.until(lambda: bench.transport.submitted >= 5)
        bench.transport.is_unavailable = True
        bench.app.dispatch("note", number=9)
        bench.until(lambda: bench.transport.refused)
        bench.transport.sizes.clear()

        bench.transport.is_unavailable = bench.transport.is_lossy = False

        bench.until(lambda: {str(run.id) for run in runs} <= bench.transport.run_ids())
        assert max(bench.transport.sizes) <= 2

    def test_a_cancel_before_it_is_accepted(self, bench):
        run = bench.app.dispatch("note", number=1)
        [message] = bench.messages()

        run.cancel()
        bench.until(lambda: run.read().is_finished)

        assert run.read().status is RunStatus.CANCELED
        assert bench.transport.removed == [f"{run.id}:1"]
        assert bench.deliver(message) == 0

    def test_a_worker_that_stops_gives_back_what_was_not_accepted(self, bench):
        run = bench.app.dispatch("note", number=1)
        [message] = bench.messages()

        bench.app.stop()
        bench.app.join()

        assert run.read().status is RunStatus.PENDING
        assert bench.deliver(message) == 0

    @pytest.mark.parametrize("is_redelivered", [True, False])
    def test_a_message_that_is_delivered_again_finds_a_dead_holder(self, bench, is_redelivered):
        run = bench.app.dispatch("note", number=1)
        [message] = bench.messages()
        bench.accept_and_die(message)

        assert bench.deliver(message, is_redelivered=is_redelivered) == 0

        if not is_redelivered:
            assert run.read().token == 2  # maintenance, which is switched off here, would notice
            return
        again = bench.messages(2)[1]
        assert again["runs"] == [[run.id, 3]]
        assert bench.deliver(again) == 1
        assert run.result() == 2
        assert run.read().crashes == 1

    @pytest.mark.parametrize(
        "message",
        [
            None,
            "nonsense",
            {"v": 99, "runs": []},
            {"v": MESSAGE_VERSION},
            {"v": MESSAGE_VERSION, "runs": [["x"]]},
            {"v": MESSAGE_VERSION, "runs": [[1, 2]]},
            {"v": MESSAGE_VERSION, "runs": [["x", 1]] * 501},
        ],
    )
    def test_a_message_of_another_version_or_kind_is_rejected(self, bench, message):
        with pytest.raises(HandoverRejected):
            bench.deliver(message)

    def test_a_message_about_runs_that_do_not_exist(self, bench):
        assert bench.deliver({"v": MESSAGE_VERSION, "runs": [["nonsense", 1]]}) == 0


class TestBatches:
    def test_short_runs_share_a_message_once_they_are_known_to_be_short(self, bench, monkeypatch):
        monkeypatch.setattr(remote, "SHORT_TOTAL", 60.0)  # also on a busy machine
        bench.app.dispatch("note", number=0)
        bench.deliver(bench.messages()[0])
        bench.until(lambda: not bench.held())
        bench.until(lambda: any(isinstance(event, RunAccepted) for event in bench.events))
        bench.transport.messages.clear()

        bench.note.dispatch_many([{"number": number} for number in range(1, 11)])
        bench.until(lambda: sum(len(message["runs"]) for message in bench.transport.messages) == 10)

        assert len(bench.transport.messages) < 10
        for message in list(bench.transport.messages):
            assert bench.deliver(message) == len(message["runs"])
        assert sorted(bench.calls) == list(range(11))
