"""Which release of the IANA time zone database this process reads."""

import zoneinfo
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

_FILES: Final = (("tzdata.zi", "# version "), ("+VERSION", ""))
_MARK: Final = " tz/"


@cache
def read_zone_version() -> str:
    """The release, such as ``2026b``; empty when nobody says.

    Two machines with different ones may disagree about when clocks change.
    """
    for folder in map(Path, zoneinfo.TZPATH):
        for name, mark in _FILES:
            try:
                with (folder / name).open(encoding="utf-8", errors="replace") as file:
                    first = file.readline(100).strip()
            except OSError:
                continue
            if first.startswith(mark):
                return first.removeprefix(mark)
        if (folder / "UTC").exists():
            return ""  # these are read, and do not say what they are
    try:
        return str(import_module("tzdata").IANA_VERSION)
    except (ImportError, AttributeError):
        return ""


def marked(version: str) -> str:
    """The version of a program, and of the zones that it reads, in one text.

    >>> split("0.1.0 tz/2026b")
    ('0.1.0', '2026b')
    """
    zones = read_zone_version()
    return f"{version}{_MARK}{zones}" if zones else version


def split(text: str) -> tuple[str, str]:
    """Both again; the second is empty when it is not known."""
    version, _, zones = text.partition(_MARK)
    return version, zones
