"""The jobs, schedules and symbols of a configuration file, and the problems in them."""

from functools import partial
from importlib import import_module
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork._calendars.calendars import NO_CALENDARS
from tickwork._config.config_file import _JOB_KEYS, _SCHEDULE_KEYS, read_declarations
from tickwork._config.toml_document import Document
from tickwork._define.definition import Declaration
from tickwork._define.options import options_by_name
from tickwork._define.registry import Registry, declare
from tickwork._domain.job import Overlap
from tickwork._domain.schedules.pattern import SYMBOLS, Symbols
from tickwork.errors import ConfigError
from unit.define import code

HERE = "unit.define.code"


def read_file(
    text: str, registry: Registry | None = None, symbols: Any = SYMBOLS
) -> tuple[list[Declaration], Symbols]:
    document = Document("tickwork.toml", dedent(text).lstrip("\n"))
    found = read_declarations(
        document,
        registry=registry or Registry(),
        symbols=symbols,
        calendars=NO_CALENDARS,
        timezone="Europe/Berlin",
    )
    document.raise_problems()
    return found[0], found[1]


def declared_in(text: str, registry: Registry | None = None) -> list[Declaration]:
    return read_file(text, registry)[0]


def problems_in(text: str, registry: Registry | None = None, symbols: Any = SYMBOLS) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_file(text, registry, symbols)
    return list(caught.value.faults)


def names_in(text: str) -> list[str]:
    return [declaration.name for declaration in declared_in(text)]


def a_job(options: str = "", handler: str = "report") -> str:
    """One job of a file. Its options begin at the third line."""
    return f'[[jobs]]\nhandler = "{HERE}:{handler}"\n{options}\n'


def a_registry(*declarations: Declaration) -> Registry:
    registry = Registry()
    for declaration in declarations:
        registry.add(declaration)
    return registry


class TestNames:
    """The name is optional. It is that of the class; a second job of the class gets -2."""

    def test_the_default_is_the_part_after_the_colon(self):
        assert names_in(f'[[jobs]]\nclass = "{HERE}:Execute"') == ["Execute"]
        assert names_in(f'[[jobs]]\nclass = "{HERE}:Outer.Inner"') == ["Outer.Inner"]
        assert names_in(a_job()) == ["report"]

    def test_a_class_may_be_used_several_times(self):
        assert names_in(a_job() * 3) == ["report", "report-2", "report-3"]

    def test_other_classes_do_not_change_the_count(self):
        text = a_job() + a_job(handler="fetch") + a_job() + a_job(handler="fetch")

        assert names_in(text) == ["report", "fetch", "report-2", "fetch-2"]

    def test_a_given_name_does_not_change_the_other_names(self):
        assert names_in(a_job('name = "first"') + a_job()) == ["first", "report-2"]

    def test_a_given_name(self):
        assert names_in(a_job('name = "digest"')) == ["digest"]

    def test_two_classes_with_the_same_name_need_given_names(self, modules):
        modules["blog"] = "def report(): ...\n"

        assert problems_in(a_job() + '[[jobs]]\nhandler = "blog:report"\n') == [
            "line 4: The name 'report' is already used at line 1. Choose another one."
        ]

    @pytest.mark.parametrize(
        ("second", "line"),
        [('name = "digest"', 6), ('aliases = ["digest"]', 6), ('name = "x"\naliases = "old"', 7)],
    )
    def test_two_jobs_with_one_name_are_a_problem_even_if_they_are_equal(self, second, line):
        [problem] = problems_in(
            a_job('name = "digest"\naliases = ["old"]').strip() + "\n" + a_job(second)
        )

        assert problem.startswith(f"line {line + 1}: ")
        assert "is already used at line 1" in problem

    @pytest.mark.parametrize("name", ["5", '""', '" a"', '"a=b"', '["a"]'])
    def test_an_invalid_name(self, name):
        [problem] = problems_in(a_job(f"name = {name}"))

        assert problem.startswith("line 3: name must ")


