"""Fixtures for all tests, and the summary of tests whose server is not on this machine.

    postgres_url, mariadb_url         a fresh database for one test
    postgres_server, mariadb_server   the private servers, started at their first use

A test that crashes a server starts one of its own, and has a marker:

    @pytest.mark.servers("postgres")
    def test_a_worker_survives_a_crash(self):
        with PostgresServer() as server:
            ...

Tests that use the fixtures get the marker by themselves, so `-m "not servers"` is quick.
"""

import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from servers import (
    choice,
    chromium,
    install,
    mysql,
    nginx,
    pgbouncer,
    postgres,
    promtool,
    rabbitmq,
    redis,
    workspace,
)
from servers.given import GivenServer, given_server
from servers.install import ServerUnavailable
from servers.mariadb import MariaDBServer
from servers.pgbouncer import PgBouncer
from servers.postgres import PostgresServer
from servers.private import known_servers
from servers.rabbitmq import RabbitMQServer
from servers.redis import RedisServer

FLAKY_VARIABLE = "TICKWORK_FLAKY_FILE"
"""Set by the Makefile when it runs failed tests again, alone."""

KINDS_BY_FIXTURE = {
    "postgres_server": "postgres",
    "postgres_databases": "postgres",
    "pgbouncer_server": "pgbouncer",
    "mariadb_server": "mariadb",
    "mariadb_databases": "mariadb",
    "rabbitmq_server": "rabbitmq",
    "redis_server": "redis",
}
FINDERS_BY_KIND: dict[str, Callable[..., object]] = {
    "postgres": postgres.find_programs,
    "mariadb": mysql.find_chosen,
    "mysql": mysql.find_programs,
    "pgbouncer": pgbouncer.find_programs,
    "chromium": chromium.find_programs,
    "nginx": nginx.find_programs,
    "promtool": promtool.find_programs,
    "rabbitmq": rabbitmq.find_programs,
    "redis": redis.find_programs,
}
# For -m, which cannot select by the arguments of a marker.
MARKERS_BY_KIND = {"postgres": "on_postgres", "mariadb": "on_mysql", "mysql": "on_mysql"}
NOT_RUN = pytest.StashKey[dict[str, list[str]]]()


