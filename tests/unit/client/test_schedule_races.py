"""What others do to a schedule between a look and a write must not be undone, nor done twice."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tickwork import ScheduleDefinition, Tickwork, schedules
from tickwork._client.schedule_rows import TRIES_MAX
from tickwork.errors import OutcomeUnknown, TickworkError
from tickwork.stores import open_store
from tickwork.testing import ManualClock

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOON = MIDNIGHT + 12 * HOUR


class Meddled:
    """A store in which something else happens around one verb."""

    def __init__(self) -> None:
        self.store: Any = open_store("memory://")
        self._before: dict[str, Callable[[], None]] = {}
        self._lost: set[str] = set()

    def before(self, verb: str, meddle: Callable[[], Any], *, times: int = 1) -> None:
        """Let this happen before the verb, so many times."""
        left = [meddle] * times
        self._before[verb] = lambda: left.pop()() if left else None

    def lose_answer(self, verb: str) -> None:
        """Let the next call of the verb be carried out, and nobody learn of it."""
        self._lost.add(verb)

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self.store, verb)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._before.get(verb, lambda: None)()
            answer = found(*args, **kwargs)
            if verb in self._lost:
                self._lost.remove(verb)
                raise OutcomeUnknown("memory://", "the line went dead")
            return answer

        return call if callable(found) else found


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store():
    return Meddled()


@pytest.fixture
def make_app(store, clock):
    def make(**said):
        app = Tickwork("memory://", clock=clock, **{"store": store, **said})
        app.job(name="sync")(lambda folder="/": None)
        return app

    return make


@pytest.fixture
def app(make_app):
    return make_app()


@pytest.fixture
def other(make_app, store):
    """Another program on the same database, which nobody meddles with."""
    return make_app(store=store.store)


@pytest.fixture
def files(app):
    return app.schedules.create(
        ScheduleDefinition(job="sync", name="files", rule=schedules.hourly())
    )


class TestChanges:
    """A change is made to what is there, not to what was there when somebody looked."""

    def test_of_two_updates_at_once_both_hold(self, app, other, store, files):
        store.before("change_schedule", lambda: other.schedules.update("files", queue="slow"))

        app.schedules.update("files", priority=3)

        view = app.schedules.get("files")
        assert (view.queue, view.priority) == ("slow", 3)

    def test_a_pause_in_between_is_kept_to_its_end(self, app, other, store, files):
        store.before(
            "change_schedule", lambda: other.schedules.pause("files", until=NOON, note="later")
        )

        view = app.schedules.update("files", args={"folder": "/tmp"})

        assert (view.is_paused, view.next_due_at) == (True, NOON + HOUR)

    def test_a_resume_in_between_makes_nobody_catch_up(self, app, other, store, files, clock):
        app.schedules.pause("files")
        clock.set(NOON + HOUR / 2)
        store.before("change_schedule", lambda: other.schedules.resume("files"))

        view = app.schedules.update("files", args={"folder": "/tmp"})

        assert (view.is_paused, view.next_due_at) == (False, NOON + HOUR)

    def test_a_new_rule_in_between_is_the_one_to_go_on_by(self, app, other, store, files, clock):
        app.schedules.pause("files")
        store.before("resume_schedule", lambda: other.schedules.update("files", rule="30 18 * * *"))

        view = app.schedules.resume("files")

        assert view.next_due_at == MIDNIGHT + timedelta(hours=18, minutes=30)

    def test_a_new_rule_in_between_is_the_one_to_end_a_pause_by(self, app, other, store, files):
        store.before("pause_schedule", lambda: other.schedules.update("files", rule="30 18 * * *"))

        view = app.schedules.pause("files", until=NOON)

        assert view.next_due_at == MIDNIGHT + timedelta(hours=18, minutes=30)

    def test_a_firing_in_between_does_not_fire_again(self, app, other, store, files, clock):
        clock.advance(hours=1)
        store.before("change_schedule", other.run)
        app.schedules.update("files", args={"folder": "/tmp"})
        app.run()

        assert [run.nominal_at for run in app.runs.recent()] == [MIDNIGHT + HOUR]

    def test_whoever_is_always_overtaken_gives_up(self, app, other, store, files):
        numbers = iter(range(100))
        store.before(
            "change_schedule",
            lambda: other.schedules.update("files", priority=next(numbers)),
            times=TRIES_MAX,
        )

        with pytest.raises(TickworkError, match=f"changed it {TRIES_MAX} times"):
            app.schedules.update("files", queue="slow")

    def test_a_schedule_that_is_gone_by_now_is_not_brought_back(self, app, other, store, files):
        store.before("change_schedule", lambda: other.schedules.unregister("", "files"))

        with pytest.raises(LookupError):
            app.schedules.update("files", queue="slow")

        assert app.schedules.list() == []


class TestLostAnswers:
    """An answer that was lost is asked for again: what has landed is not done twice."""

    def test_a_schedule_that_was_added(self, app, store):
        store.lose_answer("add_schedule")

        app.schedules.register("acme", "files", MIDNIGHT, "1h", "sync")

        assert [view.name for view in app.schedules.list()] == ["files"]

    def test_a_schedule_that_was_changed(self, app, store, files):
        store.lose_answer("change_schedule")

        assert app.schedules.update("files", queue="slow").queue == "slow"

    def test_two_that_register_the_same_at_once(self, app, other, store):
        def register(app):
            return app.schedules.register("acme", "files", MIDNIGHT, "1h", "sync")

        store.before("add_schedule", lambda: register(other))

        assert register(app) == register(other)

    def test_runs_that_were_asked_for(self, app, store, files):
        store.lose_answer("enqueue")

        app.schedules.run_now("files")
        app.run()

        assert len(app.runs.recent()) == 1

    def test_runs_that_two_ask_for_at_once(self, app, other, store, files):
        span = {"since": MIDNIGHT - 3 * HOUR, "until": MIDNIGHT}
        store.before("enqueue", lambda: other.schedules.backfill("files", **span))

        assert app.schedules.backfill("files", **span) == []
        assert len(app.runs.recent()) == 4


class TestUnregistering:
    """What dies on the way can be done again."""

    @pytest.mark.parametrize("verb", ["cancel_schedule", "remove_schedule"])
    def test_after_a_crash_it_is_still_there_and_fires_no_more(self, app, store, clock, verb):
        app.schedules.register("acme", "files", MIDNIGHT, "1h", "sync")

        def die():
            raise ConnectionError

        store.before(verb, die)
        with pytest.raises(ConnectionError):
            app.schedules.unregister("acme", "files")
        clock.advance(hours=2)
        assert app.run() == 0

        app.schedules.unregister("acme", "files")

        assert app.schedules.list() == []


class TestPrograms:
    """Two programs that start at once write down one schedule, and the later word counts."""

    @staticmethod
    def say(app, rule=None):
        builder = app.schedule("digest", lambda: None)
        return builder.every(minutes=15) if rule is None else builder.cron(rule)

    def test_the_quicker_one_lays_out_the_grid(self, app, other, store, clock):
        clock.advance(minutes=7)
        self.say(app)
        self.say(other)

        def quicker():
            clock.advance(seconds=20)
            other.run()

        store.before("add_schedules", quicker)
        app.run()
        first = app.schedules.get("digest")
        clock.advance(hours=1)
        app.run()

        assert app.schedules.get("digest").rule == first.rule
        assert "00:07:20" in first.rule

    def test_what_another_one_has_said_meanwhile_counts(self, make_app, store, clock):
        self.say(make_app(store=store.store), "0 1 * * *")
        first, second, third = (make_app(), make_app(store=store.store), make_app())
        self.say(first, "0 1 * * *")
        self.say(second, "0 2 * * *")
        self.say(third, "0 3 * * *")
        first.run()
        store.before("change_schedule", second.run)
        third.run()

        assert third.schedules.get("digest").rule == "at 02:00 (UTC)"

    def test_a_pause_meanwhile_does_not_cost_it_its_word(self, make_app, store, clock):
        first, third = make_app(), make_app()
        self.say(first, "0 1 * * *")
        self.say(third, "0 3 * * *")
        first.run()
        store.before("change_schedule", lambda: first.schedules.pause("digest", until=NOON))
        third.run()

        view = third.schedules.get("digest")
        assert (view.rule, view.is_paused) == ("at 03:00 (UTC)", True)
        assert view.next_due_at == MIDNIGHT + timedelta(days=1, hours=3)


def test_a_definition_is_not_shared_with_whoever_made_it():
    given = {"folder": "/"}
    definition = ScheduleDefinition(job="sync", at=NOON, args=given)
    given["folder"] = "/tmp"

    assert definition.args == {"folder": "/"}
    assert replace(definition, name="other").args == {"folder": "/"}
