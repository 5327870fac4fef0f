"""The private servers and the proxy that other tests rely on."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pymysql
import pytest

from servers import choice, guard, install, mariadb, postgres, unpacked, workspace
from servers.given import GivenServer, given_server
from servers.install import ServerUnavailable
from servers.mariadb import MariaDBServer
from servers.mysql import ChosenServer, MySQLServer
from servers.postgres import PostgresServer
from servers.private import ServerFailed
from servers.proxy import TcpProxy

TESTS_FOLDER = Path(__file__).parent.parent
LOST_CONNECTION = (psycopg.OperationalError, pymysql.err.OperationalError)
NO_TABLE = (psycopg.errors.UndefinedTable, pymysql.err.ProgrammingError)

pytestmark = pytest.mark.servers("postgres", "mariadb")


def connect(url):
    """Open a connection that does not commit by itself."""
    if url.startswith("postgresql:"):
        return psycopg.connect(url, connect_timeout=10)
    return mariadb.connect(url, autocommit=False)


def execute(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement.encode())
        return list(cursor.fetchall()) if cursor.description else []


def query(url, *statements):
    """Execute the statements, commit, and return the rows of the last one."""
    with contextlib.closing(connect(url)) as connection:
        rows = [execute(connection, statement) for statement in statements]
        connection.commit()
    return rows[-1]


def eventually(condition, *, seconds_max=10):
    give_up_at = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.02)
    return True


def is_alive(pid):
    return guard.started_ticks(pid) is not None


@pytest.fixture(params=[PostgresServer, ChosenServer])
def server_class(request):
    return request.param


@pytest.fixture(params=["postgres_server", "mariadb_server"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def database(server):
    name = server.create_database()
    yield name
    server.drop_database(name)


@pytest.fixture
def proxy(server):
    with TcpProxy("127.0.0.1", server.port) as proxy:
        yield proxy


@pytest.fixture
def proxied_url(server, database, proxy):
    return server.url(database, port=proxy.port)


class TestPrivateServer:
    """A private server listens on the loopback, keeps its data, and leaves nothing behind."""

    def test_it_listens_on_the_loopback_only(self, server):
        lines = [
            line.split()
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{table}").read_text("ascii").splitlines()[1:]
        ]
        listening = [fields[1].split(":") for fields in lines if fields[3] == "0A"]

        found = {address for address, port in listening if int(port, 16) == server.port}
        assert found == {"0100007F"}

    def test_a_database_is_empty_at_first_and_can_be_dropped_while_in_use(self, server, database):
        query(server.url(database), "CREATE TABLE mine (x INT)")
        url = server.url(other := server.create_database())
        with pytest.raises(NO_TABLE):
            query(url, "SELECT x FROM mine")
        query(url, "CREATE TABLE mine (x INT)")
        with contextlib.closing(connect(url)) as connection:
            execute(connection, "INSERT INTO mine VALUES (1)")

            server.drop_database(other)

            with pytest.raises(LOST_CONNECTION):
                query(url, "SELECT 1")

    @pytest.mark.parametrize(("end", "fsync"), [("stop", True), ("crash", False)])
    def test_it_keeps_port_and_committed_rows_and_leaves_nothing_behind(
        self, server_class, end, fsync, request
    ):
        kind = "postgres" if server_class is PostgresServer else "mariadb"
        shared = request.getfixturevalue(f"{kind}_server")
        threads = threading.active_count()
        with server_class(fsync=fsync) as server:
            name, pids, folder = server.create_database(), [server.pid], server.folder
            query(url := server.url(name), "CREATE TABLE kept (x INT)")
            query(url, "INSERT INTO kept VALUES (1)")
            with contextlib.closing(connect(url)) as connection:
                execute(connection, "INSERT INTO kept VALUES (2)")  # not committed
                getattr(server, end)()
                with pytest.raises(LOST_CONNECTION):
                    execute(connection, "INSERT INTO kept VALUES (3)")
            with pytest.raises(LOST_CONNECTION):
                query(url, "SELECT 1")

            server.start()

            assert query(url, "SELECT x FROM kept") == [(1,)]
            assert server.port != shared.port
            with pytest.raises(LOST_CONNECTION):
                query(shared.url(name), "SELECT 1")
            pids.append(server.pid)
            getattr(server, end)()

        shared_memory = Path("/proc/sysvipc/shm").read_text("ascii").splitlines()[1:]
        assert not any(map(is_alive, pids))
        assert not folder.exists()
        assert not [line for line in shared_memory if int(line.split()[4]) in pids]
        assert threading.active_count() <= threads
        assert "ready" in server.log_tail()

    def test_it_may_be_restarted_from_a_thread_that_ends(self):
        with PostgresServer(fsync=False) as server:
            thread = threading.Thread(target=server.restart, args=["immediate"])
            thread.start()
            thread.join()

            assert query(server.url(), "SELECT 1") == [(1,)]

    def test_a_failed_start_shows_the_log(self, server_class):
        server = server_class(settings={"no_such_option": "1"})
        with pytest.raises(ServerFailed, match=r"no.such.option"), server:
            pass


class TestProxy:
    """The proxy forwards until a test makes it misbehave, and again after ``heal``."""

    @pytest.mark.parametrize("reset", [False, True])
    def test_a_cut_ends_connections_and_refuses_new_ones(self, proxy, proxied_url, reset):
        connections = [connect(proxied_url) for _ in range(3)]
        assert proxy.connections == 3

        proxy.cut(reset=reset)

        for connection in connections:
            with pytest.raises(LOST_CONNECTION), contextlib.closing(connection):
                execute(connection, "SELECT 1")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port))
        proxy.heal()
        assert query(proxied_url, "SELECT 1") == [(1,)]

    def test_delayed_or_stalled_it_answers_late_or_not_until_healed(self, proxy, proxied_url):
        with contextlib.closing(connect(proxied_url)) as connection:
            execute(connection, "SELECT 1")
            proxy.delay = 0.1
            begun = time.monotonic()
            execute(connection, "SELECT 1")
            assert 0.2 <= time.monotonic() - begun < 2

            proxy.stall()
            answers = []
            query_7 = threading.Thread(
                target=lambda: answers.append(execute(connection, "SELECT 7"))
            )
            query_7.start()
            with socket.create_connection(("127.0.0.1", proxy.port), timeout=0.2) as stranger:
                stranger.sendall(b"\0" * 8)
                with pytest.raises(TimeoutError):
                    stranger.recv(1)
            assert answers == []
            proxy.heal()
            query_7.join(10)
            assert answers == [[(7,)]]

    def test_large_answers_pass_unchanged_on_many_connections(self, proxy, proxied_url):
        text, answers = "0123456789abcdef" * 60_000, []
        threads = [
            threading.Thread(target=lambda: answers.extend(query(proxied_url, f"SELECT '{text}'")))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

        assert [answer == text for (answer,) in answers] == [True] * 8
        assert eventually(lambda: proxy.connections == 0)

    def test_one_connection_loses_the_answer_to_its_commit_and_the_row_is_there(
        self, server, database, proxy, proxied_url
    ):
        query(proxied_url, "CREATE TABLE kept (x INT)")
        connection, bystander = connect(proxied_url), connect(proxied_url)
        lost = proxy.cut_after(lambda sent: b"COMMIT" in sent)
        execute(connection, "INSERT INTO kept VALUES (42)")
        with pytest.raises(LOST_CONNECTION), contextlib.closing(connection):
            connection.commit()

        assert lost.wait(5)
        assert query(server.url(database), "SELECT x FROM kept") == [(42,)]
        with contextlib.closing(bystander):
            execute(bystander, "INSERT INTO kept VALUES (43)")
            bystander.commit()
        assert query(proxied_url, "SELECT x FROM kept ORDER BY x") == [(42,), (43,)]

    def test_pipelined_the_answer_to_wait_for_can_be_given(self, postgres_server, postgres_url):
        query(postgres_url, "CREATE TABLE kept (x INT)")
        with TcpProxy("127.0.0.1", postgres_server.port) as proxy:
            url = postgres_server.url(postgres_url.rpartition("/")[2], port=proxy.port)
            connection = psycopg.connect(url, autocommit=True)
            proxy.cut_after(b"COMMIT", answer=b"COMMIT")
            with pytest.raises(psycopg.OperationalError), connection.pipeline():  # noqa: PT012
                connection.execute("BEGIN")
                connection.execute("INSERT INTO kept SELECT 1 FROM pg_sleep(0.2)")
                connection.execute("COMMIT")
            connection.close()
        assert query(postgres_url, "SELECT x FROM kept") == [(1,)]

    def test_a_connection_to_a_dead_server_is_closed(self):
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))  # bound, and not listening
            with (
                TcpProxy("127.0.0.1", bound.getsockname()[1]) as proxy,
                socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as client,
            ):
                assert client.recv(1) == b""

    def test_closed_it_leaves_no_thread_and_no_socket(self, server):
        def used():
            return threading.active_count(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208

        before = used()
        proxy = TcpProxy("127.0.0.1", server.port)
        with contextlib.closing(connect(server.url(port=proxy.port))):
            proxy.close()
            proxy.close()
        assert used() == before


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """A machine whose only programs are the scripts in a folder; nothing can be installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres, "FOLDER_PATTERNS", ())
    monkeypatch.setattr(mariadb, "FOLDERS", ())
    monkeypatch.setattr(install, "may_install", lambda: False)
    monkeypatch.setattr(install, "_failures", {})
    monkeypatch.setattr(unpacked, "_failures", {})
    monkeypatch.setenv(unpacked.VARIABLE, str(tmp_path / "unpacked"))
    monkeypatch.delenv(choice.VARIABLE, raising=False)

    def write(*lines, names):
        for name in names:
            (tmp_path / name).write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="ascii")
            (tmp_path / name).chmod(0o755)

    return write


