"""Debounce, and unique runs that the last dispatch replaces."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from servers import mariadb
from tickwork import RunContext, RunStatus, Tickwork, testing
from tickwork._inspect.definitions import describe_jobs
from tickwork.errors import DefinitionError, InvalidOption
from tickwork.events import RunDispatched, RunReplaced

SECOND = timedelta(seconds=1)


def calls_of(app: Tickwork, **options: Any) -> tuple[Any, list[tuple[int, str]]]:
    """A job with these options, and the arguments with which it was called."""
    calls: list[tuple[int, str]] = []

    def index(doc: int, text: str = "") -> None:
        calls.append((doc, text))

    return app.job(name="index", **options)(index), calls


@pytest.fixture
def connection(url: str, database: str, app: Tickwork) -> Iterator[Any]:
    """A connection of the program, with an open transaction."""
    app.install()
    if database == "sqlite":
        opened: Any = sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0])
    elif database == "mariadb":
        opened = mariadb.connect(url, autocommit=False)
    else:
        opened = psycopg.connect(url)
    with closing(opened):
        yield opened
        opened.rollback()


class TestReplace:
    """With ``on_conflict="replace"`` the last arguments win, and a claimed run is not touched."""

    UNIQUE: Any = {"by": "doc", "on_conflict": "replace"}  # noqa: RUF012  # not changed

    def test_the_waiting_run_gets_the_arguments_of_the_last_dispatch(self, app, passes):
        index, calls = calls_of(app, unique=self.UNIQUE)

        first, second = index.dispatch(7, "old"), index.dispatch(7, "new")
        other = index.dispatch(8, "other")

        assert (first.is_new, first.is_replaced) == (True, False)
        assert (second.is_new, second.is_replaced) == (False, True)
        assert second == first
        assert other.is_new
        assert passes(app) == 2
        assert sorted(calls) == [(7, "new"), (8, "other")]

    def test_a_running_run_is_not_touched(self, app, passes):
        seen: list[str] = []

        @app.job(unique=self.UNIQUE)
        def sync(doc: int, text: str) -> None:
            if text == "first":
                again = [sync.dispatch(doc, "second"), sync.dispatch(doc, "third")]
                assert [run.is_new for run in again] == [True, False]
                assert [run.is_replaced for run in again] == [False, True]
            seen.append(text)

        first = sync.dispatch(7, "first")

        assert passes(app) == 2
        assert seen == ["first", "third"]
        assert first.read().args == '{"doc":7,"text":"first"}'

    def test_a_run_that_waits_for_its_retry_is_not_touched(self, app, clock, passes):
        seen: list[str] = []

        @app.job(unique=self.UNIQUE, attempts=2, delays=["1m"])
        def sync(doc: int, text: str) -> None:
            seen.append(text)
            if len(seen) == 1:
                raise ValueError("no")

        sync.dispatch(7, "first")
        passes(app)
        second = sync.dispatch(7, "second")
        clock.advance(minutes=2)
        passes(app)

        assert second.is_new
        assert sorted(seen) == ["first", "first", "second"]

    def test_a_draft_can_replace(self, app):
        index, _ = calls_of(app)
        draft = index.unique("key", on_conflict="replace").tags("red")

        first, second = draft.dispatch(1, "a"), draft.queue("slow").delay("1h").dispatch(2, "b")

        found = first.read()
        assert second == first
        assert (found.args, found.queue, found.tags) == ('{"doc":2,"text":"b"}', "slow", ("red",))

    def test_tenants_and_jobs_share_no_key(self, app):
        index, _ = calls_of(app, unique=self.UNIQUE)
        other = app.schedule("other", lambda doc: None).unique(by="doc", on_conflict="replace")

        assert index.dispatch(7).is_new
        assert index.tenant("acme").dispatch(7).is_new
        assert other.dispatch(7).is_new

    def test_dispatch_many(self, app, passes):
        index, calls = calls_of(app, unique=self.UNIQUE)
        index.dispatch(1, "old")

        runs = index.dispatch_many(
            [{"doc": doc, "text": text} for doc, text in [(2, "a"), (1, "b"), (2, "c"), (3, "d")]]
        )

        assert [run.is_new for run in runs] == [True, False, False, True]
        assert [run.is_replaced for run in runs] == [False, True, True, False]
        assert passes(app) == 3
        assert sorted(calls) == [(1, "b"), (2, "c"), (3, "d")]

    def test_a_follow_up_replaces_too(self, app, passes):
        index, calls = calls_of(app, unique=self.UNIQUE)

        @app.job
        def change(ctx: RunContext, text: str) -> None:
            ctx.then(index.delay("1m"), 7, text)

        index.delay("1m").dispatch(7, "old")
        change.dispatch("new")
        passes(app)
        app.clock.advance(minutes=2)
        passes(app)

        assert calls == [(7, "new")]

    def test_firings_are_not_replaced(self, app, clock, passes):
        seen: list[int] = []

        def sync(doc: int) -> None:
            seen.append(doc)

        builder = app.schedule("sync", sync).every("1m").overlap("allow").misfire("all")
        builder.unique("key", on_conflict="replace").args(doc=7)

        passes(app)
        clock.advance(minutes=3)
        passes(app)

        assert len(seen) == 3

    def test_events_tell_what_was_added_and_what_was_replaced(self, app):
        index, _ = calls_of(app, unique=self.UNIQUE)
        heard: list[Any] = []
        app.on(RunDispatched)(heard.append)
        app.on(RunReplaced)(heard.append)

        run = index.dispatch(7, "a")
        index.queue("slow").dispatch(7, "b")

        assert [type(each) for each in heard] == [RunDispatched, RunReplaced]
        assert {each.run_id for each in heard} == {run.id}
        assert (heard[1].job, heard[1].queue) == ("index", "slow")

    def test_keep_stays_the_default(self, app):
        index, _ = calls_of(app, unique={"by": "doc", "on_conflict": "keep"})

        first, second = index.dispatch(7, "old"), index.dispatch(7, "new")

        assert (second.is_new, second.is_replaced) == (False, False)
        assert first.read().args == '{"doc":7,"text":"old"}'

    def test_a_canceled_run_is_not_replaced(self, app):
        index, _ = calls_of(app, unique=self.UNIQUE)
        index.dispatch(7, "old").cancel()

        assert index.dispatch(7, "new").is_new


class TestReplaceInTransactions:
    """The replacement is committed together with the caller's writes, or not at all."""

    UNIQUE = TestReplace.UNIQUE

    def test_after_a_commit_the_run_has_the_new_arguments(self, app, connection, passes):
        index, calls = calls_of(app, unique=self.UNIQUE)
        index.dispatch(7, "old")

        run = index.using(connection).dispatch(7, "new")
        connection.commit()

        assert run.is_replaced
        assert passes(app) == 1
        assert calls == [(7, "new")]

    def test_after_a_rollback_it_has_the_old_ones(self, app, connection, passes):
        index, calls = calls_of(app, unique=self.UNIQUE)
        index.dispatch(7, "old")

        index.using(connection).dispatch(7, "new")
        connection.rollback()

        assert passes(app) == 1
        assert calls == [(7, "old")]

    def test_two_dispatches_in_one_transaction_add_one_run(self, app, connection, passes):
        index, calls = calls_of(app, unique=self.UNIQUE)

        first = index.using(connection).dispatch(7, "old")
        second = index.using(connection).dispatch_many([{"doc": 7, "text": "new"}])
        connection.commit()

        assert second == [first]
        assert passes(app) == 1
        assert calls == [(7, "new")]

    def test_no_event_before_the_commit(self, app, connection):
        index, _ = calls_of(app, unique=self.UNIQUE)
        index.dispatch(7, "old")
        heard: list[RunReplaced] = []
        app.on(RunReplaced)(heard.append)

        index.using(connection).dispatch(7, "new")

        assert heard == []

    def test_in_a_coroutine(self, app):
        index, _ = calls_of(app, unique=self.UNIQUE)

        async def dispatch() -> list[bool]:
            runs = [await index.aio.dispatch(7, text) for text in ("a", "b")]
            return [run.is_replaced for run in runs]

        assert asyncio.run(dispatch()) == [False, True]


