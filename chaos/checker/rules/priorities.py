"""Lower priorities go first, as far as anybody can say.

It is judged at claims, and only among runs that differ in nothing but their priority. A claim
that takes a run while a better one has been ready for a while has passed that one over. Once may
be chance: another worker may have had it in its hands at that moment. Again and again, by claims
of their own, is not. Where rows can be locked by somebody who was frozen or cut off, only calm
moments count: such a row is passed over until its holder is back.
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


def better_ones_go_first(evidence: Evidence) -> Iterator[Violation]:
    """No run is passed over again and again by worse ones."""
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
    """The moments at which somebody may hold what nobody sees him hold."""

    def __init__(self, evidence: Evidence) -> None:
        self._spans: list[tuple[int, int]] = []
        for line in evidence.told("fault"):
            if line.facts["name"] in DISTURBING:
                seconds = line.facts["seconds"]
                # Whoever is hit may have begun just before.
                begun = line.at - AFTERMATH
                self._spans.append((begun, line.at + round(seconds * SECOND) + 2 * AFTERMATH))
        self._spans.sort()
        self._starts = [start for start, _ in self._spans]

    def has(self, at: int) -> bool:
        """Whether this moment is one of them."""
        return any(end >= at for _, end in self._spans[: bisect(self._starts, at)])
