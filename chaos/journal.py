"""The journal of an actor: one JSON object per line, in a file that outlives the process."""

import itertools
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tickwork import current_run


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


class AttemptJournal:
    """Records calls of handlers. ``facts`` are those of the process."""

    def __init__(self, journal: Journal, **facts: Any) -> None:
        self._journal = journal
        self._facts = facts
        self._numbers = itertools.count(1)
        self._process = secrets.token_hex(3)

    @contextmanager
    def attempt(self, **facts: Any) -> Iterator[str]:
        """Record one call; yield its nonce."""
        run = current_run()
        assert run is not None
        # A process that was forked has the same numbers.
        nonce = f"<{self._process}{os.getpid():x}.{next(self._numbers)}>"
        who = {"run": str(run.run_id), "token": run.token, "nonce": nonce}
        nominal = None if run.nominal_at is None else round(run.nominal_at.timestamp() * 1e6)
        self._journal.write(
            "begin",
            job=run.job,
            attempt=run.attempt,
            schedule=run.schedule,
            nominal=nominal,
            **self._facts,
            **who,
            **facts,
        )
        try:
            yield nonce
        except BaseException as error:
            self._journal.write("end", how=type(error).__name__, error=str(error)[:200], **who)
            raise
        self._journal.write("end", how="returned", **who)


def own_journal() -> Journal:
    """Open the journal that the driver named for this process."""
    return Journal(Path(os.environ["CHAOS_JOURNAL"]), os.environ["CHAOS_WHO"])
