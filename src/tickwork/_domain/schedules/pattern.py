"""``Pattern``: calendar fields that must all match, and named patterns."""

import re
from collections.abc import Iterable, Mapping
from datetime import tzinfo
from types import MappingProxyType
from typing import Final, NamedTuple, Self, TypeAlias

from tickwork._domain.schedules.calendar import CalendarRule
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.fields import EVERY_YEAR, NO_MARKS, FieldValues, bits, step_mask
from tickwork._domain.schedules.grammar import parse_cron, split_cron
from tickwork._domain.schedules.text import encode_rule
from tickwork._domain.schedules.zones import Zone
from tickwork.errors import InvalidSchedule

Values: TypeAlias = int | str | Iterable[int]
SymbolRule: TypeAlias = Mapping[str, Values] | str | Rule
"""What a symbol stands for: a pattern, a cron expression, or a rule."""

Symbols: TypeAlias = Mapping[str, SymbolRule]
"""Named patterns: ``{"EVERY_DAY": {"hours": 2, "minutes": 10}}``."""

FIELD_NAMES: Final = ("second", "minute", "hour", "day", "month", "weekday", "year")
_BOUNDS: Final = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6), (1970, 9998))
_VALUES_MAX: Final = 400  # no field needs more terms


class FieldTexts(NamedTuple):
    """The text of each field; None if it is not set."""

    second: str | None = None
    minute: str | None = None
    hour: str | None = None
    day: str | None = None
    month: str | None = None
    weekday: str | None = None
    year: str | None = None


class Pattern(CalendarRule):
    """Calendar fields that must *all* match. A field that is not set matches any value.

    The text of a field is ``*``, ``n``, ``a-b``, ``a-b/n``, a list of these, or ``*/n``, which
    means every value that n divides: months ``*/3`` are March, June, September and December. The
    day of the month may also be ``L``, the last day.

    A pattern can override fields of a cron expression. Day of month and day of week are joined
    by "or" only if both come from the expression.

    >>> Pattern.of(minute="*/15", hour="9-17", weekday="1-5", year=2026).describe()
    'every 15 minutes during hours 9 to 17 on Monday to Friday in 2026 (UTC)'
    """

    __slots__ = ("cron", "fields", "key")

    cron: str | None
    key: str | None  # what ``H`` in the cron expression hashes
    fields: FieldTexts

    def __init__(
        self,
        fields: FieldTexts,
        *,
        cron: str | None = None,
        key: str | None = None,
        tz: str | tzinfo = "UTC",
    ) -> None:
        zone = Zone.named(tz)
        object.__setattr__(self, "cron", cron)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "fields", fields)
        super().__init__((cron, key, fields, zone.name), _values(fields, cron, key), zone)

    @classmethod
    def of(
        cls,
        *,
        second: Values | None = 0,
        minute: Values | None = None,
        hour: Values | None = None,
        day: Values | None = None,
        month: Values | None = None,
        weekday: Values | None = None,
        year: Values | None = None,
        tz: str | tzinfo = "UTC",
    ) -> Self:
        """Build a pattern from numbers, lists of numbers, or texts.

        Raises:
            InvalidSchedule: A field does not parse, or there is no such time zone.
        """
        parts = (second, minute, hour, day, month, weekday, year)
        return cls(FieldTexts(*map(field_text, FIELD_NAMES, parts)), tz=tz)

    def to_text(self) -> str:
        """The rule as text, for storage."""
        fields = self.fields._asdict()
        return encode_rule("pattern", cron=self.cron, key=self.key, tz=self.tz, **fields)

    def __repr__(self) -> str:
        fields = {name: text for name, text in self.fields._asdict().items() if text is not None}
        cron = {} if self.cron is None else {"cron": self.cron}
        texts = ", ".join(f"{name}={text!r}" for name, text in {**cron, **fields}.items())
        return f"Pattern({texts}, tz={self.tz!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.fields, self.cron, self.key, self.tz)


def _restore(fields: FieldTexts, cron: str | None, key: str | None, tz: str) -> Pattern:
    return Pattern(fields, cron=cron, key=key, tz=tz)


def _values(fields: FieldTexts, cron: str | None, key: str | None) -> FieldValues:
    if cron is None:
        base, texts = FieldValues(seconds=_mask(0, "*")), ["*"] * 3
    else:
        base, texts = parse_cron(cron, key)[0], list(split_cron(cron)[:3])
    seconds, minutes, hours, days, months, weekdays, years = (
        old if text is None else _mask(index, text)
        for index, (old, text) in enumerate(zip(base[:7], fields, strict=True))
    )
    marks = base.marks
    if fields.day is not None:
        marks = marks._replace(last_day="L" in fields.day, last_workday=False, nearest_workday=0)
    if fields.weekday is not None:
        marks = marks._replace(last_weekday=0, nth_weekday=())
    times = [new or old for new, old in zip(fields[:3], texts, strict=True)]
    return FieldValues(
        seconds,
        minutes,
        hours,
        days,
        months,
        weekdays,
        years,
        marks=marks if marks != NO_MARKS else NO_MARKS,
        is_either=base.is_either and fields.day is None and fields.weekday is None,
        is_fixed=not any(text[0] == "*" for text in times),
    )


