import logging
from datetime import timedelta

import pytest

from tickwork._kernel.processes import ThisProcess
from tickwork._stores.contract import LockRow
from tickwork.errors import InvalidOption, LockHeld, StoreUnavailable


def lock_row(store, name="nightly"):
    """The row of the lock, or None."""
    return store.get_lock(name)


def is_held(store):
    """Whether the store has a row of the lock."""
    return lock_row(store) is not None


class TestLocks:
    """One process holds a lock, renews it, and releases it at the end of the block."""

    def test_the_lock_exists_only_in_the_block(self, app, store):
        with app.lock("nightly") as lock:
            assert is_held(store)
            assert (lock.name, lock.is_lost) == ("nightly", False)
        assert not is_held(store)

    def test_a_lost_answer_is_requested_again(self, app, store):
        store.faults["acquire_lock"] = ["lost"]

        with app.lock("nightly"):
            assert is_held(store)
        assert not is_held(store)

    def test_an_unavailable_store_gives_no_lock(self, app, store):
        store.faults["acquire_lock"] = ["away"]

        with pytest.raises(StoreUnavailable), app.lock("nightly"):
            raise AssertionError("There is no lock.")

    def test_a_failed_release_is_only_logged(self, app, store, caplog):
        store.faults["release_lock"] = ["away"]

        with caplog.at_level(logging.WARNING, "tickwork"), app.lock("nightly", ttl=60):
            pass

        assert "could not be released" in caplog.text
        assert is_held(store)  # until it expires

    def test_an_error_in_the_block_is_raised_as_it_is(self, app, store):
        store.faults["release_lock"] = ["away"]

        with pytest.raises(ZeroDivisionError), app.lock("nightly"):
            raise ZeroDivisionError

    def test_a_lock_of_a_process_of_this_machine_that_has_died_is_free(self, app, store, clock):
        me = ThisProcess.current()
        owner = f"dead|{me.boot_id}|0"  # the process with this pid has started later
        until = clock.now() + timedelta(minutes=1)
        dead = LockRow("nightly", owner, me.host, me.pid, clock.now(), until)
        store.acquire_lock(dead, now=clock.now())

        with app.lock("nightly"):
            assert lock_row(store).owner != owner

    @pytest.mark.parametrize("changes", [{"host": "elsewhere"}, {"owner": "x|other boot|0"}])
    def test_a_lock_of_another_machine_is_held_until_it_expires(self, app, store, clock, changes):
        me = ThisProcess.current()
        until = clock.now() + timedelta(minutes=1)
        owner = f"dead|{me.boot_id}|0"
        other = LockRow("nightly", owner, me.host, me.pid, clock.now(), until)._replace(**changes)
        store.acquire_lock(other, now=clock.now())

        with pytest.raises(LockHeld), app.lock("nightly"):
            raise AssertionError("Another process has it.")

    def test_it_is_renewed_while_the_block_runs(self, app, store, clock):
        with app.lock("nightly") as lock:
            before = lock_row(store).until
            clock.advance(seconds=20)
            lock.renew()

            assert lock_row(store).until > before
            assert not lock.is_lost

    def test_a_lock_that_another_process_took_is_lost(self, app, store, clock):
        with app.lock("nightly") as lock:
            store.release_lock("nightly")
            lock.renew()

            assert lock.is_lost

    def test_a_lock_that_was_not_renewed_in_time_is_lost(self, app, store, clock):
        store.faults["renew_lock"] = ["away"] * 100

        with app.lock("nightly", ttl=60) as lock:
            clock.advance(seconds=59)
            lock.renew()
            assert not lock.is_lost
            clock.advance(seconds=1)
            lock.renew()

            assert lock.is_lost

    def test_the_error_names_the_holder(self, app):
        with app.lock("nightly"), pytest.raises(LockHeld, match="process") as found:
            app.lock("nightly").__enter__()
        assert "tickwork unlock nightly" in found.value.fix

    @pytest.mark.parametrize("ttl", [0, 0.5, -1, timedelta(milliseconds=999)])
    def test_an_invalid_ttl(self, app, ttl):
        with pytest.raises(InvalidOption, match="ttl"), app.lock("nightly", ttl=ttl):
            pass

    def test_a_very_long_ttl(self, app):
        with app.lock("nightly", ttl=timedelta.max):
            pass
