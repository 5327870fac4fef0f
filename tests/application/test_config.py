"""Jobs, schedules and settings from ``tickwork.toml``."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal

import pytest

from application import handlers_elsewhere as elsewhere
from tickwork import JobDefaults, RunStatus, Tickwork
from tickwork.errors import ConfigError, DuplicateDefinition, JobNotFound, StoreError
from tickwork.testing import ManualClock

HERE = "application.handlers_elsewhere"
Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def calls() -> list[tuple[str, object]]:
    elsewhere.CALLS.clear()
    return elsewhere.CALLS


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file into the folder of this test, which is the current one."""
    monkeypatch.chdir(tmp_path)

    def put(text: str, name: str = "tickwork.toml") -> Path:
        path = Path(name)
        path.write_text(dedent(text).lstrip("\n").replace("HERE", HERE), encoding="utf-8")
        return path

    return put


@pytest.fixture
def program(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes modules that can be imported while this test runs."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield write
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def problems_of(load: Callable[[], object]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load()
    return list(caught.value.faults)


class TestDeclaring:
    """A file declares jobs and schedules as code does."""

    def test_a_class_runs_when_it_is_due(self, app, clock, passes, write, calls):
        write("""
            [[jobs]]
            class = "HERE:Verdict"
            run = { minutes = "*/15", hours = "9-17", wday = "1-5" }
            single_instance = true
            max_running_time = 300
        """)

        clock.set(datetime(2026, 3, 2, 9, tzinfo=UTC))  # a Monday
        assert app.load_config() == ["Verdict"]
        app.run()
        clock.advance(minutes=14)
        assert passes(app) == 0
        clock.advance(minutes=1)

        assert passes(app) == 1
        assert calls == [("Verdict", True)]

    def test_a_job_without_a_run_is_only_dispatched(self, app, passes, write):
        app.load_config(
            write("""
            [[jobs]]
            handler = "HERE:report"
            args = { kind = "weekly" }
        """)
        )

        run = app.dispatch("report")
        passes(app)

        assert run.result() == "weekly"

    def test_the_same_class_with_two_rules(self, app, clock, passes, write, calls):
        app.load_config(
            write("""
            [[jobs]]
            handler = "HERE:report"
            run = { daily_at = "13:00" }

            [[jobs]]
            handler = "HERE:report"
            run = "EVERY_DAY"
            args = { kind = "nightly" }
        """)
        )
        clock.set(datetime(2026, 3, 2, 12, tzinfo=UTC))
        app.run()
        clock.advance(hours=1)
        passes(app)
        clock.advance(hours=13, minutes=10)
        passes(app)

        assert calls == [("report", "daily"), ("report", "nightly")]
        assert app.dispatch("report-2").read().job == "report-2"

    def test_a_further_schedule_of_a_job_in_code(self, app, clock, passes, write, calls):
        @app.job
        def digest(kind: str) -> None:
            elsewhere.CALLS.append(("digest", kind))

        app.load_config(
            write("""
            [[schedules]]
            name = "digest-hourly"
            job = "digest"
            run = "hourly"
            args = { kind = "short" }
        """)
        )
        app.run()
        clock.advance(hours=1)
        passes(app)

        assert calls == [("digest", "short")]

    def test_a_symbol_can_be_cron_text(self, app, write):
        app.load_config(write('[symbols]\nNIGHTLY = "30 3 * * *"\n'))

        [first] = app.schedule("report", lambda: None).symbol("NIGHTLY").preview(1)
        assert (first.hour, first.minute) == (3, 30)
        with pytest.raises(ConfigError, match="line 2: Invalid cron expression"):
            app.load_config(write('[symbols]\nNIGHT = "30 3 * *"\n'))

    def test_symbols_are_added_to_the_application(self, app, write):
        app.load_config(write("[symbols]\nNIGHTLY = { minutes = 30, hours = 3 }\n"))

        nightly = app.schedule("nightly", elsewhere.report).symbol("NIGHTLY")

        assert nightly.describe() == "at 03:30 (UTC)"

    def test_filters_and_hooks_by_path(self, app, passes, program):
        program(
            "def never(): return False\nLOG = []\ndef note(ctx): LOG.append(ctx.job)\n", "hooks.py"
        )
        app.load_config(
            program("""
            [[jobs]]
            name = "held"
            handler = "HERE:report"
            skip = "hooks:note"
            when = ["hooks:never"]

            [[jobs]]
            name = "noted"
            handler = "HERE:report"
            on_before = ["hooks:note"]
            on_after = "hooks:note"
        """)
        )

        held, noted = app.dispatch("held"), app.dispatch("noted")
        passes(app)

        assert held.status is RunStatus.PENDING
        assert noted.result() == "daily"
        assert sys.modules["hooks"].LOG == ["held", "noted", "noted"]

    def test_false_from_execute_is_a_failure(self, app, passes, write, monkeypatch):
        monkeypatch.setattr(elsewhere.Verdict, "answer", False)
        app.load_config(write('[[jobs]]\nclass = "HERE:Verdict"\n'))

        run = app.dispatch("Verdict")
        passes(app)

        assert run.status is RunStatus.FAILED_PERMANENT


class TestDuplicates:
    """An equal declaration is no error; a different one with the same name is."""

    TEXT = """
        [symbols]
        NIGHTLY = { minutes = 30, hours = 3 }

        [[jobs]]
        name = "report"
        handler = "HERE:report"
        run = "hourly"
        queue = "slow"
        concurrency = { slots = 3, per = "queue" }

        [[schedules]]
        name = "nightly-report"
        job = "report"
        run = "NIGHTLY"
    """

    def test_the_same_file_twice(self, app, write):
        path = write(self.TEXT)

        assert app.load_config(path) == app.load_config(path) == ["report", "nightly-report"]
        assert app.dispatch("report").read().queue == "slow"

    def test_an_equal_job_in_code(self, app, write):
        app.schedule("report", elsewhere.report).queue("slow").concurrency(3, per="queue").hourly()

        app.load_config(write(self.TEXT))

        assert app.dispatch("report").read().queue == "slow"

    def test_code_and_file_write_the_same_row(self, app, make_app, write, database):
        app.schedule("report", elsewhere.report).queue("slow").concurrency(3, per="queue").hourly()
        app.run()
        [before] = app._services.opened_store.get_schedules([("", "report")])
        other = make_app()
        other.load_config(write(self.TEXT))
        other.run()

        [after] = other._services.opened_store.get_schedules([("", "report")])

        assert (after.spec, after.revision) == (before.spec, before.revision)

    @pytest.mark.parametrize("is_first", [True, False])
    def test_a_different_job_in_code(self, app, write, is_first):
        path = write(self.TEXT)

        def define() -> None:
            app.job(name="report", queue="fast")(elsewhere.report)

        first, second = (define, lambda: app.load_config(path))
        if not is_first:
            first, second = second, first
        first()
        with pytest.raises(DuplicateDefinition, match=r"tickwork\.toml:4") as caught:
            second()

        assert any(
            "test_config.py:" in place for place in (caught.value.first, caught.value.second)
        )

    def test_a_different_limit_in_code(self, app, write):
        app.job(queue="slow", concurrency={"slots": 5, "per": "queue"})(elsewhere.report)

        with pytest.raises(DuplicateDefinition, match=r"tickwork\.toml:1 \(3\)"):
            app.load_config(
                write("""
                [[jobs]]
                class = "HERE:Verdict"
                queue = "slow"
                concurrency = { slots = 3, per = "queue" }
            """)
            )
        with pytest.raises(JobNotFound):
            app.dispatch("Verdict")


class TestProblems:
    """All problems are reported together, each with its line, and nothing is declared."""

    def test_five_mistakes(self, app, write):
        path = write("""
            [[jobs]]
            handler = "HERE:report"
            run = "@daily"

            [[jobs]]
            class = "HERE:Verdct"
            run = { minutes = "*/15", hours = "9-77" }

            [[jobs]]
            name = "report"
            class = "HERE:Verdict"
            run = "61 * * * *"
            max_runing_time = 300

            [symbols]
            NIGHTLY = { minutes = 30 }
        """)

        found = problems_of(lambda: app.load_config(path))

        assert [fault.partition(":")[0] for fault in found] == [
            *("line 6", "line 7", "line 10", "line 12", "line 13")
        ]
        assert "Did you mean 'Verdict'?" in found[0]
        assert "hour '9-77' is not in 0-23" in found[1]
        assert "The name 'report' is already used at line 1" in found[2]
        assert "minute (field 1) '61' is not in 0-59" in found[3]
        assert "Did you mean 'max_running_time'?" in found[4]
        assert "NIGHTLY" not in app.symbols
        with pytest.raises(JobNotFound):
            app.dispatch("report")

    def test_broken_syntax(self, app, write):
        assert problems_of(lambda: app.load_config(write("[[jobs]]\nclass = \n"))) == [
            "line 2: Invalid value."
        ]

    def test_the_message_has_the_file_and_all_problems(self, app, write):
        with pytest.raises(ConfigError) as caught:
            app.load_config(write("[[job]]\nx = 1\n", name="jobs.toml"))

        assert str(caught.value) == (
            "jobs.toml has 1 error.\n- line 1: Unknown key 'job'. Did you mean 'jobs'?"
        )

    def test_a_handler_that_imports_the_app_too_early(self, program):
        program("from tickwork import Tickwork\napp = Tickwork.from_config()\n", "shop.py")
        program(
            "from shop import app\nclass Cleanup:\n    def execute(self): ...\n", "shop_jobs.py"
        )
        program('[tickwork]\nurl = "memory://"\n[[jobs]]\nclass = "shop_jobs:Cleanup"\n')

        [fault] = problems_of(lambda: __import__("shop"))

        assert "Load the file after all imports" in fault

    def test_a_handler_that_imports_the_app_in_time(self, program):
        program(
            """
            from tickwork import Tickwork
            app = Tickwork(config="tickwork.toml")
            import shop_jobs
            app.load_config()
            """,
            "shop.py",
        )
        program(
            "from shop import app\nclass Cleanup:\n    def execute(self): ...\n", "shop_jobs.py"
        )
        program('[tickwork]\nurl = "memory://"\n[[jobs]]\nclass = "shop_jobs:Cleanup"\n')

        __import__("shop")

        assert list(sys.modules["shop"].app.registry.definitions()) == ["Cleanup"]


class TestSettings:
    """[tickwork] has the settings of an application; arguments and environment override it."""

    TEXT = """
        [tickwork]
        url = "memory://"
        timezone = "Europe/Berlin"
        handler_paths = ["application"]
        redact = ["kind"]
        retire_after = "2 days"

        [[jobs]]
        handler = "HERE:report"
        run = { daily_at = "13:00" }
    """

    @pytest.fixture(autouse=True)
    def plain_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("TICKWORK_URL", raising=False)

    def test_settings_and_jobs_at_once(self, write, calls):
        write(self.TEXT)
        clock = ManualClock(datetime(2026, 3, 2, 11, 30, tzinfo=UTC))

        with Tickwork.from_config(clock=clock) as app:
            app.run()
            clock.advance(minutes=30)  # 13:00 in Berlin
            app.run()

        assert calls == [("report", "daily")]
        assert app.settings.retire_after == timedelta(days=2)
        assert app.settings.handler_paths == ("application",)

    def test_settings_first_and_jobs_later(self, write):
        app = Tickwork(config=write(self.TEXT, name="jobs.toml"))

        assert app.settings.timezone == "Europe/Berlin"
        assert not app.registry.definitions()
        assert app.load_config() == ["report"]

    def test_arguments_override_the_environment_and_the_file(self, write, monkeypatch):
        write(self.TEXT)
        monkeypatch.setenv("TICKWORK_URL", "sqlite:///environment.db")
        monkeypatch.setenv("TICKWORK_TIMEZONE", "Asia/Tokyo")

        app = Tickwork.from_config(url="sqlite:///argument.db")

        assert app.settings.url == "sqlite:///argument.db"
        assert app.settings.timezone == "Asia/Tokyo"
        assert app.settings.redact == ("kind",)
        assert app.load_config() == ["report"]

    def test_handler_paths_default_to_the_package_that_creates_the_app(self, program):
        program(
            "from tickwork import Tickwork\napp = Tickwork.from_config(url='memory://')\n",
            "shop.py",
        )
        program("")

        app = __import__("shop").app

        assert app.settings.handler_paths == ("shop",)

    def test_settings_that_differ_from_the_application_are_problems(self, write):
        path = write(self.TEXT)
        app = Tickwork("memory://", handler_paths=["application"], redact=["kind"])

        found = problems_of(lambda: app.load_config(path))

        assert [fault.partition(" cannot be changed")[0] for fault in found] == [
            "line 3: timezone",
            "line 6: retire_after",
        ]

    def test_problems_of_settings_and_jobs_are_reported_together(self, write):
        path = write("""
            [tickwork]
            timezone = "Europe/Berln"
            url = "memory://"

            [[jobs]]
            handler = "HERE:reprot"
        """)

        found = problems_of(lambda: Tickwork.from_config(path))

        assert [fault.partition(":")[0] for fault in found] == ["line 2", "line 6"]
        assert len(problems_of(lambda: Tickwork(config=path))) == 1

    def test_a_missing_file(self, write):
        [fault] = problems_of(lambda: Tickwork.from_config("nothing.toml"))

        assert fault == "The file cannot be read: No such file or directory."


# ---------------------------------------------------------------- three ways to define a job

Say = Callable[[Any], Any]
OPTIONS: list[tuple[str, Say, dict[str, Any]]] = [
    ('queue = "slow"', lambda job: job.queue("slow"), {"queue": "slow"}),
    ("priority = 5", lambda job: job.priority(5), {"priority": 5}),
    ("concurrency = 3", lambda job: job.concurrency(3), {"concurrency": 3}),
    (
        'concurrency = [3, { slots = 1, per = "kind" }]',
        lambda job: job.concurrency(3).concurrency(1, per="kind"),
        {"concurrency": [3, {"slots": 1, "per": "kind"}]},
    ),
    ('rate = "100/minute"', lambda job: job.rate(100, per="minute"), {"rate": "100/minute"}),
    (
        'rate = [{ count = 5, per = "1h", by = "kind" }, { count = 1, per = 2, by = "queue" }]',
        lambda job: job.rate(5, per="hour", by="kind").rate(1, per="2s", by="queue"),
        {"rate": [{"count": 5, "per": 3600, "by": ("kind",)}, {"count": "1/2s", "by": "queue"}]},
    ),
    ('lease = "90s"', lambda job: job.lease(90), {"lease": 90}),
    ("timeout = 300", lambda job: job.timeout("5m"), {"timeout": 300}),
    ("max_running_time = 300", lambda job: job.timeout(300), {"timeout": 300}),
    ("attempts = 5", lambda job: job.attempts(5), {"attempts": 5}),
    (
        'attempts = 5\ndelays = ["10s", "1m"]',
        lambda job: job.delays(["10s", "1m"]).attempts(5),
        {"attempts": 5, "delays": ["10s", "1m"]},
    ),
    (
        'attempts = 5\nretry_on = ["ConnectionError", "tickwork.errors:StoreError"]',
        lambda job: job.attempts(5).retry_on(ConnectionError, StoreError),
        {"attempts": 5, "retry_on": (ConnectionError, StoreError)},
    ),
    (
        'attempts = 5\ndont_retry_on = "ValueError"',
        lambda job: job.attempts(5).dont_retry_on(ValueError),
        {"attempts": 5, "dont_retry_on": ValueError},
    ),
    (
        'retries = { max = 5, base = 2, cap = "1h", jitter = "none" }',
        lambda job: job.retries(max=5, base=2, cap="1h", jitter=None),
        {"retries": {"max": 5, "base": 2, "cap": "1h", "jitter": "none"}},
    ),
    (
        "retries = { max = 3, delay = 10 }",
        lambda job: job.retries(max=3, delay=10),
        {"retries": {"max": 3, "delay": 10}},
    ),
    ('history = "7d"', lambda job: job.history("7d"), {"history": "7d"}),
    ('history = "forever"', lambda job: job.history(None), {"history": None}),
    ('results = "1d"', lambda job: job.results("1d"), {"results": "1d"}),
    ('keep = "failures"', lambda job: job.keep("failures"), {"keep": "failures"}),
    ("crashes = 5", lambda job: job.crashes(5), {"crashes": 5}),
    ("unique = true", lambda job: job.unique(), {"unique": True}),
    (
        'unique = { by = ["kind"], within = "1h" }',
        lambda job: job.unique(by="kind", within=3600),
        {"unique": {"by": "kind", "within": 3600}},
    ),
    ('expires = "1h"', lambda job: job.expires(3600), {"expires": "1h"}),
    ('overlap = "queue_one"', lambda job: job.overlap("queue_one"), {"overlap": "queue_one"}),
    ("single_instance = true", lambda job: job.overlap("skip"), {"overlap": "skip"}),
    ("single_instance = false", lambda job: job.overlap("allow"), {"overlap": "allow"}),
    ('misfire = "all"', lambda job: job.misfire("all"), {"misfire": "all"}),
    (
        'misfire = { policy = "skip", grace = 5 }',
        lambda job: job.misfire("skip", grace=5),
        {"misfire": {"policy": "skip", "grace": 5}},
    ),
    ("jitter = 30", lambda job: job.jitter("30s"), {"jitter": 30}),
    ('args = { kind = "x" }', lambda job: job.args(kind="x"), {"args": {"kind": "x"}}),
    ('tags = ["a", "b"]', lambda job: job.tags("a", "b"), {"tags": ["a", "b"]}),
    ('aliases = ["old"]', lambda job: job.aliases("old"), {"aliases": ["old"]}),
    (f'when = "{HERE}:report"', lambda job: job.when(elsewhere.report), {"when": elsewhere.report}),
    (f'skip = "{HERE}:report"', lambda job: job.skip(elsewhere.report), {"skip": elsewhere.report}),
    *(
        (
            f'{hook} = "{HERE}:report"',
            lambda job, hook=hook: getattr(job, hook)(elsewhere.report),
            {hook: elsewhere.report},
        )
        for hook in ("on_before", "on_success", "on_error", "on_after")
    ),
]


class TestDefaults:
    """``[defaults]`` has options for all jobs, in the file and in code."""

    TEXT = """
        [tickwork]
        url = "memory://"

        [defaults]
        attempts = 3
        timeout = "5m"
        retry_on = ["ConnectionError"]

        [[jobs]]
        name = "it"
        handler = "HERE:report"
        timeout = 10
    """

    def test_they_apply_to_all_jobs(self, write):
        app = Tickwork.from_config(write(self.TEXT))
        app.schedule("code", lambda: None)

        specs = {name: app.registry.get(name).spec for name in ("it", "code")}
        assert {name: spec.attempts_max for name, spec in specs.items()} == {"it": 3, "code": 3}
        assert specs["it"].timeout == timedelta(seconds=10)
        assert specs["code"].timeout == timedelta(minutes=5)
        assert app.registry.get("code").options.retry_errors.only == (ConnectionError,)

    def test_arguments_override_them_one_by_one(self, write):
        app = Tickwork(config=write(self.TEXT), defaults=JobDefaults(attempts=5))

        assert dict(app.defaults.values_set) == {
            "attempts": 5,
            "timeout": "5m",
            "retry_on": [ConnectionError],
        }

    def test_a_file_that_is_loaded_later_cannot_change_them(self, write):
        path = write(self.TEXT)
        app = Tickwork("memory://")

        [problem] = problems_of(lambda: app.load_config(path))
        assert problem.startswith("line 4: The defaults cannot be changed")
        Tickwork(config=path).load_config(path)

    def test_problems_have_their_lines(self, write):
        path = write("""
            [defaults]
            atempts = 3
            timeout = 0
            unique = true
        """)

        for load in (lambda: Tickwork(config=path), lambda: Tickwork.from_config(path)):
            first, second, third = problems_of(load)
            assert first.startswith("line 2: Unknown key 'atempts'. Did you mean 'attempts'?")
            assert second.startswith("line 3: timeout must be longer than 0s")
            assert third.startswith("line 4: Unknown key 'unique'")


class TestOneSpec:
    """A file, the builder and the decorator make equal specs."""

    @pytest.mark.parametrize(
        ("text", "build", "options"), OPTIONS, ids=[text for text, *_ in OPTIONS]
    )
    def test_all_three_make_equal_specs(self, write, text, build, options):
        apps = [Tickwork("memory://", handler_paths=["application"]) for _ in range(3)]
        by_file, by_builder, by_decorator = apps

        by_file.load_config(write(f'[[jobs]]\nname = "job"\nhandler = "HERE:report"\n{text}\n'))
        build(by_builder.schedule("job", elsewhere.report))
        by_decorator.job(name="job", **options)(elsewhere.report)

        first, second, third = (app.registry.get("job") for app in apps)
        assert first.spec == second.spec == third.spec
        assert first.options == second.options == third.options
        assert first.handler == second.handler == third.handler


class TestTypedArguments:
    """Arguments of a file become what the annotations of the handler say."""

    def test_tables_and_texts_are_rebuilt(self, tmp_path):
        seen = []

        @dataclass
        class Mail:
            to: str
            kind: Literal["plain", "html"] = "plain"

        def send(mail: Mail, folder: Path, pause: timedelta, day: date) -> None:
            seen.append((mail, folder, pause, day))

        send.__annotations__.update(mail=Mail)
        file = tmp_path / "tickwork.toml"
        file.write_text(
            """
            [[schedules]]
            name = "daily"
            job = "send"
            run = "@daily"
            args = { mail = { to = "ann" }, folder = "out", pause = "5m", day = 2026-03-01 }
            """
        )
        with Tickwork("memory://") as app:
            app.job(send)
            app.load_config(file)
            app.run()
            app.schedules.run_now("daily")
            app.run()

        assert seen == [
            (Mail("ann"), Path("out"), timedelta(minutes=5), date(2026, 3, 1)),
        ]

    def test_those_of_a_table_of_jobs_are_rebuilt_too(self, program):
        program(
            """
            from dataclasses import dataclass
            from datetime import timedelta

            @dataclass
            class Mail:
                to: str
                kind: str = "plain"

            def send(mail: Mail, pause: timedelta) -> str:
                return f"{mail} {pause}"
            """,
            "letters.py",
        )
        file = program("""
            [[jobs]]
            handler = "letters:send"
            run = "@daily"
            args = { mail = { to = "ann" }, pause = "5m" }
        """)
        with Tickwork("memory://") as app:
            [name] = app.load_config(file)
            app.run()
            run = app.schedules.run_now(name)
            app.run()

            assert run.result() == "Mail(to='ann', kind='plain') 0:05:00"

    def test_one_that_does_not_fit_is_reported_at_its_line(self, tmp_path):
        def send(count: int) -> None: ...

        file = tmp_path / "tickwork.toml"
        file.write_text(
            '[[schedules]]\nname = "daily"\njob = "send"\nrun = "@daily"\nargs = { count = "7" }\n'
        )
        with Tickwork("memory://") as app:
            app.job(send)
            with pytest.raises(ConfigError, match=r"(?s)line 5.*count must be int, got str"):
                app.load_config(file)
