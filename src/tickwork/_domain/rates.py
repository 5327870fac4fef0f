"""Rates: at most so many starts within any length of time.

A start is a claim, at the time of the store. The promise: in any stretch of time that is as
long as the window, wherever it begins, there are at most ``starts_max`` starts. Whoever comes
while there is room starts at once, be it all of them together.

Whoever finds none waits, and from then on starts come one by one: those who wait are let out at
turns, a window divided by ``starts_max`` from each other, the best of them first. Otherwise a
crowd that started together would start together again, once in every window. While somebody
waits, a newcomer takes only what was opened at a turn, as everybody else does: nobody overtakes.

Starts are numbered. Number n may happen when number n - starts_max has left the window, so a
decision needs as many of the old ones as there are new ones, and never all of them.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Final, NamedTuple

from tickwork._kernel.durations import as_duration, format_duration, later
from tickwork.errors import InvalidDuration, InvalidOption

WINDOW_MIN: Final = timedelta(milliseconds=1)
WINDOW_MAX: Final = timedelta(days=31)

TURNS_MAX: Final = 1000
"""Runs let out at one turn of one key; the next turn comes for the rest."""

SLACK: Final = 10
"""Turns that were late are made up for, up to this part of the window; older ones are lost."""

MISSING: Final = timedelta(seconds=1)
"""Whoever was let out and has not started after this time will not: another is let out."""

_WINDOWS: Final = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_WORDS: Final = {window: word for word, window in _WINDOWS.items()}
_KINDS: Final = frozenset({"job", "queue", "tenant"})


# ---------------------------------------------------------------- windows and keys


def as_window(said: timedelta | float | str) -> timedelta:
    """The window that somebody has said: a word, or a length of time.

    >>> as_window("minute") == as_window(60) == as_window("1m")
    True

    Raises:
        InvalidOption: It is none, or nothing that can be kept.
    """
    window = _WINDOWS.get(said) if isinstance(said, str) else None
    if window is None:
        try:
            window = as_duration(said)
        except InvalidDuration:
            raise InvalidOption(
                "per",
                said,
                f"must be one of {', '.join(_WINDOWS)}, or a length of time",
                fix=_fix(said),
            ) from None
    if not WINDOW_MIN <= window <= WINDOW_MAX:
        raise InvalidOption(
            "per",
            said,
            f"must be between {format_duration(WINDOW_MIN)} and {format_duration(WINDOW_MAX)}",
        )
    return window


def _fix(said: object) -> str:
    if said in _KINDS:
        return f"per= is the length of time. To count per {said}, write by={said!r}."
    close = get_close_matches(str(said), _WINDOWS, n=1)
    return f"Did you mean {close[0]!r}?" if close else 'Write per="minute" or per="90s".'


def window_text(window: timedelta) -> str:
    """A window as keys name it.

    >>> window_text(timedelta(minutes=1)), window_text(timedelta(seconds=90))
    ('minute', '1m30s')
    """
    return _WORDS.get(window) or format_duration(window)


@lru_cache(maxsize=4096)
def is_rate(key: str) -> bool:
    """Whether a key, or the name of a limit, is about starts, rather than places.

    >>> is_rate("job/minute:send_email"), is_rate("job:send/email")
    (True, False)
    """
    return "/" in key.partition(":")[0]


@lru_cache(maxsize=1024)
def window_of(name: str) -> timedelta:
    """The window of a rate, by its name or one of its keys."""
    text = name.partition(":")[0].partition("/")[2]
    return _WINDOWS.get(text) or as_duration(text)


def describe_rate(count: int, window: timedelta) -> str:
    """A rate for people.

    >>> describe_rate(100, timedelta(minutes=1)), describe_rate(5, timedelta(seconds=90))
    ('100 a minute', '5 in 1m30s')
    """
    word = _WORDS.get(window)
    if word is None:
        return f"{count:,} in {format_duration(window)}"
    return f"{count:,} {'an' if word == 'hour' else 'a'} {word}"


# ---------------------------------------------------------------- deciding


class Rate(NamedTuple):
    """What is known of one key of a rate, read while nobody else decides about it.

    ``turn_at`` is when the next of those who wait is let out, None when nobody does; ``opened``
    counts those who were let out and have not started. ``past`` says when starts were, by their
    number: of those that leave the window next, as many as the question needs.
    """

    starts_max: int
    window: timedelta
    number: int = 0  # of the last start
    last_at: datetime | None = None
    turn_at: datetime | None = None
    opened: int = 0
    past: Mapping[int, datetime] = {}  # never written to

    @property
    def forgotten(self) -> int:
        """Starts up to this number are of no use any more; without a limit, nobody can tell."""
        return self.number - self.starts_max if self.starts_max else 0

    def room(self, *, now: datetime, most: int) -> int:
        """How many may start now, counted up to ``most``."""
        if self.turn_at is not None:
            most = min(most, self.opened)
        return self._room(now, most)

    def started(self, starts: int, *, now: datetime, is_blocked: bool) -> "Rate":
        """What is known after so many have started now, and perhaps others found no room."""
        # Whoever asked the clock first need not come first: numbers go with the time all the same.
        at = now if self.last_at is None else max(now, self.last_at)
        past = {**self.past, **dict.fromkeys(range(self.number + 1, self.number + starts + 1), at)}
        after = self._replace(
            number=self.number + starts,
            last_at=at if starts else self.last_at,
            opened=max(self.opened - starts, 0),
            past=past,
        )
        if not is_blocked or self.turn_at is not None:
            return after
        return after._replace(turn_at=after.opens_at(0, now), opened=0)

    def is_due(self, *, now: datetime) -> bool:
        """Whether the turn has come of somebody who waits."""
        return self.turn_at is not None and self.turn_at <= now

    def turned(self, *, now: datetime) -> tuple[int, "Rate"]:
        """How many of those who wait are let out now; and what is known then, if others are left.

        With a maximum of 0 nothing is limited any more, and everybody is let out.
        """
        assert self.turn_at is not None, self
        if not self.starts_max:
            return TURNS_MAX, self._replace(turn_at=now, opened=0)
        begin = max(self.turn_at, now - self.window / SLACK)
        due = min((now - begin) * self.starts_max // self.window + 1, TURNS_MAX)
        room = self._room(now, self.opened + due)
        if room > self.opened:
            out, opened = room - self.opened, room
            turn_at = max(begin + self.window * out / self.starts_max, self.opens_at(opened, now))
        elif room:
            # Nobody has taken what was opened: canceled, paused, or nobody is there to take it.
            out, opened = min(room, due), room
            turn_at = later(now, max(self.window / self.starts_max, MISSING))
        else:
            out = opened = 0
            turn_at = self.opens_at(0, now)
        return out, self._replace(opened=opened, turn_at=turn_at)

    def is_idle(self, *, before: datetime) -> bool:
        """Whether nobody waits, and the last start had left the window before this instant."""
        return (
            self.turn_at is None
            and self.last_at is not None
            and self.last_at + self.window < before
        )

    def rested(self) -> "Rate":
        """The same when nobody waits any more."""
        return self._replace(turn_at=None, opened=0)

    def turn_of(self, place: int) -> datetime | None:
        """When it is the turn of the one at this place among those who wait, as far as is known.

        Not before that: others may come who are better placed.
        """
        if self.turn_at is None:
            return None
        return later(self.turn_at, self.window * (place - 1) / self.starts_max)

    def _room(self, now: datetime, most: int) -> int:
        room = 0
        # It ends: what starts now is in the window of what starts after it.
        while room < min(most, self.starts_max) and self._leaves_at(room, now) <= now:
            room += 1
        return room

    def _leaves_at(self, ahead: int, now: datetime) -> datetime:
        """When the window has room for one more, once ``ahead`` others have started."""
        at = self.past.get(self.number + 1 + ahead - self.starts_max)
        return now if at is None else at + self.window

    def opens_at(self, ahead: int, now: datetime) -> datetime:
        """When the window has room again, once ``ahead`` others have started by now."""
        return now + self.window if ahead >= self.starts_max else self._leaves_at(ahead, now)


class Turn(NamedTuple):
    """What a blocked run waits for, when that is a rate: its place, and when its turn comes.

    ``place`` is 1 for the next, and counted up to a cap; ``at`` is not before that.
    """

    key: str
    starts_max: int
    place: int
    at: datetime

    def __str__(self) -> str:
        rate = describe_rate(self.starts_max, window_of(self.key))
        return f"{self.key} ({rate}): place {self.place:,}, not before {self.at.isoformat()}"
