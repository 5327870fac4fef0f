import logging
from datetime import timedelta

import pytest

from tickwork.errors import InvalidOption, LockHeld, StoreUnavailable


def lock_row(store, name="nightly"):
    """The lock as it is stored; None when there is none."""
    with store._reading() as tables:
        return tables.locks.get(name)


def is_held(store):
    """Whether the store has a row of it."""
    return lock_row(store) is not None


class TestLocks:
    """One holder; its lock is renewed while it lives, and given up at the end."""

    def test_it_is_there_in_the_block_only(self, app, store):
        with app.lock("nightly") as lock:
            assert is_held(store)
            assert (lock.name, lock.is_lost) == ("nightly", False)
        assert not is_held(store)

    def test_an_answer_that_was_lost_is_asked_for_again(self, app, store):
        store.faults["acquire_lock"] = ["lost"]

        with app.lock("nightly"):
            assert is_held(store)
        assert not is_held(store)

    def test_who_cannot_be_reached_gives_no_lock(self, app, store):
        store.faults["acquire_lock"] = ["away"]

        with pytest.raises(StoreUnavailable), app.lock("nightly"):
            raise AssertionError("There is no lock.")

    def test_what_was_done_is_done_though_it_cannot_be_released(self, app, store, caplog):
        store.faults["release_lock"] = ["away"]

        with caplog.at_level(logging.WARNING, "tickwork"), app.lock("nightly", ttl=60):
            pass

        assert "could not be released" in caplog.text
        assert is_held(store)  # until its time is over

    def test_an_error_in_the_block_comes_out_as_it_is(self, app, store):
        store.faults["release_lock"] = ["away"]

        with pytest.raises(ZeroDivisionError), app.lock("nightly"):
            raise ZeroDivisionError

    def test_it_is_renewed_while_its_holder_lives(self, app, store, clock):
        with app.lock("nightly") as lock:
            before = lock_row(store).until
            clock.advance(seconds=20)
            lock.renew()

            assert lock_row(store).until > before
            assert not lock.is_lost

    def test_one_that_another_has_taken_is_lost(self, app, store, clock):
        with app.lock("nightly") as lock:
            store.release_lock("nightly")
            lock.renew()

            assert lock.is_lost

    def test_one_that_could_not_be_renewed_for_its_time_is_lost(self, app, store, clock):
        store.faults["renew_lock"] = ["away"] * 100

        with app.lock("nightly", ttl=60) as lock:
            clock.advance(seconds=59)
            lock.renew()
            assert not lock.is_lost
            clock.advance(seconds=1)
            lock.renew()

            assert lock.is_lost

    def test_the_holder_is_named(self, app):
        with app.lock("nightly"), pytest.raises(LockHeld, match="process") as found:
            app.lock("nightly").__enter__()
        assert "tickwork unlock nightly" in found.value.fix

    @pytest.mark.parametrize("ttl", [0, 0.5, -1, timedelta(milliseconds=999)])
    def test_a_time_to_live_that_is_none(self, app, ttl):
        with pytest.raises(InvalidOption, match="ttl"), app.lock("nightly", ttl=ttl):
            pass

    def test_one_that_is_longer_than_time(self, app):
        with app.lock("nightly", ttl=timedelta.max):
            pass
