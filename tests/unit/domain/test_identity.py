from datetime import UTC, datetime, timedelta, timezone
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork._domain.identity import ScheduleId, firing_id, jitter_of
from tickwork._domain.names import check_name
from tickwork._kernel.ids import new_id
from tickwork.errors import InvalidOption

HOURLY = ScheduleId("019cb0d2-0000-7000-8000-000000000001")
DAILY = ScheduleId("019cb0d2-0000-7000-8000-000000000002")
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MOMENTS = st.datetimes(timezones=st.just(UTC))


class TestTheIdOfAFiring:
    """The same instant of the same schedule gives the same id, and no other does."""

    def test_it_is_the_same_everywhere_and_always(self):
        # Stored ids depend on it: a change here would fire instants a second time.
        assert firing_id(HOURLY, NOON) == "019cae6b-6600-8ce4-8581-c26748f26561"

    def test_the_zone_of_the_instant_is_no_matter(self):
        elsewhere = NOON.astimezone(timezone(timedelta(hours=5, minutes=45)))

        assert firing_id(HOURLY, elsewhere) == firing_id(HOURLY, NOON)

    def test_ids_differ_by_schedule_and_time(self):
        instants = [NOON + timedelta(microseconds=step) for step in range(100)]
        ids = {firing_id(schedule, at) for schedule in (HOURLY, DAILY) for at in instants}

        assert len(ids) == 200

    @given(MOMENTS)
    def test_it_is_a_uuid_of_version_8(self, moment):
        made = UUID(firing_id(HOURLY, moment))

        assert (made.version, made.variant) == (8, RFC_4122)

    def test_it_sorts_by_time_among_ids_of_dispatched_runs(self):
        second = timedelta(seconds=1)

        assert new_id(NOON - second) < firing_id(HOURLY, NOON) < new_id(NOON + second)


class TestSpreading:
    """Jitter is stable: every worker finds the same delay for the same firing."""

    @given(MOMENTS, st.timedeltas(timedelta(0), timedelta(days=1)))
    def test_it_stays_within_its_bounds(self, moment, within):
        delay = jitter_of(HOURLY, moment, within=within)

        assert timedelta(0) <= delay < within or delay == within == timedelta(0)
        assert delay == jitter_of(HOURLY, moment, within=within)

    def test_many_lie_evenly(self):
        delays = [
            jitter_of(HOURLY, NOON + timedelta(hours=hour), within=timedelta(seconds=100))
            for hour in range(2_000)
        ]
        quarters = [sum(delay.seconds // 25 == quarter for delay in delays) for quarter in range(4)]

        assert all(400 < quarter < 600 for quarter in quarters)


class TestNames:
    """A name can be shown as it is, and fits an index."""

    @pytest.mark.parametrize("name", ["emails", "pkg.mod:Cls", "Übersicht 2", "x" * 200])
    def test_it_is_taken(self, name):
        assert check_name("name", name) == name

    @pytest.mark.parametrize(
        "name", ["", " a", "a ", "x" * 201, "a\nb", "a\x00", "\ud800", 5, None]
    )
    def test_it_is_an_error(self, name):
        with pytest.raises(InvalidOption) as caught:
            check_name("queue", name)
        assert caught.value.option == "queue"

    def test_a_forbidden_character_is_an_error(self):
        with pytest.raises(InvalidOption, match="must not contain '='"):
            check_name("name", "a=b", forbidden="=")
