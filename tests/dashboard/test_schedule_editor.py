"""Schedules of the database: created, changed and removed, and what the audit log keeps."""

import html
import json
import re
from typing import get_type_hints

import pytest

from dashboard.conftest import API
from tickwork import ScheduleDefinition
from tickwork._define.option_table import OF_SCHEDULES
from tickwork.dashboard import Role
from tickwork.dashboard.acts.definitions import ScheduleFields
from tickwork.errors import ScheduleNotFound

DIGEST = {
    "name": "digest",
    "job": "send_email",
    "rule": "30 2 * * *",
    "timezone": "Europe/Berlin",
    "args": {"to": "team@example.org", "count": 3},
    "jitter": "2m",
    "tags": ["weekly"],
}


def stored(app, name="digest", tenant=""):
    return app.inspect.schedule_details(name, tenant=tenant)


class TestApi:
    def test_create(self, admin, app):
        answer = admin.post(f"{API}/schedules", json=DIGEST)

        assert answer.status_code == 201, answer.text
        found = stored(app)
        assert (found.rule, found.timezone, found.jitter) == ("30 2 * * *", "Europe/Berlin", "2m")
        assert (found.args, found.tags) == ({"to": "team@example.org", "count": 3}, ("weekly",))
        assert (found.origin, found.revision) == ("api", 1)
        assert admin.get(f"{API}/schedules/digest/definition").json()["args"] == DIGEST["args"]
        # An equal one is left as it is; another one does not replace it.
        assert admin.post(f"{API}/schedules", json=DIGEST).status_code == 201
        assert admin.post(f"{API}/schedules", json={**DIGEST, "rule": "@daily"}).status_code == 409
        assert stored(app) == found

    @pytest.mark.parametrize(
        "change",
        [
            {"rule": "61 * * * *"},
            {"timezone": "Mars/Olympus"},
            {"args": {"to": "ann", "count": "many"}},
            {"args": {}},
            {"args": {"to": "***"}},
            {"overlap": "sometimes"},
            {"name": ""},
            {"until": "2001-01-01T00:00:00+00:00"},
        ],
    )
    def test_what_is_not_valid_is_not_stored(self, admin, app, change):
        answer = admin.post(f"{API}/schedules", json={**DIGEST, **change})

        assert answer.status_code == 422, answer.text
        with pytest.raises(ScheduleNotFound):
            stored(app)

    def test_a_change_keeps_the_other_options(self, admin, app):
        admin.post(f"{API}/schedules", json=DIGEST)
        due = app.schedules.get("digest").next_due_at

        answer = admin.patch(f"{API}/schedules/digest", json={"queue": "slow", "unset": ["jitter"]})

        assert answer.status_code == 200, answer.text
        found = stored(app)
        assert (found.queue, found.jitter, found.rule) == ("slow", "0s", "30 2 * * *")
        assert app.schedules.get("digest").next_due_at == due

    def test_another_time_zone_moves_the_next_firing(self, admin, app):
        admin.post(f"{API}/schedules", json={**DIGEST, "timezone": "UTC"})
        due = app.schedules.get("digest").next_due_at

        admin.patch(f"{API}/schedules/digest", json={"timezone": "Asia/Tokyo"})

        assert stored(app).timezone == "Asia/Tokyo"
        assert app.schedules.get("digest").next_due_at != due

    def test_a_change_of_an_old_revision_is_refused(self, admin, app):
        admin.post(f"{API}/schedules", json=DIGEST)
        change = {"rule": "@hourly", "revision": 1}

        assert admin.patch(f"{API}/schedules/digest", json=change).status_code == 200
        answer = admin.patch(f"{API}/schedules/digest", json={**change, "rule": "@daily"})

        assert (answer.status_code, answer.json()["code"]) == (409, "revision")
        assert stored(app).rule == "@hourly"

    def test_revisions_have_the_options_before_and_after(self, admin, app):
        admin.post(f"{API}/schedules", json=DIGEST)
        admin.patch(f"{API}/schedules/digest", json={"rule": "0 7 * * *", "priority": 3})
        admin.patch(f"{API}/schedules/digest", json={"rule": "61 * * * *"})  # fails
        admin.patch(f"{API}/schedules/digest", json={"priority": 3})  # changes nothing
        admin.delete(f"{API}/schedules/digest")

        removed, changed, created = admin.get(f"{API}/schedules/digest/revisions").json()
        assert removed["before"]["rule"] == "0 7 * * *"
        assert changed["before"] == {"rule": "30 2 * * *", "priority": None}
        assert changed["after"] == {"rule": "0 7 * * *", "priority": 3}
        assert changed["actor"] == "admin ann"
        assert created["after"]["args"] == DIGEST["args"]

    def test_revisions_of_two_tenants_are_apart(self, admin, app):
        for tenant in ("one", "other"):
            admin.post(f"{API}/schedules", json={**DIGEST, "tenant": tenant})
        admin.patch(f"{API}/schedules/digest?tenant=other", json={"rule": "@daily"})

        counts = [
            len(admin.get(f"{API}/schedules/digest/revisions?tenant={tenant}").json())
            for tenant in ("one", "other", "")
        ]
        assert counts == [1, 2, 0]
        assert stored(app, tenant="one").rule == "30 2 * * *"

    def test_secrets_are_masked_and_kept(self, admin, app):
        definition = {"name": "login", "job": "sign_in", "rule": "@daily"}
        admin.post(f"{API}/schedules", json={**definition, "args": {"password": "hunter2"}})

        shown = admin.get(f"{API}/schedules/login/definition").json()
        assert shown["args"] == {"password": "***"}
        assert admin.patch(
            f"{API}/schedules/login", json={"args": shown["args"], "rule": "@hourly"}
        ).is_success
        assert app.inspect.schedule_args("login")["password"] == "hunter2"
        assert "hunter2" not in json.dumps([entry.detail for entry in app.audit.list()])

    def test_remove(self, admin, app):
        admin.post(f"{API}/schedules", json=DIGEST)
        run = app.schedules.run_now("digest")

        answer = admin.delete(f"{API}/schedules/digest")

        assert answer.json() == {"name": "digest", "runs": 1}
        assert run.status == "canceled"
        assert admin.delete(f"{API}/schedules/digest").status_code == 404

    def test_schedules_from_code_are_not_edited(self, admin, app):
        before = stored(app, "nightly")

        for answer in (
            admin.patch(f"{API}/schedules/nightly", json={"rule": "@hourly"}),
            admin.delete(f"{API}/schedules/nightly"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (409, "defined-in-code")
        assert stored(app, "nightly") == before
        assert app.audit.list() == []

    def test_it_needs_an_administrator(self, client_of, app):
        app.schedules.create(ScheduleDefinition(name="digest", job="fails", rule="@daily"))
        operator = client_of(Role.OPERATOR)

        for answer in (
            operator.post(f"{API}/schedules", json={**DIGEST, "name": "new"}),
            operator.patch(f"{API}/schedules/digest", json={"rule": "@hourly"}),
            operator.delete(f"{API}/schedules/digest"),
        ):
            assert answer.status_code == 403
        assert [each.name for each in app.schedules.list()] == ["digest", "nightly"]
        assert stored(app).revision == 1


class TestForms:
    @pytest.fixture
    def send(self, client_of):
        """Fills in the form of a page, and sends it."""
        client = client_of()

        def send(path, **changes):
            page = client.get(path).text
            values = dict(re.findall(r'<input [^>]*?name="([^"]+)"[^>]*? value="([^"]*)"', page))
            for name, options in re.findall(r'<select name="(\w+)">(.*?)</select>', page):
                chosen = re.search(r'value="(\w+)" selected', options)
                values[name] = chosen[1] if chosen else ""
            return client.post(path.partition("?")[0], data={**values, **changes})

        return send

    def test_create_and_edit(self, send, app):
        made = send(
            "/new-schedule?job=send_email",
            **{"name": "a/b c", "rule": "daily().hours(2)", "arg:to": "ann", "arg:count": "2"},
            tags="one, two",
        )
        assert (made.status_code, made.headers["location"]) == (303, "/schedules/a%2Fb%20c")
        found = stored(app, "a/b c")
        assert (found.rule, found.args) == ("minutes=0 hours=2", {"to": "ann", "count": 2})
        assert found.tags == ("one", "two")

        same = send("/edit-schedule?name=a/b%20c")
        assert same.status_code == 303, same.text
        assert stored(app, "a/b c") == found

        send("/edit-schedule?name=a/b%20c", tags="", queue="slow", **{"arg:count": "3"})
        found = stored(app, "a/b c")
        assert (found.tags, found.queue, found.args["count"]) == ((), "slow", 3)
        assert found.revision == 2

    def test_an_error_keeps_what_was_typed(self, send, app):
        page = send(
            "/new-schedule?job=send_email", name="digest", rule="61 * * * *", **{"arg:to": "<ann>"}
        )

        assert page.status_code == 200
        assert "61" in page.text
        assert 'value="&lt;ann&gt;"' in page.text
        assert 'role="alert"' in page.text

    def test_a_secret_that_is_left_empty_stays(self, send, app):
        app.schedules.create(
            ScheduleDefinition(name="login", job="sign_in", rule="@daily", args={"password": "x1"})
        )

        page = send("/edit-schedule?name=login", rule="@hourly")
        assert page.status_code == 303, page.text
        assert stored(app, "login").rule == "@hourly"
        assert app.inspect.schedule_args("login") == {"password": "x1"}
        send("/edit-schedule?name=login", **{"arg:password": "y2"})
        assert app.inspect.schedule_args("login") == {"password": "y2"}

    def test_the_page_names_code_as_the_origin(self, client_of):
        client = client_of()

        page = client.get("/schedules/nightly").text
        assert "change it there" in page
        assert "/edit-schedule" not in page
        assert client.get("/edit-schedule?name=nightly").status_code == 409
        assert client.get("/edit-schedule?name=none").status_code == 404


def test_the_fields_of_requests_are_those_of_the_table_of_options():
    declared = get_type_hints(ScheduleFields, include_extras=True)

    texts = {name: hint.__metadata__[-1] for name, hint in declared.items()}

    del texts["timezone"]  # of the rule, not of the schedule
    assert texts == {option.name: option.help for option in OF_SCHEDULES}


class TestRuleObjects:
    """A rule without a short text is an object, in answers and in requests."""

    CHAIN = "daily().hours(2).max_firings(3)"

    @pytest.fixture
    def rule(self, admin):
        body = {**DIGEST, "rule": self.CHAIN}
        assert admin.post(f"{API}/schedules", json=body).status_code == 201
        found = admin.get(f"{API}/schedules/digest/definition").json()["rule"]
        assert found["kind"] == "bounded"
        assert found["max_firings"] == 3
        return found

    def test_a_request_takes_what_an_answer_has(self, admin, rule):
        other = {**DIGEST, "name": "other", "rule": rule}

        assert admin.post(f"{API}/schedules", json=other).status_code == 201
        paths = (f"{API}/schedules/{name}/firings" for name in ("digest", "other"))
        first, second = (admin.get(path).json() for path in paths)
        assert first == second
        assert len(first) == 3

    def test_a_rule_with_a_short_text_is_that_text(self, admin, rule):
        cron = {"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Berlin"}
        answer = admin.patch(f"{API}/schedules/digest", json={"rule": cron})

        assert answer.status_code == 200, answer.text
        shown = admin.get(f"{API}/schedules/digest/definition").json()["rule"]
        assert shown == "0 9 * * *"

    def test_a_change_keeps_it_and_revisions_have_it(self, admin, app, rule):
        changed = {**rule, "max_firings": 5}
        assert admin.patch(f"{API}/schedules/digest", json={"rule": changed}).status_code == 200

        [newest, *_] = admin.get(f"{API}/schedules/digest/revisions").json()
        assert newest["before"]["rule"] == rule
        assert newest["after"]["rule"] == changed
        assert stored(app).rule == changed

    def test_a_change_of_the_time_zone_leaves_it(self, admin, app, rule):
        path = f"{API}/schedules/digest"
        assert admin.patch(path, json={"timezone": "Asia/Tokyo"}).status_code < 500
        assert stored(app).rule["max_firings"] == 3

    def test_a_removed_schedule_is_restored_with_it(self, admin, app, rule):
        admin.delete(f"{API}/schedules/digest")
        assert admin.post(f"{API}/schedules/digest/restore").status_code == 201
        assert stored(app).rule == rule

    def test_the_form_shows_it_as_text_and_does_not_change_it(self, client_of, app, rule):
        client = client_of()
        page = client.get("/edit-schedule?name=digest").text
        text = html.unescape(re.findall(r'name="rule" value="([^"]*)"', page)[0])
        assert json.loads(text) == rule
        assert "&#39;kind&#39;" not in client.get("/schedules/digest").text

    @pytest.mark.parametrize(
        "rule",
        [
            {},
            {"kind": "lunar"},
            {"kind": "cron"},
            {"kind": "cron", "expr": 5, "tz": "UTC"},
            [],
            5,
            "5",
        ],
    )
    def test_other_values_are_refused(self, admin, app, rule):
        answer = admin.post(f"{API}/schedules", json={**DIGEST, "rule": rule})

        assert answer.status_code == 422, answer.text

    def test_a_preview_has_the_object(self, admin):
        found = admin.get(f"{API}/preview", params={"rule": "0 9 * * *"}).json()
        assert found["stored"] == {"expr": "0 9 * * *", "kind": "cron", "tz": "UTC"}


class TestBehindNewerEntries:
    """A busy audit log hides neither a removal nor a revision."""

    def record(self, app, count, subject="queue/emails"):
        for _ in range(count):
            app.audit.record("schedule.pause", subject, actor="ann")

    def test_a_removed_schedule_is_offered_and_restored(self, admin, client_of, app):
        for tenant in ("one", "other"):
            admin.post(f"{API}/schedules", json={**DIGEST, "tenant": tenant})
            admin.delete(f"{API}/schedules/digest?tenant={tenant}")
        self.record(app, 250)
        self.record(app, 250, "schedule/digest")

        page = client_of().get("/schedules").text
        assert page.count("/schedules/digest/restore") == 2
        answer = admin.post(f"{API}/schedules/digest/restore?tenant=one")
        assert answer.status_code == 201, answer.text
        assert stored(app, tenant="one").rule == DIGEST["rule"]
        with pytest.raises(ScheduleNotFound):
            stored(app, tenant="other")

    def test_revisions_are_listed(self, admin, app):
        admin.post(f"{API}/schedules", json=DIGEST)
        admin.patch(f"{API}/schedules/digest", json={"rule": "@hourly"})
        self.record(app, 250, "schedule/digest")

        found = admin.get(f"{API}/schedules/digest/revisions").json()
        assert [each["action"] for each in found] == ["schedule.change", "schedule.create"]

    def test_entries_of_one_action(self, admin, app):
        admin.post(f"{API}/schedules", json=DIGEST)
        self.record(app, 60)

        found = admin.get(f"{API}/audit", params={"action": "schedule.create"}).json()
        assert [each["subject"] for each in found["entries"]] == ["schedule/digest"]


class TestConditions:
    """A change can require that the schedule has not changed."""

    @pytest.fixture
    def tag(self, admin):
        body = {"name": "digest", "job": "send_email", "rule": "@daily", "args": {"to": "ann"}}
        return admin.post(f"{API}/schedules", json=body).headers["ETag"]

    def test_the_tag_of_a_schedule_changes_with_its_revision(self, admin, tag):
        assert admin.get(f"{API}/schedules/digest").headers["ETag"] == tag

        changed = admin.patch(f"{API}/schedules/digest", json={"rule": "@hourly"})

        assert changed.headers["ETag"] != tag
        assert admin.get(f"{API}/schedules/digest").headers["ETag"] == changed.headers["ETag"]

    def test_a_change_of_an_old_version_is_refused(self, admin, app, tag):
        headers = {"If-Match": tag}
        first = admin.patch(f"{API}/schedules/digest", json={"rule": "@hourly"}, headers=headers)
        second = admin.patch(f"{API}/schedules/digest", json={"rule": "@weekly"}, headers=headers)

        assert (first.status_code, second.status_code) == (200, 412)
        assert second.headers["ETag"] == first.headers["ETag"]
        assert app.schedules.get("digest").revision == 2

    @pytest.mark.parametrize("condition", ["*", "{tag}", '"other", {tag}', '"other",{tag}'])
    def test_a_condition_that_holds(self, admin, tag, condition):
        headers = {"If-Match": condition.format(tag=tag)}
        path = f"{API}/schedules/digest"

        assert admin.patch(path, json={"rule": "@hourly"}, headers=headers).status_code == 200

    def test_a_removal_has_one_too(self, admin, tag):
        path = f"{API}/schedules/digest"

        assert admin.delete(path, headers={"If-Match": '"1-0"'}).status_code == 412
        assert admin.delete(path, headers={"If-Match": tag}).status_code == 200

    @pytest.mark.parametrize("condition", ["1", 'W/"1"', '"a', ""])
    def test_what_is_no_tag(self, admin, tag, condition):
        headers = {"If-Match": condition}
        path = f"{API}/schedules/digest"

        assert admin.patch(path, json={"rule": "@hourly"}, headers=headers).status_code == 422
