"""The result of a check: violations, and how much was checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chaos.checker.clock_steps import with_real_leases
from chaos.checker.evidence import Evidence
from chaos.checker.rules import RULES, Violation
from chaos.checker.timeline import timeline_of

SHOWN_MAX: Final = 5
"""Violations of one rule that are shown; the rest is counted."""
TIMELINES_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """The violations, and how much was checked."""

    violations: Sequence[Violation]
    counts: Mapping[str, int]
    timelines: Sequence[str]

    def render(self) -> str:
        """The violations as text, with the timelines of some runs."""
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        if not self.violations:
            return f"checked: {counts}. No violations."
        parts = [f"checked: {counts}. {len(self.violations)} violations:"]
        for rule in self.rules:
            found = [violation for violation in self.violations if violation.rule == rule]
            parts += [f"  {violation}" for violation in found[:SHOWN_MAX]]
            if len(found) > SHOWN_MAX:
                parts.append(f"  {rule}: … and {len(found) - SHOWN_MAX} more")
        return "\n".join([*parts, *self.timelines])

    @property
    def rules(self) -> list[str]:
        """The rules that were broken."""
        return list(dict.fromkeys(violation.rule for violation in self.violations))


def judge_evidence(evidence: Evidence) -> Verdict:
    """Apply every rule."""
    evidence = with_real_leases(evidence)
    violations = [violation for rule in RULES for violation in rule(evidence)]
    # One run for each rule: a hundred violations of one rule have similar timelines.
    first = {v.rule: v.run for v in reversed(violations) if v.run is not None}
    runs = list(dict.fromkeys(first.values()))
    counts = {
        "runs": len(evidence.births),
        "attempts": len(evidence.lines_of("begin")),
        "firings": sum(birth.schedule is not None for birth in evidence.births.values()),
        "changes of rows": len(evidence.changes),
        "lines of journals": len(evidence.lines),
    }
    timelines = [timeline_of(evidence, run) for run in runs[:TIMELINES_MAX]]
    return Verdict(violations, counts, timelines)
