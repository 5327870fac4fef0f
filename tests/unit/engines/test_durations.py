"""Which jobs count as quick."""

import pytest

from tickwork._engines.durations import QUICK, QUICK_TOTAL, SLOW_SECONDS, DurationEstimate

NOW = 100.0


def quick_estimate():
    durations = DurationEstimate()
    for _ in range(10):
        durations.add("quick", QUICK / 4)
    return durations


def test_an_unknown_job_is_not_quick():
    assert not quick_estimate().is_quick("unknown", now=NOW)


def test_a_job_with_short_attempts_is_quick():
    assert quick_estimate().is_quick("quick", now=NOW)


def test_a_few_disturbed_attempts_do_not_make_a_job_slow():
    durations = quick_estimate()
    for _ in range(3):
        durations.add("quick", 0.1)

    assert durations.is_quick("quick", now=NOW)


def test_a_job_whose_attempts_became_long_is_not_quick():
    durations = quick_estimate()
    for _ in range(100):
        durations.add("quick", 0.01)

    assert not durations.is_quick("quick", now=NOW)


def test_a_job_that_delayed_a_pump_is_slow_for_a_while():
    durations = quick_estimate()

    assert not durations.of("quick").add_quick(2 * QUICK_TOTAL, NOW)
    assert not durations.is_quick("quick", now=NOW)
    assert not durations.is_quick("quick", now=NOW + SLOW_SECONDS / 2)
    assert durations.is_quick("quick", now=NOW + SLOW_SECONDS)


def test_many_quick_attempts_by_a_pump_do_not_make_a_job_slow():
    durations = quick_estimate()
    for _ in range(1000):
        assert durations.of("quick").add_quick(QUICK / 2, NOW)

    assert durations.is_quick("quick", now=NOW)


def test_the_shortest_of_the_first_attempts_counts():
    durations = DurationEstimate()
    for seconds in (0.05, 0.02, QUICK / 2, 0.01):
        durations.add("new", seconds)

    assert durations.is_quick("new", now=NOW)
    assert durations.seconds == QUICK / 2


def test_a_new_quick_job_does_not_change_the_average_at_once():
    durations = DurationEstimate()
    for _ in range(100):
        durations.add("slow", 1.0)

    durations.add("new", QUICK / 2)

    assert durations.is_quick("new", now=NOW)
    assert durations.seconds > 0.9


def test_a_job_that_is_alone_stays_similar_after_one_long_attempt_by_a_pump():
    durations = quick_estimate()
    for seconds in [QUICK / 2] * 100 + [QUICK_TOTAL / 2]:
        durations.of("quick").add_quick(seconds, NOW)

    assert durations.seconds == pytest.approx(durations.mean_of("quick"), rel=0.01)
    assert durations.similar_jobs(NOW) == {"quick"}
