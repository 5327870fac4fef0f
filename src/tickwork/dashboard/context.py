"""What all requests share: the application, the authenticator, the actions, and a few threads."""

import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeVar

import anyio
from starlette.requests import Request

from tickwork._domain.health import Check
from tickwork._kernel.read_limit import limit_reads
from tickwork.app.tickwork import Tickwork
from tickwork.dashboard.access import Caller
from tickwork.dashboard.actions import Actions
from tickwork.dashboard.authentication import Authenticator
from tickwork.dashboard.ended_sessions import EndedSessions
from tickwork.dashboard.fields import BODY_MAX
from tickwork.dashboard.problems import ProblemError
from tickwork.dashboard.request_limit import RequestLimit
from tickwork.errors import ReadTimeout

T = TypeVar("T")

THREADS_MAX: Final = 8
"""Requests that use the database at a time. Others wait, so that pages cannot hurt the queue."""

WAIT_SECONDS: Final = 5.0
"""How much longer a request waits than its reads may take: for a thread, and for the database to
end a read."""

CHECKS_SECONDS: Final = 5.0
"""How long the result of the health checks is shown."""


class DashboardContext:
    """What all requests share."""

    def __init__(
        self,
        app: Tickwork,
        *,
        make_authenticator: Callable[[EndedSessions], Authenticator],
        actions: Actions,
        read_timeout: timedelta,
        request_limit: RequestLimit,
    ) -> None:
        self.app = app
        self.authenticator = make_authenticator(EndedSessions(app, self))
        self.actions = actions
        self._read_timeout = read_timeout
        self._request_limit = request_limit
        self._checks: tuple[float, list[Check]] | None = None
        self._threads: anyio.CapacityLimiter | None = None
        self.read_seconds = 0.0  # of the slowest of the last reads

    def checks(self) -> list[Check]:
        """The health checks, at most a few seconds old: pages show them again and again."""
        now = time.monotonic()
        found = self._checks
        if found is None or now - found[0] >= CHECKS_SECONDS:
            found = self._checks = (now, self.app.check_health())
        return found[1]

    def count_request(self, caller: Caller) -> None:
        """Count a request of the API.

        Raises:
            ProblemError: The user has made too many.
        """
        self._count(f"user {caller.user.name}")

    def count_address(self, address: str) -> None:
        """Count a request that needs no user.

        Raises:
            ProblemError: There were too many from this address.
        """
        self._count(f"address {address}")

    def _count(self, client: str) -> None:
        seconds = self._request_limit.take(client, now=time.monotonic())
        if seconds:
            raise ProblemError(
                429,
                "You make too many requests.",
                code="request-limit",
                fix="Wait for as long as Retry-After says.",
                headers={"Retry-After": str(math.ceil(seconds))},
            )

    async def read(self, function: Callable[[], T]) -> T:
        """Call a function that reads the database, in a thread, within a time.

        Raises:
            ReadTimeout: The database took too long, and has ended the read.
            ProblemError: There was no answer for a long time.
        """

        def run() -> T:
            begun = time.monotonic()
            try:
                with limit_reads(self._read_timeout):
                    return function()
            finally:
                took = time.monotonic() - begun
                self.read_seconds = max(took, 0.9 * self.read_seconds)

        seconds = self._read_timeout.total_seconds() + WAIT_SECONDS
        try:
            with anyio.fail_after(seconds):
                return await self._in_thread(run)
        except ReadTimeout:
            raise
        except TimeoutError:
            raise ProblemError(
                503,
                f"There was no answer within {seconds:.0f} s.",
                code="timeout",
                fix="Other requests may be slow: try again later.",
                headers={"Retry-After": "10"},
            ) from None

    async def write(self, function: Callable[[], T]) -> T:
        """Call a function that changes something, in a thread."""
        return await self._in_thread(function)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(THREADS_MAX)
        # An abandoned thread keeps its place until the database has answered.
        return await anyio.to_thread.run_sync(
            function, abandon_on_cancel=True, limiter=self._threads
        )


async def read_body_bytes(request: Request) -> bytes:
    """The body of a request.

    Raises:
        ProblemError: It is too large.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_MAX:
            raise ProblemError(413, f"The body must have at most {BODY_MAX // 2**20} MiB.")
        parts.append(part)
    return b"".join(parts)
