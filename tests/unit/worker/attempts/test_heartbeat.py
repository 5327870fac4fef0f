"""The heartbeat: leases are extended, and lost attempts are stopped."""

from datetime import timedelta
from typing import Any

import pytest

from tickwork._domain.identity import RunId
from tickwork._stores.contract import HeartbeatResult
from tickwork._worker.attempts.heartbeat import Heartbeat
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork.errors import RowRejected, SchemaMissing, StoreBusy, StoreUnavailable
from tickwork.testing import ManualClock
from unit.builders import a_claim

MINUTE = timedelta(minutes=1)


class Leases:
    """A store whose answer the test chooses; it remembers each request."""

    def __init__(self):
        self.answer: Any = HeartbeatResult([], [])
        self.refused: set[str] = set()
        self.requests = []

    def extend_leases(self, held, *, until):
        self.requests.append((list(held), until))
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.refused & {claim.run_id for claim in held}:
            raise RowRejected("not today", state="P0001")
        return self.answer


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def held():
    return HeldRuns()


@pytest.fixture
def leases():
    return Leases()


@pytest.fixture
def heartbeat(leases, held, clock):
    return Heartbeat(
        store=leases,
        held=held,
        clock=clock,
        lease_of=lambda job: timedelta(seconds=6) if job == "short" else MINUTE,
    )


def holding(held, *names, job="long"):
    claims = [a_claim(run_id=RunId(name), job=job, token=3) for name in names]
    held.add(claims, extended_at=0.0)
    return claims


class TestBeating:
    """Every held lease is extended; attempts that were lost are stopped."""

    def test_all_leases_of_one_length_are_one_statement(self, heartbeat, held, leases, clock):
        holding(held, "a", "b")
        holding(held, "c", job="short")

        heartbeat.beat()

        (first, until), (second, sooner) = leases.requests
        assert [run.run_id for run in first] == ["a", "b"]
        assert until == clock.now() + MINUTE
        assert [run.run_id for run in second] == ["c"]
        assert sooner == clock.now() + timedelta(seconds=6)

    def test_a_lost_claim_is_revoked_and_not_extended_again(self, heartbeat, held, leases):
        holding(held, "a", "b")
        leases.answer = HeartbeatResult([RunId("a")], [])

        heartbeat.beat()
        heartbeat.beat()

        assert held.get(RunId("a")).is_lost
        assert not held.get(RunId("b")).is_lost
        assert [run.run_id for run in leases.requests[1][0]] == ["b"]

    def test_a_requested_cancel_stops_the_attempt(self, heartbeat, held, leases):
        holding(held, "a")
        leases.answer = HeartbeatResult([], [RunId("a")])

        heartbeat.beat()

        assert held.get(RunId("a")).is_canceled
        assert not held.get(RunId("a")).is_lost

    def test_the_store_learns_which_handlers_have_started(self, heartbeat, held, leases, clock):
        holding(held, "a", "b")
        held.get(RunId("b")).started_at = clock.now()

        heartbeat.beat()

        assert [run.started_at for run in leases.requests[0][0]] == [None, clock.now()]


class TestLostHeartbeats:
    """An attempt whose lease cannot be extended is stopped before the lease expires."""

    def test_after_four_fifths_of_the_lease_without_an_answer(self, heartbeat, held, leases, clock):
        holding(held, "a")
        leases.answer = StoreUnavailable("sqlite://", "gone")
        clock.advance(seconds=47)
        heartbeat.step()
        assert not held.get(RunId("a")).is_lost

        clock.advance(seconds=1)
        heartbeat.step()

        assert held.get(RunId("a")).is_lost

    def test_not_while_no_process_can_write(self, heartbeat, held, leases, clock):
        holding(held, "a")
        leases.answer = StoreBusy("sqlite://", waited=MINUTE)

        clock.advance(minutes=5)
        heartbeat.step()

        assert not held.get(RunId("a")).is_lost

    def test_a_busy_server_counts_as_a_lost_heartbeat(self, heartbeat, held, leases, clock):
        holding(held, "a")
        leases.answer = StoreBusy("postgresql://", waited=MINUTE)

        clock.advance(seconds=48)
        heartbeat.step()

        assert held.get(RunId("a")).is_lost

    def test_a_lost_heartbeat_is_repeated_soon(self, heartbeat, held, leases):
        holding(held, "a")
        assert heartbeat.pace() == 20.0
        leases.answer = StoreUnavailable("sqlite://", "gone")

        heartbeat.step()
        assert heartbeat.pace() == 4.0

        leases.answer = HeartbeatResult([], [])
        heartbeat.step()
        assert heartbeat.pace() == 20.0


class TestPace:
    """A third of the shortest lease that is held."""

    def test_the_shortest_counts(self, heartbeat, held):
        holding(held, "a")
        holding(held, "b", job="short")

        assert heartbeat.pace() == 2.0

    def test_a_step_beats_only_when_it_is_due(self, heartbeat, held, leases, clock):
        holding(held, "a")
        clock.advance(seconds=19)
        heartbeat.step_if_due()
        assert leases.requests == []

        clock.advance(seconds=1)
        heartbeat.step_if_due()
        heartbeat.step_if_due()

        assert len(leases.requests) == 1

    def test_with_nothing_held_no_request_is_sent(self, heartbeat, leases, clock):
        clock.advance(days=1)

        heartbeat.step_if_due()
        heartbeat.step()

        assert leases.requests == []


class TestPolling:
    """An attempt that polls learns whether its run was lost."""

    def test_it_learns_of_the_loss(self, heartbeat, held, leases, clock):
        holding(held, "a")
        assert not heartbeat.is_lost(RunId("a"))
        leases.answer = HeartbeatResult([RunId("a")], [])

        clock.advance(seconds=30)

        assert heartbeat.is_lost(RunId("a"))

    def test_a_run_that_is_not_held_is_not_lost(self, heartbeat):
        assert not heartbeat.is_lost(RunId("a"))


class TestRefusedRows:
    def test_the_leases_of_the_others_are_extended(self, heartbeat, leases, held, clock):
        holding(held, *"abcdefgh")
        leases.refused = {"c"}
        clock.advance(seconds=30)

        with pytest.raises(RowRejected):
            heartbeat.beat()

        extended = {run.claim.run_id for run in held.snapshot() if run.extended_at}
        assert extended == set("abdefgh")

    def test_a_table_that_is_gone_is_an_unavailable_database(self, heartbeat, leases, held):
        holding(held, "a")
        usual = heartbeat.pace()
        leases.answer = SchemaMissing("db://")

        heartbeat.step()

        assert heartbeat.pace() < usual  # it is repeated soon
