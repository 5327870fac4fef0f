"""One table has all options: everything that lists or checks them agrees with it."""

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from tickwork import JobDefaults, ScheduleDefinition, Tickwork
from tickwork._control.schedule_definition import ScheduleChanges, ScheduleOptions
from tickwork._control.schedule_view import ScheduleView
from tickwork._define.option_table import (
    FROM_THE_JOB,
    OF_ONE_DISPATCH,
    OF_SCHEDULES,
    OPTIONS,
    POLICIES,
    UNSETTABLE,
    Kind,
    Option,
    Scope,
    names_of,
    options_of,
)
from tickwork._define.options import (
    DefaultKeywords,
    JobKeywords,
    JobOptionMethods,
    OptionCollector,
    ScheduleOptionMethods,
)
from tickwork._dispatch.dispatch_options import DispatchOptionMethods, DispatchOptions
from tickwork._domain.job import RANGES, JobPolicies, ScheduleSpec
from tickwork._inspect.schedule_details import ScheduleDetails
from tickwork.cli.control import dispatch_command
from tickwork.dashboard.acts.runs import DispatchFields
from tickwork.errors import ConfigError, InvalidOption

NUMBERS = [each for each in OPTIONS if each.range is not None]


def nothing() -> None:
    pass


def methods_of(*kinds: type) -> set[str]:
    return {name for kind in kinds for name in vars(kind) if not name.startswith("_")}


def wrong_values(option: Option) -> list[Any]:
    """A value below the range of an option, and one above it."""
    assert option.range is not None
    low, high, _ = option.range
    step: Any = timedelta(microseconds=1) if isinstance(low, timedelta) else 1
    return [low - step, *([] if high is None else [high + step])]


WRONG = [
    pytest.param(option, value, id=f"{option.name}-{value}")
    for option in NUMBERS
    for value in wrong_values(option)
]


class TestTypes:
    """What type checkers read is written out, and agrees with the table."""

    def test_each_option_has_one_row(self):
        names = [option.name for option in OPTIONS]

        assert len(set(names)) == len(names)

    def test_the_builder_has_a_method_for_each_option(self):
        assert methods_of(ScheduleOptionMethods) == set(names_of(Scope.CODE_SCHEDULE))
        assert methods_of(ScheduleOptionMethods, JobOptionMethods) == set(names_of(Scope.JOB))

    def test_the_decorator_and_the_defaults_have_a_keyword_for_each_option(self):
        assert set(JobKeywords.__annotations__) == set(names_of(Scope.JOB))
        assert set(DefaultKeywords.__annotations__) == set(names_of(Scope.APPLICATION))

    def test_a_draft_has_a_method_and_a_field_for_each_option(self):
        names = set(names_of(Scope.DISPATCH))
        methods = {each for kind in DispatchOptionMethods.__mro__[:2] for each in methods_of(kind)}

        assert methods == names
        assert {each.name for each in fields(DispatchOptions)} == {*names, "connection"}

    def test_the_api_and_the_command_line_have_every_option_of_a_dispatch(self):
        names = set(names_of(Scope.DISPATCH))
        options = {option.name for option in dispatch_command.params}

        assert set(DispatchFields.__annotations__) == names
        assert names <= options

    def test_a_schedule_at_run_time_has_a_field_for_each_option(self):
        names = set(names_of(Scope.SCHEDULE))

        assert set(ScheduleOptions.__annotations__) == names
        assert set(ScheduleChanges.__annotations__) == {*names, "job", "rule", "at", "timezone"}
        own = {*names, "job", "rule", "at", "timezone", "name", "tenant"}
        assert {each.name for each in fields(ScheduleDefinition)} == own

    def test_a_stored_schedule_has_a_field_for_each_column(self):
        columns = {option.column for option in OPTIONS if option.column}
        own = {"name", "job", "rule", "zone", "tenant", "origin"}

        assert {each.name for each in fields(ScheduleSpec)} == columns | own
        assert columns <= {each.name for each in fields(ScheduleDetails)}
        listed = {option.column for option in OPTIONS if option.is_listed}
        assert listed <= {each.name for each in fields(ScheduleView)}

    def test_what_a_schedule_takes_from_its_job_is_an_option_of_jobs(self):
        policies = {each.name for each in fields(JobPolicies)}

        assert {*POLICIES, *FROM_THE_JOB} <= policies
        assert set(POLICIES).isdisjoint(FROM_THE_JOB)

    def test_every_option_of_a_schedule_can_be_unset_except_those_that_are_added_up(self):
        assert set(names_of(Scope.SCHEDULE)) - set(UNSETTABLE) == {"args", "tags"}
        assert set(names_of(Scope.DISPATCH)) - set(OF_ONE_DISPATCH) == {"args", "tags"}

    def test_every_option_of_a_schedule_has_a_parser_and_a_place_in_the_form(self):
        for option in OF_SCHEDULES:
            assert option.parse is not None, option
            assert option.label or option.kind is Kind.ARGUMENTS, option

    def test_every_range_belongs_to_an_option_with_a_parser(self):
        assert RANGES.keys() == {option.name for option in NUMBERS}
        assert all(option.parse for option in NUMBERS)


