"""When a job fails so often that it needs an alert."""

import pytest

from tickwork._domain.watch import FailureRule, judge_failures
from tickwork.errors import InvalidOption


def runs(text: str) -> list[bool]:
    """Finished runs, the newest first: x failed, o completed."""
    return [letter == "x" for letter in text]


class TestInARow:
    """So many of the newest runs failed."""

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", None),
            ("xx", None),
            ("xxo", None),
            ("oxxx", None),
            ("xxx", "3 runs failed in a row."),
            ("xxxxo", "4 runs failed in a row."),
        ],
    )
    def test_it_begins_after_three(self, text, reason):
        assert judge_failures(FailureRule(in_a_row=3), runs(text)) == reason

    @pytest.mark.parametrize(("text", "is_over"), [("xxx", False), ("xo", False), ("oxxx", True)])
    def test_it_ends_with_a_completed_run(self, text, is_over):
        reason = judge_failures(FailureRule(in_a_row=3), runs(text), is_alerted=True)

        assert (reason is None) == is_over


class TestShare:
    """Such a share of the last runs failed."""

    RULE = FailureRule(share=0.5, runs=4)

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("xxx", None),  # too few runs
            ("xooo", None),
            ("oxxo", "2 of the last 4 runs failed."),
            ("oooxxx", None),
        ],
    )
    def test_it_begins_when_the_share_is_reached(self, text, reason):
        assert judge_failures(self.RULE, runs(text)) == reason

    def test_a_share_is_reached_exactly(self):
        rule = FailureRule(share=0.07, runs=100)

        assert judge_failures(rule, runs("x" * 7 + "o" * 93)) == "7 of the last 100 runs failed."

    @pytest.mark.parametrize(("text", "is_over"), [("xxoo", False), ("xooo", True)])
    def test_it_ends_at_half_of_the_share(self, text, is_over):
        assert (judge_failures(self.RULE, runs(text), is_alerted=True) is None) == is_over

    def test_both_conditions_can_be_combined(self):
        rule = FailureRule(in_a_row=2, share=0.5, runs=4)

        assert judge_failures(rule, runs("xxoo")) == "2 runs failed in a row."
        assert judge_failures(rule, runs("xoxo")) == "2 of the last 4 runs failed."
        assert judge_failures(rule, runs("ooxo"), is_alerted=True) is None
        assert rule.runs_needed == 4


class TestRules:
    """A rule that could never be met is refused."""

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"in_a_row": 0},
            {"in_a_row": True},
            {"in_a_row": "3"},
            {"in_a_row": 1001},
            {"share": 0},
            {"share": 1.1},
            {"share": "50%"},
            {"share": 0.5, "runs": 0},
        ],
    )
    def test_it_is_refused(self, options):
        with pytest.raises(InvalidOption):
            FailureRule(**options)
