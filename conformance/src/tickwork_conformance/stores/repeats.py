"""Repeated calls: the answer of a call can be lost, so callers repeat it."""

from datetime import timedelta

import pytest

from tickwork._domain.job import Overlap
from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.outcome import Failed, Interrupted, Skipped, Snoozed, Succeeded
from tickwork._domain.runs.status import RunStatus
from tickwork._stores.contract import AddedRun
from tickwork_conformance.builders import (
    HOUR,
    MINUTE,
    NOON,
    UNKNOWN_ID,
    a_run,
    add,
    added,
    all_runs,
    ids,
    settled,
    the_run,
    tick,
)

KEY = "job:send_email"


class TestRepeatsEnqueuingAgain:
    """A run that was added is not added a second time."""

    def test_a_run_that_exists_is_not_added_again(self, store):
        runs = [a_run(), a_run()]
        store.add_runs(runs)

        answers = store.add_runs(runs, may_be_stored=True)

        assert answers == [AddedRun(run.id, is_new=False) for run in runs]
        assert ids(all_runs(store)) == ids(runs)

    def test_a_run_that_does_not_exist_is_added(self, store):
        run = a_run()

        [answer] = store.add_runs([run], may_be_stored=True)

        assert answer == AddedRun(run.id, is_new=True)
        assert ids(all_runs(store)) == [run.id]

    def test_only_missing_runs_are_added(self, store):
        stored, missing = a_run(), a_run()
        store.add_runs([stored])

        answers = store.add_runs([stored, missing], may_be_stored=True)

        assert [answer.is_new for answer in answers] == [False, True]
        assert ids(all_runs(store)) == [stored.id, missing.id]

    def test_a_run_that_was_claimed_meanwhile_exists(self, store, worker):
        run = a_run()
        store.add_runs([run])
        worker.claim_one()
        before = the_run(store, run)

        [answer] = store.add_runs([run], may_be_stored=True)

        assert answer == AddedRun(run.id, is_new=False)
        assert the_run(store, run) == before

    def test_a_run_that_was_finished_meanwhile_exists(self, store, worker):
        run = a_run()
        store.add_runs([run])
        worker.run()

        [answer] = store.add_runs([run], may_be_stored=True)

        assert answer == AddedRun(run.id, is_new=False)
        assert the_run(store, run).status is RunStatus.COMPLETED
        assert worker.claim() == []

    def test_the_unique_key_of_the_run_itself_is_not_taken(self, store):
        run = a_run(unique=UniqueKey("one", None))
        store.add_runs([run])

        [answer] = store.add_runs([run], may_be_stored=True)

        assert answer == AddedRun(run.id, is_new=False)

    def test_the_id_is_checked_before_the_key(self, store, worker):
        run = a_run(unique=UniqueKey("one", None))
        store.add_runs([run])
        worker.run()
        add(store, a_run(unique=UniqueKey("one", None)))

        [answer] = store.add_runs([run], may_be_stored=True)

        assert answer == AddedRun(run.id, is_new=False)

    def test_the_key_is_checked_if_the_run_does_not_exist(self, store):
        add(store, other := a_run(unique=UniqueKey("one", None)))

        [answer] = store.add_runs([a_run(unique=UniqueKey("one", None))], may_be_stored=True)

        assert answer == AddedRun(other.id, is_new=False)
        assert ids(all_runs(store)) == [other.id]

    def test_the_overlap_key_of_the_run_itself_is_not_taken(self, store):
        run = a_run(overlap_key="held:019cb0d2-0000-7000-8000-000000000001")
        store.add_runs([run])

        [answer] = store.add_runs([run], may_be_stored=True)

        assert answer == AddedRun(run.id, is_new=False)