class TestHandlers:
    """A class or a handler is imported when the file is loaded, so a typo is found at once."""

    @pytest.mark.parametrize("key", ["class", "handler"])
    @pytest.mark.parametrize("name", ["report", "Execute", "Outer.Inner", "ClassHandle"])
    def test_any_kind_of_handler_works_under_both_keys(self, key, name):
        [declaration] = declared_in(f'[[jobs]]\n{key} = "{HERE}:{name}"')

        assert declaration.name == name

    @pytest.mark.parametrize(
        ("path", "problem"),
        [
            (f'"{HERE}:reprot"', "has no 'reprot'. Did you mean 'report'?"),
            (f'"{HERE}.report"', f"Did you mean '{HERE}:report'?"),
            ('"report"', "Write it as 'package.module:Name'"),
            ('"nowhere:report"', "There is no module 'nowhere'."),
            (f'"{HERE}:NUMBER"', "It is an object of type int, which cannot be called."),
            (f'"{HERE}:Neither"', "The class has neither handle() nor execute()."),
            ("5", "class must be a path such as 'package.module:Name', got 5."),
            ('["a:b"]', "class must be a path such as 'package.module:Name', got ['a:b']."),
        ],
    )
    def test_a_path_that_leads_nowhere(self, path, problem):
        [found] = problems_in(f"[[jobs]]\nclass = {path}")

        assert found.startswith("line 2: ")
        assert problem in found

    def test_a_handler_whose_arguments_cannot_be_passed_by_name(self, modules):
        modules["shop"] = "def send(*people): ...\n"

        [problem] = problems_in('[[jobs]]\nhandler = "shop:send"')

        assert "'people' takes any number of positional arguments" in problem

    @pytest.mark.parametrize(
        ("source", "problem"),
        [
            ("1 / 0", "shop cannot be imported: ZeroDivisionError: division by zero."),
            ("import nothing_at_all", "shop cannot be imported: ModuleNotFoundError: "),
            ("raise SystemExit(1)", "shop cannot be imported: SystemExit: 1."),
        ],
    )
    def test_a_module_that_cannot_be_imported(self, modules, source, problem):
        modules["shop"] = source

        [found] = problems_in('[[jobs]]\nhandler = "shop:send"')

        assert problem in found

    def test_the_error_for_a_module_that_is_still_being_imported(self, modules, monkeypatch):
        found: list[str] = []
        monkeypatch.setattr(
            "builtins.load", lambda text: found.extend(problems_in(text)), raising=False
        )
        modules["shop"] = """load('[[jobs]]\\nclass = "shop:Late"')\nclass Late: ..."""
        modules["blog"] = """load('[[jobs]]\\nclass = "blog_jobs:Late"')\napp = 1"""
        modules["blog_jobs"] = "from blog import app\n"

        import_module("shop")
        import_module("blog")

        assert len(found) == 2
        assert all("Load the file after all imports" in problem for problem in found)

    def test_a_job_needs_exactly_one_of_the_two_keys(self):
        assert problems_in(a_job(f'class = "{HERE}:Execute"')) == [
            "line 2: A job has a class or a handler. Remove one of them."
        ]
        assert problems_in('[[jobs]]\nname = "x"') == [
            "line 1: The handler is missing: add class = 'package.module:Name', or handler = ..."
        ]
        assert problems_in("[[jobs]]\nqueue = 'x'") == [
            "line 1: The name is missing: add name = ..."
        ]

    def test_no_key_is_needed_if_a_registered_handler_supports_the_type(self):
        registry = Registry()
        registry.add_handler(code.ForType("invoice"))

        [declaration] = declared_in('[[jobs]]\nname = "invoice"\nrun = "@daily"', registry)

        assert (declaration.name, declaration.target) == ("invoice", None)

    def test_a_job_that_code_defines_cannot_be_declared_again(self, modules, monkeypatch):
        digest = partial(code.report)
        digest.name, digest.__wrapped__ = "digest", code.report  # type: ignore[attr-defined]
        modules["shop"] = ""
        monkeypatch.setattr(import_module("shop"), "digest", digest, raising=False)
        registry = a_registry(declare("digest", code.report))

        [problem] = problems_in('[[jobs]]\nhandler = "shop:digest"\nrun = "@daily"', registry)

        assert "is already the job 'digest'" in problem
        assert "[[schedules]] with job = 'digest'" in problem


