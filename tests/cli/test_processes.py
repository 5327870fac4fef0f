"""Commands in real processes: signals, exit codes, pipes, terminals, broken programs."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

SHOP = """
import os, time
from tickwork import Tickwork

app = Tickwork("sqlite:///shop.db?synchronous=NORMAL")

@app.job
def answers(n: int = 1) -> int:
    return n

@app.job
def fails() -> None:
    raise ValueError("no")

def tick():
    print("tick", flush=True)

app.schedule("tick", tick).every_second()
"""


class Folder:
    """A folder with an application, and commands that run in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, text: str = SHOP, name: str = "shop.py") -> None:
        (self.path / name).write_text(text, encoding="utf-8")

    def env(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "TICKWORK_APP"}
        return {**kept, "TERM": "xterm-256color", **more}

    def run(
        self, *arguments: str, app: str = "shop:app", **env: str
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tickwork", *(["-a", app] if app else []), *arguments]
        return subprocess.run(
            command,
            cwd=self.path,
            env=self.env(**env),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def start(self, *arguments: str, app: str = "shop:app") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tickwork", *(["-a", app] if app else []), *arguments]
        return subprocess.Popen(
            command,
            cwd=self.path,
            env=self.env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, folder: Folder, *arguments: str, columns: int = 100, **env: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tickwork", "-a", "shop:app", *arguments],
            cwd=folder.path,
            env=folder.env(**env),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  # no threads
        )
        os.close(slave)
        self.drawn = ""

    def read(self, seconds: float, until: str = "") -> str:
        """Read for this many seconds, or until this text appears."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not (until and until in self.drawn):
            ready, _, _ = select.select([self.master], [], [], 0.05)
            if ready:
                try:
                    data = os.read(self.master, 65536)
                except OSError:
                    break
                if not data:
                    break
                self.drawn += data.decode(errors="replace")
        return self.drawn

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self) -> int:
        code = None
        deadline = time.monotonic() + 45
        while code is None and time.monotonic() < deadline:
            self.read(0.1)  # otherwise the command blocks on a full buffer
            code = self.process.poll()
        if code is None:
            self.process.kill()
            raise AssertionError(self.drawn)
        os.close(self.master)
        return code


@pytest.fixture
def folder(tmp_path):
    made = Folder(tmp_path)
    made.write()
    return made


class TestAnApplicationThatCannotBeLoaded:
    """The error shows the line of the user's code, and no traceback."""

    @staticmethod
    def check_error(done, *messages):
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        for text in messages:
            assert text in done.stderr

    def test_none_is_named(self, folder):
        self.check_error(folder.run("status", app=""), "No application is named.", "tickwork init")

    def test_there_is_no_such_module(self, folder):
        done = folder.run("status", app="shpo:app")

        self.check_error(done, "There is no module 'shpo' (from -a shpo:app).")

    def test_the_module_has_no_such_name(self, folder):
        self.check_error(folder.run("status", app="shop:ap"), "It has app: tickwork -a shop:app")

    def test_the_module_raises(self, folder):
        folder.write("import os\n\n\ndef make():\n    return undefined_thing\n\n\nx = make()\n")

        self.check_error(
            folder.run("status"),
            "shop cannot be imported: NameError: name 'undefined_thing' is not defined",
            "shop.py, line 5:",
            "return undefined_thing",
        )

    def test_the_module_imports_a_missing_module(self, folder):
        folder.write("import tickwork\nimport reqests\n")

        self.check_error(folder.run("status"), "shop.py, line 2:", "import reqests")

    def test_the_module_has_a_syntax_error(self, folder):
        folder.write("from tickwork import Tickwork\napp = Tickwork(\n")

        self.check_error(folder.run("status"), "SyntaxError", "shop.py, line 2:", "app = Tickwork(")

    def test_an_invalid_definition(self, folder):
        folder.write(SHOP + "\napp.schedule('bad', tick).cron('61 * * * *')\n")

        self.check_error(folder.run("status"), "'61' is not in 0-59", ".cron('61 * * * *')")

    def test_an_invalid_configuration_file(self, folder):
        folder.write('[tickwork]\nap = "shop:app"\n', name="tickwork.toml")

        self.check_error(folder.run("status", app=""), "tickwork.toml", "ap")

    def test_the_configuration_file_names_the_application(self, folder):
        folder.write('[tickwork]\napp = "shop:app"\n', name="tickwork.toml")

        assert folder.run("show", app="").returncode == 0

    def test_the_configuration_file_defines_the_application(self, folder):
        folder.write(
            '[tickwork]\nhandler_paths = ["shop"]\n\n'
            '[[jobs]]\nname = "by file"\nclass = "shop:tick"\nrun = "EVERY_DAY"\n',
            name="tickwork.toml",
        )

        done = folder.run("show", "--json", app="")

        assert [job["name"] for job in json.loads(done.stdout)["jobs"]] == ["by file"]

    def test_a_configuration_file_alone_finds_modules_of_the_current_folder(self, folder):
        folder.write("def tick():\n    return 1\n", name="local_jobs.py")
        folder.write(
            '[tickwork]\nurl = "sqlite:///config_only.db"\nhandler_paths = ["local_jobs"]\n\n'
            '[[jobs]]\nname = "by file"\nclass = "local_jobs:tick"\n',
            name="tickwork.toml",
        )

        # As the installed command does, Python does not add the current folder here.
        env = {"app": "", "PYTHONSAFEPATH": "1"}
        dispatched = folder.run("dispatch", "by file", **env)
        collected = folder.run("collect", **env)

        assert (dispatched.returncode, collected.returncode) == (0, 0), dispatched.stderr
        listed = json.loads(folder.run("runs", "--json", **env).stdout)["runs"]
        assert [run["status"] for run in listed] == ["completed"]


class TestADatabaseThatCannotBeReached:
    """The exit code is 4; ``doctor`` reports it as a failed check."""

    BODY = "from tickwork import Tickwork\napp = Tickwork({url!r})\n"

    def test_no_server_listens(self, folder):
        folder.write(self.BODY.format(url="postgresql://app:s3cret@127.0.0.1:1/jobs"))

        done = folder.run("status")

        assert done.returncode == 4
        assert "cannot be reached" in done.stderr
        assert "s3cret" not in done.stderr
        assert "Traceback" not in done.stderr
        report = folder.run("doctor", "--json")
        assert report.returncode == 1
        [check] = json.loads(report.stdout)["checks"]
        assert (check["name"], check["level"]) == ("connection", "bad")
        assert "s3cret" not in report.stdout

    def test_there_is_no_such_folder(self, folder):
        folder.write(self.BODY.format(url="sqlite:////no/such/folder/jobs.db"))

        done = folder.run("runs")

        assert done.returncode == 4
        assert "Traceback" not in done.stderr

    def test_no_such_store(self, folder):
        folder.write(self.BODY.format(url="oracle://db/jobs"))

        done = folder.run("status")

        assert done.returncode == 4
        assert "is not a valid store URL" in done.stderr


class TestTheCommandLine:
    """Mistyped commands, completion, pipes."""

    def test_a_mistyped_command(self, folder):
        done = folder.run("statsu")

        assert done.returncode == 2
        assert "Did you mean 'status'?" in done.stderr

    def test_completion_knows_commands_and_jobs(self, folder):
        variables = {
            "_TICKWORK_COMPLETE": "bash_complete",
            "COMP_WORDS": "tickwork sta",
            "COMP_CWORD": "1",
        }
        program = [
            sys.executable,
            "-c",
            "from tickwork.cli.main import main; main(complete_var='_TICKWORK_COMPLETE')",
        ]

        def complete(variables):
            return subprocess.run(
                program,
                cwd=folder.path,
                env=folder.env(**variables, TICKWORK_APP="shop:app"),
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            ).stdout

        assert "plain,status" in complete(variables)
        variables |= {"COMP_WORDS": "tickwork dispatch ans", "COMP_CWORD": "2"}
        assert "plain,answers" in complete(variables)

    def test_a_reader_that_closes_the_pipe(self, folder):
        folder.run("dispatch", "answers")
        command = f"{sys.executable} -m tickwork -a shop:app next -n 5000 | head -n 1"

        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder.path,
            env=folder.env(),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

        assert done.stdout.startswith("IN ")
        assert "Traceback" not in done.stderr


class TestWorking:
    """``init`` and ``work``, from an empty folder to a job that has run."""

    def test_init_and_work(self, tmp_path):
        folder = Folder(tmp_path)
        assert folder.run("init", app="").returncode == 0

        worker = folder.start("work", app="")
        begun = time.monotonic()
        assert " started on sqlite:///" in read_line(worker)
        line = read_line(worker)

        taken = time.monotonic() - begun
        assert line.startswith("tick at"), line
        print(f"a job has run {taken:.1f} s after `tickwork work`")  # noqa: T201  # a figure
        assert taken < 20  # ten, on a machine that has nothing else to do
        assert folder.run("dispatch", "greet", "name=Ann", "--wait", app="").returncode == 0
        worker.send_signal(signal.SIGINT)
        out, _ = worker.communicate(timeout=20)
        assert worker.returncode == 0
        assert " stopped after " in out

    def test_no_terminal_library_is_loaded_to_work(self, folder):
        folder.write(
            SHOP
            + """
import sys

@app.job
def loaded() -> list[str]:
    return [name for name in ("rich", "jinja2", "markdown_it") if name in sys.modules]
"""
        )
        worker = folder.start("work")
        try:
            done = folder.run("dispatch", "loaded", "--wait", "--timeout", "20s", "--json")
            assert json.loads(done.stdout)["run"]["result"] == []
            status = Path(f"/proc/{worker.pid}/status").read_text(encoding="ascii")
            [kilobytes] = re.findall(r"VmRSS:\s+(\d+)", status)
            megabytes = int(kilobytes) / 1024
            print(f"a worker has {megabytes:.1f} MB")  # noqa: T201  # a figure
            assert megabytes < 60
        finally:
            worker.terminate()
            worker.communicate(timeout=20)

    def test_too_many_late_firings_stop_a_worker_with_max_missed(self, folder):
        folder.write(
            SHOP.replace('print("tick", flush=True)', "time.sleep(1.6)").replace(
                'schedule("tick", tick).every_second()',
                'schedule("tick", tick).every_second().overlap("queue_all")',
            )
        )

        worker = folder.start("work", "--slots", "1", "--max-missed", "2", "--drain", "0")
        out, _ = worker.communicate(timeout=60)

        assert worker.returncode == 71, out
        assert "started more than a second late" in out
        assert "--slots" in out

    def test_several_processes_receive_the_same_options(self, folder):
        worker = folder.start("work", "--processes", "2", "--slots", "3", "-q", "default")
        try:
            deadline = time.monotonic() + 45
            workers: list[Any] = []
            while len(workers) < 2 and time.monotonic() < deadline:
                time.sleep(0.2)
                workers = json.loads(folder.run("status", "--json").stdout)["workers"]
            assert [(each["slots"], each["queues"]) for each in workers] == [(3, ["default"])] * 2
        finally:
            worker.terminate()
            worker.communicate(timeout=30)
        assert worker.returncode == 0


class TestOnATerminal:
    """Colours, tables and live views."""

    def test_colours_only_on_a_terminal(self, folder):
        folder.run("dispatch", "answers")

        piped = folder.run("runs").stdout
        assert "\x1b[" not in piped
        seen = Terminal(folder, "runs")
        assert seen.end() == 0
        assert "\x1b[" in seen.drawn
        plain = Terminal(folder, "runs", NO_COLOR="1")
        assert plain.end() == 0
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]", plain.drawn)

    def test_a_table_fits_the_terminal(self, folder):
        folder.run("collect")
        for columns in (60, 80, 140):
            seen = Terminal(folder, "status", columns=columns)
            assert seen.end() == 0
            lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.drawn).splitlines()
            assert max(map(len, lines)) <= columns

    def test_a_live_view_is_redrawn_in_place_and_ends_with_ctrl_c(self, folder):
        folder.run("dispatch", "answers")
        seen = Terminal(folder, "status", "--watch", "--every", "0.2")
        seen.read(45, until="\x1b[1A")  # it went up, to draw it again

        seen.type("\x03")

        assert seen.end() == 0
        assert "\x1b[2J" not in seen.drawn  # nothing is wiped, so nothing flickers
        assert "\x1b[?25l" in seen.drawn
        assert seen.drawn.rindex("\x1b[?25h") > seen.drawn.rindex("\x1b[?25l")
        assert "Traceback" not in seen.drawn
        assert "Aborted" not in seen.drawn

    def test_follow_prints_changes_and_ends_with_ctrl_c(self, folder):
        folder.run("dispatch", "answers")
        seen = Terminal(folder, "runs", "--follow", "--every", "0.1")
        assert "pending" in seen.read(45, until="pending")

        folder.run("dispatch", "fails")
        folder.run("collect")
        seen.read(45, until="failed_permanent")
        seen.type("\x03")

        assert seen.end() == 0
        assert "completed" in seen.drawn
        assert "ValueError: no" in seen.drawn
        assert "Traceback" not in seen.drawn

    def test_follow_prints_json_lines_in_a_pipe(self, folder):
        folder.run("dispatch", "answers")
        tail = folder.start("runs", "--follow", "--json", "--every", "0.1")
        first = json.loads(read_line(tail))
        assert (first["job"], first["status"]) == ("answers", "pending")

        folder.run("collect")
        found = set()
        while "completed" not in found:
            line = json.loads(read_line(tail))
            found.add(line["status"] if line["job"] == "answers" else "")

        tail.send_signal(signal.SIGINT)
        tail.communicate(timeout=20)
        assert tail.returncode == 0

    def test_a_worker_prints_that_it_started_and_ends_with_ctrl_c(self, folder):
        seen = Terminal(folder, "work")
        seen.read(45, until="tick\r\n")
        seen.type("\x03")

        assert seen.end() == 0
        assert " started on sqlite:///shop.db?" in seen.drawn
        assert ": 3 jobs, 1 schedule, all queues." in seen.drawn
        assert " stopped after " in seen.drawn

    def test_retry_asks_for_confirmation(self, folder):
        folder.run("dispatch", "fails")
        folder.run("collect")
        seen = Terminal(folder, "retry", "--job", "fails")
        seen.read(45, until="[y/N]")
        seen.type("y\n")

        assert seen.end() == 0
        assert "1 run retried." in seen.drawn
        assert "Retrying" in seen.drawn  # the progress bar

    def test_ctrl_c_during_a_wait(self, folder):
        seen = Terminal(folder, "dispatch", "answers", "--delay", "1h", "--wait")
        time.sleep(0.2)
        deadline = time.monotonic() + 45
        while time.monotonic() < deadline:
            with suppress(Exception):
                if json.loads(folder.run("runs", "--json").stdout)["runs"]:
                    break
        time.sleep(0.3)
        seen.type("\x03")

        assert seen.end() == 130
        assert "Traceback" not in seen.drawn


def test_in_a_folder_that_was_deleted_every_command_is_a_usage_error(tmp_path):
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "shop.py").write_text(SHOP, encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": str(modules)}
    commands = ["-a shop:app status", "-a shop:app work", "status", "init", "doctor", "install"]
    for command in commands:
        words = [sys.executable, "-m", "tickwork", *command.split()]
        found = subprocess.run(
            ["/bin/sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', make_folder(tmp_path), *words],
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

        assert found.returncode == 2, (command, found.stderr)
        assert "The current folder was deleted." in found.stderr, command
        assert "Traceback" not in found.stderr, command


def make_folder(parent: Path) -> str:
    folder = parent / "gone"
    folder.mkdir()
    return str(folder)
