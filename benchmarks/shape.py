"""Prints figures about the source: size, worker, what a dispatch loads, and calls of each step.

    .venv/bin/python -m benchmarks.shape [SOURCE]

SOURCE is the folder that holds the package (``src`` of this checkout by default), so that two
commits can be compared. Every probe runs in a fresh interpreter, with bytecode that an earlier
start has written.
"""

import ast
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.house import (
    Tree,
    count_vague_names,
    find_context_constructions,
    find_holders,
    find_longest_function,
    find_unexplained_numbers,
    is_value_type,
    read_concepts,
    read_trees,
)

ROOT = Path(__file__).resolve().parents[1]
STARTS = 10

IMPORT = """
import json, sys, time
begun = time.perf_counter()
from tickwork import Tickwork
took = time.perf_counter() - begun
loaded = [name for name in sys.modules if name.split(".")[0] == "tickwork"]
print(json.dumps({"took": took, "loaded": loaded}))
"""

DISPATCH = """
import json, sys, time
begun = time.perf_counter()
from tickwork import Tickwork
app = Tickwork(f"sqlite:///{sys.argv[1]}/dispatch.db")
@app.job
def report(n: int) -> None: ...
report.dispatch(n=1)
took = time.perf_counter() - begun
loaded = [name for name in sys.modules if name.split(".")[0] == "tickwork"]
print(json.dumps({"took": took, "loaded": loaded}))
"""

# Counts the calls of the package's own functions, by file and name.
PROFILE = """
import json, sys, threading, time
from collections import Counter
from tickwork import Tickwork
from tickwork.testing import ManualClock
import tickwork

HOME = tickwork.__file__.removesuffix("__init__.py")
NO_CALL = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<module>"}

def profiler(counts):
    def count(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(HOME) and code.co_name not in NO_CALL:
            counts[code.co_filename.removeprefix(HOME), code.co_qualname] += 1
    return count

def calls_of(act):
    counts = Counter()
    sys.setprofile(profiler(counts))
    try:
        act()
    finally:
        sys.setprofile(None)
    return counts

def show(**steps):
    print(json.dumps({name: [[*key, n] for key, n in found.items()]
                      for name, found in steps.items()}))
"""

STEPS = """
clock = ManualClock()
app = Tickwork(f"sqlite:///{sys.argv[1]}/steps.db", clock=clock)
@app.job
def report(n: int = 0) -> None: ...
app.schedule("minutely", report).every_minute()
for _ in range(3):
    report.dispatch(n=1)
    clock.advance(minutes=1)
    app.run()
dispatch = calls_of(lambda: report.dispatch(n=1))
attempt = calls_of(app.run)
idle = calls_of(app.run)
clock.advance(minutes=1)  # a day would add what a worker does once a day
firing = calls_of(app.run)
show(dispatch=dispatch, **{"attempt by run()": attempt - idle}, firing=firing - attempt)
"""

WORKER = """
COUNT = 40
attempts, idle = Counter(), Counter()
count = None
threading.setprofile(lambda *event: count and count(*event))
app = Tickwork(f"sqlite:///{sys.argv[1]}/worker.db")
done = threading.Semaphore(0)
@app.job
def report(n: int) -> None:
    done.release()
def attempt_all():
    for n in range(COUNT):
        report.dispatch(n=n)
        assert done.acquire(timeout=10)
        time.sleep(0.01)
with app.running():
    attempt_all()
    begun = time.perf_counter()
    count = profiler(attempts)
    attempt_all()
    took = time.perf_counter() - begun
    count = None
    time.sleep(0.5)
    count = profiler(idle)
    time.sleep(took)
    count = None
# An idle worker polls, too: those calls are subtracted.
attempts -= idle
found = Counter({key: calls // COUNT for key, calls in attempts.items() if calls >= COUNT})
show(**{"attempt by an idle worker": found})
"""


