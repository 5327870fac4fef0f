"""Bounds the connections of the dashboard's own server, so that no client takes all descriptors."""

import asyncio
from typing import Any, Final

import h11  # uvicorn requires it
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX: Final = 250
"""Open connections. Further ones are closed at once: a worker needs descriptors for its work."""

BACKLOG: Final = 100
"""Connections that wait to be accepted. They are accepted together, before any can be closed."""

REQUEST_SECONDS: Final = 20.0
"""A connection is closed if a request does not arrive within this time, or twice this time."""

_ARRIVING: Final = frozenset({h11.IDLE, h11.SEND_BODY})


class BoundedConnection(H11Protocol):
    """A connection of a client, who may have no token yet."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
        else:
            self.loop.call_later(REQUEST_SECONDS, self._close_if_slow, self.cycle)

    def _close_if_slow(self, last: Any) -> None:
        """Close the connection if the request after ``last`` is still arriving."""
        if self.transport.is_closing():
            return
        if self.cycle is last and self.conn.their_state in _ARRIVING:
            self.transport.abort()
        else:
            self.loop.call_later(REQUEST_SECONDS, self._close_if_slow, self.cycle)
