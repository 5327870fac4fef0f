"""How many runs a pump claims, and what becomes of claims whose answer was lost."""

from datetime import timedelta
from typing import Any

import pytest

from tickwork._domain.identity import RunId, WorkerId
from tickwork._worker.held import HeldRuns
from tickwork._worker.pump import Lane, Pump
from tickwork._worker.wake import Wake
from tickwork.errors import OutcomeUnknown, StoreUnavailable
from tickwork.testing import ManualClock
from unit.builders import a_claim


class Engine:
    def __init__(self, slots=4, running=0, waiting=0):
        self.slots, self.running, self.waiting = slots, running, waiting
        self.submitted: list[Any] = []

    def submit(self, claims):
        self.submitted += claims
        self.waiting += len(claims)


class Queue:
    """A store with so many ready runs."""

    def __init__(self, ready=1000):
        self.ready = ready
        self.wanted = []
        self.faults: list[Exception] = []
        self.found: dict[str, list[Any]] = {}
        self.made = 0

    def claim(self, wanted, *, worker, tag, now, lease, lease_by_job):
        self.wanted.append(wanted)
        count = min(wanted.limit, self.ready)
        self.ready -= count
        claims = [a_claim(run_id=RunId(f"run-{self.made + n}"), job="job") for n in range(count)]
        self.made += count
        if self.faults:
            self.found[tag] = claims
            raise self.faults.pop(0)
        return claims

    def find_claims(self, *, worker, tag):
        if self.faults:
            raise self.faults.pop(0)
        return self.found.pop(tag, [])


class Writer:
    def __init__(self):
        self.size = 0

    def __len__(self):
        return self.size

    def write(self):
        return 0


class Known:
    def lease_by_job(self):
        return {}


class NoWait(Wake):
    def wait(self, since, seconds):
        return False


def a_pump(queue, *lanes, **said):
    facts = {
        "name": "pump-0",
        "store": queue,
        "clock": ManualClock(),
        "worker": WorkerId("me"),
        "queues": None,
        "lanes": lanes,
        "held": HeldRuns(),
        "writer": Writer(),
        "known": Known(),
        "wake": NoWait(),
        "batch": 500,
        "ahead": timedelta(milliseconds=100),
        "unwritten_max": 1000,
        "give_back": lambda claim, outcome: None,
    }
    return Pump(**facts | said)


def a_lane(engine, mean=0.0):
    return Lane(engine, lambda: ("job",), lambda: mean)


def told(wanted):
    return [(each.limit, each.is_starting, each.is_ahead) for each in wanted]


