"""What was judged, and what was found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chaos.checker.evidence import Evidence
from chaos.checker.rules import RULES, Violation
from chaos.checker.story import story_of

SHOWN_MAX: Final = 5
"""Violations of one rule that are shown; of the others, how many there are."""
STORIES_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """The violations, and how much was looked at."""

    violations: Sequence[Violation]
    counts: Mapping[str, int]
    stories: Sequence[str]

    def told(self) -> str:
        """In words, with the story of those runs that were wronged."""
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        if not self.violations:
            return f"checked: {counts}. Every promise was kept."
        parts = [f"checked: {counts}. {len(self.violations)} violations:"]
        for rule in self.rules:
            found = [violation for violation in self.violations if violation.rule == rule]
            parts += [f"  {violation}" for violation in found[:SHOWN_MAX]]
            if len(found) > SHOWN_MAX:
                parts.append(f"  {rule}: … and {len(found) - SHOWN_MAX} more")
        return "\n".join([*parts, *self.stories])

    @property
    def rules(self) -> list[str]:
        """The promises that were broken."""
        return list(dict.fromkeys(violation.rule for violation in self.violations))


def judged(evidence: Evidence) -> Verdict:
    """Ask every rule."""
    violations = [violation for rule in RULES for violation in rule(evidence)]
    # One of each rule: a hundred of one kind have the same story.
    first = {v.rule: v.run for v in reversed(violations) if v.run is not None}
    runs = list(dict.fromkeys(first.values()))
    counts = {
        "runs": len(evidence.births),
        "attempts": len(evidence.told("begin")),
        "firings": sum(birth.schedule is not None for birth in evidence.births.values()),
        "changes of rows": len(evidence.changes),
        "lines of journals": len(evidence.lines),
    }
    stories = [story_of(evidence, run) for run in runs[:STORIES_MAX]]
    return Verdict(violations, counts, stories)
