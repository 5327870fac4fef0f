"""The page *Runs*: filters, counts, orders, saved views, errors, exports; and a dispatch again."""

import asyncio
import csv
import io
import json
import re
from datetime import UTC, datetime

import pytest

from tickwork import RunContext, RunFilter, Secret, Tickwork
from tickwork.dashboard.pages import run_export
from tickwork.testing import ManualClock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
HTML = {"Accept": "text/html"}


@pytest.fixture
def clock():
    return ManualClock(NOON)


@pytest.fixture
def app(tmp_path, clock):
    with Tickwork(f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL", clock=clock) as app:

        @app.job(tags=["mail"])
        def send(ctx: RunContext, to: str, card: Secret[str] = "") -> None:
            if to.startswith("bad"):
                raise ConnectionError(f"refused {to}: row {len(to)}")

        app.schedule("nightly", send).daily().hours(2).timezone("Europe/Berlin").args(to="team")
        app.run()
        yield app


@pytest.fixture
def client(client_of, app):
    client = client_of(of=app)
    client.headers["Accept"] = "text/html"
    return client


def csrf_of(client):
    return re.findall(r'name="csrf" value="(\w+)"', client.get("/queues").text)[0]


def jobs_on(page):
    return re.findall(r'<tr id="run-([0-9a-f-]+)"', page.text)


class TestFilters:
    def test_a_pasted_id_finds_its_run_whatever_the_filters_are(self, client, app):
        run = app.dispatch("send", to="ann")
        for text in (run.id, f" {run.id} ", run.id.upper(), run.id[:13]):
            answer = client.get("/runs", params={"text": text, "status": "failed_permanent"})
            assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{run.id}")

    def test_an_unknown_id_is_a_search(self, client):
        answer = client.get("/runs", params={"text": "019b76da-a800-7000-8000-000000000001"})

        assert "No run matches these filters." in answer.text

    def test_the_tabs_count_what_the_other_filters_leave(self, client, app):
        for to in ("ann", "bad-1", "bad-2"):
            app.draft.tenant("acme").dispatch("send", to=to)
        app.dispatch("send", to="bad-3")
        app.run()
        page = client.get("/runs", params={"tenant": "acme", "status": "completed"}).text

        counts = dict(re.findall(r'status=(\w+)[^>]*>[\w ]+ <span class="num n">([^<]+)<', page))
        assert counts["completed"] == "1"
        assert counts["failed_permanent"] == "2"

    @pytest.mark.parametrize(
        ("params", "found"),
        [
            ({"since": "90m"}, ["late"]),
            ({"since": "3h"}, ["late", "early"]),
            ({"before": "1h30m"}, ["early"]),
            ({"since": "2026-03-02T12:30:00+00:00"}, ["late"]),
            ({"since": "2026-03-02 13:30"}, ["late"]),  # in Berlin
            ({"before": "2026-03-02T13:30"}, ["early"]),
        ],
    )
    def test_a_time_is_one_ago_or_one_of_the_zone_of_the_page(
        self, client, app, clock, params, found
    ):
        ids = {app.dispatch("send", to="x").id: "early"}
        clock.advance(hours=2)
        ids[app.dispatch("send", to="x").id] = "late"
        client.cookies.set("tickwork_browser_zone", "Europe%2FBerlin")

        page = client.get("/runs", params=params)

        assert [ids[each] for each in jobs_on(page)] == found

    def test_filters_have_suggestions(self, client, app):
        app.draft.tenant("acme").dispatch("send", to="bad-1")
        app.run()
        page = client.get("/runs").text

        for name, value in (("job", "send"), ("schedule", "nightly"), ("tag", "mail")):
            options = page.partition(f'<datalist id="known-{name}">')[2].partition("</datalist>")[0]
            assert f'value="{value}"' in options, name
        assert 'value="ConnectionError: refused bad-#: row #"' in page

    def test_the_longest_runtime_first(self, client, app):
        page = client.get("/runs", params={"sort": "runtime"}).text

        assert "In the order of 0 runs with these filters" in page


class TestErrors:
    def test_equal_errors_are_one_row_that_leads_to_its_runs(self, client, app, clock):
        old = app.dispatch("send", to="bad-old")
        app.run()
        clock.advance(hours=2)
        new = [app.dispatch("send", to=f"bad-{number}").id for number in range(3)]
        app.run()

        page = client.get("/runs/errors").text
        [link] = re.findall(r'class="name wrap"><a href="([^"]+)"', page)
        runs = client.get(link.replace("&amp;", "&"))

        assert "<strong>3</strong>" in page
        assert "ConnectionError: refused bad-#: row #" in page
        assert sorted(jobs_on(runs)) == sorted(new)
        assert old.id not in runs.text


class TestSavedViews:
    def save(self, client, **data):
        data = {"csrf": csrf_of(client), "next": "/runs", **data}
        return client.post("/views", data=data)

    def test_a_view_is_saved_and_removed_without_a_script(self, client):
        self.save(client, name="Mails <b>", query="?tag=mail&since=1h")
        page = client.get("/runs").text
        assert '<a href="/runs?tag=mail&amp;since=1h">Mails &lt;b&gt;</a>' in page

        self.save(client, name="Mails <b>", action="remove")
        assert "Mails &lt;b&gt;" not in client.get("/runs").text

    @pytest.mark.parametrize("query", ["//evil.example", "", "javascript:x"])
    def test_only_a_query_is_saved(self, client, query):
        self.save(client, name="x", query=query)

        assert "tickwork_views" not in client.cookies

    def test_a_cookie_that_is_not_valid_is_left_out(self, client):
        client.cookies.set("tickwork_views", "%7Bx")
        assert client.get("/runs").status_code == 200

    def test_there_is_an_end(self, client):
        for number in range(14):
            self.save(client, name=f"view {number}", query="?tag=mail")

        assert client.get("/runs").text.count('name="action" value="remove"') == 12


class TestExports:
    @pytest.fixture(autouse=True)
    def runs(self, app, monkeypatch):
        monkeypatch.setattr("tickwork.dashboard.pages.runs.EXPORT_PAGE", 7)
        self.ids = [
            app.draft.tenant("acme" if number % 2 else "").dispatch("send", to=f"x{number}").id
            for number in range(40)
        ][::-1]

    def test_all_rows_are_there_page_by_page(self, client):
        rows = list(csv.DictReader(io.StringIO(client.get("/runs/export.csv").text)))
        assert [row["id"] for row in rows] == self.ids
        assert [run["id"] for run in client.get("/runs/export.json").json()] == self.ids

    @pytest.mark.parametrize("params", [{"tenant": "acme"}, {"text": "x1"}, {"sort": "oldest"}])
    def test_with_filters(self, client, params):
        expected = client.get("/api/v1/runs", params={**params, "limit": 500}).json()["runs"]
        found = client.get("/runs/export.json", params=params).json()

        assert [run["id"] for run in found] == [run["id"] for run in expected]

    def test_without_rows_it_is_an_empty_list(self, client):
        assert client.get("/runs/export.json?job=nope").json() == []
        assert client.get("/runs/export.csv?job=nope").text.count("\r\n") == 1

    def test_it_is_streamed(self, client, app):
        """A page is read when the one before has been sent."""
        reads = []

        async def read(cursor):
            reads.append(cursor)
            return app.inspect.list_runs(RunFilter(), cursor=cursor, limit=10)

        async def count_reads():
            answer = await run_export.stream_export(read, kind="json")
            return [len(reads), *[len(reads) async for _ in answer.body_iterator]]

        # Before the first part, after each of four pages, and after the end.
        assert asyncio.run(count_reads()) == [1, 1, 2, 3, 4, 4]


class TestDispatchAgain:
    def form_of(self, page):
        return {
            name: value
            for name, value in re.findall(r'name="([^"]+)"[^>]*? value="([^"]*)"', page)
            if name not in {"zone", "next"}
        }

    def test_it_keeps_the_options_of_the_run(self, client, app):
        run = (
            app.draft.tenant("acme").tags("paid").target("order/7").priority(3).queue("slow")
        ).dispatch("send", to="ann", card="4242")
        page = client.get(f"/dispatch?run={run.id}").text
        form = self.form_of(page)
        form |= {"csrf": csrf_of(client), "arg:to": "bob"}

        made = client.post("/dispatch", data=form).headers["location"]
        again = app.get_run(made.rpartition("/")[2]).read()

        assert (again.tenant, again.target, again.priority, again.queue) == (
            *("acme", "order/7"),
            *(3, "slow"),
        )
        assert sorted(again.tags) == ["mail", "paid"]
        assert json.loads(again.args)["to"] == "bob"

    def test_a_masked_value_is_neither_copied_nor_accepted(self, client, app):
        run = app.dispatch("send", to="ann", card="4242")
        page = client.get(f"/dispatch?run={run.id}").text
        assert 'value="***"' not in page
        assert "4242" not in page
        assert "secret: enter it again" in page

        data = {"csrf": csrf_of(client), "job": "send", "arg:to": "ann", "arg:card": "***"}
        refused = client.post("/dispatch", data=data)
        assert "*** stands for a secret, and is not a value." in refused.text
        assert len(app.runs.recent()) == 1

    def test_the_context_of_a_run_is_no_field(self, client):
        for path in ("/dispatch?job=send", "/new-schedule?job=send"):
            page = client.get(path).text
            assert 'name="arg:to"' in page
            assert "arg:ctx" not in page