BARE_MACHINE = """
import os
from servers import install, mariadb, postgres
os.environ['PATH'] = ''
postgres.FOLDER_PATTERNS = mariadb.FOLDERS = ()
install.may_install = lambda: False
"""
TESTS_OF_SERVERS = """
from servers.mariadb import MariaDBServer
def test_by_fixture(postgres_url): pass
def test_again(postgres_url): pass
def test_by_class(): MariaDBServer()
def test_without(): pass
"""


class TestMissingServer:
    """A machine without a server fails loudly, with what to install."""

    @pytest.mark.parametrize("scripts", [(), ("postgres", "initdb", "mysqld", "mysql_install_db")])
    def test_the_error_names_what_is_missing_and_the_package(self, programs, scripts):
        programs("echo something else", names=(*scripts, *(["my_print_defaults"] * bool(scripts))))

        with pytest.raises(ServerUnavailable, match=r"initdb and postgres.*\n.*PATH.*\n.*apt-get"):
            PostgresServer()
        with pytest.raises(ServerUnavailable, match=r"mariadbd.*\n.*PATH.*\n.*mariadb-server-core"):
            MariaDBServer()
        with pytest.raises(ServerUnavailable, match=r"need apt-get and dpkg-deb.*\n.*apt sources"):
            MySQLServer()

    def test_root_on_debian_installs_it_without_starting_anything(
        self, programs, monkeypatch, tmp_path
    ):
        policy, cluster = tmp_path / "policy", tmp_path / "postgresql" / "settings"
        programs(
            f'echo "$@" "$DEBIAN_FRONTEND" >> {tmp_path}/calls',
            f"/bin/cat {policy} {cluster} >> {tmp_path}/found 2>/dev/null",
            "exit 0",
            names=["apt-get"],
        )
        monkeypatch.setattr(install, "may_install", lambda: True)
        monkeypatch.setattr(install, "POLICY", policy)
        monkeypatch.setattr(install, "CLUSTER_SETTINGS", cluster)

        with pytest.raises(ServerUnavailable, match="not on this machine"):  # it was a script
            PostgresServer()

        update, download, unpack = (tmp_path / "calls").read_text("ascii").splitlines()
        assert " update " in update
        assert "--download-only" in download
        assert unpack.endswith("--yes --quiet --no-install-recommends postgresql noninteractive")
        found = (tmp_path / "found").read_text("ascii")
        assert "exit 101" in found
        assert "create_main_cluster = false" in found
        assert not policy.exists()
        assert not cluster.exists()

    def test_a_failed_installation_is_not_repeated(self, programs, monkeypatch, tmp_path):
        programs("echo no network", f"echo x >> {tmp_path}/calls", "exit 100", names=["apt-get"])
        monkeypatch.setattr(install, "may_install", lambda: True)

        for _ in range(2):
            with pytest.raises(ServerUnavailable, match="no network"):
                MariaDBServer()

        assert (tmp_path / "calls").read_text("ascii") == "x\n"

    def test_packages_that_could_not_be_unpacked_leave_nothing(
        self, programs, monkeypatch, tmp_path
    ):
        sources = tmp_path / "debian.sources"
        sources.write_text("Signed-By: /keys.gpg\n", encoding="ascii")
        programs(
            'case "$*" in *indextargets*)',
            f"echo Debian bookworm-security http://one {sources}:1",
            f"echo Debian bookworm http://two {sources}:1 ;;",
            "*update*)",
            'for word; do case "$word" in Dir::Etc::SourceList=*)',
            f'/bin/cat "${{word#*=}}" >> {tmp_path}/source;; esac; done ;;',
            "*) echo no network; exit 100 ;; esac",
            names=["apt-get", "dpkg-deb"],
        )

        for _ in range(2):
            with pytest.raises(ServerUnavailable, match=r"(?s)mysql-server-core.*no network"):
                MySQLServer()

        source = (tmp_path / "source").read_text("ascii")
        assert source == "deb [signed-by=/keys.gpg] http://two sid main\n"  # once
        assert unpacked.find("mysql") is None
        assert [path.name for path in (tmp_path / "unpacked").iterdir()] == [".lock"]

    @pytest.mark.parametrize(
        ("environment", "status"),
        [({}, 0), ({"CI": "true"}, 1), ({"TICKWORK_REQUIRE_SERVERS": "1"}, 1)],
    )
    def test_the_summary_lists_what_was_not_run_and_ci_fails(self, tmp_path, environment, status):
        (tmp_path / "bare_machine.py").write_text(BARE_MACHINE, encoding="utf-8")
        (tmp_path / "test_it.py").write_text(TESTS_OF_SERVERS, encoding="utf-8")

        run = subprocess.run(
            [*PYTEST, "-p", "bare_machine", str(tmp_path)],
            env=inner_environment(tmp_path, **environment),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

        assert "NOT RUN: 3 tests lack a server" in run.stdout
        assert "initdb and postgres are not on this machine" in run.stdout
        assert "mariadbd, mariadb-install-db and my_print_defaults are not all" in run.stdout
        assert "1 passed, 3 skipped" in run.stdout
        assert run.returncode == status, run.stdout


class TestGivenServer:
    """TICKWORK_TEST_URL names a server to use instead of a private one."""

    def test_it_creates_and_drops_a_database_there(self, server):
        given = GivenServer(server.url())
        name = given.create_database()

        assert query(given.url(name), "SELECT 1") == [(1,)]
        assert name != given.given_database
        given.drop_database(name)
        with pytest.raises(LOST_CONNECTION):
            query(given.url(name), "SELECT 1")

    def test_without_the_right_to_create_one_it_uses_the_given_database(self, server, database):
        if server.kind == "postgres":
            rights = ["DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN"]
        else:
            guest = "guest@'127.0.0.1'"
            rights = [f"DROP USER IF EXISTS {guest}", f"CREATE USER {guest}"]
            rights += [f"GRANT ALL ON {database}.* TO {guest}"]
        query(server.url(), *rights)
        own_user = "postgres@" if server.kind == "postgres" else "root@"
        given = GivenServer(server.url(database).replace(own_user, "guest@"))

        name = given.create_database()
        given.drop_database(name)

        assert name == database
        assert query(given.url(name), "SELECT 1") == [(1,)]

    def test_each_kind_finds_its_own_url(self):
        environment = {"TICKWORK_TEST_URL": "postgresql://a:b@db.example:5433/x?sslmode=require"}
        given = given_server("postgres", environment=environment)

        assert given is not None
        assert given.url("y") == "postgresql://a:b@db.example:5433/y?sslmode=require"
        assert given.url("y", port=7) == "postgresql://a:b@127.0.0.1:7/y?sslmode=require"
        assert given_server("mariadb", environment=environment) is None
        assert given_server("mariadb", environment={}) is None
        with pytest.raises(ValueError, match="'oracle'"):
            given_server("mariadb", environment={"TICKWORK_TEST_URL": "oracle://x/y"})


PYTEST = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "conftest"]
PYTEST += ["-p", "no:cacheprovider"]


