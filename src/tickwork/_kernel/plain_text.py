"""Escapes characters that are not safe in a terminal or in a log.

An error, an argument or a name can contain characters that move the cursor, write to the clipboard,
reverse the writing direction, or start a line that looks like another log record.
"""

import re
from typing import Final

# C0 and C1 controls, marks and overrides of the writing direction, other line ends, and halves of
# a surrogate pair, which no stream can write.
_UNSAFE: Final = (
    r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
)
_ALL: Final = re.compile(f"[{_UNSAFE}]")
_IN_LINES: Final = re.compile(rf"(?![\n\t])[{_UNSAFE}]")


def escape_line(text: str) -> str:
    r"""Escape all control and direction characters, line ends included.

    >>> escape_line("paid\n\x1b[2J\u202eok")
    'paid\\n\\x1b[2J\\u202eok'
    """
    return text if text.isprintable() else _ALL.sub(_escape, text)


def escape_lines(text: str) -> str:
    r"""The same for a text of several lines: it keeps line ends and tabs.

    >>> escape_lines("first\n\tsecond\x07")
    'first\n\tsecond\\x07'
    """
    return text if text.isprintable() else _IN_LINES.sub(_escape, text)


def escape_json(text: str) -> str:
    r"""Escape characters in JSON text that are valid in JSON, but not safe in a terminal.

    >>> escape_json('{"name": "Ann\x9b\u202e"}')
    '{"name": "Ann\\u009b\\u202e"}'
    """
    return _IN_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def count_of(count: int, noun: str, plural: str = "") -> str:
    """The count and the noun in the right form.

    >>> count_of(1, "run"), count_of(1200, "run"), count_of(0, "process", "processes")
    ('1 run', '1,200 runs', '0 processes')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
