"""A short `make demo`, on a terminal and in a pipe."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = "6"


class Shown(NamedTuple):
    status: int
    text: str


def command(folder: Path) -> list[str]:
    demo = str(ROOT / "examples" / "demo.py")
    return [sys.executable, demo, "--seconds", SECONDS, "--folder", str(folder)]


def read_terminal(master: int) -> str:
    output = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other end was closed
            break
        if not part:
            break
        output += part
    os.close(master)
    return output.decode()


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> dict[str, Shown]:
    """One demo in a pipe and one on a terminal, at the same time."""
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
    folders = {name: tmp_path_factory.mktemp(name) for name in ("pipe", "terminal")}
    pipe = subprocess.Popen(
        command(folders["pipe"]),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    master, slave = pty.openpty()
    terminal = subprocess.Popen(
        command(folders["terminal"]), env=env, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    screen = read_terminal(master)
    output, _ = pipe.communicate(timeout=90)
    return {
        "pipe": Shown(pipe.returncode, output),
        "terminal": Shown(terminal.wait(30), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen)),
    }


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
class TestTheDemo:
    """The demo checks each promise, and its summary shows the result."""

    def test_it_succeeds(self, both, kind):
        assert both[kind].status == 0, both[kind].text
        assert "\nFAILED " not in both[kind].text

    @pytest.mark.parametrize(
        "line",
        [
            r"ok +tick +fired [1-9]\d* times, each instant once, at most \d+ ms late",
            r"ok +sample +fired [1-9]\d* times, each instant once",
            r"ok +send_email +16 of 16 sent, never more than 2 at a time",
            r"ok +fetch_rates +failed 2 times, then returned 1 EUR = 1.08 USD",
            r"ok +charge_card +failed permanently after 2 attempts: PaymentError: the card",
            r"ok +import_pages +worker (\d+) killed at page [3-9]; worker (?!\1)\d+ continued",
            r"ok +backup +in spring 2027: 27 Mar 02:30, 28 Mar 03:00, 29 Mar 02:30",
            r"1 failed permanently, 0 unfinished. Nothing was lost.",
            r"Next steps",
        ],
    )
    def test_the_summary(self, both, kind, line):
        assert re.search(line, both[kind].text), both[kind].text

    def test_a_worker_was_killed_and_its_run_taken_over(self, both, kind):
        text = both[kind].text
        killed = re.search(r"worker +killed +kill -9 (\d+)", text)
        successor = re.search(r"import_pages +taken over +by worker (\d+) after", text)

        assert killed is not None, text
        assert successor is not None, text
        assert killed[1] != successor[1]


def test_the_commands_of_the_next_steps_work(both):
    text = both["pipe"].text.partition("Next steps")[2]
    [variables] = re.findall(r"export (.*)", text)
    env = {**os.environ, **dict(pair.split("=", 1) for pair in variables.split())}
    lines = re.findall(
        r"^ +(\S+tickwork (?:status|runs|inspect).*?)(?: +#.*)?$", text, re.MULTILINE
    )

    answers = [
        subprocess.run(
            line.split(), cwd=Path.cwd(), env=env, capture_output=True, text=True, check=False
        )
        for line in lines
    ]

    assert [answer.returncode for answer in answers] == [0, 0, 0], answers
    assert all("import_pages" in answer.stdout for answer in answers)
    assert "crash" in answers[2].stdout


def test_a_terminal_gets_a_live_table_and_a_pipe_gets_lines(both):
    assert "events ─" in both["terminal"].text
    assert "─" not in both["pipe"].text
    assert "\x1b" not in both["pipe"].text
    assert len(re.findall(r"^ +\d+\.\d s  ", both["pipe"].text, re.MULTILINE)) > 15
