"""The options of one dispatch, and the methods that set them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Never, TypeVar

from tickwork._define.option_table import OF_ONE_DISPATCH
from tickwork._define.options import Duration, as_debounce, as_unique
from tickwork._domain.job import RANGES, check_priority, check_tags
from tickwork._domain.limits.debounce import Debounce
from tickwork._domain.limits.limits import OnConflict, Unique
from tickwork._domain.names import check_name
from tickwork._kernel.durations import as_delay, as_duration, later
from tickwork._kernel.instants import When, as_instant
from tickwork.errors import InvalidOption

D = TypeVar("D")


_MISSING: Final[Any] = None
"""For type checkers, a length is required. Without one, the error shows what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOptions:
    """The options of one dispatch. None: the job's own option applies."""

    at: datetime | None = None
    delay: timedelta | None = None
    queue: str | None = None
    priority: int | None = None
    unique: Unique | None = None
    debounce: Debounce | None = None
    expires: timedelta | None = None
    tags: tuple[str, ...] = ()
    tenant: str = ""
    target: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    connection: object = None

    def due_at(self, now: datetime) -> datetime:
        """When the run is due. A time in the past means now."""
        if self.at is not None:
            return max(self.at, now)
        return now if self.delay is None else later(now, self.delay)


NO_DISPATCH_OPTIONS: Final = DispatchOptions()


def apply_dispatch_options(draft: Any, options: Mapping[str, Any]) -> Any:
    """Set options of a draft by name, as commands and requests have them. None is not set."""
    for name in OF_ONE_DISPATCH:
        if options.get(name) is not None:
            draft = getattr(draft, name)(options[name])
    tags = options.get("tags")
    return draft.tags(*tags) if tags else draft


class DueOptionMethods(ABC, Generic[D]):
    """The options that a dispatch has and a job does not. ``D`` is the draft they return."""

    __slots__ = ()

    @abstractmethod
    def _draft_with(self, **changes: Any) -> D:
        """Return a draft with these options changed."""

    def at(self, when: When) -> D:
        """Run at this instant. One in the past is due at once."""
        return self._draft_with(at=as_instant(when), delay=None)

    def delay(self, length: Duration = _MISSING, *args: Never, **kwargs: Never) -> D:
        """Run this long after the dispatch. The arguments of the handler go to ``dispatch``."""
        if length is _MISSING or args or kwargs:
            named: Mapping[str, object] = kwargs
            shown = [*map(repr, args), *(f"{name}={value!r}" for name, value in named.items())]
            raise InvalidOption(
                "delay",
                ", ".join(shown) or None,
                "must be a length of time, and nothing else",
                fix=f'Write .delay("10s").dispatch({", ".join(shown)}).',
            )
        return self._draft_with(delay=as_delay(length), at=None)

    def tenant(self, tenant: str) -> D:
        """Dispatch for this tenant. Unique keys apply within one tenant."""
        return self._draft_with(tenant=check_name("tenant", tenant) if tenant else "")


class DispatchOptionMethods(DueOptionMethods[D]):
    """Every option of a dispatch. Each method returns a new draft."""

    __slots__ = ()

    _options: DispatchOptions = NO_DISPATCH_OPTIONS

    def queue(self, name: str) -> D:
        """Use this queue instead of the job's."""
        return self._draft_with(queue=check_name("queue", name, forbidden="="))

    def priority(self, priority: int) -> D:
        """Use this priority instead of the job's. Lower numbers run first."""
        return self._draft_with(priority=check_priority(priority))

    def unique(
        self,
        key: str | None = None,
        *,
        by: str | Iterable[str] = (),
        within: Duration | None = None,
        on_conflict: OnConflict | str = OnConflict.KEEP,
    ) -> D:
        """Add no second run while one with the same key is unfinished.

        ``dispatch`` then returns the earlier run, with ``is_new`` False. The key is ``key``,
        or the arguments named in ``by``, or all arguments. With ``within``, no second run is
        added for that long after the first one, whether it has finished or not. With
        ``on_conflict="replace"``, a run that waits gets everything from this dispatch, and
        ``is_replaced`` is True; a run that was claimed is not touched, and a new one is added.
        """
        return self._draft_with(unique=as_unique(key, by, within, on_conflict))

    def debounce(
        self,
        quiet: Duration,
        *,
        max: Duration | None = None,  # noqa: A002  # the public name
        by: str | Iterable[str] = (),
    ) -> D:
        """Run once, this long after the last dispatch with the same key, with its arguments.

        The run is due ``max`` after the first dispatch at the latest. The key is the arguments
        named in ``by``, or all arguments.
        """
        return self._draft_with(debounce=as_debounce(quiet, max, by))

    def expires(self, after: Duration) -> D:
        """Skip the run if it has not started this long after it was due."""
        return self._draft_with(expires=RANGES["expires"].check("expires", as_duration(after)))

    def tags(self, *tags: str) -> D:
        """Add these tags to the job's. ``tickwork runs --tag`` finds runs by them."""
        return self._draft_with(tags=check_tags(tuple(dict.fromkeys((*self._options.tags, *tags)))))

    def target(self, target: str) -> D:
        """Store an id of your own with the run, such as an order's."""
        return self._draft_with(target=check_name("target", target))

    def args(self, **args: Any) -> D:
        """Set arguments of the handler. Those passed to ``dispatch`` override them."""
        return self._draft_with(args={**self._options.args, **args})
