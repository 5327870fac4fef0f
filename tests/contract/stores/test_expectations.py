"""Schedules that are expected to complete, and the locks that stand for incidents."""

from datetime import timedelta

from contract.builders import NOON, a_schedule, added
from tickwork._stores.contract import LockRow


class TestExpectedSchedules:
    """Only schedules with ``expect_within`` are listed, sorted by tenant and name."""

    def test_they_are_listed_with_the_length(self, store):
        added(store, "plain")
        added(store, "b", expect_within=timedelta(minutes=30))
        added(store, "a", expect_within=timedelta(hours=1))

        found = store.list_expected_schedules(limit=10)

        assert [(row.spec.name, row.spec.expect_within) for row in found] == [
            ("a", timedelta(hours=1)),
            ("b", timedelta(minutes=30)),
        ]
        assert len(store.list_expected_schedules(limit=1)) == 1

    def test_a_change_removes_it(self, store):
        row = added(store, "a", expect_within=timedelta(minutes=30))

        store.change_schedule(row, a_schedule(name="a"), now=NOON, next_due_at=NOON)

        assert store.list_expected_schedules(limit=10) == []


class TestLockRows:
    """The row of a lock can be read, also when it has expired."""

    def test_the_row_is_as_it_was_stored(self, store):
        lock = LockRow("a", "me", "host", 7, NOON, NOON + timedelta(minutes=1))
        assert store.get_lock("a") is None

        store.acquire_lock(lock, now=NOON)

        assert store.get_lock("a") == lock
        store.release_lock("a", "me")
        assert store.get_lock("a") is None
