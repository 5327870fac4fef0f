"""Single passes on a store that loses answers."""

from typing import Any

import pytest

from tickwork import RunStatus, Tickwork
from tickwork._stores.sqlite.memory import MemoryStore
from tickwork.errors import OutcomeUnknown, StoreUnavailable
from tickwork.testing import ManualClock


class FaultyStore(MemoryStore):
    """Executes every request, but loses the answers to some."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.faults: dict[str, list[Exception]] = {}
        self.repeats: list[bool] = []

    def claim(self, *args: Any, **options: Any) -> Any:
        claims = super().claim(*args, **options)
        self._fail("claim")
        return claims

    def record(self, steps: Any, *, may_be_stored: bool = False, touches_jobs: bool = True) -> Any:
        self.repeats.append(may_be_stored)
        lost = super().record(steps, may_be_stored=may_be_stored, touches_jobs=touches_jobs)
        self._fail("record")
        return lost

    def _fail(self, operation: str) -> None:
        if self.faults.get(operation):
            raise self.faults[operation].pop()


def unknown() -> Exception:
    return OutcomeUnknown("memory://", "the line went dead")


@pytest.fixture
def store():
    return FaultyStore(ManualClock())


@pytest.fixture
def app(store):
    with Tickwork("memory://", store=store, clock=store._clock) as app:
        yield app


class TestLostAnswers:
    """A request whose answer was lost is found again, and not executed twice."""

    def test_claims_whose_answer_was_lost_are_found_again(self, app, store):
        run = app.schedule("work", lambda: "done").dispatch()
        store.faults["claim"] = [unknown()]

        assert app.run() == 1
        assert run.result() == "done"

    def test_a_write_whose_answer_was_lost_is_repeated_as_a_repeat(self, app, store):
        run = app.schedule("work", lambda: "done").dispatch()
        store.faults["record"] = [unknown(), unknown()]

        assert app.run() == 1
        assert store.repeats == [False, True, True]
        assert run.result() == "done"

    def test_the_caller_gets_an_error_when_no_answer_comes_at_all(self, app, store):
        app.schedule("work", lambda: "done").dispatch()
        store.faults["record"] = [unknown() for _ in range(20)]

        with pytest.raises(OutcomeUnknown):
            app.run()

    def test_outcomes_are_written_again_when_the_store_was_unreachable(self, app, store):
        run = app.schedule("work", lambda: "done").dispatch()
        store.faults["record"] = [StoreUnavailable("memory://", "restarting")]

        with pytest.raises(StoreUnavailable):
            app.run()

        assert run.status is RunStatus.COMPLETED


class TestIdlePasses:
    """A pass that moved nothing is idle; one that staged, fired or claimed is not."""

    def test_nothing_to_do(self, app):
        assert app._services.passes.make_pass(10).is_idle

    def test_a_run_was_claimed(self, app):
        app.schedule("work", lambda: None).dispatch()

        assert not app._services.passes.make_pass(10).is_idle

    def test_a_schedule_fired_though_its_run_is_due_later(self, app, store):
        app.schedule("work", lambda: None).hourly().jitter(3000)
        app.run()
        store._clock.advance(hours=1)

        passed = app._services.passes.make_pass(10)

        assert passed.transitions == []
        assert not passed.is_idle

    def test_a_ready_run_of_an_unknown_job_moves_nothing(self, app):
        app.remote("elsewhere").dispatch()

        assert app._services.passes.make_pass(10).is_idle
        assert app._services.passes.find_next_due().is_due