class TestOptions:
    """The options of the builder, and two names that other schedulers use."""

    @pytest.mark.parametrize(
        ("lines", "options"),
        [
            ("single_instance = true", {"overlap": "skip"}),
            ("single_instance = false", {"overlap": "allow"}),
            ("max_running_time = 300", {"timeout": 300}),
            ('max_running_time = "5m"', {"timeout": 300}),
            ("max_running_time = 0", {}),
            (f'when = "{HERE}:report"', {"when": code.report}),
            (
                f'on_error = ["{HERE}:report", "{HERE}:fetch"]',
                {"on_error": [code.report, code.fetch]},
            ),
            ("[jobs.retries]\nmax = 5\nbase = 2", {"retries": {"max": 5, "base": 2}}),
            ('[jobs.args]\nkind = "weekly"', {"args": {"kind": "weekly"}}),
        ],
    )
    def test_they_equal_the_options_of_the_builder(self, lines, options):
        [declaration] = declared_in(a_job(lines))

        assert declaration.options == options_by_name(options)

    @pytest.mark.parametrize(
        ("lines", "problem"),
        [
            ("single_instance = 1", "single_instance must be true or false, got 1."),
            ("max_running_time = false", "it is a bool"),
            ('max_running_time = "soon"', "'soon' is not a length of time"),
            ("max_running_time = -1", "timeout must be longer than 0s"),
            ("queue = 5", "queue must be a string, got 5."),
            ("priority = 1_000_000", "must be between -32,767 and 32,767"),
            ("retries = { max = 5, bas = 2 }", "Unknown key 'bas'. Did you mean 'base'?"),
            ("tags = { a = 1 }", "must be a string or a list of strings"),
            ('overlap = "skipp"', "Did you mean 'skip'?"),
            ('tags = ["a", "a"]', "at most 20 different strings"),
            ('when = "0 9 * * *"', "The path has no ':' between module and name."),
            ("when = 5", "when must be a path such as 'package.module:Name', got 5."),
            (f'when = "{HERE}:NUMBER"', "must be callable"),
            ('quue = "x"', "Unknown key 'quue'. Did you mean 'queue'?"),
            ('cron = "0 9 * * *"', "'cron' belongs to the rule: write run = { cron = ... }."),
            ('timezone = "UTC"', "'timezone' belongs to the rule"),
            ('args = "x"', "must map names to values"),
            ('args = { knd = "x" }', "sets the argument 'knd', which its handler does not take."),
            ('unique = { by = "knd" }', "uses the argument 'knd'"),
            ('concurrency = { slots = 1, per = "knd" }', "uses the argument 'knd'"),
            ('args = { kind = "' + "x" * 70_000 + '" }', "The limit is 65,536"),
        ],
    )
    def test_an_invalid_value(self, lines, problem):
        [found] = problems_in(a_job(lines))

        assert found.startswith("line 3: ")
        assert problem in found

    @pytest.mark.parametrize(
        ("lines", "problem"),
        [
            (
                'overlap = "allow"\nsingle_instance = true',
                "'single_instance' and 'overlap' are the same option",
            ),
            (
                "max_running_time = 5\ntimeout = 5",
                "'timeout' and 'max_running_time' are the same option",
            ),
        ],
    )
    def test_an_option_under_two_names(self, lines, problem):
        [found] = problems_in(a_job(lines))

        assert found.startswith("line 4: ")
        assert problem in found

    @pytest.mark.parametrize(
        ("lines", "line", "problem"),
        [
            ("[jobs.retries]\nmax = 5\nbas = 2", 5, "Unknown key 'bas'."),
            ("[jobs.retries]\nmax = 5\nbase = -2", 5, "base must not be negative, got -2s."),
            ("[jobs.retries]\nbase = 2", 3, "must include 'max'"),
            ("concurrency = [\n  1,\n  { slot = 1 },\n]", 5, "Did you mean 'slots'?"),
            ("[jobs.unique]\nby = []\nwithin = 0", 5, "within must be longer than 0s, got 0s."),
        ],
    )
    def test_a_problem_inside_a_table_has_its_own_line(self, lines, line, problem):
        [found] = problems_in(a_job(lines))

        assert found.startswith(f"line {line}: ")
        assert problem in found

    @pytest.mark.parametrize(
        ("lines", "problem"),
        [
            ("retries = 1", "must not be a bare number"),
            ("attempts = 3\n[jobs.retries]\nmax = 5", "must not be combined with retries"),
            ('attempts = 3\nretry_on = "NoSuchError"', "NoSuchError"),
            ('attempts = 3\nretry_on = "int"', "must be an exception type"),
            ('retry_on = "OSError"', "must come with attempts"),
        ],
    )
    def test_problems_of_retries_are_reported_once(self, lines, problem):
        [found] = problems_in(a_job(lines))

        assert problem in found

    def test_an_option_without_effect_hides_no_other_problem(self):
        lines = "max_running_time = 0\ntimeout = 5\nargs = { knd = 1 }"

        [problem] = problems_in(a_job(lines))

        assert problem.startswith("line 5: ")

    def test_a_problem_in_a_list_has_the_line_of_its_element(self):
        text = a_job(f'on_error = [\n  "{HERE}:report",\n  "{HERE}:reprot",\n]')

        [problem] = problems_in(text)

        assert problem.startswith("line 5: ")


