"""The suite on newer servers and interpreters: ``make test-matrix``.

    python -m servers.matrix [NAME ...] [PATH ...]
    python -m servers.matrix repeat NAME ...

Each entry is one run of pytest, on all its tests or on those of the given paths. Tests that failed
are repeated once, one after the other: some measure times, and the machine may have been busy. The
result counts them as repeated. ``repeat`` does only that, for an earlier run. The first use
downloads Debian's packages (see ``unpacked``) and creates a virtual environment for each
interpreter in ``.matrix``. The results are written to ``docs/matrix.json``, from which
``make docs`` makes the table in the guide to databases.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from servers import choice, install, mariadb, mysql, postgres, unpacked

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / ".matrix"
RESULTS = ROOT / "docs" / "matrix.json"
OWN_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
VERSION = r"(?:Ver|\(PostgreSQL\)|Python) ([\d.]+)"
REPEATED_MAX = 20
"""More failures have another cause than a busy machine."""
ON_SERVERS = [
    f"tests/{name}"
    for name in ("contract", "application", "cli", "migrations", "properties", "scenarios")
]


class Entry(NamedTuple):
    """One run of pytest: its servers, its interpreter and its tests."""

    name: str
    servers: str
    python: str
    markers: str
    paths: Sequence[str]


ENTRIES = [
    Entry("mysql", "mysql", OWN_PYTHON, "on_mysql", [*ON_SERVERS, "tests/reliability"]),
    Entry("postgres", "newest", OWN_PYTHON, "on_postgres", ON_SERVERS),
    Entry("mariadb", "newest", OWN_PYTHON, "on_mysql", ON_SERVERS),
    Entry("python3.13", "", "3.13", "", ["src", "tests"]),
    Entry("python3.14", "", "3.14", "", ["src", "tests"]),
]


def main(arguments: Sequence[str]) -> int:
    """Run the entries of these names, or all; return 1 if a test failed."""
    paths = [argument for argument in arguments if "/" in argument]
    is_repeat = "repeat" in arguments
    names = [word for word in arguments if word != "repeat" and word not in paths]
    unknown = set(names) - {entry.name for entry in ENTRIES}
    if unknown:
        raise SystemExit(f"There is no entry {', '.join(sorted(unknown))}.")
    WORK.mkdir(exist_ok=True)
    results = _read_results()
    has_failed = False
    for entry in ENTRIES:
        if names and entry.name not in names:
            continue
        if is_repeat:
            result = results[entry.name]
        else:
            result = run(entry._replace(paths=paths or entry.paths))
        result = repeat_failures(entry, result)
        results = _read_results() | {entry.name: result}  # another process may run other entries
        RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        has_failed |= bool(result["failed"]) or not result["passed"]
    for name, result in results.items():
        kinds = ("passed", "failed", "skipped", "repeated")
        counts = ", ".join(f"{result[kind]:,} {kind}" for kind in kinds)
        sys.stdout.write(
            f"{name:12} {result['subject']}, Python {result['python']}: {counts},"
            f" in {result['seconds']} s ({result['date']})\n"
        )
    return int(has_failed)


def _read_results() -> dict[str, Any]:
    """The results of all entries, as they were last."""
    if not RESULTS.exists():
        return {}
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def run(entry: Entry) -> dict[str, Any]:
    """Run one entry, and return its result."""
    os.environ[choice.VARIABLE] = entry.servers  # also for this process: it looks for the programs
    subject = _subject(entry)
    python = Path(sys.executable) if entry.python == OWN_PYTHON else _environment(entry.python)
    sys.stdout.write(f"{entry.name}: {subject}, Python {_version(python)}\n")
    sys.stdout.flush()
    begun = time.monotonic()
    jobs = ("-n", os.environ.get("JOBS", "2"))
    report = _run_tests(python, entry.name, *jobs, "-m", _markers(entry), *entry.paths)
    return {
        "subject": subject,
        "tests": ", ".join(path.removeprefix("tests/") for path in entry.paths),
        "python": _version(python),
        **_counts(report),
        "repeated": 0,
        "seconds": round(time.monotonic() - begun),
        "date": time.strftime("%Y-%m-%d"),
    }


def repeat_failures(entry: Entry, result: dict[str, Any]) -> dict[str, Any]:
    """Repeat the tests that failed, and return the result with those that passed then."""
    failed = set(_failed(WORK / f"{entry.name}.xml")) if result["failed"] else set()
    if not 0 < len(failed) <= REPEATED_MAX or None in failed:
        return result
    os.environ[choice.VARIABLE] = entry.servers
    python = Path(sys.executable) if entry.python == OWN_PYTHON else _environment(entry.python)
    options = ("-p", "no:randomly", "-m", _markers(entry))
    counts = _counts(
        _run_tests(python, f"{entry.name}-repeated", *options, *sorted(map(str, failed)))
    )
    return result | {
        "passed": result["passed"] + counts["passed"],
        "failed": counts["failed"],
        "skipped": result["skipped"] + counts["skipped"],
        "repeated": counts["passed"],
    }


def _markers(entry: Entry) -> str:
    return " and ".join(filter(None, [entry.markers, "not long"]))


def _run_tests(python: Path, name: str, *arguments: str) -> Path:
    """Run pytest, and return the path of its report."""
    report = WORK / f"{name}.xml"
    report.unlink(missing_ok=True)
    subprocess.run(
        [
            *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"),
            *arguments,
            *os.environ.get("PYTEST_ARGS", "").split(),
        ],
        cwd=ROOT,
        env={**os.environ, "TICKWORK_REQUIRE_SERVERS": "1"},
        check=False,
    )
    return report


def _failed(report: Path) -> Iterator[str | None]:
    """The tests that failed, as pytest accepts them, and modules that could not be read."""
    for case in ET.parse(report).getroot().iter("testcase"):
        if case.find("failure") is None and case.find("error") is None:
            continue
        classname, name = case.attrib["classname"], case.attrib["name"]
        words = [*classname.split("."), name] if classname else name.split(".")
        paths = (Path(*words[:count]).with_suffix(".py") for count in range(len(words), 0, -1))
        path = next((path for path in paths if (ROOT / path).exists()), None)
        # A test that is not in a module, as a doctest, cannot be repeated.
        yield None if path is None else "::".join([str(path), *words[len(path.parts) :]])


def _subject(entry: Entry) -> str:
    """Return which server is tested, with its version."""
    if entry.name == "mysql":
        return _named("MySQL", mysql.find_programs().server)
    if entry.name == "mariadb":
        return _named("MariaDB", mariadb.find_programs().server)
    if entry.name == "postgres":
        return _named("PostgreSQL", postgres.find_programs() / "postgres")
    return f"Python {entry.python}"


def _named(name: str, program: Path) -> str:
    return f"{name} {_dotted(install.version_of(program, pattern=VERSION))}"


def _dotted(version: Sequence[int] | None) -> str:
    return ".".join(map(str, version or ()))


def _version(python: Path) -> str:
    return _dotted(install.version_of(python, pattern=VERSION))


def _environment(version: str) -> Path:
    """Return the interpreter of a virtual environment with the development tools."""
    folder = WORK / f"venv-{version}"
    python = folder / "bin" / "python"
    base = unpacked.prepare("python") / "usr/bin" / f"python{version}"
    # Debian has the wheel of pip in another place, so pip is installed like the others.
    subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet"),
            *(
                "-c",
                "constraints.txt",
                "pip",
                "--group",
                "dev",
                "-e",
                ".[postgres,mysql,encrypt,calendar,holidays,dashboard]",
            ),
        ],
        cwd=ROOT,
        check=True,
    )
    return python


def _counts(report: Path) -> dict[str, int]:
    """Return how many tests passed, failed and were skipped; none if there is no report."""
    if not report.exists():
        return {"passed": 0, "failed": 0, "skipped": 0}
    [suite] = ET.parse(report).getroot().iter("testsuite")
    total, failures, errors, skipped = (
        int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")
    )
    return {
        "passed": total - failures - errors - skipped,
        "failed": failures + errors,
        "skipped": skipped,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
