import time

import pytest

from tickwork._dispatch.dispatch import PAUSES
from tickwork.errors import OutcomeUnknown, StoreUnavailable
from tickwork.events import RunDispatched


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


@pytest.fixture
def send(app):
    @app.job
    def send(to: str) -> None:
        pass

    return send


@pytest.fixture
def events(app):
    events: list[RunDispatched] = []
    app.events.subscribe(RunDispatched, events.append)
    return events


def runs(app):
    return app.runs.recent(limit=1000)


class TestLostAnswers:
    """A run is added once, also when answers are lost; for the caller it is new."""

    @pytest.mark.parametrize("fault", ["lost", "undone"])
    @pytest.mark.parametrize("times", [1, 2, 3])
    def test_a_lost_insert_may_be_storeded_and_adds_the_run_once(
        self, app, store, send, fault, times
    ):
        store.faults["add_runs"] = [fault] * times

        run = send.dispatch("ann")

        assert [found.id for found in runs(app)] == [run.id]
        assert run.is_new
        assert [
            kwargs.get("may_be_stored", False)
            for operation, kwargs in store.calls
            if operation == "add_runs"
        ] == [
            False,
            *[True] * times,
        ]

    def test_many_runs_in_one_insert(self, app, store, send, events):
        store.faults["add_runs"] = ["lost", "undone"]

        made = send.dispatch_many({"to": str(n)} for n in range(50))

        assert len(runs(app)) == 50
        assert all(run.is_new for run in made)
        assert len(events) == 50

    def test_an_earlier_run_with_the_key_is_not_new(self, app, store, send, events):
        first = send.unique().dispatch("ann")
        store.faults["add_runs"] = ["undone"]

        again = send.unique().dispatch("ann")

        assert (again, again.is_new) == (first, False)
        assert len(events) == 1

    def test_a_run_does_not_collide_with_its_own_key(self, app, store, send):
        store.faults["add_runs"] = ["lost"]

        run = send.unique().dispatch("ann")

        assert run.is_new
        assert [found.id for found in runs(app)] == [run.id]

    def test_a_run_that_has_finished_before_the_repeat(self, app, store, send, monkeypatch):
        store.faults["add_runs"] = ["lost"]
        monkeypatch.setattr(time, "sleep", lambda _: app.run())

        run = send.dispatch("ann")

        assert run.status == "completed"
        assert len(runs(app)) == 1

    def test_an_unavailable_store_is_tried_again(self, app, store, send):
        store.faults["add_runs"] = ["lost", "away", "away"]

        assert send.dispatch("ann").is_new
        assert len(runs(app)) == 1

    def test_after_the_last_try_the_caller_gets_the_error(self, app, store, send, pauses, events):
        store.faults["add_runs"] = ["lost", "away", "undone", "away"]

        with pytest.raises(OutcomeUnknown) as found:
            send.dispatch("ann")

        [run] = runs(app)
        assert found.value.run_ids == (run.id,)
        assert f"the run {run.id} may be stored or not" in found.value.what
        assert "unique() key adds no second run" in found.value.fix
        assert pauses == list(PAUSES)
        assert events == []

    def test_the_error_names_a_few_of_many_runs(self, store, send):
        store.faults["add_runs"] = ["lost", *["away"] * 3]

        with pytest.raises(OutcomeUnknown) as found:
            send.dispatch_many({"to": str(n)} for n in range(10))

        assert "and 7 more" in found.value.what
        assert len(found.value.run_ids) == 10

    @pytest.mark.parametrize("fault", ["busy", "rejected"])
    def test_a_repeat_that_fails_does_not_hide_that_the_outcome_is_unknown(
        self, store, send, pauses, fault
    ):
        store.faults["add_runs"] = ["lost", fault, fault]

        with pytest.raises(OutcomeUnknown) as found:
            send.dispatch("ann")

        assert len(found.value.run_ids) == 1
        assert pauses == [PAUSES[0]]

    def test_an_insert_is_not_repeated_while_the_server_is_at_work_on_it(self, store, send, pauses):
        store.faults["add_runs"] = ["late"]

        with pytest.raises(OutcomeUnknown, match="did not answer COMMIT in time: the run"):
            send.dispatch("ann")

        assert pauses == []

    def test_an_insert_that_was_never_sent_is_not_repeated(self, app, store, send):
        store.faults["add_runs"] = ["away"]

        with pytest.raises(StoreUnavailable) as found:
            send.dispatch("ann")
        assert not isinstance(found.value, OutcomeUnknown)
        assert runs(app) == []

    def test_a_retry_is_inserted_the_same_way(self, app, store, send, events):
        run = send.dispatch("ann")
        app.run()
        store.faults["add_runs"] = ["lost"]

        again = run.retry()

        assert again.is_new
        assert len(runs(app)) == 2
        assert [event.run_id for event in events] == [run.id, again.id]


class TestEvents:
    """Subscribers get an event for each new run, after it was added."""

    def test_the_fields_of_the_event(self, app, clock, send, events):
        run = send.queue("slow").tenant("acme").delay(60).dispatch("ann")

        [event] = events
        assert (event.run_id, event.job, event.queue, event.tenant) == (
            run.id,
            "send",
            "slow",
            "acme",
        )
        assert event.at == clock.now()
        assert (event.due_at - clock.now()).total_seconds() == 60

    def test_an_earlier_run_emits_no_event(self, send, events):
        send.unique().dispatch("ann")
        send.unique().dispatch("ann")

        assert len(events) == 1

    def test_a_failing_subscriber_does_not_affect_the_dispatch(self, app, send):
        app.events.subscribe(RunDispatched, lambda _: 1 / 0)

        assert send.dispatch("ann").is_new

    def test_on_added_is_called_once_for_a_batch(self, app, send):
        woken: list[int] = []
        app._services.inserter.on_added = lambda added: woken.append(len(added))
        send.dispatch("ann")
        send.dispatch_many({"to": str(n)} for n in range(5))
        send.dispatch_many([])
        send.unique().dispatch("zoe")
        send.unique().dispatch("zoe")

        assert woken == [1, 5, 1]