class TestTiming:
    """``run`` is the rule. A job without it is only dispatched."""

    def test_a_job_without_it_has_no_rule(self):
        [declaration] = declared_in(a_job())

        assert not declaration.timing.has_rule

    def test_a_table_with_its_own_header(self):
        [declaration] = declared_in(a_job('[jobs.run]\ndaily_at = "13:00"\nweekdays = true'))

        rule = declaration.timing.rule(tz="UTC")
        assert rule.describe() == "at 13:00 on Monday to Friday (UTC)"

    @pytest.mark.parametrize(
        ("run", "line", "problem"),
        [
            ('run = "0 0 30 2 *"', 3, "never"),
            ("run = { hours = 99 }", 3, "hour '99' is not in 0-23."),
            ("[jobs.run]\nhours = 9\nwday = 9", 5, "weekday '9' is not in 0-7."),
            ("run = { every = { hours = 5 }, weekdays = true }", 3, "no calendar fields to refine"),
            (
                'run = { hourly = true, between = ["10:15", "10:45"] }',
                3,
                "The rule never fires: every hour",
            ),
        ],
    )
    def test_an_invalid_rule(self, run, line, problem):
        [found] = problems_in(a_job(run))

        assert found.startswith(f"line {line}: ")
        assert problem in found

    def test_a_missing_argument(self):
        [problem] = problems_in(a_job('run = "@daily"', handler="fetch"))

        assert problem == (
            "line 1: Wrong arguments for the job 'fetch': 'url' is missing. Add args = { ... }."
        )
        assert names_in(a_job('run = "@daily"\nargs = { url = "x" }', handler="fetch")) == ["fetch"]
        assert names_in(a_job(handler="fetch")) == ["fetch"]


