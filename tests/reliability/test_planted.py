"""A checker that finds nothing proves nothing: it has to find what we plant."""

import compileall
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.planted import PLANTS, Edit, Plant, Wilted, planted

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 20
ROUNDS = 3  # together as long as `make chaos` takes by default


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_there_is_a_place_for_it(plant, tmp_path):
    copy = planted(plant, ROOT / "src", tmp_path)

    for edit in plant.edits:
        if edit.path.endswith(".py"):
            assert compileall.compile_file(str(copy / "tickwork" / edit.path), quiet=1)


def test_a_place_that_is_gone_is_told_of(tmp_path):
    plant = Plant("a bug", "sqlite", frozenset(), (Edit("app.py", "no such text", ""),))

    with pytest.raises(Wilted, match=r"'a bug': app\.py has this 0 times"):
        planted(plant, ROOT / "src", tmp_path)


def test_there_are_a_dozen_and_each_has_a_name():
    assert len({plant.name for plant in PLANTS}) == len(PLANTS) >= 12


def test_the_page_names_each_of_them():
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")

    for plant in PLANTS:
        assert f"| {plant.name} | {plant.kind} | {', '.join(sorted(plant.rules))} |" in page


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(
            plant,
            id=plant.name,
            marks=[] if plant.kind == "sqlite" else [pytest.mark.servers(plant.kind)],
        )
        for plant in PLANTS
    ],
)
def test_it_is_found_within_a_minute(plant, tmp_path):
    copy = planted(plant, ROOT / "src", tmp_path)
    told = ""
    for seed in range(1, ROUNDS + 1):
        told = beaten(plant.kind, seed, copy)
        if any(f"  {rule}: " in told for rule in plant.rules):
            return
    raise AssertionError(f"Nobody has found {plant.name!r}.\n{told[-3000:]}")


def beaten(kind: str, seed: int, source: Path) -> str:
    words = ["--db", kind, "--seconds", str(SECONDS), "--seed", str(seed), "--source", str(source)]
    ended = subprocess.run(
        [sys.executable, "-m", "chaos", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ".:tests"},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout + ended.stderr
