"""The release of the IANA time zone database that this process uses."""

import zoneinfo
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

_FILES: Final = (("tzdata.zi", "# version "), ("+VERSION", ""))


@cache
def read_zone_version() -> str:
    """The release, such as ``2026b``; empty if it is unknown.

    Machines with different releases may disagree about when clocks change.
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
            return ""  # Python uses these files, but they do not name their release
    try:
        return str(import_module("tzdata").IANA_VERSION)
    except (ImportError, AttributeError):
        return ""
