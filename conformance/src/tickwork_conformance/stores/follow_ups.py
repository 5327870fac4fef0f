"""Runs that are added in the transaction that records a success."""

from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.outcome import Failed, Interrupted
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork_conformance.builders import (
    HOUR,
    NOON,
    a_run,
    add,
    all_runs,
    settled,
    the_run,
)


def claimed(store, worker, **options):
    add(store, a_run(**options))
    return worker.claim_one()


def ids_of(store):
    return {run.id for run in all_runs(store)}


class TestFollowUpsFollowUps:
    def test_they_are_added_with_the_success(self, store, worker):
        claim = claimed(store, worker)
        now, later = a_run(args='{"to": "ann"}'), a_run(due_at=NOON + HOUR, queue="slow")

        lost = store.record([settled(claim)._replace(follow_ups=(now, later))])

        assert lost == []
        assert the_run(store, now).phase is Phase.READY
        assert the_run(store, now).args == '{"to": "ann"}'
        assert (the_run(store, later).phase, the_run(store, later).queue) == (Phase.WAITING, "slow")

    def test_only_some_runs_of_a_batch_have_them(self, store, worker):
        add(store, *(a_run(attempts_max=2) for _ in range(5)))
        claims = worker.claim(5)
        first, last = a_run(), a_run()
        steps = [settled(claim) for claim in claims]
        steps[1] = steps[1]._replace(follow_ups=(first,))
        steps[2] = settled(claims[2], Failed("no"))
        steps[4] = steps[4]._replace(follow_ups=(last,), result='"done"')

        assert store.record(steps) == []

        assert {first.id, last.id} <= ids_of(store)
        statuses = {run.id: run.status for run in all_runs(store)}
        assert [statuses[claim.run_id] for claim in claims].count(RunStatus.COMPLETED) == 4

    def test_a_lost_attempt_adds_no_follow_up(self, store, clock, worker, other_worker):
        claim = claimed(store, worker)
        worker.record(claim, Interrupted())
        other_worker.claim_one()
        follow_up = a_run()

        lost = store.record([settled(claim)._replace(follow_ups=(follow_up,))])

        assert lost == [claim.run_id]
        assert follow_up.id not in ids_of(store)

    def test_a_repeat_adds_no_follow_up_twice(self, store, worker):
        claim = claimed(store, worker)
        follow_up = a_run()
        step = settled(claim)._replace(follow_ups=(follow_up,))

        assert store.record([step]) == []
        worker.run()  # the follow-up has finished, too
        assert store.record([step], may_be_stored=True) == []

        assert [run.id for run in all_runs(store)].count(follow_up.id) == 1

    def test_a_repeat_of_a_batch_that_was_not_written_adds_them(self, store, worker):
        claim = claimed(store, worker)
        follow_up = a_run()

        lost = store.record([settled(claim)._replace(follow_ups=(follow_up,))], may_be_stored=True)

        assert lost == []
        assert follow_up.id in ids_of(store)

    def test_a_taken_key_adds_no_run_and_fails_nothing(self, store, worker):
        claim = claimed(store, worker)
        add(store, a_run(unique=UniqueKey("one", None)))
        twin, other = a_run(unique=UniqueKey("one", None)), a_run()

        lost = store.record([settled(claim)._replace(follow_ups=(twin, other))])

        assert lost == []
        assert twin.id not in ids_of(store)
        assert other.id in ids_of(store)

    def test_the_key_of_the_run_itself_is_free(self, store, worker):
        claim = claimed(store, worker, unique=UniqueKey("chain", None))
        follow_up = a_run(unique=UniqueKey("chain", None))

        store.record([settled(claim)._replace(follow_ups=(follow_up,))])

        assert follow_up.id in ids_of(store)
