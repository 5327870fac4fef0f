"""Searches for runs: by argument, in a bounded number of rows that the page states."""

import re
import time
from datetime import UTC, datetime

import pytest

from tickwork import RunFilter, RunStatus, Tickwork
from tickwork._inspect import run_reader, run_search
from tickwork._inspect.run_search import RunSearch, parse_argument
from tickwork._inspect.runs import RunPresenter
from tickwork._stores.contract import CountPrecision, RunCount
from tickwork.dashboard.presentation import total
from tickwork.errors import InvalidOption
from tickwork.testing import ManualClock

from .conftest import API

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def search(client, **params):
    answer = client.get(f"{API}/runs", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def cancel_all(client, app, **params):
    """Cancel all that match, and return how many were canceled."""
    page = client.get("/runs/bulk", params=params).text
    token = re.findall(r'name="csrf" value="(\w+)"', page)[-1]
    data = {"action": "cancel", "is_filter": "yes", "csrf": token}
    answer = client.post("/runs/bulk", params=params, data=data)
    assert answer.status_code == 303, answer.text
    deadline = time.monotonic() + 60
    while "Finished." not in client.get(answer.headers["location"]).text:
        assert time.monotonic() < deadline, "it did not finish in time"
        time.sleep(0.05)
    canceled = RunFilter(statuses=frozenset({RunStatus.CANCELED}))
    return len(app.runs.find_ids(canceled))


class TestArguments:
    @pytest.fixture(autouse=True)
    def runs(self, app):
        @app.job
        def report(**facts: object) -> None: ...

        app.dispatch("send_email", to="ann", count=42)
        app.dispatch("send_email", to="42", count=1)
        app.dispatch("report", address={"city": "Bern", "lines": ["a", "b"]}, paid=True, note=None)
        app.dispatch("sign_in", password="hunter2")

    @pytest.mark.parametrize(
        ("terms", "jobs"),
        [
            (["count=42"], ["send_email"]),
            (["to=42"], ["send_email"]),
            (["to=42", "count=1"], ["send_email"]),
            (["to=42", "count=2"], []),
            (["address.city=Bern"], ["report"]),
            (["address.city=bern"], []),
            (["address.lines.1=b"], ["report"]),
            (["address.lines.7=b"], []),
            (["paid=true"], ["report"]),
            (["note=null"], ["report"]),
            (["to=4"], []),
            (["nothing=1"], []),
            (["password=hunter2"], []),
            (["password=***"], []),
            (["password="], []),
        ],
        ids=str,
    )
    def test_runs_are_found_by_the_values_of_their_arguments(self, admin, terms, jobs):
        assert [run["job"] for run in search(admin, arg=terms)["runs"]] == jobs

    def test_together_with_a_text_and_filters(self, admin):
        assert len(search(admin, arg="to=42", text="SEND_")["runs"]) == 1
        assert search(admin, arg="to=42", text="report")["runs"] == []
        assert search(admin, arg="to=42", queue="default")["runs"] == []

    def test_the_page_has_the_same_filter(self, admin):
        page = admin.get("/runs", params={"arg": "address.city=Bern"})

        assert page.status_code == 200
        assert 'value="address.city=Bern"' in page.text
        assert ">report</a>" in page.text
        assert ">send_email</a>" not in page.text

    @pytest.mark.parametrize("term", ["customer", "=1", "a..b=1", ".=1", ""])
    def test_a_term_has_a_name_and_a_value(self, admin, term):
        with pytest.raises(InvalidOption):
            parse_argument(term)
        assert admin.get(f"{API}/runs", params={"arg": term}).status_code == 422

    def test_bulk_actions_take_the_runs_that_were_found(self, admin):
        page = admin.get("/runs/bulk", params={"arg": "to=42"})

        assert "<strong>1</strong> run matches" in page.text

    def test_export_has_the_runs_that_were_found(self, admin):
        rows = admin.get("/runs/export.json", params={"arg": "to=42"}).json()

        assert [row["args"]["to"] for row in rows] == ["42"]


@pytest.mark.parametrize("value", ["ünï", 'a"b', "a\\b", "Straße", "\u212a", "x\ny", 7.5, b"abc"])
def test_stored_arguments_are_decoded_before_they_are_compared(admin, app, value):
    @app.job
    def keep(value: object) -> None: ...

    app.dispatch("keep", value=value)
    [shown] = search(admin)["runs"]
    text = str(shown["args"]["value"])

    if "\n" not in text:
        assert len(search(admin, arg=f"value={text}")["runs"]) == 1
        assert len(search(admin, text=text)["runs"]) == 1


class TestBounds:
    def test_a_filter_without_an_index_reads_a_bounded_number_of_rows(
        self, admin, app, monkeypatch
    ):
        monkeypatch.setattr(run_search, "SCAN_MAX", 5)
        app.dispatch("send_email", to="ann")
        for _ in range(12):
            app.dispatch("fails")

        first = search(admin, queue="emails", count="true")
        assert first["runs"] == []
        assert first["searched_since"] is not None
        assert first["total"] == {"number": 0, "precision": "at_least"}
        page = admin.get("/runs", params={"queue": "emails"}).text
        assert "Searched the newest runs, back to" in page
        assert "Search older runs" in page
        second = search(admin, queue="emails", cursor=first["cursor"])
        third = search(admin, queue="emails", cursor=second["cursor"])
        assert [run["queue"] for run in third["runs"]] == ["emails"]
        assert (third["cursor"], third["searched_since"]) == (None, None)

    def test_a_text_is_searched_in_a_bounded_number_of_runs(self, admin, app, monkeypatch):
        monkeypatch.setattr(run_search, "SEARCHED_MAX", 4)
        monkeypatch.setattr(run_reader, "STEP_FIRST", 2)
        for number in range(9):
            app.dispatch("send_email", to="needle" if number == 0 else "hay")

        found, cursor, pages = [], None, 0
        while pages == 0 or cursor:
            answer = search(admin, text="needle", **({"cursor": cursor} if cursor else {}))
            found += answer["runs"]
            cursor, pages = answer["cursor"], pages + 1
        assert (len(found), pages) == (1, 3)

    def test_an_action_changes_every_run_that_a_search_finds(self, admin, app):
        @app.job
        def keep(value: str) -> None: ...

        keep.dispatch_many([{"value": "hay"}] * 100 + [{"value": "needle"}] * 700)

        page = admin.get("/runs/bulk", params={"text": "needle"}).text
        assert "<strong>700</strong> runs match of 800 runs that were searched:" in page
        assert 'data-confirm="Cancel 700 runs?"' in page
        assert cancel_all(admin, app, text="needle") == 700

    def test_an_action_states_how_far_back_it_searches(self, admin, app, monkeypatch):
        monkeypatch.setattr(run_search, "SEARCHED_MAX", 4)
        monkeypatch.setattr(run_reader, "STEP_FIRST", 2)
        for number in range(9):
            app.dispatch("send_email", to="hay" if number == 8 else "needle")

        page = admin.get("/runs/bulk", params={"arg": "to=needle"}).text
        assert "<strong>3</strong> runs match of 4 runs that were searched, back to" in page
        assert "older runs are not changed:" in page
        assert 'data-confirm="Cancel 3 runs?"' in page
        assert cancel_all(admin, app, arg="to=needle") == 3

    def test_an_export_has_every_run_that_a_search_finds(self, admin, app):
        @app.job
        def keep(value: str) -> None: ...

        keep.dispatch_many([{"value": "needle"}] * 700)

        rows = admin.get("/runs/export.json", params={"text": "needle"}).json()
        assert len({row["id"] for row in rows}) == 700

    def test_a_full_page_continues_after_its_last_run(self, admin, app):
        for number in range(5):
            app.dispatch("send_email", to=f"ann-{number}")

        first = search(admin, text="ann-", limit=2)
        second = search(admin, text="ann-", limit=2, cursor=first["cursor"])
        third = search(admin, text="ann-", limit=2, cursor=second["cursor"])
        shown = [run["args"]["to"] for page in (first, second, third) for run in page["runs"]]
        assert shown == [f"ann-{number}" for number in (4, 3, 2, 1, 0)]
        assert third["cursor"] is None

    def test_the_number_of_runs_that_match(self, admin, app, monkeypatch):
        for _ in range(5):
            app.dispatch("fails")

        assert search(admin)["total"] is None
        exact = {"number": 5, "precision": "exact"}
        assert search(admin, count="true")["total"] == exact
        assert search(admin, count="true", limit=2)["total"] == exact
        monkeypatch.setattr(run_search, "COUNTED_MAX", 3)
        assert search(admin, count="true", limit=2)["total"] == {
            "number": 3,
            "precision": "at_least",
        }


@pytest.mark.parametrize(
    ("number", "precision", "text"),
    [
        (7, CountPrecision.EXACT, "7"),
        (10_000, CountPrecision.AT_LEAST, "10,000+"),
        (1_003_411, CountPrecision.ABOUT, "about 1,000,000"),
        (968_211, CountPrecision.ABOUT, "about 970,000"),
    ],
)
def test_a_number_shows_how_precise_it_is(number, precision, text):
    assert total(RunCount(number, precision)) == text


def test_a_search_reads_no_arguments_that_cannot_fit(app):
    app.dispatch("send_email", to="ann")
    [summary] = app.runs.recent(RunFilter(), limit=1)

    class Refusing(RunPresenter):
        def read_args(self, job: str, text: str) -> dict[str, object]:
            raise AssertionError("the arguments were decoded")

    presenter = Refusing(app.registry, ())
    assert not RunSearch("needle").fits(summary, presenter)
    assert not RunSearch("", [parse_argument("to=bob")]).fits(summary, presenter)


class TestErrorsRuntimesAndOrders:
    """Runs are found by the text of their error, by their runtime and by their worker."""

    @pytest.fixture
    def client(self, client_of, tmp_path):
        clock = ManualClock(NOON)
        with Tickwork(f"sqlite:///{tmp_path}/timed.db?synchronous=NORMAL", clock=clock) as app:

            @app.job
            def load(source: str, seconds: int) -> None:
                clock.advance(seconds=seconds)
                if source.startswith("bad"):
                    raise ConnectionError(f"the server refused row {seconds} of '{source}'")

            for source, seconds in (("a", 3), ("bad-1", 10), ("bad-2", 20), ("b", 30)):
                app.dispatch("load", source=source, seconds=seconds)
                clock.advance(seconds=1)
            while app.run():
                clock.advance(seconds=1)
            self.app = app
            yield client_of(of=app)

    def sources(self, client, **params):
        return [run["args"]["source"] for run in search(client, **params)["runs"]]

    def test_by_error(self, client):
        [group] = self.app.inspect.error_groups(RunFilter()).groups

        assert group.text == "ConnectionError: the server refused row # of '#'"
        assert group.count == 2
        assert self.sources(client, error=group.text) == ["bad-2", "bad-1"]
        assert self.sources(client, error="refused row 7") == ["bad-2", "bad-1"]
        assert self.sources(client, error="timeout") == []

    def test_by_runtime(self, client):
        assert self.sources(client, longer="20s") == ["b", "bad-2"]
        assert self.sources(client, longer="20s", status="completed") == ["b"]

    def test_by_worker(self, client):
        [run] = search(client, limit=1)["runs"]

        assert len(self.sources(client, worker=run["worker"])) >= 1
        assert self.sources(client, worker=run["id"]) == []

    @pytest.mark.parametrize(
        ("order", "sources"),
        [
            ("newest", ["b", "bad-2", "bad-1", "a"]),
            ("oldest", ["a", "bad-1", "bad-2", "b"]),
            ("runtime", ["b", "bad-2", "bad-1", "a"]),
            ("wait", ["b", "bad-2", "bad-1", "a"]),
            ("ended", ["b", "bad-2", "bad-1", "a"]),
        ],
    )
    def test_in_another_order_page_by_page(self, client, order, sources):
        found, cursor = [], ""
        for _ in range(5):
            page = search(client, sort=order, limit=2, **({"cursor": cursor} if cursor else {}))
            found += [run["args"]["source"] for run in page["runs"]]
            cursor = page["cursor"]
            if cursor is None:
                break

        assert found == sources


class TestCountOfSearch:
    """``count=true`` counts the matches of a search, too."""

    @pytest.fixture
    def count(self, admin, app):
        app.draft.dispatch_many("send_email", [{"to": f"u{n % 3}@example.org"} for n in range(30)])

        def request(**params):
            answer = admin.get("/api/v1/runs", params={"count": "true", "limit": 5, **params})
            total = answer.json()["total"]
            return total["number"], total["precision"]

        return request

    def test_with_a_text_and_an_argument(self, count):
        assert count(text="u1@") == (10, "exact")
        assert count(arg="to=u2@example.org") == (10, "exact")
        assert count(text="nothing") == (0, "exact")

    def test_in_another_order(self, count):
        assert count(sort="oldest") == (30, "exact")

    def test_a_search_that_ends_at_its_limit_says_so(self, count, monkeypatch):
        monkeypatch.setattr("tickwork._inspect.run_search.SEARCHED_MAX", 15)

        assert count(text="u1@") == (5, "at_least")
