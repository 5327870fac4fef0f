"""Detects changes of the files that an application was loaded from, for ``work --reload``."""

import sys
import sysconfig
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

CONFIG_FILE: Final = "tickwork.toml"
_INSTALLED: Final = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


class FileWatch:
    """Compares the modification times of all Python files in the folders of loaded modules.

    Bytecode stores the time of its source in whole seconds: after two changes within a second,
    Python would load the first one. So the bytecode of a changed file is removed, and the
    workers write none.
    """

    def __init__(self) -> None:
        here = Path(__file__).parents[1]
        files = [
            Path(file).resolve()
            for module in list(sys.modules.values())
            if (file := getattr(module, "__file__", None)) and not file.startswith(_INSTALLED)
        ]
        self._folders = {file.parent for file in files if here not in file.parents}
        self._times = self._read()

    def has_changed(self) -> bool:
        """Whether a file was changed, added or removed since the last call."""
        before, self._times = self._times, self._read()
        for file, time in self._times.items():
            if file.suffix == ".py" and before.get(file) != time:
                Path(cache_from_source(str(file))).unlink(missing_ok=True)
        return before != self._times

    def _read(self) -> dict[Path, int]:
        files = [file for folder in self._folders for file in folder.glob("*.py")]
        times: dict[Path, int] = {}
        for file in [*files, Path(CONFIG_FILE)]:
            try:
                times[file] = file.stat().st_mtime_ns
            except OSError:
                continue  # it is being replaced, or there is none
        return times
