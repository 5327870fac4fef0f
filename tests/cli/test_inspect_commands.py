"""``status``, ``runs``, ``inspect``, ``next`` and ``doctor``, on each database."""

import json
from datetime import timedelta

import pytest

from cli.conftest import Cli, a_worker, as_time, claimed, newest
from tickwork import RunContext, RunStatus, Tickwork
from tickwork.testing import ManualClock


class TestStatus:
    """``status`` shows jobs, runs, workers and pauses."""

    def test_an_empty_database(self, cli):
        text = cli.text("status")

        assert "none unfinished" in text
        assert "No worker is running. Start one: tickwork work" in text

    def test_a_job_has_its_last_and_next_run_and_its_failures(self, seeded, cli):
        found = cli.json("status")

        jobs = {job["name"]: job for job in found["jobs"]}
        assert set(jobs) == {"send_email", "breaks", "report"}
        assert (jobs["send_email"]["queue"], jobs["send_email"]["priority"]) == ("emails", 10)
        assert jobs["breaks"]["failures"] == 1
        assert jobs["breaks"]["last_error"].startswith("RuntimeError: it broke 3 times")
        assert as_time(jobs["report"]["next_due_at"]) <= as_time(found["now"])
        assert jobs["report"]["when"] == [
            "nightly: at 02:30 (Europe/Berlin)",
            "tick: every minute (UTC)",
        ]
        assert "nightly: at 02:30" in " ".join(cli.text("status").split())
        assert found["runs"]["waiting"] == 2
        assert (found["defined"], found["running"], found["idle"]) == (3, 0, 3)

    def test_the_tables(self, seeded, cli):
        a_worker(seeded)
        seeded.pause(queue="emails", note="the provider is down")
        lines = cli.text("status").splitlines()

        head = next(line for line in lines if line.startswith("JOB"))
        row = next(line for line in lines if line.startswith("send_email"))
        assert head.split() == [
            *("JOB", "QUEUE", "PRIORITY", "SCHEDULE", "LAST", "RUN", "NEXT", "RUN", "RUNNING"),
            *("LEASE", "ENDS", "FAILURES", "SEEN", "ERROR"),
        ]
        assert row.split()[:3] == ["send_email", "emails", "10"]
        assert row[head.index("LAST RUN") :].startswith("5m ago")
        assert any("web-1" in line and "4711" in line for line in lines)
        assert any(line.startswith("queue") and "provider" in line for line in lines)

    def test_a_schedule_that_did_not_fire_is_overdue(self, app, cli, clock):
        app.run()
        clock.advance(minutes=3)

        assert "overdue 2m" in cli.text("status")

    def test_a_job_with_many_schedules_shows_five_of_them(self, app, cli):
        for number in range(9):
            every = f"{number + 1}h"
            app.schedules.register("", f"one more {number}", app.clock.now(), every, "breaks")

        [job] = [job for job in cli.json("status")["jobs"] if job["name"] == "breaks"]
        assert len(job["when"]) == 6
        assert job["when"][-1] == "and 4 more"

    def test_running_runs_are_counted_with_their_earliest_lease(self, app, cli):
        worker = a_worker(app)
        app.dispatch("report")
        claimed(app, worker)

        [job] = [job for job in cli.json("status")["jobs"] if job["name"] == "report"]
        assert job["running"] == 1
        assert as_time(job["lease_until"]) == app.clock.now() + timedelta(seconds=60)

    def test_a_worker_that_stopped_reporting_is_silent(self, app, cli):
        a_worker(app, silent_for=timedelta(minutes=2))

        assert cli.json("status")["workers"][0]["is_silent"]
        assert "2m ago (silent)" in cli.text("status")

    def test_jobs_of_other_programs_are_shown(self, seeded, other_app):
        names = [job["name"] for job in Cli(other_app).json("status")["jobs"]]

        assert names == ["breaks", "report", "send_email"]


