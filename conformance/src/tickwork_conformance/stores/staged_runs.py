from tickwork._domain.runs.outcome import Failed
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork_conformance.builders import (
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    a_run,
    add,
    ids,
    in_phase,
    the_run,
)


class TestStagedRunsStaging:
    """Waiting runs become ready when they are due."""

    def test_a_run_that_is_due_can_be_claimed(self, store, clock, worker):
        add(store, run := a_run(due_at=NOON + MINUTE))
        clock.advance(minutes=1)

        moved = store.stage(now=clock.now(), limit=10)

        assert moved == 1
        assert ids(worker.claim()) == [run.id]

    def test_a_run_that_is_not_due_stays_waiting(self, store, clock, worker):
        add(store, a_run(due_at=NOON + MINUTE))
        clock.advance(seconds=59)

        moved = store.stage(now=clock.now(), limit=10)

        assert moved == 0
        assert worker.claim() == []

    def test_a_due_run_waits_until_it_is_staged(self, store, clock, worker):
        add(store, run := a_run(due_at=NOON + MINUTE))
        clock.advance(hours=1)

        assert worker.claim() == []
        assert the_run(store, run).phase is Phase.WAITING

    def test_the_earliest_are_staged_first_whatever_their_priority(self, store, clock):
        late = a_run(due_at=NOON + 3 * SECOND, priority=1)
        early = a_run(due_at=NOON + SECOND, priority=9)
        middle = a_run(due_at=NOON + 2 * SECOND, priority=5)
        add(store, late, early, middle)
        clock.advance(minutes=1)

        moved = store.stage(now=clock.now(), limit=2)

        assert moved == 2
        assert in_phase(store, Phase.WAITING) == [late.id]

    def test_the_others_are_staged_by_the_next_call(self, store, clock):
        add(store, *(a_run(due_at=NOON + SECOND) for _ in range(5)))
        clock.advance(minutes=1)

        moved = [store.stage(now=clock.now(), limit=2) for _ in range(4)]

        assert moved == [2, 2, 1, 0]

    def test_a_run_that_waits_for_its_retry_is_staged(self, store, clock, worker):
        add(store, run := a_run(attempts_max=2))
        worker.record(worker.claim_one(), Failed("no"))
        clock.advance(minutes=1)

        moved = store.stage(now=clock.now(), limit=10)

        assert moved == 1
        assert the_run(store, run).phase is Phase.READY
        assert the_run(store, run).status is RunStatus.FAILED
        assert ids(worker.claim()) == [run.id]

    def test_staging_an_empty_store(self, store, clock):
        add(store, a_run())

        assert store.stage(now=clock.now() + HOUR, limit=10) == 0
