"""The sample programs of examples/, each with its own tests, on an installed wheel."""

import os
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel of tickwork; other libraries are those of the developers."""
    place = tmp_path_factory.mktemp("samples")
    pip = [sys.executable, "-m", "pip", "--quiet"]
    venv.create(place / "env")
    found = place / "env" / "bin" / "python"
    install = [*pip, "--python", str(found), "install", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, cwd=place)
    [packages] = (place / "env" / "lib").glob("python*/site-packages")
    # A path in such a file comes after the wheel, and the .pth files there are not read.
    (packages / "developers.pth").write_text("\n".join(site.getsitepackages()))
    return found


def run_tests(python: Path, name: str, folder: Path, **env: str) -> None:
    shutil.copytree(EXAMPLES / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("TICKWORK_", "PYTHON", "PYTEST"))
    }
    code = "import tickwork; print(tickwork.__file__)"
    there = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert str(python.parents[1]) in there.stdout, there.stdout
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=folder / name,
        env={**kept, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.servers("postgres")
def test_fastapi_with_async_sqlalchemy(python, tmp_path, postgres_url):
    run_tests(python, "orders_api", tmp_path, DATABASE_URL=postgres_url)


def test_flask_on_sqlite(python, tmp_path):
    run_tests(python, "notes_web", tmp_path, NOTES_FILE=str(tmp_path / "notes.db"))


def test_a_program_that_is_observed(python, tmp_path):
    run_tests(python, "observed_shop", tmp_path)


def test_a_program_as_celery_users_know_it(python, tmp_path):
    run_tests(python, "shop_tasks", tmp_path)


def test_a_worker_runs_its_tasks(python, tmp_path):
    shutil.copytree(EXAMPLES / "shop_tasks", tmp_path / "shop")
    env = {**os.environ, "SHOP_URL": f"sqlite:///{tmp_path}/shop.db"}
    for command in (
        ["-m", "shop_tasks.shop"],
        ["-m", "tickwork", "-a", "shop_tasks.tasks:app", "collect"],
    ):
        subprocess.run(
            [python, *command], cwd=tmp_path / "shop", env=env, check=True, capture_output=True
        )
    done = subprocess.run(
        [python, "-m", "tickwork", "-a", "shop_tasks.tasks:app", "runs", "--job", "ship"],
        cwd=tmp_path / "shop",
        env=env,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "completed" in done.stdout
