"""Committed runs exist and finish; runs that were rolled back do not exist."""

from collections import Counter
from collections.abc import Iterator

from chaos.checker.evidence import Evidence
from chaos.checker.violation import Violation


def no_run_is_lost(evidence: Evidence) -> Iterator[Violation]:
    """A run whose dispatch succeeded exists, unfinished or finished."""
    there = {*evidence.finished_by_id, *evidence.live}
    for line in evidence.lines_of("dispatched", "committed"):
        run = line.facts["run"]
        if run not in there:
            what = f"{line.who} dispatched it, and it is missing"
            yield Violation("lost", what, run)
    for run in evidence.births.keys() - there:
        yield Violation("lost", "it was committed, and is in no table", run)


def nothing_rolled_back_is_seen(evidence: Evidence) -> Iterator[Violation]:
    """A run and the row that its caller wrote exist both, or neither does."""
    begun = {line.facts["run"] for line in evidence.lines_of("begin")}
    for line in evidence.lines_of("rolled back"):
        run = line.facts["run"]
        if line.facts["is_new"] and (run in evidence.births or run in begun):
            yield Violation("rolled back", "its transaction was rolled back, and it exists", run)
    orders = set(evidence.orders)
    for line in evidence.lines_of("added"):
        run, uid = line.facts["run"], line.facts["uid"]
        if line.facts["is_new"] and (uid in orders) != (run in evidence.births):
            which = "order" if uid in orders else "run"
            yield Violation("rolled back", f"of one transaction only the {which} exists", run)


def nothing_is_added_twice(evidence: Evidence) -> Iterator[Violation]:
    """One dispatch adds at most one run, and none if it raised an error."""
    uids: Counter[str] = Counter()
    run_by_uid = {}
    for run in evidence.births:
        uid = evidence.args_of(run).get("uid")
        if uid is not None:
            uids[uid] += 1
            run_by_uid[uid] = run
    for uid, count in uids.items():
        if count > 1:
            yield Violation("added twice", f"{uid} has {count} runs", run_by_uid[uid])
    transactions = {
        line.facts["uid"] for line in evidence.lines_of("try") if line.facts.get("is_transaction")
    }
    for line in evidence.lines_of("refused"):
        uid = line.facts["uid"]
        if uid in run_by_uid and uid not in transactions and not line.facts["is_unknown"]:
            what = f"its dispatch raised {line.facts['error']}, and it exists"
            yield Violation("added twice", what, run_by_uid[uid])


def every_run_is_final(evidence: Evidence) -> Iterator[Violation]:
    """After the last fault every run finishes and frees its slots."""
    for run in evidence.live:
        yield Violation("not final", "it did not finish", run)
    for run in evidence.slots:
        yield Violation("not final", "it still holds a slot", run)
