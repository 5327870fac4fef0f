"""Parses and formats durations: ``"5m"`` ↔ ``timedelta(minutes=5)``."""

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final

from tickwork.errors import InvalidDuration

# Months and years are missing on purpose: their length varies.
_MICROSECONDS: Final = {
    "w": 604_800_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_SPELLINGS: Final = {
    "w": "w week weeks",
    "d": "d day days",
    "h": "h hr hrs hour hours",
    "m": "m min mins minute minutes",
    "s": "s sec secs second seconds",
    "ms": "ms millisecond milliseconds",
    "us": "us microsecond microseconds",
}
_UNIT_BY_SPELLING: Final = {
    spelling: unit for unit, spellings in _SPELLINGS.items() for spelling in spellings.split()
}
_SIZES: Final = tuple(_MICROSECONDS)
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")
_TEXT_MAX = 100


def _pattern_of(unit: str) -> str:
    # All parts together fit into a timedelta, and no part is shorter than a microsecond.
    size = _MICROSECONDS[unit]
    digits = len(str(timedelta.max // timedelta(microseconds=size))) - 2
    decimals = len(str(size)) - len(str(size).rstrip("0"))
    fraction = rf"(\.[0-9]{{1,{decimals}}})?" if decimals else ""
    return rf"( *[0-9]{{1,{digits}}}{fraction} *({_SPELLINGS[unit].replace(' ', '|')}))?"


DURATION_PATTERN: Final = f"^{''.join(map(_pattern_of, _SIZES))}$"
"""Texts that :func:`parse_duration` reads, as JSON Schema has it. The empty text is not one."""

_MICROSECOND = timedelta(microseconds=1)
DELAY_MAX: Final = timedelta(days=36_500)
_NOW_WITHIN: Final = timedelta(milliseconds=500)
_LAST = datetime.max.replace(tzinfo=UTC)


def parse_duration(text: str) -> timedelta:
    """Parse a duration such as ``"90s"``, ``"1h30m"``, ``"2 days"`` or ``"1.5h"``.

    Units go from large to small, each once, so that a typo such as ``"5m 5m"`` is an error.

    >>> parse_duration("1h30m")
    datetime.timedelta(seconds=5400)

    Raises:
        InvalidDuration: The text is not a duration.
    """
    if len(text) > _TEXT_MAX:
        raise InvalidDuration(text, f"it is longer than {_TEXT_MAX} characters.")
    total = Fraction(0)
    smallest = -1
    position = 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            raise InvalidDuration(text, f"{text[position:]!r} does not start with a number.")
        number, spelling = part.groups()
        unit = _unit(text, number, spelling)
        size = _SIZES.index(unit)
        if size <= smallest:
            raise InvalidDuration(text, "units must go from large to small, each once.")
        smallest = size
        total += Fraction(number) * _MICROSECONDS[unit]
        position = part.end()
    if smallest < 0:
        raise InvalidDuration(text, "it is empty.")
    if total.denominator != 1:
        raise InvalidDuration(text, "the smallest unit is a microsecond.")
    try:
        return timedelta(microseconds=int(total))
    except OverflowError:
        raise InvalidDuration(text, "it is too long.") from None


def as_duration(length: timedelta | float | str) -> timedelta:
    """Convert a timedelta, a number of seconds or a text to a timedelta.

    >>> as_duration(90) == as_duration("1m30s") == timedelta(seconds=90)
    True

    Raises:
        InvalidDuration: It is not a duration.
    """
    match length:
        case timedelta():
            return length
        case str():
            return parse_duration(length)
        case bool():
            raise InvalidDuration(length, "it is a bool.")
        case int() | float():
            try:
                return timedelta(seconds=length)
            except (OverflowError, ValueError):
                raise InvalidDuration(length, "it is too large, or not a number.") from None
        case _:  # a caller without a type checker
            raise InvalidDuration(length, f"it is a {type(length).__name__}.")


def as_delay(length: timedelta | float | str) -> timedelta:
    """Like :func:`as_duration`, but not negative, and at most DELAY_MAX.

    Raises:
        InvalidDuration: It is negative, too long, or not a duration.
    """
    delay = as_duration(length)
    if delay < timedelta(0):
        raise InvalidDuration(length, "a delay must not be negative.")
    if delay > DELAY_MAX:
        raise InvalidDuration(length, f"a delay must be at most {DELAY_MAX.days:,} days.")
    return delay


def format_duration(length: timedelta) -> str:
    """Format a duration exactly, so that :func:`parse_duration` can read it.

    >>> format_duration(timedelta(minutes=90))
    '1h30m'
    """
    assert length >= timedelta(0), length
    return "".join(f"{count}{unit}" for count, unit in _parts(length)) or "0s"


def human_duration(length: timedelta) -> str:
    """Format a duration for people: the two largest units, rounded.

    >>> human_duration(timedelta(days=3, hours=4, minutes=5))
    '3d 4h'
    >>> human_duration(timedelta(milliseconds=1234))
    '1.23s'
    """
    sign = "-" if length < timedelta(0) else ""
    length = abs(length)
    if not length:
        return "0s"
    # At each bound, three digits would round up to the next larger unit.
    if length < timedelta(milliseconds=1):
        return f"{sign}{length // _MICROSECOND}us"
    if length < timedelta(milliseconds=999.5):
        return f"{sign}{length / timedelta(milliseconds=1):.3g}ms"
    if length < timedelta(seconds=59.95):
        return f"{sign}{length / timedelta(seconds=1):.3g}s"
    return sign + " ".join(f"{count}{unit}" for count, unit in _parts(_round(length))[:2])


def relative_time(moment: datetime, now: datetime) -> str:
    """The rough distance from now. The pages refresh such texts: app.js has the same rules.

    >>> noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    >>> relative_time(noon + timedelta(minutes=4), noon)
    'in 4m'
    >>> relative_time(noon - timedelta(hours=2, minutes=3, seconds=4), noon)
    '2h 3m ago'
    """
    ahead = moment - now
    if abs(ahead) < _NOW_WITHIN:
        return "now"
    if ahead > timedelta(0):
        return f"in {_rough(ahead)}"
    return f"{_rough(-ahead)} ago"


def _rough(length: timedelta) -> str:
    seconds = length.total_seconds()
    if seconds >= 600:
        length = timedelta(minutes=round(seconds / 60))
    elif seconds >= 3:
        length = timedelta(seconds=round(seconds))
    return human_duration(length)


def later(moment: datetime, length: timedelta) -> datetime:
    """Add a duration, but stop at the last datetime that Python can represent.

    A delay of ten thousand years must not break a whole batch.
    """
    try:
        return moment + length
    except OverflowError:
        return _LAST


def _unit(text: str, number: str, spelling: str) -> str:
    if not spelling:
        raise InvalidDuration(text, f"{number} has no unit.")
    try:
        return _UNIT_BY_SPELLING[spelling]
    except KeyError:
        raise InvalidDuration(text, f"{spelling!r} is not a unit.") from None


def _parts(length: timedelta) -> list[tuple[int, str]]:
    # Weeks are parsed but not written: "8d" is clearer than "1w1d".
    rest = length // _MICROSECOND
    parts = []
    for unit in _SIZES[1:]:
        count, rest = divmod(rest, _MICROSECONDS[unit])
        if count:
            parts.append((count, unit))
    return parts


def _round(length: timedelta) -> timedelta:
    # Add half a unit before truncating, so that "59m 60s" becomes "1h".
    small = "h" if length >= timedelta(days=1) else "m" if length >= timedelta(hours=1) else "s"
    step = timedelta(microseconds=_MICROSECONDS[small])
    # timedelta.max would overflow when rounded up.
    return (length + min(step / 2, timedelta.max - length)) // step * step