def print_size(trees: list[Tree], source: Path) -> None:
    sql = sum(len(path.read_text("utf-8").splitlines()) for path in source.rglob("*.sql"))
    python = sum(len(tree.lines) for tree in trees)
    nodes = [node for tree in trees for node in tree.nodes]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    values = sum(map(is_value_type, classes))
    functions = sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes)
    print_line("lines", f"{python + sql:,}", f"{python:,} of Python, {sql:,} of SQL")
    print_line("modules", f"{len(trees):,}")
    print_line("classes", f"{len(classes):,}")
    print_line("value types", f"{values:,}", "dataclasses, NamedTuples, Enums")
    print_line("functions", f"{functions:,}")
    longest = find_longest_function(trees)
    place = f"{longest.path.relative_to(source)}: {longest.name}"
    print_line("longest function, lines", str(longest.lines), place)


def print_worker(trees: list[Tree], source: Path) -> None:
    holders, contexts = find_holders(trees), find_context_constructions(trees)
    numbers = find_unexplained_numbers(trees)
    print_line("holders on the way to a worker", str(len(holders)), ", ".join(holders))
    print_line("constructions of RunContext", str(len(contexts)), ", ".join(contexts))
    print_line("numbers without a reason", str(len(numbers)), "of _worker and engines")
    print_line("uses of the names found, given", str(count_vague_names(trees)))
    concepts = read_concepts(source.parents[1] / "ARCHITECTURE.md")
    print_line("concepts of the worker", str(len(concepts)) if concepts else "not listed")
    for line in wrap([f"{name}," for name in concepts]):
        print(f"    {line.removesuffix(',')}")


def run_probe(source: Path, program: str, folder: str) -> Any:
    environment = {name: value for name, value in os.environ.items() if name != "TICKWORK_CONFIG"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment |= {"PYTHONPATH": str(source), "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
    done = subprocess.run(  # our own text
        [sys.executable, "-c", program, folder],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"A probe failed on {source}:\n{done.stderr}")
    return json.loads(done.stdout)


def print_start(source: Path, program: str, name: str, folder: str) -> None:
    run_probe(source, program, folder)  # writes the bytecode, and the schema
    probes = [run_probe(source, program, folder) for _ in range(STARTS)]
    took = [1000 * probe["took"] for probe in probes]
    loaded = probes[0]["loaded"]
    worker = sum(module.startswith("tickwork._worker") for module in loaded)
    median = f"{statistics.median(took):.0f} ms"
    print_line(f"{name}, time", median, f"median of {STARTS}, best {min(took):.0f}")
    print_line(f"{name}, modules", str(len(loaded)), f"{worker} of the worker")


def print_calls(steps: dict[str, list[tuple[str, str, int]]]) -> None:
    for name, calls in steps.items():
        files = sorted({file for file, _, _ in calls})
        total = sum(count for _, _, count in calls)
        print_line(f"{name}, calls and files", f"{total} / {len(files)}")
        for line in wrap(files):
            print(f"    {line}")


def wrap(files: list[str], width: int = 96) -> Iterator[str]:
    line = ""
    for file in files:
        if line and len(line) + len(file) + 1 > width:
            yield line
            line = ""
        line = f"{line} {file}".strip()
    if line:
        yield line


def print_line(name: str, value: str, note: str = "") -> None:
    print(f"{name:36} {value:>12}  {note}".rstrip(), flush=True)


def main() -> None:
    source = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "src").resolve()
    package = source / "tickwork"
    trees = read_trees(package)
    print_size(trees, package)
    print_worker(trees, package)
    with tempfile.TemporaryDirectory(prefix="tickwork-shape-") as folder:
        print_start(source, IMPORT, "from tickwork import Tickwork", folder)
        print_start(source, DISPATCH, "one dispatch on SQLite", folder)
        print_calls(run_probe(source, PROFILE + STEPS, folder))
        print_calls(run_probe(source, PROFILE + WORKER, folder))


if __name__ == "__main__":
    main()
