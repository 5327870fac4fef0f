"""Rules and definitions: preview, simulate, show; and settings, install, init."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from application.conftest import DATABASES
from cli.conftest import Cli
from tickwork import Tickwork
from tickwork.cli.main import cli as command


@pytest.fixture(params=DATABASES[:1])  # nothing here is about databases
def database(request):
    return str(request.param)


GAP = "1 time is in the gap: fires once, at 03:00:00 CEST."
FOLD = "1 time is in the repeated period: fires once, at the first time."


def invoke(*arguments, code=0, env=None):
    done = CliRunner().invoke(
        command, arguments, prog_name="tickwork", catch_exceptions=False, env=env or {}
    )
    assert done.exit_code == code, done.output
    return done


def preview(*arguments):
    return json.loads(invoke("preview", *arguments, "--json").stdout)


class TestPreview:
    """``preview`` explains a rule, without an application."""

    @pytest.mark.parametrize(
        ("rule", "description"),
        [
            ("*/5 9-17 * * MON-FRI", "every 5 minutes during hours 9 to 17 on Monday to Friday"),
            ("*/10 * * * * *", "every 10 seconds"),
            ("@daily", "at 00:00"),
            ("EVERY_WEEK", "at 06:20 on Monday"),
            ("hourly", "every hour"),
            ("minutes=*/15 hours=9-17 wday=1-5", "every 15 minutes during hours 9 to 17 on Monday"),
            ("daily_at('13:00').weekdays()", "at 13:00 on Monday to Friday"),
            (".every_five_minutes().hours(range(9, 18))", "every 5 minutes during hours 9 to 17"),
            ("schedules.weekly_on(1, '8:00')", "at 08:00 on Monday"),
            ("every(minutes=15)", "every 15m"),
            ("daily().hours([9, 12])", "at 09:00 and 12:00"),
        ],
    )
    def test_descriptions(self, rule, description):
        found = preview(rule)

        assert found["description"].startswith(description)
        assert len(found["instants"]) == 10
        assert found["instants"] == sorted(found["instants"])

    def test_clock_changes(self):
        options = ["--timezone", "Europe/Berlin", "--after", "2026-01-01T00:00+01:00"]

        fixed = preview("30 2 * * *", *options)["notes"]
        berlin = "clocks in Europe/Berlin go"
        assert fixed == [
            f"2026-03-29: {berlin} forward from 02:00 to 03:00; {GAP}",
            f"2026-10-25: {berlin} back from 03:00 to 02:00; {FOLD}",
        ]
        wild = preview("*/20 * * * *", *options)["notes"]
        assert wild[0].endswith("3 times are in the gap: skipped.")
        assert wild[1].endswith("in the repeated period: fires twice.")
        assert preview("0 12 * * *", *options)["notes"] == []
        assert preview("0 2 * * *")["notes"] == []

    def test_the_table_shows_both_time_zones(self):
        text = invoke(
            "preview", "0 9 * * *", "--tz", "America/New_York", "-n", "2", "--after",
            "2026-07-01T00:00+00:00", env={"TZ": "Asia/Tokyo"},
        ).stdout  # fmt: skip

        assert "RULE'S TIME (AMERICA/NEW_YORK)" in text
        assert "Wed 2026-07-01 09:00:00 EDT" in text

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["61 * * * *"], "minute (field 1) '61' is not in 0-59"),
            (["evry_day"], "is not a symbol, a frequency or a cron expression"),
            (["EVERY_DAI"], "Did you mean 'EVERY_DAY'?"),
            (["hors=9"], "Did you mean 'hours'?"),
            (["daly_at('1:00')"], "Did you mean 'daily_at'?"),
            (["daily_at(open('x'))"], "must be a number"),
            (["__import__('os').system('true')"], "A schedule has no method"),
            (["daily("], "cannot be parsed"),
            (["daily().hours"], "has no parentheses"),
            (["daily().hourly()"], "daily() and hourly() both set"),
            (["0 0 * * *", "--tz", "Europe/Berln"], "Did you mean 'Europe/Berlin'?"),
            (["hours=9 hours=10"], "is given twice"),
            (["x" * 2000], "at most 1,000 characters"),
        ],
    )
    def test_invalid_rules(self, arguments, message):
        done = invoke("preview", *arguments, code=1)

        assert message in done.stderr
        assert "Traceback" not in done.output

    def test_a_rule_that_never_fires(self):
        assert "It never fires." in invoke("preview", "0 0 30 2 *").stdout


class TestNext:
    """``next`` lists what will fire, and when."""

    def test_an_overdue_schedule_is_one_line_that_tells_how_often_it_will_fire(
        self, make_app, clock
    ):
        app = make_app()
        app.schedule("often", lambda: None).every_second()
        app.run()
        clock.advance(minutes=15)

        done = CliRunner().invoke(app.cli(), ["next", "-n", "3"], catch_exceptions=False)

        assert done.output.count("overdue since") == 1
        assert "will fire once" in done.output
        assert done.output.count("every second") == 3


class TestSimulate:
    """``simulate`` counts the firings of all schedules."""

    def test_counts_by_hour_and_schedule(self, app, cli):
        found = cli.json("simulate", "--days", "1", "--zone", "UTC")

        assert found["by_hour"] == [60] + [61] + [60] * 22
        counts = {line["name"]: line["firings"] for line in found["schedules"]}
        assert counts == {"tick": 1440, "nightly": 1}
        assert found["firings"] == 1441

    def test_collisions(self, cli):
        found = cli.json("simulate", "--days", "1", "--zone", "UTC")

        [collision] = found["collisions"]
        assert (collision["at"], collision["count"]) == ("2026-01-01T01:30:00+00:00", 2)
        assert set(collision["schedules"]) == {"tick", "nightly"}

    def test_clock_changes(self, cli):
        found = cli.json("simulate", "--days", "120")

        [nightly] = [line for line in found["schedules"] if line["name"] == "nightly"]
        [note] = nightly["notes"]
        assert "2026-03-29" in note
        assert note.endswith(GAP)
        text = cli.text("simulate", "--days", "120")
        assert "Clock changes" in text
        assert GAP in " ".join(text.split())

    def test_the_chart(self, cli):
        text = cli.text("simulate", "--days", "2")

        assert text.count("█") > 100
        assert "Clock changes" not in text
        assert "Collisions" in text

    def test_nothing_is_written(self, app, cli):
        cli("simulate")

        assert app.schedules.list() == []
        assert app.runs.recent() == []


class TestShow:
    """``show`` describes definitions, from code alone."""

    def test_all_jobs(self, cli):
        jobs = {job["name"]: job for job in cli.json("show")["jobs"]}

        assert set(jobs) == {"send_email", "breaks", "report"}
        assert jobs["send_email"]["limits"] == {"job:send_email": 1}
        assert jobs["send_email"]["attempts_max"] == 3
        assert {each["name"] for each in jobs["report"]["schedules"]} == {"nightly", "tick"}
        assert "report" in cli.text("show")

    def test_the_list_has_the_names_of_further_schedules(self, cli):
        text = " ".join(cli.text("show").split())

        assert "nightly: " in text
        assert "tick: " in text

    def test_one_job(self, cli):
        text = cli.text("show", "send_email")

        assert "doubling from 1s to 1m, with full jitter" in text
        assert "(to: str" in text
        assert "conftest.py" in text

    def test_delays_and_exception_types(self, cli, app):
        app.schedule("fetch", lambda: None).attempts(5).delays(["10s", "1m"]).retry_on(OSError)

        text = " ".join(cli.text("show", "fetch").split())

        assert "history: 30d" in text

        assert "5, retry: after 10s, 1m, and so on, only on OSError" in text

    def test_no_database_is_needed(self, tmp_path):
        app = Tickwork(f"sqlite:///{tmp_path}/no/such/folder/jobs.db")
        app.schedule("idle", lambda: None).hourly()

        assert Cli(app).json("show")["jobs"][0]["name"] == "idle"

    def test_an_unknown_job(self, cli):
        assert "Did you mean 'report'?" in cli("show", "reprot", code=3).stderr


class TestSettings:
    """``settings`` shows each value and its source."""

    def test_sources(self, tmp_path, monkeypatch):
        (tmp_path / "settings.toml").write_text('[tickwork]\nredact = ["password"]\n')
        monkeypatch.setenv("TICKWORK_TIMEZONE", "Europe/Berlin")
        app = Tickwork(
            "postgresql://app:s3cret@db/jobs", config=tmp_path / "settings.toml", payload_max=1000
        )

        found = {each["name"]: each for each in Cli(app).json("settings")["settings"]}

        assert found["url"]["source"] == "the program"
        assert "s3cret" not in found["url"]["value"]
        assert (found["timezone"]["value"], found["timezone"]["source"]) == (
            "Europe/Berlin",
            "TICKWORK_TIMEZONE",
        )
        assert found["redact"]["source"].endswith("settings.toml")
        assert found["retire_after"]["source"] == "default"
        assert found["retire_after"]["value"] == 7 * 86400
        assert "s3cret" not in Cli(app).text("settings")


class TestInstall:
    """``install`` and ``upgrade`` create and upgrade the tables."""

    @pytest.mark.parametrize("name", ["install", "upgrade"])
    def test_the_first_and_the_second_call(self, tmp_path, name):
        with Tickwork(f"sqlite:///{tmp_path}/jobs.db") as app:
            cli = Cli(app)
            first = cli.json(name)
            assert (first["before"], first["version"] > 0) == (0, True)
            assert "already" in cli.text(name)


class TestInit:
    """``init`` creates a small application."""

    def test_files_and_next_steps(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

        found = json.loads(invoke("init", "shop", "--json").stdout)

        assert found["files"] == ["shop/jobs.py", "shop/tickwork.toml"]
        assert found["next"][0] == "cd shop"
        compile(Path("shop/jobs.py").read_text(), "jobs.py", "exec")

    def test_existing_files_are_kept(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("jobs.py").write_text("mine = True\n")

        done = invoke("init", code=1)

        assert "jobs.py already exists" in done.stderr
        assert Path("jobs.py").read_text() == "mine = True\n"
        invoke("init", "--force")
        assert "Tickwork" in Path("jobs.py").read_text()


def test_a_program_mounts_the_commands_in_its_own(app):
    @click.group()
    def shop():
        """The program's own command."""

    shop.add_command(app.cli())

    done = CliRunner().invoke(shop, ["tickwork", "dispatch", "report", "--json"])

    assert json.loads(done.stdout)["run"]["job"] == "report"
    rejected = CliRunner().invoke(shop, ["tickwork", "inspect", "0123"])
    assert rejected.exit_code == 3
    assert "-a, --app" not in CliRunner().invoke(shop, ["tickwork", "--help"]).stdout


