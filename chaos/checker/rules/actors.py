"""Workers end when they receive a signal, and only then."""

from collections.abc import Iterator
from typing import Final

from chaos.checker.evidence import SECOND, Evidence
from chaos.checker.violation import Violation

END_SECONDS: Final = 45
"""A drain takes a second and the last writes ten; the rest is for a loaded machine."""

STUCK: Final = 70
"""The exit code of a worker that cannot work."""

STUCK_SECONDS: Final = 10
"""How long an engine of a worker may be dead before the worker ends."""


def workers_end_only_on_request(evidence: Evidence) -> Iterator[Violation]:
    """No fault ends a worker. A worker that is stopped ends with status 0.

    A worker that finds no database when it starts may fail: it has claimed nothing. A worker whose
    event loop was stopped again and again ends with status 70, so that another one replaces it.
    """
    begun = {evidence.pids.get(change.worker or "") for change in evidence.changes}
    killed = {
        line.facts["child"]
        for line in evidence.lines_of("signal")
        if line.facts["number"] == "SIGKILL"
    }
    without_loop = {
        line.pid for line in evidence.lines_of("loop stopped") if line.facts["how"] == "often"
    }
    for line in evidence.lines_of("exited"):
        actor, pid, code = line.facts["actor"], line.facts["child"], line.facts["code"]
        allowed = {0, STUCK} if pid in without_loop else {0}
        if pid in begun and pid not in killed and code not in allowed:
            yield Violation("workers", f"{actor} (process {pid}) ended with status {code}")
    ended_at = {line.facts["child"]: line.at for line in evidence.lines_of("exited")}
    started_at = {line.facts["child"]: line.at for line in evidence.lines_of("started")}
    for line in evidence.lines_of("signal"):
        pid = line.facts["child"]
        # The driver does not note when the children of a supervisor end, and their numbers are
        # given to other processes later.
        is_actor = started_at.get(pid, 0) < line.at
        if line.facts["number"] == "SIGTERM" and pid in ended_at and is_actor:
            took = (ended_at[pid] - line.at) / SECOND
            if took > END_SECONDS:
                what = (
                    f"{line.facts['actor']} (process {pid}) took {took:.0f} s to end after SIGTERM"
                )
                yield Violation("workers", what)
    for line in evidence.lines_of("loop stopped"):
        # Of the children of a supervisor, it is not known when they ended.
        if line.facts["how"] == "often" and line.pid in ended_at:
            took = (ended_at[line.pid] - line.at) / SECOND
            if took > END_SECONDS + STUCK_SECONDS:
                what = f"process {line.pid} went on for {took:.0f} s without an event loop"
                yield Violation("workers", what)
    for line in evidence.lines_of("killed at the end", "not settled"):
        yield Violation("workers", f"{line.event}: {dict(line.facts)}")
