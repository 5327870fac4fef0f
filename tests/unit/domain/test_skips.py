"""Which skips of a schedule are counted by one row."""

import pytest

from tickwork._domain.identity import RunId
from tickwork._domain.skips import (
    MergedSkips,
    NewSkip,
    SkipMark,
    SkipPlan,
    is_counted,
    plan_skips,
)

DIGEST = ("", "digest")
ROW = RunId("row")
MARK = SkipMark(ROW, "closed", 10)


def run_at(instant):
    return RunId(f"at {instant}")


def a_skip(first, last=None, **given):
    last = first if last is None else last
    facts = {"schedule": DIGEST, "run_id": run_at(first), "reason": "closed", **given}
    return NewSkip(first_at=first, last_at=last, ended_at=99, **facts)


def plan(*skips, mark=MARK, others=()):
    marks = {} if mark is None else {DIGEST: mark}
    return plan_skips(skips, marks=marks, others={DIGEST: others})


class TestPlanSkips:
    def test_equal_skips_are_added_to_the_newest_row(self):
        found = plan(a_skip(20, 40, instants=3), a_skip(50))

        assert found == SkipPlan(
            [MergedSkips(4, 50, 99, ROW)],
            {run_at(20), run_at(50)},
            {DIGEST: MARK._replace(last_at=50)},
        )

    def test_the_first_skip_has_its_own_row(self):
        mark = SkipMark(run_at(20), "closed", 20)

        assert plan(a_skip(20), mark=None) == SkipPlan([], set(), {DIGEST: mark})

    def test_they_are_merged_in_the_order_of_their_instants(self):
        found = plan(a_skip(30), a_skip(20), mark=None)

        assert found.merged == [MergedSkips(1, 30, 99, run_at(20))]

    @pytest.mark.parametrize(
        "skip", [a_skip(20, reason="holiday"), a_skip(20, may_merge=False), a_skip(10, 20)]
    )
    def test_a_new_row(self, skip):
        mark = SkipMark(skip.run_id, skip.reason, 20)

        assert plan(skip) == SkipPlan([], set(), {DIGEST: mark})

    @pytest.mark.parametrize("at", [5, 10])
    def test_an_older_skip_has_its_own_row_which_is_not_the_newest(self, at):
        assert plan(a_skip(at)) == SkipPlan([], set(), {})

    def test_another_run_between_two_skips_begins_a_new_row(self):
        found = plan(a_skip(20), a_skip(30), a_skip(40), others=[25])

        assert found.merged == [MergedSkips(1, 20, 99, ROW), MergedSkips(1, 40, 99, run_at(30))]

    @pytest.mark.parametrize("at", [5, 10, 20, 30])
    def test_a_run_that_is_not_between_them_does_not_matter(self, at):
        assert plan(a_skip(20), others=[at]).without_row == {run_at(20)}

    def test_schedules_are_separate(self):
        other = a_skip(20, schedule=("acme", "digest"))

        assert plan(other).without_row == set()


class TestIsCounted:
    @pytest.mark.parametrize(
        ("mark", "reason", "at", "expected"),
        [
            (None, "closed", 10, False),
            (MARK, "closed", 10, True),
            (MARK, "closed", 11, False),
            (MARK, "holiday", 10, False),
        ],
    )
    def test_by_reason_and_instant(self, mark, reason, at, expected):
        assert is_counted(mark, reason=reason, at=at) is expected
