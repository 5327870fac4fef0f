"""The alerts of one server, found again after a few seconds; and where a page links to."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlencode

from tickwork._domain.health import Check
from tickwork._inspect.alerts import OpenAlert
from tickwork.app.tickwork import Tickwork
from tickwork.dashboard.presentation import path_part
from tickwork.errors import TickworkError

ALERTS_SECONDS: Final = 2.0
"""How long the alerts are shown before they are found again."""

RETRY_SECONDS: Final = 30.0
"""How long pages do without a new count after alerts could not be found."""

LINKS: Final = {
    "workers": ("/workers", "Workers"),
    "outcomes": ("/workers", "Workers"),
    "leases": ("/runs?status=running", "Running runs"),
    "backlog": ("/queues", "Queues"),
    "known jobs": ("/queues", "Queues"),
    "schedules": ("/schedules", "Schedules"),
}

_log: Final = logging.getLogger("tickwork.dashboard")


class AlertBook:
    """The alerts of one application, for all pages of this server."""

    def __init__(self, app: Tickwork, checks: Callable[[], Sequence[Check]]) -> None:
        self._app = app
        self._checks = checks
        self._lock = threading.Lock()
        self._found: tuple[float, list[OpenAlert]] | None = None  # when, by the monotonic clock
        self._retry_at = float("-inf")

    def current(self) -> list[OpenAlert]:
        """The alerts, the worst first, at most a few seconds old."""
        with self._lock:
            now = time.monotonic()
            if self._found is None or now - self._found[0] >= ALERTS_SECONDS:
                self._found = (now, self._find())
            return self._found[1]

    def count(self) -> int:
        """The number of alerts, for every page: one that is slow to find must not delay them."""
        if not self._lock.acquire(blocking=False):
            return self.last_count()  # another request finds them
        try:
            now = time.monotonic()
            if now >= self._retry_at and (
                self._found is None or now - self._found[0] >= ALERTS_SECONDS
            ):
                self._found = (now, self._find())
        except TickworkError as error:
            self._retry_at = time.monotonic() + RETRY_SECONDS
            _log.warning("Alerts cannot be counted: %s", error)
        finally:
            self._lock.release()
        return self.last_count()

    def last_count(self) -> int:
        """The number of alerts when they were last found: for pages without a database."""
        return 0 if self._found is None else sum(each.is_counted for each in self._found[1])

    def forget(self) -> None:
        """Find the alerts again: one was muted, or something was resumed."""
        self._found = None

    def _find(self) -> list[OpenAlert]:
        return self._app.inspect.find_alerts(self._checks())


def link_of(alert: OpenAlert) -> tuple[str, str]:
    """The path and the label of the page that shows more about an alert."""
    tenant = {"tenant": alert.tenant} if alert.tenant else {}
    if alert.job:
        query = urlencode({"job": alert.job, "status": "failed_permanent", **tenant})
        return f"/runs?{query}", "Its failures"
    if alert.schedule:
        tail = f"?{urlencode(tenant)}" if tenant else ""
        return f"/schedules/{path_part(alert.schedule)}{tail}", "Why?"
    return LINKS.get(alert.kind, ("", ""))
