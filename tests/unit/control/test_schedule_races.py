"""Changes that another process makes between a read and a write are neither undone nor repeated."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tickwork import ScheduleDefinition, Tickwork, schedules
from tickwork._control.schedule_changes import TRIES_MAX
from tickwork._stores import open_store
from tickwork.errors import OutcomeUnknown, TickworkError
from tickwork.testing import ManualClock

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOON = MIDNIGHT + 12 * HOUR


class RacingStore:
    """A store that runs other code before or after a method."""

    def __init__(self) -> None:
        self.store: Any = open_store("memory://")
        self._before: dict[str, Callable[[], None]] = {}
        self._lost: set[str] = set()

    def before(self, operation: str, meddle: Callable[[], Any], *, times: int = 1) -> None:
        """Run this before the method, so many times."""
        left = [meddle] * times
        self._before[operation] = lambda: left.pop()() if left else None

    def lose_answer(self, operation: str) -> None:
        """Execute the next call of the method, and lose its answer."""
        self._lost.add(operation)

    def __getattr__(self, operation: str) -> Any:
        found = getattr(self.store, operation)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._before.get(operation, lambda: None)()
            answer = found(*args, **kwargs)
            if operation in self._lost:
                self._lost.remove(operation)
                raise OutcomeUnknown("memory://", "the line went dead")
            return answer

        return call if callable(found) else found


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store():
    return RacingStore()


@pytest.fixture
def make_app(store, clock):
    def make(**options):
        app = Tickwork("memory://", clock=clock, **{"store": store, **options})
        app.job(name="sync")(lambda folder="/": None)
        return app

    return make


@pytest.fixture
def app(make_app):
    return make_app()


@pytest.fixture
def other(make_app, store):
    """Another program on the same database, without races."""
    return make_app(store=store.store)


@pytest.fixture
def files(app):
    return app.schedules.create(
        ScheduleDefinition(job="sync", name="files", rule=schedules.hourly())
    )


class TestChanges:
    """A change applies to the row as it is, not as it was read."""

    def test_two_updates_at_once_both_apply(self, app, other, store, files):
        store.before("change_schedule", lambda: other.schedules.update("files", queue="slow"))

        app.schedules.update("files", priority=3)

        view = app.schedules.get("files")
        assert (view.queue, view.priority) == ("slow", 3)

    def test_a_pause_in_between_is_kept(self, app, other, store, files):
        store.before(
            "change_schedule", lambda: other.schedules.pause("files", until=NOON, note="later")
        )

        view = app.schedules.update("files", args={"folder": "/tmp"})

        assert (view.is_paused, view.next_due_at) == (True, NOON + HOUR)

    def test_a_resume_in_between_catches_up_nothing(self, app, other, store, files, clock):
        app.schedules.pause("files")
        clock.set(NOON + HOUR / 2)
        store.before("change_schedule", lambda: other.schedules.resume("files"))

        view = app.schedules.update("files", args={"folder": "/tmp"})

        assert (view.is_paused, view.next_due_at) == (False, NOON + HOUR)

    def test_a_resume_uses_a_new_rule_from_in_between(self, app, other, store, files, clock):
        app.schedules.pause("files")
        store.before("resume_schedule", lambda: other.schedules.update("files", rule="30 18 * * *"))

        view = app.schedules.resume("files")

        assert view.next_due_at == MIDNIGHT + timedelta(hours=18, minutes=30)

    def test_a_pause_uses_a_new_rule_from_in_between(self, app, other, store, files):
        store.before("pause_schedule", lambda: other.schedules.update("files", rule="30 18 * * *"))

        view = app.schedules.pause("files", until=NOON)

        assert view.next_due_at == MIDNIGHT + timedelta(hours=18, minutes=30)

    def test_a_firing_in_between_does_not_fire_again(self, app, other, store, files, clock):
        clock.advance(hours=1)
        store.before("change_schedule", other.run)
        app.schedules.update("files", args={"folder": "/tmp"})
        app.run()

        assert [run.nominal_at for run in app.runs.recent()] == [MIDNIGHT + HOUR]

    def test_too_many_conflicts_are_an_error(self, app, other, store, files):
        numbers = iter(range(100))
        store.before(
            "change_schedule",
            lambda: other.schedules.update("files", priority=next(numbers)),
            times=TRIES_MAX,
        )

        with pytest.raises(TickworkError, match=f"changed it {TRIES_MAX} times"):
            app.schedules.update("files", queue="slow")

    def test_a_schedule_that_was_removed_in_between_stays_removed(self, app, other, store, files):
        store.before("change_schedule", lambda: other.schedules.unregister("", "files"))

        with pytest.raises(LookupError):
            app.schedules.update("files", queue="slow")

        assert app.schedules.list() == []


class TestLostAnswers:
    """After a lost answer the row is read again: nothing is stored twice."""

    def test_a_schedule_that_was_added(self, app, store):
        store.lose_answer("add_schedule")

        app.schedules.register("acme", "files", MIDNIGHT, "1h", "sync")

        assert [view.name for view in app.schedules.list()] == ["files"]

    def test_a_schedule_that_was_changed(self, app, store, files):
        store.lose_answer("change_schedule")

        assert app.schedules.update("files", queue="slow").queue == "slow"

    def test_two_programs_register_the_same_at_once(self, app, other, store):
        def register(app):
            return app.schedules.register("acme", "files", MIDNIGHT, "1h", "sync")

        store.before("add_schedule", lambda: register(other))

        assert register(app) == register(other)

    def test_runs_of_a_backfill(self, app, store, files):
        store.lose_answer("add_runs")

        app.schedules.run_now("files")
        app.run()

        assert len(app.runs.recent()) == 1

    def test_two_backfills_at_once(self, app, other, store, files):
        span = {"since": MIDNIGHT - 3 * HOUR, "until": MIDNIGHT}
        store.before("add_runs", lambda: other.schedules.backfill("files", **span))

        assert app.schedules.backfill("files", **span) == []
        assert len(app.runs.recent()) == 4


class TestUnregistering:
    """It can be repeated after a crash."""

    @pytest.mark.parametrize("operation", ["cancel_schedule", "remove_schedule"])
    def test_after_a_crash_it_still_exists_and_does_not_fire(self, app, store, clock, operation):
        app.schedules.register("acme", "files", MIDNIGHT, "1h", "sync")

        def die():
            raise ConnectionError

        store.before(operation, die)
        with pytest.raises(ConnectionError):
            app.schedules.unregister("acme", "files")
        clock.advance(hours=2)
        assert app.run() == 0

        app.schedules.unregister("acme", "files")

        assert app.schedules.list() == []


class TestPrograms:
    """Two programs that start at once store one schedule, and the later start wins."""

    @staticmethod
    def define(app, rule=None):
        builder = app.schedule("digest", lambda: None)
        return builder.every(minutes=15) if rule is None else builder.cron(rule)

    def test_the_first_one_sets_the_grid(self, app, other, store, clock):
        clock.advance(minutes=7)
        self.define(app)
        self.define(other)

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

    def test_a_definition_that_another_one_wrote_meanwhile_wins(self, make_app, store, clock):
        self.define(make_app(store=store.store), "0 1 * * *")
        first, second, third = (make_app(), make_app(store=store.store), make_app())
        self.define(first, "0 1 * * *")
        self.define(second, "0 2 * * *")
        self.define(third, "0 3 * * *")
        first.run()
        store.before("change_schedule", second.run)
        third.run()

        assert third.schedules.get("digest").rule == "at 02:00 (UTC)"

    def test_a_pause_meanwhile_does_not_prevent_the_change(self, make_app, store, clock):
        first, third = make_app(), make_app()
        self.define(first, "0 1 * * *")
        self.define(third, "0 3 * * *")
        first.run()
        store.before("change_schedule", lambda: first.schedules.pause("digest", until=NOON))
        third.run()

        view = third.schedules.get("digest")
        assert (view.rule, view.is_paused) == ("at 03:00 (UTC)", True)
        assert view.next_due_at == MIDNIGHT + timedelta(days=1, hours=3)


def test_a_definition_does_not_share_its_arguments_with_the_caller():
    given = {"folder": "/"}
    definition = ScheduleDefinition(job="sync", at=NOON, args=given)
    given["folder"] = "/tmp"

    assert definition.args == {"folder": "/"}
    assert replace(definition, name="other").args == {"folder": "/"}
