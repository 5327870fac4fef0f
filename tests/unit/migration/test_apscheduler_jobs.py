"""The printed code of APScheduler's jobs fires when APScheduler would."""

import os
import pickle
from datetime import UTC, datetime, timedelta, timezone
from types import ModuleType
from zoneinfo import ZoneInfo

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from tickwork._migration.apscheduler_jobs import read_job_store, read_scheduler
from unit.migration.printed_code import NOW, execute, firings, rules_of

BERLIN = ZoneInfo("Europe/Berlin")
DEFAULTS = {"misfire_grace_time": 1, "coalesce": True, "max_instances": 1}
calls: list[object] = []


def note(*args, **kwargs):
    calls.append((args, kwargs))


async def note_async(*args, **kwargs):
    calls.append((args, kwargs))


def a_state(trigger, **given):
    return {
        "version": 1,
        "id": "x",
        "func": "shop_jobs:note",
        "trigger": trigger,
        "executor": "default",
        "args": (),
        "kwargs": {},
        "name": "x",
        "misfire_grace_time": 1,
        "coalesce": True,
        "max_instances": 1,
        "next_run_time": NOW,
        **given,
    }


def read(*states, is_trusted=False):
    rows = [(state["id"], pickle.dumps(state, pickle.HIGHEST_PROTOCOL)) for state in states]
    return read_job_store(rows, source="sqlite://", is_trusted=is_trusted, now=NOW)


def run_code(found):
    module = ModuleType("shop_jobs")
    vars(module).update(note=note, note_async=note_async)
    return execute(found, shop_jobs=module)


def convert(trigger):
    found = read(a_state(trigger))
    assert found.unconverted == []
    return rules_of(run_code(found))["x"]


def options_of(**given):
    found = read(a_state(IntervalTrigger(hours=1, start_date=NOW, timezone=UTC), **given))
    [declaration] = run_code(found).registry.schedules()
    return declaration.options, found.code


def trigger_firings(trigger, count=60):
    found, previous, now = [], None, NOW + timedelta(microseconds=1)
    for _ in range(count):
        at = trigger.get_next_fire_time(previous, now)
        if at is None:
            break
        found.append(at.astimezone(UTC))
        previous, now = at, at + timedelta(microseconds=1)
    return found


class TestFirings:
    @pytest.mark.parametrize(
        "trigger",
        [
            CronTrigger(timezone=UTC),
            CronTrigger(second="*/20", timezone=UTC),
            CronTrigger(hour=9, day_of_week="mon-fri", timezone=UTC),
            CronTrigger.from_crontab("0 0 * * 0", timezone=UTC),  # a Monday
            CronTrigger(minute="5-50/10", hour="*/5", timezone=UTC),
            CronTrigger(day="*/2", hour=1, timezone=UTC),  # from the first day on
            CronTrigger(month="*/3", day=1, timezone=UTC),  # from January on
            CronTrigger(day="last", hour=1, timezone=UTC),
            CronTrigger(day="last,15", timezone=UTC),
            CronTrigger(day="1st mon,3rd fri", hour=8, timezone=UTC),
            CronTrigger(day="last sun", month="jan-jun", timezone=UTC),
            CronTrigger(day="5th wed", timezone=UTC),
            CronTrigger(day="13", day_of_week="fri", timezone=UTC),  # both must match
            CronTrigger(day="*/2", day_of_week="tue,sun", hour=4, timezone=UTC),
            CronTrigger(year="2027-2029/2", month=5, timezone=UTC),
            CronTrigger(year="*/2", second="7,9", minute=1, hour=2, day=3, month=4, timezone=UTC),
            CronTrigger(year=2027, day="last", day_of_week="mon-fri", timezone=UTC),
            CronTrigger(hour=12, timezone=ZoneInfo("Asia/Tokyo")),
            CronTrigger(
                minute="*/10", start_date="2026-04-01 00:05:00", end_date="2026-04-01 01:00:00",
                timezone=UTC,
            ),
            IntervalTrigger(minutes=7, start_date=NOW - timedelta(days=3), timezone=UTC),
            IntervalTrigger(hours=30, start_date="2026-05-01 09:00:00", timezone=BERLIN),
            IntervalTrigger(
                hours=1, start_date="2026-05-01", end_date="2026-05-01 05:00:00", timezone=UTC
            ),
            DateTrigger("2026-07-01 12:00:00", timezone=BERLIN),
        ],
        ids=str,
    )  # fmt: skip
    def test_they_are_those_of_the_trigger(self, trigger):
        expected = trigger_firings(trigger)

        assert expected
        assert firings(convert(trigger), len(expected) + (len(expected) < 60)) == expected

    def test_a_start_inside_of_a_second(self):
        start = datetime(2026, 5, 1, 9, 0, 0, 250_000, tzinfo=UTC)
        found = read(a_state(IntervalTrigger(hours=1, start_date=start, timezone=UTC)))

        assert firings(rules_of(run_code(found))["x"], 1) == [start.replace(microsecond=0)]
        assert "# Firings are on whole seconds here." in found.code


