"""Runs with a better priority start first.

The rule compares claims of runs that differ in their priority only. A claim that takes a run while
a better one has been ready for a while has passed that one over. Once may be chance: another worker
may have had the row locked. Three separate claims are a violation. A worker that is frozen or cut
off may hold row locks, so claims during such faults do not count.
"""

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from chaos.checker.evidence import SECOND, Change, Evidence
from chaos.checker.violation import Violation

READY_FOR: Final = 7 * SECOND // 10
PASSES_MAX: Final = 2
AFTERMATH: Final = SECOND
DISTURBING: Final = frozenset(
    {"freeze_worker", "freeze_dispatcher", "cut", "delay", "stall", "lose_answer",
     "restart_server", "crash_server", "upgrade"}
)  # fmt: skip


def better_priorities_start_first(evidence: Evidence) -> Iterator[Violation]:
    """Worse runs do not start while a better one is ready."""
    ranked = {name for name, facts in evidence.facts_by_job.items() if facts["is_ranked"]}
    disturbed = _Spans(evidence)
    ready: dict[str, tuple[Change, int]] = {}
    passed: dict[str, set[tuple[str | None, str | None]]] = defaultdict(set)
    for change in evidence.changes:
        if change.job not in ranked:
            continue
        if change.is_running and change.run in ready:
            ready.pop(change.run)
            if disturbed.has(change.at):
                continue
            for better, since in ready.values():
                is_waiting = change.at - since >= READY_FOR and better.token == 0
                if is_waiting and better.priority < change.priority:
                    passed[better.run].add((change.worker, change.claim_tag))
        elif change.op == "DELETE" or change.phase != "ready":
            ready.pop(change.run, None)
        else:
            ready.setdefault(change.run, (change, change.at))
    for run, claims in passed.items():
        if len(claims) > PASSES_MAX:
            what = f"{len(claims)} claims took runs of worse priority while it was ready"
            yield Violation("priorities", what, run)


class _Spans:
    """The times at which a disturbed process may hold row locks."""

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
