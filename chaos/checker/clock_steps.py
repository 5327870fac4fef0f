"""The times at which the driver set the clock of the machine, as all processes on SQLite see it.

Journals and the audit have the real time. Leases in the tables have the time of the clock that was
set. The checker converts them to the real time: a clock that is set does not end the lease of a
live worker.
"""

from bisect import bisect
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Final

from chaos.checker.evidence import SECOND, Change, Evidence

STALE: Final = 15 * SECOND
"""How long a process may go on with the time from before: it was frozen, or waited for a lock."""

LEASE_MAX: Final = 3 * SECOND
"""Every lease of the workload is shorter. Steps are longer than this and STALE together, so that a
lease shows by which of two times it was written."""


class ClockSteps:
    """By how much the clock was wrong, and when."""

    def __init__(self, evidence: Evidence) -> None:
        lines = evidence.lines_of("clock")
        self._steps = [(0, 0), *((line.at, int(line.facts["offset"]) * SECOND) for line in lines)]
        self._moments = [at for at, _ in self._steps]

    def offsets(self, begin: int, end: int) -> set[int]:
        """The offsets that a process may have used between these two moments."""
        first = bisect(self._moments, begin - STALE) - 1
        return {offset for _, offset in self._steps[first : bisect(self._moments, end)]}

    def real_time(self, lease_until: int, at: int) -> int:
        """When a lease expires that was written at this moment."""
        for offset in self.offsets(at, at):
            real = lease_until - offset
            if at - STALE <= real <= at + LEASE_MAX:
                return real
        return lease_until

    def shown_from(self, time: int, at: int) -> int:
        """The first moment, not before ``at``, when the clock shows this time or a later one."""
        first = bisect(self._moments, at) - 1
        for (begun_at, offset), (ended_at, _) in pairwise(self._steps[first:]):
            moment = max(begun_at, at, time - offset)
            if moment < ended_at:
                return moment
        begun_at, offset = self._steps[-1]
        return max(begun_at, at, time - offset)


def with_real_leases(evidence: Evidence) -> Evidence:
    """The same evidence, with the leases of all changes in real time."""
    clock = ClockSteps(evidence)
    made = []
    last: dict[str, tuple[Change, int | None]] = {}  # of each run: its row, and the real lease
    for change in evidence.changes:
        before, until = last.get(change.run, (None, None))
        is_same = before is not None and (
            (before.token, before.lease_until) == (change.token, change.lease_until)
        )
        if not is_same:  # else a heartbeat did not shorten it, after the clock was set back
            until = _real_lease(clock, change, evidence.pids)
        last[change.run] = change, until
        made.append(change._replace(lease_until=until))
    return replace(evidence, changes=made)


def _real_lease(clock: ClockSteps, change: Change, pids: Mapping[str, int]) -> int | None:
    if change.lease_until is None:
        return None
    if change.worker in pids:
        return clock.real_time(change.lease_until, change.at)
    # No process can see that one lives which is not registered, as `collect`: its leases expire
    # by the clock that was set.
    return clock.shown_from(change.lease_until, change.at)
