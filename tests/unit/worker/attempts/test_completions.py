import pytest

from contract.builders import StoreDriver, a_run, add, settled, the_run
from tickwork._domain.runs.outcome import Failed
from tickwork._domain.runs.status import RunStatus
from tickwork._stores.sqlite.memory import MemoryStore
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork._worker.attempts.log_capture import LogCapture
from tickwork._worker.attempts.reporter import Reporter
from tickwork._worker.attempts.stats import Stats
from tickwork._worker.attempts.writer import Writer, check_completions
from tickwork.errors import StoreUnavailable
from tickwork.events import AttemptFailed, Event, RunSucceeded
from tickwork.events.bus import EventBus
from tickwork.testing import ManualClock

ROLLED_BACK = Failed("rolled back")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(clock):
    return MemoryStore(clock)


def claims(store, clock, count):
    add(store, *(a_run(created_at=clock.now(), attempts_max=2) for _ in range(count)))
    return StoreDriver(store, clock).claim(count)


def completing(claim, clock):
    undone = settled(claim, ROLLED_BACK, now=clock.now())
    return settled(claim, now=clock.now())._replace(if_rolled_back=undone)


class TestChecking:
    """A run that its handler completed is gone; one that is still there was rolled back."""

    def test_plain_steps_are_left_alone(self, store, clock):
        steps = [settled(claim) for claim in claims(store, clock, 2)]

        assert check_completions(store, steps) == (steps, ())

    def test_committed_and_rolled_back_runs_are_separated(self, store, clock):
        completed, undone, plain = claims(store, clock, 3)
        store.complete(completed, now=clock.now())
        steps = [completing(completed, clock), completing(undone, clock), settled(plain)]

        unwritten, completed_steps = check_completions(store, steps)

        assert [step.claim for step in completed_steps] == [completed]
        assert [step.claim for step in unwritten] == [undone, plain]
        assert [step.to_status for step in unwritten] == ["failed", "completed"]
        assert all(step.if_rolled_back is None for step in (*completed_steps, *unwritten))


class TestWriting:
    """The writer records each run once, and reports what happened."""

    @pytest.fixture
    def events(self):
        return []

    @pytest.fixture
    def writer(self, store, clock, events):
        bus = EventBus()
        bus.subscribe(Event, lambda event: events.append(type(event)))
        return Writer(
            store=store,
            clock=clock,
            held=HeldRuns(),
            reporter=Reporter(bus=bus, stats=Stats()),
            log_capture=LogCapture(),
            batch=100,
        )

    def test_committed_and_rolled_back(self, store, clock, writer, events):
        completed, undone = claims(store, clock, 2)
        store.complete(completed, now=clock.now())
        writer.outbox.extend([completing(completed, clock), completing(undone, clock)])

        assert writer.write().size == 2

        assert the_run(store, completed).status is RunStatus.COMPLETED
        assert the_run(store, undone).status is RunStatus.FAILED
        assert events == [RunSucceeded, AttemptFailed]
        assert store.list_jobs()[0].failures == 1

    def test_while_the_database_is_unreachable_nothing_is_decided(
        self, store, clock, writer, events, monkeypatch
    ):
        [claim] = claims(store, clock, 1)
        store.complete(claim, now=clock.now())
        writer.outbox.append(completing(claim, clock))

        def gone(_):
            raise StoreUnavailable("memory://", "gone")

        with monkeypatch.context() as away:
            away.setattr(store, "after_complete", gone)
            with pytest.raises(StoreUnavailable):
                writer.write()
        assert len(writer) == 1

        assert writer.write().size == 1
        assert events == [RunSucceeded]
