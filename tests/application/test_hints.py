"""What a message says when a program does something that is easy to get wrong."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from tickwork import RetryLater, RunContext, ScheduleDefinition, Tickwork
from tickwork.alerts import Email
from tickwork.errors import (
    ArgumentError,
    DuplicateDefinition,
    FolderMissing,
    InvalidOption,
    JobNotFound,
)

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"


@pytest.fixture
def app():
    with Tickwork("memory://") as app:
        yield app


class TestSchedules:
    """Errors about a schedule are about the schedule, not about its job."""

    def test_a_schedule_with_the_name_of_its_job_needs_a_name_of_its_own(self, app):
        @app.job
        def tick() -> None: ...

        with pytest.raises(
            DuplicateDefinition, match="A schedule needs a name of its own"
        ) as raised:
            app.schedule("tick", tick).hourly()

        assert "'tick' is the name of a job" in raised.value.what
        assert "app.schedule('tick daily', job)" in raised.value.fix

    @pytest.mark.parametrize("args", [{"tos": "ann"}, {}])
    def test_wrong_arguments_of_a_schedule_name_the_schedule(self, app, args):
        @app.job
        def send(to: str) -> None: ...

        app.schedule("daily mail", send).daily().args(**args)

        with pytest.raises(ArgumentError, match="the schedule 'daily mail' of the job 'send'"):
            app.run()

    def test_wrong_arguments_of_a_created_schedule_name_the_schedule(self, app):
        @app.job
        def send(to: str) -> None: ...

        with pytest.raises(ArgumentError, match="the schedule 'weekly mail' of the job 'send'"):
            app.schedules.create(
                ScheduleDefinition(
                    name="weekly mail", job="send", rule="0 9 * * 1", args={"tos": "ann"}
                )
            )


class TestHandlers:
    """An error says what a handler lacks, and how to add it."""

    def test_a_lambda_needs_a_name(self, app):
        with pytest.raises(InvalidOption, match="a lambda has none"):
            app.job(lambda: 1)
        assert app.job(name="one")(lambda: 1).name == "one"

    def test_a_context_without_annotation_hints_at_run_context(self, app):
        @app.job
        def report(ctx) -> None: ...

        with pytest.raises(ArgumentError, match="ctx: RunContext"):
            report.dispatch()

    def test_a_missing_argument_that_is_annotated_hints_at_no_context(self, app):
        @app.job
        def report(ctx: str) -> None: ...

        with pytest.raises(ArgumentError) as raised:
            report.dispatch()
        assert "RunContext" not in str(raised.value)

    def test_the_context_can_come_first(self, app):
        @app.job
        def pages(ctx: RunContext, source: str) -> str:
            return f"{ctx.job} {source}"

        run = pages.dispatch("example.org")
        app.run()

        assert run.result() == "pages example.org"

    def test_a_class_that_needs_constructor_arguments_hints_at_construct(self, app):
        class Send:
            def __init__(self, connection: object) -> None: ...

            def handle(self) -> None: ...

        run = app.schedule("send", Send).dispatch()
        app.run()

        assert "cannot be created without arguments" in run.read().reason
        assert "app.construct = container.get" in run.read().reason

    def test_a_type_error_inside_a_constructor_is_not_about_its_arguments(self, app):
        class Send:
            def __init__(self) -> None:
                raise TypeError("no connection")

            def handle(self) -> None: ...

        run = app.schedule("send", Send).dispatch()
        app.run()

        assert run.read().reason == "TypeError: no connection"


def test_retry_later_keeps_its_cause_as_the_reason(app):
    @app.job
    def send() -> None:
        raise RetryLater("1h") from ConnectionError("the server is away")

    run = send.dispatch()
    app.run()

    assert run.read().reason == "RetryLater: ConnectionError: the server is away"


def test_a_reason_of_retry_later_is_kept_as_it_is(app):
    @app.job
    def send() -> None:
        raise RetryLater("1h", "busy") from ConnectionError("the server is away")

    run = send.dispatch()
    app.run()

    assert run.read().reason == "RetryLater: busy"


def test_a_missing_folder_of_sqlite_is_named(tmp_path):
    with (
        Tickwork(f"sqlite:///{tmp_path}/jobs/jobs.db", install=True) as app,
        pytest.raises(FolderMissing) as raised,
    ):
        app.run()

    assert str(tmp_path / "jobs") in raised.value.why
    assert "Create the folder" in raised.value.fix


def test_dispatching_a_function_by_a_name_mentions_adhoc(app):
    with pytest.raises(JobNotFound, match=r"app\.adhoc\('process-9', function\)"):
        app.dispatch("process-9", lambda: None)
    with pytest.raises(JobNotFound) as raised:
        app.dispatch("process-9")
    assert "adhoc" not in str(raised.value)


class TestQueues:
    """``queues`` declares the queues of an application: a misspelled one is noticed."""

    @pytest.fixture
    def app(self):
        with Tickwork("memory://", queues=["default", "emails"]) as app:
            yield app

    def test_an_unknown_queue_of_a_job_is_warned_about(self, app, caplog):
        app.schedule("send", lambda: None).queue("emial").dispatch()

        assert "'emial' is not one of the application's queues: default, emails" in caplog.text
        assert "Did you mean 'emails'?" in caplog.text

    def test_an_unknown_queue_of_a_dispatch_is_warned_about_once(self, app, caplog):
        send = app.schedule("send", lambda: None)

        for _ in range(3):
            send.job.queue("slow").dispatch()

        assert caplog.text.count("'slow' is not one of") == 1

    def test_an_unknown_queue_of_a_worker_is_warned_about(self, app, caplog):
        with app.running(queues=("emials",)):
            assert "Did you mean 'emails'?" in caplog.text

    def test_an_unknown_queue_of_a_pause_is_warned_about(self, app, caplog):
        app.pause(queue="emials")

        assert "Did you mean 'emails'?" in caplog.text

    def test_a_declared_queue_is_not_warned_about(self, app, caplog):
        send = app.schedule("send", lambda: None)
        send.job.queue("emails").dispatch()

        assert "is not one of" not in caplog.text

    def test_without_a_declaration_every_queue_is_known(self, caplog):
        with Tickwork("memory://") as app:
            app.schedule("send", lambda: None).job.queue("slow").dispatch()

        assert "is not one of" not in caplog.text


class TestDefaultUrl:
    """Without a URL, the program says which file it creates."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("TICKWORK_URL", raising=False)

    def test_the_new_file_is_named_once(self, tmp_path, caplog):
        for _ in range(2):
            with Tickwork() as app:
                app.run()

        path = str(tmp_path / "tickwork.db")
        assert (
            caplog.messages.count(f"No URL is configured, so the database is the new file {path}.")
            == 1
        )

    def test_a_configured_url_is_not_named(self, caplog):
        with Tickwork("sqlite:///tickwork.db", install=True) as app:
            app.run()

        assert "No URL" not in caplog.text


