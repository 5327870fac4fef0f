"""The checker finds each violation: evidence built by the test, with one fault in each."""

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

import chaos.checker
from chaos.checker import judge
from chaos.checker.evidence import (
    SECOND,
    Attempt,
    Change,
    Effect,
    Evidence,
    Finished,
    JobRow,
    Line,
    Schedule,
)
from chaos.checker.verdict import judge_evidence
from chaos.workload import manifest

T0 = 1_767_225_600 * SECOND
LEASE = 2 * SECOND
ANN, BOB = "ann", "bob"
PIDS = {ANN: 11, BOB: 22}


class Book:
    """Builds evidence: each method is one event, half a second after the one before."""

    def __init__(self) -> None:
        self.now = T0
        self.offset = 0
        self.lines: list[Line] = []
        self.changes: list[Change] = []
        self.finished: dict[str, Finished] = {}
        self.attempts: list[Attempt] = []
        self.effects: list[Effect] = []
        self.orders: list[str] = []
        self.rows: dict[str, Change] = {}
        self.schedules: list[Schedule] = []
        self.last: dict[str, int] = {}

    # ------------------------------------------------------------ events

    def add(self, run="r1", job="plain", *, uid=None, is_journaled=True, **facts) -> None:
        args = {"uid": uid or f"u-{run}", **facts.pop("args", {})}
        if is_journaled:
            self.log("try", "dispatcher", uid=args["uid"], job=job)
        row = Change(
            0, 0, "INSERT", run, json.dumps(args), job, created_at=facts.pop("created_at", self.now)
        )
        self.put(row._replace(**facts))
        if is_journaled:
            self.log("dispatched", "dispatcher", uid=args["uid"], run=run, is_new=True)

    def claim(self, run="r1", worker=ANN, **facts) -> None:
        row = self.rows[run]
        row = row._replace(
            op="UPDATE", args=None, status="running", phase="running", token=row.token + 1,
            attempt=row.attempt + 1, worker=worker,
            lease_until=self.now + self.offset + LEASE,
            claim_tag=f"{worker}-{len(self.changes)}",
        )  # fmt: skip
        self.put(row._replace(**facts))

    def begin(self, run="r1", worker=ANN, **facts) -> str:
        row = self.rows[run]
        nonce = f"<{PIDS[worker]}.{len(self.lines)}>"
        line = {"run": run, "token": row.token, "nonce": nonce, "job": row.job, **facts}
        self.log("begin", worker, **line)
        return nonce

    def end(self, run="r1", worker=ANN, how="returned", **facts) -> None:
        line = {"run": run, "token": self.rows[run].token, "how": how, **facts}
        self.log("end", worker, **line)

    def give_back(self, run="r1", **facts) -> None:
        row = self.rows[run]._replace(
            status="pending", phase="ready", lease_until=None, worker=None
        )
        self.put(row._replace(**facts))

    def finish(self, run="r1", **facts) -> None:
        row = self.rows.pop(run)
        self.put(row._replace(op="DELETE"))
        self.rows.pop(run)
        done = Finished(
            run, row.tenant, row.job, "completed", row.attempt, 1, row.crashes, row.token,
            "succeeded", "", "{}", self.now, None, row.schedule, row.nominal_at,
        )  # fmt: skip
        self.finished[run] = done = done._replace(**facts)
        if done.outcome == "succeeded" and done.job != "charge":
            self.last[done.job] = self.now

    def set_clock(self, seconds: int) -> None:
        """Rows get the new time; journals and the audit do not."""
        self.log("clock", "driver", offset=seconds)
        self.offset = seconds * SECOND

    def run_to_end(self, run="r1", worker=ANN, **facts) -> None:
        """One good attempt."""
        self.claim(run, worker)
        nonce = self.begin(run, worker)
        self.end(run, worker)
        self.finish(run, result=json.dumps({"nonce": nonce}), **facts)

    # ------------------------------------------------------------ details

    def put(self, row: Change) -> None:
        self.now += SECOND // 2
        self.rows[row.run] = row
        self.changes.append(row._replace(seq=len(self.changes), at=self.now))

    def log(self, event: str, who: str, **facts: Any) -> None:
        self.now += SECOND // 100
        self.lines.append(Line(self.now, who, PIDS.get(who, 1), event, facts))

    def evidence(self, **changes) -> Evidence:
        made = Evidence(
            lines=self.lines,
            changes=self.changes,
            live=list(self.rows),
            finished=list(self.finished.values()),
            attempts=self.attempts,
            effects=self.effects,
            orders=self.orders,
            schedules=self.schedules,
            jobs=[JobRow("", job, at) for job, at in self.last.items()],
            pids=PIDS,
            manifest=manifest(),
        )
        return replace(made, **changes)

    def broken(self, **changes) -> list[str]:
        """The violations as texts."""
        return [str(violation) for violation in judge_evidence(self.evidence(**changes)).violations]


