"""What was committed is there and comes to an end; what was not, is not."""

from collections import Counter
from collections.abc import Iterator

from chaos.checker.evidence import Evidence
from chaos.checker.violation import Violation


def no_run_is_lost(evidence: Evidence) -> Iterator[Violation]:
    """Whoever was told that a run was added, finds it: unfinished or finished."""
    there = {*evidence.finished_by_id, *evidence.live}
    for line in evidence.told("dispatched", "committed"):
        run = line.facts["run"]
        if run not in there:
            what = f"{line.who} was told that it is there, and it is not"
            yield Violation("lost", what, run)
    for run in evidence.births.keys() - there:
        yield Violation("lost", "it was committed, and is in no table any more", run)


def nothing_rolled_back_is_seen(evidence: Evidence) -> Iterator[Violation]:
    """A run and what its caller wrote are there together, or neither is."""
    begun = {line.facts["run"] for line in evidence.told("begin")}
    for line in evidence.told("rolled back"):
        run = line.facts["run"]
        if line.facts["is_new"] and (run in evidence.births or run in begun):
            yield Violation("rolled back", "its transaction was rolled back, and it is there", run)
    orders = set(evidence.orders)
    for line in evidence.told("added"):
        run, uid = line.facts["run"], line.facts["uid"]
        if line.facts["is_new"] and (uid in orders) != (run in evidence.births):
            is_there = "order is there" if uid in orders else "run is there"
            yield Violation("rolled back", f"of one transaction only the {is_there}", run)


def nothing_is_added_twice(evidence: Evidence) -> Iterator[Violation]:
    """One dispatch, at most one run; and none, where the caller was told that there is none."""
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
        line.facts["uid"] for line in evidence.told("try") if line.facts.get("is_transaction")
    }
    for line in evidence.told("refused"):
        uid = line.facts["uid"]
        if uid in run_by_uid and uid not in transactions and not line.facts["is_unknown"]:
            what = f"its caller was refused it ({line.facts['error']}), and it is there"
            yield Violation("added twice", what, run_by_uid[uid])


def every_run_is_final(evidence: Evidence) -> Iterator[Violation]:
    """Once nothing is in the way any more, everything comes to an end and lets go."""
    for run in evidence.live:
        yield Violation("not final", "it did not come to an end", run)
    for run in evidence.slots:
        yield Violation("not final", "it still has its place in a limit", run)
