"""The quick start of the README, in an environment that has only the wheel."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
import venv
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

import pytest

from scenarios.project import Process, figure

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 10
"""The longest time from `tickwork work` to the first run."""

BLOCKS_RUN = """
import contextlib, io, re, sys
from pathlib import Path

OPTIONAL = {
    "alembic", "asyncpg", "celery", "cryptography", "dask", "distributed", "django", "fastapi",
    "flask", "holidays", "icalendar", "opentelemetry", "prometheus_client", "psycopg",
    "pymysql", "pytest", "sentry_sdk", "sqlalchemy", "starlette",
}
for page in sys.argv[1:]:
    text = Path(page).read_text(encoding="utf-8")
    for found in re.finditer(r"^```python\\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        code, printed = found[1], io.StringIO()
        where = f"{page}:{text.count(chr(10), 0, found.start()) + 1}"
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(code, where, "exec"), {})
        except ImportError as missing:
            names = {getattr(missing, name, None) for name in ("package", "driver", "name")}
            if not names & OPTIONAL:
                raise
            continue
        expected = [line[2:] for line in code.splitlines() if line.startswith("# ")]
        if "print(" in code and printed.getvalue().splitlines() != expected:
            sys.exit(f"{where}: printed {printed.getvalue()!r}, expected {expected!r}")
        print("ran", page)
"""


class Environment(NamedTuple):
    """A virtual environment for the wheel, and an empty folder to work in."""

    wheel: Path
    programs: Path
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TICKWORK_", "PYTHON", "VIRTUAL_ENV"))
        }
        return {**kept, "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}"}

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            shlex.split(command),
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self, command: str) -> Process:
        log = self.folder.parent / "worker.log"
        program, *arguments = command.split()
        return Process(
            [str(self.programs / program), *arguments], folder=self.folder, log=log, env=self.env
        )


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Environment:
    place: Path = tmp_path_factory.mktemp("environment")
    venv.create(place / "env")
    (place / "empty").mkdir()
    return Environment(wheel, place / "env" / "bin", place / "empty")


def commands_below(heading: str) -> list[str]:
    """The commands in the first console block below a heading of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.partition(f"\n{heading}\n")[2].partition("```console\n")[2].partition("```")[0]
    return [line[2:].partition("#")[0].strip() for line in block.splitlines() if line[:2] == "$ "]


class TestTheWheel:
    """The wheel holds the package, its data files and its metadata, and nothing else."""

    def test_contains_every_file_of_the_package(self, wheel):
        names = set(zipfile.ZipFile(wheel).namelist())
        source = ROOT / "src"

        needed = {
            path.relative_to(source).as_posix()
            for path in (source / "tickwork").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert "tickwork/py.typed" in needed
        assert any(name.endswith(".sql") for name in needed)
        assert needed - names == set()
        assert {name.partition("/")[0] for name in names} == {"tickwork", _info(wheel)}

    def test_metadata(self, wheel):
        text = zipfile.ZipFile(wheel).read(f"{_info(wheel)}/METADATA").decode()
        facts = Parser().parsestr(text)

        assert facts["Name"] == "tickwork"
        assert facts["License-Expression"] == "MIT"
        assert "Typing :: Typed" in facts.get_all("Classifier", [])
        needs = [one for one in facts.get_all("Requires-Dist", []) if "extra" not in one]
        assert {re.split(r"\W", one)[0] for one in needs if "win32" not in one} == {"click", "rich"}
        assert set(facts.get_all("Provides-Extra", [])) >= {"postgres", "mysql"}
        assert str(ROOT) not in text

    def test_the_description_is_the_readme(self, wheel):
        text = zipfile.ZipFile(wheel).read(f"{_info(wheel)}/METADATA").decode()

        assert (ROOT / "README.md").read_text(encoding="utf-8").strip() in text


@pytest.mark.timeout(240)
def test_the_quick_start_of_the_readme_works(environment):
    install, *_ = commands_below("## Install")
    init, work = commands_below("## Quick start")
    assert (install, init, work) == ("pip install .", "tickwork init", "tickwork work")
    assert list(environment.folder.iterdir()) == []

    pip = f"{sys.executable} -m pip --python {environment.programs / 'python'}"
    install = install.replace(" .", f" {environment.wheel}").replace("pip", pip, 1)
    for command in (install, init):
        done = environment.run(command)
        assert done.returncode == 0, done.stdout + done.stderr

    started_at = time.monotonic()
    worker = environment.start(work)
    try:
        while "tick at" not in worker.log:
            assert time.monotonic() - started_at < SECONDS_MAX, worker.log
            time.sleep(0.05)
        figure(f"the first run was {time.monotonic() - started_at:.1f} s after `tickwork work`")

        for question in ("status", "next", "runs", "explain tick"):
            answer = environment.run(f"tickwork {question}")
            assert answer.returncode == 0, f"{question}\n{answer.stdout}{answer.stderr}"
            assert "tick" in answer.stdout
        done = environment.run("tickwork dispatch greet name=Ann --wait --timeout 10s")
        assert done.returncode == 0, done.stdout + done.stderr
        runs = json.loads(environment.run("tickwork runs --json").stdout)
        assert "completed" in json.dumps(runs)
        worker.terminate()
        assert worker.wait() == 0, worker.log
        assert "Hello Ann" in worker.log
    finally:
        worker.end()

    # The code blocks of the pages run here too, without the project's own dependencies.
    guides = sorted((ROOT / "docs" / "guide").glob("*.md"))
    script = environment.folder.parent / "blocks.py"
    script.write_text(BLOCKS_RUN, encoding="utf-8")
    pages = " ".join(str(page) for page in [ROOT / "README.md", *guides])
    done = environment.run(f"{environment.programs / 'python'} {script} {pages}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("ran") > 40


def _info(wheel: Path) -> str:
    name, version, *_ = wheel.name.split("-")
    return f"{name}-{version}.dist-info"
