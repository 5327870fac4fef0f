import pytest

from tickwork._domain.runs.status import CLAIMABLE, FINAL, NEXT, PHASES, Phase, RunStatus

S = RunStatus


class TestSteps:
    """A run changes its status only as the table allows."""

    @pytest.mark.parametrize(
        ("source", "targets"),
        [
            (S.PENDING, {S.RUNNING, S.CANCELED, S.SKIPPED, S.FAILED_PERMANENT}),
            (S.RUNNING, set(S) - {S.RUNNING}),
            (S.FAILED, {S.PENDING, S.RUNNING, S.CANCELED, S.FAILED_PERMANENT}),
            (S.COMPLETED, set()),
            (S.SKIPPED, set()),
            (S.CANCELED, set()),
            (S.FAILED_PERMANENT, set()),
        ],
    )
    def test_the_way_out_of_each_status(self, source, targets):
        assert {target for target in S if source.can_transition_to(target)} == targets

    def test_nothing_leads_out_of_a_final_status(self):
        assert {status for status in S if not NEXT[status]} == FINAL

    def test_every_status_can_come_to_an_end(self):
        assert all(status.is_final or NEXT[status] & FINAL for status in S)


class TestWords:
    """The names of statuses, and what they mean."""

    def test_pending_and_failed_runs_can_be_executed(self):
        assert {status for status in S if status.can_execute} == {S.PENDING, S.FAILED} == CLAIMABLE

    def test_four_statuses_are_final(self):
        assert {status for status in S if status.is_final} == {
            S.COMPLETED,
            S.SKIPPED,
            S.CANCELED,
            S.FAILED_PERMANENT,
        }

    def test_the_values_are_stored_in_rows(self):
        assert " ".join(S) == ("pending running failed completed skipped canceled failed_permanent")


class TestPhases:
    """A phase is what an unfinished run waits for; a finished run has none."""

    def test_a_running_run_is_in_the_running_phase_and_no_other_is(self):
        assert PHASES[S.RUNNING] == {Phase.RUNNING}
        assert all(Phase.RUNNING not in PHASES[status] for status in S if status != S.RUNNING)

    def test_a_run_that_can_be_executed_may_wait_for_three_reasons(self):
        waiting = {Phase.WAITING, Phase.READY, Phase.BLOCKED}

        assert PHASES[S.PENDING] == PHASES[S.FAILED] == waiting

    def test_a_finished_run_has_none(self):
        assert all(PHASES[status] == frozenset() for status in FINAL)
