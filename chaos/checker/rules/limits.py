"""Limits, uniqueness and overlap: how many runs of a kind there are at any moment."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from chaos.checker.clock_steps import ClockSteps
from chaos.checker.evidence import SECOND, Change, Evidence
from chaos.checker.holds import all_holds
from chaos.checker.violation import Violation

Key = tuple[Any, ...]


def limits_hold_in_the_tables(evidence: Evidence) -> Iterator[Violation]:
    """After every change, no more runs are held than their limits allow."""
    for limit in evidence.manifest.get("limits", ()):
        jobs, per, slots = set(limit["jobs"]), limit["per"], limit["slots"]

        def key_of(change: Change, jobs: set[str] = jobs, per: str = per) -> Key | None:
            if change.job not in jobs:
                return None
            return (evidence.args_of(change.run).get(per),) if per else ()

        name = f"{'+'.join(sorted(jobs))}{f' per {per}' if per else ''}"
        yield from _at_most(evidence, "limits", name, slots, key_of=key_of, is_counted=_is_held)


def limits_hold_by_the_clock(evidence: Evidence) -> Iterator[Violation]:
    """The same from the journals: handlers that run under a valid lease."""
    holds = all_holds(evidence)
    ended_at = {
        (line.facts["run"], line.facts["token"]): line.at for line in evidence.lines_of("end")
    }
    for limit in evidence.manifest.get("limits", ()):
        edges: dict[Key, list[tuple[int, int, str]]] = defaultdict(list)
        for line in evidence.lines_of("begin"):
            if line.facts["job"] not in limit["jobs"]:
                continue
            claim = line.facts["run"], line.facts["token"]
            hold = holds.get(claim)
            if hold is None:
                continue  # another rule reports it
            ends = [end for end in (ended_at.get(claim), hold.ended_at) if end is not None]
            if not ends or min(ends) <= line.at:
                continue
            key: Key = (line.facts.get(limit["per"]),) if limit["per"] else ()
            edges[key] += [(line.at, 1, hold.run), (min(ends), -1, hold.run)]
        for key, moments in edges.items():
            count = 0
            for _, step, run in sorted(moments):
                count += step
                if count > limit["slots"]:
                    what = f"{count} of {limit['slots']} of {limit['jobs']} {key} running at once"
                    yield Violation("limits", what, run)
                    break


def rates_are_kept(evidence: Evidence) -> Iterator[Violation]:
    """No window has more starts than the rate allows.

    A start is a claim, at the time of its worker's clock, from which the lease is counted. A
    window in which that clock was set is left out: the rate counts by it, and a lease of a claim
    in it may have ended when the clock was set.
    """
    clock = ClockSteps(evidence)
    for rate in evidence.manifest.get("rates", ()):
        window, lease = round(rate["seconds"] * SECOND), round(rate["lease"] * SECOND)
        starts = sorted(
            ((claim.lease_until or 0) - lease, claim.run)
            for changes in evidence.changes_by_run.values()
            for before, claim in pairwise(changes)
            if claim.job == rate["job"] and claim.is_running and claim.token > before.token
        )
        for (first, _), (last, run) in zip(starts, starts[rate["starts"] :], strict=False):
            if last - first < window and len(clock.offsets(first, last + lease)) == 1:
                apart = (last - first) / SECOND
                what = f"{rate['starts'] + 1} starts of {rate['job']} within {apart:.3f} s"
                yield Violation("rates", what, run)


def keys_are_unique(evidence: Evidence) -> Iterator[Violation]:
    """There is at most one unfinished run of a unique key."""

    def key_of(change: Change) -> Key | None:
        by = evidence.facts_by_job.get(change.job, {}).get("unique_by")
        if not by or evidence.facts_by_job[change.job].get("unique_within"):
            return None
        return change.job, change.tenant, evidence.args_of(change.run).get(by)

    yield from _at_most(evidence, "unique", "key", 1, key_of=key_of, is_counted=_is_unfinished)


def windows_are_kept(evidence: Evidence) -> Iterator[Violation]:
    """Within the window of a unique key, there is one run of it, finished or not.

    A window in which the clock was set is left out: the window ends by that clock, and the clock
    may show the same times twice.
    """
    clock = ClockSteps(evidence)
    last: dict[Key, Change] = {}
    for born in sorted(evidence.births.values(), key=lambda born: born.created_at):
        facts = evidence.facts_by_job.get(born.job, {})
        if not facts.get("unique_within"):
            continue
        key = born.job, born.tenant, json.loads(born.args or "{}").get(facts["unique_by"])
        before = last.get(key)
        window = round(facts["unique_within"] * SECOND)
        if (
            before is not None
            and born.created_at - before.created_at < window
            and len(clock.offsets(*sorted((before.at, born.at)))) == 1
        ):
            apart = (born.created_at - before.created_at) / SECOND
            yield Violation("unique", f"{key} was added twice within {apart:.3f} s", born.run)
        last[key] = born


def schedules_do_not_overlap(evidence: Evidence) -> Iterator[Violation]:
    """Runs of a schedule overlap only as its policy allows."""
    checks: dict[str, Callable[[Change], bool]] = {
        "skip": _is_unfinished,
        "queue_all": lambda change: _is_unfinished(change) and change.token > 0,
        "queue_one": _is_held,
        "cancel_running": _is_held,
    }
    for overlap, is_counted in checks.items():
        names = {
            (facts["tenant"], facts["name"])
            for facts in evidence.manifest.get("schedules", ())
            if facts["overlap"] == overlap
        }

        def key_of(change: Change, names: set[tuple[str, str]] = names) -> Key | None:
            found = (change.tenant, change.schedule or "")
            return found if found in names else None

        yield from _at_most(evidence, "overlap", overlap, 1, key_of=key_of, is_counted=is_counted)


def _at_most(
    evidence: Evidence,
    rule: str,
    name: str,
    slots: int,
    *,
    key_of: Callable[[Change], Key | None],
    is_counted: Callable[[Change], bool],
) -> Iterator[Violation]:
    counted: dict[Key, set[str]] = defaultdict(set)
    keys: dict[str, Key | None] = {}
    for change in evidence.changes:
        if change.run not in keys:
            keys[change.run] = key_of(change)
        key = keys[change.run]
        if key is None:
            continue
        if not is_counted(change):
            counted[key].discard(change.run)
        elif change.run not in counted[key]:
            counted[key].add(change.run)
            if len(counted[key]) > slots:
                others = ", ".join(sorted(counted[key] - {change.run}))
                what = f"{len(counted[key])} of {slots} of {name} {key}, beside {others}"
                yield Violation(rule, what, change.run)


def _is_held(change: Change) -> bool:
    return change.is_running


def _is_unfinished(change: Change) -> bool:
    return change.op != "DELETE"
