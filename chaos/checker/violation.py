"""A broken promise."""

from typing import NamedTuple


class Violation(NamedTuple):
    """Which promise, what happened, and to which run, if to one."""

    rule: str
    what: str
    run: str | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}" + ("" if self.run is None else f" (run {self.run})")
