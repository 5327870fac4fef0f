"""A broken guarantee."""

from typing import NamedTuple


class Violation(NamedTuple):
    """The rule, what happened, and the run, if it concerns one."""

    rule: str
    what: str
    run: str | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}" + ("" if self.run is None else f" (run {self.run})")
