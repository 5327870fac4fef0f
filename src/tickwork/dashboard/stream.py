"""Server-sent events: they notify pages of changes, and the pages load themselves again."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Final

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tickwork.dashboard.context import DashboardContext
from tickwork.dashboard.problems import ProblemError
from tickwork.errors import TickworkError

POLL_SECONDS: Final = 1.0
"""How often the database is read for all streams together."""

DELAY_FACTOR: Final = 50
DELAY_MAX: Final = 5.0
"""After a change, a live page waits 50 times as long as its reads take, up to 5 seconds.

So live pages cost a worker on the same machine little, however large the tables are.
"""

KEEPALIVE_SECONDS: Final = 15.0
"""How often an idle stream sends a comment, so that proxies do not close the connection."""

STREAM_SECONDS: Final = 600.0
"""A stream ends after this time; the browser opens another one."""


class ChangeDetector:
    """Finds out whether rows have changed: one read a second at most, for all streams together."""

    def __init__(self, context: DashboardContext) -> None:
        self._context = context
        self._text = ""
        self._read_at = float("-inf")
        self._lock: anyio.Lock | None = None

    async def fingerprint(self) -> str:
        if self._lock is None:
            self._lock = anyio.Lock()
        async with self._lock:
            if time.monotonic() - self._read_at >= POLL_SECONDS:
                self._text = await self._context.read(self._context.app.inspect.fingerprint)
                self._read_at = time.monotonic()
            return self._text

    @property
    def delay(self) -> float:
        """Seconds between two changes that a page is notified of."""
        return min(max(POLL_SECONDS, DELAY_FACTOR * self._context.read_seconds), DELAY_MAX)


class StreamLimits:
    """Counts the open streams: of this server, and of each client."""

    def __init__(self, *, server_max: int, client_max: int) -> None:
        self._server_max = server_max
        self._client_max = client_max
        self._open: Counter[str] = Counter()

    @property
    def open(self) -> int:
        return self._open.total()

    def add(self, client: str) -> None:
        """Count one more stream.

        Raises:
            ProblemError: The client has too many, or the server.
        """
        if self._open[client] >= self._client_max:
            raise _refusal(429, f"You have {self._client_max} live pages already.")
        if self.open >= self._server_max:
            raise _refusal(503, f"{self._server_max} pages are live already.")
        self._open[client] += 1

    def remove(self, client: str) -> None:
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]


def _refusal(status: int, reason: str) -> ProblemError:
    return ProblemError(
        status,
        f"{reason} This one shows no live changes.",
        code="streams",
        fix="Close other pages, or load this one again to see changes.",
        headers={"Retry-After": "60"},
    )


async def open_stream(
    context: DashboardContext, changes: ChangeDetector, limits: StreamLimits, request: Request
) -> Response:
    """Open a stream of events, if there are not too many.

    Raises:
        ProblemError: There are too many streams.
    """
    caller = await context.authenticator.authenticate(request)
    # The user and the address: many people may share a token, or an address of a proxy.
    client = f"{caller.user.name} {caller.address}"
    limits.add(client)
    events = _events(context, changes, request)
    return EventStream(events, end=lambda: limits.remove(client))


class EventStream(StreamingResponse):
    """Counts the stream until its connection ends, however that happens."""

    def __init__(self, events: AsyncIterator[str], *, end: Callable[[], None]) -> None:
        super().__init__(
            events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


async def _events(
    context: DashboardContext, changes: ChangeDetector, request: Request
) -> AsyncIterator[str]:
    known = await changes.fingerprint()
    # After that: a change from here on is reported, so the client may count on it.
    yield "retry: 5000\n\n"
    opened_at = sent_at = time.monotonic()
    while time.monotonic() - opened_at < STREAM_SECONDS:
        await anyio.sleep(POLL_SECONDS)
        if await request.is_disconnected():
            return
        try:
            found = await changes.fingerprint()
            if found != known:
                await context.authenticator.authenticate(request)
        except (ProblemError, TickworkError) as error:
            if isinstance(error, ProblemError) and error.status in {401, 403}:
                return  # the user has signed out, or lost the role
            continue  # the database may be away for a while
        if found != known:
            known, sent_at = found, time.monotonic()
            yield "event: change\ndata: 1\n\n"
            await anyio.sleep(changes.delay - POLL_SECONDS)
        elif time.monotonic() - sent_at >= KEEPALIVE_SECONDS:
            sent_at = time.monotonic()
            yield ": keep-alive\n\n"
