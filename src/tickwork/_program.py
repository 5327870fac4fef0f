"""How this process calls the commands of tickwork, for messages that name one.

``tickwork work`` is ``python manage.py tickwork work`` in a Django project.
"""

import re
from typing import Final

COMMANDS: Final = (
    "alerts", "calendar", "cancel", "collect", "dispatch", "doctor", "drain", "emit", "explain",
    "import", "init", "inspect", "install", "next", "pause", "preview", "prune", "resume", "retry",
    "runs", "settings", "show", "signal", "simulate", "status", "ui", "unlock", "upgrade", "usage",
    "wake", "watch", "work",
)  # fmt: skip
"""The names of all commands. A test compares them with the command line."""

_COMMAND: Final = re.compile(
    rf"(?<![\w./-])tickwork (?:-a [\w.]+:\w+ )?(?=(?:COMMAND|{'|'.join(COMMANDS)})\b)"
)
_replacements: Final[dict[str, str]] = {}
_prefix: Final[list[str]] = []


def set_program(prefix: str, replacements: dict[str, str]) -> None:
    """Name another program in messages: ``prefix`` instead of ``tickwork``.

    ``replacements`` are whole parts of a message, for which there is another command.
    """
    _prefix[:] = [prefix]
    _replacements.update(replacements)


def name_commands(text: str) -> str:
    """The text of a message, with the commands as this process calls them."""
    if not _prefix:
        return text
    for part, other in _replacements.items():
        text = text.replace(part, other)
    plain = text.replace(f"{_prefix[0]} ", "tickwork ")  # it may be named already
    return _COMMAND.sub(f"{_prefix[0]} ", plain)
