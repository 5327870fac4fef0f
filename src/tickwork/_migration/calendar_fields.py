"""Writes sets of minutes, hours, days, months and weekdays as a cron expression."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from tickwork._migration.definitions import MethodCall, NotConvertible

RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "day": (1, 31),
    "month": (1, 12),
    "weekday": (0, 6),  # 0 is Sunday
    "year": (1970, 9998),
}


class CalendarFields(NamedTuple):
    """The values of each field, all of which must match.

    ``marks`` are the values of the day and the weekday that are not numbers: ``L``, ``5#2``.
    """

    minute: Collection[int]
    hour: Collection[int]
    day: Collection[int]
    month: Collection[int]
    weekday: Collection[int]
    second: Collection[int] = (0,)
    year: Collection[int] = range(1970, 9999)
    day_marks: Collection[str] = ()
    weekday_marks: Collection[str] = ()

    def to_calls(self) -> list[MethodCall]:
        """The builder calls that make an equal rule."""
        text = {name: field_text(name, getattr(self, name)) for name in RANGES}
        if self.day_marks and text["day"] != "*":
            text["day"] = _with_marks(text["day"] if self.day else "", self.day_marks)
        if self.weekday_marks:
            if text["weekday"] != "*" or text["day"] != "*":
                marks = ", ".join(self.weekday_marks)
                raise NotConvertible(f"{marks} cannot be combined with other days.")
            text["weekday"] = _with_marks("", self.weekday_marks)
        if text["year"] != "*":
            return self._pattern_calls(text)
        fields = [text[name] for name in ("minute", "hour", "day", "month", "weekday")]
        calls = []
        if text["day"] != "*" and text["weekday"] != "*":
            # In a cron expression one of the two would be enough.
            fields[2] = "*"
            calls.append(MethodCall("days", (_counted("day", text["day"]),)))
        if text["second"] != "0":
            fields.insert(0, text["second"])
        return [MethodCall("cron", (" ".join(fields),)), *calls]

    def _pattern_calls(self, text: Mapping[str, str]) -> list[MethodCall]:
        if self.weekday_marks:
            raise NotConvertible("A rule with years cannot have the nth weekday of a month.")
        texts = {
            key: _counted(name, text[name])
            for key, name in (
                ("minutes", "minute"),
                ("hours", "hour"),
                ("mday", "day"),
                ("mon", "month"),
                ("wday", "weekday"),
                ("year", "year"),
            )
            if text[name] != "*"
        }
        calls = [MethodCall("pattern", (), texts)]
        if text["second"] != "0":
            calls.append(MethodCall("seconds", (_counted("second", text["second"]),)))
        return calls


def field_text(name: str, values: Collection[int]) -> str:
    """Write the values of a field as cron does.

    >>> field_text("minute", range(0, 60, 15)), field_text("weekday", {1, 2, 3, 5})
    ('*/15', '1-3,5')
    """
    first, last = RANGES[name]
    numbers = sorted(values)
    if numbers == list(range(first, last + 1)):
        return "*"
    if len(numbers) > 2:
        step = numbers[1] - numbers[0]
        if step > 1 and numbers == list(range(numbers[0], last + 1, step)):
            return f"*/{step}" if numbers[0] == first else f"{numbers[0]}-{last}/{step}"
    parts: list[list[int]] = []
    for value in numbers:
        if parts and value == parts[-1][-1] + 1:
            parts[-1].append(value)
        else:
            parts.append([value])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def _counted(name: str, text: str) -> str:
    """The same for a pattern, where ``*/n`` means the values that n divides."""
    first, last = RANGES[name]
    return f"{first}-{last}{text[1:]}" if text.startswith("*") else text


def _with_marks(text: str, marks: Collection[str]) -> str:
    return ",".join([*([text] if text else []), *marks])