class TestSymbols:
    """A file may define symbols for the application."""

    def test_the_file_can_use_them(self):
        found, symbols = read_file(
            a_job('run = "NIGHTLY"') + "[symbols]\nNIGHTLY = { hours = 3, minutes = 30 }"
        )

        [declaration] = found
        assert declaration.timing.rule().describe() == "at 03:30 (UTC)"
        assert symbols == {"NIGHTLY": {"hours": 3, "minutes": 30}}

    def test_a_built_in_symbol_may_be_replaced(self):
        found, _ = read_file(
            a_job('run = "EVERY_DAY"') + "[symbols]\nEVERY_DAY = { hours = 4, minutes = 0 }"
        )

        assert found[0].timing.rule().describe() == "at 04:00 (UTC)"

    def test_a_symbol_of_the_application_may_not(self):
        symbols = {**SYMBOLS, "NIGHTLY": {"hours": 3}}

        read_file("[symbols]\nNIGHTLY = { hours = 3 }", symbols=symbols)
        assert problems_in("[symbols]\nNIGHTLY = { hours = 4 }", symbols=symbols) == [
            "line 2: The symbol 'NIGHTLY' is already defined as {'hours': 3}."
        ]

    @pytest.mark.parametrize(
        ("lines", "problem"),
        [
            ("A = { hour = 3 }", "line 2: Unknown key 'hour'. Did you mean 'hours'?"),
            ("A = { hours = 99 }", "line 2: hour '99' is not in 0-23."),
            ('A = "0 9 * *"', "line 2: Invalid cron expression '0 9 * *': it has 4 fields, not 5"),
            ("A = 4", "line 2: A must be a table, got 4."),
            ("A = {}", "line 2: A pattern needs at least one field."),
        ],
    )
    def test_an_invalid_symbol_is_reported_once(self, lines, problem):
        used = a_job('run = "A"')
        found = problems_in(f"[symbols]\n{lines}\n{used}")

        assert found[0].startswith(problem)
        assert len(found) <= 2
        assert all(each.startswith("line 2: ") for each in found)


class TestSchedules:
    """[[schedules]] adds schedules to a job, with options of their own."""

    TEXT = """
    [[schedules]]
    name = "weekly-report"
    job = "report"
    run = "@weekly"
    args = { kind = "weekly" }
    single_instance = false
    """

    def test_a_schedule_of_a_job_in_the_file(self):
        _, declaration = declared_in(a_job() + dedent(self.TEXT))

        assert (declaration.name, declaration.job, declaration.target) == (
            "weekly-report",
            "report",
            None,
        )
        assert declaration.options.overlap is Overlap.ALLOW
        assert declaration.options.explicit == {"args", "overlap"}

    def test_a_schedule_of_a_job_in_code_by_any_of_its_names(self):
        registry = a_registry(
            declare("reports", code.report, options=options_by_name({"aliases": "report"}))
        )

        [declaration] = declared_in(self.TEXT, registry)

        assert declaration.job == "reports"

    @pytest.mark.parametrize(
        ("lines", "problem"),
        [
            ('name = "x"\nrun = "@daily"', "A schedule needs a job: add job = ..."),
            ('name = "x"\njob = 5\nrun = "@daily"', "A schedule needs a job"),
            ('job = "report"\nrun = "@daily"', "The name is missing"),
            ('name = "x"\njob = "report"', "A schedule needs a rule: add run = ..."),
            (
                'name = "x"\njob = "reprot"\nrun = "@daily"',
                "There is no job 'reprot', here or in code. Did you mean 'report'?",
            ),
            (
                'name = "report"\njob = "report"\nrun = "@daily"',
                "The name 'report' is already used",
            ),
            (
                'name = "x"\njob = "report"\nrun = "@daily"\nretries = 5',
                "Unknown key 'retries'.",
            ),
            (
                'name = "x"\njob = "report"\nrun = "@daily"\nargs = { knd = 1 }',
                "it takes no argument 'knd'",
            ),
        ],
    )
    def test_an_invalid_rule(self, lines, problem):
        [found] = problems_in(f"{a_job()}[[schedules]]\n{lines}")

        assert problem in found

    def test_if_the_job_is_invalid_only_that_is_reported(self):
        text = a_job('queue = 5\nname = "report"') + dedent(self.TEXT)

        assert [problem[:7] for problem in problems_in(text)] == ["line 3:"]

    def test_a_schedule_of_an_invalid_job_in_code(self):
        registry = a_registry(declare("report", f"{HERE}:reprot"))

        [problem] = problems_in(self.TEXT, registry)

        assert "has no 'reprot'" in problem


