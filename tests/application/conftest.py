"""The public API, on each database.

app          an application on a fresh database, moved by ``clock``
clock        its clock: nothing here sleeps
make_app     another application on the same database: another program
passes       run what is due until nothing is, and return how many attempts that took
"""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from servers import mariadb
from tickwork import Tickwork
from tickwork.testing import ManualClock

DATABASES = [
    "sqlite",
    pytest.param("postgres", marks=[pytest.mark.servers("postgres")]),
    pytest.param("mariadb", marks=[pytest.mark.servers("mariadb")]),
]
# All tables but those that an installation fills.
EMPTIED = [
    f"tickwork_{name}"
    for name in (
        *("run", "history", "attempt", "log", "slot", "limit", "unique", "schedule", "job"),
        *("definition", "pause", "worker", "lock", "rate", "start", "step"),
        *("event", "wait", "edge", "outbox"),
    )
]


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> str:
    """The kind of database that this test runs on."""
    return str(request.param)


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until a test moves it."""
    return ManualClock()


@pytest.fixture
def url(database: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database."""
    if database == "sqlite":
        # No test here is about power cuts, and syncing to disk takes most of the time.
        yield f"sqlite:///{request.getfixturevalue('tmp_path')}/jobs.db?synchronous=NORMAL"
        return
    if database == "mariadb":
        found = request.getfixturevalue("application_mariadb")
        yield found
        mariadb.empty(found)
        return
    found = request.getfixturevalue("application_postgres")
    yield found
    with psycopg.connect(found, autocommit=True) as connection:
        connection.execute(f"TRUNCATE {', '.join(EMPTIED)}".encode())


@pytest.fixture(scope="session")
def application_postgres(postgres_databases: Any) -> Iterator[str]:
    """A database that these tests share, emptied after each."""
    database = postgres_databases.create_database()
    found = postgres_databases.url(database)
    with Tickwork(found) as app:
        app.install()
    yield found
    postgres_databases.drop_database(database)


@pytest.fixture(scope="session")
def application_mariadb(mariadb_databases: Any) -> Iterator[str]:
    """The same on MariaDB."""
    database = mariadb_databases.create_database()
    found = mariadb_databases.url(database)
    with Tickwork(found) as app:
        app.install()
    yield found
    mariadb_databases.drop_database(database)


@pytest.fixture
def make_app(url: str, clock: ManualClock) -> Iterator[Callable[..., Tickwork]]:
    """Applications on this database."""
    made: list[Tickwork] = []

    def make(**settings: Any) -> Tickwork:
        app = Tickwork(url, **{"clock": clock, "install": True, **settings})
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


@pytest.fixture
def app(make_app: Callable[..., Tickwork]) -> Tickwork:
    """An application on a fresh database."""
    return make_app()


@pytest.fixture
def passes() -> Callable[[Tickwork], int]:
    """Execute everything that is due."""

    def run(app: Tickwork, limit: int = 100) -> int:
        total = 0
        for _ in range(limit):
            made = app.run()
            if not made:
                return total
            total += made
        raise AssertionError("It never ends.")

    return run
