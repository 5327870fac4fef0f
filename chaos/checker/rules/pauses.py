"""While a job or a queue is paused, none of its runs starts."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from chaos.checker.disturbed_times import DisturbedTimes
from chaos.checker.evidence import SECOND, Evidence, Line
from chaos.checker.violation import Violation

GRACE: Final = SECOND // 2
"""A claim that began before the pause may still commit."""


def paused_runs_do_not_start(evidence: Evidence) -> Iterator[Violation]:
    """No run is claimed between a pause and the request to resume."""
    disturbed = DisturbedTimes(evidence)
    claims = [
        claim
        for changes in evidence.changes_by_run.values()
        for before, claim in pairwise(changes)
        if claim.is_running and claim.token > before.token
    ]
    for paused, resuming in _pauses(evidence):
        kind, name = next(iter(paused.facts.items()))
        for claim in claims:
            is_during = paused.at + GRACE <= claim.at < resuming.at
            if is_during and getattr(claim, kind) == name and not disturbed.has(claim.at):
                yield Violation(
                    "pauses", f"it started while the {kind} {name} was paused", claim.run
                )


def _pauses(evidence: Evidence) -> Iterator[tuple[Line, Line]]:
    """Each pause with the line that ends it, which a later process may have written."""
    open_by_target: dict[str, Line] = {}
    for line in evidence.lines_of("paused", "resuming"):
        target = str(line.facts)
        if line.event == "paused":
            open_by_target[target] = line
        elif target in open_by_target:
            yield open_by_target.pop(target), line
