"""Converts times from callers into UTC."""

from datetime import UTC, datetime
from typing import Final, TypeAlias

from tickwork.errors import InvalidOption, NaiveDatetime

YEAR_MIN: Final = 2
YEAR_MAX: Final = 9998

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
    # A year is left at both ends, so that a time zone or a lease cannot leave the calendar.
    if not YEAR_MIN <= when.year <= YEAR_MAX:
        rule = f"must be a time between the years {YEAR_MIN} and {YEAR_MAX}"
        raise InvalidOption(option, when, rule)
    return when.astimezone(UTC)
