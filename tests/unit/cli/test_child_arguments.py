"""Each option of ``work`` reaches its child processes, or belongs to the supervisor."""

from datetime import timedelta
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tickwork import Tickwork
from tickwork._worker.options import WorkerOptions
from tickwork.cli.commands import CommandContext
from tickwork.cli.work import OF_SUPERVISOR, child_arguments, work_command

NAMES = [str(option.name) for option in work_command.params]

VALUES: dict[str, Any] = {  # other than the defaults
    "queues": ("a", "b c"),
    "threads": 3,
    "coroutines": 4,
    "children": 5,
    "handovers": 6,
    "drain": timedelta(minutes=1, seconds=30),
    "max_missed": 7,
    "max_runs": 8,
    "max_memory": 9_000_000,
    "wait": timedelta(seconds=2.5),
    "verbose": True,
    "log_format": "json",
}


def parse(arguments: list[str]) -> dict[str, Any]:
    return dict(work_command.make_context("work", [*arguments], obj=CommandContext()).params)


class TestChildArguments:
    def test_every_option_is_passed_on_or_belongs_to_the_supervisor(self):
        assert set(NAMES) == VALUES.keys() | OF_SUPERVISOR
        assert OF_SUPERVISOR.isdisjoint(VALUES)

    @pytest.mark.parametrize("name", VALUES)
    def test_a_child_process_gets_the_value(self, name):
        defaults = parse([])
        given = {**defaults, name: VALUES[name]}

        assert VALUES[name] != defaults[name]
        assert parse(child_arguments(work_command, given)) == given

    def test_all_at_once(self):
        given = {**parse([]), **VALUES}

        assert parse(child_arguments(work_command, given)) == given

    def test_options_of_the_supervisor_are_not_passed_on(self):
        defaults = parse([])
        own = ["--processes", "3", "--reload", "--exclusive", "--http", ":1", "--ui", ":2"]
        arguments = child_arguments(work_command, parse(own))

        assert parse(own) != defaults
        assert parse(arguments) == defaults

    def test_a_new_option_is_passed_on(self):
        added = click.Command("work", params=[*work_command.params, click.Option(["--new"])])

        assert child_arguments(added, {**parse([]), "new": "x"})[-2:] == ["--new", "x"]

    @pytest.mark.parametrize(("own", "count"), [(["--processes", "2"], 2), (["--reload"], 1)])
    def test_the_supervisor_starts_its_child_processes_with_them(self, own, count, monkeypatch):
        started: list[list[str]] = []

        def supervise(_: Tickwork, arguments: list[list[str]], **__: Any) -> int:
            started.extend(arguments)
            return 0

        monkeypatch.setattr("tickwork.cli.supervisor.supervise", supervise)
        arguments = child_arguments(work_command, {**parse([]), **VALUES})
        context = CommandContext()
        context._app = Tickwork("memory://")
        with pytest.raises(SystemExit):
            work_command.main([*own, *arguments], obj=context)

        assert started == [["work", *arguments]] * count


# The options of ``work`` that are options of a worker.
WORKER_FIELDS = {
    "--slots": "threads",
    "--coroutines": "coroutines",
    "--children": "children",
    "--handovers": "handovers",
    "--max-missed": "missed_max",
    "--max-runs": "runs_max",
    "--max-memory": "memory_max",
}


class TestWorkerOptions:
    """Each number reaches the worker as it was given, also the smallest one."""

    @pytest.fixture
    def work(self, monkeypatch):
        """Calls the command with a worker that is not started, and returns its options."""
        started: list[WorkerOptions] = []
        monkeypatch.setattr(
            "tickwork.cli.work._work", lambda _, options, *__: started.append(options)
        )
        monkeypatch.setattr("tickwork.cli.commands.configure_log", lambda _: None)

        def work(*arguments: str) -> WorkerOptions:
            with Tickwork("memory://") as app:
                done = CliRunner().invoke(
                    work_command, arguments, obj=CommandContext(app=app), catch_exceptions=False
                )
            assert done.exit_code == 0, done.output
            return started.pop()

        return work

    @pytest.mark.parametrize("number", [1, 2, 7])
    @pytest.mark.parametrize(("option", "field"), [*WORKER_FIELDS.items()])
    def test_a_number_is_passed_on(self, work, option, field, number):
        assert getattr(work(option, str(number)), field) == number

    def test_without_options_it_has_the_defaults(self, work):
        assert work() == WorkerOptions()

    @pytest.mark.parametrize("option", ["--max-missed", "--max-runs"])
    def test_a_limit_of_zero_is_refused(self, option):
        with pytest.raises(click.UsageError):
            parse([option, "0"])
