"""The audit log of the dashboard, and the idempotency keys of its API."""

from datetime import timedelta

from tickwork._domain.identity import RunId
from tickwork._kernel.ids import new_id
from tickwork._stores.contract import AuditEntry, IdempotentRequest
from tickwork_conformance.builders import DAY, HOUR, NOON


def an_entry(hours: int = 0, **given: object) -> AuditEntry:
    at = NOON + timedelta(hours=hours)
    facts = {"actor": "ann", "source": "127.0.0.1", "action": "run.cancel", "subject": "run/1"}
    return AuditEntry(id=new_id(at), at=at, **(facts | given))  # type: ignore[arg-type]  # by name


def a_request(**given: object) -> IdempotentRequest:
    facts = {"key": "ann/1", "digest": "d", "run_id": RunId(new_id(NOON)), "until": NOON + DAY}
    return IdempotentRequest(**(facts | given))  # type: ignore[arg-type]  # by name


class TestAuditAuditLog:
    def test_entries_come_back_newest_first(self, store):
        entries = [an_entry(hour, detail='{"note": "Ünïcode \U0001f642"}') for hour in range(3)]
        for entry in entries:
            store.add_audit(entry)

        assert store.list_audit() == entries[::-1]

    def test_entries_come_in_pages(self, store):
        entries = [an_entry(hour) for hour in range(5)]
        for entry in entries:
            store.add_audit(entry)

        first = store.list_audit(limit=2)
        second = store.list_audit(limit=2, before=first[-1].id)

        assert [*first, *second] == entries[:0:-1]

    def test_entries_of_one_subject(self, store):
        store.add_audit(mine := an_entry(subject="queue/Mine"))
        store.add_audit(an_entry(subject="queue/mine"))

        assert store.list_audit(subject="queue/Mine") == [mine]
        assert store.list_audit(subject="queue/Mine", before=mine.id) == []

    def test_entries_of_one_action(self, store):
        store.add_audit(mine := an_entry(subject="run/1"))
        store.add_audit(other := an_entry(subject="run/2"))
        store.add_audit(an_entry(action="Run.Cancel", subject="run/1"))

        assert store.list_audit(action="run.cancel") == [other, mine]
        assert store.list_audit(action="run.cancel", before=other.id) == [mine]
        assert store.list_audit(action="run.cancel", subject="run/1") == [mine]
        assert store.list_audit(action="run.retry", subject="run/1") == []

    def test_old_entries_are_pruned_in_batches(self, store):
        entries = [an_entry(hour) for hour in range(4)]
        for entry in entries:
            store.add_audit(entry)

        gone = [store.prune_audit(before=entries[3].id, limit=2) for _ in range(3)]

        assert gone == [2, 1, 0]
        assert store.list_audit() == entries[3:]


class TestAuditIdempotencyKeys:
    def test_the_first_request_gets_the_key(self, store):
        request = a_request()

        assert store.reserve_request(request, now=NOON) == request

    def test_a_second_request_returns_the_first_one(self, store):
        store.reserve_request(first := a_request(), now=NOON)

        second = a_request(digest="other")
        assert store.reserve_request(second, now=NOON + HOUR) == first

    def test_keys_are_case_sensitive(self, store):
        store.reserve_request(a_request(key="ann/a"), now=NOON)

        other = a_request(key="ann/A ")
        assert store.reserve_request(other, now=NOON) == other

    def test_a_key_is_free_again_after_its_time(self, store):
        store.reserve_request(a_request(), now=NOON)

        later = a_request(digest="other", until=NOON + 3 * DAY)
        assert store.reserve_request(later, now=NOON + DAY) == later

    def test_requests_are_pruned_after_their_time(self, store):
        store.reserve_request(a_request(), now=NOON)
        store.reserve_request(kept := a_request(key="kept", until=NOON + 3 * DAY), now=NOON)

        store.prune_keys(before=NOON + 2 * DAY, limit=10)

        # It was deleted: at a time when it would still hold its key, the key is free.
        assert store.reserve_request(again := a_request(), now=NOON) == again
        other = a_request(key="kept")
        assert store.reserve_request(other, now=NOON) == kept