class TestDebounce:
    """One run for each quiet period, with the last arguments."""

    def test_it_starts_after_the_quiet_period(self, app, clock, passes):
        index, calls = calls_of(app, debounce={"quiet": "10s", "by": "doc"})
        runs = []
        for text in "abc":
            runs.append(index.dispatch(7, text))
            clock.advance(seconds=8)
            assert passes(app) == 0

        clock.advance(seconds=3)

        assert passes(app) == 1
        assert calls == [(7, "c")]
        assert len(set(runs)) == 1
        assert [run.is_replaced for run in runs] == [False, True, True]

    def test_each_quiet_period_has_a_run(self, app, clock, passes):
        index, calls = calls_of(app, debounce="10s")
        for text in "ab":
            index.dispatch_many([{"doc": 7}, {"doc": 7}, {"doc": 8}])
            clock.advance(seconds=11)
            assert passes(app) == 2, text

        assert sorted(calls) == [(7, ""), (7, ""), (8, ""), (8, "")]

    def test_the_longest_wait_counts_from_the_first_dispatch(self, app, clock, passes):
        index, calls = calls_of(app, debounce={"quiet": "10s", "max": "30s", "by": "doc"})
        began_at = clock.now()
        started: list[timedelta] = []
        for number in range(40):
            index.dispatch(7, str(number))
            clock.advance(seconds=1)
            if passes(app):
                started.append(clock.now() - began_at)

        assert started == [30 * SECOND]
        assert calls == [(7, "29")]

    def test_a_run_that_is_due_keeps_its_time_and_gets_the_arguments(self, app, clock, passes):
        index, calls = calls_of(app, debounce={"quiet": "10s", "by": "doc"})
        run = index.dispatch(7, "a")
        due_at = run.read().due_at
        clock.advance(minutes=1)  # no worker was running

        assert index.dispatch(7, "b").is_replaced
        assert run.read().due_at == due_at
        assert passes(app) == 1
        assert calls == [(7, "b")]

    def test_a_running_run_is_not_touched(self, app, clock, passes):
        seen: list[str] = []

        @app.job(debounce={"quiet": "10s", "by": "doc"})
        def index(doc: int, text: str) -> None:
            seen.append(text)
            if text == "a":
                assert index.dispatch(doc, "b").is_new

        index.dispatch(7, "a")
        clock.advance(seconds=11)
        assert passes(app) == 1
        clock.advance(seconds=11)
        passes(app)

        assert seen == ["a", "b"]

    def test_a_draft_can_be_debounced(self, app, clock, passes):
        index, calls = calls_of(app)
        for text in "ab":
            index.debounce("10s", max="2m", by="doc").dispatch(7, text)
            clock.advance(seconds=5)
        clock.advance(seconds=6)

        assert passes(app) == 1
        assert calls == [(7, "b")]

    def test_a_builder_can_be_debounced(self, app):
        job = app.schedule("index", lambda doc: None).debounce("10s", by="doc")

        assert [job.dispatch(7).is_replaced for _ in range(2)] == [False, True]

    def test_in_a_transaction(self, app, clock, connection, passes):
        index, calls = calls_of(app, debounce={"quiet": "10s", "max": "2m", "by": "doc"})
        first = index.dispatch(7, "a")
        clock.advance(seconds=5)

        index.using(connection).dispatch(7, "b")
        connection.rollback()
        assert first.read().due_at == clock.now() + 5 * SECOND
        index.using(connection).dispatch(7, "c")
        connection.commit()

        assert first.read().due_at == clock.now() + 10 * SECOND
        clock.advance(seconds=11)
        assert passes(app) == 1
        assert calls == [(7, "c")]

    def test_a_retry_of_a_failed_run_is_due_at_once(self, app, clock, passes):
        @app.job(debounce="10s")
        def fails(doc: int) -> None:
            raise ValueError("no")

        run = fails.dispatch(7)
        clock.advance(seconds=11)
        passes(app)

        assert run.status is RunStatus.FAILED_PERMANENT
        assert run.retry().read().due_at == clock.now()
        assert fails.dispatch(7).is_new

    def test_expiry_counts_from_the_end_of_the_quiet_period(self, app, clock):
        index, _ = calls_of(app, debounce="10s", expires="5s")

        found = index.dispatch(7).read()

        assert found.expires_at == clock.now() + 15 * SECOND


