"""Rules in requests: they open no file of the server, and the work for them is bounded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hostile_rules import COSTLY_TEXTS, RULE_TEXTS
from opened_files import opened_files
from tickwork import ScheduleDefinition
from tickwork.dashboard import Role
from tickwork.errors import InvalidSchedule

from .conftest import API

SECRET = "s3cret-of-another-program"
ZONES = (
    "../../etc/passwd",
    "/etc/passwd",
    "posix/../../../etc/passwd",
    ".",
    "tzdata.zi",
    "a/b",
    "",
)


@pytest.fixture
def token(tmp_path, monkeypatch):
    """A file beside the server, as ``tickwork ui --tokens`` has one."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "tokens"
    file.write_text(f"{SECRET}\n")
    return file


def rules_about(token):
    paths = [str(token), "tokens", f"file://{token}", "/proc/self/environ", "/dev/zero"]
    paths += ["/etc/passwd", "http://127.0.0.1:9/holidays.ics", "\\\\host\\share", "."]
    for path in paths:
        yield f"daily().except_on(calendar={path!r})"
        yield f"except_on(calendar={path!r}).daily()"
        yield f"daily().except_on({path!r})"
        yield f"minutes=0 except_on={path}"
    yield "daily().except_on(country='DE')"
    yield "daily().except_on(country='os')"
    yield json.dumps({"kind": "windowed", "rule": {"kind": "cron"}, "calendar": str(token)})


class TestFiles:
    """No request opens a file or an address of the server."""

    def test_a_reader_cannot_make_a_preview_open_a_file(self, client_of, token):
        reader = client_of(Role.READER)
        for url in (f"{API}/preview", "/schedules/preview"):  # loads templates
            reader.get(url, params={"rule": "x"})

        with opened_files() as opened:
            answers = [
                reader.get(url, params={"rule": rule})
                for url in (f"{API}/preview", "/schedules/preview")
                for rule in rules_about(token)
            ]

        assert opened == []
        assert {answer.status_code for answer in answers} == {200, 422}
        assert all(SECRET not in answer.text and "root:" not in answer.text for answer in answers)

    def test_a_schedule_of_a_request_opens_no_file(self, admin, app, token):
        app.schedules.create(
            ScheduleDefinition(name="mine", job="send_email", rule="0 9 * * *", args={"to": "a"})
        )
        with opened_files() as opened:
            for rule in rules_about(token):
                body = {"name": "x", "job": "send_email", "args": {"to": "a"}, "rule": rule}
                assert admin.post(f"{API}/schedules", json=body).status_code == 422, rule
                changed = admin.patch(f"{API}/schedules/mine", json={"rule": rule})
                assert changed.status_code == 422, rule

        assert [each for each in opened if "jobs.db" not in each] == []

    def test_a_time_zone_is_looked_up_in_the_database_of_time_zones_only(self, client_of, token):
        reader = client_of(Role.READER)
        with opened_files() as opened:
            for zone in ZONES:
                for rule in ("@daily", f"daily().timezone({zone!r})"):
                    answer = reader.get(f"{API}/preview", params={"rule": rule, "timezone": zone})
                    assert answer.status_code in {200, 422}
                    assert "root:" not in answer.text

        assert opened == []

    @pytest.mark.parametrize("path", ["tokens", "../api.py", "%2e%2e/api.py", "/etc/passwd"])
    def test_a_static_path_stays_in_its_folder(self, client_of, token, path):
        answer = client_of(Role.READER).get(f"/static/{path}")

        assert answer.status_code in {404, 422}
        assert "import" not in answer.text

    def test_a_handler_path_that_is_not_allowed_is_not_imported(self, admin):
        with opened_files() as opened:
            for path in ("antigravity:x", "/etc/passwd:x", "os:system", "this"):
                answer = admin.post(f"{API}/runs", json={"job": path})
                assert answer.status_code in {404, 422}, path

        assert [each for each in opened if "jobs.db" not in each] == []
        assert not {"antigravity", "this"} & sys.modules.keys()

    def test_a_request_names_a_calendar_that_the_application_registered(self, client_of, app):
        app.calendar("closed", ["2027-01-02", "2027-01-03"])

        answer = (
            client_of(Role.READER)
            .get(f"{API}/preview", params={"rule": "daily().except_on(calendar='closed')"})
            .json()
        )
        unknown = client_of(Role.READER).get(
            f"{API}/preview", params={"rule": "daily().except_on(calendar='close')"}
        )

        assert answer["description"] == "at 00:00 (UTC), not on 2 dates"
        assert answer["stored"]["dates"] == ["2027-01-02", "2027-01-03"]
        assert unknown.status_code == 422
        assert unknown.json()["detail"] == (
            "There is no calendar 'close'. The calendars are: closed."
        )
        assert unknown.json()["fix"] == "Did you mean 'closed'?"

    def test_code_that_passes_text_names_calendars_too(self, app, token):
        with opened_files() as opened, pytest.raises(InvalidSchedule, match="no calendar 'tokens'"):
            app.schedules.create(
                ScheduleDefinition(job="fails", rule="daily().except_on(calendar='tokens')")
            )

        assert [each for each in opened if "jobs.db" not in each] == []


class TestWork:
    """A preview takes a bounded number of steps, and answers with the reason if it needs more."""

    @pytest.mark.parametrize("name", COSTLY_TEXTS)
    def test_a_rule_that_takes_too_many_steps_is_refused_with_the_reason(self, client_of, name):
        answer = client_of(Role.READER).get(f"{API}/preview", params={"rule": COSTLY_TEXTS[name]})

        assert (answer.status_code, answer.json()["code"]) == (422, "rule-too-costly")
        assert "250,000 steps" in answer.json()["detail"]

    def test_such_a_rule_is_not_stored(self, admin):
        body = {"name": "x", "job": "send_email", "args": {"to": "a"}}
        rule = COSTLY_TEXTS["counts inside of counts"]
        answer = admin.post(f"{API}/schedules", json={**body, "rule": rule})
        assert (answer.status_code, answer.json()["code"]) == (422, "rule-too-costly")

    @pytest.mark.timeout(600)
    @pytest.mark.parametrize("every", [20, pytest.param(1, marks=pytest.mark.long)])
    def test_a_reader_gets_no_answer_500_and_the_server_does_not_grow(self, tmp_path, every):
        script = Path(__file__).with_name("rule_requests.py")
        done = subprocess.run(
            [sys.executable, script, tmp_path / "jobs.db", str(every)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env={"PYTHONPATH": str(Path(__file__).parent.parent)},
        )

        assert done.returncode == 0, done.stderr
        answers = json.loads(done.stdout)
        assert set(answers["statuses"]) <= {"200", "422"}
        assert answers["requests"] > 2 * len(RULE_TEXTS)
        assert answers["grown"] < 50 * 2**20