def assert_only(found: list[str], *parts: str) -> None:
    assert len(found) == 1, found
    assert all(part in found[0] for part in parts), found


class TestCleanRun:
    def test_it_has_no_violation(self):
        book = Book()
        book.add()
        book.run_to_end()
        book.add("r2", "flaky", args={"fail_first": 1})
        book.claim("r2")
        nonce = book.begin("r2")
        book.end("r2", how="RuntimeError")
        book.attempts.append(Attempt("r2", 1, 1, "failed", f"RuntimeError: {nonce}"))
        book.give_back("r2", reason=f"RuntimeError: {nonce}", status="failed")
        book.attempts.append(Attempt("r2", 2, 2, "succeeded", ""))
        book.run_to_end("r2", BOB)

        verdict = judge_evidence(book.evidence())

        assert verdict.violations == []
        assert "No violations" in verdict.render()

    def test_an_expired_lease_is_taken_over(self):
        book = Book()
        book.add()
        book.claim()
        book.begin()
        book.now += 2 * LEASE
        book.attempts.append(Attempt("r1", 1, 1, "crashed", ""))
        book.give_back(crashes=1, attempt=0, reason="The lease expired without an outcome.")
        book.attempts.append(Attempt("r1", 2, 1, "succeeded", ""))
        book.run_to_end("r1", BOB)
        # The first worker wakes up and finishes its handler: no violation unless it writes.
        book.log("end", ANN, run="r1", token=1, how="returned")

        assert book.broken() == []

    def test_a_worker_that_begins_without_a_lease_and_writes_nothing(self):
        book = Book()
        book.add()
        book.claim()
        book.now += 2 * LEASE
        book.give_back(attempt=0, reason="The lease expired without an outcome.")
        book.claim("r1", BOB)
        nonce = book.begin("r1", BOB)
        book.log("begin", ANN, run="r1", token=1, nonce="<11.999>", job="plain")
        book.end("r1", BOB)
        book.finish(result=json.dumps({"nonce": nonce}))

        assert book.broken() == []


class TestDispatches:
    def test_a_run_that_is_gone(self):
        book = Book()
        book.log("dispatched", "dispatcher", uid="u1", run="r1", is_new=True)

        assert_only(book.broken(), "lost", "dispatcher dispatched it", "r1")

    def test_a_row_that_vanished(self):
        book = Book()
        book.add()

        found = book.broken(live=[])

        assert any("in no table" in each for each in found)

    def test_a_run_of_a_transaction_that_was_rolled_back(self):
        book = Book()
        book.add(is_journaled=False)
        book.run_to_end()
        book.log("rolled back", "dispatcher", uid="u-r1", run="r1", is_new=True)

        assert_only(book.broken(), "rolled back", "r1")

    def test_half_of_a_transaction(self):
        book = Book()
        book.log("added", "dispatcher", uid="u1", run="r1", is_new=True)
        book.orders.append("u1")

        assert_only(book.broken(), "only the order exists")

    def test_one_dispatch_and_two_runs(self):
        book = Book()
        for run in ("r1", "r2"):
            book.add(run, uid="same")
            book.run_to_end(run)

        assert_only(book.broken(), "added twice", "same has 2 runs")

    def test_a_run_whose_dispatch_raised_an_error(self):
        book = Book()
        book.add(is_journaled=False)
        book.log("refused", "dispatcher", uid="u-r1", error="StoreBusy", is_unknown=False)
        book.run_to_end()

        assert_only(book.broken(), "raised StoreBusy")

    def test_a_run_whose_dispatch_had_an_unknown_outcome(self):
        book = Book()
        book.add(is_journaled=False)
        book.log("refused", "dispatcher", uid="u-r1", error="OutcomeUnknown", is_unknown=True)
        book.run_to_end()

        assert book.broken() == []

    def test_a_run_that_never_ends(self):
        book = Book()
        book.add()

        assert_only(book.broken(), "not final", "r1")

    def test_a_slot_that_was_never_freed(self):
        book = Book()
        book.add()
        book.run_to_end()

        assert_only(book.broken(slots=["r1"]), "still holds a slot")


