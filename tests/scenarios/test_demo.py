"""`make demo`, in short: what it promises is what it shows, on a terminal and in a pipe."""

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
    told = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        told += part
    os.close(master)
    return told.decode()


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> dict[str, Shown]:
    """One run of each kind, at the same time: most of it is waiting."""
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
    picture = read_terminal(master)
    told, _ = pipe.communicate(timeout=90)
    return {
        "pipe": Shown(pipe.returncode, told),
        "terminal": Shown(terminal.wait(30), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", picture)),
    }


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
class TestTheDemo:
    """Each promise is kept before the reader's eyes, and the summary says so."""

    def test_it_ends_well(self, both, kind):
        assert both[kind].status == 0, both[kind].text
        assert "\nNO " not in both[kind].text

    @pytest.mark.parametrize(
        "line",
        [
            r"ok +tick +fired [1-9]\d* times, each instant once, at most \d+ ms late",
            r"ok +sample +fired [1-9]\d* times, each instant once",
            r"ok +send_email +16 of 16 sent, never more than 2 at a time",
            r"ok +fetch_rates +failed 2 times, then 1 EUR = 1.08 USD",
            r"ok +charge_card +failed for good after 2 attempts: PaymentError: the card of order 7",
            r"ok +import_pages +worker (\d+) killed at page [3-9]; worker (?!\1)\d+ went on after",
            r"ok +backup +in spring 2027: 27 Mar 02:30, 28 Mar 03:00, 29 Mar 02:30",
            r"1 failed for good, 0 unfinished. Nothing was lost.",
            r"How to go on",
        ],
    )
    def test_the_summary_says_what_happened(self, both, kind, line):
        assert re.search(line, both[kind].text), both[kind].text

    def test_a_worker_was_killed_and_its_run_taken_over(self, both, kind):
        text = both[kind].text
        killed = re.search(r"worker +killed +kill -9 (\d+)", text)
        heir = re.search(r"import_pages +taken over +by the worker (\d+) after", text)

        assert killed is not None, text
        assert heir is not None, text
        assert killed[1] != heir[1]


def test_the_commands_to_go_on_with_work(both):
    text = both["pipe"].text.partition("How to go on")[2]
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


def test_a_terminal_gets_a_picture_and_a_pipe_gets_lines(both):
    assert "what happens ─" in both["terminal"].text
    assert "─" not in both["pipe"].text
    assert "\x1b" not in both["pipe"].text
    assert len(re.findall(r"^ +\d+\.\d s  ", both["pipe"].text, re.MULTILINE)) > 15
