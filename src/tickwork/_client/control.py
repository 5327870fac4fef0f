"""What an operator says at run time: pauses of queues and jobs, and limits."""

from collections.abc import Callable
from datetime import datetime
from difflib import get_close_matches
from typing import Final, TypeAlias

from tickwork._define.registry import Registry
from tickwork._domain.limits import SLOTS_MAX
from tickwork._domain.names import check_name
from tickwork._domain.schedules.interval import is_whole
from tickwork._kernel.clock import Clock
from tickwork._kernel.instants import When, as_instant
from tickwork.errors import InvalidOption, JobNotFound
from tickwork.stores.contract import LimitRow, Pause, PauseKind, Store

NOTE_MAX: Final = 1_000
"""Characters in a note about a pause."""

# Inside of the classes, ``list`` is a verb.
LimitRows: TypeAlias = list[LimitRow]
Paused: TypeAlias = list[Pause]


class Pauses:
    """Queues and jobs that a person has stopped: their runs wait, and nothing is lost."""

    def __init__(self, *, store: Store, clock: Clock, registry: Registry) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry
        self.on_resumed: Callable[[], None] | None = None

    def pause(self, *, queue: str | None, job: str | None, note: str, until: When | None) -> Pause:
        """Stop a queue or a job, until it is resumed or until an instant."""
        kind, name = _chosen(queue, job)
        if kind is PauseKind.JOB:
            name = self._known(name)
        now = self._clock.now()
        made = Pause(kind, name, now, check_note(note), check_until(until, now))
        self._store.pause(made)
        return made

    def resume(self, *, queue: str | None, job: str | None) -> bool:
        """Let a queue or a job go on; False when it was not paused."""
        kind, name = _chosen(queue, job)
        definition = self._registry.definitions().get(name) if kind is PauseKind.JOB else None
        is_resumed = self._store.resume(kind, name if definition is None else definition.name)
        if is_resumed and self.on_resumed is not None:
            self.on_resumed()
        return is_resumed

    def list(self) -> Paused:
        """What is paused now."""
        now = self._clock.now()
        return [row for row in self._store.list_pauses() if row.until is None or row.until > now]

    def _known(self, name: str) -> str:
        definition = self._registry.find(name)
        if definition is not None:
            return definition.name
        # Another program's job is known to the database, once it was started.
        known = {row.name for row in self._store.list_jobs()}
        known.update(self._store.scheduled_jobs())
        if name not in known and not self._registry.is_empty:
            raise JobNotFound(name, known=known | set(self._registry.definitions()))
        return name


class Limits:
    """``app.limits``: what an operator says about limits beats code, until it is reset."""

    def __init__(self, *, store: Store, clock: Clock, registry: Registry) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry
        self.on_resumed: Callable[[], None] | None = None

    def change(self, name: str, slots: int) -> LimitRow:
        """Let so many run at a time, from the next claim on; 0 is as many as there are.

        Names are those of :meth:`list`: ``job:send_email``, ``queue:emails``,
        ``account_id:send_email``. Runs that are under way go on.

        Raises:
            InvalidOption: There is no such limit, or it cannot have so many slots.
        """
        if not is_whole(slots) or not 0 <= slots <= SLOTS_MAX:
            raise InvalidOption("slots", slots, f"must be between 0 and {SLOTS_MAX:,}")
        return self._say(name, slots)

    def reset(self, name: str) -> LimitRow:
        """Go back to what code says.

        Raises:
            InvalidOption: There is no such limit.
        """
        return self._say(name, None)

    def list(self) -> LimitRows:
        """All limits: what code says, what an operator says instead, and what is in force."""
        return self._store.list_limits()

    def _say(self, name: str, slots: int | None) -> LimitRow:
        known = {row.name for row in self._store.list_limits()} | self._defined()
        if name not in known:
            close = get_close_matches(str(name), known, n=1)
            raise InvalidOption(
                "limit",
                name,
                "must be the name of a limit",
                fix=f"Did you mean {close[0]!r}?"
                if close
                else f"The limits are: {', '.join(sorted(known)) or 'none'}.",
            )
        self._store.change_limit(name, slots, now=self._clock.now())
        if self.on_resumed is not None:
            self.on_resumed()
        return next(row for row in self._store.list_limits() if row.name == name)

    def _defined(self) -> set[str]:
        """Limits of this program, which may not have been written down yet."""
        definitions = self._registry.definitions().values()
        return {name for each in definitions for name in each.spec.slots_by_limit()}


def check_note(note: str) -> str:
    """A note about a pause.

    Raises:
        InvalidOption: It is too long.
    """
    if len(note) > NOTE_MAX:
        raise InvalidOption("note", note, f"must be a string of at most {NOTE_MAX:,} characters")
    return note


def check_until(until: When | None, now: datetime) -> datetime | None:
    """Until when a pause lasts; None is until somebody ends it.

    Raises:
        InvalidOption: It has passed.
        NaiveDatetime: It has no time zone.
    """
    if until is None:
        return None
    moment = as_instant(until, option="until")
    if moment <= now:
        raise InvalidOption("until", moment.isoformat(), "must be in the future")
    return moment


def _chosen(queue: str | None, job: str | None) -> tuple[PauseKind, str]:
    if (queue is None) == (job is None):
        raise InvalidOption(
            "queue or job", (queue, job), "must be given, and not both", fix='Write queue="emails".'
        )
    if queue is not None:
        return PauseKind.QUEUE, check_name("queue", queue, forbidden="=")
    return PauseKind.JOB, check_name("job", job, forbidden="=")
