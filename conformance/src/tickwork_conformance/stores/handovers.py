import pytest

from tickwork._domain.identity import RunId
from tickwork._domain.runs.handover import Handover, HandoverState, handover_of, state_of
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.status import RunStatus
from tickwork._stores.contract import Store
from tickwork_conformance.builders import (
    ANN,
    BOB,
    HOUR,
    MINUTE,
    NOON,
    UNKNOWN_ID,
    StoreDriver,
    a_run,
    add,
    the_run,
)


def accept(
    store: Store, *claims: Claim | Handover, by=BOB, tag: str = "accepted", started_at=NOON
) -> list[Claim]:
    handovers = [one if isinstance(one, Handover) else handover_of(one) for one in claims]
    return store.accept(handovers, worker=by, tag=tag, until=NOON + MINUTE, started_at=started_at)


class HandedOver:
    """Has a claim that was handed over."""

    @pytest.fixture
    def claim(self, store: Store, worker: StoreDriver) -> Claim:
        add(store, a_run())
        claim = worker.claim_one(lease=MINUTE)
        store.hand_over([handover_of(claim)])
        return claim


class TestHandoversHandOver(HandedOver):
    """The external id of a claim is stored before its run is submitted."""

    def test_the_external_id_has_the_run_and_the_token(self, store, claim):
        run = store.get_run(claim.run_id)

        assert run.external_id == f"{claim.run_id}:{claim.token}"
        assert state_of(run) == HandoverState(run.external_id, is_accepted=False)

    def test_a_lost_claim_cannot_be_handed_over(self, store, clock, worker, claim):
        clock.advance(minutes=5)
        worker.reap()
        worker.claim_one()

        store.hand_over([handover_of(claim)])

        assert store.get_run(claim.run_id).external_id is None

    def test_an_empty_handover(self, store):
        store.hand_over([])

    def test_a_finished_run_keeps_its_external_id(self, store, clock, claim):
        [accepted] = accept(store, claim)
        assert StoreDriver(store, clock, BOB).record(accepted) == []

        run = store.get_run(claim.run_id)

        assert run.status is RunStatus.COMPLETED
        assert run.external_id == f"{claim.run_id}:{claim.token}"


class TestHandoversAccept(HandedOver):
    """Of all processes that get the message about a run, one accepts it."""

    def test_the_claim_moves_with_a_new_token(self, store, claim):
        [accepted] = accept(store, claim)

        assert accepted == claim._replace(token=claim.token + 1)
        run = store.get_run(claim.run_id)
        assert (run.worker, run.token, run.attempt) == (BOB, claim.token + 1, claim.attempt)
        assert run.started_at == NOON
        assert state_of(run) == HandoverState(run.external_id, is_accepted=True)

    def test_a_second_delivery_is_refused(self, store, claim):
        accept(store, claim)

        assert accept(store, claim, tag="second") == []
        assert accept(store, claim, by=ANN, tag="third") == []

    def test_the_worker_that_handed_it_over_cannot_write_any_more(self, store, worker, claim):
        accept(store, claim)

        assert worker.beat(claim, until=NOON + HOUR).lost == [claim.run_id]
        assert worker.record(claim) == [claim.run_id]

    def test_an_acceptance_whose_answer_was_lost_is_found_by_its_tag(self, store, claim):
        [accepted] = accept(store, claim, tag="lost")

        assert store.find_claims(worker=BOB, tag="lost") == [accepted]

    def test_a_run_that_was_claimed_again_is_refused(self, store, clock, worker, claim):
        clock.advance(minutes=5)
        worker.reap()
        worker.claim_one()

        assert accept(store, claim) == []

    def test_a_run_whose_cancellation_was_requested_is_refused(self, store, claim):
        store.cancel(claim.run_id, now=NOON)

        assert accept(store, claim) == []

    def test_its_lease_never_becomes_shorter(self, store, worker, claim):
        worker.beat(claim, until=NOON + HOUR)

        [accepted] = accept(store, claim)

        assert accepted.lease_until == NOON + HOUR

    def test_some_runs_of_a_message_are_accepted(self, store, worker, claim):
        add(store, *(more := [a_run() for _ in range(3)]))
        others = worker.claim(3)
        store.hand_over([handover_of(other) for other in others])
        accept(store, others[1], tag="before")

        accepted = accept(store, *others, claim, claim)

        found = {one.run_id for one in accepted}
        assert found == {claim.run_id, more[0].id, more[2].id}

    @pytest.mark.parametrize("run_id", [UNKNOWN_ID, "nonsense", ""])
    def test_an_unknown_run_is_refused(self, store, run_id):
        assert accept(store, Handover(RunId(run_id), 1)) == []

    def test_an_accepted_run_without_a_start_has_not_crashed(self, store, clock, worker, claim):
        accept(store, claim, started_at=None)
        clock.advance(minutes=5)
        [step] = worker.reap()

        assert not step.crash
        assert the_run(store, claim.run_id).crashes == 0