class TestRuns:
    """``runs`` lists runs."""

    def test_the_newest_come_first(self, seeded, cli):
        found = cli.json("runs")

        assert [run["status"] for run in found["runs"]] == [
            "canceled",
            "pending",
            "completed",
            "failed_permanent",
            "failed",
            "completed",
        ]
        assert found["cursor"] is None

    def test_the_table(self, seeded, cli):
        head, *rows = cli.text("runs").splitlines()

        assert head.split() == ["ID", "JOB", "STATUS", "DUE", "DURATION", "ATTEMPTS", "DETAILS"]
        assert len(rows) == 6
        assert "RuntimeError: it broke 3 times" in rows[3]
        assert "and more" not in rows[3]

    @pytest.mark.parametrize(
        ("options", "count"),
        [
            (["--job", "report"], 3),
            (["--queue", "emails"], 2),
            (["--status", "failed"], 1),
            (["--status", "failed", "--status", "canceled"], 2),
            (["--since", "1h"], 6),
            (["--tenant", "acme"], 0),
            (["--tag", "nope"], 0),
            (["--schedule", "nightly"], 0),
            (["-n", "2"], 2),
        ],
    )
    def test_filters(self, seeded, cli, options, count, monkeypatch):
        monkeypatch.setattr("tickwork.cli.parameters.SystemClock", lambda: seeded.clock)
        assert len(cli.json("runs", *options)["runs"]) == count

    def test_since_and_before_take_durations(self, seeded, cli, monkeypatch):
        monkeypatch.setattr("tickwork.cli.parameters.SystemClock", lambda: seeded.clock)
        assert cli.json("runs", "--since", "1m")["runs"] == []
        assert len(cli.json("runs", "--before", "1m")["runs"]) == 6

    def test_pages(self, seeded, cli):
        first = cli.json("runs", "-n", "4")
        second = cli.json("runs", "-n", "4", "--after", first["cursor"])

        ids = [run["id"] for run in first["runs"] + second["runs"]]
        assert ids == [run["id"] for run in cli.json("runs")["runs"]]
        assert second["cursor"] is None

    def test_a_search_states_how_far_it_went(self, seeded, cli, monkeypatch):
        found = cli.json("runs", "--text", "it BROKE")
        assert {run["job"] for run in found["runs"]} == {"breaks"}
        assert found["searched_since"] is None
        monkeypatch.setattr("tickwork._inspect.run_search.SEARCHED_MAX", 1)
        cursor = cli.json("runs", "--arg", "nothing=1")["cursor"]
        assert f"To search older runs, add --after {cursor}" in cli.text(
            "runs", "--arg", "nothing=1"
        )

    def test_an_argument_has_a_name_and_a_value(self, cli):
        assert "customer=42" in cli("runs", "--arg", "customer", code=1).stderr
        assert "--follow" in cli("runs", "--arg", "a=1", "--follow", code=2).stderr

    def test_an_invalid_cursor(self, cli):
        done = cli("runs", "--after", "xyz", code=2)

        assert "cursor" in done.stderr

    def test_secrets_are_masked(self, seeded, cli):
        text = cli("runs", "--json").stdout
        run = newest(seeded, RunStatus.FAILED)
        details = cli("inspect", run).stdout

        assert "card-4711" not in text + details
        seeded.dispatch("send_email", to="ann", card="card-5555")
        assert "card-5555" not in cli("runs", "--json").stdout + cli("runs").stdout
        assert '"card": "***"' in cli("runs", "--json").stdout