class TestUsage:
    """``usage`` shows the commands, and the settings of the application."""

    def test_commands_and_settings(self, cli, app):
        text = cli.text("usage")

        assert "tickwork work" in text or "work " in text
        assert "timezone" in text
        found = cli.json("usage")
        assert {"work", "usage", "prune"} <= {each["name"] for each in found["commands"]}
        assert {each["name"] for each in found["settings"]} >= {"url", "timezone"}

    def test_without_an_application_it_says_how_to_name_one(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("TICKWORK_APP", raising=False)

        done = invoke("usage")

        assert "prune" in done.stdout
        assert "tickwork init" in done.stdout


class TestCalendar:
    """``calendar`` writes schedules as an iCalendar file, or as a link."""

    def test_it_writes_a_file(self, cli, app, tmp_path):
        text = cli.text("calendar")
        cli("calendar", "nightly", "--past", "1d", "--output", str(tmp_path / "a.ics"))

        assert text.startswith("BEGIN:VCALENDAR")
        assert "SUMMARY:nightly" in text
        assert "SUMMARY:tick" in text
        assert b"SUMMARY:tick" not in (tmp_path / "a.ics").read_bytes()
        assert (tmp_path / "a.ics").read_bytes().endswith(b"END:VCALENDAR\r\n")

    def test_it_prints_links(self, cli, app):
        assert "calendar.google.com" in cli.text("calendar", "nightly", "--link", "google")
        assert "outlook" in cli.text("calendar", "nightly", "--link", "outlook")
        assert "one schedule" in cli("calendar", "--link", "google", code=2).output

    def test_an_unknown_schedule_is_an_error(self, cli, app):
        assert "There is no schedule 'nihtly'" in cli("calendar", "nihtly", code=3).output
