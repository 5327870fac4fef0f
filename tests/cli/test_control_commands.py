"""Commands that change something: dispatch, retry, cancel, pause, resume, prune, unlock."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from application.conftest import DATABASES
from cli.conftest import Cli, a_worker, as_time, claimed, newest
from tickwork import RunStatus, Tickwork


@pytest.fixture(params=DATABASES[:1])  # the methods that they call are tested on each database
def database(request):
    return str(request.param)


@dataclass
class Order:
    sku: str
    count: int = 1


class TestDispatch:
    """``dispatch`` creates a run."""

    def test_arguments_by_name(self, app, cli):
        found = cli.json("dispatch", "report", "kind=weekly")

        run = app.get_run(found["run"]["id"]).read()
        assert json.loads(run.args) == {"kind": "weekly"}
        assert found["is_new"]
        assert cli.text("dispatch", "report").rstrip().endswith("UTC.")

    @pytest.mark.parametrize(
        ("arguments", "args"),
        [
            (["n=3"], {"n": 3}),
            (["n=3.5", "on=true", "nothing=null"], {"n": 3.5, "on": True, "nothing": None}),
            (["n=[1, 2]"], {"n": [1, 2]}),
            (["n=hello world"], {"n": "hello world"}),
            (['n="3"'], {"n": "3"}),
            (["n=a=b"], {"n": "a=b"}),
            (['{"n": {"deep": 1}}'], {"n": {"deep": 1}}),
            (['{"n": 1}', "m=2"], {"n": 1, "m": 2}),
        ],
    )
    def test_a_value_that_is_valid_json_is_read_as_json(self, app, cli, arguments, args):
        app.schedule("takes_any", lambda **_: None)

        found = cli.json("dispatch", "takes_any", *arguments)

        assert found["run"]["args"] == args

    def test_values_become_what_the_annotations_say(self, app, cli):
        seen = []

        def typed(order: Order, price: Decimal, folder: Path, at: datetime, note: str) -> None:
            seen.append((order, price, folder, at, note))

        app.job(typed)
        cli(
            *("dispatch", "typed", '{"order": {"sku": "a"}}', "price=1.50", "folder=out"),
            *("at=2026-03-01T09:00:00Z", "note=null"),
        )
        app.run()

        at = datetime(2026, 3, 1, 9, tzinfo=UTC)
        assert seen == [(Order("a", count=1), Decimal("1.50"), Path("out"), at, "null")]

    def test_a_value_that_does_not_fit_is_refused(self, app, cli):
        done = cli("dispatch", "breaks", "n=many", code=1)

        assert "n must be int, got str" in done.stderr

    def test_a_parameter_of_type_str_receives_text(self, app, cli):
        found = cli.json("dispatch", "send_email", "to=42")

        assert found["run"]["args"]["to"] == "42"

    def test_options(self, app, cli, monkeypatch):
        monkeypatch.setattr("tickwork.cli.parameters.SystemClock", lambda: app.clock)
        options = ["--queue", "slow", "--priority", "3", "--tag", "a", "--tag", "b"]
        options += ["--tenant", "acme", "--target", "42", "--expires", "1h", "--delay", "10m"]

        run = cli.json("dispatch", "report", *options)["run"]

        assert (run["queue"], run["priority"], run["tags"]) == ("slow", 3, ["a", "b"])
        assert (run["tenant"], run["target"]) == ("acme", "42")
        assert as_time(run["due_at"]) == app.clock.now() + timedelta(minutes=10)
        run = cli.json("dispatch", "report", "--at", "2030-03-01T09:00+01:00")["run"]
        assert run["due_at"] == "2030-03-01T08:00:00+00:00"

    def test_a_unique_key_returns_the_earlier_run(self, cli):
        first = cli.json("dispatch", "report", "--unique", "one", "--delay", "1h")
        second = cli.json("dispatch", "report", "--unique", "one")

        assert (first["is_new"], second["is_new"]) == (True, False)
        assert first["run"]["id"] == second["run"]["id"]
        assert "No new run" in cli.text("dispatch", "report", "--unique", "one")

    def test_a_debounced_dispatch_replaces_the_run_that_waits(self, cli):
        first = cli.json("dispatch", "report", "--debounce", "1h")
        second = cli.json("dispatch", "report", "--debounce", "2h")

        assert (first["is_new"], first["is_replaced"]) == (True, False)
        assert (second["is_new"], second["is_replaced"]) == (False, True)
        assert first["run"]["id"] == second["run"]["id"]
        assert first["run"]["due_at"] < second["run"]["due_at"]
        shown = cli.text("dispatch", "report", "--debounce", "1h")
        assert "waited and got these arguments; it is due in" in shown

    def test_wait_prints_the_result_or_the_error(self, tmp_path):
        app = Tickwork(f"sqlite:///{tmp_path}/waits.db")

        @app.job
        def answers() -> int:
            return 42

        @app.job
        def fails() -> None:
            raise ValueError("no")

        with app, app.running():
            done = Cli(app)("dispatch", "answers", "--wait", "--timeout", "20s")
            assert done.stdout.splitlines()[-1] == "42"
            failed = Cli(app)("dispatch", "fails", "--wait", code=1)
            assert "ValueError: no" in failed.stdout

    def test_a_wait_that_times_out_exits_with_5(self, cli):
        done = cli("dispatch", "report", "--delay", "1h", "--wait", "--timeout", "0.05", code=5)

        assert "did not finish within" in done.stderr

    def test_a_remote_job(self, app, cli):
        found = cli.json("dispatch", "elsewhere", "--remote", "n=3", "--queue", "far")

        assert (found["run"]["job"], found["run"]["queue"]) == ("elsewhere", "far")

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (["send_emial", "to=ann"], 3, "Did you mean 'send_email'?"),
            (["send_email"], 1, "'to' is missing"),
            (["send_email", "to=a", "cc=b"], 1, "it takes no argument 'cc'"),
            (["send_email", "ann"], 2, "is not an argument. Write KEY=VALUE"),
            (["send_email", "{to: ann}"], 2, "is not valid JSON"),
            (["send_email", "to=a", "to=b"], 2, "'to' is given twice"),
            (["report", "--delay", "soon"], 2, "is not a length of time"),
            (["report", "--delay", "1m", "--at", "2h"], 2, "Use --delay or --at, not both."),
            (["report", "--at", "tomorrow"], 2, "is not a time"),
            (["report", "--priority", "99999"], 1, "priority must be between"),
            (["report", "--bogus"], 2, "No such option"),
            ([], 2, "Missing argument"),
        ],
    )
    def test_invalid_arguments(self, cli, arguments, code, message):
        done = cli("dispatch", *arguments, code=code)

        assert message in done.stderr
        assert "Traceback" not in done.output


class TestRetry:
    """``retry`` repeats finished runs, each once."""

    def test_one_run_by_the_first_characters_of_its_id(self, seeded, cli):
        old = newest(seeded, RunStatus.FAILED_PERMANENT)

        found = cli.json("retry", old[:13])

        [again] = found["retried"]
        assert again["run"] == old
        assert seeded.get_run(again["new"]).read().retry_of == old

    def test_runs_selected_by_options(self, app, cli):
        for number in range(5):
            app.dispatch("breaks", n=number)
        app.run()

        assert len(cli.json("retry", "--job", "breaks")["retried"]) == 5
        app.run()
        # The five new failures are retried. The five retried before are left out.
        found = cli.json("retry", "--job", "breaks")
        assert len(found["retried"]) == 5
        assert found["left_out"] == 5

    def test_a_second_retry_repeats_nothing(self, seeded, cli):
        assert len(cli.json("retry", "--job", "breaks")["retried"]) == 1
        assert cli.json("retry", "--job", "breaks")["retried"] == []
        assert "1 left out: retried before." in cli.text("retry", "--job", "breaks", "--yes")

    def test_runs_selected_by_options_need_a_confirmation(self, seeded, cli):
        done = cli("retry", "--job", "breaks", code=2)

        assert "Retry 1 run? Confirm with --yes." in done.stderr
        assert "1 run retried." in cli.text("retry", "--job", "breaks", "--yes")

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            ([], 2, "No runs selected."),
            (["0123", "--job", "breaks"], 2, "not both"),
            (["--status", "running"], 2, "--status must be one of"),
            (["0123abcd"], 3, "There is no run"),
        ],
    )
    def test_invalid_arguments(self, seeded, cli, arguments, code, message):
        assert message in cli("retry", *arguments, code=code).stderr

    def test_an_unfinished_run_is_rejected(self, seeded, cli):
        done = cli("retry", newest(seeded, RunStatus.PENDING), code=1)

        assert "cannot be run again: it is pending" in done.stdout


class TestCancel:
    """``cancel`` cancels unfinished runs."""

    def test_one_run(self, seeded, cli):
        run = newest(seeded, RunStatus.PENDING)

        assert cli.json("cancel", run, "--reason", "wrong")["canceled"] == [run]
        assert seeded.get_run(run).read().reason == "wrong"

    def test_a_running_run_is_requested_to_stop(self, app, cli):
        run = app.dispatch("report")
        claimed(app, a_worker(app))

        cli("cancel", run.id)

        assert run.read().cancel_requested_at is not None

    def test_runs_selected_by_options(self, app, cli):
        for _ in range(7):
            app.dispatch("report")
        app.dispatch("breaks")

        assert len(cli.json("cancel", "--job", "report")["canceled"]) == 7
        assert cli.json("cancel", "--job", "report")["canceled"] == []

    def test_a_finished_run_is_rejected(self, seeded, cli):
        done = cli("cancel", newest(seeded, RunStatus.COMPLETED), code=1)

        assert "has already finished" in done.stdout


class TestPauses:
    """``pause`` and ``resume`` of queues, jobs and schedules."""

    @pytest.mark.parametrize("kind", ["queue", "job", "schedule"])
    def test_pause_and_resume(self, seeded, cli, kind):
        name = {"queue": "emails", "job": "report", "schedule": "nightly"}[kind]

        paused = cli.json("pause", f"--{kind}", name, "--note", "moving")
        assert (paused["kind"], paused["name"], paused["is_paused"]) == (kind, name, True)
        resumed = cli.json("resume", f"--{kind}", name)
        assert not resumed["is_paused"]
        assert "was not paused" in cli("resume", f"--{kind}", name, code=1).stdout

    def test_pause_until_a_time(self, seeded, cli, monkeypatch):
        monkeypatch.setattr("tickwork.cli.parameters.SystemClock", lambda: seeded.clock)
        found = cli.json("pause", "--schedule", "nightly", "--until", "2h")

        assert as_time(found["until"]) == seeded.clock.now() + timedelta(hours=2)

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            ([], 2, "exactly one of"),
            (["--queue", "a", "--job", "b"], 2, "exactly one of"),
            (["--job", "send_emial"], 3, "Did you mean 'send_email'?"),
            (["--schedule", "nightyl"], 3, "Did you mean 'nightly'?"),
        ],
    )
    def test_invalid_arguments(self, seeded, cli, arguments, code, message):
        assert message in cli("pause", *arguments, code=code).stderr


class TestPrune:
    """``prune`` deletes old rows."""

    def test_old_runs_are_deleted(self, seeded, cli, clock):
        assert cli.json("prune")["runs"] == 0
        clock.advance(days=40)

        assert cli.json("prune", "--days", "30")["runs"] == 4
        assert "finished runs     0" in cli.text("prune")

    def test_orphans_are_canceled_only_with_the_option(self, app, cli, clock):
        lost = app.remote("gone").dispatch()
        mine = app.dispatch("report")
        clock.advance(days=40)

        cli("prune")
        assert lost.read().status is RunStatus.PENDING
        assert cli.json("prune", "--orphans")["orphans"] == 1
        assert lost.read().status is RunStatus.CANCELED
        assert lost.read().reason.startswith("orphan")
        assert mine.status is RunStatus.PENDING

    def test_a_recent_orphan_is_kept(self, app, cli):
        lost = app.remote("gone").dispatch()

        assert cli.json("prune", "--orphans")["orphans"] == 0
        assert lost.status is RunStatus.PENDING


class TestCollectAndUnlock:
    """``collect`` runs what is due; ``unlock`` releases locks."""

    def test_collect_prints_its_attempts(self, app, cli):
        app.dispatch("report")
        assert cli.json("collect") == {"attempts": 1, "failures": 0}

        app.dispatch("breaks")
        done = cli("collect", code=1)
        assert "1 attempt failed." in done.stderr

    def test_a_lock_is_released_once(self, app, cli):
        with app.lock("nightly"):
            assert cli.json("unlock", "nightly") == {"name": "nightly", "was_held": True}
            cli("unlock", "nightly", code=1)

    def test_the_error_names_the_command_that_releases_the_lock(self, app, cli):
        with app.lock("tickwork work"):
            done = cli("collect", "--exclusive", code=1)

        assert "tickwork unlock 'tickwork work'" in done.stderr

    @pytest.mark.parametrize("command", ["work", "collect"])
    def test_work_and_collect_exclude_each_other(self, app, cli, command):
        """Both commands have the same lock."""
        with app.lock("tickwork work"):
            done = cli(command, "--exclusive", code=1)

        assert "is held by" in done.stderr


class TestAudit:
    """Every change by a command is in the audit log, with the user of the machine."""

    def entries(self, app):
        return [(each.action, each.subject) for each in app.audit.list()]

    def test_one_entry_for_each_command(self, app, cli, monkeypatch):
        monkeypatch.setenv("LOGNAME", "ann")
        app.run()
        run = cli.json("dispatch", "report", "kind=weekly")["run"]["id"]
        cli("cancel", run, "--reason", "wrong")
        cli("retry", run)
        cli("pause", "--job", "report", "--note", "bug 7")
        cli("resume", "--job", "report")
        cli("pause", "--schedule", "nightly")
        cli("prune")
        cli("unlock", "import", code=1)

        # In no order: ids of one instant are in the order of their creation for one process only.
        assert sorted(self.entries(app)) == sorted(
            [
                ("run.dispatch", "job/report"),
                ("run.cancel", f"run/{run}"),
                ("run.retry", f"run/{run}"),
                ("job.pause", "job/report"),
                ("job.resume", "job/report"),
                ("schedule.pause", "schedule/nightly"),
                ("history.prune", "history"),
                ("lock.release", "lock/import"),
            ]
        )
        assert {each.actor for each in app.audit.list()} == {"ann"}
        assert all("command line on" in each.source for each in app.audit.list())
        details = {each.action: json.loads(each.detail) for each in app.audit.list()}
        assert details["run.dispatch"]["args"] == ["kind"]  # values may be secret
        assert details["job.pause"] == {"note": "bug 7"}

    def test_many_runs_are_one_entry(self, app, cli):
        ids = [app.dispatch("report").id for _ in range(3)]
        cli("cancel", *ids)

        [entry] = app.audit.list()
        assert entry.action == "run.cancel"
        assert entry.subject.startswith("bulk/")
        assert json.loads(entry.detail) == {"total": 3, "runs": ids}

    def test_a_change_that_fails_is_in_it_with_its_error(self, app, cli):
        cli("pause", "--job", "typo", code=3)

        assert sorted(self.entries(app)) == [
            ("job.pause", "job/typo"),
            ("job.pause.failed", "job/typo"),
        ]

    def test_pausing_a_queue_of_which_nothing_is_known_asks_back(self, app, cli):
        done = cli("pause", "--queue", "emials", code=2)
        assert "Nothing is known of a queue 'emials'" in done.output
        assert app.pauses() == []

        cli("pause", "--queue", "emials", "--yes")
        assert [pause.name for pause in app.pauses()] == ["emials"]
