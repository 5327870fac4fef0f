from datetime import timedelta
from typing import Any

import pytest

from tickwork._domain.identity import RunId
from tickwork._worker.heartbeat import Heartbeat
from tickwork._worker.held_runs import HeldRuns
from tickwork.errors import StoreBusy, StoreUnavailable
from tickwork.stores.contract import HeartbeatResult
from tickwork.testing import ManualClock
from unit.builders import a_claim

MINUTE = timedelta(minutes=1)


class Leases:
    """A store that answers as it is told, and remembers what it was asked."""

    def __init__(self):
        self.answer: Any = HeartbeatResult([], [])
        self.asked = []

    def extend_leases(self, held, *, until):
        self.asked.append((list(held), until))
        if isinstance(self.answer, Exception):
            raise self.answer
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
    """Every lease that is held is extended; what was lost is let go of."""

    def test_all_leases_of_one_length_are_one_statement(self, heartbeat, held, leases, clock):
        holding(held, "a", "b")
        holding(held, "c", job="short")

        heartbeat.beat()

        (first, until), (second, sooner) = leases.asked
        assert [run.run_id for run in first] == ["a", "b"]
        assert until == clock.now() + MINUTE
        assert [run.run_id for run in second] == ["c"]
        assert sooner == clock.now() + timedelta(seconds=6)

    def test_what_was_lost_is_revoked_and_not_asked_for_again(self, heartbeat, held, leases):
        holding(held, "a", "b")
        leases.answer = HeartbeatResult([RunId("a")], [])

        heartbeat.beat()
        heartbeat.beat()

        assert held.get(RunId("a")).is_lost
        assert not held.get(RunId("b")).is_lost
        assert [run.run_id for run in leases.asked[1][0]] == ["b"]

    def test_who_is_to_be_canceled_is_stop_requested(self, heartbeat, held, leases):
        holding(held, "a")
        leases.answer = HeartbeatResult([], [RunId("a")])

        heartbeat.beat()

        assert held.get(RunId("a")).is_canceled
        assert not held.get(RunId("a")).is_lost

    def test_which_handlers_have_started_is_said(self, heartbeat, held, leases, clock):
        holding(held, "a", "b")
        held.get(RunId("b")).started_at = clock.now()

        heartbeat.beat()

        assert [run.started_at for run in leases.asked[0][0]] == [None, clock.now()]


class TestLettingGo:
    """A lease that cannot be extended is given up before it can end."""

    def test_after_four_fifths_of_it_without_an_answer(self, heartbeat, held, leases, clock):
        holding(held, "a")
        leases.answer = StoreUnavailable("sqlite://", "gone")
        clock.advance(seconds=47)
        heartbeat.step()
        assert not held.get(RunId("a")).is_lost

        clock.advance(seconds=1)
        heartbeat.step()

        assert held.get(RunId("a")).is_lost

    def test_not_while_nobody_can_write_anything(self, heartbeat, held, leases, clock):
        holding(held, "a")
        leases.answer = StoreBusy("sqlite://", waited=MINUTE)

        clock.advance(minutes=5)
        heartbeat.step()

        assert not held.get(RunId("a")).is_lost

    def test_where_others_could_write_it_counts_as_one_that_did_not_arrive(
        self, heartbeat, held, leases, clock
    ):
        holding(held, "a")
        leases.answer = StoreBusy("postgresql://", waited=MINUTE)

        clock.advance(seconds=48)
        heartbeat.step()

        assert held.get(RunId("a")).is_lost

    def test_a_heartbeat_that_did_not_arrive_is_soon_repeated(self, heartbeat, held, leases):
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

    def test_whoever_comes_by_beats_only_when_it_is_time(self, heartbeat, held, leases, clock):
        holding(held, "a")
        clock.advance(seconds=19)
        heartbeat.step_if_due()
        assert leases.asked == []

        clock.advance(seconds=1)
        heartbeat.step_if_due()
        heartbeat.step_if_due()

        assert len(leases.asked) == 1

    def test_with_nothing_held_nobody_is_asked(self, heartbeat, leases, clock):
        clock.advance(days=1)

        heartbeat.step_if_due()
        heartbeat.step()

        assert leases.asked == []


class TestAsking:
    """An attempt that asks learns whether its run was taken from it."""

    def test_it_learns_of_a_loss_when_it_asks(self, heartbeat, held, leases, clock):
        holding(held, "a")
        assert not heartbeat.is_lost(RunId("a"))
        leases.answer = HeartbeatResult([RunId("a")], [])

        clock.advance(seconds=30)

        assert heartbeat.is_lost(RunId("a"))

    def test_a_run_that_is_not_held_is_not_lost(self, heartbeat):
        assert not heartbeat.is_lost(RunId("a"))
