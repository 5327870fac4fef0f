"""Rate limits: at most ``starts_max`` starts in any window of time.

A start is a claim, by the clock of the store. The limit holds for every window, wherever it
begins. While there is room, runs start at once, even all of them together.

A run that finds no room is blocked. From then on, blocked runs are unblocked one by one, at
turns: a turn comes every ``window / starts_max``, and the run with the best priority is first.
Otherwise runs that started together would start together again in every window. While runs are
blocked, a new run can only use a start that a turn has opened, so it overtakes no blocked run.

Starts are numbered. Start n is allowed when start n - starts_max has left the window, so a
decision reads only as many old starts as there are new ones.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from tickwork._kernel.durations import as_duration, format_duration, later
from tickwork.errors import InvalidDuration, InvalidOption, suggest

WINDOW_MIN: Final = timedelta(milliseconds=1)
WINDOW_MAX: Final = timedelta(days=31)

TURNS_MAX: Final = 1000
"""Runs of one key that one turn unblocks. The next turn unblocks the rest."""

SLACK: Final = 10
"""Late turns are made up for within a tenth of the window. Older turns are dropped."""

STARTS_MAX: Final = 10**18
OPENED_MAX: Final = 1_000_000
AHEAD_MAX: Final = timedelta(days=1)
"""Larger numbers, and times further ahead of now than this and the window, are no state of a key:
another program wrote them."""

START_TIMEOUT: Final = timedelta(seconds=1)
"""If an unblocked run has not started after this time, another run is unblocked."""

_WINDOWS: Final = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_NAME_BY_WINDOW: Final = {window: word for word, window in _WINDOWS.items()}
_KINDS: Final = frozenset({"job", "queue", "tenant"})


# ---------------------------------------------------------------- windows and keys


def as_window(per: timedelta | float | str) -> timedelta:
    """Convert ``"minute"`` or a duration to a window.

    >>> as_window("minute") == as_window(60) == as_window("1m")
    True

    Raises:
        InvalidOption: It is not a window, or too short or too long.
    """
    window = _WINDOWS.get(per) if isinstance(per, str) else None
    if window is None:
        try:
            window = as_duration(per)
        except InvalidDuration:
            raise InvalidOption(
                "per",
                per,
                f"must be one of {', '.join(_WINDOWS)}, or a length of time",
                fix=_suggest_window(per),
            ) from None
    if not WINDOW_MIN <= window <= WINDOW_MAX:
        raise InvalidOption(
            "per",
            per,
            f"must be between {format_duration(WINDOW_MIN)} and {format_duration(WINDOW_MAX)}",
        )
    return window


def _suggest_window(per: object) -> str:
    if per in _KINDS:
        return f"per= is the length of time. To count per {per}, write by={per!r}."
    return suggest(per, _WINDOWS) or 'Write per="minute" or per="90s".'


def window_text(window: timedelta) -> str:
    """Format a window as limit keys contain it.

    >>> window_text(timedelta(minutes=1)), window_text(timedelta(seconds=90))
    ('minute', '1m30s')
    """
    return _NAME_BY_WINDOW.get(window) or format_duration(window)


@lru_cache(maxsize=4096)
def is_rate(key: str) -> bool:
    """Whether a limit key or name belongs to a rate limit.

    >>> is_rate("job/minute:send_email"), is_rate("job:send/email")
    (True, False)
    """
    return "/" in key.partition(":")[0]


@lru_cache(maxsize=1024)
def window_of(name: str) -> timedelta:
    """The window of a rate limit, from its name or one of its keys.

    Raises:
        InvalidOption: No rate limit has such a name.
    """
    return as_window(name.partition(":")[0].partition("/")[2])


def describe_rate(count: int, window: timedelta) -> str:
    """Format a rate limit for people.

    >>> describe_rate(100, timedelta(minutes=1)), describe_rate(5, timedelta(seconds=90))
    ('100 a minute', '5 in 1m30s')
    """
    word = _NAME_BY_WINDOW.get(window)
    if word is None:
        return f"{count:,} in {format_duration(window)}"
    return f"{count:,} {'an' if word == 'hour' else 'a'} {word}"


# ---------------------------------------------------------------- deciding


def latest_turn(window: timedelta, *, now: datetime) -> datetime:
    """The latest turn that a decision until now can have set."""
    return later(now, window + AHEAD_MAX)


class Rate(NamedTuple):
    """The state of one key of a rate limit, read under the lock of that key.

    ``next_start_at`` is when the next blocked run is unblocked, None if no run is blocked.
    ``opened`` counts unblocked runs that have not started. ``past`` maps the number of a start
    to its time: of the starts that leave the window next, as many as a decision needs.
    """

    starts_max: int
    window: timedelta
    number: int = 0  # of the last start
    last_at: datetime | None = None
    next_start_at: datetime | None = None
    opened: int = 0
    past: Mapping[int, datetime] = {}  # never written to

    @property
    def forgotten(self) -> int:
        """Starts up to this number have left the window. Without a limit it is unknown: 0."""
        return self.number - self.starts_max if self.starts_max else 0

    def check(self, *, now: datetime) -> None:
        """Raise an error if no decision can have led to this state."""
        if not (0 <= self.number <= STARTS_MAX and 0 <= self.opened <= OPENED_MAX):
            raise ValueError(f"{self.number} starts, {self.opened} opened")
        latest = latest_turn(self.window, now=now)
        for at in (self.last_at, self.next_start_at, *self.past.values()):
            if at is not None and at > latest:
                raise ValueError(f"{at.isoformat()} is too far ahead")

    def room(self, *, now: datetime, most: int) -> int:
        """How many runs may start now, counted up to ``most``."""
        if self.next_start_at is not None:
            most = min(most, self.opened)
        return self._room(now, most)

    def add_starts(self, starts: int, *, now: datetime, is_blocked: bool) -> "Rate":
        """The state after ``starts`` runs have started. ``is_blocked``: others found no room."""
        # The process that read its clock first may come second. Times must ascend with numbers.
        at = now if self.last_at is None else max(now, self.last_at)
        past = {**self.past, **dict.fromkeys(range(self.number + 1, self.number + starts + 1), at)}
        after = self._replace(
            number=self.number + starts,
            last_at=at if starts else self.last_at,
            opened=max(self.opened - starts, 0),
            past=past,
        )
        if not is_blocked or self.next_start_at is not None:
            return after
        return after._replace(next_start_at=after.opens_at(0, now), opened=0)

    def is_due(self, *, now: datetime) -> bool:
        """Whether a turn is due and runs are blocked."""
        return self.next_start_at is not None and self.next_start_at <= now

    def open_turn(self, *, now: datetime) -> tuple[int, "Rate"]:
        """How many blocked runs to unblock now, and the state if others stay blocked.

        With ``starts_max`` 0 there is no limit any more, and all runs are unblocked.
        """
        assert self.next_start_at is not None, self
        if not self.starts_max:
            return TURNS_MAX, self._replace(next_start_at=now, opened=0)
        begin = max(self.next_start_at, now - self.window / SLACK)
        due = min((now - begin) * self.starts_max // self.window + 1, TURNS_MAX)
        room = self._room(now, self.opened + due)
        if room > self.opened:
            out, opened = room - self.opened, room
            next_start_at = max(
                begin + self.window * out / self.starts_max, self.opens_at(opened, now)
            )
        elif room:
            # The unblocked runs did not start: canceled, paused, or no worker is running.
            out, opened = min(room, due), room
            next_start_at = later(now, max(self.window / self.starts_max, START_TIMEOUT))
        else:
            out = opened = 0
            next_start_at = self.opens_at(0, now)
        return out, self._replace(opened=opened, next_start_at=next_start_at)

    def is_idle(self, *, before: datetime) -> bool:
        """Whether no run is blocked, and the last start left the window before this time."""
        return (
            self.next_start_at is None
            and self.last_at is not None
            and self.last_at + self.window < before
        )

    def clear_turn(self) -> "Rate":
        """The state when no run is blocked any more."""
        return self._replace(next_start_at=None, opened=0)

    def turn_of(self, place: int) -> datetime | None:
        """The earliest turn of the blocked run at this place.

        It may come later, if runs with a better priority arrive.
        """
        if self.next_start_at is None:
            return None
        return later(self.next_start_at, self.window * (place - 1) / self.starts_max)

    def _room(self, now: datetime, most: int) -> int:
        room = 0
        while room < min(most, self.starts_max) and self._leaves_at(room, now) <= now:
            room += 1
        return room

    def _leaves_at(self, ahead: int, now: datetime) -> datetime:
        """When the window has room for one more start, after ``ahead`` others."""
        at = self.past.get(self.number + 1 + ahead - self.starts_max)
        return now if at is None else at + self.window

    def opens_at(self, ahead: int, now: datetime) -> datetime:
        """When the window has room again, if ``ahead`` others start now."""
        return now + self.window if ahead >= self.starts_max else self._leaves_at(ahead, now)


class Turn(NamedTuple):
    """The place of a blocked run under a rate limit. 1 is the next; ``at`` is the earliest time."""

    key: str
    starts_max: int
    place: int
    at: datetime

    def __str__(self) -> str:
        rate = describe_rate(self.starts_max, window_of(self.key))
        return f"{self.key} ({rate}): place {self.place:,}, not before {self.at.isoformat()}"
