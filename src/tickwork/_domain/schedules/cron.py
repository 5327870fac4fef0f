"""``Cron``: a cron expression in a time zone."""

from datetime import tzinfo
from typing import Self

from tickwork._domain.schedules.calendar import CalendarRule
from tickwork._domain.schedules.grammar import parse_cron
from tickwork._domain.schedules.text import encode_rule
from tickwork._domain.schedules.zones import UTC_ZONE, Zone


class Cron(CalendarRule):
    """A cron expression in a time zone.

    It has five fields (minute, hour, day of month, month, day of week), or six if the first one
    is seconds. If both day fields are restricted, either may match, as in Vixie's cron. A job at
    a fixed time of day runs once a day, also when clocks change. A job with a star in its time
    fields follows the wall clock:

    >>> from datetime import datetime, UTC
    >>> nightly = Cron.parse("30 2 * * *", tz="Europe/Berlin")
    >>> spring = datetime(2026, 3, 28, 12, tzinfo=UTC)
    >>> [str(t) for t in nightly.take(2, spring)]  # 02:30 does not exist on the 29th
    ['2026-03-29 03:00:00+02:00', '2026-03-30 02:30:00+02:00']
    >>> nightly.describe()
    'at 02:30 (Europe/Berlin)'
    """

    __slots__ = ("expr", "key")

    expr: str
    key: str | None

    def __init__(self, expr: str, tz: str | tzinfo = "UTC", key: str | None = None) -> None:
        values, is_hashed = parse_cron(expr, key)
        # An unused key must not make equal rules unequal.
        key = key if is_hashed else None
        zone = UTC_ZONE if tz == "UTC" else Zone.named(tz)
        object.__setattr__(self, "expr", expr)
        object.__setattr__(self, "key", key)
        super().__init__((expr, key, zone.name), values, zone)

    @classmethod
    def parse(cls, expr: str, tz: str | tzinfo = "UTC", key: str | None = None) -> Self:
        """Parse an expression. ``H`` stands for a value derived from ``key``, the schedule's name.

        Raises:
            CronError: The expression does not parse.
            InvalidSchedule: There is no such time zone.
        """
        return cls(expr, tz, key)

    def to_text(self) -> str:
        """The rule as text, for storage."""
        return encode_rule("cron", expr=self.expr, key=self.key, tz=self.tz)

    def __repr__(self) -> str:
        key = "" if self.key is None else f", key={self.key!r}"
        return f"Cron.parse({self.expr!r}, tz={self.tz!r}{key})"

    def __reduce__(self) -> tuple[object, ...]:
        return Cron, (self.expr, self.tz, self.key)
