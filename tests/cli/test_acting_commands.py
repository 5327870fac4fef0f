"""Commands that change something: dispatch, retry, cancel, pause, resume, prune, locks."""

import json
from datetime import timedelta

import pytest

from application.conftest import DATABASES
from cli.conftest import Cli, a_worker, as_time, claimed, newest
from tickwork import RunStatus, Tickwork


@pytest.fixture(params=DATABASES[:1])  # the verbs below them are tested on each database
def database(request):
    return str(request.param)


class TestDispatch:
    """A run, from a terminal."""

    def test_arguments_by_name(self, app, cli):
        found = cli.json("dispatch", "report", "kind=weekly")

        run = app.get_run(found["run"]["id"]).read()
        assert json.loads(run.args) == {"kind": "weekly"}
        assert found["is_new"]
        assert cli.text("dispatch", "report").rstrip().endswith("UTC.")

    @pytest.mark.parametrize(
        ("words", "args"),
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
    def test_values_are_json_where_they_can_be(self, app, cli, words, args):
        app.schedule("takes_any", lambda **_: None)

        found = cli.json("dispatch", "takes_any", *words)

        assert found["run"]["args"] == args

    def test_a_parameter_that_takes_a_text_gets_one(self, app, cli):
        found = cli.json("dispatch", "send_email", "to=42")

        assert found["run"]["args"]["to"] == "42"

    def test_when_and_how(self, app, cli, monkeypatch):
        monkeypatch.setattr("tickwork.cli.commands.SystemClock", lambda: app.clock)
        words = ["--queue", "slow", "--priority", "3", "--tag", "a", "--tag", "b"]
        words += ["--tenant", "acme", "--target", "42", "--expires", "1h", "--delay", "10m"]

        run = cli.json("dispatch", "report", *words)["run"]

        assert (run["queue"], run["priority"], run["tags"]) == ("slow", 3, ["a", "b"])
        assert (run["tenant"], run["target"]) == ("acme", "42")
        assert as_time(run["due_at"]) == app.clock.now() + timedelta(minutes=10)
        run = cli.json("dispatch", "report", "--at", "2030-03-01T09:00+01:00")["run"]
        assert run["due_at"] == "2030-03-01T08:00:00+00:00"

    def test_a_unique_key_gives_the_earlier_run(self, cli):
        first = cli.json("dispatch", "report", "--unique", "one", "--delay", "1h")
        second = cli.json("dispatch", "report", "--unique", "one")

        assert (first["is_new"], second["is_new"]) == (True, False)
        assert first["run"]["id"] == second["run"]["id"]
        assert "There is one already" in cli.text("dispatch", "report", "--unique", "one")

    def test_waiting_says_how_it_ended(self, tmp_path):
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

    def test_waiting_too_long_ends_with_5(self, cli):
        done = cli("dispatch", "report", "--delay", "1h", "--wait", "--timeout", "0.05", code=5)

        assert "did not finish within" in done.stderr

    def test_a_job_of_another_program(self, app, cli):
        found = cli.json("dispatch", "elsewhere", "--remote", "n=3", "--queue", "far")

        assert (found["run"]["job"], found["run"]["queue"]) == ("elsewhere", "far")

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["send_emial", "to=ann"], 3, "Did you mean 'send_email'?"),
            (["send_email"], 1, "'to' is missing"),
            (["send_email", "to=a", "cc=b"], 1, "it takes no argument 'cc'"),
            (["send_email", "ann"], 2, "is no argument. Write it as KEY=VALUE"),
            (["send_email", "{to: ann}"], 2, "is no JSON"),
            (["send_email", "to=a", "to=b"], 2, "'to' is given twice"),
            (["report", "--delay", "soon"], 2, "is not a length of time"),
            (["report", "--delay", "1m", "--at", "2h"], 2, "both say when"),
            (["report", "--at", "tomorrow"], 2, "is no time"),
            (["report", "--priority", "99999"], 1, "priority must be between"),
            (["report", "--bogus"], 2, "No such option"),
            ([], 2, "Missing argument"),
        ],
    )
    def test_wrong_words(self, cli, words, code, said):
        done = cli("dispatch", *words, code=code)

        assert said in done.stderr
        assert "Traceback" not in done.output


