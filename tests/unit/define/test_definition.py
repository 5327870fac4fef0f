"""Definitions: the options of a job, checked against its handler."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tickwork import Secret
from tickwork._define.definition import Declaration, Definition, define, schedule_spec
from tickwork._define.options import options_by_name
from tickwork._define.registry import Registry
from tickwork._domain.job import Misfire, Overlap
from tickwork._domain.schedules.rules import from_text
from tickwork._handlers.handlers import handler_of
from tickwork.errors import ArgumentError, DefinitionError, InvalidSchedule, NotSerializable
from tickwork.schedules import Timetable

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def send(to: str, subject: str = "Hello", card: Secret[str] = "") -> None:
    """A typical handler."""


def anything(**given: Any) -> None:
    """A handler that takes any argument."""


def a_definition(
    handler: Any = send, *, redact: frozenset[str] = frozenset(), **options: Any
) -> Definition:
    declaration = Declaration(
        name="send", target=handler, place="a.py:1", options=options_by_name(options)
    )
    found = handler_of(handler)
    payload = Registry(redact=redact).payload_of("send", found, defaults=declaration.options.args)
    return define(declaration, found, payload=payload, redact=redact)


def a_schedule(definition: Definition, *, job: str = "send", **options: Any) -> Any:
    declaration = Declaration(
        name="nightly" if job else "send",
        target=None,
        place="a.py:2",
        options=options_by_name(options),
        timing=Timetable().daily_at("13:00").timing,
        job=job,
    )
    return schedule_spec(declaration, definition, tz="Europe/Berlin", anchor=NOON)


class TestDefining:
    """The options must fit the handler."""

    def test_the_spec_has_encoded_arguments(self):
        assert a_definition(args={"to": "ann"}).spec.args == '{"to":"ann"}'
        assert a_definition().spec.args == "{}"

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"args": {"too": "ann"}}, "sets the argument 'too'.*Did you mean 'to'?"),
            ({"unique": {"by": "too"}}, "uses the argument 'too'"),
            ({"concurrency": {"slots": 1, "per": "too"}}, "uses the argument 'too'"),
        ],
    )
    def test_an_argument_that_the_handler_does_not_take(self, options, reason):
        with pytest.raises(DefinitionError, match=f"(?s){reason}"):
            a_definition(**options)

    def test_a_handler_with_kwargs_takes_any(self):
        made = a_definition(anything, args={"to": "ann"}, unique={"by": "account_id"})

        assert made.defaults == {"to": "ann"}

    def test_what_the_job_is_called_is_no_parameter(self):
        a_definition(concurrency=[1, {"slots": 2, "per": "queue"}, {"slots": 3, "per": "tenant"}])

    def test_arguments_that_cannot_be_stored(self):
        with pytest.raises(NotSerializable):
            a_definition(anything, args={"to": object()})


class TestArgumentsOfADispatch:
    """They override the defaults one by one, and are checked after merging."""

    def test_they_override_key_by_key(self):
        made = a_definition(args={"to": "ann", "subject": "Hi"})

        assert made.payload.encode_call((), {"subject": "Bye"}) == '{"to":"ann","subject":"Bye"}'
        assert made.payload.encode_call(("bob",), {}) == '{"to":"bob","subject":"Hi"}'

    def test_they_are_checked_together(self):
        with pytest.raises(ArgumentError, match="'to' is missing"):
            a_definition(args={"subject": "Hi"}).payload.encode_call((), {})
        with pytest.raises(ArgumentError, match="takes no argument 'cc'"):
            a_definition(args={"to": "ann"}).payload.encode_call((), {"cc": "bob"})


class TestSecrets:
    """Secret arguments and those that the app redacts are masked."""

    def test_both_are_masked(self):
        made = a_definition(redact=frozenset({"subject", "unheard_of"}))

        assert made.decode_masked_args('{"card": "4111", "subject": "x", "to": "ann"}') == {
            "card": "***",
            "subject": "***",
            "to": "ann",
        }

    def test_a_handler_with_kwargs_masks_them_too(self):
        made = a_definition(anything, redact=frozenset({"password"}))

        assert made.decode_masked_args('{"password": "s3cret"}') == {"password": "***"}


class TestSchedules:
    """A further schedule of a job may have options of its own."""

    def test_the_zone_of_the_app_is_the_default(self):
        spec = a_schedule(a_definition(args={"to": "ann"}))

        assert (spec.name, spec.job, spec.zone) == ("nightly", "send", "Europe/Berlin")
        assert from_text(spec.rule).next_after(NOON) == datetime(2026, 3, 3, 12, tzinfo=UTC)

    def test_options_that_are_not_given_are_those_of_the_job(self):
        job = a_definition(
            args={"to": "ann"}, overlap="allow", misfire={"policy": "all", "grace": 5}, jitter=9
        )

        spec = a_schedule(job)

        assert (spec.overlap, spec.misfire) == (Overlap.ALLOW, Misfire.ALL)
        assert (spec.grace, spec.jitter) == (timedelta(seconds=5), timedelta(seconds=9))
        assert (spec.queue, spec.priority, spec.expires) == (None, None, None)
        assert (spec.args, spec.tags) == ("{}", ())

    def test_options_that_are_given_are_its_own(self):
        job = a_definition(queue="slow", overlap="allow", tags=["mail"])

        spec = a_schedule(
            job,
            args={"to": "bob"},
            queue="default",
            priority=1,
            expires=60,
            overlap="skip",
            tags=["night"],
        )

        assert (spec.queue, spec.priority, spec.overlap) == ("default", 1, Overlap.SKIP)
        assert (spec.args, spec.tags) == ('{"to":"bob"}', ("night",))
        assert spec.expires == timedelta(seconds=60)

    def test_the_schedule_of_a_job_reads_options_from_the_job(self):
        spec = a_schedule(a_definition(args={"to": "ann"}), job="", queue="slow", tags=["a"])

        assert (spec.queue, spec.args, spec.tags) == (None, "{}", ())

    def test_a_missing_argument_is_an_error_before_the_first_firing(self):
        with pytest.raises(ArgumentError, match="'to' is missing"):
            a_schedule(a_definition())
        with pytest.raises(ArgumentError, match="takes no argument 'cc'"):
            a_schedule(a_definition(args={"to": "ann"}), args={"cc": "bob"})

    def test_a_rule_that_contradicts_itself(self):
        declaration = Declaration(
            name="nightly",
            target=None,
            place="a.py:2",
            job="send",
            timing=Timetable().every(hours=5).mondays().timing,
        )

        with pytest.raises(InvalidSchedule):
            schedule_spec(declaration, a_definition(args={"to": "a"}), tz="UTC", anchor=NOON)


class TestLikeness:
    """Two declarations are alike if they have the same meaning."""

    def declared(self, *, job: str = "", **options: Any) -> Declaration:
        return Declaration(
            name="x", target=send, place="a.py:1", options=options_by_name(options), job=job
        )

    def test_a_given_default_equals_one_that_is_not_given(self):
        assert self.declared().is_like(self.declared(queue="default"))
        assert not self.declared().is_like(self.declared(queue="slow"))

    def test_but_not_for_a_further_schedule_of_a_job(self):
        assert not self.declared(job="send").is_like(self.declared(job="send", queue="default"))
        assert not self.declared().is_like(self.declared(job="send"))

    def test_the_method_that_set_the_rule_does_not_matter(self):
        hourly, every_hour, daily = self.declared(), self.declared(), self.declared()
        hourly.timing = Timetable().hourly().timing
        every_hour.timing = Timetable().every_hour().timing
        daily.timing = Timetable().daily().timing

        assert hourly.is_like(every_hour)
        assert not hourly.is_like(daily)

    def test_schedules_of_different_jobs_differ(self):
        assert self.declared().job_name == "x"
        assert self.declared(job="send").job_name == "send"