class TestOptions:
    @pytest.mark.parametrize(
        ("given", "policy", "grace"),
        [
            ({"misfire_grace_time": 30}, "skip", timedelta(seconds=30)),
            ({"misfire_grace_time": None}, "one", timedelta(seconds=60)),
            ({"misfire_grace_time": None, "coalesce": False}, "all", timedelta(seconds=60)),
        ],
    )
    def test_misfires(self, given, policy, grace):
        options, _ = options_of(**given)

        assert (options.misfire, options.grace) == (policy, grace)

    def test_instances(self):
        options, code = options_of(max_instances=3)

        assert options.overlap == "allow"
        assert [limit.slots for limit in options.limits] == [3]
        assert "# max_instances: runs beyond 3 wait here." in code

    def test_jitter(self):
        trigger = CronTrigger(hour=3, jitter=20, timezone=UTC)
        found = read(a_state(trigger))

        [declaration] = run_code(found).registry.schedules()
        assert declaration.options.jitter == timedelta(seconds=20)

    def test_an_executor_is_reported(self):
        assert "executor: it was 'processpool'" in options_of(executor="processpool")[1]


class TestCalls:
    @pytest.mark.parametrize("name", ["note", "note_async"])
    def test_the_function_is_called_with_its_arguments(self, name):
        trigger = IntervalTrigger(hours=1, timezone=UTC)
        state = a_state(trigger, func=f"shop_jobs:{name}", args=(1, "a"), kwargs={"b": [None]})
        app = run_code(read(state))
        calls.clear()

        app.dispatch("x")
        app.run()

        assert calls == [((1, "a"), {"b": [None]})]


class Boom:
    """Executes code when it is read from a pickle."""

    def __reduce__(self):
        return os.mkdir, ("boom-was-here",)


class TestNotConverted:
    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            ({"trigger": CronTrigger(week=20, timezone=UTC)}, "weeks of the year"),
            ({"trigger": AndTrigger([CronTrigger(hour=1, timezone=UTC)])}, "AndTrigger"),
            ({"trigger": OrTrigger([CronTrigger(hour=1, timezone=UTC)])}, "OrTrigger"),
            ({"trigger": DateTrigger("2020-01-01", timezone=UTC)}, "does not fire any more"),
            ({"trigger": IntervalTrigger(seconds=0.5, timezone=UTC)}, "whole number of seconds"),
            (
                {"trigger": CronTrigger(day="1st mon,2", timezone=UTC)},
                "cannot be combined with other days",
            ),
            (
                {"trigger": CronTrigger(hour=1, timezone=timezone(timedelta(hours=1)))},
                "time zone has no name",
            ),
            ({"next_run_time": None}, "It is paused"),
            ({"func": "shop_jobs:<lambda>"}, "cannot be imported by name"),
            ({"func": "shop_jobs:note; 1/0"}, "cannot be imported by name"),
            ({"args": (NOW,)}, "object of type datetime"),
        ],
    )
    def test_a_comment_has_the_reason(self, given, reason):
        hourly = IntervalTrigger(hours=1, timezone=UTC)
        found = read(a_state(**{"trigger": hourly, **given}), a_state(hourly, id="good"))

        assert found.converted == ["good"]
        assert reason in found.unconverted[0].reason
        assert "# NOT CONVERTED: x\n" in found.code
        run_code(found)

    def test_a_row_that_is_no_pickle(self):
        found = read_job_store(
            [("x", b"\x80\x05garbage")], source="sqlite://", is_trusted=False, now=NOW
        )

        assert "cannot be read" in found.unconverted[0].reason


class TestPicklesThatExecuteCode:
    def test_they_are_not_read(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

        found = read(a_state(IntervalTrigger(hours=1, timezone=UTC), args=(Boom(),)))

        assert "--trust" in found.unconverted[0].reason
        assert "posix.mkdir" in found.unconverted[0].reason
        assert list(tmp_path.iterdir()) == []

    def test_no_other_attribute_can_be_read(self):
        found = read_job_store(
            [("x", b"cbuiltins\ngetattr\n(cdatetime\ndatetime\nVnow\ntR.")],
            source="sqlite://",
            is_trusted=False,
            now=NOW,
        )

        assert "reads the attribute now" in found.unconverted[0].reason

    def test_the_caller_can_trust_a_store(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

        read(a_state(IntervalTrigger(hours=1, timezone=UTC), args=(Boom(),)), is_trusted=True)

        assert [path.name for path in tmp_path.iterdir()] == ["boom-was-here"]


class TestSchedulers:
    def test_the_jobs_of_a_scheduler_that_was_not_started(self):
        scheduler = BackgroundScheduler(timezone=UTC)
        scheduler.add_job("os:getpid", "cron", hour=3, id="nightly", max_instances=2)
        scheduler.add_job(lambda: None, "interval", hours=1, id="nameless")

        found = read_scheduler(scheduler, source="m:scheduler", defaults=DEFAULTS, now=NOW)

        assert found.converted == ["nightly"]
        assert [each.name for each in found.unconverted] == ["nameless"]
        rule = rules_of(execute(found))["nightly"]
        assert firings(rule, 1) == [datetime(2026, 3, 5, 3, tzinfo=UTC)]

    def test_job_stores_in_databases_are_reported(self, tmp_path):
        scheduler = BackgroundScheduler(timezone=UTC)
        scheduler.add_jobstore("sqlalchemy", "kept", url=f"sqlite:///{tmp_path}/jobs.db")

        found = read_scheduler(scheduler, source="m:scheduler", defaults=DEFAULTS, now=NOW)

        assert [each.source for each in found.unconverted] == ["SQLAlchemyJobStore"]
