"""An event and a suspension at the same time: the run is woken in every order."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from contract.builders import NOON, StoreDriver, a_run, add, an_id
from contract.stores.conftest import SERVERS, STORES
from tickwork._domain.runs.outcome import Suspended
from tickwork._domain.runs.status import Phase
from tickwork._domain.runs.steps import Step, StepKind, StepState
from tickwork._domain.runs.stored_events import FOREVER, KEPT, EventName, NewEvent
from tickwork_conformance.builders import settled

ROUNDS = int(os.environ.get("TICKWORK_EVENT_ROUNDS", "200"))


@pytest.fixture(
    params=[pytest.param(kind, marks=pytest.mark.servers(kind)) for kind in sorted(SERVERS)]
)
def store(request, clock):
    with STORES[request.param](request, clock) as store:
        yield store


def test_no_wake_up_is_lost(store, clock):
    driver = StoreDriver(store, clock)
    barrier = threading.Barrier(2)

    def suspend(claim, name):
        step = Step("paid", 0, StepKind.WAIT, StepState.OPEN, claim.token, NOON)
        suspended = Suspended(FOREVER, "waits", (step,), name)
        transition = settled(claim, suspended)
        barrier.wait()
        assert store.record([transition]) == []

    def emit(name):
        event = NewEvent(an_id(), name, "1", NOON, NOON + KEPT)
        barrier.wait()
        assert store.emit(event)
        while store.work_outbox(now=NOON, limit=10):
            pass

    with ThreadPoolExecutor(2) as threads:
        for number in range(ROUNDS):
            add(store, run := a_run())
            claim = driver.claim_one()
            name = EventName("", "paid", f"{number}")
            for each in [threads.submit(suspend, claim, name), threads.submit(emit, name)]:
                each.result(timeout=60)
            found = store.get_run(run.id)
            assert found is not None
            assert found.phase is Phase.READY, number
            assert not store.pending_work().has_outbox
            driver.run()
