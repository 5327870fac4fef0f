"""What an actor says of itself: one line of JSON each, in a file that outlives it."""

import json
import os
import time
from pathlib import Path
from typing import Any


class Journal:
    """Appends lines. One write each: whoever is killed leaves whole lines behind."""

    def __init__(self, path: Path, who: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._who = who

    def write(self, word: str, **facts: Any) -> None:
        """Write one line, with the machine's two clocks."""
        line = {
            "at": time.time(),
            "monotonic": time.monotonic(),
            "who": self._who,
            "pid": os.getpid(),
            "word": word,
            **facts,
        }
        os.write(self._file, (json.dumps(line) + "\n").encode())


def own_journal() -> Journal:
    """The journal of this process, as the driver named it."""
    return Journal(Path(os.environ["CHAOS_JOURNAL"]), os.environ["CHAOS_WHO"])
