"""Workers end when they are told to, and only then."""

from collections.abc import Iterator
from typing import Final

from chaos.checker.evidence import SECOND, Evidence
from chaos.checker.violation import Violation

END_SECONDS: Final = 45
"""A drain takes a second, and the last words ten; the rest is a loaded machine."""


def workers_live_on(evidence: Evidence) -> Iterator[Violation]:
    """No fault ends a worker, whatever is away; one that is stopped ends in good order.

    Whoever finds no database when it starts may say so and leave: it has claimed nothing.
    """
    begun = {evidence.pids.get(change.worker or "") for change in evidence.changes}
    killed = {
        line.facts["child"] for line in evidence.told("signal") if line.facts["number"] == "SIGKILL"
    }
    for line in evidence.told("exited"):
        actor, pid, code = line.facts["actor"], line.facts["child"], line.facts["code"]
        if pid in begun and pid not in killed and code != 0:
            yield Violation("workers", f"{actor} (process {pid}) ended with status {code}")
    ended_at = {line.facts["child"]: line.at for line in evidence.told("exited")}
    for line in evidence.told("signal"):
        pid = line.facts["child"]
        if line.facts["number"] == "SIGTERM" and pid in ended_at:
            took = (ended_at[pid] - line.at) / SECOND
            if took > END_SECONDS:
                what = f"{line.facts['actor']} (process {pid}) took {took:.0f} s to end when told"
                yield Violation("workers", what)
    for line in evidence.told("ended by force", "not rested"):
        yield Violation("workers", f"{line.word}: {dict(line.facts)}")
