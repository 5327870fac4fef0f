"""The outcome of an attempt: a closed set of values."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self, TypeAlias

from tickwork._domain.runs.retry import ANY_ERROR, RetryErrors
from tickwork._domain.runs.steps import Step, SubRun
from tickwork._domain.runs.stored_events import EventName
from tickwork._kernel.durations import as_duration
from tickwork._payload.codec import encode
from tickwork.errors import (
    Discard,
    FlowError,
    InvalidDuration,
    PayloadError,
    RetryLater,
    Snooze,
    SuspendRun,
)

ERROR_MAX: Final = 2_000
"""The longest error text that is stored, in characters."""

TRACEBACK_MAX: Final = 16_000
"""The longest traceback that is stored, in characters: at four bytes each, it fits MySQL's TEXT."""


class OutcomeKind(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SNOOZED = "snoozed"
    SKIPPED = "skipped"
    POSTPONED = "postponed"
    INTERRUPTED = "interrupted"
    CANCELED = "canceled"
    CRASHED = "crashed"
    SUSPENDED = "suspended"


class Succeeded(NamedTuple):
    """The handler succeeded. ``result`` is JSON text, or None."""

    result: str | None = None
    note: str = ""


class Failed(NamedTuple):
    """The handler, a filter or ``on_before`` raised an error, timed out or reported a failure.

    ``retry`` is the handler's decision about another attempt; None leaves it to the policy. A
    ``delay`` from the handler is used as it is, without jitter. ``exception`` is what was raised,
    in the process that raised it; None in other processes, and for a reported failure.
    """

    error: str
    traceback: str = ""
    retry: bool | None = None
    delay: timedelta | None = None
    exception: BaseException | None = None


class Snoozed(NamedTuple):
    """The handler postponed its own run. The attempt does not count."""

    delay: timedelta
    reason: str = ""


class Suspended(NamedTuple):
    """The handler waits without a worker: it is called again at ``until``, or after an event.

    ``steps`` are stored together with the suspension.
    """

    until: datetime
    reason: str = ""
    steps: tuple[Step, ...] = ()
    wait: EventName | None = None
    calls: tuple[SubRun, ...] = ()
    waits_for_runs: bool = False  # those of the calls, and of earlier ones


class Skipped(NamedTuple):
    """A filter or a policy skipped the run. The handler was not called."""

    reason: str


class Postponed(NamedTuple):
    """The filter ``when`` rejected a dispatched run for now. The handler was not called."""

    reason: str


class Interrupted(NamedTuple):
    """The worker shuts down and releases the run. The attempt does not count."""

    reason: str = ""


class Canceled(NamedTuple):
    reason: str = ""


class Crashed(NamedTuple):
    """The process died, or the lease expired.

    It counts as a crash, not as an attempt, and only if the run ``has_started``: a run that was
    only claimed cannot have caused the crash.
    """

    reason: str
    has_started: bool = True


Outcome: TypeAlias = (
    Succeeded
    | Failed
    | Snoozed
    | Suspended
    | Skipped
    | Postponed
    | Interrupted
    | Canceled
    | Crashed
)

SUCCEEDED: Final = Succeeded()
"""The outcome of most attempts: one shared value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """A handler can return this to report a failure or to control the retry.

    Any other return value is a success with that output.

    >>> JobResult.failure("the printer is out of paper", should_retry=True, retry_delay="5m")
    ... # doctest: +ELLIPSIS
    JobResult(is_success=False, output=None, error='the printer is out of paper', ...
    """

    is_success: bool
    output: Any = None
    error: str = ""
    should_retry: bool | None = None
    retry_delay: timedelta | None = None

    @classmethod
    def success(cls, output: Any = None) -> Self:
        """The run succeeded. ``run.result()`` returns ``output``."""
        return cls(is_success=True, output=output)

    @classmethod
    def failure(
        cls,
        error: str,
        *,
        should_retry: bool | None = None,
        retry_delay: timedelta | float | str | None = None,
    ) -> Self:
        """The attempt failed.

        Without ``should_retry``, the retry policy of the job decides. ``retry_delay`` is a
        timedelta, a number of seconds or a text such as ``"5m"``.
        """
        delay = None if retry_delay is None else as_duration(retry_delay)
        return cls(is_success=False, error=error, should_retry=should_retry, retry_delay=delay)


Mask: TypeAlias = Callable[[str], str]
"""Removes secrets from a text."""


def outcome_of_result(
    returned: object, *, encode: Callable[[object], str] = encode, mask: Mask = str
) -> Succeeded | Failed:
    """The outcome for a handler's return value, which ``encode`` turns into JSON text.

    ``mask`` removes secrets from texts, before they are shortened: a part of one would be left.

    If the result cannot be stored, the run still completes, with a note: a retry would do the
    work twice.
    """
    if returned is None:
        return SUCCEEDED
    if isinstance(returned, JobResult):
        if not returned.is_success:
            return Failed(
                shorten(mask(str(returned.error)), ERROR_MAX),
                retry=returned.should_retry,
                delay=returned.retry_delay,
            )
        returned = returned.output
    try:
        return Succeeded(encode(returned))
    except PayloadError as error:
        note = mask(f"The result was not stored. {error}")
        return Succeeded(note=shorten(note, ERROR_MAX))


def outcome_of_exception(
    error: BaseException,
    *,
    traceback: str = "",
    retry_errors: RetryErrors = ANY_ERROR,
    mask: Mask = str,
) -> Failed | Snoozed | Suspended:
    """The outcome for an exception of a handler. An invalid delay is a failure, too.

    A group of suspensions is a suspension; a group with other errors fails with those.
    """
    if isinstance(error, BaseExceptionGroup):
        suspended, others = error.split(SuspendRun)
        if suspended is not None:
            error = first_leaf(suspended) if others is None else others
    try:
        match error:
            case SuspendRun():
                return Suspended(
                    error.until,
                    error.reason,
                    tuple(error.steps),
                    error.wait,
                    tuple(error.calls),
                    error.waits_for_runs,
                )
            case FlowError():
                return _build_failure(error, traceback, mask)._replace(retry=False)
            case Snooze():
                return Snoozed(as_duration(error.delay), shorten(mask(error.reason), ERROR_MAX))
            case RetryLater():
                delay = None if error.delay is None else as_duration(error.delay)
                return _build_failure(error, traceback, mask)._replace(retry=True, delay=delay)
            case Discard():
                return _build_failure(error, traceback, mask)._replace(retry=False)
            case _:
                failed = _build_failure(error, traceback, mask)
                return failed._replace(retry=False) if retry_errors.is_final(error) else failed
    except InvalidDuration as fault:
        return _build_failure(fault, traceback, mask)


def first_leaf(group: BaseException) -> BaseException:
    """The first exception in a group that is no group itself."""
    while isinstance(group, BaseExceptionGroup):  # ends: groups are finite trees
        group = group.exceptions[0]
    return group


def shorten(text: str, length_max: int) -> str:
    """Shorten a text in the middle, and remove what databases cannot store.

    The start and the end of a traceback matter most.

    >>> shorten("a" * 50 + "b" * 50, 40)
    'aaaaaaaaaa … 80 characters … bbbbbbbbbb'
    """
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")  # lone surrogates
    text = text.replace("\x00", "\\x00")
    if len(text) <= length_max:
        return text
    # The length of the mark depends on the number in it; assume the longest.
    room = length_max - len(f" … {len(text)} characters … ")
    head, tail = room - room // 2, room // 2
    return f"{text[:head]} … {len(text) - head - tail} characters … {text[len(text) - tail :]}"


def _describe_cause(error: BaseException) -> str:
    """The error that a handler turned into a signal: ``raise RetryLater(60) from error``."""
    cause = error.__cause__
    if cause is None or not isinstance(error, RetryLater | Discard):
        return ""
    message = str(cause)
    name = type(cause).__qualname__
    return f"{name}: {message}" if message else name


def _build_failure(error: BaseException, traceback: str, mask: Mask) -> Failed:
    try:
        message = str(error) or _describe_cause(error)
    except Exception:  # noqa: BLE001  # a user's __str__ may raise anything
        message = "(the message cannot be shown)"
    name = type(error).__qualname__
    return Failed(
        shorten(mask(f"{name}: {message}" if message else name), ERROR_MAX),
        shorten(mask(traceback), TRACEBACK_MAX),
        exception=error,
    )
