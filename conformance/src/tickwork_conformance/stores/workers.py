from tickwork._domain.identity import WorkerId
from tickwork_conformance.builders import ANN, BOB, MINUTE, NOON, a_run, a_worker_row, add

CAT = WorkerId("019cb0d2-0000-7000-8000-00000000c003")


class TestWorkersWorkers:
    """Workers report their state, and the reports are listed."""

    def test_the_first_heartbeat_registers_a_worker(self, store):
        worker = a_worker_row(
            ANN,
            host="ann.example.org",
            pid=2**31 - 1,
            queues=("emails", "images"),
            jobs=("resize", "send_email"),
            slots=10,
            running=3,
            version="0.1.0",
        )

        store.beat_worker(worker)

        assert store.list_workers() == [worker]

    def test_all_queues_and_no_queue_differ(self, store):
        store.beat_worker(a_worker_row(ANN, queues=None, jobs=()))
        store.beat_worker(a_worker_row(BOB, queues=()))

        by_id = {worker.id: worker for worker in store.list_workers()}
        assert (by_id[ANN].queues, by_id[BOB].queues) == (None, ())
        assert by_id[ANN].jobs == ()

    def test_later_heartbeats_replace_the_row(self, store):
        store.beat_worker(a_worker_row(ANN, running=3))
        later = a_worker_row(ANN, running=0, beat_at=NOON + MINUTE, jobs=("sweep",), queues=("a",))

        store.beat_worker(later)

        assert store.list_workers() == [later]

    def test_the_newest_heartbeat_comes_first(self, store):
        for worker, minutes in ((ANN, 1), (BOB, 3), (CAT, 2)):
            store.beat_worker(a_worker_row(worker, beat_at=NOON + minutes * MINUTE))

        assert [worker.id for worker in store.list_workers()] == [BOB, CAT, ANN]

    def test_a_worker_that_has_ended_is_removed(self, store):
        store.beat_worker(a_worker_row(ANN))
        store.beat_worker(a_worker_row(BOB))

        store.remove_worker(ANN)
        store.remove_worker(CAT)

        assert [worker.id for worker in store.list_workers()] == [BOB]

    def test_removing_a_worker_releases_no_runs(self, store, clock, worker):
        add(store, a_run())
        store.beat_worker(a_worker_row(ANN))
        claim = worker.claim_one()

        store.remove_worker(ANN)

        assert worker.reap() == []
        assert worker.record(claim) == []