def inner_environment(folder, **variables):
    ours = {"CI", "TICKWORK_TEST_URL", "TICKWORK_REQUIRE_SERVERS", choice.VARIABLE}
    paths = [str(TESTS_FOLDER), str(folder), os.environ.get("PYTHONPATH", "")]
    return {
        **{name: value for name, value in os.environ.items() if name not in ours},
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # it halves the time to start
        **variables,
    }


BUSY = """
import json, os, pathlib, sys, time
from servers import workspace
from servers.mariadb import MariaDBServer
from servers.postgres import PostgresServer

def wait(*servers, child=None):
    facts = {
        "pids": [*(server.pid for server in servers), workspace.current()._guard.pid],
        "folders": [str(folder) for folder in workspace.current().folders],
        "child": child,
    }
    pathlib.Path("facts.new").write_text(json.dumps(facts))
    pathlib.Path("facts.new").rename("facts")
    time.sleep(60)

def test_busy(postgres_server, mariadb_server):
    wait(postgres_server, mariadb_server)

if __name__ == "__main__":
    servers = [PostgresServer(fsync=False).start(), MariaDBServer(fsync=False).start()]
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    wait(*servers, child=child)
"""


class TestCleanup:
    """However a test process ends, its servers end, too, and its folders are removed."""

    @pytest.mark.parametrize(
        ("command", "signal_number"),
        [
            pytest.param(PYTEST, signal.SIGINT, id="tests that are interrupted"),
            pytest.param([sys.executable], signal.SIGKILL, id="killed, a forked child lives on"),
        ],
    )
    def test_nothing_outlives_the_process(self, tmp_path, command, signal_number):
        (tmp_path / "test_busy.py").write_text(BUSY, encoding="utf-8")
        with subprocess.Popen(
            [*command, str(tmp_path / "test_busy.py")],
            env=inner_environment(tmp_path),
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                assert eventually((tmp_path / "facts").exists, seconds_max=60)
                facts = json.loads((tmp_path / "facts").read_text("utf-8"))
                assert all(map(is_alive, facts["pids"]))
            finally:
                process.send_signal(signal_number)

        assert facts["child"] is None or is_alive(facts["child"])
        assert eventually(lambda: not any(map(is_alive, facts["pids"])), seconds_max=20)
        assert eventually(lambda: not any(Path(path).exists() for path in facts["folders"]))
        if facts["child"] is not None:
            os.kill(facts["child"], signal.SIGKILL)

    def test_leftovers_of_a_dead_process_are_removed_later(self, tmp_path):
        with subprocess.Popen(["true"]) as ended:
            started = guard.started_ticks(ended.pid) or 0
        stale = tmp_path / f"{workspace.PREFIX}{ended.pid}-{started}-abc"
        own = guard.started_ticks(os.getpid())
        kept = [tmp_path / f"{workspace.PREFIX}{os.getpid()}-{own}-abc"]
        kept.append(tmp_path / f"{workspace.PREFIX}mine")
        for folder in (stale, *kept):
            folder.mkdir()
        (stale / "data").touch()

        with subprocess.Popen(["tail", "-f", stale / "data"]) as server:  # stands for a server
            command = Path(f"/proc/{server.pid}/cmdline")
            assert eventually(lambda: str(stale) in command.read_text("utf-8"))
            workspace.sweep(tmp_path)
            status = server.wait(10)

        assert status == -signal.SIGQUIT
        assert not stale.exists()
        assert all(folder.exists() for folder in kept)
