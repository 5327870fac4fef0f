"""Times and delays that no calendar reaches are refused where they are given."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tickwork import schedules
from tickwork._kernel.durations import as_delay
from tickwork._kernel.instants import as_instant
from tickwork.errors import InvalidDuration, InvalidOption, InvalidSchedule

EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))


@pytest.mark.parametrize("zone", [UTC, EAST, WEST])
@pytest.mark.parametrize("moment", ["0001-01-01T00:00", "9999-12-31T23:59:59.999999"])
def test_the_ends_of_the_calendar_are_refused(moment, zone):
    with pytest.raises(InvalidOption, match="must be a time between the years 2 and 9998"):
        as_instant(datetime.fromisoformat(moment).replace(tzinfo=zone))


@pytest.mark.parametrize("moment", ["0002-01-02T00:00Z", "9998-12-30T00:00Z"])
def test_all_other_times_are_accepted(moment):
    assert as_instant(moment) == datetime.fromisoformat(moment)


@pytest.mark.parametrize("delay", [timedelta.max, timedelta(days=36_501), 1e12, "99999d"])
def test_a_delay_of_more_than_a_century_is_refused(delay):
    with pytest.raises(InvalidDuration, match="a delay must be at most 36,500 days"):
        as_delay(delay)


def test_a_delay_of_a_century_is_accepted():
    assert as_delay("36500d") == timedelta(days=36_500)


@pytest.mark.parametrize("days", [36_501, 999_999_999, 9_999_999_999, 1e300, float("inf")])
def test_an_interval_of_more_than_a_century_is_refused(days):
    with pytest.raises(InvalidSchedule, match="at most 36,500 days"):
        schedules.every(days=days)
