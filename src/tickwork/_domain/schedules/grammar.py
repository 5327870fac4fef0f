"""Parses cron expressions. Errors name the place, the reason and a spelling that works.

The syntax of a field: ``*  ?  n  a-b  a,b  */n  a-b/n  n/step``, names of months and
weekdays, ``L LW nW`` for days, ``5L 5#2`` for weekdays, ``H H/n H(a-b) H(a-b)/n`` for a
stable spread. Macros such as ``@daily`` replace the whole expression.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NoReturn

from tickwork._domain.schedules.fields import NO_MARKS, DayMarks, FieldValues, step_mask
from tickwork._kernel.plain_text import count_of
from tickwork.errors import CronError, suggest

EXPR_LENGTH_MAX: Final = 1024

MACROS: Final[Mapping[str, str]] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)
    whole: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "whole", (2 << self.high) - (1 << self.low))


SECOND: Final = Field("second", 0, 59)
MINUTE: Final = Field("minute", 0, 59)
HOUR: Final = Field("hour", 0, 23)
DAY_OF_MONTH: Final = Field("day of month", 1, 31)
MONTH: Final = Field(
    "month",
    1,
    12,
    {
        "JAN": 1,
        "FEB": 2,
        "MAR": 3,
        "APR": 4,
        "MAY": 5,
        "JUN": 6,
        "JUL": 7,
        "AUG": 8,
        "SEP": 9,
        "OCT": 10,
        "NOV": 11,
        "DEC": 12,
    },
)
WEEKDAY: Final = Field(
    "day of week",
    0,
    6,
    {"SUN": 0, "MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6},
)
COLUMNS: Final = (SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, WEEKDAY)

_HASHED: Final = re.compile(r"H(?:\((\d+)-(\d+)\))?\Z")
# Every month has a 28th. A later day would skip short months.
_HASHED_DAY_MAX: Final = 28


def parse_cron(expr: str, key: str | None) -> tuple[FieldValues, bool]:
    """The values of an expression, and whether they depend on ``key``.

    Raises:
        CronError: The expression does not parse.
    """
    parts = _split(expr)
    second, minute, hour, day, month, weekday = _six(parts)
    try:
        reader = _Reader(key)
        seconds = 1 if second == "0" else reader.read(SECOND, second)
        minutes = reader.read(MINUTE, minute)
        hours = reader.read(HOUR, hour)
        days = reader.read(DAY_OF_MONTH, day)
        months = reader.read(MONTH, month)
        weekdays = reader.read(WEEKDAY, weekday)
    except _Fault as fault:
        raise _error(expr, parts, fault) from None
    # As in Vixie's cron: a field that starts with a star counts as unrestricted.
    is_either = day[0] not in "*?" and weekday[0] not in "*?"
    is_fixed = not (second[0] == "*" or minute[0] == "*" or hour[0] == "*")
    return FieldValues(
        seconds,
        minutes,
        hours,
        days,
        months,
        weekdays,
        -1,
        reader.marks(),
        is_either,
        is_fixed,
    ), reader.is_hashed


def split_cron(expr: str) -> Sequence[str]:
    """The texts of the six fields. The second is '0' in an expression of five fields."""
    return _six(_split(expr))


def _six(parts: list[str]) -> list[str]:
    return parts if len(parts) == 6 else ["0", *parts]


def _split(expr: str) -> list[str]:
    if not isinstance(expr, str):
        raise CronError(
            repr(expr),
            f"it must be a string, got {type(expr).__name__}",
            hint="Write it as a string: '*/5 * * * *'.",
        )
    if len(expr) > EXPR_LENGTH_MAX:
        raise CronError(
            expr, f"it has {len(expr):,} characters, but {EXPR_LENGTH_MAX:,} are allowed"
        )
    if not expr.isascii():
        at, odd = next((at, char) for at, char in enumerate(expr) if not char.isascii())
        raise CronError(
            expr,
            f"{odd!r} at position {at} is not an ASCII character",
            token=odd,
            position=at,
            hint="Use the digits 0-9 and the letters A-Z.",
        )
    parts = expr.split()
    if len(parts) == 1 and parts[0][0] == "@":
        return _macro(expr, parts[0]).split()
    if len(parts) not in {5, 6}:
        _refuse_count(expr, len(parts))
    return parts


def _macro(expr: str, name: str) -> str:
    expansion = MACROS.get(name.lower())
    if expansion is None:
        raise CronError(
            expr,
            f"there is no macro {name[:32]!r}",
            token=name,
            position=expr.index(name),
            hint=suggest(name.lower()[:32], MACROS) or f"The macros are: {', '.join(MACROS)}.",
        )
    return expansion


def _refuse_count(expr: str, count: int) -> NoReturn:
    if count == 0:
        reason, hint = "it is empty", "'* * * * *' means every minute."
    else:
        reason = f"it has {count_of(count, 'field')}, not 5 or 6"
        hint = (
            "The fields are: minute hour day-of-month month day-of-week; "
            "a sixth field, the second, comes first."
        )
        if count == 7:
            hint = "For years, use a pattern: pattern(minutes=0, hours=9, year='2026-2030')."
    raise CronError(expr, reason, hint=hint)


class _Fault(Exception):  # noqa: N818  # never leaves this module
    """An error in one token. _error() finds its position."""

    def __init__(self, column: Field, token: str, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.column = column
        self.token = token
        self.reason = reason
        self.hint = hint


def _error(expr: str, parts: list[str], fault: _Fault) -> CronError:
    number = COLUMNS.index(fault.column) + len(parts) - 5
    spots = [word.start() for word in re.finditer(r"\S+", expr)]
    items = parts[number - 1].split(",")
    # The token is the whole field, or one of its items.
    before = items[: items.index(fault.token)] if fault.token in items else []
    within = sum(len(item) + 1 for item in before)
    shown = fault.token if len(fault.token) <= 32 else f"{fault.token[:29]}..."
    return CronError(
        expr,
        f"{fault.column.name} (field {number}) {shown!r} {fault.reason}",
        field=fault.column.name,
        token=fault.token,
        position=spots[number - 1] + within,
        hint=fault.hint,
    )


class _Reader:
    """Parses the fields of one expression, and collects marks such as L and 5#2."""

    __slots__ = (
        "_key",
        "_last_day",
        "_last_weekday",
        "_last_workday",
        "_nearest",
        "_nth",
        "is_hashed",
    )

    def __init__(self, key: str | None) -> None:
        self._key = key
        self.is_hashed = False
        self._last_day = self._last_workday = False
        self._nearest = self._last_weekday = 0
        self._nth: tuple[tuple[int, int], ...] = ()

    def marks(self) -> DayMarks:
        if self._last_day or self._last_workday or self._nearest or self._last_weekday or self._nth:
            return DayMarks(
                self._last_day, self._last_workday, self._nearest, self._last_weekday, self._nth
            )
        return NO_MARKS

    def read(self, column: Field, text: str) -> int:
        if text == "*":
            return column.whole
        if "," not in text:
            return self._term(column, text)
        mask = 0
        for term in text.split(","):
            if not term:
                raise _Fault(column, text, "has an empty item", _without_gaps(text))
            mask |= self._term(column, term)
        return mask

    def _term(self, column: Field, term: str) -> int:
        if term.isdigit():
            return _fold_sunday(column, 1 << _value(column, term, term))
        base, slash, step_text = term.partition("/")
        low, high = column.low, column.high
        if base in {"*", "?"}:
            if base == "?" and column not in {DAY_OF_MONTH, WEEKDAY}:
                raise _Fault(column, term, "is allowed in the day fields only", "Write '*'.")
        elif base[:1] in {"H", "h"}:
            return self._hash_value(column, term, base.upper(), step_text if slash else None)
        elif not slash and column is DAY_OF_MONTH and base[-1] in "LWlw":
            return self._day_mark(term)
        elif not slash and column is WEEKDAY and ("#" in base or base[-1] in "Ll"):
            return self._weekday_mark(term)
        else:
            first, dash, last = base.partition("-")
            low = _value(column, first, term)
            if dash:
                high = _value(column, last, term)
                if high < low and column is WEEKDAY and last.upper() == "SUN":
                    high = 7  # Sunday as the end of the week: FRI-SUN
                if low > high:
                    _refuse_reversed(column, term, low, high)
            elif not slash:
                return _fold_sunday(column, 1 << low)
            else:
                high = max(low, high)  # Sunday as 7
        if not slash:
            return _fold_sunday(column, (2 << high) - (1 << low))
        return _fold_sunday(column, step_mask(low, high, _step(column, term, step_text)))

    def _hash_value(self, column: Field, term: str, base: str, step_text: str | None) -> int:
        hashed = _HASHED.match(base)
        if hashed is None:
            _refuse_value(column, term, base)
        if self._key is None:
            raise _Fault(
                column,
                term,
                "needs the name of the schedule for its hash",
                "Pass a key: Cron.parse(expr, key='nightly-report').",
            )
        self.is_hashed = True
        low, high = column.low, _HASHED_DAY_MAX if column is DAY_OF_MONTH else column.high
        if hashed[1]:
            low, high = _value(column, hashed[1], term), _value(column, hashed[2], term)
            if low > high:
                raise _Fault(column, term, "runs backwards")
        text = f"{column.name}\0{self._key}".encode("utf-8", "surrogatepass")
        digest = blake2b(text, digest_size=8).digest()
        number = int.from_bytes(digest)
        if step_text is None:
            return _fold_sunday(column, 1 << low + number % (high - low + 1))
        step = _step(column, term, step_text)
        first = low + number % min(step, high - low + 1)
        return _fold_sunday(column, step_mask(first, high, step))

    def _day_mark(self, term: str) -> int:
        upper = term.upper()
        if upper == "L":
            self._last_day = True
        elif upper == "LW":
            self._last_workday = True
        elif upper[-1] == "W" and upper[:-1].isdigit():
            self._nearest |= 1 << _value(DAY_OF_MONTH, upper[:-1], term)
        else:
            raise _Fault(
                DAY_OF_MONTH,
                term,
                "is not a day",
                "L is the last day, LW the last weekday, 15W the weekday nearest to the 15th.",
            )
        return 0

    def _weekday_mark(self, term: str) -> int:
        weekday, hash_sign, nth = term.partition("#")
        if hash_sign:
            if nth not in {"1", "2", "3", "4", "5"}:
                raise _Fault(
                    WEEKDAY,
                    term,
                    "needs a number from 1 to 5 after '#'",
                    "5#2 is the second Friday.",
                )
            self._nth += ((_value(WEEKDAY, weekday, term) % 7, int(nth)),)
        elif term in {"L", "l"}:
            raise _Fault(
                WEEKDAY,
                term,
                "needs a weekday before 'L'",
                "5L is the last Friday; the last day of the month is L in the day-of-month field.",
            )
        else:
            self._last_weekday |= 1 << _value(WEEKDAY, term[:-1], term) % 7
        return 0


