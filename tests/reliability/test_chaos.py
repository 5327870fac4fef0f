"""A minute of faults on each database, all at the same time: no violation."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from servers import choice

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("mysql",) if choice.chosen() == "mysql" else ("sqlite", "postgres", "mariadb")
SECONDS = 60


@pytest.mark.servers("postgres", "mariadb")
@pytest.mark.timeout(400)
def test_a_minute_of_faults_causes_no_violation(tmp_path):
    outputs = {kind: tmp_path / kind for kind in KINDS}
    running = {kind: start_chaos(kind, path) for kind, path in outputs.items()}
    try:
        codes = {kind: process.wait(360) for kind, process in running.items()}
    finally:
        for process in running.values():
            process.kill()

    output = "\n".join(path.read_text(encoding="utf-8") for path in outputs.values())
    sys.stdout.write(output)
    assert set(codes.values()) == {0}, output


def start_chaos(kind: str, output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "chaos", "--db", kind, "--seconds", str(SECONDS)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": ".:tests"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
