"""``get``, ``list`` and ``preview``: reading schedules."""

import asyncio
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta

import pytest

from tickwork import ScheduleDefinition, ScheduleView, schedules
from tickwork._control import schedules as face
from tickwork._domain.job import Misfire, Overlap, ScheduleOrigin
from tickwork.errors import InvalidOption

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def sync(app):
    return app.job(name="sync")(lambda: None)


@pytest.fixture
def make(app):
    def make(**options):
        given = {"job": "sync", "name": "files", "rule": schedules.hourly(), **options}
        return app.schedules.create(ScheduleDefinition(**given))

    return make


class TestGet:
    """It returns one schedule as a frozen value."""

    def test_all_fields(self, app, make, clock, passes):
        make(
            tenant="acme",
            rule=schedules.daily_at("09:30").weekdays().timezone("Europe/Berlin"),
            until="2026-12-31T00:00Z",
            queue="slow",
            priority=3,
            overlap="queue_one",
            misfire="all",
            target="disk-1",
            tags=["a"],
        )
        clock.advance(hours=9)
        passes(app)

        assert app.schedules.get("files", tenant="acme") == ScheduleView(
            name="files",
            tenant="acme",
            job="sync",
            rule="at 09:30 on Monday to Friday (Europe/Berlin)",
            zone="Europe/Berlin",
            created_at=MIDNIGHT,
            last_fired_at=datetime(2026, 1, 1, 8, 30, tzinfo=UTC),
            next_due_at=datetime(2026, 1, 2, 8, 30, tzinfo=UTC),
            until=datetime(2026, 12, 31, tzinfo=UTC),
            queue="slow",
            priority=3,
            overlap=Overlap.QUEUE_ONE,
            misfire=Misfire.ALL,
            target="disk-1",
            tags=("a",),
            origin=ScheduleOrigin.API,
        )

    def test_it_is_a_value(self, make):
        view = make()

        with pytest.raises(FrozenInstanceError):
            view.name = "other"

    def test_the_origin_of_a_schedule_from_code(self, app, sync):
        app.schedule("nightly", sync).daily()
        app.run()

        assert app.schedules.get("nightly").origin == "code"


class TestList:
    """It returns all schedules, of every tenant or of one."""

    def test_by_tenant_and_name(self, app, make):
        for tenant, name in (("bell", "a"), ("", "z"), ("acme", "b"), ("acme", "a")):
            make(tenant=tenant, name=name)

        assert [(view.tenant, view.name) for view in app.schedules.list()] == [
            ("", "z"),
            ("acme", "a"),
            ("acme", "b"),
            ("bell", "a"),
        ]
        assert [view.name for view in app.schedules.list(tenant="acme")] == ["a", "b"]
        assert app.schedules.list(tenant="nobody") == []

    @pytest.mark.parametrize("page", [1, 2, 3, 6, 7])
    def test_page_by_page(self, app, make, monkeypatch, page):
        for number in range(6):
            make(tenant=f"t{number % 2}", name=f"s{number}")
        monkeypatch.setattr(face, "PAGE", page)

        assert [view.name for view in app.schedules.list()] == ["s0", "s2", "s4", "s1", "s3", "s5"]
        assert [view.name for view in app.schedules.list(tenant="t1")] == ["s1", "s3", "s5"]


class TestPreview:
    """It returns the next firings, in the zone of the schedule."""

    def test_from_now_on(self, app, make, clock):
        make()
        clock.advance(minutes=30)

        assert app.schedules.preview("files", 2) == [MIDNIGHT + HOUR, MIDNIGHT + 2 * HOUR]

    def test_in_its_own_zone(self, app, make):
        make(rule="0 9 * * *", timezone="Europe/Berlin")

        assert str(app.schedules.preview("files", 1)[0]) == "2026-01-01 09:00:00+01:00"

    def test_ten_by_default(self, app, make):
        make(tenant="acme")

        assert len(app.schedules.preview("files", tenant="acme")) == 10

    def test_fewer_if_the_rule_ends(self, app, make):
        make(until=MIDNIGHT + 3 * HOUR)

        assert len(app.schedules.preview("files")) == 3

    def test_a_finished_schedule_has_none(self, app, make, clock, passes):
        make(until=MIDNIGHT + HOUR)
        clock.advance(hours=2)
        passes(app)

        assert app.schedules.preview("files") == []

    def test_of_a_paused_schedule_those_after_a_resume(self, app, make, clock):
        make()
        app.schedules.pause("files")
        clock.advance(hours=5)

        assert app.schedules.preview("files", 1) == [MIDNIGHT + 6 * HOUR]

    def test_of_a_schedule_paused_until_an_instant_those_after_it(self, app, make):
        make()
        app.schedules.pause("files", until=MIDNIGHT + timedelta(minutes=150))

        assert app.schedules.preview("files", 1) == [MIDNIGHT + 3 * HOUR]

    @pytest.mark.parametrize("count", [0, -1, 10**9])
    def test_an_invalid_count_is_refused(self, app, make, count):
        make()

        with pytest.raises(InvalidOption, match="count"):
            app.schedules.preview("files", count)


class TestAsync:
    """The same methods for coroutines."""

    def test_schedules_and_limits(self, app, clock):
        async def story():
            face = app.aio.schedules
            await face.register("acme", "files", clock.now() + HOUR, "1h", "sync")
            await face.update("files", tenant="acme", queue="slow")
            await face.pause("files", tenant="acme", note="full disk")
            run = await face.run_now("files", tenant="acme")
            made = await face.create(ScheduleDefinition(job="sync", name="b", rule="0 9 * * *"))
            backfilled = await face.backfill("b", since=MIDNIGHT - DAY, until=MIDNIGHT)
            await app.aio.pause(queue="slow")
            seen = [(view.name, view.queue, view.is_paused) for view in await face.list()]
            names = [pause.name for pause in await app.aio.pauses()]
            await face.resume("files", tenant="acme")
            instants = await face.preview("files", 1, tenant="acme")
            view = await face.get("files", tenant="acme")
            canceled = await face.unregister("acme", "files")
            limits = await app.aio.limits.list()
            return run, made, backfilled, seen, names, instants, view, canceled, limits

        run, made, backfilled, seen, names, instants, view, canceled, limits = asyncio.run(story())

        assert (run.is_new, made.name, len(backfilled), limits) == (True, "b", 1, [])
        assert seen == [("b", None, False), ("files", "slow", True)]
        assert (names, instants, view.is_paused) == (["slow"], [MIDNIGHT + HOUR], False)
        assert canceled == 1
