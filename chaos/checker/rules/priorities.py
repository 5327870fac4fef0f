"""Runs with a better priority start first.

The rule compares claims of runs that differ in their priority only. A claim that takes a run while
a better one is ready has passed that one over. A correct program does that in these cases:

1. The better run was not visible when the claim read the head of the index: it became ready
   after the claim had begun, or its insert was not committed.
2. Another claim had the better run locked, and a claim skips locked rows. The other one was about
   to take it; or it left it ready: a claim also locks runs that it would only start later, and
   releases those whose jobs may not wait in a worker.

In the first case one pump passes a run over once. In the second case every pump may do so, as
often as it can claim while that other transaction is open. So the number of claims has no bound
that follows from the code: with four worker processes, two pumps each and a busy machine, three
claims were seen within 0.2 s. Therefore the rule looks at the times. A claim begins at the end of
its lease minus the length of the lease, and ends when it takes its runs. It counts only if

1. the better run was ready long enough when the claim began, and
2. no other claim was open at the same time that took runs at least as good as the better run:
   a claim that locks a run reads the head of the index in order, so it takes some of those.

What is left are claims that had the run locked and were rolled back. Faults cause most of them: a
worker that is frozen or cut off may hold row locks, and claims during such faults do not count.
Deadlocks cause the others.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from chaos.checker.disturbed_times import DisturbedTimes
from chaos.checker.evidence import SECOND, Change, Evidence
from chaos.checker.violation import Violation

READY_FOR: Final = 7 * SECOND // 10
"""By then the insert of a run is committed."""

SLACK: Final = SECOND // 20
"""How far a worker's measurement of the time may be wrong."""

PASSES_MAX: Final = 2
"""For claims that were rolled back after a deadlock."""

_Tag = tuple[str | None, str | None]


@dataclass(slots=True)
class _Claim:
    """One claim of runs, and the best priority among them."""

    begun_at: int
    ended_at: int
    priority: int


def better_priorities_start_first(evidence: Evidence) -> Iterator[Violation]:
    """Worse runs do not start while a better one is ready."""
    ranked = {name for name, facts in evidence.facts_by_job.items() if facts["is_ranked"]}
    claims = _claims(evidence, ranked)
    disturbed = DisturbedTimes(evidence)
    ready: dict[str, tuple[Change, int]] = {}
    passed: dict[str, set[_Tag]] = defaultdict(set)
    for change in evidence.changes:
        if change.job not in ranked:
            continue
        if change.is_running and change.run in ready:
            ready.pop(change.run)
            if disturbed.has(change.at):
                continue
            claim = claims[_tag(change)]
            for better, since in ready.values():
                is_waiting = claim.begun_at - since >= READY_FOR and better.token == 0
                is_worse = better.priority < change.priority
                if is_waiting and is_worse and not _has_rival(claims, claim, better):
                    passed[better.run].add(_tag(change))
        elif change.op == "DELETE" or change.phase != "ready":
            ready.pop(change.run, None)
        else:
            ready.setdefault(change.run, (change, change.at))
    for run, tags in passed.items():
        if len(tags) > PASSES_MAX:
            what = f"{len(tags)} claims took runs of worse priority while it was ready"
            yield Violation("priorities", what, run)


def _claims(evidence: Evidence, ranked: set[str]) -> Mapping[_Tag, _Claim]:
    found: dict[_Tag, _Claim] = {}
    tokens: dict[str, int] = {}
    for change in evidence.changes:
        is_claim = change.is_running and change.token > tokens.get(change.run, 0)
        tokens[change.run] = change.token
        if not is_claim or change.job not in ranked:
            continue
        lease = round(evidence.facts_by_job[change.job]["lease"] * SECOND)
        begun_at = (change.lease_until or change.at) - lease
        claim = found.setdefault(_tag(change), _Claim(begun_at, change.at, change.priority))
        claim.ended_at = max(claim.ended_at, change.at)
        claim.priority = min(claim.priority, change.priority)
    return found


def _has_rival(claims: Mapping[_Tag, _Claim], claim: _Claim, better: Change) -> bool:
    """Whether another claim that was open at the same time may have had the run locked."""
    return any(
        other.begun_at <= claim.ended_at + SLACK
        and other.ended_at >= claim.begun_at - SLACK
        and other.priority <= better.priority
        for other in claims.values()
        if other is not claim
    )


def _tag(change: Change) -> _Tag:
    return change.worker, change.claim_tag
