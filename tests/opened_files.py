"""Which files and addresses this process opens, as the interpreter itself reports it."""

import sys
import sysconfig
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_OWN = (
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    *zoneinfo.TZPATH,
    str(Path(__file__).parent.parent / "src"),
)
"""The code of the program, and the time zone database: what it imports when it is first used."""

_OPENING = {
    "open",
    "socket.connect",
    "urllib.Request",
    "os.listdir",
    "os.scandir",
    "subprocess.Popen",
}
_lists: list[list[str]] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    # A number is a file that is open already.
    if _lists and event in _OPENING and not isinstance(args[0], int):
        what = str(args[0] if event != "socket.connect" else args[1])
        is_import = event == "os.listdir" and what in {*sys.path, str(Path.cwd())}
        if not (is_import or what.startswith(_OWN)):
            for found in _lists:
                found.append(f"{event} {what}")


sys.addaudithook(_hook)  # a hook stays for ever


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """Collect what is opened in this block, in all threads. Imports are left out."""
    found: list[str] = []
    _lists.append(found)
    try:
        yield found
    finally:
        _lists.remove(found)
