"""The times at which a process may hold row locks, or a run may be due by one clock only."""

from bisect import bisect
from typing import Final

from chaos.checker.evidence import SECOND, Evidence

AFTERMATH: Final = SECOND
DISTURBING: Final = frozenset(
    {"freeze_worker", "pause_worker", "freeze_dispatcher", "cut", "delay", "stall", "lose_answer",
     "restart_server", "crash_server", "upgrade", "step_clock"}
)  # fmt: skip


class DisturbedTimes:
    """Spans of time, from before each such fault until its effects are over."""

    def __init__(self, evidence: Evidence) -> None:
        self._spans: list[tuple[int, int]] = []
        for line in evidence.lines_of("fault"):
            if line.facts["name"] in DISTURBING:
                seconds = line.facts["seconds"]
                # The process that is hit may have taken its locks just before.
                begun = line.at - AFTERMATH
                self._spans.append((begun, line.at + round(seconds * SECOND) + 2 * AFTERMATH))
        self._spans.sort()
        self._starts = [start for start, _ in self._spans]

    def has(self, at: int) -> bool:
        return any(end >= at for _, end in self._spans[: bisect(self._starts, at)])