class TestShapes:
    """A file has four tables. Others are reported."""

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("[job]\nx = 1", "line 1: Unknown key 'job'. Did you mean 'jobs'?"),
            ("jbos = 5", "line 1: Unknown key 'jbos'. Did you mean 'jobs'?"),
            (
                "[jobs]\nclass = 'a:b'",
                "line 1: jobs must be a list of tables: write [[jobs]] above each.",
            ),
            ("jobs = [5]", "line 1: jobs must be tables, got 5."),
            ("symbols = 5", "line 1: symbols must be a table, got 5."),
            (
                "schedules = 'x'",
                "line 1: schedules must be a list of tables: write [[schedules]] above each.",
            ),
        ],
    )
    def test_wrong_shapes_are_reported(self, text, problem):
        assert problems_in(text) == [problem]

    def test_an_empty_file_declares_nothing(self):
        assert read_file("") == ([], {})

    def test_a_list_of_inline_tables_works_too(self):
        assert names_in(f'jobs = [{{ handler = "{HERE}:report" }}]') == ["report"]

    def test_the_place_of_a_job_is_its_header(self):
        first, second = declared_in(a_job() * 2)

        assert (first.place, second.place) == ("tickwork.toml:1", "tickwork.toml:4")


class TestAllProblems:
    """All problems are reported at once, in the order of their lines."""

    def test_five_mistakes(self):
        found = problems_in(
            f"""
            [[jobs]]
            class = "{HERE}:Exceute"
            run = "61 * * * *"

            [[jobs]]
            handler = "{HERE}:report"
            qeue = "mail"
            run = {{ minutes = "*/5", hours = "9-77" }}
            retries = "many"
            """
        )

        assert [problem.partition(":")[0] for problem in found] == [
            "line 2",
            "line 3",
            "line 7",
            "line 8",
            "line 9",
        ]

    def test_a_conflict_with_code_is_among_them(self):
        registry = a_registry(declare("report", code.report, place="shop.py:7"))

        first, second = problems_in(a_job("queue = 'x'") + a_job("priority = 'y'"), registry)

        assert first.startswith("line 1: The job 'report' has two different definitions.")
        assert "shop.py:7" in first
        assert "tickwork.toml:1" in first
        assert second.startswith("line 6: ")


VALUES = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-5, 10**6),
        st.floats(),
        st.sampled_from(["", "x", "5m", "skip", f"{HERE}:report", f"{HERE}:Neither", "@daily"]),
        st.dates(),
        st.times(),
        st.datetimes(),
    ),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(
            st.sampled_from(["max", "slots", "per", "by", "kind"]), values, max_size=3
        )
    ),
    max_leaves=5,
)
KEYS = [*_JOB_KEYS, *_SCHEDULE_KEYS, "unknown", "daily"]
TABLES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "jobs": st.lists(TABLES | VALUES, max_size=3) | VALUES,
            "schedules": st.lists(TABLES | VALUES, max_size=2) | VALUES,
            "symbols": st.dictionaries(st.sampled_from(["A", "EVERY_DAY"]), VALUES) | VALUES,
        },
    )
)
def test_any_file_is_declared_or_has_problems(content):
    document = Document("tickwork.toml", "")
    document.content = content

    found, *_ = read_declarations(
        document, registry=Registry(), symbols=SYMBOLS, calendars=NO_CALENDARS, timezone="UTC"
    )

    if not document.problem_count:
        registry = Registry()
        registry.add_all(found)
        registry.definitions()
