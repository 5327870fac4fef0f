"""Server-sent events: pages learn that something changed, and load themselves again."""

import time
from collections.abc import AsyncIterator
from typing import Final

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tickwork.dashboard.context import Site
from tickwork.dashboard.problems import ProblemError
from tickwork.errors import TickworkError

POLL_SECONDS: Final = 1.0
"""How often the database is read for all streams together."""

BEAT_SECONDS: Final = 15.0
STREAM_SECONDS: Final = 600.0
"""A stream ends after this time; the browser opens another one."""


class Pulse:
    """The state of the database in a short text, read at most once a second for all streams."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._text = ""
        self._read_at = float("-inf")
        self._lock: anyio.Lock | None = None
        self.streams = 0

    async def text(self) -> str:
        if self._lock is None:
            self._lock = anyio.Lock()
        async with self._lock:
            if time.monotonic() - self._read_at >= POLL_SECONDS:
                self._text = await self._site.read(self._site.app.inspect.pulse)
                self._read_at = time.monotonic()
            return self._text


async def open_stream(site: Site, pulse: Pulse, request: Request) -> Response:
    """A stream of events; the number of streams is bounded.

    Raises:
        ProblemError: There are too many streams.
    """
    await site.gate.find_visitor(request)
    if pulse.streams >= site.streams_max:
        raise ProblemError(
            503,
            f"{site.streams_max} pages are live already. This one shows no live changes.",
            code="streams",
            headers={"Retry-After": "60"},
        )
    pulse.streams += 1
    return EventStream(pulse, _events(pulse, request))


class EventStream(StreamingResponse):
    """Counts the stream until its connection ends, however that happens."""

    def __init__(self, pulse: Pulse, events: AsyncIterator[str]) -> None:
        super().__init__(
            events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )
        self._pulse = pulse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pulse.streams -= 1


async def _events(pulse: Pulse, request: Request) -> AsyncIterator[str]:
    yield "retry: 5000\n\n"
    known = await pulse.text()
    opened_at = sent_at = time.monotonic()
    while time.monotonic() - opened_at < STREAM_SECONDS:
        await anyio.sleep(POLL_SECONDS)
        if await request.is_disconnected():
            return
        try:
            found = await pulse.text()
        except (ProblemError, TickworkError):
            continue  # the database may be away for a while
        if found != known:
            known, sent_at = found, time.monotonic()
            yield "event: change\ndata: 1\n\n"
        elif time.monotonic() - sent_at >= BEAT_SECONDS:
            sent_at = time.monotonic()
            yield ": beat\n\n"
