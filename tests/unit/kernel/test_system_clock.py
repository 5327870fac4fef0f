import time
from datetime import UTC, timedelta

from tickwork._kernel.clock import Clock, SystemClock, _find_monotonic


class TestSystemClock:
    """The one door to the machine's time."""

    def test_now_is_an_aware_instant_in_utc(self):
        clock: Clock = SystemClock()

        assert clock.now().tzinfo is UTC

    def test_neither_time_goes_back(self):
        clock = SystemClock()

        first, second = clock.monotonic(), clock.monotonic()

        assert second >= first
        assert clock.now() - clock.now() <= timedelta(0)

    def test_a_machine_without_boot_time_uses_the_monotonic_clock(self):
        assert _find_monotonic(None) is time.monotonic