class TestExplaining:
    """A debounced run tells when it starts, and why not now."""

    def test_explain_names_the_arguments_and_the_longest_wait(self, app, clock):
        index, _ = calls_of(app, debounce={"quiet": "10s", "max": "2m", "by": "doc"})
        run = index.dispatch(7)

        cause = app.explain(run.id).causes[0]

        assert cause.why == "debouncing"
        assert cause.until == clock.now() + 10 * SECOND
        assert cause.text == (
            "The run is debounced: it starts when no dispatch with the same doc has come for a"
            " while (10s), and at the latest 2m after the first one."
        )

    def test_a_draft_that_is_debounced(self, app):
        index, _ = calls_of(app)
        run = index.debounce("10s").dispatch(7)

        cause = app.explain(run.id).causes[0]

        assert cause.why == "debouncing"
        assert "with the same key" in cause.text

    def test_a_delayed_run_that_can_be_replaced(self, app):
        index, _ = calls_of(app, unique={"on_conflict": "replace"})
        run = index.delay("1h").dispatch(7)

        cause = app.explain(run.id).causes[0]

        assert cause.why == "delayed"
        assert "Another dispatch with its key replaces it." in cause.text

    def test_jobs_describe_it(self, app):
        calls_of(app, debounce={"quiet": "10s", "max": "2m", "by": "doc"})
        app.job(name="sync", unique={"by": "doc", "on_conflict": "replace"})(lambda doc: None)

        index, sync = describe_jobs(app.registry, job=None, timezone="UTC", now=app.clock.now())

        assert (index.debounce, index.unique) == ("10s by doc, at most 2m", None)
        assert (sync.debounce, sync.unique) == (None, "by doc, the last one wins")


