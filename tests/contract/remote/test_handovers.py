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
from tickwork._domain.identity import WorkerId
from tickwork._domain.runs.handover import MESSAGE_VERSION, decode_message
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.status import RunStatus
from tickwork._engines.remote import remote_engine as remote
from tickwork._engines.remote.remote_engine import RemoteEngine
from tickwork._kernel.ids import new_id
from tickwork._kernel.processes import ThisProcess
from tickwork._stores.contract import WorkerRow
from tickwork._stores.sqlite.store import SqliteStore
from tickwork.contracts import EngineRegistration, EngineSetup
from tickwork.errors import HandoverRejected, OutcomeUnknown, StoreBusy, StoreUnavailable
from tickwork.events import Event, RunAccepted, RunStarted, RunSubmitted


class HandoverHarness:
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
def harness(tmp_path, monkeypatch) -> Iterator[HandoverHarness]:
    monkeypatch.setattr(remote, "POLL_IDLE", 0.02)
    monkeypatch.setattr(remote, "RETRY_FIRST", 0.02)
    monkeypatch.setattr("tickwork._worker.services.maintenance.Maintenance.first_wait", 60.0)
    harness = HandoverHarness(f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL")
    harness.app.start(poll=0.02)
    yield harness
    harness.app.stop()
    harness.app.join()
    for app in [harness.app, *harness.others]:
        app.close()


class TestHandOver:
    def test_the_external_id_is_stored_before_the_run_is_submitted(self, harness):
        run = harness.app.dispatch("note", number=1)
        seen: list[str | None] = []
        submit = harness.transport.submit

        def look_first(messages):
            seen.extend(run.read().external_id for _ in messages)
            submit(messages)

        harness.transport.submit = look_first
        [message] = harness.messages()

        assert message == {"v": MESSAGE_VERSION, "runs": [[run.id, 1]]}
        assert seen == [f"{run.id}:1"]

    def test_a_second_delivery_does_nothing(self, harness):
        harness.app.dispatch("note", number=4)
        [message] = harness.messages()

        assert harness.deliver(message) == 1
        assert harness.deliver(message, is_redelivered=True) == 0

        assert harness.calls == [4]

    def test_events_show_where_it_is(self, harness):
        run = harness.app.dispatch("note", number=4)
        [message] = harness.messages()
        other = harness.other()
        there: list[Event] = []
        other.on(Event)(there.append)
        other.execute_handovers(message)
        harness.until(lambda: any(isinstance(event, RunAccepted) for event in harness.events))

        here = [event for event in harness.events if isinstance(event, RunSubmitted | RunAccepted)]
        assert [(type(event), event.external_id) for event in here] == [
            (RunSubmitted, f"{run.id}:1"),
            (RunAccepted, f"{run.id}:1"),
        ]
        assert [type(event).__name__ for event in there] == ["RunStarted", "RunSucceeded"]


class TestOutcomes:
    def test_a_result_that_is_not_json_is_a_failure(self, harness):
        run = harness.app.dispatch("odd")
        [message] = harness.messages()

        harness.deliver(message)

        assert "object" in run.read().reason
        assert run.read().is_finished

    def test_an_exit_does_not_end_the_process(self, harness):
        run = harness.app.dispatch("leave")
        [message] = harness.messages()

        assert harness.deliver(message) == 1

        assert run.read().status is RunStatus.FAILED_PERMANENT
        assert "SystemExit" in run.read().reason

    def test_a_process_that_does_not_know_the_job(self, harness):
        run = harness.app.dispatch("note", number=1)
        [message] = harness.messages()
        with Tickwork(harness.url) as stranger:
            stranger.execute_handovers(message)

        assert run.read().status is RunStatus.FAILED_PERMANENT
        assert "does not know the job 'note'" in run.read().reason


class TestTrouble:
    def test_a_system_that_is_unavailable_loses_nothing(self, harness):
        harness.transport.is_unavailable = True
        runs = [harness.app.dispatch("note", number=number) for number in range(3)]
        harness.until(lambda: runs[0].read().external_id is not None)
        assert harness.transport.messages == []

        harness.transport.is_unavailable = False

        for message in harness.messages(3):
            harness.deliver(message)
        assert sorted(harness.calls) == [0, 1, 2]

    def test_a_message_that_was_lost_is_sent_again(self, harness, monkeypatch):
        monkeypatch.setattr(remote, "RESUBMIT_AFTER", 0.05)
        harness.transport.is_lossy = True
        run = harness.app.dispatch("note", number=1)
        harness.until(lambda: run.read().external_id is not None)

        harness.transport.is_lossy = False

        message = harness.messages()[0]
        assert message["runs"] == [[run.id, 1]]
        harness.deliver(message)
        assert run.result() == 2

    def test_after_an_outage_runs_are_submitted_again_in_batches(self, harness, monkeypatch):
        """All at once would take a slow system longer than it may take to confirm them."""
        monkeypatch.setattr(remote, "RESUBMIT_MAX", 2)
        harness.transport.is_lossy = True
        runs = [harness.app.dispatch("note", number=number) for number in range(5)]
        harness.until(lambda: all(run.read().external_id for run in runs))
        harness.until(lambda: harness.transport.submitted >= 5)
        harness.transport.is_unavailable = True
        harness.app.dispatch("note", number=9)
        harness.until(lambda: harness.transport.refused)
        harness.transport.sizes.clear()

        harness.transport.is_unavailable = harness.transport.is_lossy = False

        harness.until(lambda: {str(run.id) for run in runs} <= harness.transport.run_ids())
        assert max(harness.transport.sizes) <= 2

    def test_a_cancel_before_it_is_accepted(self, harness):
        run = harness.app.dispatch("note", number=1)
        [message] = harness.messages()

        run.cancel()
        harness.until(lambda: run.read().is_finished)

        assert run.read().status is RunStatus.CANCELED
        assert harness.transport.removed == [f"{run.id}:1"]
        assert harness.deliver(message) == 0

    def test_a_worker_that_stops_gives_back_what_was_not_accepted(self, harness):
        run = harness.app.dispatch("note", number=1)
        [message] = harness.messages()

        harness.app.stop()
        harness.app.join()

        assert run.read().status is RunStatus.PENDING
        assert harness.deliver(message) == 0

    @pytest.mark.parametrize("is_redelivered", [True, False])
    def test_a_message_that_is_delivered_again_finds_a_dead_holder(self, harness, is_redelivered):
        run = harness.app.dispatch("note", number=1)
        [message] = harness.messages()
        harness.accept_and_die(message)

        assert harness.deliver(message, is_redelivered=is_redelivered) == 0

        if not is_redelivered:
            assert run.read().token == 2  # maintenance, which is switched off here, would notice
            return
        again = harness.messages(2)[1]
        assert again["runs"] == [[run.id, 3]]
        assert harness.deliver(again) == 1
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
    def test_a_message_of_another_version_or_kind_is_rejected(self, harness, message):
        with pytest.raises(HandoverRejected):
            harness.deliver(message)

    def test_a_message_about_runs_that_do_not_exist(self, harness):
        assert harness.deliver({"v": MESSAGE_VERSION, "runs": [["nonsense", 1]]}) == 0


class TestBatches:
    def test_short_runs_share_a_message_once_they_are_known_to_be_short(self, harness, monkeypatch):
        monkeypatch.setattr(remote, "SHORT_TOTAL", 60.0)  # also on a busy machine
        harness.app.dispatch("note", number=0)
        harness.deliver(harness.messages()[0])
        harness.until(lambda: not harness.held())
        harness.until(lambda: any(isinstance(event, RunAccepted) for event in harness.events))
        harness.transport.messages.clear()

        harness.note.dispatch_many([{"number": number} for number in range(1, 11)])
        harness.until(
            lambda: sum(len(message["runs"]) for message in harness.transport.messages) == 10
        )

        assert len(harness.transport.messages) < 10
        for message in list(harness.transport.messages):
            assert harness.deliver(message) == len(message["runs"])
        assert sorted(harness.calls) == list(range(11))


UNKNOWN = OutcomeUnknown("sqlite:///x", "gone")
AWAY = StoreUnavailable("sqlite:///x", reason="gone")
BUSY = StoreBusy("sqlite:///x", waited=timedelta(seconds=1))


class LostAnswers:
    """A store whose first calls of ``accept`` end with an error."""

    def __init__(self, monkeypatch, *errors: Exception, is_stored: bool = False) -> None:
        self.errors, self.is_stored = list(errors), is_stored
        accept, lost = SqliteStore.accept, self

        def accept_or_lose(store: SqliteStore, handovers: Any, **options: Any) -> list[Claim]:
            lost.calls += 1
            if not lost.errors:
                return accept(store, handovers, **options)
            if lost.is_stored:
                accept(store, handovers, **options)
            raise lost.errors.pop(0)

        self.calls = 0
        monkeypatch.setattr(SqliteStore, "accept", accept_or_lose)
        monkeypatch.setattr("tickwork._worker.remote_worker.UNAVAILABLE_FIRST", 0.0)


class TestLostAnswers:
    """The database does not answer while a process accepts a run."""

    def test_a_run_that_was_accepted_is_found(self, harness, monkeypatch):
        run = harness.app.dispatch("note", number=4)
        [message] = harness.messages()
        lost = LostAnswers(monkeypatch, UNKNOWN, is_stored=True)

        assert harness.deliver(message) == 1

        assert lost.calls == 1
        assert harness.calls == [4]
        assert run.read().status is RunStatus.COMPLETED

    def test_it_is_found_also_after_more_failures(self, harness, monkeypatch):
        """A busy database after the lost answer does not make the process forget it."""
        run = harness.app.dispatch("note", number=4)
        [message] = harness.messages()
        LostAnswers(monkeypatch, UNKNOWN, is_stored=True)
        find, failures = SqliteStore.find_claims, [BUSY]

        def find_or_fail(store: SqliteStore, **options: Any) -> list[Claim]:
            if failures:
                raise failures.pop()
            return find(store, **options)

        monkeypatch.setattr(SqliteStore, "find_claims", find_or_fail)

        assert harness.deliver(message) == 1

        assert failures == []
        assert run.read().status is RunStatus.COMPLETED

    @pytest.mark.parametrize("error", [UNKNOWN, AWAY, BUSY], ids=lambda error: error.code)
    def test_a_run_that_was_not_accepted_is_accepted_then(self, harness, monkeypatch, error):
        run = harness.app.dispatch("note", number=4)
        [message] = harness.messages()
        lost = LostAnswers(monkeypatch, error)

        assert harness.deliver(message) == 1

        assert lost.calls == 2
        assert run.read().status is RunStatus.COMPLETED

    def test_the_process_is_free_for_others_after_a_while(self, harness, monkeypatch):
        harness.app.dispatch("note", number=4)
        [message] = harness.messages()
        monkeypatch.setattr("tickwork._worker.remote_worker.ACCEPT_SECONDS", 0.0)
        LostAnswers(monkeypatch, AWAY)

        with pytest.raises(StoreUnavailable):
            harness.deliver(message)

        assert harness.deliver(message) == 1


class TestSlowBatches:
    @pytest.mark.timeout(30)  # what waits for a run that was not attempted waits for ever
    @pytest.mark.parametrize(("write_every", "completed"), [(0.0, [0, 1, 2]), (60.0, [0, 0, 0])])
    def test_outcomes_are_written_while_the_batch_goes_on(
        self, harness, monkeypatch, write_every, completed
    ):
        monkeypatch.setattr("tickwork._worker.remote_worker.WRITE_EVERY", write_every)
        runs = harness.note.dispatch_many([{"number": number} for number in range(3)])
        messages = harness.messages(3)
        message = {"v": MESSAGE_VERSION, "runs": [messages[at]["runs"][0] for at in range(3)]}
        other, seen = harness.other(), [*()]

        def count(_: RunStarted) -> None:
            seen.append(sum(run.read().status is RunStatus.COMPLETED for run in runs))

        other.on(RunStarted)(count)

        assert other.execute_handovers(message) == 3

        assert seen == completed
        assert all(run.read().status is RunStatus.COMPLETED for run in runs)
