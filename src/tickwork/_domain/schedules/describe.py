"""Describes calendar fields in plain English.

It uses the masks, not the text of the rule, so that the description is what will happen.
"""

from collections.abc import Callable, Sequence
from typing import Final

from tickwork._domain.schedules.fields import (
    EVERY_DAY,
    EVERY_HOUR,
    EVERY_MINUTE,
    EVERY_MONTH,
    EVERY_WEEKDAY,
    EVERY_YEAR,
    DayMarks,
    FieldValues,
    bits,
)

_MONTHS: Final = (
    "",
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_WEEKDAYS: Final = (
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
)
_WORKWEEK: Final = 0b0111110
_WEEKEND: Final = 0b1000001
_TIMES_MAX: Final = 6  # more times than this are described field by field
_ORDINALS: Final = ("", "1st", "2nd", "3rd", "4th", "5th")


def describe(values: FieldValues) -> str:
    """One sentence without a full stop, such as ``at 09:00 on Monday to Friday``."""
    parts = [_time(values), _days(values), _months(values), _years(values)]
    return " ".join(part for part in parts if part)


def _time(values: FieldValues) -> str:
    seconds, minutes, hours = values.seconds, values.minutes, values.hours
    if seconds == minutes == 1 and (hours == EVERY_HOUR or _even_step(hours, 24)):
        return _describe_frequency("hour", hours, 24)
    if seconds.bit_count() * minutes.bit_count() * hours.bit_count() <= _TIMES_MAX:
        return _times_of_day(values)
    if seconds == 1:
        words = _describe_frequency("minute", minutes, 60)
    else:
        words = _describe_frequency("second", seconds, 60)
        if minutes != EVERY_MINUTE or words.startswith("at "):
            words += f" of {_describe_values('minute', minutes, 60)}"
    if "every" in words:  # a frequency, limited to some hours
        return (
            words
            if hours == EVERY_HOUR
            else f"{words} during {_describe_values('hour', hours, 24)}"
        )
    return f"{words} of {_describe_values('hour', hours, 24)}"


def _times_of_day(values: FieldValues) -> str:
    form = "{:02}:{:02}" if values.seconds == 1 else "{:02}:{:02}:{:02}"
    return "at " + _join(
        [
            form.format(hour, minute, second)
            for hour in bits(values.hours)
            for minute in bits(values.minutes)
            for second in bits(values.seconds)
        ]
    )


def _describe_frequency(noun: str, mask: int, size: int) -> str:
    """How often: "every minute", "every 5 minutes", "at minutes 1 and 31"."""
    if mask.bit_count() == size:
        return f"every {noun}"
    step = _even_step(mask, size)
    return f"every {step} {noun}s" if step else f"at {_list_values(noun, bits(mask))}"


def _describe_values(noun: str, mask: int, size: int) -> str:
    """In which: "every minute", "every 5th minute", "minutes 1 and 31"."""
    if mask.bit_count() == size:
        return f"every {noun}"
    step = _even_step(mask, size)
    return f"every {_nth(step)} {noun}" if step else _list_values(noun, bits(mask))


def _days(values: FieldValues) -> str:
    by_number = _day_words(values.days, values.marks)
    by_weekday = _weekday_words(values.weekdays, values.marks)
    if by_number and by_weekday:
        if values.is_either:
            return f"on {by_number}, or on {by_weekday}"
        return f"on {by_number}, but only on {by_weekday}"
    # Where either may match and one is every day, the other restricts nothing: `1-31 * MON`.
    if values.is_either or not (by_number or by_weekday):
        return ""
    return f"on {by_number or by_weekday}"


def _day_words(mask: int, marks: DayMarks) -> str:
    if mask == EVERY_DAY:
        return ""
    words = []
    if mask:
        words.append(f"{_list_values('day', bits(mask))} of the month")
    if marks.last_day:
        words.append("the last day of the month")
    if marks.last_workday:
        words.append("the last Monday-to-Friday day of the month")
    words += [
        f"the Monday-to-Friday day nearest to day {day}" for day in bits(marks.nearest_workday)
    ]
    return _join(words)


def _weekday_words(mask: int, marks: DayMarks) -> str:
    if mask == EVERY_WEEKDAY:
        return ""
    words = []
    if mask == _WORKWEEK:
        words.append("Monday to Friday")
    elif mask == _WEEKEND:
        words.append("Saturday and Sunday")
    elif mask:
        words.append(_spans(bits(mask), _WEEKDAYS.__getitem__))
    words += [f"the last {_WEEKDAYS[day]} of the month" for day in bits(marks.last_weekday)]
    words += [
        f"the {_ORDINALS[nth]} {_WEEKDAYS[day]} of the month" for day, nth in marks.nth_weekday
    ]
    return _join(words)


def _months(values: FieldValues) -> str:
    if values.months == EVERY_MONTH:
        return ""
    return f"in {_spans(bits(values.months), _MONTHS.__getitem__)}"


def _years(values: FieldValues) -> str:
    if values.years == EVERY_YEAR:
        return ""
    return f"in {_spans(bits(values.years), str)}"


def _even_step(mask: int, size: int) -> int:
    """The step n if the mask is every nth value, also across the end; else 0.

    ``*/7`` is not every 7 minutes: from :56 to :00 it is only four.
    """
    values = bits(mask)
    if len(values) < 2 or values[0] != 0 or size % len(values):
        return 0
    step = size // len(values)
    return step if step > 1 and values == list(range(0, size, step)) else 0


def _nth(number: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(number, f"{number}th")


def _list_values(noun: str, values: Sequence[int]) -> str:
    plural = "s" if len(values) > 1 else ""
    return f"{noun}{plural} {_spans(values, str)}"


def _spans(values: Sequence[int], name: Callable[[int], str]) -> str:
    """Neighbors as spans: ``[1, 2, 3, 7]`` is "1 to 3 and 7"."""
    spans: list[list[int]] = []
    for value in values:
        if spans and value == spans[-1][-1] + 1:
            spans[-1].append(value)
        else:
            spans.append([value])
    words: list[str] = []
    for span in spans:
        if len(span) > 2:
            words.append(f"{name(span[0])} to {name(span[-1])}")
        else:
            words += [name(value) for value in span]
    return _join(words)


def _join(words: Sequence[str]) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
