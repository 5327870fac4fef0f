"""Which errors are equal: texts that differ in numbers, ids and quoted values only."""

import re
from typing import Final

GROUP_MAX: Final = 160
_ID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE)
_QUOTED: Final = re.compile(r"'[^']{1,200}'|\"[^\"]{1,200}\"")
_NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")


def group_of_error(text: str) -> str:
    """The text that equal errors share: its first line, with ``#`` in place of values.

    >>> group_of_error("ConnectionError: report server refused month 12")
    'ConnectionError: report server refused month #'
    >>> group_of_error("KeyError: 'customer-7'")
    "KeyError: '#'"
    """
    line = text.strip().partition("\n")[0][: 4 * GROUP_MAX]
    line = _QUOTED.sub(lambda quoted: f"{quoted[0][0]}#{quoted[0][0]}", line)
    line = _NUMBER.sub("#", _ADDRESS.sub("#", _ID.sub("#", line)))
    return line[:GROUP_MAX].strip()
