import pytest

from tickwork_conformance.builders import NOON, a_run, add, ids


class TestSchemaSchema:
    """An installed store has a version, and can be installed again."""

    def test_the_tables_have_a_version(self, store):
        assert store.schema_version() >= 1
        store.check_schema()

    def test_installing_again_keeps_all_rows(self, store, worker):
        add(store, run := a_run())

        assert store.install() == store.schema_version()
        assert ids(worker.claim()) == [run.id]

    def test_the_store_returns_the_time_of_the_database(self, store):
        now = store.database_time()

        assert now.utcoffset() is not None
        assert abs((store.database_time() - now).total_seconds()) < 60

    def test_a_store_can_be_closed_twice(self, store):
        store.close()
        store.close()


class TestSchemaEmptyBatches:
    """Every operation accepts an empty batch."""

    @pytest.mark.parametrize(
        ("verb", "answer"),
        [
            (lambda store: store.add_runs([]), []),
            (lambda store: store.add_runs([], may_be_stored=True), []),
            (lambda store: store.record([]), []),
            (lambda store: store.record([], may_be_stored=True), []),
            (lambda store: store.extend_leases([], until=NOON), ([], [])),
            (lambda store: store.check_claims([]), ([], [])),
            (lambda store: store.get_runs([]), []),
            (lambda store: store.count_taken([]), {}),
            (lambda store: store.set_limits({}), None),
            (lambda store: store.stamp_seen(jobs=[], schedules=[], now=NOON), None),
            (lambda store: store.next_firing_at(jobs=[]), None),
            (lambda store: store.delete_runs([]), 0),
            (lambda store: store.clear_results([], reason=""), 0),
            (lambda store: store.prune(before=NOON, limit=10), (0, 0, 0)),
        ],
    )
    def test_the_result_is_empty(self, store, verb, answer):
        assert verb(store) == answer


def test_a_store_has_a_number_of_pumps(store):
    is_server = store.connections_max > 2

    assert store.pumps_max == (2 if is_server else 1)
