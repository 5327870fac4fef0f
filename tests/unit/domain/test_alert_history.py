"""One incident is one row: what is new, what came back, and what has ended."""

from datetime import UTC, datetime, timedelta

from tickwork._domain.alert_history import (
    OPEN_MAX,
    REOPEN_WITHIN,
    AlertChanges,
    AlertRow,
    plan_changes,
)

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def a_row(name, row_id="new", *, ended_at=None):
    return AlertRow(row_id, name, "failing", "bad", "it failed", NOON, ended_at)


def plan(found, known):
    return plan_changes(found, known, now=NOON)


def test_what_is_known_stays():
    assert not plan([a_row("a")], [a_row("a", "1")])


def test_a_new_cause_is_a_new_row():
    assert plan([a_row("a"), a_row("b")], [a_row("a", "1")]) == AlertChanges([a_row("b")], [], [])


def test_what_is_not_found_has_ended():
    assert plan([], [a_row("a", "1")]) == AlertChanges([], [], ["1"])


def test_an_alert_that_comes_back_soon_is_the_same_incident():
    ended_at = NOON - REOPEN_WITHIN + timedelta(seconds=1)
    earlier = ended_at - timedelta(seconds=30)
    known = [a_row("a", "2", ended_at=ended_at), a_row("a", "1", ended_at=earlier)]

    assert plan([a_row("a")], known) == AlertChanges([], ["2"], [])


def test_an_alert_that_comes_back_later_is_another_incident():
    known = [a_row("a", "1", ended_at=NOON - REOPEN_WITHIN)]

    assert plan([a_row("a")], known) == AlertChanges([a_row("a")], [], [])


def test_the_number_of_open_rows_is_limited():
    known = [a_row(f"known {number}", str(number)) for number in range(OPEN_MAX - 1)]
    new = [a_row("b"), a_row("c")]

    assert plan([*known, *new], known).begun == [a_row("b")]
