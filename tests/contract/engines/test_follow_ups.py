"""Follow-ups come with the success of an attempt, from every engine."""

import json

import pytest

from tickwork._domain.runs.outcome import OutcomeKind


def numbers(step):
    return [json.loads(run.args)["n"] for run in step.follow_ups]


@pytest.mark.parametrize(
    ("job", "expected"), [("follows", [1, 2]), ("follows_with_hooks", [1, 2, 3])]
)
class TestFollowUps:
    def test_a_success_has_them(self, harness, job, expected):
        harness.submit(harness.claim(job, how="fine"))

        [step] = harness.steps(1)

        assert step.outcome is OutcomeKind.SUCCEEDED
        assert numbers(step) == expected
        delays = [(run.due_at - run.created_at).total_seconds() for run in step.follow_ups]
        assert delays[:2] == [0, 300]

    @pytest.mark.parametrize("how", ["value", "snooze", "reported"])
    def test_other_outcomes_have_none(self, harness, job, expected, how):
        harness.submit(harness.claim(job, how=how))

        [step] = harness.steps(1)

        assert step.outcome is not OutcomeKind.SUCCEEDED
        assert step.follow_ups == ()


class TestKilled:
    @pytest.fixture
    def kind(self):
        return "processes"

    def test_a_process_that_dies_leaves_none(self, harness):
        harness.submit(harness.claim("follows", how="dies"))

        [step] = harness.steps(1)

        assert step.outcome is OutcomeKind.CRASHED
        assert step.follow_ups == ()