class TestLeases:
    def test_a_claim_of_what_another_holds(self):
        book = Book()
        book.add()
        book.claim()
        book.run_to_end("r1", BOB, attempt=1)

        assert any("claimed while token 1 was held" in each for each in book.broken())

    def test_a_run_that_runs_again_without_a_claim(self):
        book = Book()
        book.add()
        book.claim()
        book.begin()
        book.now += 2 * LEASE
        book.attempts.append(Attempt("r1", 1, 1, "crashed", ""))
        book.give_back(crashes=1, attempt=0)
        book.put(book.rows["r1"]._replace(status="running", lease_until=book.now + LEASE))
        book.finish(attempt=1)

        assert any("without a new claim" in each for each in book.broken())

    def test_a_run_that_came_back(self):
        book = Book()
        book.add()
        book.run_to_end()
        book.add(is_journaled=False)
        book.rows.clear()

        assert any("came back after its end" in each for each in book.broken())

    def test_a_lease_that_was_taken_too_early(self):
        book = Book()
        book.add()
        book.claim()
        book.attempts.append(Attempt("r1", 1, 1, "crashed", ""))
        book.give_back(crashes=1, attempt=0)
        book.attempts.append(Attempt("r1", 2, 1, "succeeded", ""))
        book.run_to_end("r1", BOB)

        assert_only(book.broken(), "taken back 1.", "too early")

    @pytest.mark.parametrize("was_stopped", [True, False])
    def test_a_run_that_its_worker_gave_back_without_an_event_loop(self, was_stopped):
        book = Book()
        book.add()
        book.claim()
        if was_stopped:
            book.log("loop stopped", ANN, how="often")
        book.attempts.append(Attempt("r1", 1, 1, "crashed", ""))
        book.give_back(crashes=1, attempt=0, reason="Its event loop failed 10 times in a row.")
        book.attempts.append(Attempt("r1", 2, 1, "succeeded", ""))
        book.run_to_end("r1", BOB)

        if was_stopped:
            assert book.broken() == []
        else:
            assert_only(book.broken(), "taken back 1.", "too early")

    def test_a_living_worker_whose_lease_was_ended(self):
        book = Book()
        book.add()
        book.claim()
        book.put(book.rows["r1"]._replace(lease_until=book.now))
        book.begin()
        book.end()
        book.finish()

        assert_only(book.broken(), "the lease of a living worker was ended")

    def test_a_dead_worker_whose_lease_was_ended(self):
        book = Book()
        book.add()
        book.claim()
        book.begin()
        book.log("signal", "driver", actor="worker-1", child=PIDS[ANN], number="SIGKILL")
        book.put(book.rows["r1"]._replace(lease_until=book.now))
        book.attempts.append(Attempt("r1", 1, 1, "crashed", ""))
        book.give_back(crashes=1, attempt=0)
        book.attempts.append(Attempt("r1", 2, 1, "succeeded", ""))
        book.run_to_end("r1", BOB)

        assert book.broken() == []

    def test_one_claim_and_two_attempts(self):
        book = Book()
        book.add()
        book.claim()
        book.begin()
        book.begin(worker=BOB)
        book.end()
        book.finish()

        found = book.broken()

        assert any("token 1 was attempted 2 times" in each for each in found)
        assert any("is of process 11, and was attempted by 22" in each for each in found)

    def test_an_attempt_without_a_claim(self):
        book = Book()
        book.add()
        book.begin()
        book.run_to_end()

        assert any("never claimed" in each for each in book.broken())

    def test_two_attempts_side_by_side(self):
        book = Book()
        book.add()
        book.claim(lease_until=T0 + 60 * SECOND)
        book.begin()
        book.claim("r1", BOB)  # while the first claim is valid
        book.begin("r1", BOB)
        book.end("r1", BOB)
        book.finish()
        book.log("end", ANN, run="r1", token=1, how="returned")
        changes = [c._replace(at=c.at + SECOND) if c.token == 2 else c for c in book.changes]

        found = book.broken(changes=changes)

        assert any("side by side" in each for each in found)

    def test_an_end_that_another_attempt_wrote(self):
        book = Book()
        book.add()
        book.claim()
        stale = book.begin()
        book.now += 2 * LEASE
        book.attempts.append(Attempt("r1", 1, 1, "crashed", ""))
        book.give_back(crashes=1, attempt=0)
        book.claim("r1", BOB)
        book.begin("r1", BOB)
        book.attempts.append(Attempt("r1", 2, 1, "succeeded", ""))
        book.finish(result=json.dumps({"nonce": stale}))

        assert_only(book.broken(), "stale", "its end under token 2 was written by another")

    def test_a_return_that_another_attempt_wrote(self):
        book = Book()
        book.add(job="flaky", args={"fail_first": 0})
        book.claim()
        stale = book.begin()
        book.now += 2 * LEASE
        book.attempts.append(Attempt("r1", 1, 1, "crashed", ""))
        book.give_back(crashes=1, attempt=0)
        book.claim("r1", BOB)
        book.give_back(reason=f"RuntimeError: {stale}", attempt=0)
        book.attempts.append(Attempt("r1", 3, 1, "succeeded", ""))
        book.run_to_end("r1", BOB)

        assert_only(book.broken(), "stale", "reason under token 2")

    def test_a_checkpoint_that_another_attempt_wrote(self):
        book = Book()
        book.add()
        book.claim()
        book.put(book.rows["r1"]._replace(checkpoint=json.dumps({"nonce": "<22.999>"})))
        book.begin()
        book.end()
        book.finish()

        assert_only(book.broken(), "stale", "checkpoint under token 1")

    def test_an_effect_that_happened_twice(self):
        book = Book()
        book.add(job="charge")
        book.effects += [Effect("r1", 1, "<1.1>"), Effect("r1", 1, "<1.2>")]
        book.run_to_end()

        assert_only(book.broken(), "effects", "exists 2 times")

    def test_an_end_without_its_effect(self):
        book = Book()
        book.add(job="charge")
        book.run_to_end()

        assert_only(book.broken(), "completed without its effect")

    def test_an_effect_of_an_attempt_that_was_taken_over(self):
        book = Book()
        book.add(job="charge")
        book.effects.append(Effect("r1", 7, "<1.1>"))
        book.run_to_end()

        assert_only(book.broken(), "another attempt completed it")


