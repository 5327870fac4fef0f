"""A run that is finished in a transaction of the handler's own: with its writes, or not at all."""

import sqlite3

import psycopg
import pytest

from servers import mariadb
from tickwork import RunContext, RunStatus
from tickwork.errors import InvalidTransition


def connected(url):
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///").partition("?")[0]
        return sqlite3.connect(path, isolation_level=None)
    if url.startswith("mysql"):
        return mariadb.connect(url, autocommit=False)
    return psycopg.connect(url)


def begin(connection):
    if isinstance(connection, sqlite3.Connection):
        connection.execute("BEGIN IMMEDIATE")


@pytest.fixture
def finish(app, url):
    @app.job
    def finish(ctx: RunContext, is_kept: bool) -> str:
        connection = connected(url)
        try:
            begin(connection)
            ctx.complete(connection=connection, result="theirs")
            (connection.commit if is_kept else connection.rollback)()
        finally:
            connection.close()
        return "ours"

    return finish


def test_a_committed_completion_has_the_result_of_the_call(app, finish, passes, caplog):
    run = finish.dispatch(is_kept=True)

    passes(app)

    assert run.status is RunStatus.COMPLETED
    assert run.result() == "theirs"
    assert "lost" not in caplog.text


@pytest.mark.parametrize("is_kept", [True, False])
def test_follow_ups_are_added_in_the_same_transaction(app, url, passes, is_kept):
    seen: list[str] = []

    @app.job
    def send(to: str) -> None:
        seen.append(to)

    @app.job
    def order(ctx: RunContext) -> None:
        ctx.then("send", to="ann")
        connection = connected(url)
        try:
            begin(connection)
            ctx.complete(connection=connection)
            with pytest.raises(InvalidTransition):
                ctx.then("send", to="too late")
            (connection.commit if is_kept else connection.rollback)()
        finally:
            connection.close()

    order.dispatch()
    passes(app)

    assert seen == (["ann"] if is_kept else [])


def test_what_was_rolled_back_has_failed(app, finish, passes):
    run = finish.dispatch(is_kept=False)

    passes(app)

    assert run.status is RunStatus.FAILED_PERMANENT
    assert "not committed" in run.read().reason
