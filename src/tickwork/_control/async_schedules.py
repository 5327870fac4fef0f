"""``app.aio.schedules`` and ``app.aio.limits``: the same methods for coroutines."""

from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from tickwork._control.limits import LimitHolders, LimitRows, Limits
from tickwork._control.schedule_definition import (
    ScheduleChanges,
    ScheduleDefinition,
    ScheduleOptions,
)
from tickwork._control.schedule_view import ScheduleView
from tickwork._control.schedules import Handles, Instants, Schedules, Views
from tickwork._define.options import Duration
from tickwork._dispatch.job_lookup import JobRef
from tickwork._dispatch.runs import RunHandle
from tickwork._dispatch.thread_bridge import ThreadBridge
from tickwork._kernel.instants import When
from tickwork._stores.contract import LimitRow

T = TypeVar("T")


class AsyncSchedules:
    """The methods of :class:`Schedules` for coroutines: ``await app.aio.schedules.list()``."""

    def __init__(self, schedules: Callable[[], Schedules], bridge: ThreadBridge) -> None:
        self._schedules = schedules
        self._bridge = bridge

    async def _call(self, method: Callable[[Schedules], T]) -> T:
        # Created in the thread: the first use may open the database.
        return await self._bridge.call(lambda: method(self._schedules()))

    # From here on, docs/async_methods.py writes the methods.

    async def create(self, definition: ScheduleDefinition) -> ScheduleView:
        """As :meth:`Schedules.create`."""
        return await self._call(lambda each: each.create(definition))

    async def register(
        self,
        tenant: str,
        id: str,  # noqa: A002  # the public name
        start_at: When,
        every: Duration | None,
        handler: JobRef,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleView:
        """As :meth:`Schedules.register`."""
        return await self._call(
            lambda each: each.register(tenant, id, start_at, every, handler, **options)
        )

    async def unregister(self, tenant: str, id: str) -> int:  # noqa: A002  # as register
        """As :meth:`Schedules.unregister`."""
        return await self._call(lambda each: each.unregister(tenant, id))

    async def update(
        self, name: str, *, tenant: str = "", **changes: Unpack[ScheduleChanges]
    ) -> ScheduleView:
        """As :meth:`Schedules.update`."""
        return await self._call(lambda each: each.update(name, tenant=tenant, **changes))

    async def pause(
        self, name: str, *, tenant: str = "", note: str = "", until: When | None = None
    ) -> ScheduleView:
        """As :meth:`Schedules.pause`."""
        return await self._call(
            lambda each: each.pause(name, tenant=tenant, note=note, until=until)
        )

    async def resume(self, name: str, *, tenant: str = "") -> ScheduleView:
        """As :meth:`Schedules.resume`."""
        return await self._call(lambda each: each.resume(name, tenant=tenant))

    async def run_now(self, name: str, *, tenant: str = "") -> RunHandle[Any]:
        """As :meth:`Schedules.run_now`."""
        return await self._call(lambda each: each.run_now(name, tenant=tenant))

    async def backfill(
        self, name: str, *, since: When, until: When, limit: int = 1_000, tenant: str = ""
    ) -> Handles:
        """As :meth:`Schedules.backfill`."""
        return await self._call(
            lambda each: each.backfill(name, since=since, until=until, limit=limit, tenant=tenant)
        )

    async def get(self, name: str, *, tenant: str = "") -> ScheduleView:
        """As :meth:`Schedules.get`."""
        return await self._call(lambda each: each.get(name, tenant=tenant))

    async def preview(self, name: str, count: int = 10, *, tenant: str = "") -> Instants:
        """As :meth:`Schedules.preview`."""
        return await self._call(lambda each: each.preview(name, count, tenant=tenant))

    async def list(self, *, tenant: str | None = None) -> Views:
        """As :meth:`Schedules.list`."""
        return await self._call(lambda each: each.list(tenant=tenant))

    async def count_between(self, name: str, since: When, until: When, *, tenant: str = "") -> int:
        """As :meth:`Schedules.count_between`."""
        return await self._call(lambda each: each.count_between(name, since, until, tenant=tenant))

    async def page(
        self, *, tenant: str | None = None, after: tuple[str, str] | None = None, limit: int = 50
    ) -> Views:
        """As :meth:`Schedules.page`."""
        return await self._call(lambda each: each.page(tenant=tenant, after=after, limit=limit))

    # The end of these methods.


class AsyncLimits:
    """The methods of :class:`Limits` for coroutines: ``await app.aio.limits.list()``."""

    def __init__(self, limits: Callable[[], Limits], bridge: ThreadBridge) -> None:
        self._limits = limits
        self._bridge = bridge

    async def _call(self, method: Callable[[Limits], T]) -> T:
        return await self._bridge.call(lambda: method(self._limits()))

    # From here on, docs/async_methods.py writes the methods.

    async def change(self, name: str, slots: int) -> LimitRow:
        """As :meth:`Limits.change`."""
        return await self._call(lambda each: each.change(name, slots))

    async def reset(self, name: str) -> LimitRow:
        """As :meth:`Limits.reset`."""
        return await self._call(lambda each: each.reset(name))

    async def list(self) -> LimitRows:
        """As :meth:`Limits.list`."""
        return await self._call(lambda each: each.list())

    async def holders(self, name: str, *, limit: int = 5) -> LimitHolders:
        """As :meth:`Limits.holders`."""
        return await self._call(lambda each: each.holders(name, limit=limit))

    # The end of these methods.