class TestHandedOverRuns:
    """A process of a remote engine accepts a run: it gets the next token, and no new attempt."""

    def hand_over(self, external_id="r1:1", **facts):
        book = Book()
        book.add()
        book.claim(worker=ANN)
        row = book.rows["r1"]
        book.put(row._replace(external_id=external_id))
        accepted = {"worker": BOB, "token": 2, "external_id": external_id, **facts}
        book.put(book.rows["r1"]._replace(**accepted))
        book.begin(worker=BOB)
        book.end(worker=BOB)
        book.finish()
        return book

    def test_an_acceptance_is_allowed(self):
        assert not self.hand_over().broken()

    @pytest.mark.parametrize("external_id", [None, "r1:7", "r2:1"])
    def test_a_run_that_was_not_handed_over(self, external_id):
        book = self.hand_over(external_id)

        assert any("token 2 was claimed while token 1 was held" in each for each in book.broken())

    def test_a_new_attempt_without_a_claim(self):
        book = self.hand_over(attempt=2)

        assert any("token 2 was claimed while token 1" in each for each in book.broken())

    def test_another_worker_without_a_new_token(self):
        book = self.hand_over(token=1)

        assert any("under the same token" in each for each in book.broken())


class TestClockSteps:
    """The lease of a live worker is as long as before when the clock of the machine is set."""

    EXPIRED: ClassVar = {"crashes": 1, "attempt": 0, "reason": "The lease expired."}

    def taken_back(self, book: Book, worker: str = BOB) -> list[str]:
        book.give_back(**self.EXPIRED)
        book.attempts.append(Attempt("r1", 1, 1, "crashed", ""))
        book.run_to_end("r1", worker)
        return book.broken()

    @pytest.mark.parametrize("seconds", [-3600, -20, 20, 3600])
    def test_a_run_that_ends_under_the_other_time(self, seconds):
        book = Book()
        book.add()
        book.claim()
        nonce = book.begin()
        book.set_clock(seconds)
        book.end()
        book.finish(result=json.dumps({"nonce": nonce}))
        book.add("r2")
        book.run_to_end("r2")

        assert book.broken() == []

    def test_a_lease_that_the_clock_ended(self):
        book = Book()
        book.add()
        book.claim()
        book.begin()
        book.set_clock(3600)

        assert_only(self.taken_back(book), "leases", "taken back 0.9", "too early")

    def test_the_lease_of_a_dead_worker(self):
        book = Book()
        book.add()
        book.claim()
        book.begin()
        book.log("signal", "driver", actor="worker-1", child=PIDS[ANN], number="SIGKILL")
        book.set_clock(3600)

        assert self.taken_back(book) == []

    def test_a_lease_under_the_new_time(self):
        book = Book()
        book.set_clock(-3600)
        book.add()
        book.claim()
        book.begin()
        book.set_clock(0)

        assert_only(self.taken_back(book), "leases", "taken back 0.9", "too early")

    def test_a_lease_that_has_expired_in_real_time(self):
        book = Book()
        book.set_clock(60)
        book.add()
        book.claim()
        book.begin()
        book.set_clock(-3600)
        book.now += 2 * LEASE

        assert self.taken_back(book) == []

    def test_a_heartbeat_that_did_not_shorten_a_lease(self):
        book = Book()
        book.add()
        book.claim()
        nonce = book.begin()
        book.set_clock(-3600)
        book.put(book.rows["r1"])
        book.end()
        book.finish(result=json.dumps({"nonce": nonce}))

        assert book.broken() == []

    def test_a_process_that_is_not_registered(self):
        book = Book()
        book.add()
        book.claim(worker="collect")
        book.log("begin", "collect", run="r1", token=1, nonce="<33.1>", job="plain")
        book.set_clock(3600)

        assert self.taken_back(book) == []

    def test_a_start_whose_lease_ended_when_the_clock_was_set(self):
        book = Book()
        for run in ("r1", "r2"):
            book.add(run)
            book.claim(run, worker="collect")
            book.log("begin", "collect", run=run, token=1, nonce=f"<1.{run}>", job="plain")
            book.end(run, worker="collect")
            book.finish(run, result=json.dumps({"nonce": f"<1.{run}>"}))
        book.set_clock(3600)
        rate = {"job": "plain", "starts": 1, "seconds": 1.2, "lease": LEASE / SECOND}

        found = book.broken(manifest=manifest() | {"rates": [rate]})

        assert [each for each in found if "starts of" in each] == []

    def test_a_process_that_is_not_registered_and_has_the_old_time(self):
        book = Book()
        book.add()
        book.set_clock(3600)
        book.offset = 0
        book.claim(worker="collect")
        book.log("begin", "collect", run="r1", token=1, nonce="<33.1>", job="plain")
        book.offset = 3600 * SECOND

        assert self.taken_back(book) == []

    def test_a_process_that_is_not_registered_under_one_time(self):
        book = Book()
        book.set_clock(3600)
        book.add()
        book.claim(worker="collect")
        book.log("begin", "collect", run="r1", token=1, nonce="<33.1>", job="plain")

        assert_only(self.taken_back(book), "leases", "too early")

    def test_starts_of_a_rate_before_and_after_a_step(self):
        book = Book()
        for run in ("r1", "r2", "r3"):
            book.add(run)
            book.run_to_end(run)
            if run == "r2":
                book.set_clock(60)
        rate = {"job": "plain", "starts": 2, "seconds": 60, "lease": LEASE / SECOND}

        assert book.broken(manifest=manifest() | {"rates": [rate]}) == []

    def test_a_window_of_a_unique_key_that_the_clock_shows_twice(self):
        book = Book()
        book.add("r1", "windowed", args={"key": 1}, created_at=T0)
        book.run_to_end("r1")
        book.set_clock(3600)  # the window ends
        book.set_clock(-20)
        book.add("r2", "windowed", args={"key": 1}, created_at=T0)
        book.run_to_end("r2")

        assert book.broken() == []