class TestInspect:
    """``inspect`` shows one run."""

    def test_a_run_that_waits_for_its_retry(self, seeded, cli):
        run = newest(seeded, RunStatus.FAILED)

        found = cli.json("inspect", run[:13])

        assert found["run"]["id"] == run
        assert found["run"]["args"] == {"to": "unknown"}
        assert [attempt["outcome"] for attempt in found["attempts"]] == ["failed"]
        assert "no such address" in found["attempts"][0]["traceback"]
        assert {"retrying", "no_worker"} & {cause["why"] for cause in found["causes"]}

    def test_the_timeline(self, seeded, cli):
        text = cli.text("inspect", newest(seeded, RunStatus.FAILED_PERMANENT))

        assert "Timeline" in text
        assert "created" in text
        assert "failed_permanent" in text
        assert "Traceback of attempt 1" in text
        assert "RuntimeError: it broke 3 times" in text

    def test_the_result_of_a_completed_run(self, seeded, cli):
        run = newest(seeded, RunStatus.COMPLETED)

        assert cli.json("inspect", run)["run"]["result"] == {"kind": "weekly"}
        assert 'result:   {"kind": "weekly"}' in cli.text("inspect", run)

    def test_the_steps_of_a_run(self, app, cli, clock):
        @app.job
        def trial(ctx: RunContext) -> None:
            ctx.step("create account", lambda: {"id": 7})
            ctx.sleep("3d")
            ctx.sleep("2h")

        run = trial.dispatch()
        app.run()
        clock.advance(days=3)
        app.run()

        steps = cli.json("inspect", run.id)["steps"]
        assert [(step["name"], step["state"], step["value"]) for step in steps] == [
            ("create account", "done", {"id": 7}),
            ("sleep:3d", "done", None),
            ("sleep:2h", "open", None),
        ]
        text = cli.text("inspect", run.id)
        assert "Steps" in text
        assert '{"id": 7}' in text
        assert "suspended" in text

    def test_captured_log_lines(self, app, cli):
        import logging

        @app.job
        def talks() -> None:
            logging.getLogger("shop").warning("here we are")

        run = talks.dispatch()
        app.run()

        assert cli.json("inspect", run.id)["log"][0]["message"] == "here we are"
        assert "here we are" in cli.text("inspect", run.id)

    def test_an_unknown_id(self, cli):
        done = cli("inspect", "0123abcd", code=3)

        assert done.stderr.startswith("Error: There is no run 0123abcd.")
        assert "Traceback" not in done.output

    def test_an_ambiguous_id(self, seeded, cli):
        done = cli("inspect", newest(seeded, RunStatus.FAILED)[:6], code=3)

        assert "is ambiguous" in done.stderr
        assert newest(seeded, RunStatus.FAILED) in done.stderr

    @pytest.mark.parametrize("odd", ["nonsense!", "%", "' OR 1=1", "0" * 40, "-"])
    def test_text_that_is_not_an_id(self, cli, odd):
        cli("inspect", "--", odd, code=3)

    def test_errors_as_json(self, cli):
        done = cli("inspect", "0123abcd", "--json", code=3)

        assert json.loads(done.stderr)["error"]["code"] == "run-not-found"
        assert done.stdout == ""


