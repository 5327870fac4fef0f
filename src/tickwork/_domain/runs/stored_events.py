"""Events that programs store, and for which runs wait. The first one of a name and key wins."""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

NAME_MAX: Final = 200
"""The longest name or key of an event, in characters."""

KEPT: Final = timedelta(days=30)
"""How long an event is kept for runs that wait for it later."""


FOREVER: Final = datetime(9998, 1, 1, tzinfo=UTC)
"""When a run is due that waits without a limit: only its event continues it."""


class EventName(NamedTuple):
    """What identifies an event: one is stored for each name and key of a tenant."""

    tenant: str
    event: str
    key: str

    @property
    def gate_key(self) -> str:
        """The key of its lock row."""
        return f"event:{self.tenant}\0{self.event}\0{self.key}"


class NewEvent(NamedTuple):
    """An event that is not stored yet. ``data`` is JSON text; the id belongs to this emit."""

    id: str
    name: EventName
    data: str
    at: datetime
    until: datetime
