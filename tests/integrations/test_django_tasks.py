"""Django's own tests of ``django.tasks``, with our backend in place of Django's two.

They are a part of Django's source distribution, which pip downloads into a folder of the test.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

from servers import unpacked

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "Django==6.1.3"
PYTHONS = ("python3.14", "python3.13", "python3.12")
"""Interpreters that Django 6.1 supports."""
TESTS_MAX = 85

SETTINGS = """
SECRET_KEY = "only for tests"
USE_TZ = False  # as Django's own settings for tests
INSTALLED_APPS = ["tickwork.integrations.django"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": "tasks.sqlite3",
        "TEST": {"NAME": "test.sqlite3"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TASKS = {"default": {"BACKEND": "tickwork.integrations.django.tasks.TickworkBackend"}}
"""

BACKENDS = """
from tickwork.integrations.django import app
from tickwork.integrations.django.apps import _clear_tables
from tickwork.integrations.django.tasks import TickworkBackend


class DummyBackend(TickworkBackend):
    @property
    def results(self):
        return [self.get_result(run.id) for run in reversed(app.runs.recent())]

    def clear(self):
        _clear_tables("default")


class ImmediateBackend(TickworkBackend):
    def enqueue(self, task, args, kwargs):
        result = super().enqueue(task, args, kwargs)
        app.execute(result.id)
        result.refresh()
        return result
"""

OLD_NAMES = """
import django_tasks
from django_tasks import base, exceptions

django_tasks.Task = base.Task
exceptions.InvalidTask = exceptions.InvalidTaskError
exceptions.InvalidTaskBackend = exceptions.InvalidTaskBackendError
"""
"""The names of django-tasks that Django changed."""

NOT_OURS = frozenset(
    {
        # They change a result that the dummy backend has in memory.
        "test_dummy_backend.DummyBackendTestCase.test_refresh_result",
        "test_dummy_backend.DummyBackendTestCase.test_refresh_result_async",
        # The immediate backend cannot do these things, and ours can.
        "test_immediate_backend.ImmediateBackendTestCase.test_cannot_get_result",
        "test_immediate_backend.ImmediateBackendTestCase.test_cannot_pass_run_after",
        "test_immediate_backend.ImmediateBackendTestCase.test_cannot_refresh_result",
    }
)
NOT_IN_PACKAGE = frozenset(
    {
        # Texts and features of Django that the package does not have.
        "test_custom_backend.CustomBackendTestCase.test_enqueue_async_task_on_non_async_backend",
        "test_dummy_backend.DummyBackendTestCase.test_validate_disallowed_async_task",
        "test_tasks.TaskTestCase.test_pickle_task",
        "test_tasks.TaskTestCase.test_pickle_task_result",
        "test_tasks.TaskTestCase.test_run_after_in_decorator",
        "test_tasks.TaskTestCase.test_unpickle_arbitrary_string",
        "test_tasks.TaskTestCase.test_unpickle_non_task_object",
    }
)
# It compares a text of Python.
IN_PYTHON_3_12 = frozenset({"test_custom_backend.CustomBackendTestCase.test_no_enqueue"})


class Variant(NamedTuple):
    """A version of the tests: what it is installed with, and which tests do not apply to it."""

    packages: tuple[str, ...]
    module: str
    excluded: frozenset[str]


VARIANTS = {
    "django": Variant((SOURCE,), "django.tasks", NOT_OURS),
    "package": Variant(
        ("Django==5.2.19", "django-tasks==0.12.0"),
        "django_tasks",
        NOT_OURS | NOT_IN_PACKAGE | (IN_PYTHON_3_12 if sys.version_info < (3, 12) else frozenset()),
    ),
}


def find_python() -> Path:
    """An interpreter for Django 6.1: this one, one of the machine, or one that is downloaded."""
    if sys.version_info >= (3, 12):
        return Path(sys.executable)
    for name in PYTHONS:
        path = shutil.which(name)
        if (
            path
            and not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode
        ):
            return Path(path)
    return unpacked.prepare("python") / "usr/bin" / "python3.13"


def run(*command: str | Path, folder: Path, **env: str) -> str:
    """Run a program; return what it printed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """The tests of Django's tasks."""
    folder: Path = tmp_path_factory.mktemp("source")
    environment = folder / "environment"
    run(find_python(), "-m", "venv", "--without-pip", environment, folder=folder)
    printed = run(
        *(sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "download"),
        *("--quiet", "--no-deps", "--no-binary", ":all:", "--dest", folder, SOURCE),
        folder=folder,
    )
    archives = list(folder.glob("*.tar.gz"))
    assert len(archives) == 1, printed
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    [tests] = folder.glob("*/tests/tasks")
    return tests


@pytest.mark.long
@pytest.mark.parametrize("name", VARIANTS)
def test_all_of_djangos_own_tests_that_apply_pass(name: str, source: Path, tmp_path: Path) -> None:
    variant = VARIANTS[name]
    python = find_python() if name == "django" else Path(sys.executable)
    run(python, "-m", "venv", "--without-pip", tmp_path / "environment", folder=tmp_path)
    python = tmp_path / "environment" / "bin" / "python"
    printed = run(
        *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet"),
        *(str(ROOT), *variant.packages),
        folder=tmp_path,
    )
    assert "ERROR" not in printed, printed
    tests = shutil.copytree(source, tmp_path / "tasks")
    for path in tests.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"django\.tasks\.backends\.(dummy|immediate)", "backends", text)
        text = text.replace("django.tasks", variant.module)
        # A SimpleTestCase has no database.
        text = text.replace("import SimpleTestCase", "import TransactionTestCase as SimpleTestCase")
        path.write_text(text, encoding="utf-8")
    if variant.module == "django_tasks":
        (tests / "__init__.py").write_text(OLD_NAMES, encoding="utf-8")
    (tmp_path / "settings.py").write_text(SETTINGS, encoding="utf-8")
    (tmp_path / "backends.py").write_text(BACKENDS, encoding="utf-8")

    printed = run(
        *(python, "-m", "django", "test", "--noinput", "tasks"),
        folder=tmp_path,
        DJANGO_SETTINGS_MODULE="settings",
        DJANGO_ALLOW_ASYNC_UNSAFE="1",  # coroutines of these tests call methods that block
        PYTHONPATH=str(tmp_path),
    )

    failed = set(re.findall(r"^(?:ERROR|FAIL): \w+ \(tasks\.([\w.]+)\)", printed, re.MULTILINE))
    assert failed == variant.excluded, printed[-8000:]
    assert f"Ran {TESTS_MAX} tests" in printed
