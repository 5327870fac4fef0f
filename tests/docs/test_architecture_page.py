"""ARCHITECTURE.md says what the import contracts enforce."""

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def contracts() -> list[dict[str, Any]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return found


def first_column(heading: str) -> list[str]:
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| ")]
    return [row.removeprefix("| ").removesuffix(" |") for row in rows[1:]]


def test_the_layers_are_those_of_the_contract():
    [layers] = [found["layers"] for found in contracts() if found["name"].startswith("Layers")]

    shown = [re.sub(r"[`*]", "", row).replace(" · ", " | ") for row in first_column("Layers")]

    assert shown == [re.sub(r"[()]", "", layer) for layer in layers]


def test_every_room_is_listed_with_its_size():
    listed = {
        name: int(lines.replace(",", ""))
        for name, lines in re.findall(r"`([\w/]+)` \| ([\d,]+)", PAGE)
    }
    package = ROOT / "src" / "tickwork"
    rooms = [each for each in package.iterdir() if (each / "__init__.py").exists()]
    lines_of = {
        room.name: sum(len(file.read_text("utf-8").splitlines()) for file in room.rglob("*.py"))
        for room in rooms
    }

    assert listed.keys() == lines_of.keys()
    for name, lines in lines_of.items():
        # The page rounds, and need not change with every change of the code.
        assert abs(listed[name] - lines) <= max(200, lines // 4), name


def test_every_contract_is_listed():
    assert first_column("Import contracts") == [found["name"] for found in contracts()]


def test_every_module_exists():
    names = set(re.findall(r"`([\w.-]+(?:/[\w.-]+)+)`", PAGE))
    folders = (ROOT / "src" / "tickwork", ROOT)

    missing = [
        name
        for name in names
        if not any((base / name).exists() or (base / f"{name}.py").exists() for base in folders)
    ]

    assert len(names) > 40
    assert missing == []
