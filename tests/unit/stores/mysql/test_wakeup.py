"""How often a worker polls a database that has no notifications."""

import pytest

from tickwork._stores.mysql.wakeup import poll_interval


@pytest.mark.parametrize(
    ("unchanged", "seconds"),
    [(0.0, 0.003), (0.15, 0.003), (1.0, 0.02), (2.0, 0.04), (29.0, 0.04), (31.0, 0.2)],
)
def test_it_polls_often_after_a_change_and_rarely_later(unchanged, seconds):
    intervals = [poll_interval(unchanged) for _ in range(50)]

    assert all(0.8 * seconds <= interval <= 1.2 * seconds for interval in intervals)
    assert len(set(intervals)) > 1
