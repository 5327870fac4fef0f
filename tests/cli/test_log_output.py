"""The log of ``work`` and ``collect``: what it shows, and in which format."""

import json
import logging

import pytest

from cli.test_processes import Folder
from tickwork.cli.log_output import JsonFormatter, TextFormatter

TALK = """
import logging
from tickwork import Tickwork, RunContext

app = Tickwork("sqlite:///shop.db?synchronous=NORMAL")

@app.job
def talk(ctx: RunContext):
    logging.getLogger("shop").info("low on paper")
    ctx.log.warning("out of ink")

@app.job
def fail():
    raise ValueError("no paper")
"""


@pytest.fixture
def folder(tmp_path):
    found = Folder(tmp_path)
    found.write(TALK)
    return found


def record(message, *args, **fields):
    made = logging.LogRecord("shop", logging.WARNING, "shop.py", 1, message, args, None)
    vars(made).update(fields)
    return made


class TestWork:
    def test_it_shows_failures_and_keeps_info_lines_that_it_does_not_show(self, folder):
        folder.run("dispatch", "talk")
        folder.run("dispatch", "fail")

        done = folder.run("collect")

        assert "out of ink [talk " in done.stderr
        assert "low on paper" not in done.stderr
        assert "ERROR   tickwork.worker.failures: fail: run " in done.stderr
        assert "    ValueError: no paper" in done.stderr
        [talked] = json.loads(folder.run("runs", "--job", "talk", "--json").stdout)["runs"]
        kept = json.loads(folder.run("inspect", talked["id"], "--json").stdout)["log"]
        assert [line["message"] for line in kept] == ["low on paper", "out of ink"]

    @pytest.mark.parametrize("arguments", [("-v", "collect"), ("collect", "-v")])
    def test_verbose_shows_what_ran(self, folder, arguments):
        folder.run("dispatch", "talk")

        done = folder.run(*arguments)

        assert "low on paper [talk " in done.stderr
        assert "INFO    tickwork.worker.runs: talk: run " in done.stderr

    def test_json(self, folder):
        folder.run("dispatch", "fail")

        done = folder.run("collect", "--log-format", "json")

        [line] = [json.loads(each) for each in done.stderr.splitlines() if each[0] == "{"]
        assert line.items() >= {"level": "ERROR", "job": "fail", "attempt": 1}.items()
        assert line["traceback"].endswith("ValueError: no paper\n")

    def test_a_program_that_configures_logging_keeps_its_configuration(self, folder):
        folder.write(TALK + 'logging.basicConfig(format="<%(message)s>", level="INFO")\n')
        folder.run("dispatch", "talk")

        done = folder.run("collect")

        assert "<low on paper>" in done.stderr
        assert "<out of ink>" in done.stderr

    def test_a_format_on_the_command_line_wins(self, folder):
        folder.write(TALK + 'logging.basicConfig(format="<%(message)s>", level="INFO")\n')
        folder.run("dispatch", "talk")

        done = folder.run("collect", "--log-format", "text")

        assert "<" not in done.stderr
        assert "out of ink [talk " in done.stderr


class TestForgery:
    def test_no_message_starts_a_line_of_its_own(self):
        text = TextFormatter().format(record("paid\n2026-01-01 ERROR forged\x1b[2J"))

        first, second = text.split("\n")
        assert first.endswith("shop: paid")
        assert second == "    2026-01-01 ERROR forged\\x1b[2J"

    def test_nor_does_the_text_of_an_exception(self):
        made = record("it failed")
        error = ValueError("a\nb\u202e")
        made.exc_info = (ValueError, error, None)

        lines = TextFormatter().format(made).split("\n")
        assert [line for line in lines[1:] if not line.startswith("    ")] == []
        assert lines[-1] == "    b\\u202e"

    def test_json_is_one_line_without_control_characters(self):
        text = JsonFormatter().format(record("a\nb\x1b\x9b\u202e", run_id="r1", cart={1, 2}))

        assert text.isascii()
        assert text.isprintable()
        found = json.loads(text)
        assert (found["message"], found["run_id"]) == ("a\nb\x1b\x9b\u202e", "r1")
