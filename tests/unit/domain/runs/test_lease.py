from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork._domain.runs.lease import LEASE_DEFAULT, LEASE_MAX, LEASE_MIN, Lease, has_expired
from tickwork.errors import InvalidOption
from unit.builders import NOON

LEASES = st.builds(Lease, st.timedeltas(LEASE_MIN, LEASE_MAX))


class TestLease:
    """A lease is extended in time, and the worker stops before another one can claim the run."""

    def test_it_lasts_a_minute_by_default(self):
        assert LEASE_DEFAULT.until(NOON) == NOON + timedelta(seconds=60)

    @pytest.mark.parametrize("length", [timedelta(0), timedelta(seconds=0.999), timedelta(days=2)])
    def test_its_length_has_limits(self, length):
        with pytest.raises(InvalidOption, match="lease"):
            Lease(length)

    def test_a_second_is_long_enough(self):
        assert Lease(timedelta(seconds=1)).beat_every == timedelta(seconds=1) / 3

    @given(LEASES)
    def test_two_heartbeats_fit_before_it_must_be_given_up(self, lease):
        assert 2 * lease.beat_every < lease.stop_after < lease.length

    @pytest.mark.parametrize(("elapsed", "expected"), [(0, False), (47.9, False), (48, True)])
    def test_the_holder_lets_go_at_four_fifths(self, elapsed, expected):
        assert LEASE_DEFAULT.must_stop(extended_at=100, monotonic=100 + elapsed) is expected

    @pytest.mark.parametrize(("seconds", "expected"), [(-1, False), (0, True), (1, True)])
    def test_others_may_take_it_at_its_end(self, seconds, expected):
        assert has_expired(NOON, now=NOON + timedelta(seconds=seconds)) is expected
