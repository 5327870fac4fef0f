"""Sessions that their users have ended: a copy of such a cookie is refused."""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from tickwork.app.tickwork import Tickwork
from tickwork.dashboard.access import Caller, Session
from tickwork.errors import StoreError

ACTION: Final = "session.end"
KEPT_MAX: Final = 10_000
"""Ended sessions in the memory of a process whose database user may not write."""

_log: Final = logging.getLogger("tickwork.dashboard")


class DatabaseThreads(Protocol):
    """Calls functions that use the database in threads."""

    def read(self, function: Callable[[], Any]) -> Awaitable[Any]: ...
    def write(self, function: Callable[[], Any]) -> Awaitable[Any]: ...


class EndedSessions:
    """Notes ended sessions in the audit log, where every process on the database finds them.

    The log keeps its entries longer than a session lasts.
    """

    def __init__(self, app: Tickwork, threads: DatabaseThreads) -> None:
        self._app = app
        self._threads = threads
        self._kept: OrderedDict[str, None] = OrderedDict()

    async def add(self, session: Session, caller: Caller) -> None:
        """Refuse this session from now on."""
        try:
            await self._threads.write(
                lambda: self._app.audit.record(
                    ACTION, _subject_of(session), actor=caller.user.name, source=caller.address
                )
            )
        except StoreError as error:
            self._kept[session.id] = None
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
            _log.warning(
                "A session was ended in this process only: other processes accept its cookie "
                "until it expires, because the audit log could not be written. %s",
                error.what,
            )

    async def has(self, session: Session) -> bool:
        """Whether the user has ended this session, in any process on the database."""
        if session.id in self._kept:
            return True
        subject = _subject_of(session)
        return bool(
            await self._threads.read(lambda: self._app.audit.list(subject=subject, limit=1))
        )


def _subject_of(session: Session) -> str:
    return f"session/{session.id}"
