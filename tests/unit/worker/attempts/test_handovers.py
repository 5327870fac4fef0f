"""Which claims a worker hands over to a remote engine."""

from typing import Any

from tickwork._domain.identity import RunId
from tickwork._domain.runs.handover import Handover
from tickwork._worker.attempts.handovers import HandoverTracker
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork.events import RunAccepted, RunSubmitted
from tickwork.events.bus import EventBus
from tickwork.testing import ManualClock
from unit.builders import a_claim


class StoredHandovers:
    """A store that notes what is handed over."""

    def __init__(self) -> None:
        self.handed_over: list[Handover] = []

    def hand_over(self, handovers: list[Handover]) -> None:
        self.handed_over += handovers


class Harness:
    def __init__(self) -> None:
        self.held, self.store = HeldRuns(), StoredHandovers()
        self.events: list[Any] = []
        bus = EventBus()
        for kind in (RunSubmitted, RunAccepted):
            bus.subscribe(kind, self.events.append)
        store: Any = self.store
        self.tracker = HandoverTracker(store=store, clock=ManualClock(), held=self.held, bus=bus)

    def hold(self, name: str, **options: Any) -> Any:
        claim = a_claim(run_id=RunId(name), **options)
        self.held.add([claim], extended_at=0.0)
        return claim


def test_only_claims_that_still_need_an_attempt_are_handed_over():
    harness = Harness()
    claims = [harness.hold(name) for name in ("a", "settled", "canceled", "late", "lost", "b")]
    settled, late = harness.held.of(claims[1]), harness.held.of(claims[3])
    assert settled is not None
    assert settled.try_settle()
    harness.held.cancel(claims[2].run_id)
    assert late is not None
    late.request_stop()
    harness.held.revoke(claims[4].run_id, token=1)
    claims.append(a_claim(run_id=RunId("not held")))
    claims.append(a_claim(run_id=RunId("b"), token=2))  # claimed again, and not held

    allowed = harness.tracker.hand_over(claims, engine="list")

    assert [claim.run_id for claim in allowed] == ["a", "b"]
    assert harness.store.handed_over == [Handover(RunId("a"), 1), Handover(RunId("b"), 1)]
    assert [(type(event), event.run_id) for event in harness.events] == [
        (RunSubmitted, "a"),
        (RunSubmitted, "b"),
    ]


def test_a_claim_that_is_handed_over_again_is_reported_once():
    harness = Harness()
    claim = harness.hold("a")

    for _ in range(2):
        assert harness.tracker.hand_over([claim], engine="list") == [claim]

    assert len(harness.store.handed_over) == 2
    assert len(harness.events) == 1


def test_a_claim_that_was_accepted_is_released():
    harness = Harness()
    first, other = harness.hold("a"), harness.hold("b")
    run = harness.held.of(first)

    harness.tracker.release([first])

    assert run is not None
    assert run.is_settled
    assert harness.held.of(first) is None
    assert harness.held.of(other) is not None
    assert [type(event) for event in harness.events] == [RunAccepted]