class TestNext:
    """``next`` lists the next firings, in order, in two time zones."""

    def test_firings_are_in_order(self, seeded, cli):
        found = cli.json("next", "-n", "100")
        firings = found["firings"]

        moments = [as_time(firing["at"]) for firing in firings]
        assert moments == sorted(moments)
        assert len(moments) == 99
        assert [run["job"] for run in found["runs"]] == ["report"]
        assert {firing["schedule"] for firing in firings} == {"tick", "nightly"}

    def test_firings_of_one_schedule_or_job(self, seeded, cli):
        found = cli.json("next", "--schedule", "nightly", "-n", "3")["firings"]

        assert [firing["zone"] for firing in found] == ["Europe/Berlin"] * 3
        assert cli.json("next", "--job", "breaks")["firings"] == []

    def test_a_schedule_that_is_not_in_the_database_is_marked(self, cli):
        assert not any(firing["is_written"] for firing in cli.json("next")["firings"])
        text = cli.text("next", "--schedule", "nightly", "-n", "1")
        assert "nightly *" in text
        assert "02:30:00 CE" in text
        assert "Not in the database yet" in text

    def test_firings_until_a_time(self, seeded, cli, monkeypatch):
        monkeypatch.setattr("tickwork.cli.parameters.SystemClock", lambda: seeded.clock)
        found = cli.json("next", "--until", "3m", "-n", "1000")["firings"]

        assert 3 <= len(found) <= 9

    def test_paused_schedules_are_counted_and_not_listed(self, seeded, cli):
        seeded.schedules.pause("tick")
        seeded.schedules.pause("nightly")

        assert cli.json("next")["firings"] == []
        assert "Schedules not listed: 2 paused." in cli.text("next")

    def test_delayed_runs_and_retries_are_listed_in_order(self, cli, app, clock, monkeypatch):
        monkeypatch.setattr("tickwork.cli.parameters.SystemClock", lambda: clock)
        retried = app.dispatch("send_email", to="unknown").id
        app.run()
        tenant = app.draft.tenant("acme").delay("30m")
        delayed = tenant.dispatch("send_email", to="ann").id
        app.delay("40d").dispatch("send_email", to="bob")

        found = cli.json("next", "--until", "1h", "-n", "1000")
        runs = [(each["run"], each["kind"], each["tenant"]) for each in found["runs"]]
        assert runs == [(retried, "retry", ""), (delayed, "delayed", "acme")]
        assert found["firings"]
        lines = cli.text("next", "--until", "1h", "-n", "1000").splitlines()
        [place] = [number for number, line in enumerate(lines) if "(delayed run of acme)" in line]
        at = as_time(found["runs"][1]["at"])
        others = [*found["firings"], found["runs"][0]]
        before = sum(as_time(each["at"]) <= at for each in others)
        assert place == before + 1  # below the heading

    def test_a_run_is_found_behind_many_of_another_job(self, cli, app):
        app.draft.delay("1h").dispatch_many("send_email", [{"to": str(n)} for n in range(30)])
        late = app.delay("2h").dispatch("breaks").id

        found = cli.json("next", "--job", "breaks", "-n", "5")
        assert [each["run"] for each in found["runs"]] == [late]
        assert cli.json("next", "--schedule", "nightly")["runs"] == []

    def test_the_limit_counts_firings_and_runs(self, cli, app):
        app.draft.delay("1s").dispatch_many("send_email", [{"to": str(n)} for n in range(5)])

        found = cli.json("next", "-n", "3")
        assert (len(found["firings"]), len(found["runs"])) == (0, 3)
        assert len(cli.json("next", "-n", "7")["firings"]) == 2

    def test_an_unknown_schedule(self, seeded, cli):
        done = cli("next", "--schedule", "nightyl", code=3)

        assert "Did you mean 'nightly'?" in done.stderr


class TestMissingTables:
    """On a server, the tables are created by ``tickwork install``."""

    def test_the_error_names_the_command_that_creates_them(self, postgres_url):
        with Tickwork(postgres_url) as app:
            cli = Cli(app)
            assert "Run `tickwork install`" in cli("status", code=4).stderr
            [check] = cli.json("doctor", code=1)["checks"]
            assert (check["name"], check["level"]) == ("schema", "bad")

            assert cli.json("install")["before"] == 0

            assert cli.json("status")["jobs"] == []


