"""Settings of a MariaDB or MySQL server that other applications need: each keeps working."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from servers import mariadb
from servers.mariadb import MariaDBServer
from servers.mysql import ChosenServer
from tickwork import Tickwork
from tickwork._domain.runs.status import RunStatus
from tickwork._stores.mysql.store import MysqlStore
from tickwork.testing import ManualClock

pytestmark = pytest.mark.servers("mariadb")

TEXT = """it's a \\ back"slash, `quoted` %s :name 日本 🎉"""
ISOLATION = "/*M! tx_isolation */ /*!80017 transaction_isolation */"
KEYS = "/*M! innodb_force_primary_key */ /*!80017 sql_require_primary_key */"


class LowercaseServer(ChosenServer):  # type: ignore[misc,valid-type]  # chosen at run time
    """A server that stores names of tables in lower case: MySQL must be prepared that way."""

    kind = f"{ChosenServer.kind}-lowercase"
    setting = "--lower-case-table-names=1"

    def _prepare_command(self, data_folder: Path) -> list[str | Path]:
        return [*super()._prepare_command(data_folder), self.setting]

    def _server_command(self) -> list[str | Path]:
        return [*super()._server_command(), self.setting]


@contextmanager
def globally(server: MariaDBServer, name: str, value: str) -> Iterator[None]:
    """Change a default of the server for new connections."""
    with mariadb.connect(server.url()) as connection:
        [[before]] = connection.execute(f"SELECT @@global.{name}").fetchall()
        connection.execute(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        with mariadb.connect(server.url()) as connection:
            connection.execute(f"SET GLOBAL {name} = {connection.escape(before)}")


def check_everything(url: str) -> None:
    """Use every table, and read every text back."""
    clock = ManualClock()
    with Tickwork(url, clock=clock, install=True) as app:

        @app.job(concurrency=1, attempts=2)
        def echo(text: str = TEXT, fails: bool = False) -> str:
            if fails:
                raise ValueError(text)
            return text

        app.schedule("daily", echo).every(hours=12)
        good = echo.unique(by="text").tags("a").dispatch(TEXT)
        bad = echo.dispatch(TEXT, fails=True)
        with app.lock(TEXT):
            while app.run():
                clock.advance(timedelta(hours=6))

        assert good.result() == TEXT
        assert bad.status is RunStatus.FAILED_PERMANENT
        assert [attempt.error for attempt in bad.attempts()] == [f"ValueError: {TEXT}"] * 2
        [schedule] = app.schedules.list()
        assert schedule.last_fired_at is not None
        clock.advance(timedelta(days=40))
        assert app.prune().runs


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sql_mode", "''"),
        ("sql_mode", "'ANSI_QUOTES'"),
        ("sql_mode", "'ANSI,NO_BACKSLASH_ESCAPES'"),
        ("time_zone", "'+05:30'"),
        (ISOLATION, "'REPEATABLE-READ'"),
        (ISOLATION, "'SERIALIZABLE'"),
        (KEYS, "1"),  # as group replication does
    ],
)
def test_a_default_of_the_server(mariadb_server, mariadb_url, name, value):
    with globally(mariadb_server, name, value):
        check_everything(mariadb_url)


def test_names_of_tables_in_lower_case():
    with LowercaseServer(fsync=False) as server:
        check_everything(server.url(server.create_database()))


def test_times_of_a_server_that_is_not_in_utc(mariadb_server, mariadb_url):
    store = MysqlStore(mariadb_url)
    store.install()
    with (
        globally(mariadb_server, "time_zone", "'+05:30'"),
        mariadb.connect(mariadb_url, autocommit=False) as other,
    ):
        store.close()  # new connections have the new default
        other.execute("SELECT only_one FROM tickwork_meta FOR UPDATE")
        now = datetime.now(UTC)  # noqa: TID251  # the clock of the server cannot be moved
        found = store.health().oldest_transaction
        assert found is not None
        assert "connection" in found.holder
        assert found.ending.startswith("KILL ")
        oldest = found.began_at

        assert abs(store.database_time() - now) < timedelta(seconds=20)
        assert abs(oldest - now) < timedelta(seconds=20)
    store.close()
