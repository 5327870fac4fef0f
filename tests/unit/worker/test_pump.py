"""How many runs a pump claims, and what becomes of claims whose answer was lost."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from tickwork._domain.identity import RunId, WorkerId
from tickwork._worker.held import HeldRuns
from tickwork._worker.making import Means
from tickwork._worker.pump import TURN_SECONDS, Lane, Pump, Turns
from tickwork._worker.wake import Wake
from tickwork._worker.writer import Wrote
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
        count = min(wanted.limit + wanted.hold + wanted.ahead, self.ready)
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
        self.may_free = False
        self.jobs: frozenset[str] = frozenset()

    def __len__(self):
        return self.size

    def write(self):
        return Wrote(len(self.jobs), self.may_free, jobs=self.jobs)


class Known:
    def lease_by_job(self):
        return {}

    def lease_of(self, job):
        return timedelta(seconds=10)


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
        "turns": Turns(),
        "known": Known(),
        "wake": NoWait(),
        "batch": 500,
        "ahead": timedelta(milliseconds=100),
        "poll": timedelta(milliseconds=200),
        "unwritten_max": 1000,
        "give_back": lambda claim, outcome: None,
    }
    return Pump(**facts | said)


def a_lane(engine, mean=0.0):
    means = Means()
    if mean:
        means.add("job", mean)
    return Lane(engine, lambda: ("job",), means)


def told(wanted):
    assert all(each.is_starting for each in wanted)
    return [(each.limit, each.hold + each.ahead) for each in wanted]


class SlowQueue(Queue):
    """A claim that has to wait for others: they have the only write lock there is."""

    def __init__(self, clock, seconds):
        super().__init__(ready=2)
        self._clock, self._seconds = clock, seconds

    def claim(self, wanted, **said):
        self._clock.advance(seconds=self._seconds)
        return super().claim(wanted, **said)


class TestLateClaims:
    @pytest.mark.parametrize(("seconds", "begun", "returned"), [(7, 2, 0), (9, 0, 2)])
    def test_what_was_claimed_for_longer_than_its_lease_goes_back(self, seconds, begun, returned):
        # Its lease counts from before the wait: others may have taken it before it could begin.
        given_back, engine, clock = [], Engine(), ManualClock()
        pump = a_pump(
            SlowQueue(clock, seconds),
            a_lane(engine),
            clock=clock,
            give_back=lambda claim, outcome: given_back.append(claim),
        )

        pump.step(may_claim=True)

        assert (len(engine.submitted), len(given_back)) == (begun, returned)


class TestArithmetic:
    def test_as_many_as_can_start_now(self):
        queue, engine = Queue(), Engine(slots=4, running=1)

        a_pump(queue, a_lane(engine)).step(may_claim=True)

        assert told(queue.wanted) == [(3, 0)]

    def test_nothing_ahead_before_it_is_known_how_long_attempts_take(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        assert not a_pump(queue, a_lane(engine)).step(may_claim=True)

        assert queue.wanted == []

    def test_what_can_start_within_the_time_that_is_looked_ahead(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        # Each slot makes ten in 100 ms.
        a_pump(queue, a_lane(engine, mean=0.01)).step(may_claim=True)

        assert told(queue.wanted) == [(0, 40)]

    def test_what_waits_already_counts(self):
        queue, engine = Queue(), Engine(slots=4, running=4, waiting=25)

        a_pump(queue, a_lane(engine, mean=0.01)).step(may_claim=True)

        assert told(queue.wanted) == [(0, 15)]

    def test_first_what_starts_then_what_waits(self):
        queue, engine = Queue(), Engine(slots=4, running=2)

        a_pump(queue, a_lane(engine, mean=0.01)).step(may_claim=True)

        assert told(queue.wanted) == [(2, 38)]

    def test_never_more_than_a_batch(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        a_pump(queue, a_lane(engine, mean=1e-6)).step(may_claim=True)

        assert told(queue.wanted) == [(0, 500)]

    def test_slow_jobs_are_not_claimed_ahead(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        a_pump(queue, a_lane(engine, mean=2.0)).step(may_claim=True)

        assert queue.wanted == []

    def test_two_batches_wait_at_most(self):
        queue, engine = Queue(), Engine(slots=4, running=4)
        pump = a_pump(queue, a_lane(engine, mean=1e-6))

        for _ in range(3):
            pump.step(may_claim=True)

        assert told(queue.wanted) == [(0, 500), (0, 500)]

    def test_two_pumps_do_not_claim_the_same_slots(self):
        engine = Engine(slots=4)
        lane = a_lane(engine)

        assert lane.take(0.1, batch=500, now=0) == (4, 0, 0)
        assert lane.take(0.1, batch=500, now=0) == (0, 0, 0)
        lane.give(4)
        assert lane.take(0.1, batch=3, now=0) == (3, 0, 0)

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

        assert a_lane(Moving(slots=1)).take(0.1, batch=500, now=0) == (0, 0, 0)

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

        a_pump(queue, Lane(Engine(), tuple, Means())).step(may_claim=True)  # type: ignore[arg-type]

        assert queue.wanted == []


class TestNothingThere:
    """An engine without work takes no time from one that has."""

    def asked(self, queue, pump, **said):
        before = len(queue.wanted)
        pump.step(may_claim=True, **said)
        return len(queue.wanted) - before

    def test_it_is_not_asked_for_again(self):
        queue = Queue(ready=0)
        pump = a_pump(queue, a_lane(Engine()))

        assert [self.asked(queue, pump) for _ in range(3)] == [1, 0, 0]

    def test_until_somebody_tells_of_work(self):
        queue, wake = Queue(ready=0), NoWait()
        pump = a_pump(queue, a_lane(Engine()), wake=wake)
        self.asked(queue, pump)

        wake.call()
        assert self.asked(queue, pump) == 0
        wake.tell()
        assert self.asked(queue, pump) == 1

    def test_until_what_was_written_may_have_freed_somebody(self):
        queue, writer = Queue(ready=0), Writer()
        pump = a_pump(queue, a_lane(Engine()), writer=writer)
        self.asked(queue, pump)

        writer.may_free = True
        assert self.asked(queue, pump) == 1

    def test_until_it_is_time_to_look_without_being_told(self):
        queue, clock = Queue(ready=0), ManualClock()
        pump = a_pump(queue, a_lane(Engine()), clock=clock)
        self.asked(queue, pump)

        clock.advance(timedelta(seconds=0.199))
        assert self.asked(queue, pump) == 0
        clock.advance(timedelta(seconds=0.001))
        assert self.asked(queue, pump) == 1

    def test_until_there_was_nothing_else_to_do(self):
        queue = Queue(ready=0)
        pump = a_pump(queue, a_lane(Engine()))
        self.asked(queue, pump)

        assert self.asked(queue, pump, is_polling=True) == 1

    def test_a_few_are_not_nothing(self):
        queue = Queue(ready=1)
        pump = a_pump(queue, a_lane(Engine(slots=4)))

        assert [self.asked(queue, pump) for _ in range(3)] == [1, 1, 0]

    def test_nor_is_what_another_pump_is_claiming(self):
        queue = Queue(ready=0)
        lane = a_lane(Engine(slots=4))
        lane.take(0.1, batch=2, now=0)  # another's
        pump = a_pump(queue, lane)

        assert [self.asked(queue, pump) for _ in range(3)] == [1, 1, 1]

    def slowly(self, *others):
        """A pump that was told of work just after ten milliseconds were spent on none."""
        clock, wake = ManualClock(), NoWait()

        class Slow(Queue):
            def claim(self, *args, **kwargs):
                clock.advance(timedelta(seconds=0.01))
                return super().claim(*args, **kwargs)

        queue = Slow(ready=0)
        pump = a_pump(queue, a_lane(Engine()), *others, clock=clock, wake=wake)
        assert self.asked(queue, pump) == 1
        assert not pump.is_holding_back
        wake.tell()
        return queue, pump, clock

    def test_beside_others_that_have_work_it_rests(self):
        queue, pump, clock = self.slowly(a_lane(Engine(slots=1, running=1, waiting=1)))

        assert self.asked(queue, pump) == 0
        assert pump.is_holding_back
        clock.advance(timedelta(seconds=0.08))
        assert not pump.is_holding_back
        assert self.asked(queue, pump) == 1

    def test_alone_it_looks_at_once(self):
        queue, pump, _ = self.slowly(a_lane(Engine(slots=1, running=1)))

        assert self.asked(queue, pump) == 1

    @pytest.mark.parametrize(("job", "asked"), [("job", 1), ("another's", 0)])
    def test_who_has_just_finished_some_of_its_own_is_not_beside_others(self, job, asked):
        queue, writer = Queue(ready=0), Writer()
        writer.jobs, writer.may_free = frozenset({job}), True
        clock = ManualClock()
        pump = a_pump(queue, a_lane(Engine()), writer=writer, clock=clock)
        pump._lanes[0].ran_dry(0, asked=-0.01, answered=0, poll=0.2)

        assert self.asked(queue, pump) == asked


class TestComingBack:
    def test_at_once_when_there_may_be_more(self):
        assert a_pump(Queue(ready=10), a_lane(Engine(slots=4))).step(may_claim=True)

    def test_when_it_is_called_after_less_than_it_asked_for(self):
        assert not a_pump(Queue(ready=3), a_lane(Engine(slots=4))).step(may_claim=True)


class TestJobsThatMayWait:
    def test_those_that_take_no_longer_than_most(self):
        means = Means()
        for _ in range(50):
            means.add("quick", 0.001)
            means.add("quite quick", 0.002)
        means.add("slow", 2.0)
        for _ in range(200):
            means.add("quick", 0.001)

        assert means.alike(1.0) == {"quick", "quite quick"}

    def test_nobody_knows_one_that_was_never_made(self):
        assert Means().alike(1.0) == frozenset()

    def test_the_slow_ones_when_most_are(self):
        means = Means()
        for _ in range(100):
            means.add("slow", 2.0)

        assert means.alike(1.0) == {"slow"}

    def test_it_is_not_looked_up_for_each_claim(self):
        means = Means()
        means.add("first", 0.001)
        assert means.alike(1.0) == {"first"}

        means.add("second", 0.001)
        assert means.alike(1.01) == {"first"}
        assert means.alike(1.02) == {"first", "second"}

    def test_the_store_is_told(self):
        queue = Queue()

        a_pump(queue, a_lane(Engine(slots=4, running=4), mean=0.01)).step(may_claim=True)

        assert [each.may_wait for each in queue.wanted] == [{"job"}]


class TestRunsThatMustNotWait:
    def test_for_a_moment_they_may(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        # In two milliseconds there is time for twenty.
        a_pump(queue, a_lane(engine, mean=0.0001)).step(may_claim=True)

        assert [(each.hold, each.ahead) for each in queue.wanted] == [(20, 480)]

    def test_but_not_behind_slow_ones(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        a_pump(queue, a_lane(engine, mean=0.01)).step(may_claim=True)

        assert [(each.hold, each.ahead) for each in queue.wanted] == [(0, 40)]

    def test_while_there_are_only_those_none_is_asked_for_to_wait(self):
        clock, engine = ManualClock(), Engine(slots=4)

        class Limited(Queue):
            def claim(self, wanted, **said):
                clock.advance(timedelta(seconds=0.01))
                super().claim(wanted, **said)
                return [a_claim(run_id=RunId(f"r{n}"), job="job") for n in range(wanted.limit)]

        queue = Limited()
        pump = a_pump(queue, a_lane(engine, mean=0.01), clock=clock)
        for _ in range(2):
            pump.step(may_claim=True)
            engine.waiting = 0
        clock.advance(timedelta(seconds=0.08))
        pump.step(may_claim=True)

        assert told(queue.wanted) == [(4, 36), (4, 0), (4, 36)]


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

    def test_claims_for_which_there_was_no_memory_are_found_again(self):
        class NoMemory(HeldRuns):
            faults = 1

            def add(self, claims, *, extended_at):
                if self.faults:
                    self.faults -= 1
                    raise MemoryError
                super().add(claims, extended_at=extended_at)

        class Kept(Queue):
            def claim(self, wanted, *, tag, **said):
                self.found[tag] = super().claim(wanted, tag=tag, **said)
                return self.found[tag]

        queue, engine, held = Kept(ready=2), Engine(slots=2), NoMemory()
        pump = a_pump(queue, a_lane(engine), held=held)

        with pytest.raises(MemoryError):
            pump.step(may_claim=True)
        pump.step(may_claim=True)

        assert [claim.run_id for claim in engine.submitted] == ["run-0", "run-1"]

    def test_the_slots_are_free_again_meanwhile(self):
        queue, engine = Queue(), Engine(slots=2)
        lane = a_lane(engine)
        queue.faults = [OutcomeUnknown("db://", "gone")]

        a_pump(queue, lane).step(may_claim=True)

        assert lane.take(0.1, batch=500, now=0) == (2, 0, 0)

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


class BusyWriter(Writer):
    """Writes limited runs, and has a word with others while it does."""

    def __init__(self, meanwhile=lambda: None, is_limited=True):
        super().__init__()
        self.meanwhile, self.is_limited = meanwhile, is_limited

    def write(self):
        self.meanwhile()
        return Wrote(1, is_limited=self.is_limited, jobs=frozenset({"job"}))


class TestTurns:
    """Pumps that would wait for each other in the database take turns."""

    @pytest.mark.parametrize(
        ("is_limited", "seconds", "asked"),
        [(True, 0.0, 0), (True, 2 * TURN_SECONDS, 1), (False, 0.0, 1)],
    )
    def test_one_leaves_the_work_to_another(self, is_limited, seconds, asked):
        clock, turns, queue = ManualClock(), Turns(), Queue()
        turns.is_one_by_one = is_limited
        second = a_pump(queue, a_lane(Engine()), clock=clock, turns=turns)
        found = []

        def meanwhile():
            clock.advance(seconds=seconds)
            second.step(may_claim=True)
            found.append(len(queue.wanted))

        writer = BusyWriter(meanwhile, is_limited=is_limited)
        first = a_pump(Queue(), a_lane(Engine()), clock=clock, turns=turns, writer=writer)

        first.step(may_claim=True)

        assert found == [asked]

    @pytest.mark.parametrize("fault", [None, StoreUnavailable("db", "away"), RuntimeError()])
    def test_the_next_turn_is_anybodys(self, fault):
        def stumble():
            if fault is not None:
                raise fault

        turns, queue = Turns(), Queue()
        turns.is_one_by_one = True
        first = a_pump(Queue(), turns=turns, writer=BusyWriter(stumble))
        second = a_pump(queue, a_lane(Engine()), turns=turns)

        with suppress(RuntimeError):
            first.step(may_claim=True)
        second.step(may_claim=True)

        assert not second.is_put_off
        assert len(queue.wanted) == 1

    def test_whoever_has_lost_an_answer_does_not_wait(self):
        turns, queue = Turns(), Queue()
        turns.is_one_by_one = True
        second = a_pump(queue, a_lane(Engine()), turns=turns)
        queue.faults = [OutcomeUnknown("db", "cut")]
        second.step(may_claim=True)
        first = a_pump(Queue(), turns=turns, writer=BusyWriter(lambda: second.step(may_claim=True)))

        first.step(may_claim=True)

        assert queue.found == {}, "its claims are found"

    @pytest.mark.parametrize("steps", [0, 1])
    def test_what_was_written_last_decides(self, steps):
        turns = Turns()
        turns.is_one_by_one = True
        writer = BusyWriter(is_limited=False) if steps else Writer()

        a_pump(Queue(), turns=turns, writer=writer).step(may_claim=True)

        assert turns.is_one_by_one is (steps == 0)