class TestArithmetic:
    def test_as_many_as_can_start_now(self):
        queue, engine = Queue(), Engine(slots=4, running=1)

        a_pump(queue, a_lane(engine)).step(may_claim=True)

        assert told(queue.wanted) == [(3, True, False)]

    def test_nothing_ahead_before_it_is_known_how_long_attempts_take(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        assert not a_pump(queue, a_lane(engine)).step(may_claim=True)

        assert queue.wanted == []

    def test_what_can_start_within_the_time_that_is_looked_ahead(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        # Each slot makes ten in 100 ms.
        a_pump(queue, a_lane(engine, mean=0.01)).step(may_claim=True)

        assert told(queue.wanted) == [(40, False, True)]

    def test_what_waits_already_counts(self):
        queue, engine = Queue(), Engine(slots=4, running=4, waiting=25)

        a_pump(queue, a_lane(engine, mean=0.01)).step(may_claim=True)

        assert told(queue.wanted) == [(15, False, True)]

    def test_first_what_starts_then_what_waits(self):
        queue, engine = Queue(), Engine(slots=4, running=2)

        a_pump(queue, a_lane(engine, mean=0.01)).step(may_claim=True)

        assert told(queue.wanted) == [(2, True, False), (38, False, True)]

    def test_never_more_than_a_batch(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        a_pump(queue, a_lane(engine, mean=1e-6)).step(may_claim=True)

        assert told(queue.wanted) == [(500, False, True)]

    def test_slow_jobs_are_not_claimed_ahead(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        a_pump(queue, a_lane(engine, mean=2.0)).step(may_claim=True)

        assert queue.wanted == []

    def test_nothing_ahead_when_there_was_not_enough_for_now(self):
        queue, engine = Queue(ready=1), Engine(slots=4)

        a_pump(queue, a_lane(engine, mean=0.001)).step(may_claim=True)

        assert told(queue.wanted) == [(4, True, False)]

    def test_two_pumps_do_not_claim_the_same_slots(self):
        engine = Engine(slots=4)
        lane = a_lane(engine)

        assert lane.take_now(500) == 4
        assert lane.take_now(500) == 0
        lane.give(4)
        assert lane.take_now(3) == 3

    def test_a_claim_that_starts_while_we_look_is_not_missed(self):
        class Moving(Engine):
            """Its only claim starts just after somebody saw that nothing runs."""

            is_started = False

            @property
            def running(self):
                seen, self.is_started = int(self.is_started), True
                return seen

            @running.setter
            def running(self, count): ...

            @property
            def waiting(self):
                return int(not self.is_started)

            @waiting.setter
            def waiting(self, count): ...

        assert a_lane(Moving(slots=1)).take_now(500) == 0

    def test_nothing_while_too_much_is_unwritten(self):
        queue, writer = Queue(), Writer()
        writer.size = 1000

        a_pump(queue, a_lane(Engine()), writer=writer).step(may_claim=True)

        assert queue.wanted == []

    def test_nothing_when_it_may_not(self):
        queue = Queue()

        a_pump(queue, a_lane(Engine())).step(may_claim=False)

        assert queue.wanted == []

    def test_a_lane_without_jobs_asks_for_nothing(self):
        queue = Queue()

        a_pump(queue, Lane(Engine(), tuple, lambda: 0.0)).step(may_claim=True)  # type: ignore[arg-type]

        assert queue.wanted == []


class TestLostAnswers:
    def test_claims_are_found_again_and_made(self):
        queue, engine, held = Queue(), Engine(slots=2), HeldRuns()
        pump = a_pump(queue, a_lane(engine), held=held)
        queue.faults = [OutcomeUnknown("db://", "gone"), StoreUnavailable("db://", "gone")]

        for _ in range(2):
            assert pump.step(may_claim=True)
            assert len(held) == 0
        pump.step(may_claim=True)

        assert [claim.run_id for claim in engine.submitted] == ["run-0", "run-1"]
        assert len(held) == 2

    def test_the_slots_are_free_again_meanwhile(self):
        queue, engine = Queue(), Engine(slots=2)
        lane = a_lane(engine)
        queue.faults = [OutcomeUnknown("db://", "gone")]

        a_pump(queue, lane).step(may_claim=True)

        assert lane.take_now(500) == 2

    def test_they_are_given_back_when_the_worker_stops(self):
        queue, engine = Queue(), Engine(slots=2)
        given: list[Any] = []
        pump = a_pump(
            queue, a_lane(engine), give_back=lambda claim, outcome: given.append(claim.run_id)
        )
        queue.faults = [OutcomeUnknown("db://", "gone")]
        pump.step(may_claim=True)

        pump.step(may_claim=False)

        assert given == ["run-0", "run-1"]
        assert engine.submitted == []

    def test_whoever_cares_is_told_that_the_database_is_back(self):
        queue = Queue()
        back: list[int] = []
        pump = a_pump(queue, a_lane(Engine()), came_back=lambda: back.append(1))
        queue.faults = [StoreUnavailable("db://", "gone")]

        for _ in range(3):
            pump.step(may_claim=True)

        assert back == [1]


@pytest.mark.parametrize("fault", [OutcomeUnknown("db://", "x"), StoreUnavailable("db://", "x")])
def test_a_pump_survives_a_database_that_is_away(fault):
    queue = Queue()
    queue.faults = [fault] * 5
    pump = a_pump(queue, a_lane(Engine()))

    assert [pump.step(may_claim=True) for _ in range(3)] == [True] * 3
