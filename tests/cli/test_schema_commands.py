"""``install --sql``, ``install --grants`` and the steps of ``upgrade``."""

import json
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from click.testing import CliRunner

from application.conftest import EMPTIED
from cli.conftest import Cli
from migrations.test_upgrades import MODULES, NEXT, shape_of, steps_of
from servers import install, mariadb
from tickwork import ScheduleDefinition, Tickwork
from tickwork._stores import open_store, schema_statements
from tickwork._stores._sql import migrate, script
from tickwork._stores._sql.statement import Statement
from tickwork.cli.main import command_for
from tickwork.errors import InvalidOption, StoreError
from tickwork.schedules import hourly
from tickwork.testing import ManualClock

CLIENTS = {"sqlite3": "sqlite3", "mariadb": "mariadb-client", "psql": "postgresql-client"}
"""The packages of the clients that run a script."""

SCHEMES = {"sqlite": "sqlite", "postgres": "postgresql", "mariadb": "mysql"}


def require_client(name: str) -> None:
    def find() -> Path | None:
        found = shutil.which(name)
        return None if found is None else Path(found)

    install.find_or_install(name, find, folders=[], packages=[CLIENTS[name]])


def bring_next_release(patch, database):
    """Let this code be of a release with one more version of the tables."""
    for module in (MODULES[database], script):
        patch.setattr(module, "migrations", steps_of)
        patch.setattr(module, "SCHEMA_VERSION", NEXT)


def sql_of(*arguments, code=0):
    """The output of a command that needs no application."""
    done = CliRunner().invoke(command_for(), ["install", *arguments])
    assert done.exit_code == code, done.output
    return done.output


