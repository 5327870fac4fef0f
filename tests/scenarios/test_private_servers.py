"""The private servers and the proxy that other tests rely on."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import psycopg
import pymysql
import pytest

from servers import guard, install, mariadb, postgres, workspace
from servers.given import GivenServer, given_server
from servers.install import ServerUnavailable
from servers.mariadb import MariaDBServer
from servers.postgres import PostgresServer
from servers.private import ServerFailed
from servers.proxy import TcpProxy

TESTS_FOLDER = Path(__file__).parent.parent
LOST_CONNECTION = (psycopg.OperationalError, pymysql.err.OperationalError)

Server = PostgresServer | MariaDBServer
Connection = Any  # psycopg's and PyMySQL's are used alike

pytestmark = pytest.mark.servers("postgres", "mariadb")


def connect(url: str, *, seconds_max: float = 10) -> Connection:
    """Open a connection that commits when told to."""
    if url.startswith("postgresql:"):
        return psycopg.connect(url, connect_timeout=max(2, int(seconds_max)))
    connection = mariadb.connect(url)
    connection.autocommit(False)
    return connection


def execute(connection: Connection, statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement.encode())
        return list(cursor.fetchall()) if cursor.description else []


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    connection = connect(url)
    try:
        rows = execute(connection, statement)
        connection.commit()
    finally:
        connection.close()
    return rows


def eventually(condition: Callable[[], bool], *, seconds_max: float = 10) -> bool:
    give_up_at = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.02)
    return True


def is_alive(pid: int) -> bool:
    return guard.started_ticks(pid) is not None


@pytest.fixture(params=[PostgresServer, MariaDBServer])
def server_class(request: pytest.FixtureRequest) -> type[Server]:
    return cast("type[Server]", request.param)


@pytest.fixture(params=["postgres_server", "mariadb_server"])
def shared_server(request: pytest.FixtureRequest) -> Server:
    return cast("Server", request.getfixturevalue(request.param))


@pytest.fixture
def database(shared_server: Server) -> Iterator[str]:
    name = shared_server.create_database()
    yield name
    shared_server.drop_database(name)


@pytest.fixture
def proxy(shared_server: Server) -> Iterator[TcpProxy]:
    with TcpProxy("127.0.0.1", shared_server.port) as proxy:
        yield proxy


@pytest.fixture
def proxied_url(shared_server: Server, database: str, proxy: TcpProxy) -> str:
    return shared_server.url(database, port=proxy.port)


class TestPrivateServer:
    """A private server answers on the loopback, keeps its data, and is gone afterwards."""

    def test_it_answers_through_the_fixtures(self, postgres_url: str, mariadb_url: str) -> None:
        assert ask(postgres_url, "SELECT 1") == [(1,)]
        assert ask(mariadb_url, "SELECT 1") == [(1,)]

    def test_it_listens_on_the_loopback_only(self, shared_server: Server) -> None:
        addresses = set()
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                local, state = line.split()[1], line.split()[3]
                address, port = local.split(":")
                if int(port, 16) == shared_server.port and state == "0A":  # LISTEN
                    addresses.add(address)

        assert addresses == {"0100007F"}

    def test_each_database_is_fresh(self, shared_server: Server, database: str) -> None:
        other = shared_server.create_database()
        ask(shared_server.url(database), "CREATE TABLE mine (x INT)")

        with pytest.raises((psycopg.errors.UndefinedTable, pymysql.err.ProgrammingError)):
            ask(shared_server.url(other), "SELECT x FROM mine")

        shared_server.drop_database(other)

    def test_a_database_in_use_can_be_dropped(self, shared_server: Server) -> None:
        name = shared_server.create_database()
        url = shared_server.url(name)
        ask(url, "CREATE TABLE held (x INT)")
        connection = connect(url)
        execute(connection, "INSERT INTO held VALUES (1)")

        shared_server.drop_database(name)

        with pytest.raises(LOST_CONNECTION):
            ask(url, "SELECT 1")
        connection.close()

    def test_stopped_and_started_it_keeps_data_and_port(self, server_class: type[Server]) -> None:
        with server_class(fsync=True) as server:
            url = server.url(server.create_database())
            ask(url, "CREATE TABLE kept (x INT)")
            ask(url, "INSERT INTO kept VALUES (42)")

            server.stop()
            with pytest.raises(LOST_CONNECTION):
                ask(url, "SELECT 1")
            server.start()

            assert ask(url, "SELECT x FROM kept") == [(42,)]

    def test_after_a_crash_it_has_what_was_committed_and_nothing_else_even_without_fsync(
        self, server_class: type[Server]
    ) -> None:
        with server_class(fsync=False) as server:
            url = server.url(server.create_database())
            ask(url, "CREATE TABLE kept (x INT)")
            connection = connect(url)
            execute(connection, "INSERT INTO kept VALUES (1)")
            connection.commit()
            execute(connection, "INSERT INTO kept VALUES (2)")

            server.crash()

            with pytest.raises(LOST_CONNECTION):
                execute(connection, "INSERT INTO kept VALUES (3)")
            connection.close()
            server.start()
            assert ask(url, "SELECT x FROM kept") == [(1,)]

    def test_it_may_be_restarted_from_a_thread_that_ends(self) -> None:
        with PostgresServer(fsync=False) as server:
            thread = threading.Thread(target=server.restart, args=["immediate"])
            thread.start()
            thread.join()

            assert ask(server.url(), "SELECT 1") == [(1,)]

    def test_two_run_side_by_side(
        self, server_class: type[Server], request: pytest.FixtureRequest
    ) -> None:
        shared_server: Server = request.getfixturevalue(f"{server_class.kind}_server")
        with server_class(fsync=False) as server:
            name = server.create_database()

            assert server.port != shared_server.port
            assert ask(server.url(name), "SELECT 1") == [(1,)]
            with pytest.raises(LOST_CONNECTION):
                ask(shared_server.url(name), "SELECT 1")

    def test_one_that_does_not_start_shows_its_log(self, server_class: type[Server]) -> None:
        with (
            pytest.raises(ServerFailed, match=r"no.such.option"),
            server_class(settings={"no_such_option": "1"}),
        ):
            pass

    def test_one_that_was_closed_leaves_nothing(self, server_class: type[Server]) -> None:
        threads = threading.active_count()
        with server_class(fsync=False) as server:
            pid, folder = server.pid, server.folder
            server.crash()
            server.start()
            pids = [pid, server.pid]
            server.crash()

        shared_memory = Path("/proc/sysvipc/shm").read_text(encoding="ascii").splitlines()[1:]
        assert not any(is_alive(pid) for pid in pids)
        assert not folder.exists()
        assert not [line for line in shared_memory if int(line.split()[4]) in pids]
        assert threading.active_count() == threads
        assert "ready" in server.log_tail()


class TestCommitWhoseAnswerIsLost:
    """The proxy can lose the answer to a commit that has happened."""

    def test_the_client_gets_an_error_and_the_row_is_there(
        self, shared_server: Server, database: str, proxy: TcpProxy, proxied_url: str
    ) -> None:
        ask(proxied_url, "CREATE TABLE kept (x INT)")
        connection = connect(proxied_url)
        lost = proxy.cut_after(b"COMMIT")
        execute(connection, "INSERT INTO kept VALUES (42)")

        with pytest.raises(LOST_CONNECTION):
            connection.commit()

        connection.close()
        assert lost.wait(5)
        assert ask(shared_server.url(database), "SELECT x FROM kept") == [(42,)]

    def test_only_one_connection_is_cut_and_only_once(
        self, proxy: TcpProxy, proxied_url: str
    ) -> None:
        bystander, victim = connect(proxied_url), connect(proxied_url)
        proxy.cut_after(lambda sent: b"SELECT 'now'" in sent)

        with pytest.raises(LOST_CONNECTION):
            execute(victim, "SELECT 'now'")

        victim.close()
        assert execute(bystander, "SELECT 'now'") == [("now",)]
        assert ask(proxied_url, "SELECT 'now'") == [("now",)]
        bystander.close()

    def test_the_answer_to_wait_for_can_be_told_where_requests_are_pipelined(
        self, postgres_server: PostgresServer
    ) -> None:
        database = postgres_server.create_database()
        ask(postgres_server.url(database), "CREATE TABLE kept (x INT)")
        with TcpProxy("127.0.0.1", postgres_server.port) as proxy:
            url = postgres_server.url(database, port=proxy.port)
            connection = psycopg.connect(url, autocommit=True)
            proxy.cut_after(b"COMMIT", answer=b"COMMIT")

            def commit_in_one_go() -> None:
                with connection.pipeline():
                    connection.execute("BEGIN")
                    connection.execute("INSERT INTO kept SELECT 1 FROM pg_sleep(0.2)")
                    connection.execute("COMMIT")

            with pytest.raises(psycopg.OperationalError):
                commit_in_one_go()

            connection.close()
        assert ask(postgres_server.url(database), "SELECT x FROM kept") == [(1,)]
        postgres_server.drop_database(database)


class TestProxy:
    """The proxy forwards until it is told to misbehave, and again when it is healed."""

    @pytest.mark.parametrize("reset", [False, True])
    def test_cut_it_ends_connections_and_refuses_new_ones_until_healed(
        self, proxy: TcpProxy, proxied_url: str, reset: bool
    ) -> None:
        connections = [connect(proxied_url) for _ in range(3)]
        assert proxy.connections == 3

        proxy.cut(reset=reset)

        for connection in connections:
            with pytest.raises(LOST_CONNECTION):
                execute(connection, "SELECT 1")
            connection.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port))
        proxy.heal()
        assert ask(proxied_url, "SELECT 1") == [(1,)]

    def test_stalled_it_accepts_and_does_not_answer_until_healed(
        self, proxy: TcpProxy, proxied_url: str
    ) -> None:
        connection = connect(proxied_url)
        proxy.stall()
        answers: list[list[tuple[Any, ...]]] = []
        waiting = threading.Thread(target=lambda: answers.append(execute(connection, "SELECT 7")))
        waiting.start()

        with socket.create_connection(("127.0.0.1", proxy.port), timeout=0.2) as stranger:
            stranger.sendall(b"\0" * 8)
            with pytest.raises(TimeoutError):
                stranger.recv(1)
        assert answers == []

        proxy.heal()
        waiting.join(10)
        assert answers == [[(7,)]]
        connection.close()

    def test_delayed_it_answers_late(self, proxy: TcpProxy, proxied_url: str) -> None:
        connection = connect(proxied_url)
        execute(connection, "SELECT 1")
        proxy.delay = 0.1

        began_at = time.monotonic()
        execute(connection, "SELECT 1")
        took = time.monotonic() - began_at

        proxy.delay = 0.0
        connection.close()
        assert 0.2 <= took < 2

    def test_much_passes_unchanged_on_many_connections_at_once(
        self, proxy: TcpProxy, proxied_url: str
    ) -> None:
        text = "0123456789abcdef" * 60_000
        answers: list[str] = []

        def echo() -> None:
            [(answer,)] = ask(proxied_url, f"SELECT '{text}'")
            answers.append(answer)

        threads = [threading.Thread(target=echo) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

        assert [answer == text for answer in answers] == [True] * 8
        assert eventually(lambda: proxy.connections == 0)

    def test_a_server_that_is_down_is_a_closed_connection(self) -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))  # bound, and not listening
            with (
                TcpProxy("127.0.0.1", nobody.getsockname()[1]) as proxy,
                socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as client,
            ):
                assert client.recv(1) == b""

    def test_closed_it_leaves_no_thread_and_no_socket(self, shared_server: Server) -> None:
        threads = threading.active_count()
        descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  counted, not used
        proxy = TcpProxy("127.0.0.1", shared_server.port)
        connection = connect(shared_server.url(port=proxy.port))

        proxy.close()
        proxy.close()

        connection.close()
        assert threading.active_count() == threads
        assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208  as above


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any database server, on which nothing can be installed."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(postgres, "FOLDER_PATTERNS", ())
    monkeypatch.setattr(mariadb, "FOLDERS", ())
    monkeypatch.setattr(install, "may_install", lambda: False)


class TestMissingServer:
    """A machine that cannot have a server says so, loudly, and what to do about it."""

    def test_the_error_says_what_was_looked_for_and_what_to_install(
        self, bare_machine: None
    ) -> None:
        with pytest.raises(ServerUnavailable, match=r"initdb and postgres.*\n.*PATH.*\n.*apt-get"):
            PostgresServer()
        with pytest.raises(ServerUnavailable, match=r"mariadbd.*\n.*PATH.*\n.*mariadb-server-core"):
            MariaDBServer()

    def test_a_program_that_only_has_the_name_is_not_taken(
        self, bare_machine: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name in ("postgres", "initdb", "mysqld", "mysql_install_db", "my_print_defaults"):
            (tmp_path / name).write_text("#!/bin/sh\necho something else\n", encoding="ascii")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

        for server_class in (PostgresServer, MariaDBServer):
            with pytest.raises(ServerUnavailable):
                server_class()

    def test_as_root_on_debian_it_is_installed_without_starting_anything(
        self, bare_machine: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """apt-get is played by a script that notes what it was told, and what it found."""
        policy, cluster_settings = tmp_path / "policy", tmp_path / "postgresql" / "settings"
        (tmp_path / "apt-get").write_text(
            "#!/bin/sh\n"
            f'echo "$@" "$DEBIAN_FRONTEND" >> {tmp_path}/orders\n'
            f"/bin/cat {policy} {cluster_settings} >> {tmp_path}/found 2>/dev/null\n"
            "exit 0\n",
            encoding="ascii",
        )
        (tmp_path / "apt-get").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(install, "may_install", lambda: True)
        monkeypatch.setattr(install, "POLICY", policy)
        monkeypatch.setattr(install, "CLUSTER_SETTINGS", cluster_settings)

        # The script installs nothing, so the programs are still not there afterwards.
        with pytest.raises(ServerUnavailable, match="not on this machine"):
            PostgresServer()

        update, download, unpack = (tmp_path / "orders").read_text(encoding="ascii").splitlines()
        assert " update " in update
        assert "--download-only" in download
        assert unpack.endswith("--yes --quiet --no-install-recommends postgresql noninteractive")
        found = (tmp_path / "found").read_text(encoding="ascii")
        assert "exit 101" in found
        assert "create_main_cluster = false" in found
        assert not policy.exists()
        assert not cluster_settings.exists()

    def test_an_installation_that_fails_is_not_tried_again(
        self, bare_machine: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "apt-get").write_text(
            f"#!/bin/sh\necho no network\necho x >> {tmp_path}/calls\nexit 100\n", encoding="ascii"
        )
        (tmp_path / "apt-get").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(install, "may_install", lambda: True)
        monkeypatch.setattr(install, "_failures", {})

        for _ in range(2):
            with pytest.raises(ServerUnavailable, match="no network"):
                MariaDBServer()

        assert (tmp_path / "calls").read_text(encoding="ascii") == "x\n"

    @pytest.mark.parametrize(
        ("environment", "status"),
        [({}, 0), ({"CI": "true"}, 1), ({"TICKWORK_REQUIRE_SERVERS": "1"}, 1)],
    )
    def test_the_summary_says_what_was_not_run_and_ci_fails(
        self, tmp_path: Path, environment: dict[str, str], status: int
    ) -> None:
        (tmp_path / "bare_machine.py").write_text(
            "import os\n"
            "from servers import install, mariadb, postgres\n"
            "os.environ['PATH'] = ''\n"
            "postgres.FOLDER_PATTERNS = mariadb.FOLDERS = ()\n"
            "install.may_install = lambda: False\n",
            encoding="utf-8",
        )
        (tmp_path / "test_it.py").write_text(
            "from servers.mariadb import MariaDBServer\n"
            "def test_by_fixture(postgres_url): pass\n"
            "def test_again(postgres_url): pass\n"
            "def test_by_hand(): MariaDBServer()\n"
            "def test_without(): pass\n",
            encoding="utf-8",
        )

        run = inner_pytest(tmp_path, "-p", "bare_machine", **environment)

        assert "NOT RUN: 3 tests lack a server" in run.stdout
        assert "initdb and postgres are not on this machine" in run.stdout
        assert "mariadbd, mariadb-install-db and my_print_defaults are not all" in run.stdout
        assert "1 passed, 3 skipped" in run.stdout
        assert run.returncode == status, run.stdout


class TestGivenServer:
    """TICKWORK_TEST_URL names a server to use instead of a private one."""

    def test_a_fresh_database_is_made_on_it(self, shared_server: Server) -> None:
        given = GivenServer(shared_server.url())

        name = given.create_database()
        rows = ask(given.url(name), "SELECT 1")
        given.drop_database(name)

        assert rows == [(1,)]
        assert name != given.given_database
        with pytest.raises(LOST_CONNECTION):
            ask(given.url(name), "SELECT 1")

    def test_without_the_right_to_make_one_the_given_database_is_used(
        self, shared_server: Server, database: str
    ) -> None:
        if isinstance(shared_server, PostgresServer):
            ask(shared_server.url(), "DROP ROLE IF EXISTS guest")
            ask(shared_server.url(), "CREATE ROLE guest LOGIN")
            url = shared_server.url(database).replace("postgres@", "guest@")
        else:
            ask(shared_server.url(), "CREATE OR REPLACE USER guest@'127.0.0.1'")
            ask(shared_server.url(), f"GRANT ALL ON {database}.* TO guest@'127.0.0.1'")
            url = shared_server.url(database).replace("root@", "guest@")
        given = GivenServer(url)

        name = given.create_database()
        given.drop_database(name)

        assert name == database
        assert ask(given.url(name), "SELECT 1") == [(1,)]

    def test_each_kind_finds_its_own(self) -> None:
        environment = {"TICKWORK_TEST_URL": "postgresql://a:b@db.example:5433/x?sslmode=require"}

        given = given_server("postgres", environment=environment)

        assert given is not None
        assert given.url("y") == "postgresql://a:b@db.example:5433/y?sslmode=require"
        assert given.url("y", port=7) == "postgresql://a:b@127.0.0.1:7/y?sslmode=require"
        assert given_server("mariadb", environment=environment) is None
        assert given_server("mariadb", environment={}) is None
        with pytest.raises(ValueError, match="'oracle'"):
            given_server("mariadb", environment={"TICKWORK_TEST_URL": "oracle://x/y"})


def inner_environment(folder: Path, **variables: str) -> dict[str, str]:
    ours = {"CI", "TICKWORK_TEST_URL", "TICKWORK_REQUIRE_SERVERS"}
    return {
        **{name: value for name, value in os.environ.items() if name not in ours},
        "PYTHONPATH": os.pathsep.join(
            [str(TESTS_FOLDER), str(folder), os.environ.get("PYTHONPATH", "")]
        ),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # it halves the time to start
        **variables,
    }


def inner_pytest(
    folder: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*inner_pytest_command(), *arguments, str(folder)],
        env=inner_environment(folder, **variables),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def inner_pytest_command() -> list[str]:
    return [
        *(sys.executable, "-m", "pytest", "-c", os.devnull),
        *("-p", "conftest", "-p", "no:cacheprovider"),
    ]


NOTE_FACTS = """
import json, os, pathlib, time
from servers import workspace

