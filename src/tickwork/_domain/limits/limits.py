"""Keys for concurrency limits, rate limits, unique runs and overlap.

A limit is a row with a name and a number of slots; a run holds one slot per key. Keys are
readable (``account_id:send_email=42``) and unambiguous: before the first ``:`` is what the limit
counts by, then the job or queue, and after the first ``=`` the value. A rate limit counts starts
instead of runs. Its key contains the window (``account_id/minute:send_email=42``), and runs hold
no slots of it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeGuard
from zlib import crc32

from tickwork._domain.identity import RunId, ScheduleId
from tickwork._domain.limits.rates import is_rate, window_of, window_text
from tickwork._kernel.durations import later
from tickwork._payload.codec import encode_canonical
from tickwork.errors import InvalidOption

GATES: Final = 1024
"""Fixed lock rows. A transaction locks the gate of a key before it counts its slots."""

SLOTS_MAX: Final = 1_000_000
KEY_MAX: Final = 300
"""Characters in a key. A value that is too long is replaced by its hash."""

_PER_MAX: Final = 60
_ONE_AT_A_TIME: Final = "@schedule:"  # not a valid parameter name
_HELD: Final = "held:"
_WAITING: Final = "waiting:"
_ID_LENGTH: Final = 36
"""The length of an id. The hash of a unique key is shorter."""


# ---------------------------------------------------------------- limits


@dataclass(frozen=True, slots=True)
class Limit:
    """At most ``slots`` runs at a time, per job, per queue, or per value of an argument.

    With a ``window`` it is a rate limit: at most ``slots`` starts in any window of that length.
    Limits count the runs of all tenants together, unless ``per`` contains the tenant:

    >>> Limit(3).key(job="send_email", queue="emails")
    'job:send_email'
    >>> Limit(1, per=("account_id",)).key(job="send_email", queue="emails", args={"account_id": 42})
    'account_id:send_email=42'
    >>> Limit(1, per=("tenant", "queue")).key(job="send_email", queue="emails", tenant="acme")
    'tenant+queue:emails="acme"'
    >>> Limit(100, window=timedelta(minutes=1)).key(job="send_email", queue="emails")
    'job/minute:send_email'
    """

    slots: int
    per: tuple[str, ...] = ("job",)
    window: timedelta | None = None
    is_hidden: bool = False  # its keys have the hash of a value, because an argument is secret

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= SLOTS_MAX:
            if self.window is None:
                option, fix = "concurrency", "To remove the limit of a job, write concurrency(0)."
            else:
                option, fix = "rate", "To start no runs, pause the job: app.pause(job=...)."
            raise InvalidOption(option, self.slots, f"must be between 1 and {SLOTS_MAX:,}", fix=fix)
        per = "per" if self.window is None else "by"
        if not self.per or len(set(self.per)) < len(self.per):
            raise InvalidOption(per, self.per, "must have at least one part, and each part once")
        for part in self.per:
            if not part.isidentifier():
                raise InvalidOption(
                    per, part, "must be 'job', 'queue', 'tenant' or the name of a parameter"
                )
        if len("+".join(self.per)) > _PER_MAX:
            raise InvalidOption(per, self.per, f"must have at most {_PER_MAX} characters")

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of the handler that are part of the key."""
        return tuple(part for part in self.per if part not in {"job", "queue", "tenant"})

    def hide(self, secrets: Collection[str]) -> "Limit":
        """Return the limit with hashes in its keys if it uses one of these secret arguments."""
        return self if set(self.parameters).isdisjoint(secrets) else replace(self, is_hidden=True)

    def name(self, *, job: str, queue: str) -> str:
        within = "" if self.window is None else f"/{window_text(self.window)}"
        return f"{'+'.join(self.per)}{within}:{queue if 'queue' in self.per else job}"

    def key(
        self, *, job: str, queue: str, tenant: str = "", args: Mapping[str, Any] | None = None
    ) -> str:
        name = self.name(job=job, queue=queue)
        values = [
            tenant if part == "tenant" else (args or {}).get(part)
            for part in self.per
            if part not in {"job", "queue"}
        ]
        if not values:
            return name
        value = encode_canonical(values if len(values) > 1 else values[0])
        key = f"{name}={value}"
        is_readable = len(key) <= KEY_MAX and not self.is_hidden
        return key if is_readable else f"{name}=#{_hash(value)}"


