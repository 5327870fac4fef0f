"""What users write, read by mypy: it passes, but for the lines that say which error they are."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
USERS = sorted((Path(__file__).parent / "users").glob("*.py"))
EXPECTED = re.compile(r"# expect: ([a-z-]+)")
FOUND = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$", re.MULTILINE)


@pytest.fixture(scope="module")
def found():
    """The errors that mypy finds, by file: line and code."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"),
            *("--hide-error-context", "--cache-dir", str(ROOT / ".mypy_cache" / "users")),
            *map(str, USERS),
        ],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    errors: dict[str, set[tuple[int, str]]] = {path.name: set() for path in USERS}
    for error in FOUND.finditer(done.stdout):
        errors[Path(error["file"]).name].add((int(error["line"]), error["code"]))
    return errors


@pytest.mark.parametrize("path", USERS, ids=lambda path: path.stem)
def test_a_checker_sees_what_is_right_and_what_is_wrong(found, path):
    lines = path.read_text(encoding="utf-8").splitlines()
    expected = {
        (number, marked[1])
        for number, line in enumerate(lines, 1)
        if (marked := EXPECTED.search(line))
    }

    assert sorted(found[path.name]) == sorted(expected)


def test_the_keywords_of_the_decorator_are_the_options_of_the_table():
    from tickwork._define.options import JOB_OPTIONS, JobKeywords

    assert set(JobKeywords.__annotations__) == JOB_OPTIONS
