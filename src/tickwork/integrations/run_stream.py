"""Streams the progress of a run to a browser, as server-sent events, with Starlette or FastAPI."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from tickwork._define.options import Duration
from tickwork._dispatch.runs import RunHandle
from tickwork._domain.runs.run import Run
from tickwork._kernel.durations import as_duration
from tickwork._payload.codec import decode
from tickwork.errors import ExtraMissing, InvalidOption, RunNotFound

try:
    from starlette.responses import StreamingResponse
except ImportError as missing:
    raise ExtraMissing("starlette", extra="fastapi") from missing

__all__ = ["stream_progress"]

KEEPALIVE_SECONDS: Final = 15.0
"""How often an idle stream sends a comment, so that proxies do not close the connection."""
HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


async def stream_progress(run: RunHandle[Any], *, poll: Duration = "1s") -> StreamingResponse:
    """Respond with events about a run until it has finished.

    An event ``progress`` has the status of the run, and the share and the note of
    ``ctx.progress``. It is sent at the beginning and after each change. The last event is
    ``end``. Results are not sent::

        @api.get("/exports/{run_id}/events")
        async def follow(run_id: str) -> StreamingResponse:
            return await stream_progress(await app.aio.get_run(run_id))

    Each stream reads its run once in ``poll``.

    Raises:
        RunNotFound: There is no such run. Nothing was sent.
        InvalidOption: ``poll`` is not positive.
    """
    seconds = as_duration(poll).total_seconds()
    if seconds <= 0:
        raise InvalidOption("poll", poll, "must be positive")
    first = await run.aio.read()
    events = _events(run, first, seconds)
    return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS)


async def _events(run: RunHandle[Any], first: Run, seconds: float) -> AsyncIterator[str]:
    sent, sent_at = None, 0.0
    # It ends with the run. The server cancels it when the client has gone.
    while True:
        values = _values(first)
        if first.is_finished:
            yield _event("end", values)
            return
        if values != sent:
            sent, sent_at = values, time.monotonic()
            yield _event("progress", values)
        elif time.monotonic() - sent_at >= KEEPALIVE_SECONDS:
            sent_at = time.monotonic()
            yield ":\n\n"
        await asyncio.sleep(seconds)
        try:
            first = await run.aio.read()
        except RunNotFound:  # it was pruned
            return


def _values(run: Run) -> dict[str, Any]:
    progress = {} if run.progress is None else decode(run.progress)
    return {
        "status": run.status.value,
        "share": progress.get("share"),
        "note": progress.get("note", ""),
    }


def _event(name: str, values: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(values)}\n\n"
