"""Runs that end together, of one caller: it continues after the last one, in every order."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from contract.builders import NOON, StoreDriver, a_run, add
from contract.stores.conftest import SERVERS, STORES
from tickwork._domain.runs.status import Phase
from tickwork_conformance.builders import settled
from tickwork_conformance.stores.calls import calling

ROUNDS = int(os.environ.get("TICKWORK_CALL_ROUNDS", "50"))


@pytest.fixture(
    params=[pytest.param(kind, marks=pytest.mark.servers(kind)) for kind in sorted(SERVERS)]
)
def store(request, clock):
    with STORES[request.param](request, clock) as store:
        yield store


def test_two_that_end_together(store, clock):
    driver = StoreDriver(store, clock)
    barrier = threading.Barrier(2)

    def end(claim):
        barrier.wait()
        assert store.record([settled(claim)]) == []

    with ThreadPoolExecutor(2) as threads:
        for number in range(ROUNDS):
            add(store, a_run())
            parent = driver.claim_one()
            driver.record(parent, calling(parent, a_run(), a_run()))
            children = driver.claim()
            for each in [threads.submit(end, child) for child in children]:
                each.result(timeout=60)
            found = store.get_run(parent.run_id)
            assert found is not None
            assert found.phase is Phase.READY, number
            driver.run()


def test_an_end_and_a_cancel_of_the_caller(store, clock):
    driver = StoreDriver(store, clock)
    barrier = threading.Barrier(2)

    def end(claim):
        barrier.wait()
        assert store.record([settled(claim)]) == []

    def cancel(claim):
        barrier.wait()
        store.cancel(claim.run_id, now=NOON)
        while store.work_outbox(now=NOON, limit=10):
            pass

    with ThreadPoolExecutor(2) as threads:
        for number in range(ROUNDS):
            add(store, a_run())
            parent = driver.claim_one()
            driver.record(parent, calling(parent, a_run()))
            child = driver.claim_one()
            for each in [threads.submit(end, child), threads.submit(cancel, parent)]:
                each.result(timeout=60)
            store.sweep(now=NOON, limit=100)
            for run_id in (parent.run_id, child.run_id):
                found = store.get_run(run_id)
                assert found is not None
                assert found.is_finished, number
            assert not store.pending_work().has_outbox
