"""Projects of Django, on the wheel: their own tests run with Django's runner and test client.

Each version of Django is installed once, into a folder that is kept between runs.
"""

import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest

from scenarios.project import Process
from servers.unpacked import cache_folder

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
PACKAGES = {
    "4.2": ("Django==4.2.30", "django-tasks==0.12.0"),
    "5.2": ("Django==5.2.19", "django-tasks==0.12.0"),
}
if sys.version_info >= (3, 14):
    del PACKAGES["4.2"]  # Django 5.2 is the first version that supports it
PYTEST_DJANGO = ("pytest-django==4.14.0",)
SERVER_TESTS = ["shop.tests", "shop.server_tests"]
MEMORY_TESTS = [
    "shop.tests.test_testcase",
    "shop.tests.test_async.AsyncTest",
    "shop.tests.test_access",
    "shop.tests.test_admin",
    "shop.tests.test_tasks.BackendTest",
    "shop.tests.test_transactions.FlushTest",
]
TITLED_BLOCK = re.compile(r'^```python title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)


class DjangoProject(NamedTuple):
    """A folder with a project, and the environment of its programs."""

    folder: Path
    env: dict[str, str]

    def manage(self, *arguments: str, is_failure: bool = False) -> str:
        """Run manage.py; return what it printed."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
        printed = done.stdout + done.stderr
        assert (done.returncode != 0) == is_failure, printed[-6000:]
        return printed

    def test(self, *labels: str) -> int:
        """Run the tests of the project; return how many there were. None may be skipped."""
        printed = self.manage("test", "--noinput", *labels)
        found = re.search(r"^Ran (\d+) tests? in .*\n\nOK$", printed, re.MULTILINE)
        assert found is not None, printed[-6000:]
        return int(found[1])

    def start(self, *arguments: str) -> Process:
        command = [sys.executable, "manage.py", *arguments]
        return Process(command, folder=self.folder, log=self.folder / "process.log", env=self.env)

    def run_json(self, *arguments: str) -> Any:
        return json.loads(self.manage("tickwork", *arguments, "--json"))


def install(*packages: str) -> Path:
    """Return a folder with these packages, after installing them at their first use."""
    base = cache_folder().parent / "tickwork-django"
    base.mkdir(parents=True, exist_ok=True)
    folder = base / "-".join(packages).replace("==", "-")
    with (base / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder
        target = folder.with_suffix(".new")
        shutil.rmtree(target, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
        command += ["--no-deps"] * (packages == PYTEST_DJANGO)  # pytest itself is here
        done = subprocess.run([*command, *packages], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        target.rename(folder)
    return folder


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> Path:
    """The contents of the wheel of this checkout, in a folder."""
    target: Path = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(target)]
    env = {**os.environ, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    done = subprocess.run(
        [*command, str(ROOT)], env=env, capture_output=True, text=True, check=False, cwd=target
    )
    assert done.returncode == 0, done.stderr
    [wheel] = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


MakeProject = Callable[..., DjangoProject]


@pytest.fixture
def make_project(installed, tmp_path) -> MakeProject:
    """A function that makes a project on a version of Django and a database."""

    def make(version: str, database: dict[str, Any], **env: str) -> DjangoProject:
        folder = tmp_path / "project"
        if not folder.exists():
            shutil.copytree(HERE / "django_project", folder)
        kept = {name: text for name, text in os.environ.items() if not name.startswith("TICKWORK_")}
        path = f"{installed}{os.pathsep}{install(*PACKAGES[version])}"
        variables = {"PYTHONPATH": path, "SHOP_DATABASE": json.dumps(database), **env}
        # Its settings check them, so that no other version is tested by mistake.
        variables |= {"SHOP_WHEEL": str(installed), "SHOP_DJANGO": version}
        return DjangoProject(folder, {**kept, **variables})

    return make


def on_sqlite(tmp_path: Path, **options: Any) -> dict[str, Any]:
    name = str(tmp_path / "shop.sqlite3")
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": name, **options}


def on_server(url: str, engine: str, **options: Any) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "ENGINE": f"django.db.backends.{engine}",
        "NAME": parts.path[1:],
        "HOST": parts.hostname,
        "PORT": parts.port,
        "USER": parts.username,
        "PASSWORD": parts.password or "",
        "CONN_MAX_AGE": None,
        **options,
    }


# Each takes seconds; on a machine that is busy with other tests, several times as many.
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("version", PACKAGES)
class TestTheProjectsOwnTests:
    def test_on_a_file_of_sqlite(self, make_project, tmp_path, version):
        database = on_sqlite(tmp_path, TEST={"NAME": str(tmp_path / "test.sqlite3")})

        assert make_project(version, database).test("shop.tests") >= 103

    def test_on_postgres(self, make_project, postgres_url, version):
        database = on_server(postgres_url, "postgresql")

        assert make_project(version, database).test(*SERVER_TESTS) >= 107


def test_the_projects_own_tests_in_memory_where_django_tests_on_sqlite(make_project, tmp_path):
    assert make_project("5.2", on_sqlite(tmp_path)).test(*MEMORY_TESTS) >= 66


def test_the_projects_own_tests_on_mariadb(make_project, mariadb_url):
    database = on_server(mariadb_url, "mysql")
    project = make_project("5.2", database, SHOP_PYMYSQL="1")

    assert project.test("shop.tests.test_testcase", "shop.server_tests") >= 15


class TestDatabasesOfTests:
    """Tests that declare no database have no test database. They must not use the real one."""

    TWO_DATABASES = """

DATABASES["jobs"] = {**DATABASES["default"], "NAME": str(BASE_DIR / "jobs.sqlite3")}
TICKWORK = {"DATABASE": "jobs"}
"""
    IN_DJANGO = """
from django.test import SimpleTestCase, TestCase

from shop import jobs
from tickwork import testing
from tickwork.errors import DatabaseNotAllowed
from tickwork.integrations.django import app


class OneDatabaseTest(TestCase):
    def test_runs_that_wait_in_the_real_database_are_not_executed(self):
        with self.assertRaisesRegex(DatabaseNotAllowed, r'databases = {"default", "jobs"}'):
            testing.drain(app)

    async def test_no_coroutine_executes_them(self):
        with self.assertRaises(DatabaseNotAllowed):
            await testing.aio.drain(app)


class BothDatabasesTest(TestCase):
    databases = {"default", "jobs"}

    def test_the_queue_is_empty(self):
        self.assertEqual(len(testing.drain(app)), 0)
        jobs.count_orders.dispatch()
        self.assertEqual(testing.drain(app)[0].result, 0)
"""
    IN_PYTEST = """
import pytest

from shop import jobs
from tickwork import testing
from tickwork.errors import DatabaseNotAllowed
from tickwork.integrations.django import app


def test_a_dispatch_without_the_mark_is_refused():
    with pytest.raises(DatabaseNotAllowed, match="pytest.mark.django_db"):
        jobs.count_orders.dispatch()


@pytest.mark.django_db(databases=["default", "jobs"])
def test_a_dispatch_with_the_mark_is_in_the_test_database():
    jobs.count_orders.dispatch()
    assert len(testing.drain(app)) == 1


@pytest.mark.django_db
def test_the_mark_without_this_database_is_not_enough():
    with pytest.raises(DatabaseNotAllowed):
        jobs.count_orders.dispatch()


test_after_tests_with_the_mark = test_a_dispatch_without_the_mark_is_refused
"""

    @pytest.fixture(params=PACKAGES)
    def project(self, request, make_project, tmp_path) -> DjangoProject:
        """A project with a database for runs, in which one waits."""
        made: DjangoProject = make_project(request.param, on_sqlite(tmp_path))
        with (made.folder / "project" / "settings.py").open("a", encoding="utf-8") as file:
            file.write(self.TWO_DATABASES)
        for alias in ("default", "jobs"):
            made.manage("migrate", "--database", alias, "--verbosity", "0")
        made.manage("shell", "-c", "from shop import jobs; jobs.count_orders.dispatch()")
        return made

    def test_a_test_case_does_not_execute_runs_of_the_real_database(self, project):
        (project.folder / "shop" / "test_real.py").write_text(self.IN_DJANGO, "utf-8")

        assert project.test("shop.test_real") == 3
        assert self.runs(project) == [("count_orders", "pending")]

    def test_a_test_of_pytest_django_without_its_mark_adds_no_run(self, project):
        (project.folder / "test_real.py").write_text(self.IN_PYTEST, "utf-8")
        path = f"{project.env['PYTHONPATH']}{os.pathsep}{install(*PYTEST_DJANGO)}"
        options = ["-p", "no:randomly", "--ds", "project.settings", "-q", "test_real.py"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options],
            cwd=project.folder,
            env={**project.env, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

        assert "4 passed" in done.stdout, done.stdout + done.stderr
        assert self.runs(project) == [("count_orders", "pending")]

    def runs(self, project: DjangoProject) -> list[tuple[str, str]]:
        return [(run["job"], run["status"]) for run in project.run_json("runs")["runs"]]


DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.servers("postgres"))]


class TestProcesses:
    """`manage.py tickwork` on the database of the project itself."""

    @pytest.fixture(params=DATABASES)
    def project(self, request, make_project, tmp_path):
        if request.param == "sqlite":
            database = on_sqlite(tmp_path)
        else:
            database = on_server(request.getfixturevalue("postgres_url"), "postgresql")
        return make_project("5.2", database)

    def test_a_worker_executes_jobs_tasks_and_children(self, project):
        assert "Applying tickwork.0001_schema... OK" in project.manage("migrate")
        assert project.manage("migrate", "--plan").count("tickwork") == 0
        dispatch = (
            "from shop import jobs, letters, tasks; tasks.order.enqueue('book');"
            "letters.send.enqueue('Ann');"
            "jobs.count_in_child.dispatch(); jobs.count_orders_async.dispatch()"
        )
        project.manage("shell", "-c", dispatch)

        worker = project.start("tickwork", "work", "--drain", "5s")
        try:
            deadline = time.monotonic() + 60
            while len(self.completed(project)) < 4:
                assert time.monotonic() < deadline, worker.log
                time.sleep(0.5)
            worker.terminate()
            assert worker.wait() == 0, worker.log
        finally:
            worker.end()
        [counted] = project.run_json("runs", "--job", "count_in_child")["runs"]
        shown = project.run_json("inspect", counted["id"])
        assert shown["run"]["result"]["pid"] != worker.pid

    def completed(self, project: DjangoProject) -> list[Any]:
        found = project.run_json("runs")["runs"]
        return [run for run in found if run["status"] == "completed"]


@pytest.mark.servers("postgres")
def test_options_with_spaces_reach_the_server(make_project, postgres_url):
    options = {"options": "-c search_path=public -c application_name=shop+jobs"}
    project = make_project("5.2", on_server(postgres_url, "postgresql", OPTIONS=options))
    project.manage("migrate", "--verbosity", "0")

    assert project.run_json("runs")["runs"] == []


def test_a_server_of_two_processes_serves_the_dashboard(make_project, tmp_path):
    project = make_project("5.2", on_sqlite(tmp_path))
    project.manage("migrate")
    make_user = "from django.contrib.auth.models import User; User.objects.create_superuser"
    project.manage("shell", "-c", f"{make_user}('boss', password='s3cret')")
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = str(found.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", "project.asgi:application", "--workers", "2"]
    log = project.folder / "server.log"
    server = Process([*command, "--port", port], folder=project.folder, log=log, env=project.env)
    here = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=here, headers={"Accept": "text/html"}) as browser:
            wait_for_server(browser, server)
            page = browser.get("/jobs/schedules/nightly", follow_redirects=True)
            assert page.url.path == "/admin/login/"
            token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
            assert token is not None, page.text
            values = {"username": "boss", "password": "s3cret", "csrfmiddlewaretoken": token[1]}
            page = browser.post(str(page.url), data={**values, "next": "/jobs/dispatch?job=ship"})
            assert page.headers["location"] == "/jobs/dispatch?job=ship", page.text
            for _ in range(6):  # a new connection reaches one of the two processes
                page = browser.get("/jobs/dispatch?job=ship", headers={"Connection": "close"})
                fields = dict(re.findall(r'name="(csrf|key)" value="([^"]+)"', page.text))
                values = {**fields, "job": "ship", "arg:order_id": "7"}
                page = browser.post("/jobs/dispatch", data=values, headers={"Connection": "close"})
                assert page.status_code == 303, page.text
        assert len(project.run_json("runs", "--job", "ship")["runs"]) == 6
    finally:
        server.end()


def wait_for_server(browser: httpx.Client, server: Process) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            browser.get("/admin/login/")
        except httpx.TransportError:
            assert server.is_alive, server.log
            assert time.monotonic() < deadline, server.log
            time.sleep(0.1)
        else:
            return


def test_doctests_of_the_package(make_project, tmp_path):
    code = (
        "import doctest, tickwork.integrations.django.database_url as one,"
        " tickwork.integrations.django.tasks as other,"
        " tickwork.integrations.django.schedule_form as third;"
        "print([doctest.testmod(module) for module in (one, other, third)])"
    )
    printed = make_project("5.2", on_sqlite(tmp_path)).manage("shell", "-c", code)

    assert printed.count("failed=0") == 3
    assert "attempted=0" not in printed


def test_each_version_of_the_schema_has_a_migration():
    package = ROOT / "src" / "tickwork"
    found = {path.name for path in (package / "integrations/django/migrations").glob("0*.py")}
    schema = sorted((package / "_stores/_sql/migrations").glob("*.sql"))

    assert found == {f"{path.stem}_schema.py" for path in schema}


def test_the_project_of_the_guide(make_project, tmp_path):
    page = (ROOT / "docs" / "guide" / "django.md").read_text(encoding="utf-8")
    project = make_project("5.2", on_sqlite(tmp_path))
    shop, settings = project.folder / "shop", project.folder / "project" / "settings.py"
    for name in ("jobs.py", "tasks.py", "views.py"):
        (shop / name).unlink()
    (project.folder / "project" / "asgi.py").unlink()
    for name in ("tests", "server_tests"):
        shutil.rmtree(shop / name)
    lines = settings.read_text("utf-8").partition("TICKWORK = ")[0].splitlines(keepends=True)
    ours = ('    "tickwork.', '    "django_tasks"')
    settings.write_text("".join(line for line in lines if not line.startswith(ours)), "utf-8")
    urls = project.folder / "project" / "urls.py"
    lines = urls.read_text("utf-8").splitlines(keepends=True)
    urls.write_text("".join(line for line in lines if "async" not in line), "utf-8")

    for title, code in TITLED_BLOCK.findall(page):
        path = settings if title == "settings.py" else project.folder / title
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n\n{code}")

    assert project.test() == 6
    assert "serve" in project.manage(
        "shell", "-c", "import project.asgi as a; print(a.application)"
    )
