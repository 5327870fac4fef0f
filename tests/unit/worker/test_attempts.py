"""What outcomes mean: a handler that stops when it is told to."""

import pytest

from tickwork import Tickwork
from tickwork._domain.outcome import OutcomeKind, Succeeded
from tickwork._domain.status import RunStatus
from tickwork._domain.transitions import Transition
from tickwork._worker.attempts import Attempts, Begun
from tickwork._worker.desk import HeldDesk
from tickwork._worker.held import HeldRuns
from tickwork.events.bus import EventBus
from tickwork.testing import ManualClock
from unit.builders import a_claim


def attempts_of(app, clock, held):
    desk = HeldDesk(store=app._services.store, clock=clock, held=held)
    find = app.registry.definitions().get
    return Attempts(clock=clock, desk=desk, bus=EventBus(), find=find)


class TestPoison:
    """Whoever does not know a job gives none of its runs up: that is left to who does."""

    @pytest.mark.parametrize(("crashes", "is_tried"), [(0, True), (2, True), (3, False)])
    def test_a_run_that_crashed_too_often_is_given_up_when_it_is_claimed(self, crashes, is_tried):
        app = Tickwork("memory://")
        app.schedule("work", lambda: None).crashes(3)
        attempts = attempts_of(app, ManualClock(), HeldRuns())

        begun = attempts.begin(a_claim(job="work", crashes=crashes))

        assert isinstance(begun, Begun) is is_tried
        if isinstance(begun, Transition):
            assert (begun.to_status, begun.outcome) == (
                RunStatus.FAILED_PERMANENT,
                OutcomeKind.CRASHED,
            )
            assert (begun.is_final, begun.crash, begun.leaves_attempt) == (True, 0, False)
            assert begun.reason == "Its worker died 3 times while it ran."

    def test_how_often_is_known_before_anything_else_was_asked(self):
        app = Tickwork("memory://")
        app.schedule("tough", lambda: None).crashes(1_000)

        known = app._services.worker.known

        # A pass takes back what others left before it claims anything.
        assert known.crashes_max("tough") == 1_000
        assert known.crashes_max("of another program") > 1_000_000


class TestToldToStop:
    """`ctx.is_canceled()` is true for more than one reason, and only one of them is final."""

    @pytest.fixture
    def held(self):
        return HeldRuns()

    def ended(self, held, tell):
        """What becomes of a run whose handler was told, saw it, and returned."""
        app, clock, claim = Tickwork("memory://"), ManualClock(), a_claim(job="work")
        app.schedule("work", lambda: None)
        attempts = attempts_of(app, clock, held)
        held.add([claim], extended_at=0.0)
        begun = attempts.begin(claim)
        assert isinstance(begun, Begun)
        tell(claim)
        assert begun.ctx.is_canceled()
        return attempts.end(begun, Succeeded())

    def test_because_somebody_asked_for_it(self, held):
        step = self.ended(held, lambda claim: held.cancel(claim.run_id))

        assert (step.to_status, step.outcome) == (RunStatus.CANCELED, OutcomeKind.CANCELED)

    def test_because_its_lease_could_not_be_extended(self, held):
        # The database was away for a moment. Nobody has taken the run: what is written lands.
        step = self.ended(held, lambda claim: held.revoke(claim.run_id, token=claim.token))

        assert (step.to_status, step.outcome) == (RunStatus.PENDING, OutcomeKind.INTERRUPTED)
        assert (step.refund, step.crash) == (1, 0)
