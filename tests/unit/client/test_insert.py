import time

import pytest

from tickwork._client.insert import PAUSES
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
def told(app):
    events: list[RunDispatched] = []
    app.events.subscribe(RunDispatched, events.append)
    return events


def runs(app):
    return app.runs.recent(limit=1000)


class TestLostAnswers:
    """A run is added once, whatever becomes of the answers; and is new to its caller."""

    @pytest.mark.parametrize("fault", ["lost", "undone"])
    @pytest.mark.parametrize("times", [1, 2, 3])
    def test_it_is_repeated_and_nothing_is_doubled(self, app, store, send, fault, times):
        store.faults["enqueue"] = [fault] * times

        run = send.dispatch("ann")

        assert [found.id for found in runs(app)] == [run.id]
        assert run.is_new
        assert [
            said.get("is_repeat", False) for verb, said in store.calls if verb == "enqueue"
        ] == [
            False,
            *[True] * times,
        ]

    def test_many_together(self, app, store, send, told):
        store.faults["enqueue"] = ["lost", "undone"]

        made = send.dispatch_many({"to": str(n)} for n in range(50))

        assert len(runs(app)) == 50
        assert all(run.is_new for run in made)
        assert len(told) == 50

    def test_an_earlier_run_of_the_key_is_still_the_earlier_one(self, app, store, send, told):
        first = send.unique().dispatch("ann")
        store.faults["enqueue"] = ["undone"]

        again = send.unique().dispatch("ann")

        assert (again, again.is_new) == (first, False)
        assert len(told) == 1

    def test_its_own_key_is_its_own(self, app, store, send):
        store.faults["enqueue"] = ["lost"]

        run = send.unique().dispatch("ann")

        assert run.is_new
        assert [found.id for found in runs(app)] == [run.id]

    def test_one_that_has_finished_meanwhile(self, app, store, send, monkeypatch):
        store.faults["enqueue"] = ["lost"]
        monkeypatch.setattr(time, "sleep", lambda _: app.run())

        run = send.dispatch("ann")

        assert run.status == "completed"
        assert len(runs(app)) == 1

    def test_while_nobody_is_reached_it_is_tried_again(self, app, store, send):
        store.faults["enqueue"] = ["lost", "away", "away"]

        assert send.dispatch("ann").is_new
        assert len(runs(app)) == 1

    def test_in_the_end_the_caller_is_told_that_nobody_knows(self, app, store, send, pauses, told):
        store.faults["enqueue"] = ["lost", "away", "undone", "away"]

        with pytest.raises(OutcomeUnknown) as found:
            send.dispatch("ann")

        [run] = runs(app)
        assert run.id in found.value.__notes__[0]
        assert pauses == list(PAUSES)
        assert told == []

    def test_of_many_a_few_are_named(self, store, send):
        store.faults["enqueue"] = ["lost", *["away"] * 3]

        with pytest.raises(OutcomeUnknown) as found:
            send.dispatch_many({"to": str(n)} for n in range(10))

        assert "and 7 more" in found.value.__notes__[0]

    def test_one_that_was_never_sent_is_not_repeated(self, app, store, send):
        store.faults["enqueue"] = ["away"]

        with pytest.raises(StoreUnavailable) as found:
            send.dispatch("ann")
        assert not isinstance(found.value, OutcomeUnknown)
        assert runs(app) == []

    def test_a_retry_is_added_the_same_way(self, app, store, send, told):
        run = send.dispatch("ann")
        app.run()
        store.faults["enqueue"] = ["lost"]

        again = run.retry()

        assert again.is_new
        assert len(runs(app)) == 2
        assert [event.run_id for event in told] == [run.id, again.id]


class TestTelling:
    """Whoever listens is told of new runs, after they were added."""

    def test_what_a_subscriber_hears(self, app, clock, send, told):
        run = send.queue("slow").tenant("acme").delay(60).dispatch("ann")

        [event] = told
        assert (event.run_id, event.job, event.queue, event.tenant) == (
            run.id,
            "send",
            "slow",
            "acme",
        )
        assert event.at == clock.now()
        assert (event.due_at - clock.now()).total_seconds() == 60

    def test_an_earlier_run_is_no_news(self, send, told):
        send.unique().dispatch("ann")
        send.unique().dispatch("ann")

        assert len(told) == 1

    def test_a_subscriber_that_fails_is_no_harm(self, app, send):
        app.events.subscribe(RunDispatched, lambda _: 1 / 0)

        assert send.dispatch("ann").is_new

    def test_who_sleeps_is_woken_once_for_a_batch(self, app, send):
        woken: list[int] = []
        app._services.inserter.on_added = lambda added: woken.append(len(added))
        send.dispatch("ann")
        send.dispatch_many({"to": str(n)} for n in range(5))
        send.dispatch_many([])
        send.unique().dispatch("zoe")
        send.unique().dispatch("zoe")

        assert woken == [1, 5, 1]