class TestLimits:
    def test_one_too_many(self):
        book = Book()
        for run in ("r1", "r2", "r3"):
            book.add(run, "narrow")
            book.claim(run)
        for run in ("r1", "r2", "r3"):
            book.begin(run)
            book.end(run)
            book.finish(run)

        assert_only(book.broken(), "limits", "3 of 2 of narrow")

    def test_one_too_many_of_a_value(self):
        book = Book()
        for run, account in (("r1", 1), ("r2", 2), ("r3", 1)):
            book.add(run, "account", args={"account": account})
            book.claim(run)
        for run in ("r1", "r2", "r3"):
            book.begin(run)
            book.end(run)
            book.finish(run)

        assert_only(book.broken(), "2 of 1 of account per account (1,)")

    def test_one_too_many_at_work(self):
        book = Book()
        for run in ("r1", "r2", "r3"):
            book.add(run, "narrow")
            book.claim(run)
            book.begin(run)
        for run in ("r1", "r2", "r3"):
            book.end(run)
            book.finish(run)

        assert any("running at once" in each for each in book.broken())

    def test_one_start_too_many(self):
        book = Book()
        for run in ("r1", "r2", "r3"):
            book.add(run)
            book.run_to_end(run)  # half a second apart, and more
        rate = {"job": "plain", "seconds": 60, "lease": LEASE / SECOND}

        def check_with(starts: int) -> list[str]:
            return book.broken(manifest=manifest() | {"rates": [rate | {"starts": starts}]})

        assert check_with(3) == []
        assert_only(check_with(2), "rates", "3 starts of plain within")

    def test_two_of_a_unique_key(self):
        book = Book()
        for run in ("r1", "r2"):
            book.add(run, "single", args={"key": 1})
        for run in ("r1", "r2"):
            book.run_to_end(run)

        assert_only(book.broken(), "unique", "2 of 1 of key ('single', '', 1)")

    def test_two_within_a_window(self):
        book = Book()
        for run in ("r1", "r2"):
            book.add(run, "windowed", args={"key": 1}, created_at=T0)
            book.run_to_end(run)

        assert_only(book.broken(), "added twice within 0.000 s")

    def test_two_runs_of_a_schedule_that_skips(self):
        book = Book()
        for run, at in (("r1", 0), ("r2", 2)):
            nominal = T0 + at * SECOND
            book.add(run, "even", is_journaled=False, schedule="even", nominal_at=nominal)
        for run in ("r1", "r2"):
            book.run_to_end(run)

        assert_only(book.broken(), "overlap", "2 of 1 of skip")


