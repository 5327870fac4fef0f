"""Converts times from callers into UTC."""

from datetime import UTC, datetime
from typing import TypeAlias

from tickwork.errors import InvalidOption, NaiveDatetime

When: TypeAlias = datetime | str
"""An aware datetime, or ISO text with an offset."""


def as_instant(when: When, *, option: str = "at") -> datetime:
    """Convert an aware datetime, or ISO text with an offset, to UTC.

    >>> as_instant("2026-03-01T09:00:00+01:00").isoformat()
    '2026-03-01T08:00:00+00:00'

    Raises:
        NaiveDatetime: It has no time zone.
        InvalidOption: It is not a time.
    """
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when)
        except ValueError:
            raise InvalidOption(
                option,
                when,
                "must be a time in ISO 8601",
                fix="Write it as '2026-03-01T09:00:00+01:00'.",
            ) from None
    if not isinstance(when, datetime):
        raise InvalidOption(option, when, "must be a datetime or a string")
    if when.utcoffset() is None:
        raise NaiveDatetime(when)
    try:
        return when.astimezone(UTC)
    except OverflowError:
        raise InvalidOption(option, when, "must be a time between the years 1 and 9999") from None
