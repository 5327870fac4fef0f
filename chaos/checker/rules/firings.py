"""Each instant of a schedule gives one run, or is part of one row with a reason."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from chaos.checker.evidence import SECOND, Evidence, Finished
from chaos.checker.violation import Violation

LATE_MAX: Final = 5 * SECOND
"""How late the last instant may be when a schedule is paused."""

Name = tuple[str, str]


def each_instant_is_accounted_for_once(evidence: Evidence) -> Iterator[Violation]:
    """Each firing has one run or one reason; none is missing."""
    runs: dict[Name, Counter[int]] = defaultdict(Counter)
    run_by_instant: dict[tuple[Name, int], str] = {}
    for born in evidence.births.values():
        if born.schedule is not None and born.nominal_at is not None:
            name = (born.tenant, born.schedule)
            runs[name][born.nominal_at] += 1
            run_by_instant[name, born.nominal_at] = born.run
    skips: dict[Name, list[Finished]] = defaultdict(list)
    for row in evidence.finished:
        if row.schedule is not None and row.id not in evidence.births:
            skips[row.tenant, row.schedule].append(row)
    for facts in evidence.manifest.get("schedules", ()):
        name = (facts["tenant"], facts["name"])
        grid = _Grid(facts)
        yield from _check_grid(evidence, grid, runs[name], skips[name])
        for instant, count in runs[name].items():
            if count > 1:
                what = f"{grid.name} fired {count} times at {instant / SECOND:.0f}"
                yield Violation("firings", what, run_by_instant[name, instant])


class _Grid:
    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.name = f"schedule {facts['name']!r}"
        self.facts = facts
        self.every: int = round(facts["every"] * SECOND)
        self.anchor: int = round(facts["anchor"] * SECOND)

    def has(self, instant: int) -> bool:
        return (instant - self.anchor) % self.every == 0


def _check_grid(
    evidence: Evidence, grid: _Grid, runs: Mapping[int, int], skips: list[Finished]
) -> Iterator[Violation]:
    covered: Counter[int] = Counter(runs.keys())
    for row in skips:
        assert row.nominal_at is not None, row
        last = row.nominal_at if row.last_nominal_at is None else row.last_nominal_at
        instants = range(row.nominal_at, last + 1, grid.every)
        if grid.facts["is_steady"] and len(instants) != row.instants:
            what = f"{grid.name}: a row counts {row.instants} instants, and spans {len(instants)}"
            yield Violation("firings", what, row.id)
        covered.update(instants)
        if row.reason.startswith("missed") and grid.facts["misfire"] == "all":
            yield Violation(
                "firings", f"{grid.name} catches up on all instants, and missed some", row.id
            )
        if row.reason.startswith("overlap") and grid.facts["overlap"] == "allow":
            yield Violation("firings", f"{grid.name} allows overlaps, and skipped one", row.id)
    for instant, count in covered.items():
        if not grid.has(instant):
            yield Violation("firings", f"{grid.name} has no instant {instant / SECOND:.3f}")
        if count > 1:
            what = f"{grid.name}: {instant / SECOND:.0f} is accounted for {count} times"
            yield Violation("firings", what)
    if covered and grid.facts["is_steady"]:
        yield from _missing(evidence, grid, covered)


def _missing(evidence: Evidence, grid: _Grid, covered: Mapping[int, int]) -> Iterator[Violation]:
    first, last = min(covered), max(covered)
    for instant in range(first, last, grid.every):
        if instant not in covered:
            yield Violation(
                "firings", f"{grid.name}: no run and no reason for {instant / SECOND:.0f}"
            )
    for row in evidence.schedules:
        if (row.tenant, row.name) != (grid.facts["tenant"], grid.facts["name"]):
            continue
        if first > row.created_at + grid.every:
            yield Violation("firings", f"{grid.name} began only at {first / SECOND:.0f}")
        if row.paused_at is not None and last < row.paused_at - grid.every - LATE_MAX:
            yield Violation("firings", f"{grid.name} ended already at {last / SECOND:.0f}")
