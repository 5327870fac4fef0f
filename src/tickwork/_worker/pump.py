"""Finished transitions out, claims in: one thread, one connection."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from typing import Final, NamedTuple

from tickwork._domain.identity import WorkerId
from tickwork._domain.lease import LEASE_DEFAULT, LEASE_MIN, Lease
from tickwork._domain.outcome import Interrupted
from tickwork._domain.run import Claim
from tickwork._kernel.clock import Clock
from tickwork._worker.held import HeldRuns
from tickwork._worker.known import KnownJobs
from tickwork._worker.making import Means
from tickwork._worker.wake import Backoff, Wake
from tickwork._worker.writer import Writer, Wrote
from tickwork.engines.contract import Engine
from tickwork.errors import OutcomeUnknown, StoreBusy, StoreError, StoreUnavailable
from tickwork.stores.contract import Store, Wanted

AWAY_FIRST: Final = 0.05
AWAY_LONGEST: Final = 2.0
"""Seconds between two looks for a database that is away."""

IN_HAND: Final = 2
"""How many batches may wait to start: one to work on while the other is fetched."""

HOLD_SECONDS: Final = 0.002
HOLD_MAX: Final = 48
"""For how long runs with limits may wait in our hands, and how many: their places are taken."""

RESTING: Final = 8
"""For how many times the time that it took nobody asks again for what was not there."""

TURN_SECONDS: Final = 0.05
"""For how long a pump leaves the work to another before it goes on all the same."""

LATE_FIRST: Final = Lease(LEASE_MIN).stop_after.total_seconds()
TOO_LATE: Final = Interrupted("Its claim took longer than its lease.")
NOT_BEGUN: Final = Interrupted("The worker was stopped before it began.")

_log: Final = logging.getLogger("tickwork.worker")


class _Dry(NamedTuple):
    """When there was nothing: after which news, and when it is time to ask again."""

    news: int
    not_before: float
    until: float


class Room(NamedTuple):
    """How many can start at once, how many in a moment, and how many soon."""

    free: int
    hold: int
    ahead: int


class Lane:
    """An engine, the jobs that it takes, and how many claims are on their way to it.

    Several pumps claim for the same engine: what one of them has asked for is not free for
    another.
    """

    def __init__(self, engine: Engine, jobs: Callable[[], tuple[str, ...]], means: Means) -> None:
        self.engine = engine
        self.jobs = jobs
        self.means = means
        self._lock = Lock()
        self._coming = 0
        self._dry: _Dry | None = None
        self._ahead_at = 0.0  # when it is time to ask for runs that may wait

    def take(self, seconds: float, *, batch: int, now: float) -> Room:
        """Reserve what can start at once, and what can start within this time.

        All together they are at most a batch, and what waits is at most two of them. Nothing is
        taken to wait before it is known how long attempts take.
        """
        engine, mean = self.engine, self.means.all.seconds
        soon = at_hand = 0
        if mean > 0:
            at_hand = min(int(HOLD_SECONDS / mean), HOLD_MAX)
            if now >= self._ahead_at:
                soon = min(int(engine.slots * seconds / mean), IN_HAND * batch)
        with self._lock:
            # A claim goes from coming to waiting to running while we look. Read in this order, it
            # may be counted twice; in any other it may not be counted at all.
            coming = self._coming
            waiting = coming + engine.waiting
            free = max(min(engine.slots - waiting - engine.running, batch), 0)
            hold = max(min(at_hand - waiting - free, batch - free), 0)
            ahead = max(min(soon - waiting - free - hold, batch - free - hold), 0)
            self._coming += free + hold + ahead
            return Room(free, hold, ahead)

    def give(self, reserved: int) -> None:
        """They have come, or will not."""
        with self._lock:
            self._coming -= reserved

    def answered(self, count: int, room: Room, *, took: float, now: float) -> None:
        """Learn from an answer whether there are runs that may wait: those with limits may not."""
        if room.ahead and count <= room.free + room.hold:
            self._ahead_at = now + RESTING * took

    def is_dry(self, news: int, *, now: float, is_crowded: bool) -> bool:
        """Whether it is of no use to ask: there was nothing, and nobody has said a word since.

        A word may be about anybody's runs. So that an engine without work takes no time from
        one that has (``is_crowded``), it rests a while before it asks again.
        """
        dry = self._dry
        if dry is None or now >= dry.until:
            return False
        return news == dry.news or (is_crowded and now < dry.not_before)

    def ran_dry(self, news: int, *, asked: float, answered: float, poll: float) -> None:
        """There is nothing. Though nobody may say so, there can be after ``poll`` seconds."""
        if self._coming:
            return  # another pump is claiming, and may have had in its hands what there was
        rest = min(RESTING * (answered - asked), poll)
        self._dry = _Dry(news, answered + rest, answered + poll)

    def is_resting(self, news: int, *, now: float) -> bool:
        """Whether there was a word that it may not look after yet."""
        dry = self._dry
        return dry is not None and news != dry.news and now < dry.not_before

    def look_again(self, *, at_once: bool) -> None:
        """There may be more; unless it has to be ``at_once``, ask after the rest."""
        if self._dry is not None:
            self._dry = None if at_once else self._dry._replace(until=self._dry.not_before)


class Turns:
    """Lets pumps work at once; and only one of them while most runs have limits.

    Those would wait for each other in the database, for the gate of the same key, and one
    that is alone gets twice as much done.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._since = 0.0
        self.is_one_by_one = False

    @contextmanager
    def turn(self, *, now: float, is_urgent: bool) -> Iterator[bool]:
        """One turn of one pump; whether it may: not while another has been at it for a moment.

        That one finds what this one was called for: it looks at the signals again when it is
        done. When it takes long, somebody has to go on; and whoever has something to do that no
        other can do for it (``is_urgent``) does not wait.
        """
        if is_urgent or not self.is_one_by_one:
            yield True
            return
        is_ours = self._lock.acquire(blocking=False)
        if is_ours:
            self._since = now
        try:
            yield is_ours or now - self._since > TURN_SECONDS
        finally:
            if is_ours:
                self._lock.release()