class TestRanges:
    """A number or a length out of its range is an error where it is set."""

    @pytest.mark.parametrize(("option", "value"), WRONG)
    def test_in_a_builder_it_names_the_job_and_the_line(self, option, value):
        builder = Tickwork("memory://").schedule("report", nothing)
        with pytest.raises(InvalidOption) as raised:
            set_option(builder, option.name, value)

        check_text(raised.value, option)
        assert "'report', set at " in raised.value.why
        assert (raised.value.job, __file__ in raised.value.place) == ("report", True)

    @pytest.mark.parametrize(("option", "value"), WRONG)
    def test_in_the_decorator_it_names_the_job_and_the_line(self, option, value):
        with pytest.raises(InvalidOption) as raised:
            Tickwork("memory://").job(name="report", **keywords(option, value))(nothing)

        check_text(raised.value, option)
        assert (raised.value.job, __file__ in raised.value.place) == ("report", True)

    @pytest.mark.parametrize(("option", "value"), WRONG)
    def test_in_the_defaults(self, option, value):
        with pytest.raises(InvalidOption) as raised:
            JobDefaults(**keywords(option, value))

        check_text(raised.value, option)

    @pytest.mark.parametrize(("option", "value"), WRONG)
    def test_in_a_configuration_file_it_names_the_line(self, option, value, tmp_path):
        number = value.total_seconds() if isinstance(value, timedelta) else value
        key = f"misfire = {{ policy = 'one', grace = {number} }}"
        if option.name != "grace":
            key = f"{option.name} = {number}"
        path = tmp_path / "tickwork.toml"
        path.write_text(f"[[jobs]]\nname = 'report'\nhandler = '{PATH}'\n{key}\n")
        with pytest.raises(ConfigError) as raised:
            Tickwork("memory://").load_config(path)

        [fault] = raised.value.faults
        assert fault.startswith(f"line 4: {option.name} must be {option.range.text}")

    @pytest.mark.parametrize(("option", "value"), WRONG)
    def test_in_a_schedule_and_in_a_dispatch(self, option, value):
        app = Tickwork("memory://")
        job = app.job(nothing)
        if Scope.SCHEDULE in option.scope:
            given: dict[str, Any] = {option.name: value}
            with pytest.raises(InvalidOption) as raised:
                ScheduleDefinition(job="nothing", rule="@daily", **given)
            check_text(raised.value, option)
        if Scope.DISPATCH in option.scope:
            with pytest.raises(InvalidOption) as raised:
                getattr(job, option.name)(value)
            check_text(raised.value, option)

    @pytest.mark.parametrize("option", [each for each in NUMBERS if each.range and each.range.high])
    def test_both_ends_of_the_range_are_allowed(self, option):
        for value in option.range[:2]:
            set_option(OptionCollector(), option.name, value).options.spec("job", args="{}")

    def test_an_error_does_not_reach_the_dispatch_of_another_job(self):
        app = Tickwork("memory://")
        other = app.job(name="other")(nothing)
        with pytest.raises(InvalidOption):
            app.schedule("report", nothing).priority(100_000)

        assert other.dispatch().id

    def test_options_that_do_not_fit_together_name_their_job(self):
        app = Tickwork("memory://")
        app.schedule("report", nothing).retry_on(OSError)
        with pytest.raises(InvalidOption, match=r"'report', set at .*test_option_table\.py"):
            app.job(name="other")(nothing).dispatch()


PATH = f"{__name__}:nothing"


def set_option(builder: Any, name: str, value: Any) -> Any:
    if name == "grace":
        return builder.misfire("one", grace=value)
    return getattr(builder, name)(value)


def keywords(option: Option, value: Any) -> dict[str, Any]:
    if option.name == "grace":  # in code it is a part of misfire
        return {"misfire": {"policy": "one", "grace": value}}
    return {option.name: value}


def check_text(error: InvalidOption, option: Option) -> None:
    assert option.range is not None
    assert error.what.startswith(f"{option.name} must be {option.range.text}, got ")
    assert option in (*options_of(Scope.JOB), *OF_SCHEDULES)
