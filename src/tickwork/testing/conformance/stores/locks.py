from tickwork.testing.conformance.builders import HOUR, MINUTE, NOON, a_lock


class TestLocksLocks:
    """A named lock has one owner at a time, until it is given up or expires."""

    def test_a_free_lock_is_taken(self, store, clock):
        assert store.acquire_lock(a_lock("ann"), now=clock.now()) is None

    def test_one_that_is_held_says_by_whom(self, store, clock):
        held = a_lock("ann", host="ann.example.org", pid=4711)
        store.acquire_lock(held, now=clock.now())

        assert store.acquire_lock(a_lock("bob"), now=clock.now()) == held

    def test_asking_in_vain_changes_nothing(self, store, clock):
        store.acquire_lock(held := a_lock("ann"), now=clock.now())
        store.acquire_lock(a_lock("bob", until=NOON + HOUR), now=clock.now())

        assert store.acquire_lock(a_lock("cat"), now=clock.now()) == held

    def test_its_owner_may_take_it_again(self, store, clock):
        store.acquire_lock(a_lock("ann"), now=clock.now())
        again = a_lock("ann", until=NOON + HOUR)

        assert store.acquire_lock(again, now=clock.now()) is None
        assert store.acquire_lock(a_lock("bob"), now=clock.now()) == again

    def test_one_that_has_expired_is_free(self, store, clock):
        store.acquire_lock(a_lock("ann", until=NOON + MINUTE), now=clock.now())
        clock.advance(seconds=59)
        assert store.acquire_lock(a_lock("bob"), now=clock.now()) is not None
        clock.advance(seconds=1)

        taken = a_lock("bob", acquired_at=clock.now(), until=NOON + HOUR)
        assert store.acquire_lock(taken, now=clock.now()) is None
        assert store.acquire_lock(a_lock("ann"), now=clock.now()) == taken

    def test_names_tell_locks_apart_letter_by_letter(self, store, clock):
        store.acquire_lock(a_lock("ann", name="collect"), now=clock.now())

        assert store.acquire_lock(a_lock("bob", name="Collect"), now=clock.now()) is None


class TestLocksRenewing:
    """A lock is renewed while its holder lives."""

    def test_it_is_held_for_longer(self, store, clock):
        store.acquire_lock(a_lock("ann"), now=clock.now())

        assert store.renew_lock("collect", "ann", until=NOON + HOUR, now=clock.now())

        clock.advance(minutes=59)
        held = store.acquire_lock(a_lock("bob"), now=clock.now())
        assert held == a_lock("ann", until=NOON + HOUR)

    def test_not_by_another(self, store, clock):
        store.acquire_lock(held := a_lock("ann"), now=clock.now())

        assert not store.renew_lock("collect", "bob", until=NOON + HOUR, now=clock.now())
        assert store.acquire_lock(a_lock("bob"), now=clock.now()) == held

    def test_not_after_another_has_taken_it(self, store, clock):
        store.acquire_lock(a_lock("ann"), now=clock.now())
        clock.advance(minutes=2)
        store.acquire_lock(a_lock("bob", until=NOON + HOUR), now=clock.now())

        assert not store.renew_lock("collect", "ann", until=NOON + HOUR, now=clock.now())

    def test_not_after_it_has_expired(self, store, clock):
        store.acquire_lock(a_lock("ann"), now=clock.now())
        clock.advance(minutes=1)

        assert not store.renew_lock("collect", "ann", until=NOON + HOUR, now=clock.now())

    def test_not_when_there_is_none(self, store, clock):
        assert not store.renew_lock("collect", "ann", until=NOON + HOUR, now=clock.now())


class TestLocksReleasing:
    """A lock is given up by its owner; or by a person who knows what they do."""

    def test_it_is_free_for_others(self, store, clock):
        store.acquire_lock(a_lock("ann"), now=clock.now())

        assert store.release_lock("collect", "ann")
        assert store.acquire_lock(a_lock("bob"), now=clock.now()) is None

    def test_only_its_owner_may(self, store, clock):
        store.acquire_lock(held := a_lock("ann"), now=clock.now())

        assert not store.release_lock("collect", "bob")
        assert store.acquire_lock(a_lock("bob"), now=clock.now()) == held

    def test_unless_no_owner_is_named(self, store, clock):
        store.acquire_lock(a_lock("ann"), now=clock.now())

        assert store.release_lock("collect")
        assert store.acquire_lock(a_lock("bob"), now=clock.now()) is None

    def test_there_is_nothing_to_give_up(self, store):
        assert not store.release_lock("collect", "ann")
        assert not store.release_lock("collect")