def limit_of_name(name: str, *, job: str, queue: str) -> Limit | None:
    """The limit of a stored name; None if it does not apply to runs of this job in this queue.

    The name does not tell how many slots the limit has.

    >>> limit_of_name("account_id/minute:send", job="send", queue="emails").per
    ('account_id',)
    """
    counted, _, subject = name.partition(":")
    parts, _, window = counted.partition("/")
    per = tuple(parts.split("+"))
    if subject != (queue if "queue" in per else job):
        return None
    try:
        return Limit(1, per, window_of(name) if window else None)
    except InvalidOption:
        return None  # another program wrote a name that is none


def limit_of(key: str) -> str:
    return key.partition("=")[0]


@lru_cache(maxsize=4096)
def gate_of(key: str) -> int:
    """The lock row for this key: 0 to 1023."""
    return crc32(key.encode()) % GATES


def check_key(key: str) -> None:
    """Raise an error if no limit can have this key."""
    gate_of(key)  # it can be encoded
    if is_rate(key):
        window_of(key)


def is_key(key: object) -> TypeGuard[str]:
    """Whether a limit can have this key."""
    if not isinstance(key, str):
        return False
    try:
        check_key(key)
    except ValueError:
        return False
    return True


# ---------------------------------------------------------------- granting


class Candidate(NamedTuple):
    """A run that could be claimed now, and the keys it needs (see :func:`keys_needed`)."""

    run_id: RunId
    keys: tuple[str, ...] = ()


def keys_needed(
    keys: Iterable[str],
    *,
    held: Collection[str] = (),
    expires_at: datetime | None = None,
    now: datetime,
) -> tuple[str, ...]:
    """The keys that must have room before this run can be claimed.

    The run keeps some slots from its last attempt. An expired run is claimed only to be
    skipped, so it does not count against a rate limit.
    """
    is_past = expires_at is not None and now > expires_at
    return tuple([key for key in keys if key not in held and not (is_past and is_rate(key))])


def slots_in(keys: Iterable[str]) -> tuple[str, ...]:
    """The keys of concurrency limits, without rate limits."""
    return tuple([key for key in keys if not is_rate(key)])


class Grants(NamedTuple):
    """The decision about the candidates of one claim."""

    granted: list[RunId]
    blocked_on: dict[RunId, str]
    left_ready: list[RunId]
    # A run was unblocked for one key and is now blocked on another. Other runs blocked on
    # the first key must be unblocked instead, or its room stays unused.
    room_by_key: dict[str, int]


def decide_grants(
    candidates: Iterable[Candidate],
    *,
    taken: Mapping[str, int],
    slots_by_limit: Mapping[str, int],
    starts_by_rate: Mapping[str, int] | None = None,
    gates: Collection[int] | None = None,
    limit: int | None = None,
) -> Grants:
    """Decide, in claim order, which runs get their slots: at most ``limit`` runs.

    ``taken`` counts the used slots of each key. ``starts_by_rate`` is how many starts each rate
    limit allows now. ``gates`` are the gates that this transaction holds; None means all. A run
    that needs another gate stays ready. A run that finds a key full is blocked on that key. A
    limit without a row, or with 0 slots, does not limit.
    """
    grants = Grants([], {}, [], {})
    used = Counter(taken)

    def room(key: str) -> int | None:
        if is_rate(key):
            starts = (starts_by_rate or {}).get(key)
            return None if starts is None else starts - used[key]
        return room_of(key, taken=used, slots_by_limit=slots_by_limit)

    others: set[str] = set()
    for run_id, keys in candidates:
        is_enough = limit is not None and len(grants.granted) >= limit
        if is_enough or (gates is not None and any(gate_of(key) not in gates for key in keys)):
            grants.left_ready.append(run_id)
            continue
        full = next((key for key in keys if room(key) == 0), None)
        if full is None:
            for key in keys:
                used[key] += 1
            grants.granted.append(run_id)
        else:
            grants.blocked_on[run_id] = full
            others.update(slots_in(keys))  # the next turn opens what is left of a rate limit
    for key in sorted(others):
        if left := room(key):
            grants.room_by_key[key] = left
    return grants


def slots_in_force(slots: object, override: object) -> int:
    """The number of slots that applies: the override, or else what code defines.

    A value that is not a valid number of slots is ignored. If neither is valid, the limit has one
    slot: a broken row must neither stop its runs nor start them all at once.
    """
    for number in (override, slots):
        if _is_number_of_slots(number):
            return number
    return 1