def note_facts(*servers, child=None):
    facts = {
        "pids": [*(server.pid for server in servers), workspace.current()._guard.pid],
        "folders": [str(folder) for folder in workspace.current().folders],
        "child": child,
    }
    pathlib.Path("facts.new").write_text(json.dumps(facts))
    pathlib.Path("facts.new").rename("facts")
    time.sleep(60)
"""

BUSY_TEST = """
from note_facts import note_facts

def test_busy(postgres_server, mariadb_server):
    note_facts(postgres_server, mariadb_server)
"""

BUSY_SCRIPT = """
import os, time
from note_facts import note_facts
from servers.mariadb import MariaDBServer
from servers.postgres import PostgresServer

servers = [PostgresServer(fsync=False).start(), MariaDBServer(fsync=False).start()]
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
note_facts(*servers, child=child)
"""


class TestAfterwards:
    """However a test process ends, its servers end too, and its folders go."""

    def end_when_busy(
        self, folder: Path, command: list[str], signal_number: signal.Signals
    ) -> dict[str, Any]:
        (folder / "note_facts.py").write_text(NOTE_FACTS, encoding="utf-8")
        with subprocess.Popen(
            command,
            env=inner_environment(folder),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                assert eventually((folder / "facts").exists, seconds_max=60)
                facts: dict[str, Any] = json.loads((folder / "facts").read_text(encoding="utf-8"))
                assert all(is_alive(pid) for pid in facts["pids"])
            finally:
                process.send_signal(signal_number)
        return facts

    def is_all_gone(self, facts: dict[str, Any]) -> bool:
        return eventually(
            lambda: (
                not any(is_alive(pid) for pid in facts["pids"])
                and not any(Path(folder).exists() for folder in facts["folders"])
            ),
            seconds_max=20,
        )

    def test_nothing_outlives_tests_that_are_interrupted(self, tmp_path: Path) -> None:
        (tmp_path / "test_busy.py").write_text(BUSY_TEST, encoding="utf-8")
        command = [*inner_pytest_command(), str(tmp_path)]

        facts = self.end_when_busy(tmp_path, command, signal.SIGINT)

        assert self.is_all_gone(facts)

    def test_nothing_outlives_a_process_that_is_killed_even_if_a_forked_child_lives_on(
        self, tmp_path: Path
    ) -> None:
        command = [sys.executable, "-c", BUSY_SCRIPT]

        facts = self.end_when_busy(tmp_path, command, signal.SIGKILL)

        assert is_alive(facts["child"])
        assert self.is_all_gone(facts)
        os.kill(facts["child"], signal.SIGKILL)

    def test_what_a_process_left_that_died_with_its_guard_is_swept_up_later(
        self, tmp_path: Path
    ) -> None:
        with subprocess.Popen(["true"]) as ended:
            started = guard.started_ticks(ended.pid) or 0
        stale = tmp_path / f"{workspace.PREFIX}{ended.pid}-{started}-abc"
        stale.mkdir()
        (stale / "data").touch()

        with subprocess.Popen(["tail", "-f", stale / "data"]) as server:  # as good as any
            command = Path(f"/proc/{server.pid}/cmdline")
            assert eventually(lambda: str(stale) in command.read_text(encoding="utf-8"))
            workspace.sweep(tmp_path)
            status = server.wait(10)

        assert status == -signal.SIGQUIT
        assert not stale.exists()

    def test_folders_of_others_are_left_alone(self, tmp_path: Path) -> None:
        started = guard.started_ticks(os.getpid())
        alive = tmp_path / f"{workspace.PREFIX}{os.getpid()}-{started}-abc"
        unknown = tmp_path / f"{workspace.PREFIX}mine"
        alive.mkdir()
        unknown.mkdir()

        workspace.sweep(tmp_path)

        assert alive.exists()
        assert unknown.exists()
