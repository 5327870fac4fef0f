"""What all requests share: the application, the gate, the actions, and a few threads."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

import anyio
from starlette.requests import Request

from tickwork._domain.health import Check
from tickwork.app import Tickwork
from tickwork.dashboard.actions import Actions
from tickwork.dashboard.fields import BODY_MAX
from tickwork.dashboard.gate import Gate
from tickwork.dashboard.problems import ProblemError

T = TypeVar("T")

THREADS_MAX: Final = 8
"""Requests that use the database at a time. Others wait, so that pages cannot hurt the queue."""

READ_SECONDS: Final = 10.0

CHECKS_SECONDS: Final = 5.0
"""How long the result of the health checks is shown."""


class Site:
    """What all requests share."""

    def __init__(self, app: Tickwork, *, gate: Gate, actions: Actions, streams_max: int) -> None:
        self.app = app
        self.gate = gate
        self.actions = actions
        self.streams_max = streams_max
        self._checks: tuple[float, list[Check]] | None = None
        self._threads: anyio.CapacityLimiter | None = None

    def checks(self) -> list[Check]:
        """The health checks, at most a few seconds old: pages show them again and again."""
        now = time.monotonic()
        found = self._checks
        if found is None or now - found[0] >= CHECKS_SECONDS:
            found = self._checks = (now, self.app.check_health())
        return found[1]

    async def read(self, function: Callable[[], T]) -> T:
        """Call a function that reads the database, in a thread, within a time.

        Raises:
            ProblemError: It took too long.
        """
        try:
            with anyio.fail_after(READ_SECONDS):
                return await self._in_thread(function)
        except TimeoutError:
            raise ProblemError(
                503, f"The database did not answer within {READ_SECONDS:.0f} s.", code="timeout"
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
