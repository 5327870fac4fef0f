"""The journal of an actor: one JSON object per line, in a file that outlives the process."""

import json
import os
import time
from pathlib import Path
from typing import Any


class Journal:
    """Appends lines with one write each, so that a killed process leaves whole lines."""

    def __init__(self, path: Path, who: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._who = who

    def write(self, event: str, **facts: Any) -> None:
        """Write one line, with the machine's two clocks."""
        line = {
            "at": time.time(),
            "monotonic": time.monotonic(),
            "who": self._who,
            "pid": os.getpid(),
            "event": event,
            **facts,
        }
        os.write(self._file, (json.dumps(line) + "\n").encode())


def own_journal() -> Journal:
    """Open the journal that the driver named for this process."""
    return Journal(Path(os.environ["CHAOS_JOURNAL"]), os.environ["CHAOS_WHO"])
