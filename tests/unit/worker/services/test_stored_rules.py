"""A stored rule that takes too many steps is reported, and stops no other schedule."""

import itertools
from datetime import timedelta

import pytest

from hostile_rules import COSTLY_TEXTS
from tickwork import Tickwork
from tickwork._domain import firings, tick
from tickwork._domain.identity import ScheduleId
from tickwork._domain.job import ScheduleSpec
from tickwork._kernel import step_budget
from tickwork._stores.sqlite.memory import MemoryStore
from tickwork._watch.expectations import read_all_missed
from tickwork._worker.services.timer import Timer
from tickwork.events import ScheduleNotFired
from tickwork.testing import ManualClock

NUMBERS = itertools.count()
START = "2026-01-05T12:00:00+00:00"
MINUTELY = '{"expr":"* * * * *","kind":"cron","tz":"UTC"}'


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(step_budget, "STEPS_MAX", 10_000)


@pytest.fixture
def clock():
    return ManualClock(START)


@pytest.fixture
def store(clock):
    """Rows as an older version, or a person, may have written them."""
    store = MemoryStore(clock=clock)
    for name, rule in {**COSTLY_TEXTS, "good": MINUTELY}.items():
        add(store, name, rule, due_at=clock.now())
    return store


def add(store, name, rule, *, due_at):
    spec = ScheduleSpec(
        name=name,
        job="send",
        rule=rule,
        zone="UTC",
        grace=timedelta(hours=1),
        expect_within=timedelta(minutes=5),
    )
    id_ = ScheduleId(f"019cb0d2-0000-7000-8000-{next(NUMBERS):012}")
    store.add_schedule(id_, spec, now=due_at, next_due_at=due_at)


@pytest.fixture
def app(store, clock):
    app = Tickwork("memory://", store=store, clock=clock)
    app.schedule("send", lambda: None)
    return app


def test_the_other_schedules_fire(app, clock):
    reported: list[ScheduleNotFired] = []
    app.events.subscribe(ScheduleNotFired, reported.append)

    assert app.run() == 1

    assert len(reported) == len(COSTLY_TEXTS)
    assert all("10,000 steps" in each.reason for each in reported)
    assert {run.schedule for run in app.runs.recent()} == {"good"}


class Quiet:
    """Reports nothing."""

    def report_tick(self, plan, *, at):
        pass


def timer_of(app):
    specs = {"send": app.registry.get("send").spec}
    return Timer(
        store=app._services.store,
        clock=app.clock,
        specs=lambda: specs,
        reporter=Quiet(),  # type: ignore[arg-type]
        retire_after=timedelta(days=7),
    )


def test_it_is_not_computed_again_at_the_next_tick(store, app, clock, monkeypatch):
    computed = []

    def plan_firings(row, rule, *, now):
        computed.append(row.spec.name)
        return firings.plan_firings(row, rule, now=now)

    monkeypatch.setattr(tick, "plan_firings", plan_firings)
    timer = timer_of(app)
    first = timer.fire()
    assert sorted(computed) == sorted([*COSTLY_TEXTS, "good"])
    computed.clear()
    clock.advance(minutes=1)

    second = timer.fire()

    assert computed == ["good"]
    assert [each.schedule_id for each in second.unfired] == [
        each.schedule_id for each in first.unfired
    ]
    assert all("steps" in each.reason for each in second.unfired)


def test_many_of_them_do_not_make_a_tick_long(store, app, clock):
    rule = COSTLY_TEXTS["counts inside of counts"]
    for number in range(12):
        text = rule.replace("100000", str(90_000 + number))
        add(store, f"costly {number}", text, due_at=clock.now() - timedelta(minutes=1))
    timer = timer_of(app)

    first, second, third, fourth = (timer.fire() for _ in range(4))

    assert [len(plan.unfired) for plan in (first, second, third)] == [5, 10, 15]
    assert not first.runs
    assert not second.runs
    assert fourth.runs


def test_it_stops_no_alert_about_another_schedule(store, clock):
    clock.advance(minutes=30)

    missed = read_all_missed(store, now=clock.now(), seen_after=clock.now() - timedelta(days=1))

    assert [each.schedule for each in missed] == ["good"]


def test_views_leave_it_out(app, store, clock):
    for name, rule in COSTLY_TEXTS.items():
        add(store, f"{name}, later", rule, due_at=clock.now() + timedelta(hours=1))
    clock.advance(minutes=1)

    assert {each.spec.name for each in app.inspect.active_schedules()} == {"good"}
    assert {each.schedule for each in app.inspect.upcoming(limit=5).firings} == {"good"}
    assert "RRULE" in app.export.ical()
