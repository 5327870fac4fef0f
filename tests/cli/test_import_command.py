"""`tickwork import`: the whole command, with files, modules and a real job store."""

import json
import subprocess
import sys

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from click.testing import CliRunner

from tickwork.cli.main import cli

CELERY = """
from celery import Celery
from celery.schedules import crontab

app = Celery("shop", broker="memory://")
app.conf.beat_schedule = {
    "report": {"task": "shop.report", "schedule": crontab(minute=0, hour=9), "args": ("all",)},
    "odd": {"task": "shop.odd", "schedule": 0.25},
}
"""


def run(*arguments, code=0, given=None):
    done = CliRunner().invoke(cli, ["import", *arguments], input=given, prog_name="tickwork")
    assert done.exit_code == code, done.output
    return done


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestCrontab:
    def test_a_file(self, folder):
        (folder / "tab").write_text("0 9 * * 1-5 /bin/report\n")

        printed = run("crontab", "tab", "--timezone", "Europe/Berlin").stdout

        (folder / "jobs.py").write_text(printed)
        shown = subprocess.run(
            [sys.executable, "-m", "tickwork", "-a", "jobs:app", "show"],
            env={"TICKWORK_URL": "memory://", "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert "at 09:00 on Monday to Friday (Europe/Berlin)" in shown

    def test_standard_input(self):
        done = run("crontab", "-", given="@daily x\n@reboot y\n", code=1)

        assert 'app.schedule("x", run_command)' in done.stdout
        assert "1 of 2 entries not converted" in done.stderr

    def test_json(self):
        found = json.loads(run("crontab", "-", "--json", given="@reboot y\n", code=1).stdout)

        assert found["converted"] == []
        assert found["unconverted"][0]["source"] == "@reboot y"
        assert found["code"].startswith("# Converted by `tickwork import crontab -`.")

    @pytest.mark.parametrize(
        ("content", "error"),
        [
            (None, "tab cannot be read: No such file or directory."),
            (b"@daily caf\xe9\n", "tab is not text in UTF-8: byte 10 is 0xe9."),
            (b"#" * 1_000_001, "A crontab must have at most 1,000,000 bytes."),
        ],
    )
    def test_a_file_that_cannot_be_read(self, folder, content, error):
        if content is not None:
            (folder / "tab").write_bytes(content)

        assert error in run("crontab", "tab", code=2).stderr

    def test_an_unknown_zone(self):
        found = run("crontab", "-", "--timezone", "Mars/Olympus", given="@daily x\n", code=1)

        assert "There is no time zone 'Mars/Olympus'" in found.stdout


class TestCelery:
    def test_an_application(self, folder):
        (folder / "shop_celery.py").write_text(CELERY)

        done = run("celery", "shop_celery:app", code=1)

        call = 'celery_task("shop.report", args=["all"], celery=celery_app)'
        assert f'app.schedule("report", {call})' in done.stdout
        assert "# NOT CONVERTED: odd" in done.stdout

    @pytest.mark.parametrize(
        ("source", "error"),
        [
            ("no_such_module:app", "There is no module 'no_such_module' (from SOURCE"),
            ("json:app", "json has no app named 'app'."),
            (":app", "No module is named"),
        ],
    )
    def test_a_source_without_an_application(self, folder, source, error):
        assert error in run("celery", source, code=2).stderr

    def test_celery_is_not_installed(self, monkeypatch):
        monkeypatch.setattr("tickwork.cli.imports.find_spec", lambda _: None)

        assert "Celery is not installed here" in run("celery", "x", code=2).stderr


class TestJobStores:
    def test_a_database(self, folder):
        url = f"sqlite:///{folder}/jobs.sqlite"
        scheduler = BackgroundScheduler(timezone="Europe/Berlin")
        scheduler.add_jobstore("sqlalchemy", url=url)
        scheduler.add_job("os:getpid", "cron", hour=9, day_of_week="mon-fri", id="report")
        scheduler.start(paused=True)
        scheduler.shutdown()

        printed = run("apscheduler", url).stdout

        assert 'app.schedule("report", call(os.getpid)).cron("0 9 * * 1-5")' in printed.replace(
            "\n    .", "."
        ).replace("(\n    app", "app")

    def test_a_file_that_does_not_exist(self, folder):
        error = run("apscheduler", "sqlite:///none.sqlite", code=2).stderr

        assert "There is no file 'none.sqlite'." in error
        assert list(folder.iterdir()) == []

    def test_a_database_without_the_table(self, folder):
        (folder / "empty.sqlite").touch()

        error = run("apscheduler", "sqlite:///empty.sqlite", code=2).stderr

        assert "no such table: apscheduler_jobs" in error
        assert "--table" in error

    def test_a_url_of_another_kind_of_job_store(self):
        error = run("apscheduler", "redis://:secret@host/0", code=2).stderr

        assert "pass the scheduler as MODULE:NAME" in error
        assert "secret" not in error

    def test_a_scheduler_in_a_module(self, folder):
        (folder / "shop_clock.py").write_text(
            "from apscheduler.schedulers.background import BackgroundScheduler\n"
            "scheduler = BackgroundScheduler(timezone='UTC')\n"
            "scheduler.add_job('os:getpid', 'interval', minutes=5, id='poll')\n"
        )

        printed = run("apscheduler", "shop_clock").stdout

        assert 'app.schedule("poll", call(os.getpid))' in printed
        assert '.misfire("skip", grace=1)' in printed
