"""Recorded outcomes match what the handlers did, and the counters agree."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from chaos.checker.evidence import Evidence, Finished
from chaos.checker.holds import holds_of
from chaos.checker.violation import Violation

COMPLETES_ITSELF: Final = "charge"
"""This job completes its runs itself, in transactions of its own."""

KILLED_MICROS: Final = 10_000_000
"""How much earlier the last success in the row of a job may be: outcomes may wait for the database
for some seconds, and then a worker is killed."""


def outcomes_match_the_handlers(evidence: Evidence) -> Iterator[Violation]:
    """A recorded failure or success is one that the handler had."""
    begun = {(line.facts["run"], line.facts["token"]) for line in evidence.lines_of("begin")}
    how = {
        (line.facts["run"], line.facts["token"]): line.facts["how"]
        for line in evidence.lines_of("end")
    }
    canceled = {line.facts["run"] for line in evidence.lines_of("cancel")}
    for row in evidence.finished:
        claim = row.id, row.token
        if row.id not in evidence.births:
            continue
        if row.status == "completed" and claim not in begun:
            yield Violation("records", "it is completed, and no handler ran", row.id)
        is_reported = how.get(claim, "returned") == "returned" or row.job == COMPLETES_ITSELF
        if row.status == "completed" and not is_reported:
            yield Violation("records", f"it is completed, after a {how[claim]}", row.id)
        if row.outcome == "failed" and how.get(claim, "returned") == "returned":
            yield Violation("records", f"it has failed ({row.reason}), and did not", row.id)
        is_given_up = row.status == "failed_permanent" and row.outcome == "failed"
        if is_given_up and row.attempt < _attempts_max(evidence, row):
            yield Violation("records", f"it was given up after {row.attempt} attempts", row.id)
        if row.status == "failed_permanent" and row.outcome == "crashed":
            crashes_max = evidence.facts_by_job[row.job]["crashes_max"]
            if row.crashes < crashes_max:
                yield Violation("records", f"it was given up after {row.crashes} crashes", row.id)
        if row.status == "canceled" and row.id not in canceled and row.schedule != "replaced":
            yield Violation("records", "it was canceled without a request", row.id)
        if row.status == "skipped":
            yield Violation("records", f"it was skipped: {row.reason}", row.id)
    for made in evidence.attempts:
        if made.outcome == "failed" and how.get((made.run, made.token)) == "returned":
            yield Violation("records", f"token {made.token} failed, and did not", made.run)


def what_returned_is_not_failed(evidence: Evidence) -> Iterator[Violation]:
    """A run does not fail because of the store: its handler returned, so it is not given up."""
    returned = {
        (line.facts["run"], line.facts["token"])
        for line in evidence.lines_of("end")
        if line.facts["how"] == "returned"
    }
    for row in evidence.finished:
        is_known = row.id in evidence.births
        if is_known and row.status == "failed_permanent" and (row.id, row.token) in returned:
            what = f"its handler returned, and it is failed_permanent: {row.reason}"
            yield Violation("outcomes", what, row.id)


def counters_agree(evidence: Evidence) -> Iterator[Violation]:
    """Tokens count claims, attempts count tries, crashes count lost attempts."""
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    for made in evidence.attempts:
        outcomes[made.run][made.outcome] += 1
    for row in evidence.finished:
        if row.id not in evidence.births:
            continue
        claims = sum(1 for _ in holds_of(evidence.changes_by_run[row.id]))
        counted = outcomes[row.id]
        if row.token != claims:
            yield Violation("counters", f"token {row.token} after {claims} claims", row.id)
        if row.crashes != counted["crashed"]:
            what = f"{row.crashes} crashes, and {counted['crashed']} rows of such attempts"
            yield Violation("counters", what, row.id)
        tries = counted["failed"]
        right = {"completed": {tries + 1}, "failed_permanent": {tries}}.get(
            row.status, {tries, tries + 1}
        )
        if row.attempt not in right:
            what = f"{row.attempt} attempts, {tries} of which are rows of failures: {row.status}"
            yield Violation("counters", what, row.id)
        if row.job == "flaky" and row.status in {"completed", "failed_permanent"}:
            fails = evidence.args_of(row.id)["fail_first"]
            expected = min(fails + 1, _attempts_max(evidence, row))
            if row.attempt != expected or (row.status == "completed") != (fails < expected):
                what = f"it fails {fails} times, and is {row.status} after {row.attempt} attempts"
                yield Violation("counters", what, row.id)


def job_rows_have_the_last_success(evidence: Evidence) -> Iterator[Violation]:
    """A job's row has the last success in the history, or one a few seconds before it.

    A worker writes the row once a second, and one that is killed loses the last successes.
    """
    last: dict[tuple[str, str], int] = {}
    for row in evidence.finished:
        if row.outcome == "succeeded" and row.job != COMPLETES_ITSELF:
            key = row.tenant, row.job
            last[key] = max(last.get(key, 0), row.ended_at)
    in_rows = {(job.tenant, job.name): job.last_success_at for job in evidence.jobs}
    for key, ended_at in last.items():
        in_row = in_rows.get(key)
        if in_row is None or not ended_at - KILLED_MICROS <= in_row <= ended_at:
            what = f"{key} succeeded last at {ended_at}, and its row has {in_row}"
            yield Violation("counters", what)


def _attempts_max(evidence: Evidence, row: Finished) -> int:
    facts = evidence.facts_by_job.get(row.job)
    return int(facts["attempts_max"]) if facts else row.attempts_max