def _value(column: Field, text: str, term: str) -> int:
    if text.isdigit():
        number = _number(text)
        high = 7 if column is WEEKDAY else column.high
        if column.low <= number <= high:
            return number
        raise _Fault(column, term, f"is not in {column.low}-{high}")
    named = column.names.get(text.upper())
    if named is None:
        _refuse_value(column, term, text)
    return named


def _number(digits: str) -> int:
    # No field has values of more than six digits.
    return int(digits) if len(digits) < 7 else 1_000_000


def _fold_sunday(column: Field, mask: int) -> int:
    """Map 7 to 0: both are Sunday."""
    return (mask | 1) & 0x7F if column is WEEKDAY and mask >> 7 else mask


def _step(column: Field, term: str, text: str) -> int:
    if not text.isdigit():
        raise _Fault(column, term, "needs a number after '/'")
    step = _number(text)
    if step == 0:
        raise _Fault(column, term, "has a step of 0")
    if step > column.high - column.low + 1:
        raise _Fault(
            column,
            term,
            f"has a step that is longer than {column.low}-{column.high}",
            "A cron field starts again in each period. For a fixed interval, use every(...).",
        )
    return step


def _refuse_value(column: Field, term: str, text: str) -> NoReturn:
    if not text:
        raise _Fault(column, term, "is incomplete")
    reason = f"is not in {column.low}-{7 if column is WEEKDAY else column.high}"
    if column.names:
        reason += f" and not a name such as {next(iter(column.names))}"
    raise _Fault(column, term, reason, suggest(text.upper()[:16], column.names))


def _refuse_reversed(column: Field, term: str, low: int, high: int) -> NoReturn:
    upper = f"{low}-{column.high}" if low < column.high else f"{column.high}"
    lower = f"{column.low}-{high}" if high > column.low else f"{column.low}"
    # Sunday as 7 starts the week. A step would start again in the second half.
    spelling = lower if low > column.high else f"{upper},{lower}"
    raise _Fault(column, term, "runs backwards", "" if "/" in term else f"Write '{spelling}'.")


def _without_gaps(text: str) -> str:
    rest = ",".join(term for term in text.split(",") if term)
    return f"Write {rest!r}." if rest else ""