class TestRetry:
    """Finished runs again, each once."""

    def test_one_by_the_beginning_of_its_id(self, seeded, cli):
        old = newest(seeded, RunStatus.FAILED_PERMANENT)

        found = cli.json("retry", old[:13])

        [again] = found["retried"]
        assert again["run"] == old
        assert seeded.get_run(again["new"]).read().retry_of == old

    def test_many_by_what_they_have_in_common(self, app, cli):
        for number in range(5):
            app.dispatch("breaks", n=number)
        app.run()

        assert len(cli.json("retry", "--job", "breaks")["retried"]) == 5
        app.run()
        # The five that failed again are run again; what was, is not.
        found = cli.json("retry", "--job", "breaks")
        assert len(found["retried"]) == 5
        assert found["left_out"] == 5

    def test_whoever_asks_twice_gets_nothing_twice(self, seeded, cli):
        assert len(cli.json("retry", "--job", "breaks")["retried"]) == 1
        assert cli.json("retry", "--job", "breaks")["retried"] == []
        assert "had been run again before" in cli.text("retry", "--job", "breaks", "--yes")

    def test_many_are_asked_about(self, seeded, cli):
        done = cli("retry", "--job", "breaks", code=2)

        assert "Run again 1 runs? Say --yes." in done.stderr
        assert "1 run run again." in cli.text("retry", "--job", "breaks", "--yes")

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            ([], 2, "Which runs?"),
            (["0123", "--job", "breaks"], 2, "not both"),
            (["--status", "running"], 2, "cannot be here"),
            (["0123abcd"], 3, "There is no run"),
        ],
    )
    def test_wrong_words(self, seeded, cli, words, code, said):
        assert said in cli("retry", *words, code=code).stderr

    def test_what_has_not_finished_cannot_be_run_again(self, seeded, cli):
        done = cli("retry", newest(seeded, RunStatus.PENDING), code=1)

        assert "cannot be run again: it is pending" in done.stdout


class TestCancel:
    """Runs that shall not run."""

    def test_one(self, seeded, cli):
        run = newest(seeded, RunStatus.PENDING)

        assert cli.json("cancel", run, "--reason", "wrong")["canceled"] == [run]
        assert seeded.get_run(run).read().reason == "wrong"

    def test_one_that_runs_is_asked_to_stop(self, app, cli):
        run = app.dispatch("report")
        claimed(app, a_worker(app))

        cli("cancel", run.id)

        assert run.read().cancel_requested_at is not None

    def test_many(self, app, cli):
        for _ in range(7):
            app.dispatch("report")
        app.dispatch("breaks")

        assert len(cli.json("cancel", "--job", "report")["canceled"]) == 7
        assert cli.json("cancel", "--job", "report")["canceled"] == []

    def test_one_that_ended(self, seeded, cli):
        done = cli("cancel", newest(seeded, RunStatus.COMPLETED), code=1)

        assert "has ended already" in done.stdout


class TestPauses:
    """Queues, jobs and schedules, stopped and let go on."""

    @pytest.mark.parametrize("kind", ["queue", "job", "schedule"])
    def test_there_and_back(self, seeded, cli, kind):
        name = {"queue": "emails", "job": "report", "schedule": "nightly"}[kind]

        paused = cli.json("pause", f"--{kind}", name, "--note", "moving")
        assert (paused["kind"], paused["name"], paused["is_paused"]) == (kind, name, True)
        resumed = cli.json("resume", f"--{kind}", name)
        assert not resumed["is_paused"]
        assert "was not paused" in cli("resume", f"--{kind}", name, code=1).stdout

    def test_until(self, seeded, cli, monkeypatch):
        monkeypatch.setattr("tickwork.cli.commands.SystemClock", lambda: seeded.clock)
        found = cli.json("pause", "--schedule", "nightly", "--until", "2h")

        assert as_time(found["until"]) == seeded.clock.now() + timedelta(hours=2)

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            ([], 2, "Name one thing"),
            (["--queue", "a", "--job", "b"], 2, "Name one thing"),
            (["--job", "send_emial"], 3, "Did you mean 'send_email'?"),
            (["--schedule", "nightyl"], 3, "Did you mean 'nightly'?"),
        ],
    )
    def test_wrong_words(self, seeded, cli, words, code, said):
        assert said in cli("pause", *words, code=code).stderr


class TestPrune:
    """Old rows, and what nobody has any more."""

    def test_what_is_old(self, seeded, cli, clock):
        assert cli.json("prune")["runs"] == 0
        clock.advance(days=40)

        assert cli.json("prune", "--days", "30")["runs"] == 4
        assert "finished runs  0" in cli.text("prune")

    def test_orphans_only_when_asked(self, app, cli, clock):
        lost = app.remote("gone").dispatch()
        mine = app.dispatch("report")
        clock.advance(days=40)

        cli("prune")
        assert lost.read().status is RunStatus.PENDING
        assert cli.json("prune", "--orphans")["orphans"] == 1
        assert lost.read().status is RunStatus.CANCELED
        assert lost.read().reason.startswith("orphan")
        assert mine.status is RunStatus.PENDING

    def test_an_orphan_must_be_old(self, app, cli):
        lost = app.remote("gone").dispatch()

        assert cli.json("prune", "--orphans")["orphans"] == 0
        assert lost.status is RunStatus.PENDING


class TestCollectAndUnlock:
    """What works here and now, and what it leaves behind."""

    def test_collect_says_what_it_did(self, app, cli):
        app.dispatch("report")
        assert cli.json("collect") == {"attempts": 1, "failures": 0}

        app.dispatch("breaks")
        done = cli("collect", code=1)
        assert "1 attempts failed" in done.stderr

    def test_a_lock_is_freed_once(self, app, cli):
        with app.lock("nightly"):
            assert cli.json("unlock", "nightly") == {"name": "nightly", "was_held": True}
            cli("unlock", "nightly", code=1)

    def test_the_error_says_how_to_free_it(self, app, cli):
        with app.lock("tickwork collect"):
            done = cli("collect", "--exclusive", code=1)

        assert "tickwork unlock 'tickwork collect'" in done.stderr
