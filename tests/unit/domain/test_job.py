import pickle
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tickwork._domain.identity import RunId
from tickwork._domain.job import JobSpec, Misfire, Overlap, ScheduleOrigin, ScheduleSpec
from tickwork._domain.limits.limits import Limit, Unique
from tickwork._domain.runs.retry import NO_RETRY, Fixed
from tickwork._domain.runs.run import NewRun
from tickwork.errors import InvalidOption, NaiveDatetime
from unit.builders import MINUTE, NOON, a_job, a_schedule

ID = RunId("019cb0d2-0000-7000-8000-000000000001")


def a_run(job: JobSpec, **options: Any) -> NewRun:
    facts: dict[str, Any] = {"now": NOON, "due_at": NOON, "args": "{}"}
    return job.new_run(ID, **facts | options)


class TestJobSpec:
    """A job is a checked value with documented defaults."""

    def test_the_defaults(self):
        job = JobSpec(name="send")

        assert (job.queue, job.priority, job.limits) == ("default", 100, ())
        assert (job.lease.length, job.timeout, job.retry) == (MINUTE, None, NO_RETRY)
        assert (job.attempts_max, job.crashes_max) == (1, 3)
        assert (job.overlap, job.misfire, job.grace) == (Overlap.SKIP, Misfire.ONE, MINUTE)
        assert (job.jitter, job.unique, job.expires) == (timedelta(0), None, None)

    def test_it_is_a_value(self):
        job = JobSpec(name="send", tags=("a",), limits=(Limit(3),))

        assert pickle.loads(pickle.dumps(job)) == job == replace(job)
        assert hash(job) == hash(replace(job))

    @pytest.mark.parametrize(
        ("option", "options"),
        [
            ("name", {"name": ""}),
            ("name", {"name": "a=b"}),
            ("queue", {"queue": " mail"}),
            ("aliases", {"aliases": ("",)}),
            ("priority", {"priority": 40_000}),
            ("priority", {"priority": -40_000}),
            ("tags", {"tags": ("a", "a")}),
            ("tags", {"tags": ("\n",)}),
            ("tags", {"tags": tuple(f"tag{number}" for number in range(21))}),
            ("timeout", {"timeout": timedelta(0)}),
            ("crashes", {"crashes_max": 0}),
            ("concurrency", {"limits": (Limit(1), Limit(2))}),
            ("grace", {"grace": -MINUTE}),
            ("grace", {"grace": timedelta(days=400)}),
            ("jitter", {"jitter": -MINUTE}),
            ("jitter", {"jitter": timedelta(days=2)}),
            ("expires", {"expires": timedelta(0)}),
        ],
    )
    def test_the_error_names_the_option(self, option, options):
        with pytest.raises(InvalidOption) as caught:
            JobSpec(**{"name": "send"} | options)
        assert caught.value.option == option

    def test_its_limits_by_name(self):
        job = JobSpec(name="send", queue="mail", limits=(Limit(3), Limit(9, per=("queue",))))

        assert job.slots_by_limit() == {"job:send": 3, "queue:mail": 9}
        assert job.slots_by_limit(queue="slow") == {"job:send": 3, "queue:slow": 9}


class TestNewRun:
    """A run gets the options of its job, unless the caller overrides them."""

    def test_options_of_the_job(self):
        job = JobSpec(
            name="send",
            queue="mail",
            priority=5,
            tags=("a",),
            expires=MINUTE,
            retry=Fixed(attempts_max=4, delay=MINUTE),
        )

        run = a_run(job)

        assert (run.queue, run.priority, run.tags) == ("mail", 5, ("a",))
        assert (run.expires_at, run.attempts_max) == (NOON + MINUTE, 4)

    def test_options_of_the_caller(self):
        run = a_run(
            JobSpec(name="send", tags=("a",)),
            queue="slow",
            priority=0,
            tags=("a", "b"),
            expires=2 * MINUTE,
            tenant="acme",
            target="user-5",
        )

        assert (run.queue, run.priority, run.tags) == ("slow", 0, ("a", "b"))
        assert (run.expires_at, run.tenant, run.target) == (NOON + 2 * MINUTE, "acme", "user-5")

    def test_its_keys_come_from_its_arguments(self):
        job = JobSpec(
            name="send",
            limits=(Limit(1, per=("account",)), Limit(5, per=("queue",))),
            unique=Unique(by=("account",), within=MINUTE),
        )

        run = a_run(job, args='{"account":7}', queue="slow", one_at_a_time="@schedule:x")

        assert run.limit_keys == ("account:send=7", "queue:slow", "@schedule:x")
        assert run.unique is not None
        assert run.unique.until == NOON + MINUTE

    def test_without_keys_the_arguments_are_not_even_read(self):
        assert a_run(a_job(), args="not json").args == "not json"

    @pytest.mark.parametrize(
        "options",
        [
            {"due_at": NOON.replace(tzinfo=None)},
            {"now": NOON.replace(tzinfo=None)},
            {"schedule": "nightly"},
            {"nominal_at": NOON},
        ],
        ids=str,
    )
    def test_an_invalid_run_is_an_error(self, options):
        with pytest.raises(AssertionError):
            a_run(a_job(), **options)


class TestScheduleSpec:
    """A schedule is a checked value too."""

    @pytest.mark.parametrize(
        ("option", "options"),
        [
            ("name", {"name": ""}),
            ("job", {"job": "a=b"}),
            ("tenant", {"tenant": " "}),
            ("queue", {"queue": ""}),
            ("priority", {"priority": 99_999}),
            ("tags", {"tags": ("",)}),
            ("grace", {"grace": -MINUTE}),
        ],
    )
    def test_the_error_names_the_option(self, option, options):
        with pytest.raises(InvalidOption) as caught:
            ScheduleSpec(**{"name": "nightly", "job": "send", "rule": "a rule"} | options)
        assert caught.value.option == option

    def test_a_naive_end_is_an_error(self):
        with pytest.raises(NaiveDatetime):
            ScheduleSpec(name="x", job="y", rule="z", until=NOON.replace(tzinfo=None))

    def test_every_option_can_be_set(self):
        spec = ScheduleSpec(
            name="nightly", job="send", rule="a rule", tenant="acme", queue="mail", priority=1
        )

        assert replace(spec) == spec

    def test_a_row_knows_whether_it_is_paused(self):
        assert a_schedule(paused_at=NOON).is_paused
        assert not a_schedule().is_paused

    @pytest.mark.parametrize(
        ("until", "is_paused"), [(None, True), (NOON + MINUTE, True), (NOON, False)]
    )
    def test_a_pause_that_was_to_end_by_now_is_over(self, until, is_paused):
        row = replace(a_schedule(paused_at=NOON - MINUTE), paused_until=until)

        assert row.is_paused_at(NOON) is is_paused

    def test_a_schedule_that_no_program_defines_is_retired(self):
        def is_retired(seen_at, origin=ScheduleOrigin.CODE):
            row = replace(a_schedule(origin=origin), seen_at=seen_at)
            return row.is_retired(seen_after=NOON)

        assert is_retired(NOON - MINUTE)
        assert is_retired(None)
        assert not is_retired(NOON)
        assert not is_retired(None, ScheduleOrigin.API)