class TestPriorities:
    @staticmethod
    def passed_over(
        times: int,
        *,
        ready_for: int = SECOND,
        locked_for: int = 0,
        rival: int | None = None,
        **fault: Any,
    ) -> list[str]:
        book = Book()
        if rival is not None:
            book.add("other", "ranked", priority=rival)
        worse = [f"w{number}" for number in range(times)]
        for run in worse:
            book.add(run, "ranked", priority=9)
        book.add("best", "ranked", priority=1)
        book.now += ready_for
        if fault:
            book.log("fault", "driver", **fault)
        for run in worse:
            book.claim(run)
        if rival is not None:
            book.claim("other", lease_until=book.now - 2 * SECOND + LEASE)
        book.now += SECOND // 10
        book.claim("best", lease_until=book.now - locked_for + LEASE)
        for run in [*worse, "best", *(["other"] if rival is not None else [])]:
            nonce = book.begin(run)
            book.end(run)
            book.finish(run, result=json.dumps({"nonce": nonce}))
        return book.broken()

    def test_a_better_one_that_is_passed_over_again_and_again(self):
        assert_only(self.passed_over(3), "priorities", "3 claims", "best")

    def test_two_claims_that_were_rolled_back(self):
        assert self.passed_over(2) == []

    def test_a_claim_that_was_about_to_take_it(self):
        assert self.passed_over(3, locked_for=3 * SECOND // 2) == []
        # The first ones of these took their runs before that claim had begun.
        assert_only(self.passed_over(6, locked_for=3 * SECOND // 2), "priorities", "3 claims")

    def test_a_claim_that_locked_more_than_it_took(self):
        assert self.passed_over(3, rival=1) == []
        assert_only(self.passed_over(3, rival=2), "priorities", "3 claims", "best")

    def test_claims_that_began_before_it_was_ready(self):
        assert self.passed_over(3, ready_for=-SECOND) == []

    def test_a_frozen_worker_may_have_had_it(self):
        assert self.passed_over(3, name="freeze_worker", target="worker-1", seconds=9.0) == []


class TestAttemptsInProcesses:
    @staticmethod
    def attempted_for(worker_pid: int) -> list[str]:
        book = Book()
        book.add("r1", "isolated")
        book.claim("r1")
        line = {"run": "r1", "token": 1, "nonce": "<99.1>", "job": "isolated"}
        book.log("begin", "child", worker_pid=worker_pid, **line)
        book.log("end", "child", run="r1", token=1, how="returned")
        book.finish("r1", result=json.dumps({"nonce": "<99.1>"}))
        return book.broken()

    def test_a_child_makes_the_attempts_of_its_worker(self):
        assert self.attempted_for(PIDS[ANN]) == []

    def test_a_child_of_another_worker(self):
        assert_only(self.attempted_for(PIDS[BOB]), "attempts", "was attempted by 22")


class TestPauses:
    @staticmethod
    def claimed_while_paused(**fault: Any) -> list[str]:
        book = Book()
        book.add("r1", "narrow")
        book.log("paused", "dispatcher", job="narrow")
        book.now += SECOND
        if fault:
            book.log("fault", "driver", **fault)
        book.run_to_end("r1")
        book.log("resuming", "dispatcher", job="narrow")
        return book.broken()

    def test_a_run_that_starts_during_a_pause(self):
        assert_only(self.claimed_while_paused(), "pauses", "the job narrow was paused", "r1")

    def test_a_frozen_worker_may_have_chosen_it_before(self):
        assert self.claimed_while_paused(name="freeze_worker", target="worker-1", seconds=9.0) == []

    def test_a_run_that_starts_after_it(self):
        book = Book()
        book.add("r1", "narrow")
        book.log("paused", "dispatcher", job="narrow")
        book.log("resuming", "dispatcher", job="narrow")
        book.now += SECOND
        book.run_to_end("r1")

        assert book.broken() == []


class TestFirings:
    @staticmethod
    def fired(*instants: int, schedule: str = "second", skips: Any = ()) -> list[str]:
        book = Book()
        book.schedules.append(Schedule("", schedule, T0 - SECOND, None))
        for number, instant in enumerate(instants):
            nominal = T0 + instant * SECOND
            run = f"r{number}"
            book.add(run, schedule, is_journaled=False, schedule=schedule, nominal_at=nominal)
            book.run_to_end(run)
        for number, (first, last, count, reason) in enumerate(skips):
            run = f"s{number}"
            book.finished[run] = Finished(
                run, "", schedule, "skipped", 0, 1, 0, 0, "skipped", reason, "{}", book.now, None,
                schedule, T0 + first * SECOND, T0 + last * SECOND, count,
            )  # fmt: skip
        return book.broken()

    def test_every_instant_has_a_run_or_a_reason(self):
        assert self.fired(0, 1, 4, skips=[(2, 3, 2, "missed: no worker was running")]) == []

    def test_one_that_fired_twice(self):
        assert_only(self.fired(0, 1, 1), "fired 2 times")

    def test_one_that_is_missing(self):
        assert_only(self.fired(0, 2), "no run and no reason for")

    def test_one_that_fired_and_was_skipped(self):
        assert any("accounted for 2 times" in each for each in self.fired(
            0, 1, 2, skips=[(1, 1, 1, "missed: no worker was running")]
        ))  # fmt: skip

    def test_one_that_the_schedule_does_not_have(self):
        assert any("has no instant" in each for each in self.fired(0, 1, schedule="even"))

    def test_a_row_that_counts_wrong(self):
        assert any("and spans 3" in each for each in self.fired(
            0, 4, skips=[(1, 3, 2, "missed: no worker was running")]
        ))  # fmt: skip

    def test_a_missed_instant_where_all_are_caught_up(self):
        assert_only(
            self.fired(
                0, 2, schedule="caught_up", skips=[(1, 1, 1, "missed: no worker was running")]
            ),
            "catches up on all",
        )

    def test_one_that_begins_late(self):
        assert_only(self.fired(5, 6), "began only at")


class TestRecords:
    def test_a_success_without_a_handler(self):
        book = Book()
        book.add()
        book.claim()
        book.finish()

        assert_only(book.broken(), "no handler ran")

    def test_a_success_that_is_recorded_as_a_failure(self):
        book = Book()
        book.add()
        book.claim()
        book.begin()
        book.end()
        book.attempts.append(Attempt("r1", 1, 1, "failed", "could not be written"))
        book.finish(status="failed_permanent", outcome="failed", reason="could not be written")

        found = book.broken()

        assert any("it has failed (could not be written), and did not" in each for each in found)

    def test_a_run_that_fails_because_of_the_store(self):
        book = Book()
        book.add()
        book.claim()
        book.begin()
        book.end()
        book.attempts.append(Attempt("r1", 1, 1, "failed", "permission denied"))
        book.finish(status="failed_permanent", outcome="failed", reason="permission denied")

        assert any("outcomes: its handler returned" in each for each in book.broken())

    def test_a_run_that_is_given_up_too_early(self):
        book = Book()
        book.add(job="charge")
        book.claim()
        book.begin()
        book.end(how="RuntimeError")
        book.attempts.append(Attempt("r1", 1, 1, "failed", ""))
        book.finish(status="failed_permanent", outcome="failed")

        assert_only(book.broken(), "given up after 1 attempts")

    def test_a_cancel_without_a_request(self):
        book = Book()
        book.add()
        book.finish(status="canceled", outcome="canceled")

        assert_only(book.broken(), "without a request")

    def test_a_crash_that_was_not_counted(self):
        book = Book()
        book.add()
        book.attempts.append(Attempt("r1", 1, 1, "crashed", ""))
        book.run_to_end()

        assert_only(book.broken(), "0 crashes, and 1 rows")

    def test_an_attempt_too_many(self):
        book = Book()
        book.add()
        book.run_to_end(attempt=2)

        assert_only(book.broken(), "2 attempts")

    def test_a_token_that_counts_no_claim(self):
        book = Book()
        book.add()
        book.claim()
        book.begin()
        book.end()
        book.finish(token=2)

        assert any("token 2 after 1 claims" in each for each in book.broken())

    def test_a_job_row_without_its_last_success(self):
        book = Book()
        book.add()
        book.run_to_end()

        assert_only(book.broken(jobs=[]), "counters", "its row has None")

    def test_a_job_row_may_be_as_old_as_the_last_seconds_of_a_killed_worker(self):
        book = Book()
        book.add()
        book.run_to_end()
        [(job, at)] = book.last.items()

        assert book.broken(jobs=[JobRow("", job, at - 10_000_000)]) == []
        older = book.broken(jobs=[JobRow("", job, at - 10_000_001)])
        assert_only(older, "counters", "succeeded last")


class TestActors:
    def test_a_worker_that_ended_by_itself(self):
        book = Book()
        book.add()
        book.run_to_end()
        book.log("exited", "driver", actor="worker-1", child=11, code=1, is_journaled=False)

        assert_only(book.broken(), "workers", "ended with status 1")

    def test_a_worker_that_ignores_sigterm(self):
        book = Book()
        book.log("signal", "driver", actor="worker-1", child=11, number="SIGTERM")
        book.now += 60 * SECOND
        book.log("exited", "driver", actor="worker-1", child=11, code=0, is_journaled=True)

        assert_only(book.broken(), "worker-1 (process 11) took 60 s to end after SIGTERM")

    def test_a_worker_that_found_no_database_at_its_start(self):
        book = Book()
        book.log("exited", "driver", actor="worker-1", child=11, code=4, is_journaled=False)

        assert book.broken() == []

    def test_a_worker_whose_event_loop_was_stopped_again_and_again(self):
        book = Book()
        book.add()
        book.run_to_end()
        book.log("loop stopped", ANN, how="often")
        book.now += 20 * SECOND
        book.log("exited", "driver", actor="worker-1", child=11, code=70, is_journaled=False)

        assert book.broken() == []

    def test_a_worker_that_goes_on_without_its_event_loop(self):
        book = Book()
        book.log("loop stopped", ANN, how="often")
        book.now += 60 * SECOND
        book.log("exited", "driver", actor="worker-1", child=11, code=0, is_journaled=False)

        assert_only(book.broken(), "process 11 went on for 60 s without an event loop")

    def test_a_worker_that_ends_after_its_event_loop_was_stopped_once(self):
        book = Book()
        book.add()
        book.run_to_end()
        book.log("loop stopped", ANN, how="once")
        book.log("exited", "driver", actor="worker-1", child=11, code=70, is_journaled=False)

        assert_only(book.broken(), "workers", "ended with status 70")

    def test_runs_that_did_not_finish(self):
        book = Book()
        book.log("not settled", "driver", unfinished=3)

        assert_only(book.broken(), "not settled")


class TestChecker:
    def test_it_shows_the_timeline_of_the_run(self):
        book = Book()
        book.add()
        book.log("fault", "driver", name="kill_worker", target="worker-1", seconds=1.0)

        text = judge_evidence(book.evidence()).render()

        assert "Timeline of run r1" in text
        assert "INSERT plain pending/ready" in text
        assert "dispatcher (1): dispatched" in text
        assert "kill_worker" in text

    def test_many_violations_of_one_rule_do_not_hide_another(self):
        book = Book()
        for number in range(20):
            book.add(f"r{number}")
        book.log("not settled", "driver", unfinished=20)

        text = judge_evidence(book.evidence()).render()

        assert "not final: … and 15 more" in text
        assert "workers: not settled" in text

    def test_it_checks_saved_tables_again(self, tmp_path):
        (tmp_path / "manifest.json").write_text(json.dumps(manifest()))
        tables: dict[str, list[Any]] = {
            name: [] for name in ("changes", "finished", "attempts", "effects", "schedules")
        }
        tables |= {name: [] for name in ("jobs", "live", "slots", "orders", "workers")}
        (tmp_path / "tables.json").write_text(json.dumps(tables))
        line = {"at": 1.0, "who": "d", "pid": 1, "event": "committed", "run": "r1", "uid": "u"}
        (tmp_path / "d.log").write_text(json.dumps(line) + "\n")

        verdict = judge(tmp_path)

        assert verdict.rules == ["lost"]

    def test_it_imports_nothing_of_tickwork(self):
        folder = Path(chaos.checker.__file__).parent
        for path in folder.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [node.module or ""]
                assert not any(name.split(".")[0] == "tickwork" for name in names), path
        code = (
            "import sys; sys.modules['tickwork'] = None; import chaos.checker.__main__ as _;"
            "assert not any(name.startswith('tickwork.') for name in sys.modules)"
        )
        root = folder.parent.parent
        subprocess.run([sys.executable, "-c", code], cwd=root, check=True)
