"""Where commands print colours: on a terminal, unless NO_COLOR has a text."""

import io
import sys

import pytest

from tickwork.cli.output import Output

COLORED = "\x1b[31mtoo late\x1b[0m\n"
PLAIN = "too late\n"


class Screen(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize("stdout_is_terminal", [True, False])
@pytest.mark.parametrize("is_json", [True, False])
@pytest.mark.parametrize(
    ("is_terminal", "no_color", "printed"),
    [
        (True, None, COLORED),
        (True, "", COLORED),
        (True, "1", PLAIN),
        (True, "0", PLAIN),
        (False, None, PLAIN),
        (False, "1", PLAIN),
    ],
)
def test_notes_have_a_colour_where_people_read_them(  # noqa: PLR0917  # fixtures and parameters
    monkeypatch, is_terminal, no_color, printed, is_json, stdout_is_terminal
):
    if no_color is None:
        monkeypatch.delenv("NO_COLOR", raising=False)
    else:
        monkeypatch.setenv("NO_COLOR", no_color)
    stdout, stderr = Screen(is_terminal=stdout_is_terminal), Screen(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "stderr", stderr)

    Output(is_json=is_json).note("too late", "red")

    assert stderr.getvalue() == printed
    assert stdout.getvalue() == ""


def test_a_note_without_a_style_is_plain(monkeypatch):
    stderr = Screen(is_terminal=True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stderr", stderr)

    Output(is_json=False).note("too late")

    assert "too late" in stderr.getvalue()
    assert "\x1b[3" not in stderr.getvalue()
