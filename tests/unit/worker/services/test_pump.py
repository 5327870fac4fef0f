"""How many runs a pump claims, and how it finds claims whose answer was lost."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from tickwork._domain.identity import RunId, WorkerId
from tickwork._engines.durations import DurationEstimate
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork._worker.attempts.writer import WriteResult
from tickwork._worker.services.claim_capacity import EngineSlots
from tickwork._worker.services.claimer import Claimer
from tickwork._worker.services.pump import TURN_SECONDS, Pump, PumpSerializer
from tickwork._worker.wakeup import Wakeup
from tickwork.errors import OutcomeUnknown, StoreUnavailable
from tickwork.testing import ManualClock
from unit.builders import a_claim


class Engine:
    def __init__(self, slots=4, running=0, waiting=0):
        self.slots, self.running, self.waiting = slots, running, waiting
        self.durations = DurationEstimate()
        self.submitted: list[Any] = []

    def cancel(self, claim): ...

    def submit(self, claims):
        self.submitted += claims
        self.waiting += len(claims)


class Queue:
    """A store with this many ready runs."""

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
        self.may_unblock = False
        self.jobs: frozenset[str] = frozenset()

    def __len__(self):
        return self.size

    def write(self):
        return WriteResult(len(self.jobs), self.may_unblock, jobs=self.jobs)


class Known:
    def lease_by_job(self):
        return {}

    def lease_of(self, job):
        return timedelta(seconds=10)


class NoWait(Wakeup):
    def wait(self, since, seconds):
        return False


def a_pump(queue, *lanes, clock=None, held=None, **changes):
    clock, held = clock or ManualClock(), held if held is not None else HeldRuns()
    claimer = Claimer(
        name="pump-0",
        store=queue,
        clock=clock,
        worker=WorkerId("me"),
        known=Known(),  # type: ignore[arg-type]
        held=held,
    )
    options = {
        "clock": clock,
        "claimer": claimer,
        "queues": None,
        "slots": lanes,
        "writer": Writer(),
        "serializer": PumpSerializer(),
        "known": Known(),
        "wakeup": NoWait(),
        "batch": 500,
        "ahead": timedelta(milliseconds=100),
        "poll": timedelta(milliseconds=200),
        "unwritten_max": 1000,
        "give_back": lambda claim, outcome: None,
    }
    return Pump(**options | changes)


def a_lane(engine, mean=0.0):
    if mean:
        engine.durations.add("job", mean)
    return EngineSlots(engine, lambda: ("job",))


def sizes(wanted):
    assert all(each.is_starting for each in wanted)
    return [(each.limit, each.hold + each.ahead) for each in wanted]


class SlowQueue(Queue):
    """A store whose claims wait for the write lock."""

    def __init__(self, clock, seconds):
        super().__init__(ready=2)
        self._clock, self._seconds = clock, seconds

    def claim(self, wanted, **options):
        self._clock.advance(seconds=self._seconds)
        return super().claim(wanted, **options)


class TestLateClaims:
    @pytest.mark.parametrize(("seconds", "started", "returned"), [(7, 2, 0), (9, 0, 2)])
    def test_a_claim_that_took_longer_than_its_lease_is_given_back(
        self, seconds, started, returned
    ):
        # The lease counts from before the wait: another worker may have the run already.
        given_back, engine, clock = [], Engine(), ManualClock()
        pump = a_pump(
            SlowQueue(clock, seconds),
            a_lane(engine),
            clock=clock,
            give_back=lambda claim, outcome: given_back.append(claim),
        )

        pump.step(may_claim=True)

        assert (len(engine.submitted), len(given_back)) == (started, returned)


class TestCapacity:
    def test_as_many_as_can_start_now(self):
        queue, engine = Queue(), Engine(slots=4, running=1)

        a_pump(queue, a_lane(engine)).step(may_claim=True)

        assert sizes(queue.wanted) == [(3, 0)]

    def test_nothing_ahead_before_it_is_known_how_long_attempts_take(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        assert not a_pump(queue, a_lane(engine)).step(may_claim=True)

        assert queue.wanted == []

    def test_as_many_in_advance_as_can_start_within_the_time_ahead(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        # Each slot runs ten in 100 ms.
        a_pump(queue, a_lane(engine, mean=0.01)).step(may_claim=True)

        assert sizes(queue.wanted) == [(0, 40)]

    def test_waiting_claims_count(self):
        queue, engine = Queue(), Engine(slots=4, running=4, waiting=25)

        a_pump(queue, a_lane(engine, mean=0.01)).step(may_claim=True)

        assert sizes(queue.wanted) == [(0, 15)]

    def test_free_slots_come_first_then_runs_in_advance(self):
        queue, engine = Queue(), Engine(slots=4, running=2)

        a_pump(queue, a_lane(engine, mean=0.01)).step(may_claim=True)

        assert sizes(queue.wanted) == [(2, 38)]

    def test_never_more_than_a_batch(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        a_pump(queue, a_lane(engine, mean=1e-6)).step(may_claim=True)

        assert sizes(queue.wanted) == [(0, 500)]

    def test_slow_jobs_are_not_claimed_ahead(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        a_pump(queue, a_lane(engine, mean=2.0)).step(may_claim=True)

        assert queue.wanted == []

    def test_two_batches_wait_at_most(self):
        queue, engine = Queue(), Engine(slots=4, running=4)
        pump = a_pump(queue, a_lane(engine, mean=1e-6))

        for _ in range(3):
            pump.step(may_claim=True)

        assert sizes(queue.wanted) == [(0, 500), (0, 500)]

    def test_two_pumps_do_not_claim_the_same_slots(self):
        engine = Engine(slots=4)
        lane = a_lane(engine)

        assert lane.reserve(0.1, batch=500, now=0) == (4, 0, 0)
        assert lane.reserve(0.1, batch=500, now=0) == (0, 0, 0)
        lane.release(4)
        assert lane.reserve(0.1, batch=3, now=0) == (3, 0, 0)

    def test_a_claim_that_starts_during_the_count_is_not_missed(self):
        class Moving(Engine):
            """Its only claim starts just after the number of running attempts was read."""

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

        assert a_lane(Moving(slots=1)).reserve(0.1, batch=500, now=0) == (0, 0, 0)

    def test_nothing_while_too_much_is_unwritten(self):
        queue, writer = Queue(), Writer()
        writer.size = 1000

        a_pump(queue, a_lane(Engine()), writer=writer).step(may_claim=True)

        assert queue.wanted == []

    def test_nothing_when_claiming_is_not_allowed(self):
        queue = Queue()

        a_pump(queue, a_lane(Engine())).step(may_claim=False)

        assert queue.wanted == []

    def test_a_lane_without_jobs_claims_nothing(self):
        queue = Queue()

        a_pump(queue, EngineSlots(Engine(), tuple)).step(may_claim=True)  # type: ignore[arg-type]

        assert queue.wanted == []


class TestEmptyPolls:
    """An engine without work takes no time from one that has work."""

    def claims_sent(self, queue, pump, **options):
        before = len(queue.wanted)
        pump.step(may_claim=True, **options)
        return len(queue.wanted) - before

    def test_after_an_empty_claim_there_is_no_other(self):
        queue = Queue(ready=0)
        pump = a_pump(queue, a_lane(Engine()))

        assert [self.claims_sent(queue, pump) for _ in range(3)] == [1, 0, 0]

    def test_until_a_notification_of_new_work(self):
        queue, wakeup = Queue(ready=0), NoWait()
        pump = a_pump(queue, a_lane(Engine()), wakeup=wakeup)
        self.claims_sent(queue, pump)

        wakeup.notify()
        assert self.claims_sent(queue, pump) == 0
        wakeup.notify_new_work()
        assert self.claims_sent(queue, pump) == 1

    def test_until_a_written_outcome_may_have_unblocked_runs(self):
        queue, writer = Queue(ready=0), Writer()
        pump = a_pump(queue, a_lane(Engine()), writer=writer)
        self.claims_sent(queue, pump)

        writer.may_unblock = True
        assert self.claims_sent(queue, pump) == 1

    def test_until_the_poll_interval_has_passed(self):
        queue, clock = Queue(ready=0), ManualClock()
        pump = a_pump(queue, a_lane(Engine()), clock=clock)
        self.claims_sent(queue, pump)

        clock.advance(timedelta(seconds=0.199))
        assert self.claims_sent(queue, pump) == 0
        clock.advance(timedelta(seconds=0.001))
        assert self.claims_sent(queue, pump) == 1

    def test_until_a_wait_ended_without_a_notification(self):
        queue = Queue(ready=0)
        pump = a_pump(queue, a_lane(Engine()))
        self.claims_sent(queue, pump)

        assert self.claims_sent(queue, pump, is_polling=True) == 1

    def test_a_few_runs_are_not_an_empty_claim(self):
        queue = Queue(ready=1)
        pump = a_pump(queue, a_lane(Engine(slots=4)))

        assert [self.claims_sent(queue, pump) for _ in range(3)] == [1, 1, 0]

    def test_runs_that_another_pump_is_claiming_are_no_empty_claim(self):
        queue = Queue(ready=0)
        lane = a_lane(Engine(slots=4))
        lane.reserve(0.1, batch=2, now=0)  # another pump's
        pump = a_pump(queue, lane)

        assert [self.claims_sent(queue, pump) for _ in range(3)] == [1, 1, 1]

    def slowly(self, *others):
        """A pump that is notified just after an empty claim that took ten milliseconds."""
        clock, wakeup = ManualClock(), NoWait()

        class Slow(Queue):
            def claim(self, *args, **kwargs):
                clock.advance(timedelta(seconds=0.01))
                return super().claim(*args, **kwargs)

        queue = Slow(ready=0)
        pump = a_pump(queue, a_lane(Engine()), *others, clock=clock, wakeup=wakeup)
        assert self.claims_sent(queue, pump) == 1
        assert not pump.is_backing_off
        wakeup.notify_new_work()
        return queue, pump, clock

    def test_it_rests_while_other_engines_have_work(self):
        queue, pump, clock = self.slowly(a_lane(Engine(slots=1, running=1, waiting=1)))

        assert self.claims_sent(queue, pump) == 0
        assert pump.is_backing_off
        clock.advance(timedelta(seconds=0.08))
        assert not pump.is_backing_off
        assert self.claims_sent(queue, pump) == 1

    def test_it_polls_at_once_while_other_engines_have_none(self):
        queue, pump, _ = self.slowly(a_lane(Engine(slots=1, running=1)))

        assert self.claims_sent(queue, pump) == 1

    @pytest.mark.parametrize(("job", "claims"), [("job", 1), ("other", 0)])
    def test_it_polls_at_once_after_outcomes_of_its_own_jobs(self, job, claims):
        queue, writer = Queue(ready=0), Writer()
        writer.jobs, writer.may_unblock = frozenset({job}), True
        clock = ManualClock()
        pump = a_pump(queue, a_lane(Engine()), writer=writer, clock=clock)
        pump._slots[0].on_empty(0, sent_at=-0.01, answered_at=0, poll=0.2)

        assert self.claims_sent(queue, pump) == claims


class TestBriefClaims:
    """The first run after an empty claim starts at once; a complete claim follows at once."""

    def test_a_claim_after_an_empty_one_is_brief_and_another_follows(self):
        queue, clock, wakeup = Queue(ready=0), ManualClock(), NoWait()
        pump = a_pump(queue, a_lane(Engine(slots=4)), clock=clock, wakeup=wakeup)
        assert not pump.step(may_claim=True)

        queue.ready = 1
        steps = []
        for _ in range(2):
            clock.advance(seconds=1)
            steps.append(pump.step(may_claim=True))

        assert [wanted.may_stop_early for wanted in queue.wanted] == [False, True, False]
        assert steps == [True, False]

    def test_a_claim_after_another_is_complete(self):
        queue = Queue(ready=3)
        pump = a_pump(queue, a_lane(Engine(slots=2)))

        pump.step(may_claim=True)

        assert [wanted.may_stop_early for wanted in queue.wanted] == [False]


class TestNextStep:
    def test_at_once_when_there_may_be_more(self):
        assert a_pump(Queue(ready=10), a_lane(Engine(slots=4))).step(may_claim=True)

    def test_after_a_notification_when_it_got_fewer_than_it_could_run(self):
        assert not a_pump(Queue(ready=3), a_lane(Engine(slots=4))).step(may_claim=True)


class TestSimilarJobs:
    def test_those_that_take_no_longer_than_most(self):
        durations = DurationEstimate()
        for _ in range(50):
            durations.add("quick", 0.001)
            durations.add("quite quick", 0.002)
        durations.add("slow", 2.0)
        for _ in range(200):
            durations.add("quick", 0.001)

        assert durations.similar_jobs(1.0) == {"quick", "quite quick"}

    def test_a_job_without_attempts_is_not_among_them(self):
        assert DurationEstimate().similar_jobs(1.0) == frozenset()

    def test_the_slow_ones_when_most_are(self):
        durations = DurationEstimate()
        for _ in range(100):
            durations.add("slow", 2.0)

        assert durations.similar_jobs(1.0) == {"slow"}

    def test_they_are_computed_at_most_every_20_ms(self):
        durations = DurationEstimate()
        durations.add("first", 0.001)
        assert durations.similar_jobs(1.0) == {"first"}

        for _ in range(100):
            durations.add("first", 0.1)
        durations.add("first", 0.0001)
        durations.seconds = 0.001
        assert durations.similar_jobs(1.01) == {"first"}
        assert durations.similar_jobs(1.02) == frozenset()

    def test_the_first_attempt_of_a_job_counts_at_once(self):
        durations = DurationEstimate()
        assert durations.similar_jobs(1.0) == frozenset()

        durations.add("first", 0.001)

        assert durations.similar_jobs(1.01) == {"first"}

    def test_the_store_gets_them(self):
        queue = Queue()

        a_pump(queue, a_lane(Engine(slots=4, running=4), mean=0.01)).step(may_claim=True)

        assert [each.may_wait for each in queue.wanted] == [{"job"}]


class TestRunsWithLimits:
    def test_they_may_wait_for_a_moment(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        # Twenty attempts fit into two milliseconds.
        a_pump(queue, a_lane(engine, mean=0.0001)).step(may_claim=True)

        assert [(each.hold, each.ahead) for each in queue.wanted] == [(20, 480)]

    def test_they_do_not_wait_behind_slow_attempts(self):
        queue, engine = Queue(), Engine(slots=4, running=4)

        a_pump(queue, a_lane(engine, mean=0.01)).step(may_claim=True)

        assert [(each.hold, each.ahead) for each in queue.wanted] == [(0, 40)]

    def test_while_there_are_only_those_nothing_is_claimed_in_advance(self):
        clock, engine = ManualClock(), Engine(slots=4)

        class Limited(Queue):
            def claim(self, wanted, **options):
                clock.advance(timedelta(seconds=0.01))
                super().claim(wanted, **options)
                return [a_claim(run_id=RunId(f"r{n}"), job="job") for n in range(wanted.limit)]

        queue = Limited()
        pump = a_pump(queue, a_lane(engine, mean=0.01), clock=clock)
        for _ in range(2):
            pump.step(may_claim=True)
            engine.waiting = 0
        clock.advance(timedelta(seconds=0.08))
        pump.step(may_claim=True)

        assert sizes(queue.wanted) == [(4, 36), (4, 0), (4, 36)]


class TestLostAnswers:
    def test_claims_are_found_again_and_run(self):
        queue, engine, held = Queue(), Engine(slots=2), HeldRuns()
        pump = a_pump(queue, a_lane(engine), held=held)
        queue.faults = [OutcomeUnknown("db://", "gone"), StoreUnavailable("db://", "gone")]

        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                pump.step(may_claim=True)
            assert len(held) == 0
        pump.step(may_claim=True)

        assert [claim.run_id for claim in engine.submitted] == ["run-0", "run-1"]
        assert len(held) == 2

    def test_claims_for_which_there_was_no_memory_are_found_again(self):
        class NoMemory(HeldRuns):
            faults = 1

            def add(self, claims, **options):
                if self.faults:
                    self.faults -= 1
                    raise MemoryError
                return super().add(claims, **options)

        class Kept(Queue):
            def claim(self, wanted, *, tag, **options):
                self.found[tag] = super().claim(wanted, tag=tag, **options)
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

        with pytest.raises(OutcomeUnknown):
            a_pump(queue, lane).step(may_claim=True)

        assert lane.reserve(0.1, batch=500, now=0) == (2, 0, 0)

    def test_they_are_given_back_when_the_worker_stops(self):
        queue, engine = Queue(), Engine(slots=2)
        given: list[Any] = []
        pump = a_pump(
            queue, a_lane(engine), give_back=lambda claim, outcome: given.append(claim.run_id)
        )
        queue.faults = [OutcomeUnknown("db://", "gone")]
        with pytest.raises(OutcomeUnknown):
            pump.step(may_claim=True)

        pump.step(may_claim=False)

        assert given == ["run-0", "run-1"]
        assert engine.submitted == []

    def test_a_claim_that_is_held_already_is_not_submitted_again(self):
        queue, engine, held = Queue(ready=2), Engine(slots=2), HeldRuns()
        pump = a_pump(queue, a_lane(engine), held=held)
        queue.faults = [OutcomeUnknown("db://", "gone")]
        with pytest.raises(OutcomeUnknown):
            pump.step(may_claim=True)
        [claims] = queue.found.values()
        held.add(claims[:1], extended_at=0.0)

        pump.step(may_claim=True)

        assert engine.submitted == claims[1:]

    def test_an_answer_is_looked_for_by_one_caller_at_a_time(self):
        queue, engine, held = Queue(ready=2), Engine(slots=2), HeldRuns()
        pump = a_pump(queue, a_lane(engine), held=held)
        queue.faults = [OutcomeUnknown("db://", "gone")]
        with pytest.raises(OutcomeUnknown):
            pump.step(may_claim=True)
        find_claims, tags = queue.find_claims, []

        def find_again(*, worker, tag):
            tags.append(tag)
            if len(tags) == 1:
                pump.step(may_claim=True)
            return find_claims(worker=worker, tag=tag)

        queue.find_claims = find_again  # type: ignore[method-assign]
        pump.step(may_claim=True)

        assert len(tags) == 1
        assert [claim.run_id for claim in engine.submitted] == ["run-0", "run-1"]

    def test_claims_that_no_engine_accepts_are_given_back(self):
        class Full(Engine):
            def submit(self, claims):
                raise RuntimeError

        given: list[Any] = []
        pump = a_pump(
            Queue(ready=2),
            a_lane(Full(slots=2)),
            give_back=lambda claim, outcome: given.append(claim.run_id),
        )

        with pytest.raises(RuntimeError):
            pump.step(may_claim=True)

        assert given == ["run-0", "run-1"]


class BusyWriter(Writer):
    """Writes runs with limits, and calls a function while it does."""

    def __init__(self, meanwhile=lambda: None, is_limited=True):
        super().__init__()
        self.meanwhile, self.is_limited = meanwhile, is_limited

    def write(self):
        self.meanwhile()
        return WriteResult(1, is_limited=self.is_limited, jobs=frozenset({"job"}))


class TestSerializer:
    """Pumps that would wait for each other in the database work one at a time."""

    @pytest.mark.parametrize(
        ("is_limited", "seconds", "claims"),
        [(True, 0.0, 0), (True, 2 * TURN_SECONDS, 1), (False, 0.0, 1)],
    )
    def test_one_leaves_the_work_to_another(self, is_limited, seconds, claims):
        clock, serializer, queue = ManualClock(), PumpSerializer(), Queue()
        serializer.is_serial = is_limited
        second = a_pump(queue, a_lane(Engine()), clock=clock, serializer=serializer)
        found = []

        def meanwhile():
            clock.advance(seconds=seconds)
            second.step(may_claim=True)
            found.append(len(queue.wanted))

        writer = BusyWriter(meanwhile, is_limited=is_limited)
        first = a_pump(Queue(), a_lane(Engine()), clock=clock, serializer=serializer, writer=writer)

        first.step(may_claim=True)

        assert found == [claims]

    @pytest.mark.parametrize("fault", [None, StoreUnavailable("db", "away"), RuntimeError()])
    def test_any_pump_may_have_the_next_turn(self, fault):
        def fail():
            if fault is not None:
                raise fault

        serializer, queue = PumpSerializer(), Queue()
        serializer.is_serial = True
        first = a_pump(Queue(), serializer=serializer, writer=BusyWriter(fail))
        second = a_pump(queue, a_lane(Engine()), serializer=serializer)

        with suppress(RuntimeError, StoreUnavailable):
            first.step(may_claim=True)
        second.step(may_claim=True)

        assert not second.is_deferred
        assert len(queue.wanted) == 1

    def test_a_pump_with_a_lost_answer_does_not_wait(self):
        serializer, queue = PumpSerializer(), Queue()
        serializer.is_serial = True
        second = a_pump(queue, a_lane(Engine()), serializer=serializer)
        queue.faults = [OutcomeUnknown("db", "cut")]
        with pytest.raises(OutcomeUnknown):
            second.step(may_claim=True)
        first = a_pump(
            Queue(), serializer=serializer, writer=BusyWriter(lambda: second.step(may_claim=True))
        )

        first.step(may_claim=True)

        assert queue.found == {}, "its claims are found"

    @pytest.mark.parametrize("steps", [0, 1])
    def test_the_last_written_batch_decides(self, steps):
        serializer = PumpSerializer()
        serializer.is_serial = True
        writer = BusyWriter(is_limited=False) if steps else Writer()

        a_pump(Queue(), serializer=serializer, writer=writer).step(may_claim=True)

        assert serializer.is_serial is (steps == 0)
