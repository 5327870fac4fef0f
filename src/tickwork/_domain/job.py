"""The definition of a job and of a schedule, as plain data.

The handler, filters and hooks of a job are code. The registry keeps them beside the spec, so that
a spec can be compared, printed, pickled and stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from tickwork._domain.identity import RunId, ScheduleId
from tickwork._domain.limits.debounce import Debounce, ReplaceRule, debounce_key, replace_key
from tickwork._domain.limits.limits import Limit, OnConflict, Unique, unique_key
from tickwork._domain.limits.rates import is_rate
from tickwork._domain.names import check_name
from tickwork._domain.ranges import MICROSECOND, Range
from tickwork._domain.runs.lease import LEASE_DEFAULT, LEASE_RANGE, Lease
from tickwork._domain.runs.retention import HISTORY_RANGE, RETENTION_DEFAULT, Retention
from tickwork._domain.runs.retry import ATTEMPTS_RANGE, NO_RETRY, RetryPolicy
from tickwork._domain.runs.run import (
    CRASHES_MAX,
    NO_ARGS,
    PRIORITY_DEFAULT,
    PRIORITY_LIMIT,
    QUEUE_DEFAULT,
    NewRun,
)
from tickwork._kernel.durations import later
from tickwork._payload.codec import decode
from tickwork.errors import InvalidOption, NaiveDatetime

GRACE_DEFAULT: Final = timedelta(seconds=60)
GRACE_MAX: Final = timedelta(days=366)
EXPECT_MIN: Final = timedelta(seconds=1)
JITTER_MAX: Final = timedelta(days=1)
TAGS_MAX: Final = 20

_ZERO: Final = timedelta(0)

PRIORITY_RANGE: Final = Range(
    -PRIORITY_LIMIT, PRIORITY_LIMIT, fix="Runs with a lower number start first."
)
RANGES: Final[Mapping[str, Range]] = {
    "attempts": ATTEMPTS_RANGE,
    "crashes": Range(1),
    "expect_within": Range(EXPECT_MIN, GRACE_MAX),
    "expires": Range(MICROSECOND),
    "grace": Range(_ZERO, GRACE_MAX),
    "history": HISTORY_RANGE,
    "jitter": Range(_ZERO, JITTER_MAX),
    "lease": LEASE_RANGE,
    "priority": PRIORITY_RANGE,
    "results": HISTORY_RANGE,
    "timeout": Range(MICROSECOND),
}
"""The options that are a number or a length of time. They are checked where they are set, and
again with the specs."""


class Overlap(StrEnum):
    """What happens when a schedule is due again before its last run has finished."""

    SKIP = "skip"  # the new run is skipped
    QUEUE_ONE = "queue_one"  # one run waits, further runs are skipped
    QUEUE_ALL = "queue_all"  # all runs wait, one runs at a time
    CANCEL_RUNNING = (
        "cancel_running"  # unfinished runs are canceled, the new one waits for their end
    )
    ALLOW = "allow"  # both run


class Misfire(StrEnum):
    """What happens to firings that were missed because no worker was running."""

    ONE = "one"  # one run for all missed firings
    SKIP = "skip"
    ALL = "all"  # a run for each, up to the newest thousand


class ScheduleOrigin(StrEnum):
    """Who created a schedule. Code only retires schedules that code has created."""

    CODE = "code"
    API = "api"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicies:
    """The options of a job that are plain data.

    They are declared here once: :class:`JobSpec` and the options of a definition inherit them.
    """

    queue: str = QUEUE_DEFAULT
    priority: int = PRIORITY_DEFAULT
    limits: tuple[Limit, ...] = ()
    lease: Lease = LEASE_DEFAULT
    timeout: timedelta | None = None
    retry: RetryPolicy = NO_RETRY
    crashes_max: int = CRASHES_MAX
    unique: Unique | None = None
    debounce: Debounce | None = None
    expires: timedelta | None = None
    overlap: Overlap = Overlap.SKIP
    misfire: Misfire = Misfire.ONE
    grace: timedelta = GRACE_DEFAULT
    jitter: timedelta = _ZERO
    retention: Retention = RETENTION_DEFAULT
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    expect_within: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec(JobPolicies):
    """A job as a checked value. ``args`` are the default arguments, as JSON text.

    >>> JobSpec(name="send_email", queue="emails", priority=10).attempts_max
    1

    Raises:
        InvalidOption: An option has an invalid value.
    """

    name: str
    args: str = NO_ARGS

    def __post_init__(self) -> None:
        # "=" ends the name in the key of a limit.
        for name in (self.name, *self.aliases):
            check_name("name" if name == self.name else "aliases", name, forbidden="=")
        check_name("queue", self.queue, forbidden="=")
        check_priority(self.priority)
        check_tags(self.tags)
        _check_ranges(self)
        RANGES["crashes"].check("crashes", self.crashes_max)
        if self.debounce is not None and self.unique is not None:
            raise InvalidOption(
                "debounce",
                self.debounce.quiet,
                "must not be combined with unique",
                fix="A debounced job has one waiting run for each key: leave unique out.",
            )
        names = [limit.name(job=self.name, queue=self.queue) for limit in self.limits]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            option = "rate" if is_rate(twice) else "concurrency"
            raise InvalidOption(option, names, "must name each limit once")

    @property
    def attempts_max(self) -> int:
        """The number of attempts of a run, the first one included."""
        return self.retry.attempts_max

    def slots_by_limit(self, *, queue: str | None = None) -> dict[str, int]:
        """The slots of each limit, by its name."""
        return {
            limit.name(job=self.name, queue=queue or self.queue): limit.slots
            for limit in self.limits
        }

    @property
    def has_keys(self) -> bool:
        """Whether limit keys, a unique key or a debounce key are computed from the arguments."""
        return bool(self.limits or self.unique or self.debounce)

    def new_run(
        self,
        run_id: RunId,
        *,
        now: datetime,
        due_at: datetime,
        args: str,
        tenant: str = "",
        queue: str | None = None,
        priority: int | None = None,
        expires: timedelta | None = None,
        tags: tuple[str, ...] = (),
        overlap_key: str | None = None,
        one_at_a_time: str | None = None,
        schedule: str | None = None,
        nominal_at: datetime | None = None,
        target: str | None = None,
    ) -> NewRun:
        """Build a run of this job. Missing options come from the job; ``args`` must be complete."""
        queue = queue or self.queue
        expires = expires or self.expires
        limit_keys: tuple[str, ...] = ()
        unique = replaces = None
        if self.limits or self.unique or self.debounce:
            values = decode(args)
            limit_keys = tuple(
                limit.key(job=self.name, queue=queue, tenant=tenant, args=values)
                for limit in self.limits
            )
            if self.unique and self.unique.on_conflict is OnConflict.KEEP:
                unique = unique_key(self.unique, job=self.name, tenant=tenant, args=values, now=now)
            elif schedule is None and (self.unique or self.debounce):
                # A firing replaces no run: that is what overlap is for.
                overlap_key, replaces = self._find_replaced(tenant, values)
                due_at = later(now, self.debounce.quiet) if self.debounce else due_at
        if one_at_a_time:
            limit_keys = (*limit_keys, one_at_a_time)
        if tags:
            tags = tuple(tag for tag in tags if tag not in self.tags)
        # What only a bug in tickwork could violate.
        assert now.tzinfo is not None, now
        assert due_at.tzinfo is not None, due_at
        assert (schedule is None) == (nominal_at is None), (schedule, nominal_at)
        # Positional arguments take half the time of keywords, and this runs for every run.
        run = NewRun(
            run_id,
            self.name,
            now,
            due_at,
            tenant,
            queue,
            self.priority if priority is None else priority,
            None if expires is None else later(due_at, expires),
            args,
            self.tags + tags,
            self.retry.attempts_max,
            overlap_key,
            limit_keys,
            unique,
            schedule,
            nominal_at,
            target,
        )
        return run if replaces is None else run._replace(replaces=replaces)

    def _find_replaced(
        self, tenant: str, args: Mapping[str, Any]
    ) -> tuple[str | None, ReplaceRule | None]:
        """The key of the waiting run that a dispatch replaces, and the rule for it."""
        if self.debounce:
            key = debounce_key(self.debounce, job=self.name, tenant=tenant, args=args)
            return key, ReplaceRule(self.debounce.max)
        if self.unique:
            key = replace_key(self.unique, job=self.name, tenant=tenant, args=args)
            return key, ReplaceRule()
        return None, None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """The definition of a schedule, checked.

    ``rule`` is the text of the rule (``to_text``), ``zone`` its time zone. If ``queue``,
    ``priority`` or ``expires`` is None, the job's value at the time of firing applies.
    """

    name: str
    job: str
    rule: str
    zone: str = "UTC"
    tenant: str = ""
    args: str = NO_ARGS
    queue: str | None = None
    priority: int | None = None
    expires: timedelta | None = None
    overlap: Overlap = Overlap.SKIP
    misfire: Misfire = Misfire.ONE
    grace: timedelta = GRACE_DEFAULT
    jitter: timedelta = _ZERO
    until: datetime | None = None
    target: str | None = None
    tags: tuple[str, ...] = ()
    origin: ScheduleOrigin = ScheduleOrigin.CODE
    expect_within: timedelta | None = None  # of a firing, until its run has completed

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_name("job", self.job, forbidden="=")
        if self.tenant:
            check_name("tenant", self.tenant)
        if self.queue is not None:
            check_name("queue", self.queue, forbidden="=")
        if self.priority is not None:
            check_priority(self.priority)
        check_tags(self.tags)
        _check_ranges(self)
        if self.until is not None and self.until.utcoffset() is None:
            raise NaiveDatetime(self.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """A stored schedule: its definition and its position.

    ``next_due_at`` is the next firing, None if there is none. ``last_fired_at`` is the last
    decided firing, whether it created a run or was skipped. Both are times of the rule, without
    jitter. A row that cannot be read has a ``fault``: it is listed, and does not fire.
    """

    id: ScheduleId
    spec: ScheduleSpec
    created_at: datetime
    next_due_at: datetime | None
    last_fired_at: datetime | None = None
    revision: int = 1
    paused_at: datetime | None = None
    paused_until: datetime | None = None  # None: until a person resumes it
    paused_note: str = ""
    seen_at: datetime | None = None
    fault: str = ""

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None

    def is_paused_at(self, now: datetime) -> bool:
        """Whether it is paused, and the pause has not ended by now."""
        return self.is_paused and (self.paused_until is None or self.paused_until > now)

    def is_retired(self, *, seen_after: datetime) -> bool:
        """Whether code created it, and no program has reported it after ``seen_after``."""
        if self.spec.origin is not ScheduleOrigin.CODE:
            return False
        return self.seen_at is None or self.seen_at < seen_after


def check_priority(priority: object) -> int:
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise InvalidOption("priority", priority, "must be an integer")
    PRIORITY_RANGE.check("priority", priority)
    return priority


def check_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    for tag in tags:
        check_name("tags", tag)
    if len(set(tags)) < len(tags) or len(tags) > TAGS_MAX:
        raise InvalidOption("tags", tags, f"must be at most {TAGS_MAX} different strings")
    return tags


def _check_ranges(spec: JobSpec | ScheduleSpec) -> None:
    for name in ("grace", "jitter", "expires", "expect_within", "timeout"):
        length = getattr(spec, name, None)
        if length is not None:
            RANGES[name].check(name, length)
