"""What came of an attempt: a closed set of values, and the ways into it."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self, TypeAlias

from tickwork._kernel.codec import SIZE_MAX, encode
from tickwork._kernel.durations import as_duration
from tickwork.errors import Discard, InvalidDuration, PayloadError, RetryLater, Snooze

ERROR_MAX: Final = 2_000
"""Characters of an error's text that are kept."""

TRACEBACK_MAX: Final = 16_000
"""Characters of a traceback that are kept: at four bytes each they fit MySQL's TEXT."""


class OutcomeKind(StrEnum):
    """The word under which an outcome is stored with its attempt."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SNOOZED = "snoozed"
    SKIPPED = "skipped"
    POSTPONED = "postponed"
    INTERRUPTED = "interrupted"
    CANCELED = "canceled"
    CRASHED = "crashed"


class Succeeded(NamedTuple):
    """The handler did its work. ``result`` is JSON text; None when it returned nothing."""

    result: str | None = None
    note: str = ""


class Failed(NamedTuple):
    """The handler, a filter or ``on_before`` raised, timed out, or reported a failure.

    ``retry`` is what the handler said about another attempt: True and False are its word,
    None leaves it to the policy. A ``delay`` that it named is kept exactly.
    """

    error: str
    traceback: str = ""
    retry: bool | None = None
    delay: timedelta | None = None


class Snoozed(NamedTuple):
    """The handler asked to be called again later. The attempt does not count."""

    delay: timedelta
    reason: str = ""


class Skipped(NamedTuple):
    """A filter or a policy held the run back for good. No attempt was made."""

    reason: str


class Postponed(NamedTuple):
    """``when`` held a dispatched run back for now. No attempt was made."""

    reason: str


class Interrupted(NamedTuple):
    """The worker is shutting down and gives the run back. The attempt does not count."""

    reason: str = ""


class Canceled(NamedTuple):
    """Somebody asked that the run be stopped, and it was."""

    reason: str = ""


class Crashed(NamedTuple):
    """The process died, or its lease ended without a word.

    It costs a crash and not an attempt; and only if the run ``has_started``. A run that
    was merely claimed when its worker died cannot have been the reason.
    """

    reason: str
    has_started: bool = True


Outcome: TypeAlias = (
    Succeeded | Failed | Snoozed | Skipped | Postponed | Interrupted | Canceled | Crashed
)

SUCCEEDED: Final = Succeeded()
"""The outcome of most attempts: one value for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """What a handler may return to say more than yes.

    Returning anything else, or nothing, is a success with that output.

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
        """The work is done; ``output`` is what ``run.result()`` will return."""
        return cls(is_success=True, output=output)

    @classmethod
    def failure(
        cls,
        error: str,
        *,
        should_retry: bool | None = None,
        retry_delay: timedelta | float | str | None = None,
    ) -> Self:
        """The work is not done.

        ``should_retry`` left out leaves it to the job's retry policy. ``retry_delay`` is a
        timedelta, a number of seconds or a text such as ``"5m"``, and is kept exactly.
        """
        delay = None if retry_delay is None else as_duration(retry_delay)
        return cls(is_success=False, error=error, should_retry=should_retry, retry_delay=delay)


def outcome_of_result(returned: object, *, size_max: int = SIZE_MAX) -> Succeeded | Failed:
    """What a handler's return value means. Its result may have ``size_max`` bytes.

    A result that cannot be stored does not undo the work: doing it again would do it
    twice. The run is completed without a result, and a note says why.
    """
    if returned is None:
        return SUCCEEDED
    if isinstance(returned, JobResult):
        if not returned.is_success:
            return Failed(
                bounded(str(returned.error), ERROR_MAX),
                retry=returned.should_retry,
                delay=returned.retry_delay,
            )
        returned = returned.output
    try:
        return Succeeded(encode(returned, size_max=size_max))
    except PayloadError as error:
        return Succeeded(note=bounded(f"The result was not kept. {error}", ERROR_MAX))


def outcome_of_exception(error: BaseException, *, traceback: str = "") -> Failed | Snoozed:
    """What an exception out of a handler means. Its traceback comes as text.

    A delay that is no length of time is a mistake of the handler's, and fails as such.
    """
    try:
        match error:
            case Snooze():
                return Snoozed(as_duration(error.delay), bounded(error.reason, ERROR_MAX))
            case RetryLater():
                delay = None if error.delay is None else as_duration(error.delay)
                return _failed(error, traceback)._replace(retry=True, delay=delay)
            case Discard():
                return _failed(error, traceback)._replace(retry=False)
            case _:
                return _failed(error, traceback)
    except InvalidDuration as fault:
        return _failed(fault, traceback)


def bounded(text: str, length_max: int) -> str:
    """Shorten a text in its middle, and make it fit to be stored in every database.

    The head says where a traceback began, the tail what went wrong: both are kept.

    >>> bounded("a" * 50 + "b" * 50, 40)
    'aaaaaaaaaa … 80 characters … bbbbbbbbbb'
    """
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")  # lone surrogates
    text = text.replace("\x00", "\\x00")
    if len(text) <= length_max:
        return text
    # The mark's own length depends on the number in it; the widest number decides.
    room = length_max - len(f" … {len(text)} characters … ")
    head, tail = room - room // 2, room // 2
    return f"{text[:head]} … {len(text) - head - tail} characters … {text[len(text) - tail :]}"


def _failed(error: BaseException, traceback: str) -> Failed:
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  # a user's __str__ may raise anything
        message = "(its message cannot be shown)"
    name = type(error).__qualname__
    return Failed(
        bounded(f"{name}: {message}" if message else name, ERROR_MAX),
        bounded(traceback, TRACEBACK_MAX),
    )
