"""``app.schedules.create``: a job type, a target, a payload, an instant, a recurrence."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from enum import Enum, StrEnum
from typing import Any

import pytest

from tickwork import JobResult, RunContext, ScheduleDefinition, schedules
from tickwork._inspect.rule_preview import preview_rule
from tickwork.errors import (
    ArgumentError,
    CronError,
    DefinitionError,
    DuplicateDefinition,
    InvalidOption,
    InvalidSchedule,
    JobNotFound,
    NaiveDatetime,
)

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NINE = MIDNIGHT + 9 * HOUR


class JobType(StrEnum):
    EXPORT_REPORT = "export_report"


class PlainType(Enum):
    EXPORT_REPORT = "export_report"


@pytest.fixture
def seen():
    """What the handler received: target, nominal time, payload."""
    return []


@pytest.fixture(autouse=True)
def exporter(app, seen):
    """A handler for one job type, as a class with supports() and handle()."""

    class Exporter:
        def supports(self, job_type: str) -> bool:
            return job_type == JobType.EXPORT_REPORT

        def handle(self, run: RunContext) -> JobResult:
            seen.append((run.target, run.nominal_at, dict(run.args)))
            return JobResult.success({"pages": 3})

    return app.handler(Exporter())


def instants(seen):
    return [at for _, at, _ in seen]


def days_of(app, clock, passes, days=3):
    for _ in range(days * 24):
        clock.advance(hours=1)
        passes(app)


class TestCreating:
    """A definition makes a schedule, and its options reach the handler."""

    def test_once_with_a_target_and_a_payload(self, app, seen, clock, passes):
        app.schedules.create(
            ScheduleDefinition(
                job="export_report", target="report-42", at=NINE, args={"format": "pdf"}
            )
        )
        days_of(app, clock, passes, days=2)

        assert seen == [("report-42", NINE, {"format": "pdf"})]

    @pytest.mark.parametrize("job", [JobType.EXPORT_REPORT, PlainType.EXPORT_REPORT])
    def test_a_job_type_may_be_an_enum(self, app, seen, clock, passes, job):
        app.schedules.create(ScheduleDefinition(job=job, at=clock.now()))

        assert passes(app) == 1
        assert app.schedules.list()[0].job == "export_report"

    def test_an_instant_in_the_past_is_due_at_once(self, app, seen, clock):
        app.schedules.create(ScheduleDefinition(job="export_report", at=MIDNIGHT - 30 * DAY))

        assert app.run() == 1

    def test_recurring_from_an_instant_on(self, app, seen, clock, passes):
        app.schedules.create(
            ScheduleDefinition(job="export_report", at=NINE + DAY, rule=schedules.daily())
        )
        days_of(app, clock, passes, days=4)

        assert instants(seen) == [NINE + n * DAY for n in (1, 2, 3)]

    def test_by_a_cron_expression(self, app, seen, clock, passes):
        app.schedules.create(ScheduleDefinition(job="export_report", rule="0 9 * * 1-5"))
        days_of(app, clock, passes, days=5)  # Thursday to Monday

        assert instants(seen) == [NINE + n * DAY for n in (0, 1, 4)]

    def test_a_cron_expression_does_not_fire_before_its_start(self, app, seen, clock, passes):
        app.schedules.create(
            ScheduleDefinition(job="export_report", rule="0 9 * * *", at=MIDNIGHT + DAY)
        )
        days_of(app, clock, passes)

        assert instants(seen) == [NINE + n * DAY for n in (1, 2)]

    def test_until_an_instant(self, app, seen, clock, passes):
        app.schedules.create(
            ScheduleDefinition(job="export_report", rule="0 9 * * *", until=NINE + DAY)
        )
        days_of(app, clock, passes)

        assert instants(seen) == [NINE, NINE + DAY]
        assert app.schedules.list()[0].is_finished

    def test_max_firings(self, app, seen, clock, passes):
        app.schedules.create(
            ScheduleDefinition(job="export_report", rule=schedules.hourly(), max_firings=2, at=NINE)
        )
        days_of(app, clock, passes)

        assert instants(seen) == [NINE, NINE + HOUR]

    def test_for_a_tenant_in_a_queue_with_a_priority(self, app, clock):
        app.schedules.create(
            ScheduleDefinition(
                job="export_report",
                name="export",
                tenant="acme",
                at=clock.now(),
                queue="slow",
                priority=7,
                expires="1h",
                tags=["reports"],
            )
        )
        app.run()

        [run] = app.runs.recent()
        assert (run.tenant, run.schedule, run.queue) == ("acme", "export", "slow")
        assert (run.priority, run.tags) == (7, ("reports",))
        assert run.expires_at == MIDNIGHT + HOUR

    def test_other_options_come_from_the_job(self, app, clock):
        job = (
            app.schedule("sweep", lambda: None)
            .overlap("queue_all")
            .misfire("skip")
            .queue("slow")
            .job
        )
        app.schedules.create(ScheduleDefinition(job=job, name="own", at=clock.now()))

        view = app.schedules.get("own")
        app.run()
        assert (view.overlap, view.misfire, view.queue) == ("queue_all", "skip", None)
        assert app.runs.recent()[0].queue == "slow"


class TestRules:
    """A rule is a value of ``tickwork.schedules``, or a string."""

    @pytest.mark.parametrize(
        ("rule", "first"),
        [
            (schedules.every(minutes=90), MIDNIGHT + timedelta(minutes=90)),
            (schedules.daily_at("13:00").weekends(), datetime(2026, 1, 3, 13, tzinfo=UTC)),
            (schedules.Cron.parse("30 4 * * *"), MIDNIGHT + timedelta(hours=4, minutes=30)),
            (schedules.Interval(length=HOUR, anchor=MIDNIGHT), MIDNIGHT + HOUR),
            (schedules.once(NINE), NINE),
            ("30 4 * * *", MIDNIGHT + timedelta(hours=4, minutes=30)),
            ("@daily", MIDNIGHT + DAY),
            ("15 30 4 * * *", MIDNIGHT + timedelta(hours=4, minutes=30, seconds=15)),
            ("EVERY_DAY", MIDNIGHT + timedelta(hours=2, minutes=10)),
            (schedules.hourly().to_text(), MIDNIGHT + HOUR),
            ("every_five_minutes", MIDNIGHT + timedelta(minutes=5)),
            ("daily_at('13:00')", MIDNIGHT + 13 * HOUR),
            ("hours=4 minutes=30", MIDNIGHT + timedelta(hours=4, minutes=30)),
        ],
    )
    def test_it_falls_due_by_its_rule(self, app, rule, first):
        view = app.schedules.create(ScheduleDefinition(job="export_report", rule=rule))

        assert view.next_due_at == first

    @pytest.mark.parametrize(
        "rule",
        [
            "every_five_minutes",
            "evry_day",
            "EVERY_DAI",
            "hors=9",
            "daily_at",
            "61 * * * *",
            "",
            "5",
        ],
    )
    def test_a_preview_reads_it_in_the_same_way(self, app, clock, rule):
        definition = ScheduleDefinition(job="export_report", rule=rule)

        def preview() -> object:
            return preview_rule(
                rule,
                zone="UTC",
                count=1,
                start=clock.now(),
                symbols=app.symbols,
                calendars=app.calendars,
            ).instants[0]

        def answer(read: Callable[[], object]) -> object:
            try:
                return read()
            except InvalidSchedule as error:
                return str(error)

        assert answer(preview) == answer(lambda: app.schedules.create(definition).next_due_at)

    def test_symbols_of_the_application_are_known(self, app):
        app.symbols["NIGHTLY"] = {"hours": 3, "minutes": 30}

        view = app.schedules.create(ScheduleDefinition(job="export_report", rule="NIGHTLY"))

        assert view.next_due_at == MIDNIGHT + timedelta(hours=3, minutes=30)

    def test_the_default_zone_is_that_of_the_application(self, make_app, clock):
        app = make_app(timezone="Europe/Berlin")
        view = app.schedules.create(ScheduleDefinition(job="any", rule="0 9 * * *"))

        assert (view.zone, view.next_due_at) == ("Europe/Berlin", NINE - HOUR)

    def test_another_zone_can_be_given(self, app):
        view = app.schedules.create(
            ScheduleDefinition(job="export_report", rule="0 9 * * *", timezone="Asia/Tokyo")
        )

        assert (view.zone, view.next_due_at) == ("Asia/Tokyo", MIDNIGHT + DAY)

    @pytest.mark.parametrize(
        ("rule", "expected"),
        [
            (schedules.daily(), [NINE, NINE + DAY]),
            (schedules.daily(interval=3), [NINE, NINE + 3 * DAY]),
            (schedules.weekly(), [NINE, NINE + 7 * DAY]),
            (schedules.monthly(), [NINE, datetime(2026, 2, 1, 9, tzinfo=UTC)]),
            (schedules.yearly(), [NINE, datetime(2027, 1, 1, 9, tzinfo=UTC)]),
            (schedules.every(hours=5), [NINE, NINE + 5 * HOUR]),
            (schedules.hourly_at(30), [NINE + HOUR / 2, NINE + 3 * HOUR / 2]),
            (schedules.daily().hours(12), [NINE + 3 * HOUR, NINE + DAY + 3 * HOUR]),
        ],
    )
    def test_a_recurrence_starts_at_the_instant_and_keeps_its_time(self, app, rule, expected):
        view = app.schedules.create(ScheduleDefinition(job="export_report", rule=rule, at=NINE))

        assert app.schedules.preview(view.name, 2) == expected

    def test_h_is_hashed_from_the_name_of_the_schedule(self, app):
        minutes = set()
        for number in range(20):
            view = app.schedules.create(
                ScheduleDefinition(job="export_report", name=f"export-{number}", rule="H * * * *")
            )
            assert view.next_due_at is not None
            minutes.add(view.next_due_at.minute)

        assert len(minutes) > 5


class TestNames:
    """Without a name, one is derived: the same definition is the same schedule."""

    def test_creating_it_twice_makes_one_schedule(self, app, clock):
        def definition():
            return ScheduleDefinition(
                job="export_report", target="r-1", rule=schedules.every(minutes=5), args={"a": 1}
            )

        first = app.schedules.create(definition())
        clock.advance(minutes=12)

        assert app.schedules.create(definition()) == first
        assert len(app.schedules.list()) == 1

    def test_its_name_begins_with_that_of_the_job(self, app):
        view = app.schedules.create(ScheduleDefinition(job="export_report", at=NINE))

        assert view.name.startswith("export_report-")

    @pytest.mark.parametrize(
        "options",
        [
            {"target": "r-2"},
            {"args": {"a": 2}},
            {"at": NINE + HOUR},
            {"tenant": "acme"},
            {"queue": "slow"},
            {"overlap": "allow"},
            {"until": NINE + DAY},
            {"tags": ["x"]},
        ],
    )
    def test_any_other_option_makes_another_schedule(self, app, options):
        given: dict[str, Any] = {"job": "export_report", "target": "r-1", "at": NINE}
        given["args"] = {"a": 1}
        first = app.schedules.create(ScheduleDefinition(**given))

        assert app.schedules.create(ScheduleDefinition(**{**given, **options})).name != first.name

    def test_a_finished_single_firing_does_not_fire_again(self, app, seen, clock, passes):
        for _ in range(3):
            app.schedules.create(ScheduleDefinition(job="export_report", at=MIDNIGHT))
            passes(app)
            clock.advance(hours=1)

        assert len(seen) == 1

    def test_an_equal_schedule_with_the_name_is_returned(self, app, clock):
        def definition():
            return ScheduleDefinition(job="export_report", name="own", rule="0 9 * * *")

        first = app.schedules.create(definition())
        clock.advance(days=3)

        assert app.schedules.create(definition()) == first

    def test_creating_it_again_keeps_the_start_of_an_interval(self, app, clock):
        def definition():
            return ScheduleDefinition(
                job="export_report", name="own", rule=schedules.every(minutes=5)
            )

        first = app.schedules.create(definition())
        clock.advance(minutes=2)

        assert app.schedules.create(definition()) == first

    def test_a_finished_schedule_is_returned_too(self, app, clock, passes):
        def definition():
            return ScheduleDefinition(job="export_report", name="own", rule="0 9 * * *", until=NINE)

        app.schedules.create(definition())
        clock.advance(days=3)
        passes(app)

        assert app.schedules.create(definition()).is_finished

    def test_a_different_schedule_with_the_name_is_an_error(self, app):
        app.schedules.create(ScheduleDefinition(job="export_report", name="own", rule="0 9 * * *"))

        with pytest.raises(DuplicateDefinition, match="in the database, created at 2026-01-01"):
            app.schedules.create(
                ScheduleDefinition(job="export_report", name="own", rule="0 10 * * *")
            )

        assert app.schedules.get("own").rule == "at 09:00 (UTC)"

    def test_a_schedule_from_code_with_the_name_is_an_error(self, app):
        app.schedule("own", lambda: None).hourly()
        app.run()

        with pytest.raises(DefinitionError, match="defined in code"):
            app.schedules.create(ScheduleDefinition(job="own", name="own", rule="0 9 * * *"))


class TestDefinitions:
    """A definition is a frozen value that checks its options."""

    def test_equal_ones_are_equal(self):
        def definition(at):
            return ScheduleDefinition(job="x", at=at, expires=60, tags=["a"])

        assert definition(NINE) == definition("2026-01-01T10:00:00+01:00")

    def test_it_cannot_be_changed(self):
        definition = ScheduleDefinition(job="x", at=NINE)

        with pytest.raises(AttributeError):
            definition.job = "y"  # type: ignore[misc]  # that is the point

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({}, InvalidSchedule, "needs a rule or an instant"),
            ({"at": datetime(2026, 1, 1)}, NaiveDatetime, "no time zone"),
            ({"at": date(2026, 1, 1)}, InvalidOption, "at must be"),
            ({"at": NINE, "max_firings": 3}, InvalidOption, "without a rule"),
            ({"rule": "0 9 * * *", "overlap": "wait"}, InvalidOption, "overlap"),
            ({"rule": "0 9 * * *", "timezone": "Berlin"}, InvalidSchedule, "Berlin"),
            ({"rule": "0 9 * * *", "name": " own"}, InvalidOption, "name"),
        ],
    )
    def test_invalid_options_are_refused(self, options, error, message):
        with pytest.raises(error, match=message):
            ScheduleDefinition(job="export_report", **options)


class TestErrors:
    """Options that only the application can check are refused by create(); nothing is stored."""

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"job": "exprot_report"}, JobNotFound, "exprot_report"),
            ({"job": "sweep", "args": {"x": 1}}, ArgumentError, "'x'"),
            ({"job": "needs"}, ArgumentError, "'to' is missing"),
            ({"rule": "0 0 30 2 *"}, InvalidSchedule, "never fire"),
            ({"rule": "61 * * * *"}, CronError, "61"),
            ({"rule": "EVERY_DYA"}, InvalidSchedule, "Did you mean 'EVERY_DAY'"),
            ({"rule": '{"kind":"lunar"}'}, InvalidSchedule, "lunar"),
            ({"rule": 15}, InvalidSchedule, "not a rule"),
            ({"rule": "0 9 * * *", "until": MIDNIGHT - DAY}, InvalidSchedule, "never fire"),
            (
                {"rule": schedules.daily().until(MIDNIGHT - DAY)},
                InvalidSchedule,
                "never fire",
            ),
            (
                {"rule": schedules.hourly().starting(NINE), "at": NINE + HOUR},
                InvalidSchedule,
                "start in one place",
            ),
            (
                {"rule": schedules.hourly().timezone("UTC"), "timezone": "Asia/Tokyo"},
                InvalidSchedule,
                "time zone in one place",
            ),
        ],
    )
    def test_invalid_definitions(self, app, options, error, message):
        app.schedule("sweep", lambda: None)
        app.job(name="needs")(lambda to: None)

        with pytest.raises(error, match=message):
            app.schedules.create(
                ScheduleDefinition(**{"job": "export_report", "rule": "0 9 * * *", **options})
            )

        assert app.schedules.list() == []