class TestDoctor:
    """``doctor`` runs health checks."""

    def test_everything_is_healthy(self, app, cli):
        app.run()
        a_worker(app)

        found = cli.json("doctor")

        assert found["is_well"]
        assert {check["level"] for check in found["checks"]} == {"ok"}
        assert "Healthy." in cli.text("doctor")

    @staticmethod
    def levels(cli: Cli, *, code: int = 1) -> dict[str, str]:
        found = cli.json("doctor", code=code)
        return {check["name"]: check["level"] for check in found["checks"]}

    def test_no_worker_is_up(self, app, cli):
        app.run()

        assert self.levels(cli)["workers"] == "bad"

    def test_a_worker_is_silent(self, app, cli):
        a_worker(app)
        a_worker(app, silent_for=timedelta(minutes=2))

        assert self.levels(cli, code=0)["workers"] == "warn"
        cli("doctor", "--strict", code=1)

    def test_workers_of_another_version(self, app, cli):
        a_worker(app, version="0.0.9")

        text = cli.text("doctor")
        assert "0.0.9" in text
        assert "Healthy, with 1 warning." in text

    def test_workers_with_other_time_zone_data(self, app, cli):
        a_worker(app, version="0.1.0 tz/1999z")

        assert self.levels(cli, code=0)["time zones"] == "warn"
        [worker] = cli.json("status")["workers"]
        assert (worker["version"], worker["zones"]) == ("0.1.0", "1999z")

    def test_an_expired_lease_that_was_not_reaped(self, app: Tickwork, cli, clock: ManualClock):
        app.dispatch("report")
        claimed(app, a_worker(app))
        clock.advance(minutes=5)

        assert self.levels(cli)["leases"] == "bad"

    def test_a_backlog(self, app, cli, clock):
        app.dispatch("report")
        clock.advance(minutes=1)
        a_worker(app)
        assert self.levels(cli, code=0)["backlog"] == "warn"

        clock.advance(hours=1)
        a_worker(app)
        assert self.levels(cli)["backlog"] == "bad"

    def test_an_event_that_woke_no_run(self, app, cli, clock):
        services = app._services
        event = services.emitter.build("paid", key="1", data=None, tenant="")
        services.store.emit(event)  # as in a transaction of a program, which has committed
        a_worker(app)
        assert self.levels(cli, code=0)["events"] == "ok"

        clock.advance(minutes=2)
        a_worker(app)
        assert self.levels(cli, code=0)["events"] == "warn"
        assert "An event was emitted 2m ago" in cli.text("doctor")

    def test_runs_of_a_job_that_no_worker_knows(self, app, cli):
        app.remote("elsewhere").dispatch()
        a_worker(app)

        assert self.levels(cli, code=0)["known jobs"] == "warn"

    def test_an_overdue_schedule(self, app, cli, clock):
        app.run()
        clock.advance(minutes=5)
        a_worker(app)

        assert self.levels(cli)["schedules"] == "bad"

    def test_a_job_that_keeps_failing(self, app, cli):
        for _ in range(3):
            app.dispatch("breaks")
        app.run()
        a_worker(app)

        assert self.levels(cli, code=0)["jobs"] == "warn"
        assert "breaks (3 in a row)" in cli.text("doctor")


class TestAlerts:
    """``alerts`` lists what needs a person, and what ended."""

    def test_begin_duration_and_cause(self, cli, app, clock):
        app.pause(queue="emails", note="moving")
        found = {each["name"]: each for each in cli.json("alerts")["alerts"]}
        assert found["paused/queue/emails"]["text"] == "The queue emails is paused. moving"
        assert "No worker is running." in cli.text("alerts")

        clock.advance(minutes=5)
        app.resume(queue="emails")
        text = " ".join(cli.text("alerts").split())
        assert "Ended" in text
        assert "5m The queue emails is paused. moving" in text
        ended = {each["name"]: each for each in cli.json("alerts")["ended"]}
        assert ended["paused/queue/emails"]["duration"] == 300

    def test_pages(self, cli, app):
        for number in range(3):
            app.pause(queue=f"q{number}")
        cli.json("alerts")
        for number in range(3):
            app.resume(queue=f"q{number}")

        first = cli.json("alerts", "-n", "2")
        second = cli.json("alerts", "-n", "2", "--cursor", first["cursor"])
        assert (len(first["ended"]), len(second["ended"])) == (2, 1)
        assert "not the cursor of a page" in cli("alerts", "--cursor", "x", code=2).stderr
