"""A minute of chaos on each database, all at the same time: every promise is kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("sqlite", "postgres", "mariadb")
SECONDS = 60


@pytest.mark.servers("postgres", "mariadb")
@pytest.mark.timeout(400)
def test_every_promise_is_kept(tmp_path):
    outputs = {kind: tmp_path / kind for kind in KINDS}
    running = {kind: chaos_on(kind, output) for kind, output in outputs.items()}
    try:
        codes = {kind: process.wait(360) for kind, process in running.items()}
    finally:
        for process in running.values():
            process.kill()

    told = "\n".join(output.read_text(encoding="utf-8") for output in outputs.values())
    sys.stdout.write(told)
    assert set(codes.values()) == {0}, told


def chaos_on(kind: str, output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "chaos", "--db", kind, "--seconds", str(SECONDS)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": ".:tests"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