class Pump:
    """Writes what was done, and claims as many runs as can start soon."""

    def __init__(
        self,
        *,
        name: str,
        store: Store,
        clock: Clock,
        worker: WorkerId,
        queues: tuple[str, ...] | None,
        lanes: Sequence[Lane],
        held: HeldRuns,
        writer: Writer,
        turns: Turns,
        known: KnownJobs,
        wake: Wake,
        batch: int,
        ahead: timedelta,
        poll: timedelta,
        unwritten_max: int,
        give_back: Callable[[Claim, Interrupted], None],
        came_back: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._store = store
        self._clock = clock
        self._worker = worker
        self._queues = queues
        self._lanes = lanes
        self._held = held
        self._writer = writer
        self._turns = turns
        self._known = known
        self._wake = wake
        self._batch = batch
        self._ahead = ahead.total_seconds()
        self._poll = poll.total_seconds()
        self._unwritten_max = unwritten_max
        self._give_back = give_back
        self._came_back = came_back
        self._claims = 0
        self._wrote: frozenset[str] = frozenset()  # the jobs of what was written last
        self._is_short = True  # whether every lane got less than it asked for
        self._is_away = False
        self._backoff = Backoff(AWAY_FIRST, AWAY_LONGEST)
        self._lost_tags: list[str] = []  # claims whose answer never came
        self.is_put_off = False  # because it is another pump's turn

    def step(self, *, may_claim: bool, is_polling: bool = False) -> bool:
        """Write one batch and claim one; whether there may be more to do at once.

        ``is_polling`` says to look for work though nobody has told of any.
        """
        try:
            now, is_urgent = self._clock.monotonic(), bool(self._lost_tags)
            with self._turns.turn(now=now, is_urgent=is_urgent) as may_go:
                self.is_put_off = not may_go
                if not may_go:
                    return False
                if is_polling:
                    self._look_again(at_once=True)
                wrote, claimed = self._turn(may_claim=may_claim)
        except (StoreUnavailable, StoreBusy) as fault:
            # Nothing is lost: outcomes wait in memory, and leases are the heartbeat's.
            self._is_away = True
            _log.warning("%s: %s", self._name, fault.what)
            self._wake.wait(self._wake.seen(), self._backoff.seconds())
            return True
        self._backoff.reset()
        if self._is_away:
            self._is_away = False
            self._came_back()
        # Who got less than it asked for is called when there is something to write, or more to
        # take. Meanwhile it leaves the interpreter to those who start what it got.
        return bool(wrote.steps or (claimed and not self._is_short))

    def _turn(self, *, may_claim: bool) -> tuple[Wrote, int]:
        wrote = self._writer.write()
        self._wrote = wrote.jobs
        self._is_short = True
        if wrote.steps:
            self._turns.is_one_by_one = wrote.is_limited
        if wrote.may_free:
            self._look_again(at_once=False)  # somebody may have waited for just that
        claimed = self._recovered(may_claim=may_claim)
        # Whatever cannot be written must not pile up: each of them was a claim once.
        if may_claim and len(self._writer) < self._unwritten_max:
            claimed += sum(map(self._claim_for, self._lanes))
        return wrote, claimed

    @property
    def is_holding_back(self) -> bool:
        """Whether it has been told of work that it will look for in a moment."""
        news, now = self._wake.news, self._clock.monotonic()
        return any(lane.is_resting(news, now=now) for lane in self._lanes)

    def _look_again(self, *, at_once: bool) -> None:
        for lane in self._lanes:
            lane.look_again(at_once=at_once or not self._is_crowded(lane))

    # ------------------------------------------------------------ claiming

    def _claim_for(self, lane: Lane) -> int:
        jobs = lane.jobs()
        news, asked = self._wake.news, self._clock.monotonic()
        if not jobs or lane.is_dry(news, now=asked, is_crowded=self._is_crowded(lane)):
            return 0
        room = lane.take(self._ahead, batch=self._batch, now=asked)
        if not any(room):
            return 0
        wanted = Wanted(
            room.free,
            self._queues,
            jobs,
            room.ahead,
            is_starting=True,
            hold=room.hold,
            may_wait=lane.means.alike(asked),
        )
        self._claims += 1
        tag = f"{self._name}-{self._claims}"
        claims: Sequence[Claim] = ()
        try:
            claims = self._store.claim(
                wanted,
                worker=self._worker,
                tag=tag,
                now=self._clock.now(),
                lease=LEASE_DEFAULT.length,
                lease_by_job=self._lease_by_job,
            )
            self._take(lane, claims, asked)
        except BaseException as fault:
            # They may be ours without being in our hands: the answer was lost on the way to us, or
            # we had no memory for it.
            is_ours = isinstance(fault, OutcomeUnknown) or not isinstance(fault, StoreError)
            if is_ours and not (claims and self._held.of(claims[0])):
                self._lost_tags.append(tag)
            raise
        finally:
            lane.give(sum(room))
        now = self._clock.monotonic()
        lane.answered(len(claims), room, took=now - asked, now=now)
        self._is_short = self._is_short and len(claims) < sum(room)
        # A few may be all there is, or all that others do not hold at this moment.
        if not claims:
            lane.ran_dry(news, asked=asked, answered=now, poll=self._poll)
        return len(claims)

    def _is_crowded(self, lane: Lane) -> bool:
        """Whether it is others who have work at the moment."""
        if self._wrote and self._wrote.isdisjoint(lane.jobs()):
            return True
        return any(other.engine.waiting for other in self._lanes if other is not lane)

    def _take(self, lane: Lane, claims: Sequence[Claim], asked: float) -> None:
        if not claims:
            return
        # Held before anything else: from here on somebody beats for them.
        self._held.add(claims, extended_at=asked)
        waited = self._clock.monotonic() - asked
        if waited >= LATE_FIRST:
            late = [claim for claim in claims if self._is_late(claim, waited)]
            for claim in late:
                self._give_back(claim, TOO_LATE)
            claims = [claim for claim in claims if claim not in late]
        lane.engine.submit(claims)

    def _is_late(self, claim: Claim, waited: float) -> bool:
        """Whether its lease is as good as over, because the claim itself had to wait so long."""
        lease = Lease(self._known.lease_of(claim.job))
        return lease.must_stop(extended_at=0.0, monotonic=waited)

    def _recovered(self, *, may_claim: bool) -> int:
        """Find claims whose answer was lost: they are ours, and nobody else's."""
        total = 0
        while self._lost_tags:  # ends: each look takes one away, or raises
            asked = self._clock.monotonic()
            found = self._store.find_claims(worker=self._worker, tag=self._lost_tags[-1])
            self._lost_tags.pop()
            total += len(found)
            for lane in self._lanes:
                jobs = set(lane.jobs()) if may_claim else set[str]()
                self._take(lane, [claim for claim in found if claim.job in jobs], asked)
            for claim in found:
                if self._held.of(claim) is None:
                    # Nobody starts it any more.
                    self._held.add([claim], extended_at=asked)
                    self._give_back(claim, NOT_BEGUN)
        return total

    @property
    def _lease_by_job(self) -> Mapping[str, timedelta]:
        return self._known.lease_by_job()
