"""A value that the store cannot hold is an error of its own: only that shortens an outcome."""

import pytest

from tickwork._domain.runs.outcome import Failed, Outcome, OutcomeKind, Succeeded
from tickwork._domain.runs.retry import Fixed
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.transitions import shorten_transition
from tickwork.errors import ValueRejected
from tickwork_conformance.builders import SECOND, a_run, add, settled, the_run

LONE_SURROGATE = "\ud800"
"""No encoding of Unicode has it, so most databases cannot store it."""

BAD_OUTCOMES: tuple[Outcome, ...] = (
    Succeeded(f'"{LONE_SURROGATE}"'),
    Succeeded(note=LONE_SURROGATE),
    Failed(LONE_SURROGATE),
    Failed("no", traceback=LONE_SURROGATE),
)


@pytest.mark.parametrize("outcome", BAD_OUTCOMES)
class TestValuesThatCannotBeStored:
    """A store may take them. If it does not, it says that a value is the cause."""

    def test_nothing_of_the_batch_is_written(self, store, worker, outcome):
        add(store, bad := a_run(), good := a_run())
        claims = {claim.run_id: claim for claim in worker.claim(2)}

        try:
            store.record([settled(claims[good.id]), settled(claims[bad.id], outcome)])
        except ValueRejected:
            assert {the_run(store, run).status for run in (bad, good)} == {RunStatus.RUNNING}
        else:
            assert the_run(store, good).status is RunStatus.COMPLETED

    def test_a_shortened_outcome_keeps_its_kind(self, store, worker, outcome):
        add(store, new := a_run(attempts_max=3))
        retry = Fixed(attempts_max=3, delay=SECOND)
        step = settled(worker.claim_one(), outcome, retry=retry)

        assert store.record([shorten_transition(step, "The database rejected a value.")]) == []

        run = the_run(store, new)
        if step.outcome is OutcomeKind.SUCCEEDED:
            assert run.status is RunStatus.COMPLETED
            assert "not stored. The database rejected a value." in run.reason
        else:
            assert (run.status, run.due_at) == (RunStatus.FAILED, step.due_at)
