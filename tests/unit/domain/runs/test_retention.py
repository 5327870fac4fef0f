from datetime import timedelta

import pytest

from tickwork._domain.identity import RunId
from tickwork._domain.runs.retention import EndedRun, Keep, PrunePlan, Retention, plan_prune
from tickwork._domain.runs.status import RunStatus
from tickwork.errors import InvalidOption
from unit.builders import NOON

DAY = timedelta(days=1)


def ended(age: timedelta, status: RunStatus = RunStatus.COMPLETED, *, has_result: bool = True):
    has_failed = status is RunStatus.FAILED_PERMANENT
    return EndedRun(RunId("r"), "job", has_failed, NOON - age, has_result)


def plan(run: EndedRun, retention: Retention | None) -> str:
    match plan_prune([run], lambda _: retention, now=NOON):
        case PrunePlan([_], []):
            return "delete"
        case PrunePlan([], [_]):
            return "clear"
        case _:
            return "keep"


class TestPlan:
    """A run goes when it is older than the history of its job; its result may go before."""

    @pytest.mark.parametrize(
        ("run", "retention", "expected"),
        [
            (ended(31 * DAY), Retention(), "delete"),
            (ended(30 * DAY), Retention(), "keep"),
            (ended(29 * DAY), Retention(), "keep"),
            (ended(8 * DAY), Retention(history=7 * DAY), "delete"),
            (ended(999 * DAY), Retention(history=None), "keep"),
            (ended(999 * DAY), None, "keep"),
            (ended(2 * DAY), Retention(results=DAY), "clear"),
            (ended(2 * DAY, has_result=False), Retention(results=DAY), "keep"),
            (ended(31 * DAY), Retention(results=DAY), "delete"),
            (ended(31 * DAY), Retention(history=None, results=DAY), "clear"),
            (ended(31 * DAY), Retention(keep=Keep.FAILURES), "delete"),
            (ended(31 * DAY, RunStatus.SKIPPED), Retention(keep=Keep.FAILURES), "delete"),
            (
                ended(31 * DAY, RunStatus.FAILED_PERMANENT, has_result=False),
                Retention(keep=Keep.FAILURES),
                "keep",
            ),
            (ended(31 * DAY, RunStatus.FAILED_PERMANENT), Retention(), "delete"),
        ],
        ids=str,
    )
    def test_what_happens_to_a_run(self, run, retention, expected):
        assert plan(run, retention) == expected

    @pytest.mark.parametrize("option", ["history", "results"])
    @pytest.mark.parametrize("length", [timedelta(0), timedelta(seconds=59), 40_000 * DAY])
    def test_an_invalid_length_is_refused(self, option, length):
        with pytest.raises(InvalidOption, match=f"{option} must be between"):
            Retention(**{option: length})
