from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tickwork._kernel.clock import Clock
from tickwork.errors import InvalidDuration, InvalidOption, NaiveDatetime
from tickwork.testing import ManualClock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


class TestManualClock:
    """It shows the time that was set, and moves only when the test moves it."""

    def test_it_is_a_clock(self):
        clock: Clock = ManualClock(NOON)

        assert clock.now() == NOON

    def test_it_does_not_move_by_itself(self):
        clock = ManualClock(NOON)

        assert (clock.now(), clock.monotonic()) == (clock.now(), clock.monotonic()) == (NOON, 0.0)

    def test_advance_moves_now_and_monotonic(self):
        clock = ManualClock(NOON)

        clock.advance(timedelta(seconds=1), minutes=1, milliseconds=500)

        assert clock.now() == NOON + timedelta(seconds=61.5)
        assert clock.monotonic() == 61.5

    def test_setting_it_forward_moves_monotonic_as_well(self):
        clock = ManualClock(NOON)

        clock.set(NOON + timedelta(hours=1))

        assert clock.monotonic() == 3600.0

    def test_setting_it_back_leaves_monotonic_as_it_is(self):
        clock = ManualClock(NOON)
        clock.advance(seconds=10)

        clock.set(NOON - timedelta(hours=1))

        assert clock.now() == NOON - timedelta(hours=1)
        assert clock.monotonic() == 10.0

    def test_a_time_can_be_iso_text(self):
        clock = ManualClock("2026-07-01T12:00:00Z")

        assert clock.now().isoformat() == "2026-07-01T12:00:00+00:00"
        assert clock.set("2026-07-02T12:00:00+02:00").isoformat() == "2026-07-02T10:00:00+00:00"

    @pytest.mark.parametrize("length", ["1h", 3600, 3600.0, timedelta(hours=1)])
    def test_a_length_can_be_text_or_seconds(self, length):
        assert ManualClock(NOON).advance(length) == NOON + timedelta(hours=1)

    @pytest.mark.parametrize("wrong", ["noon", 5, None])
    def test_what_is_not_a_time_is_refused(self, wrong):
        with pytest.raises(InvalidOption, match="must be a"):
            ManualClock(wrong)

    @pytest.mark.parametrize("wrong", ["soon", None, True])
    def test_what_is_not_a_length_is_refused(self, wrong):
        with pytest.raises(InvalidDuration):
            ManualClock().advance(wrong)

    def test_advance_cannot_go_back(self):
        with pytest.raises(ValueError, match="cannot go back"):
            ManualClock().advance(seconds=-1)

    def test_now_is_always_in_utc(self):
        clock = ManualClock()

        clock.set(datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin")))

        assert clock.now().isoformat() == "2026-07-01T10:00:00+00:00"
        assert repr(clock) == "ManualClock(2026-07-01T10:00:00+00:00)"

    def test_a_naive_time_is_refused(self):
        with pytest.raises(NaiveDatetime):
            ManualClock(datetime(2026, 1, 1))
        with pytest.raises(NaiveDatetime):
            ManualClock().set(datetime(2026, 1, 1))

    def test_threads_share_it(self):
        clock = ManualClock(NOON)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: clock.advance(seconds=1), range(400)))

        assert clock.now() == NOON + timedelta(seconds=400)
