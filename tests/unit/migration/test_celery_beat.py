"""The printed code of a beat schedule fires when Celery would."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.beat import ScheduleEntry
from celery.schedules import crontab, schedule, solar

from tickwork._migration.celery_beat import read_beat_schedule
from unit.migration.printed_code import NOW, execute, firings, rules_of


def a_celery_app(entries, **conf):
    app = Celery("shop", broker="memory://", set_as_current=False)
    app.conf.update(beat_schedule=entries, **conf)
    return app


def read(celery_app, zone=None):
    return read_beat_schedule(celery_app, module="shop_celery", attribute="app", zone=zone, now=NOW)


def convert(rule, zone="UTC", **entry):
    """The firings of the printed rule."""
    celery_app = a_celery_app({"x": {"task": "t", "schedule": rule, **entry}}, timezone=zone)
    found = read(celery_app)
    assert found.unconverted == []
    return rules_of(run_code(found, celery_app))["x"]


def run_code(found, celery_app):
    module = ModuleType("shop_celery")
    vars(module)["app"] = celery_app
    return execute(found, shop_celery=module)


def celery_firings(rule, count=60, *, zone="UTC"):
    """What beat would compute: each firing from the last one."""
    found, last = [], NOW.astimezone(ZoneInfo(zone))
    rule = crontab(
        minute=rule._orig_minute,
        hour=rule._orig_hour,
        day_of_week=rule._orig_day_of_week,
        day_of_month=rule._orig_day_of_month,
        month_of_year=rule._orig_month_of_year,
        app=a_celery_app({}, timezone=zone),
        nowfun=lambda: last,
    )
    for _ in range(count):
        last = last + rule.remaining_estimate(last)
        found.append(last.astimezone(UTC))
    return found


def received(celery_app, queue):
    """The tasks that a worker would get, without what is different each time."""
    found = []
    with celery_app.connection_for_read() as connection, connection.SimpleQueue(queue) as messages:
        while len(messages):
            message = messages.get(timeout=1)
            message.ack()
            headers = {
                name: value
                for name, value in message.headers.items()
                if name not in {"expires", "id", "root_id", "origin"}
            }
            found.append(
                {
                    "headers": headers,
                    "body": message.payload,
                    "expires": message.headers["expires"] is not None,
                    "priority": message.properties.get("priority"),
                }
            )
    return found


class TestFirings:
    @pytest.mark.parametrize(
        "rule",
        [
            crontab(),
            crontab(minute="*/15"),
            crontab(minute=0, hour="*/3,8-17"),
            crontab(minute=30, hour=7, day_of_week=1),
            crontab(minute=30, hour=7, day_of_week="sun"),
            crontab(minute=0, hour=0, day_of_week="fri-mon"),  # it wraps
            crontab(minute=0, hour=0, day_of_month="13", day_of_week="fri"),  # both must match
            crontab(minute=0, hour=0, day_of_month="2-30/2", month_of_year="*/3"),
            crontab(minute="5,10,20", hour=23, day_of_month="1-7", day_of_week="mon-fri"),
            crontab(0, 0, day_of_month="*/2", day_of_week="*/2"),
        ],
        ids=str,
    )
    def test_they_are_those_of_a_crontab(self, rule):
        assert firings(convert(rule)) == celery_firings(rule)

    def test_the_time_zone_of_the_application(self):
        rule = crontab(minute=0, hour=9)

        converted = convert(rule, "Asia/Tokyo")

        assert converted.tz == "Asia/Tokyo"
        assert firings(converted, 20) == celery_firings(rule, 20, zone="Asia/Tokyo")

    @pytest.mark.parametrize("rule", [30, 90.0, timedelta(minutes=2), schedule(45)], ids=str)
    def test_an_interval(self, rule):
        length = getattr(rule, "run_every", rule)
        length = length if isinstance(length, timedelta) else timedelta(seconds=length)

        found = firings(convert(rule), 10)

        assert {after - before for before, after in pairwise(found)} == {length}

    @pytest.mark.parametrize(
        ("length", "first"),
        [
            (timedelta(hours=1), datetime(2026, 3, 4, 6, tzinfo=UTC)),
            (timedelta(minutes=5), datetime(2026, 3, 4, 5, 10, tzinfo=UTC)),
            (timedelta(days=1), datetime(2026, 3, 5, tzinfo=UTC)),
        ],
    )
    def test_a_relative_interval_is_aligned(self, length, first):
        found = firings(convert(schedule(length, relative=True)), 3)

        assert found == [first, first + length, first + 2 * length]

    def test_relative_beside_the_schedule(self):
        found = firings(convert(timedelta(hours=1), relative=True), 1)

        assert found == [datetime(2026, 3, 4, 6, tzinfo=UTC)]


class TestCalls:
    def test_the_task_is_sent_with_its_arguments_and_options(self):
        entry: dict[str, Any] = {
            "task": "shop.tasks.add",
            # Not due during the test: run() fires due schedules, too.
            "schedule": crontab(0, 0, day_of_month=29, month_of_year=2),
            "args": (16, "x"),
            "kwargs": {"deep": {"list": [1, None, 2.5]}, "not a name": 1},
            "options": {"queue": "beat", "expires": timedelta(minutes=1), "priority": 3},
        }
        celery_app = a_celery_app({"add": entry})
        sent = {**entry["options"], "expires": 60}
        celery_app.send_task("shop.tasks.add", entry["args"], entry["kwargs"], **sent)
        expected = received(celery_app, "beat")

        app = run_code(read(celery_app), celery_app)
        app.dispatch("add")
        app.run()

        found = received(celery_app, "beat")
        assert found == expected
        assert found[0]["body"][:2] == [[16, "x"], entry["kwargs"]]
        assert found[0]["expires"]

    def test_periodic_tasks_that_a_program_adds(self):
        celery_app = a_celery_app({})

        @celery_app.on_after_configure.connect
        def add(sender, **_):
            sender.add_periodic_task(10.0, celery_app.signature("t"), name="added")

        assert read(celery_app).converted == ["added"]

    def test_entries_of_beat(self):
        celery_app = a_celery_app({})
        entry = ScheduleEntry(
            name="e", task="t", schedule=crontab(hour=3, minute=0), app=celery_app
        )
        celery_app.conf.beat_schedule = {"e": entry}

        assert read(celery_app).converted == ["e"]


class OwnSchedule(schedule):  # type: ignore[misc]
    """A schedule of a program."""


class Unshowable:
    def __repr__(self):
        raise ValueError("no")


def a_solar_event():
    """Without its constructor, which needs a package that computes the positions of stars."""
    event = solar.__new__(solar)
    event.event, event.lat, event.lon, event.nowfun = "sunset", 48, 11, None
    return event


class TestNotConverted:
    @pytest.mark.parametrize(
        ("entry", "reason"),
        [
            ({"schedule": a_solar_event()}, "solar event"),
            ({"schedule": Unshowable()}, "Unshowable is not a schedule"),
            ({"schedule": crontab(nowfun=lambda: NOW)}, "nowfun"),
            ({"schedule": OwnSchedule(10)}, "OwnSchedule is not a schedule of Celery itself"),
            ({"schedule": 0.5}, "whole number of seconds"),
            ({"schedule": schedule(timedelta(minutes=90), relative=True)}, "rounds down"),
            ({"schedule": schedule(timedelta(days=2), relative=True)}, "every nth day"),
            ({"schedule": crontab(0, 0, day_of_month=30, month_of_year=2)}, "does not fire"),
            ({"schedule": None}, "not a schedule of Celery"),
            ({"schedule": 10, "args": (object(),)}, "object of type object"),
            ({"schedule": 10, "kwargs": {"at": NOW}}, "object of type datetime"),
            ({"schedule": 10, "kwargs": {"set": {1}}}, "keyword argument is not JSON"),
            ({"schedule": 10, "kwargs": {"ctx": 1}}, "called ctx"),
            ({"schedule": 10, "options": {"link": "t"}}, "has no option 'link'"),
            ({"schedule": 10, "args": (float("nan"),)}, "nan"),
            ({"schedule": 10, "task": None}, "names no task"),
        ],
    )
    def test_a_comment_has_the_reason(self, entry, reason):
        celery_app = a_celery_app(
            {"bad": {"task": "t", **entry}, "good": {"task": "t", "schedule": 10}}
        )

        found = read(celery_app)

        assert found.converted == ["good"]
        assert [each.name for each in found.unconverted] == ["bad"]
        assert reason in found.unconverted[0].reason
        assert "# NOT CONVERTED: bad\n" in found.code
        run_code(found, celery_app)

    def test_a_zone_without_a_name(self):
        celery_app = a_celery_app({"x": {"task": "t", "schedule": crontab()}})
        celery_app.timezone = timezone(timedelta(hours=1))

        assert "--timezone" in read(celery_app).unconverted[0].reason
        assert read(celery_app, zone="Europe/Berlin").converted == ["x"]

    def test_another_scheduler_is_reported(self):
        celery_app = a_celery_app({}, beat_scheduler="redbeat.RedBeatScheduler")

        assert "entries in its database are not read" in read(celery_app).code

    def test_a_name_cannot_leave_its_comment(self):
        celery_app = a_celery_app(
            {"x\nraise SystemExit": {"task": "t\nraise SystemExit", "schedule": None}}
        )

        run_code(read(celery_app), celery_app)