class TestRepeatsFindingClaims:
    """Claims whose answer was lost are found by their tag."""

    def test_claims_are_found_as_they_were(self, store, worker):
        store.set_limits({KEY: 2})
        add(store, *(a_run(priority=9 - number, limit_keys=(KEY,)) for number in range(3)))
        add(store, a_run(args='{"to": "ann"}', tenant="acme", target="image-42"))
        claims = worker.claim()

        assert store.find_claims(worker=worker.id, tag=worker.tag) == claims

    def test_only_claims_with_this_tag(self, store, worker):
        add(store, a_run(), a_run())
        first = worker.claim(1, tag="first")
        second = worker.claim(1, tag="second")

        assert store.find_claims(worker=worker.id, tag="first") == first
        assert store.find_claims(worker=worker.id, tag="second") == second

    def test_only_claims_of_this_worker(self, store, worker, other_worker):
        add(store, a_run(), a_run())
        ours = worker.claim(1, tag="tag")
        other_worker.claim(1, tag="tag")

        assert store.find_claims(worker=worker.id, tag="tag") == ours

    def test_only_claims_that_are_still_valid(self, store, clock, worker, other_worker):
        add(store, *(a_run() for _ in range(4)))
        finished, given_back, lost = worker.claim(3, tag="tag", lease=MINUTE)
        [kept] = worker.claim(1, tag="tag", lease=HOUR)
        worker.record(finished)
        worker.record(given_back, Snoozed(HOUR))
        clock.advance(minutes=2)
        worker.reap()
        other_worker.claim(1, tag="tag")

        found = store.find_claims(worker=worker.id, tag="tag")

        assert found == [kept]
        assert lost.run_id not in ids(found)

    def test_a_found_claim_has_its_current_lease(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one(tag="tag")
        worker.beat(claim, until=NOON + HOUR)

        [found] = store.find_claims(worker=worker.id, tag="tag")

        assert found == claim._replace(lease_until=NOON + HOUR)

    def test_a_tag_of_an_earlier_attempt_finds_nothing(self, store, worker):
        add(store, a_run())
        worker.record(worker.claim_one(tag="first"), Interrupted())
        worker.claim_one(tag="second")

        assert store.find_claims(worker=worker.id, tag="first") == []

    def test_nothing_was_claimed(self, store, worker):
        assert store.find_claims(worker=worker.id, tag="tag") == []


class TestRepeatsRecordingAgain:
    """A transition that was written is not reported as lost, and is not written again."""

    @pytest.mark.parametrize(
        "outcome",
        [
            Succeeded('"done"'),
            Failed("no", retry=False),
            Skipped("not today"),
            Failed("no"),
            Snoozed(HOUR),
        ],
        ids=["succeeded", "failed for good", "skipped", "failed", "snoozed"],
    )
    def test_an_outcome_that_was_written_is_not_lost(self, store, worker, outcome):
        store.set_limits({KEY: 1})
        add(store, *(runs := [a_run(attempts_max=3, limit_keys=(KEY,)) for _ in range(3)]))
        [claim] = worker.claim()
        steps = [settled(claim, outcome)]
        store.record(steps)
        before = [store.run_record(run.id) for run in runs], store.list_jobs()

        lost = store.record(steps, may_be_stored=True)

        assert lost == []
        assert ([store.run_record(run.id) for run in runs], store.list_jobs()) == before

    @pytest.mark.parametrize("outcome", [Failed("no", delay=timedelta(0)), Snoozed(timedelta(0))])
    def test_it_was_committed_and_another_worker_has_claimed_or_ended_the_run(
        self, store, worker, other_worker, outcome
    ):
        add(store, run := a_run(attempts_max=3))
        steps = [settled(worker.claim_one(), outcome)]
        store.record(steps)
        claim = other_worker.claim_one()

        assert store.record(steps, may_be_stored=True) == []
        other_worker.record(claim)
        assert store.record(steps, may_be_stored=True) == []
        assert the_run(store, run).status is RunStatus.COMPLETED

    def test_later_changes_of_the_job_are_kept(self, store, worker):
        add(store, a_run(), a_run())
        first, second = worker.claim()
        step = settled(first)
        store.record([step])
        worker.record(second, Failed("no"))
        [before] = store.list_jobs()
        assert before.failures == 1

        store.record([step], may_be_stored=True)

        assert store.list_jobs() == [before]

    def test_an_outcome_that_was_not_written_is_written(self, store, worker):
        add(store, run := a_run())
        claim = worker.claim_one()

        assert store.record([settled(claim)], may_be_stored=True) == []
        assert the_run(store, run).status is RunStatus.COMPLETED

    def test_only_missing_outcomes_are_written(self, store, worker):
        add(store, *(runs := [a_run(), a_run(), a_run()]))
        steps = [settled(claim, Failed("no")) for claim in worker.claim()]
        store.record(steps[:1])

        lost = store.record(steps, may_be_stored=True)

        assert lost == []
        assert {the_run(store, run).status for run in runs} == {RunStatus.FAILED_PERMANENT}
        assert store.list_jobs()[0].failures == 3

    def test_another_worker_has_finished_it(self, store, clock, worker, other_worker):
        add(store, run := a_run())
        stale = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()
        other_worker.run()

        assert store.record([settled(stale)], may_be_stored=True) == [run.id]

    def test_another_worker_has_claimed_it(self, store, clock, worker, other_worker):
        add(store, run := a_run())
        stale = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()
        other_worker.claim_one()

        assert store.record([settled(stale)], may_be_stored=True) == [run.id]

    def test_an_unknown_run(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one()._replace(run_id=UNKNOWN_ID)

        assert store.record([settled(claim)], may_be_stored=True) == [UNKNOWN_ID]

    def test_an_interruption_that_was_written_before_the_run_was_claimed_again(
        self, store, worker, other_worker
    ):
        add(store, run := a_run())
        steps = [settled(worker.claim_one(), Interrupted())]
        store.record(steps)
        claim = other_worker.claim_one()

        store.record(steps, may_be_stored=True)

        assert the_run(store, run).status is RunStatus.RUNNING
        assert other_worker.record(claim) == []

    def test_a_skip_that_was_merged_into_the_one_before(self, store, clock, worker):
        added(store)
        tick(store, clock)
        worker.record(worker.claim_one(), Skipped("closed"))
        clock.advance(minutes=1)
        tick(store, clock)
        steps = [settled(worker.claim_one(), Skipped("closed"), now=clock.now())]
        store.record(steps)

        lost = store.record(steps, may_be_stored=True)

        [run] = all_runs(store)
        assert lost == []
        assert run.instants == 2

    def test_a_skip_is_lost_if_the_run_was_claimed_again(self, store, clock, worker, other_worker):
        added(store, overlap=Overlap.ALLOW)
        tick(store, clock)
        steps = [settled(worker.claim_one(), Skipped("closed"), now=clock.now())]
        clock.advance(minutes=2)
        worker.reap()
        tick(store, clock)
        again, *later = sorted(other_worker.claim(), key=lambda claim: str(claim.nominal_at))
        for claim in later:
            other_worker.record(claim, Skipped("closed"))

        assert store.record(steps, may_be_stored=True) == ids([again])


class TestRepeatsTickingAgain:
    """A repeated tick fires nothing."""

    def test_no_instant_is_fired_twice(self, store, clock, worker):
        added(store)
        clock.advance(hours=1)
        tick(store, clock)
        before = all_runs(store)

        tick(store, clock)

        assert all_runs(store) == before