def field_text(name: str, values: Values | None) -> str | None:
    """The checked text of one field, from a number, several numbers or text.

    >>> field_text("hour", range(9, 18))
    '9-17'
    """
    if values is None:
        return None
    if isinstance(values, str):
        # Blanks are allowed around a sign ('9 - 17'), but '1 0' is not ten.
        text = re.sub(r"\s*([-,/])\s*", r"\1", values.strip())
    elif isinstance(values, int) and not isinstance(values, bool):
        text = str(values)
    else:
        text = _format_numbers(name, values)
    _mask(FIELD_NAMES.index(name), text)
    return text


def _format_numbers(name: str, values: object) -> str:
    numbers: list[int] = []
    for value in values if isinstance(values, Iterable) else [values]:
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidSchedule(f"{name} must be an integer, got {value!r}.")
        numbers.append(value)
        if len(numbers) > _VALUES_MAX:
            raise InvalidSchedule(f"{name} must have at most {_VALUES_MAX} values.")
    if any(number < 0 for number in numbers):
        raise InvalidSchedule(f"{name} must not be negative, got {min(numbers)}.")
    mask = 0
    for number in numbers:
        mask |= 1 << min(number, 10_000)
    return format_mask(mask)


def format_mask(mask: int) -> str:
    spans: list[list[int]] = []
    for value in bits(mask):
        if spans and value == spans[-1][1] + 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def _mask(index: int, text: str) -> int:
    name, (low, high) = FIELD_NAMES[index], _BOUNDS[index]
    if text == "*":
        return EVERY_YEAR if name == "year" else (2 << high) - (1 << low)
    terms = text.split(",", _VALUES_MAX)
    mask = 0
    is_last_day = False
    for term in terms:
        if name == "day" and term == "L":
            is_last_day = True
            continue
        mask |= _term_mask(name, low, high, term)
    if name == "weekday" and mask >> 7:
        mask = (mask | 1) & 0x7F
    if not mask and not is_last_day:
        raise InvalidSchedule(f"{name} {_show(text)} matches nothing in {low}-{high}.")
    return mask


def _term_mask(name: str, low: int, high: int, term: str) -> int:
    base, slash, step_text = term.partition("/")
    step = _number(name, term, step_text) if slash else 1
    if step == 0:
        raise InvalidSchedule(f"{name} {_show(term)} has a step of 0.")
    if base == "*":
        # Unlike in cron: the values that the step divides.
        lowest = low + -low % step
        return step_mask(lowest, high, step) if lowest <= high else 0
    first_text, dash, last_text = base.partition("-")
    first = _number(name, term, first_text)
    last = _number(name, term, last_text) if dash else first
    if slash and not dash:
        raise InvalidSchedule(
            f"{name} {_show(term)} is not a pattern.", fix=f"Write '{first}-{high}/{step}'."
        )
    # Sunday is 0 and 7, everywhere.
    top = 7 if name == "weekday" else high
    if not (low <= first <= top and low <= last <= top):
        raise InvalidSchedule(f"{name} {_show(term)} is not in {low}-{top}.")
    if first > last:
        upper = f"{first}-{high}," if first <= high else ""  # only Sunday as 7 is higher
        raise InvalidSchedule(
            f"{name} {_show(term)} runs backwards.", fix=f"Write '{upper}{low}-{last}'."
        )
    return step_mask(first, last, step)


def _number(name: str, term: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise InvalidSchedule(
            f"{name} {_show(term)} is not a pattern.",
            fix="Use '*', '*/15', '5', '9-17', '9-17/2' or a list such as '1,15'.",
        )
    return int(text)


def _show(text: str) -> str:
    return repr(text if len(text) <= 32 else f"{text[:29]}...")


# ---------------------------------------------------------------- dict patterns and symbols

_DICT_FIELDS: Final[Mapping[str, str]] = {
    "minutes": "minute",
    "hours": "hour",
    "mday": "day",
    "day": "day",
    "wday": "weekday",
    "mon": "month",
    "year": "year",
}
PATTERN_FIELDS: Final = tuple(_DICT_FIELDS)

SYMBOLS: Final[Symbols] = MappingProxyType(
    {
        "EVERY_MINUTE": {"minutes": "*"},
        "EVERY_HOUR": {"minutes": 1, "hours": "*"},
        "EVERY_DAY": {"minutes": 10, "hours": 2, "day": "*"},
        "EVERY_WEEK": {"minutes": 20, "hours": 6, "wday": 1},
        "EVERY_MONTH": {"minutes": 30, "hours": 1, "mday": 1},
    }
)


def parse_dict_pattern(fields: Mapping[str, Values]) -> FieldTexts:
    """The fields of a dict pattern (``minutes``, ``hours``, ``mday`` or ``day``, ``wday``, …).

    Raises:
        InvalidSchedule: A field is unknown, set twice, or does not parse.
    """
    texts: dict[str, str | None] = {"second": "0"}
    for key, values in fields.items():
        name = _DICT_FIELDS.get(key)
        if name is None:
            raise InvalidSchedule(
                f"A pattern has no field {key!r}.",
                fix=f"The fields are: {', '.join(_DICT_FIELDS)}.",
            )
        if name in texts:
            raise InvalidSchedule("A pattern must set the day of the month once, got mday and day.")
        texts[name] = field_text(name, values)
    # Missing fields match any value: they are set to '*', so that no default replaces them.
    return FieldTexts(
        **{name: texts.get(name) or "*" for name in FIELD_NAMES[:6]}, year=texts.get("year")
    )
