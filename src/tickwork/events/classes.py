"""The classes of events. They are loaded when a program uses the first one."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events. A subscriber to it gets every event."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunEvent(Event):
    run_id: str
    job: str
    tenant: str = ""
    queue: str = ""
    schedule: str | None = None  # the one that fired the run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDispatched(_RunEvent):
    """This process dispatched a run.

    A dispatch inside the caller's own transaction publishes no event: tickwork cannot see
    whether the caller commits it.
    """

    queue: str
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReplaced(_RunEvent):
    """A dispatch of this process replaced a run that waited: it has its arguments now.

    As :class:`RunDispatched`, it is not published for a dispatch inside the caller's transaction.
    """

    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSubmitted(_RunEvent):
    """A worker hands the run over to a remote engine, which knows it as ``external_id``."""

    engine: str
    external_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAccepted(_RunEvent):
    """A process of a remote engine has accepted the run.

    The worker that handed it over publishes this, a moment later. The events about the attempt are
    published in the process that makes it.
    """

    external_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(_RunEvent):
    """An attempt starts: the worker is about to call the handler."""

    attempt: int
    due_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSucceeded(_RunEvent):
    """The run is completed."""

    attempt: int
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed(_RunEvent):
    """An attempt failed. ``retry_at`` is None if it was the last one: RunFailed follows.

    ``exception`` is what was raised, in the process that raised it. It is None if a child
    process raised it, or if the handler reported the failure without an exception. Secrets are
    masked in ``error``, and not in ``exception``.
    """

    attempt: int
    error: str
    retry_at: datetime | None = None
    started_at: datetime | None = None
    exception: BaseException | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed(_RunEvent):
    """The run failed for the last time. It is not retried automatically.

    ``exception`` is that of :class:`AttemptFailed`.
    """

    attempt: int
    error: str
    started_at: datetime | None = None
    exception: BaseException | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSkipped(_RunEvent):
    """A filter or a policy skipped the run. The handler is never called."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPostponed(_RunEvent):
    """The run is due again later: a filter deferred it, or it was snoozed or interrupted.

    The attempt does not count.
    """

    reason: str
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSuspended(_RunEvent):
    """The run sleeps or waits, without a worker. It continues at ``due_at``."""

    reason: str
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCanceled(_RunEvent):
    """The run was canceled."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLost(_RunEvent):
    """The outcome of an attempt was not stored: another worker has taken over the run."""

    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventEmitted(Event):
    """This process stored an event for which runs wait: ``app.emit`` or ``run.signal``.

    An emit that was ignored publishes nothing, and neither does one inside the caller's own
    transaction: tickwork cannot see whether the caller commits it.
    """

    event: str
    key: str  # of a signal: the id of its run
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsClaimed(Event):
    """This worker claimed runs: so many in one statement."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFired(Event):
    """A schedule fell due and created a run."""

    schedule: str
    tenant: str
    job: str
    run_id: str
    nominal_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _FiringsEvent(Event):
    schedule: str
    tenant: str
    job: str
    first_at: datetime
    last_at: datetime
    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringsMissed(_FiringsEvent):
    """Firings of a schedule came too late, and its misfire policy made no run of them.

    ``count`` firings, the first at ``first_at`` and the last at ``last_at``.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringsSkipped(_FiringsEvent):
    """Firings of a schedule made no run: because of another run, a pause, or a new rule.

    ``count`` firings, the first at ``first_at`` and the last at ``last_at``.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleNotFired(Event):
    """This process could not fire a due schedule, for example because its rule is invalid."""

    schedule_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationMissed(Event):
    """A firing did not complete within ``expect_within``. Raised once for each incident.

    ``due_at`` is the firing that was missed first. The process that watches raises it: a worker,
    or ``tickwork watch``.
    """

    schedule: str
    tenant: str
    job: str
    due_at: datetime
    expected_by: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationMet(Event):
    """An incident is over: a run of the schedule has completed, or the schedule was paused."""

    schedule: str
    tenant: str
    job: str
    due_at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailing(Event):
    """A job fails as often as ``app.alerts.watch_failures`` says. Raised once for each incident.

    The process that watches raises it: a worker, or ``tickwork watch``.
    """

    job: str
    tenant: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecovered(Event):
    """An incident is over: the job of :class:`JobFailing` completes again."""

    job: str
    tenant: str
    reason: str