# CI must not fail by chance: there the examples are the same each time. Elsewhere they are new
# ones, so that more is found over time. No deadlines: a busy machine is not a bug.
settings.register_profile("landing", deadline=None, derandomize=True, database=None)
settings.register_profile("exploring", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("landing" if os.environ.get("CI") else "exploring")


# ---------------------------------------------------------------- fixtures


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL that all tests share: make databases on it, but do not stop it."""
    with PostgresServer(fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDBServer]:
    """A MariaDB that all tests share, or a MySQL: make databases on it, but do not stop it."""
    with mysql.ChosenServer(fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitMQServer]:
    """A RabbitMQ that all tests share: use queues of your own, but do not stop it."""
    with RabbitMQServer(fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis that all tests share: use queues of your own, but do not stop it."""
    with RedisServer(fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_databases(request: pytest.FixtureRequest) -> PostgresServer | GivenServer:
    """Where PostgreSQL databases are made: on our server, or where TICKWORK_TEST_URL says."""
    server: PostgresServer | GivenServer = given_server("postgres") or request.getfixturevalue(
        "postgres_server"
    )
    return server


@pytest.fixture(scope="session")
def pgbouncer_server(postgres_databases: PostgresServer | GivenServer) -> Iterator[PgBouncer]:
    """A PgBouncer in transaction mode in front of it."""
    with PgBouncer(postgres_databases.url()) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_databases(request: pytest.FixtureRequest) -> MariaDBServer | GivenServer:
    """Where MariaDB databases are made: on our server, or where TICKWORK_TEST_URL says."""
    server: MariaDBServer | GivenServer = given_server("mariadb") or request.getfixturevalue(
        "mariadb_server"
    )
    return server


@pytest.fixture
def postgres_url(postgres_databases: PostgresServer | GivenServer) -> Iterator[str]:
    """The URL of an empty PostgreSQL database, for one test."""
    with fresh_database(postgres_databases) as url:
        yield url


@pytest.fixture
def mariadb_url(mariadb_databases: MariaDBServer | GivenServer) -> Iterator[str]:
    """The URL of an empty MariaDB database, for one test."""
    with fresh_database(mariadb_databases) as url:
        yield url


@contextmanager
def fresh_database(server: PostgresServer | MariaDBServer | GivenServer) -> Iterator[str]:
    database = server.create_database()
    try:
        yield server.url(database)
    finally:
        server.drop_database(database)


# ---------------------------------------------------------------- missing servers


def pytest_configure(config: pytest.Config) -> None:
    config.stash[NOT_RUN] = {}
    # Programs under test must not depend on the size of the terminal.
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    # A background shell, or nohup, ignores these signals, and child processes would inherit that.
    for name in ("SIGINT", "SIGQUIT", "SIGHUP"):
        number = getattr(signal, name, signal.SIGINT)
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    config.addinivalue_line(
        "markers", "servers(*kinds): needs a private server; given to users of its fixtures"
    )
    config.addinivalue_line("markers", "on_postgres: runs on PostgreSQL, too; given by itself")
    config.addinivalue_line("markers", "on_mysql: runs on MariaDB or MySQL; given by itself")


def pytest_report_header() -> str | None:
    """Print which servers are used if they are not the machine's own."""
    return f"servers: {choice.chosen()} ({choice.VARIABLE})" if choice.chosen() else None


@pytest.hookimpl(tryfirst=True)  # before -m evaluates the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        kinds = {KINDS_BY_FIXTURE[f] for f in _fixtures_of(item) if f in KINDS_BY_FIXTURE}
        if kinds:
            item.add_marker(pytest.mark.servers(*sorted(kinds)))
        for kind in _kinds_of(item) & MARKERS_BY_KIND.keys():
            item.add_marker(MARKERS_BY_KIND[kind])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Install missing servers now: within a test it would exceed the time limit."""
    if session.config.option.collectonly or not (install.may_install() or choice.chosen()):
        return
    for kind in sorted({kind for item in session.items for kind in _kinds_of(item)}):
        find_programs = FINDERS_BY_KIND[kind]
        try:
            find_programs(may_install=False)
        except ServerUnavailable as error:
            reporter = session.config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None:
                reporter.write_line(f"{error.what} Installing them; this takes a minute or two.")
            # A process that waited finds what the other one installed.
            with install.one_at_a_time(), suppress(ServerUnavailable):
                find_programs()  # if it fails, the tests that need it report it


def _fixtures_of(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


def _kinds_of(item: pytest.Item) -> set[str]:
    return {kind for marker in item.iter_markers("servers") for kind in marker.args}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with _skipped_when_unavailable(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _skipped_when_unavailable(item):
        return (yield)


@contextmanager
def _skipped_when_unavailable(item: pytest.Item) -> Iterator[None]:
    try:
        yield
    except ServerUnavailable as error:
        item.config.stash[NOT_RUN].setdefault(str(error), []).append(item.nodeid)
        pytest.skip(error.what)


def _servers_are_required() -> bool:
    names = ("CI", "TICKWORK_REQUIRE_SERVERS")
    return any(os.environ.get(name, "").lower() not in {"", "0", "false"} for name in names)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # a worker of pytest-xdist: the controller decides
        output["not_run"] = session.config.stash[NOT_RUN]
        return
    if session.config.stash[NOT_RUN] and _servers_are_required() and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect what a worker of pytest-xdist did not run."""
    not_run = node.config.stash[NOT_RUN]
    for reason, tests in getattr(node, "workeroutput", {}).get("not_run", {}).items():
        not_run.setdefault(reason, []).extend(tests)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if FLAKY_VARIABLE in os.environ:
        _list_flaky(terminalreporter, Path(os.environ[FLAKY_VARIABLE]))
    not_run = config.stash[NOT_RUN]
    if not not_run:
        return
    total = sum(map(len, not_run.values()))
    terminalreporter.section(f"NOT RUN: {total} tests lack a server", sep="!", red=True, bold=True)
    for reason, tests in not_run.items():
        terminalreporter.write_line(reason, red=True)
        for test in sorted(tests):
            terminalreporter.write_line(f"    {test}")
    if _servers_are_required():
        terminalreporter.write_line("That is a failure: servers are required here.", red=True)
    else:
        terminalreporter.write_line("With TICKWORK_REQUIRE_SERVERS=1 this would be a failure.")


def _list_flaky(reporter: pytest.TerminalReporter, path: Path) -> None:
    """List the tests that failed beside others and passed alone, and add them to a file."""
    flaky = sorted(report.nodeid for report in reporter.stats.get("passed", []))
    if flaky:
        reporter.section(
            f"FLAKY: {len(flaky)} tests failed beside others and passed alone", sep="!"
        )
        for test in flaky:
            reporter.write_line(f"    {test}")
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{test}\n" for test in flaky)


def pytest_unconfigure() -> None:
    workspace.close_current()


# ---------------------------------------------------------------- logs of servers


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and item.get_closest_marker("servers") is not None:
        for server in known_servers():
            if log := server.log_tail():
                report.sections.append((f"The end of the log of {server!r}", log))
    return report
