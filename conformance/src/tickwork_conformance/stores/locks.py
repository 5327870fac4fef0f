from tickwork_conformance.builders import HOUR, MINUTE, NOON, a_lock


class TestLocksLocks:
    """A named lock has one owner at a time, until it is released or expires."""

    def test_a_free_lock_is_taken(self, store, clock):
        assert store.acquire_lock(a_lock("ann"), now=clock.now()) is None

    def test_a_held_lock_names_its_owner(self, store, clock):
        held = a_lock("ann", host="ann.example.org", pid=4711)
        store.acquire_lock(held, now=clock.now())

        assert store.acquire_lock(a_lock("bob"), now=clock.now()) == held

    def test_a_failed_acquire_changes_nothing(self, store, clock):
        store.acquire_lock(held := a_lock("ann"), now=clock.now())
        store.acquire_lock(a_lock("bob", until=NOON + HOUR), now=clock.now())

        assert store.acquire_lock(a_lock("cat"), now=clock.now()) == held

    def test_the_owner_may_acquire_it_again(self, store, clock):
        store.acquire_lock(a_lock("ann"), now=clock.now())
        again = a_lock("ann", until=NOON + HOUR)

        assert store.acquire_lock(again, now=clock.now()) is None
        assert store.acquire_lock(a_lock("bob"), now=clock.now()) == again

    def test_an_expired_lock_is_free(self, store, clock):
        store.acquire_lock(a_lock("ann", until=NOON + MINUTE), now=clock.now())
        clock.advance(seconds=59)
        assert store.acquire_lock(a_lock("bob"), now=clock.now()) is not None
        clock.advance(seconds=1)

        taken = a_lock("bob", acquired_at=clock.now(), until=NOON + HOUR)
        assert store.acquire_lock(taken, now=clock.now()) is None
        assert store.acquire_lock(a_lock("ann"), now=clock.now()) == taken

    def test_names_of_locks_are_case_sensitive(self, store, clock):
        store.acquire_lock(a_lock("ann", name="collect"), now=clock.now())

        assert store.acquire_lock(a_lock("bob", name="Collect"), now=clock.now()) is None


class TestLocksRenewing:
    """A lock is renewed while its holder lives."""

    def test_a_renewal_extends_the_lock(self, store, clock):
        store.acquire_lock(a_lock("ann"), now=clock.now())

        assert store.renew_lock("collect", "ann", until=NOON + HOUR, now=clock.now())

        clock.advance(minutes=59)
        held = store.acquire_lock(a_lock("bob"), now=clock.now())
        assert held == a_lock("ann", until=NOON + HOUR)

    def test_another_owner_cannot_renew_it(self, store, clock):
        store.acquire_lock(held := a_lock("ann"), now=clock.now())

        assert not store.renew_lock("collect", "bob", until=NOON + HOUR, now=clock.now())
        assert store.acquire_lock(a_lock("bob"), now=clock.now()) == held

    def test_it_cannot_be_renewed_after_another_owner_acquired_it(self, store, clock):
        store.acquire_lock(a_lock("ann"), now=clock.now())
        clock.advance(minutes=2)
        store.acquire_lock(a_lock("bob", until=NOON + HOUR), now=clock.now())

        assert not store.renew_lock("collect", "ann", until=NOON + HOUR, now=clock.now())

    def test_it_cannot_be_renewed_after_it_has_expired(self, store, clock):
        store.acquire_lock(a_lock("ann"), now=clock.now())
        clock.advance(minutes=1)

        assert not store.renew_lock("collect", "ann", until=NOON + HOUR, now=clock.now())

    def test_a_lock_that_does_not_exist_cannot_be_renewed(self, store, clock):
        assert not store.renew_lock("collect", "ann", until=NOON + HOUR, now=clock.now())


class TestLocksReleasing:
    """The owner releases a lock. An operator can release any lock."""

    def test_a_released_lock_is_free(self, store, clock):
        store.acquire_lock(a_lock("ann"), now=clock.now())

        assert store.release_lock("collect", "ann")
        assert store.acquire_lock(a_lock("bob"), now=clock.now()) is None

    def test_another_owner_cannot_release_it(self, store, clock):
        store.acquire_lock(held := a_lock("ann"), now=clock.now())

        assert not store.release_lock("collect", "bob")
        assert store.acquire_lock(a_lock("bob"), now=clock.now()) == held

    def test_without_an_owner_any_lock_is_released(self, store, clock):
        store.acquire_lock(a_lock("ann"), now=clock.now())

        assert store.release_lock("collect")
        assert store.acquire_lock(a_lock("bob"), now=clock.now()) is None

    def test_a_free_lock_cannot_be_released(self, store):
        assert not store.release_lock("collect", "ann")
        assert not store.release_lock("collect")
