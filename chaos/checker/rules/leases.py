"""A run has one valid lease; a worker that lost the lease writes nothing."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from chaos.checker.evidence import SECOND, Change, Evidence, Line
from chaos.checker.holds import Hold, all_holds, deaths, steps
from chaos.checker.violation import Violation

SLACK: Final = SECOND // 10
"""How far clocks may differ that are compared over a network."""

_NONCE: Final = re.compile(r"<[0-9a-f]+\.\d+>")
_EXPIRED: Final = re.compile("lease (ended|expired)")
_LOOP_FAILED: Final = re.compile("event loop failed")


def claims_follow_each_other(evidence: Evidence) -> Iterator[Violation]:
    """A run is claimed only when no worker holds it, and each claim has the next token."""
    for run, changes in evidence.changes_by_run.items():
        if changes[0].op != "INSERT":
            yield Violation("claims", "it was changed before its insert", run)
        for before, after in steps(changes):
            if before.op == "DELETE":
                yield Violation("claims", "it came back after its end", run)
            elif what := _wrong_step(before, after):
                yield Violation("claims", what, run)


def _wrong_step(before: Change, after: Change) -> str:
    if after.is_running and not before.is_running:
        if after.token != before.token + 1:
            return f"it runs again under token {after.token}, without a new claim"
        return "" if after.attempt == before.attempt + 1 else "a claim did not count its attempt"
    if after.token != before.token and not _is_accepted(before, after):
        return f"token {after.token} was claimed while token {before.token} was held"
    if after.is_running and after.worker != before.worker and after.token == before.token:
        return "it went from one worker to another under the same token"
    return ""


def _is_accepted(before: Change, after: Change) -> bool:
    """Whether a process accepted a run that its worker had handed over: no new attempt."""
    return (
        before.external_id == f"{before.run}:{before.token}"
        and after.is_running
        and after.token == before.token + 1
        and after.attempt == before.attempt
    )


def leases_are_taken_only_after_they_expired(evidence: Evidence) -> Iterator[Violation]:
    """A run is taken from its worker only after the lease expired, or if the worker is dead."""
    gone_at = deaths(evidence)
    for run, changes in evidence.changes_by_run.items():
        for before, after in steps(changes):
            if not before.is_running or before.lease_until is None:
                continue
            if after.is_running:
                is_shortened = (after.lease_until or 0) < before.lease_until
                if is_shortened and not _is_gone(evidence, gone_at, after, after.at):
                    yield Violation("leases", "the lease of a living worker was ended", run)
            elif _is_taken_back(evidence, before, after) and before.lease_until > after.at + SLACK:
                # If the clock was set forward, the lease of a dead worker need not be ended first.
                if before.worker in evidence.pids and _is_gone(evidence, gone_at, before, after.at):
                    continue
                if _is_given_back(evidence, before, after):
                    continue
                early = (before.lease_until - after.at) / SECOND
                yield Violation("leases", f"it was taken back {early:.3f} s too early", run)


def _is_gone(evidence: Evidence, gone_at: Mapping[int, int], held: Change, at: int) -> bool:
    """Whether the worker of this row can have been gone at this moment."""
    pid = evidence.pids.get(held.worker or "")
    if pid is None:
        return True  # of a helper process, whose end the driver does not record
    moment = gone_at.get(pid)
    return moment is not None and moment <= at + SLACK


def _is_given_back(evidence: Evidence, before: Change, after: Change) -> bool:
    """Whether the worker itself gave the run back, because its event loop was stopped for good."""
    stopped = {line.pid for line in evidence.lines_of("loop stopped")}
    return (
        bool(_LOOP_FAILED.search(after.reason))
        and evidence.pids.get(before.worker or "") in stopped
    )


def _is_taken_back(evidence: Evidence, before: Change, after: Change) -> bool:
    if after.op == "DELETE":
        row = evidence.finished_by_id.get(after.run)
        return row is not None and row.outcome == "crashed"
    return after.crashes > before.crashes or _EXPIRED.search(after.reason) is not None


def attempts_do_not_overlap(evidence: Evidence) -> Iterator[Violation]:
    """One attempt per claim, by the worker that claimed, and never two under valid leases."""
    holds = all_holds(evidence)
    begins = evidence.lines_of("begin")
    for (run, token), count in Counter(map(_claim_of, begins)).items():
        if count > 1:
            yield Violation("attempts", f"token {token} was attempted {count} times", run)
    ended_at = {_claim_of(line): line.at for line in evidence.lines_of("end")}
    gone_at = deaths(evidence)
    by_run: dict[str, list[Line]] = defaultdict(list)
    for line in begins:
        run, token = _claim_of(line)
        hold = holds.get((run, token))
        if hold is None:
            yield Violation("attempts", f"token {token} was attempted, and never claimed", run)
            continue
        pid = evidence.pids.get(hold.worker or "")
        made_by = line.facts.get("worker_pid", line.pid)
        if pid is not None and pid != made_by:
            what = f"token {token} is of process {pid}, and was attempted by {made_by}"
            yield Violation("attempts", what, run)
        if line.at < hold.claimed_at - SLACK:
            yield Violation("attempts", f"token {token} was attempted before its claim", run)
        by_run[run].append(line)
    for run, lines in by_run.items():
        for earlier, later in pairwise(lines):
            claim = _claim_of(earlier)
            until = min(ended_at.get(claim, later.at + 1), gone_at.get(earlier.pid, later.at + 1))
            both = holds[claim], holds[_claim_of(later)]
            if until > later.at and all(_is_valid(hold, later.at) for hold in both):
                what = f"tokens {claim[1]} and {later.facts['token']} were attempted side by side"
                yield Violation("attempts", what, run)


def _is_valid(hold: Hold, at: int) -> bool:
    is_held = hold.ended_at is None or hold.ended_at > at
    return is_held and hold.lease_until > at + SLACK


def no_stale_write_lands(evidence: Evidence) -> Iterator[Violation]:
    """Everything written about a run comes from the attempt that holds it."""
    claim_by_nonce = {line.facts["nonce"]: _claim_of(line) for line in evidence.lines_of("begin")}

    def is_stale(text: str | None, run: str, token: int) -> bool:
        found = _NONCE.search(text or "")
        return found is not None and claim_by_nonce.get(found[0]) != (run, token)

    for row in evidence.finished:
        if is_stale(row.result, row.id, row.token) or is_stale(row.reason, row.id, row.token):
            what = f"its end under token {row.token} was written by another attempt"
            yield Violation("stale", what, row.id)
    for made in evidence.attempts:
        if is_stale(made.error, made.run, made.token):
            what = f"the attempt under token {made.token} was written by another"
            yield Violation("stale", what, made.run)
    for run, changes in evidence.changes_by_run.items():
        for before, after in steps(changes):
            for name in ("reason", "checkpoint"):
                text = getattr(after, name)
                if text != getattr(before, name) and is_stale(text, run, before.token):
                    what = f"its {name} under token {before.token} was written by another attempt"
                    yield Violation("stale", what, run)


def effects_happen_once(evidence: Evidence) -> Iterator[Violation]:
    """A handler's row and the completion of its run exist both or neither, and once."""
    counts = Counter(effect.run for effect in evidence.effects)
    for run, count in counts.items():
        if count > 1:
            yield Violation("effects", f"its effect exists {count} times", run)
    for effect in evidence.effects:
        row = evidence.finished_by_id.get(effect.run)
        if row is None or (row.status, row.token) != ("completed", effect.token):
            yield Violation(
                "effects", "its effect exists, and another attempt completed it", effect.run
            )
    for row in evidence.finished:
        if row.job == "charge" and row.status == "completed" and row.id not in counts:
            yield Violation("effects", "it is completed without its effect", row.id)


def _claim_of(line: Line) -> tuple[str, int]:
    return line.facts["run"], line.facts["token"]