def execute(script, url):
    """Execute a script with the program of the database."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        command = ["sqlite3", "-bail", parts.path[1:]]
    elif parts.scheme == "mysql":
        place = [f"--host={parts.hostname}", f"--port={parts.port}", f"--user={parts.username}"]
        command = ["mariadb", *place, parts.path[1:]]
    else:
        command = ["psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", url]
    require_client(command[0])
    done = subprocess.run(
        command, input=script, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.servers("postgres")),
        pytest.param("mariadb", marks=pytest.mark.servers("mariadb")),
    ]
)
def database(request):
    return request.param


@pytest.fixture
def fresh_url(database, request, tmp_path):
    """An empty database."""
    if database == "sqlite":
        return f"sqlite:///{tmp_path}/fresh.db"
    return request.getfixturevalue(f"{database}_url")


@pytest.fixture
def installed_shape(database, request, tmp_path):
    """The tables as ``app.install()`` creates them."""
    if database == "sqlite":
        url = f"sqlite:///{tmp_path}/installed.db"
        with closing(open_store(url)) as store:
            store.install()
            return shape_of(store)
    databases = request.getfixturevalue(f"{database}_databases")
    name = databases.create_database()
    with closing(open_store(databases.url(name))) as store:
        store.install()
        shape = shape_of(store)
    databases.drop_database(name)
    return shape


class TestSql:
    """``install --sql`` prints what ``install`` executes."""

    def test_the_script_creates_the_same_schema(self, database, fresh_url, installed_shape):
        execute(sql_of("--sql", "--dialect", SCHEMES[database]), fresh_url)

        with closing(open_store(fresh_url)) as store:
            store.check_schema()
            assert store.schema_version() == migrate.SCHEMA_VERSION
            assert shape_of(store) == installed_shape

    def test_runs_are_executed_on_such_tables(self, database, fresh_url):
        execute(sql_of("--sql", "--dialect", SCHEMES[database]), fresh_url)

        with Tickwork(fresh_url, install=False, clock=ManualClock()) as app:
            run = app.schedule("double", lambda n: 2 * n).concurrency(1).dispatch(n=21)
            assert app.run() == 1
            assert run.result() == 42

    def test_tables_with_another_prefix(self, database, fresh_url):
        execute(sql_of("--sql", "--dialect", SCHEMES[database], "--prefix", "shop_"), fresh_url)

        with closing(open_store(fresh_url, prefix="shop_")) as store:
            store.check_schema()
        with closing(open_store(fresh_url)) as store, pytest.raises(StoreError):
            store.check_schema()

    def test_an_upgrade_script_upgrades_the_tables(self, database, fresh_url, monkeypatch):
        with Tickwork(fresh_url) as app:
            app.install()
            with monkeypatch.context() as patch:
                bring_next_release(patch, database)
                text = Cli(app).text("upgrade", "--sql")
            assert app.schema_version() == migrate.SCHEMA_VERSION  # nothing was executed
        assert "CREATE TABLE tickwork_run (" not in text

        execute(text, fresh_url)

        with closing(open_store(fresh_url)) as store:
            assert store.schema_version() == NEXT
            assert "tickwork_colour" in str(shape_of(store))

    def test_the_url_of_an_application_names_the_dialect(self):
        app = Tickwork("postgresql://shop:s3cret@127.0.0.1:1/shop")  # it is not connected

        script = Cli(app).text("install", "--sql")

        assert 'COLLATE "C"' in script
        assert "s3cret" not in script

    def test_statements_for_a_migration_tool(self):
        everything = schema_statements("postgresql")

        assert everything[0].startswith("CREATE TABLE")
        assert everything == schema_statements("postgresql", to=migrate.SCHEMA_VERSION)
        assert schema_statements("postgresql", since=migrate.SCHEMA_VERSION) == []
        for options in ({"dialect": "oracle"}, {"dialect": "sqlite", "to": 99}):
            with pytest.raises(InvalidOption):
                schema_statements(**options)

    def test_a_current_database_needs_no_statement(self, tmp_path):
        with Tickwork(f"sqlite:///{tmp_path}/jobs.db") as app:
            app.install()
            assert "nothing to do" in Cli(app).text("upgrade", "--sql")

    def test_mistakes(self):
        assert (
            "memory:// has no tables"
            in Cli(Tickwork("memory://"))("install", "--sql", code=2).output
        )
        assert "--json" in sql_of("--sql", "--json", "--dialect", "sqlite", code=2)
        assert "SQLite has no roles" in sql_of("--grants", "--dialect", "sqlite", code=2)
        assert "--dialect" in sql_of("--dialect", "sqlite", code=2)
        assert "--prefix" in sql_of("--prefix", "shop_", code=2)
        assert "identifier" in sql_of("--sql", "--dialect", "sqlite", "--prefix", "a;b", code=2)

    def test_roles_have_the_prefix_of_the_tables(self):
        script = sql_of("--grants", "--dialect", "mysql", "--prefix", "shop_")

        assert "GRANT SELECT, INSERT ON shop_run TO shop_dispatch" in script
        assert "tickwork_" not in script


class TestSteps:
    """``upgrade`` shows what it did."""

    def test_each_step_of_an_upgrade_is_shown(self, tmp_path, monkeypatch):
        with Tickwork(f"sqlite:///{tmp_path}/jobs.db") as app:
            app.install()
            bring_next_release(monkeypatch, "sqlite")
            text = Cli(app).text("upgrade")

        assert f"from version {migrate.SCHEMA_VERSION} to" in text
        assert "CREATE TABLE tickwork_colour" in text
        assert "CREATE TABLE tickwork_run\n" not in text

    def test_as_json(self, tmp_path):
        with Tickwork(f"sqlite:///{tmp_path}/jobs.db") as app:
            done = json.loads(Cli(app)("upgrade", "--json").stdout)

        assert [step["version"] for step in done["steps"]] == list(
            range(1, migrate.SCHEMA_VERSION + 1)
        )
        assert "CREATE TABLE tickwork_run" in done["steps"][0]["statements"]


ROLES = ("tickwork_dispatch", "tickwork_work", "tickwork_read", "tickwork_admin")


FOR = "/*M! FOR */ /*!80017 TO */"  # MySQL has another syntax


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("postgres", marks=pytest.mark.servers("postgres")),
        pytest.param("mariadb", marks=pytest.mark.servers("mariadb")),
    ],
)
def granted_database(request):
    """A database with the roles, and a user for each."""
    kind = request.param
    databases = request.getfixturevalue(f"{kind}_databases")
    name = databases.create_database()
    url = databases.url(name)
    with closing(open_store(url)) as store:
        store.install()
    execute(sql_of("--grants", "--dialect", SCHEMES[kind]), url)
    execute(sql_of("--grants", "--dialect", SCHEMES[kind]), url)  # it can be repeated
    users = {role: f"{role}_user" for role in ROLES}
    for role, user in users.items():
        if kind == "postgres":
            run_all(kind, url, f"CREATE ROLE {user} LOGIN", f"GRANT {role} TO {user}")
        else:
            make, member = f"CREATE USER {user}@'%'", f"GRANT {role} TO {user}@'%'"
            run_all(kind, url, make, member, f"SET DEFAULT ROLE {role} {FOR} {user}@'%'")
    yield kind, url
    if kind == "postgres":
        names = ", ".join([*users.values(), *ROLES])
        run_all(
            kind,
            url,
            "REASSIGN OWNED BY tickwork_admin TO postgres",
            f"DROP OWNED BY {names}",
            f"DROP ROLE {names}",
        )
    else:
        run_all(kind, url, *(f"DROP USER {user}@'%'" for user in users.values()))
        run_all(kind, url, *(f"DROP ROLE {role}" for role in ROLES))
    databases.drop_database(name)


@pytest.fixture
def granted(granted_database):
    """The URL of a user with a role, as a function. The tables are empty."""
    kind, url = granted_database
    old = "postgres@" if kind == "postgres" else "root@"
    yield lambda role: url.replace(old, f"tickwork_{role}_user@")
    if kind == "postgres":
        run_all(kind, url, f"TRUNCATE {', '.join(EMPTIED)}")
    else:
        mariadb.empty(url)


def run_all(kind, url, *statements):
    if kind == "postgres":
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())
    else:
        with mariadb.connect(url) as connection:
            for statement in statements:
                connection.execute(statement)


def define(app):
    app.schedule("double", lambda n=1: 2 * n).every_minute().retries(max=2)
    app.schedule("lone", lambda n: n).unique().concurrency(1)
    return app


class TestGrants:
    """Each role can do its own work, and nothing more."""

    def test_a_dispatcher_adds_runs_and_reads_their_results(self, granted):
        clock = ManualClock()
        with (
            Tickwork(granted("dispatch"), clock=clock) as app,
            Tickwork(granted("work"), clock=clock) as worker,
        ):
            run = define(app).dispatch("lone", n=21)
            assert app.dispatch("lone", n=21).id == run.id  # a unique key
            app.draft.delay("1h").dispatch_many("double", [{"n": 1}, {"n": 2}])
            define(worker).run()
            assert run.result() == 21
            assert app.dispatch("lone", n=21).is_new  # its key is taken over
            remote = app.remote("lone").dispatch(n=22)  # a job of the program of the worker
            assert remote.read().limit_keys == ("job:lone",)

    @pytest.mark.parametrize(
        "action", ["run", "cancel", "pause", "prune", "create", "claim", "delete"]
    )
    def test_a_dispatcher_does_nothing_else(self, granted, action):
        clock = ManualClock()
        with Tickwork(granted("dispatch"), clock=clock) as app:
            run = define(app).dispatch("double", n=1)
            actions = {
                "run": app.run,
                "cancel": run.cancel,
                "pause": lambda: app.pause(queue="default"),
                "prune": lambda: app.prune(0),
                "create": lambda: app.schedules.create(
                    ScheduleDefinition(name="more", job="double", rule=hourly())
                ),
                "claim": lambda: run_sql(app, "UPDATE tickwork_run SET priority = 0"),
                "delete": lambda: run_sql(app, "DELETE FROM tickwork_run"),
            }
            with pytest.raises(StoreError):
                actions[action]()

    def test_a_worker_does_all_of_its_work(self, granted):
        clock = ManualClock()
        with Tickwork(granted("work"), clock=clock) as app:
            define(app)
            assert app.run() == 0
            clock.advance(minutes=1)
            assert app.run() == 1  # a schedule
            app.dispatch("lone", n=1)
            later = app.draft.delay("1h").dispatch("double", n=2)
            later.cancel()
            app.pause(queue="default")
            app.resume(queue="default")
            clock.advance(days=60)
            assert app.prune(1).runs > 0
            with app.lock("nightly"):
                pass
            assert app.status()
            with pytest.raises(StoreError):
                run_ddl(app)

    def test_a_worker_in_the_background_too(self, granted):
        with Tickwork(granted("work")) as app, define(app).running():
            assert app.dispatch("lone", n=1).result(timeout=30) == 1

    def test_a_reader_reads_everything_and_writes_nothing(self, granted):
        clock = ManualClock()
        with (
            Tickwork(granted("dispatch"), clock=clock) as dispatcher,
            Tickwork(granted("read"), clock=clock) as app,
        ):
            run = define(dispatcher).dispatch("double", n=1)
            found = app.get_run(run.id)
            assert found.status == "pending"
            assert "double" in Cli(app).text("runs")
            assert app.status()
            assert Cli(app).text("inspect", run.id)
            define(app)
            for action in (lambda: app.dispatch("double"), app.run, found.cancel):
                with pytest.raises(StoreError):
                    action()

    def test_an_administrator_upgrades_the_tables(self, granted):
        with Tickwork(granted("admin"), clock=ManualClock()) as app:
            assert app.install() == migrate.SCHEMA_VERSION
            run_ddl(app)
            run = define(app).dispatch("double", n=1)
            app.run()
            assert run.result() == 2


def run_ddl(app):
    """Change a table, as an upgrade does."""
    run_sql(app, "ALTER TABLE tickwork_job ADD COLUMN colour TEXT")


def run_sql(app, text):
    def operation(_):
        yield Statement("test", (text,), {})

    app._services.opened_store._write(operation)
