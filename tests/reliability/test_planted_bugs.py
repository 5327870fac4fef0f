"""The checker finds each planted bug. Otherwise a clean run would prove nothing."""

import compileall
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.planted_bugs import BUGS, Edit, PatchOutdated, PlantedBug, plant_bug

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 40  # a worker is frozen for up to 10 s
ROUNDS = 3


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_its_patch_applies(bug, tmp_path):
    copy = plant_bug(bug, ROOT / "src", tmp_path)

    for edit in bug.edits:
        if edit.path.endswith(".py"):
            assert compileall.compile_file(str(copy / "tickwork" / edit.path), quiet=1)


def test_an_outdated_patch_is_an_error(tmp_path):
    bug = PlantedBug("a bug", "sqlite", frozenset(), (Edit("errors.py", "no such text", ""),))

    with pytest.raises(PatchOutdated, match=r"'a bug': errors\.py has this 0 times"):
        plant_bug(bug, ROOT / "src", tmp_path)


def test_names_are_unique():
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 12


def test_the_documentation_lists_it():
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")

    for bug in BUGS:
        assert f"| {bug.name} | {bug.kind} | {', '.join(sorted(bug.rules))} |" in page


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(
            bug,
            id=bug.name,
            marks=[] if bug.kind == "sqlite" else [pytest.mark.servers(bug.kind)],
        )
        for bug in BUGS
    ],
)
def test_it_is_found(bug, tmp_path):
    copy = plant_bug(bug, ROOT / "src", tmp_path)
    output = ""
    for seed in range(1, ROUNDS + 1):
        output = run_chaos(bug.kind, seed, copy)
        if any(f"  {rule}: " in output for rule in bug.rules):
            return
    raise AssertionError(f"No rule found {bug.name!r}.\n{output[-3000:]}")


def run_chaos(kind: str, seed: int, source: Path) -> str:
    options = [
        "--db",
        kind,
        "--seconds",
        str(SECONDS),
        "--seed",
        str(seed),
        "--source",
        str(source),
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "chaos", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ".:tests"},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout + ended.stderr