class TestCompletion:
    """Completion offers what users need, and not what tickwork uses itself."""

    def test_of_an_application(self, app):
        offered = {name for name in dir(app) if not name.startswith("__")}

        assert not {name for name in offered if name.startswith("_")}
        assert {"job", "schedule", "dispatch", "alerts"} <= offered
        # What is neither a method nor a property: each of them is in a guide.
        attributes = {name for name in offered if not hasattr(type(app), name)}
        assert attributes == {"codec", "construct", "engine_options", "settings", "symbols"}

    def test_of_a_context(self, app):
        @app.job
        def names(ctx: RunContext) -> list[str]:
            return [name for name in dir(ctx) if not name.startswith("__")]

        run = names.dispatch()
        app.run()
        page = (GUIDE / "jobs.md").read_text(encoding="utf-8")
        table = page[page.index("| member | meaning |") :].partition("\n\n")[0]

        for name in run.result():
            assert re.search(rf"`{name}\b", table), name


def test_the_guide_lists_every_argument_of_email():
    page = (GUIDE / "alerts.md").read_text(encoding="utf-8")
    table = page[page.index("### Arguments of Email") :].partition("###")[2].partition("###")[0]

    assert set(re.findall(r"`(\w+)`(?=[^|]*\| )", table)) >= {each.name for each in fields(Email)}