def check_slots(slots: object, override: object) -> None:
    """Raise an error if one of them is no number of slots."""
    for name, number in (("slots", slots), ("override", override)):
        if number is not None and not _is_number_of_slots(number):
            raise ValueError(f"{name} must be between 0 and {SLOTS_MAX:,}, got {number!r}")


def _is_number_of_slots(number: object) -> TypeGuard[int]:
    return isinstance(number, int) and 0 <= number <= SLOTS_MAX


def room_of(key: str, *, taken: Mapping[str, int], slots_by_limit: Mapping[str, int]) -> int | None:
    """The free slots of this key; None if it is not limited.

    >>> room_of("job:send_email", taken={"job:send_email": 2}, slots_by_limit={"job:send_email": 3})
    1
    """
    slots = 1 if key.startswith(_ONE_AT_A_TIME) else slots_by_limit.get(limit_of(key), 0)
    return max(slots - taken.get(key, 0), 0) if slots else None


# ---------------------------------------------------------------- uniqueness


class OnConflict(StrEnum):
    """What a dispatch does whose unique key is taken."""

    KEEP = "keep"  # it adds no run
    REPLACE = "replace"  # it replaces the run, unless a worker has claimed that one


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """At most one run of a job with the same key.

    The key is ``key``, or the arguments named in ``by``, or all arguments. It is free again when
    the run has finished; with ``within``, not before that time has passed. With
    ``OnConflict.REPLACE`` it is free when the run is claimed.
    """

    key: str | None = None
    by: tuple[str, ...] = ()
    within: timedelta | None = None
    on_conflict: OnConflict = OnConflict.KEEP

    def __post_init__(self) -> None:
        if self.key is not None and self.by:
            raise InvalidOption("unique", (self.key, self.by), "must have a key or by=, not both")
        if self.within is not None and self.within <= timedelta(0):
            raise InvalidOption("within", self.within, "must be longer than 0s")
        if self.within is not None and self.on_conflict is OnConflict.REPLACE:
            raise InvalidOption(
                "on_conflict",
                self.on_conflict.value,
                "must not be combined with within",
                fix="A key that is replaced is free when its run is claimed: leave within out.",
            )


class UniqueKey(NamedTuple):
    """The unique key of a run. With ``until`` it is kept until then, else until the run ends."""

    key: str
    until: datetime | None


def unique_key(
    unique: Unique, *, job: str, tenant: str, args: Mapping[str, Any], now: datetime
) -> UniqueKey:
    """The unique key of a run with these arguments. Tenants never share a key."""
    until = None if unique.within is None else later(now, unique.within)
    return UniqueKey(f"{job}:{hash_unique(unique, job=job, tenant=tenant, args=args)}", until)


def hash_unique(unique: Unique, *, job: str, tenant: str, args: Mapping[str, Any]) -> str:
    """What identifies the runs that count as equal."""
    parts: object = unique.key
    if unique.key is None:
        parts = {name: args.get(name) for name in unique.by or args}
    return _hash(encode_canonical([tenant, job, parts]))


# ---------------------------------------------------------------- overlap


def one_at_a_time(schedule: ScheduleId) -> str:
    """The key of the implicit limit that makes the runs of a schedule queue up."""
    return f"{_ONE_AT_A_TIME}{schedule}"


def is_kept_between_attempts(key: str) -> bool:
    """Whether a run keeps its slot of this key while it waits for a retry.

    The next run of the schedule must not start before this one has finished. All other limits
    count running attempts only.
    """
    return key.startswith(_ONE_AT_A_TIME)


def held_key(schedule: ScheduleId) -> str:
    """The key that a run holds until it has finished: overlap ``skip``."""
    return f"{_HELD}{schedule}"


def waiting_key(schedule: ScheduleId) -> str:
    """The key that a run holds until it is claimed: overlap ``queue_one``."""
    return f"{_WAITING}{schedule}"


def is_overlap_key(key: str) -> bool:
    """Whether a key can only be an overlap key, whatever the names of jobs are."""
    prefix, _, schedule = key.partition(":")
    return f"{prefix}:" in (_HELD, _WAITING) and len(schedule) == _ID_LENGTH


def is_released_by_claim(overlap_key: str) -> bool:
    """Whether a claim frees this overlap key, instead of the end of the run."""
    return overlap_key.startswith(_WAITING)


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