class TestErrors:
    """What cannot be combined is an error where it is defined or dispatched."""

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"debounce": "0s"}, "must be longer than 0s"),
            ({"debounce": {"quiet": "10s", "max": "5s"}}, "must not be shorter than the quiet"),
            ({"debounce": "10s", "unique": True}, "must not be combined with unique"),
            ({"unique": {"within": "1h", "on_conflict": "replace"}}, "combined with within"),
            ({"unique": {"on_conflict": "cancel"}}, "must be one of keep, replace"),
        ],
    )
    def test_options(self, options, text):
        with testing.app() as app, pytest.raises(InvalidOption, match=text):
            calls_of(app, **options)[0].definition  # noqa: B018  # it checks

    def test_an_unknown_argument(self):
        with testing.app() as app:
            index, _ = calls_of(app)
            with pytest.raises(DefinitionError, match="'page', which its handler does not take"):
                index.debounce("10s", by="page").dispatch(7)

    @pytest.mark.parametrize("delayed", ["delay", "at"])
    def test_a_delay(self, delayed: str):
        with testing.app() as app:
            index, _ = calls_of(app, debounce="10s")
            when: Callable[..., Any] = getattr(index, delayed)
            value = "1m" if delayed == "delay" else app.clock.now()
            with pytest.raises(InvalidOption, match="must not be combined with debounce"):
                when(value).dispatch(7)

    def test_a_unique_draft_of_a_debounced_job(self):
        with testing.app() as app:
            index, _ = calls_of(app, debounce="10s")
            with pytest.raises(InvalidOption, match="must not be combined with unique"):
                index.unique("key").dispatch(7)
