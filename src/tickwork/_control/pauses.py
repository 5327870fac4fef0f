"""Pauses of queues and jobs: their runs wait, and none is lost."""

from datetime import datetime
from typing import Final, TypeAlias

from tickwork._define.registry import Registry
from tickwork._domain.names import check_name
from tickwork._kernel.clock import Clock
from tickwork._kernel.instants import When, as_instant
from tickwork._stores.contract import Pause, PauseKind, Store
from tickwork.errors import InvalidOption, JobNotFound

NOTE_MAX: Final = 1_000
"""Characters in the note of a pause."""

# Inside the class, ``list`` is a method.
PauseRows: TypeAlias = list[Pause]


class Pauses:
    """Pauses and resumes queues and jobs."""

    def __init__(self, *, store: Store, clock: Clock, registry: Registry) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry

    def pause(self, *, queue: str | None, job: str | None, note: str, until: When | None) -> Pause:
        """Pause a queue or a job, until it is resumed or until an instant."""
        kind, name = _kind_and_name(queue, job)
        if kind is PauseKind.JOB:
            name = self._known_job(name)
        else:
            self._registry.check_queue(name)
        now = self._clock.now()
        made = Pause(kind, name, now, check_note(note), check_until(until, now))
        self._store.pause(made)
        return made

    def resume(self, *, queue: str | None, job: str | None) -> bool:
        """Resume a queue or a job; False if it was not paused."""
        kind, name = _kind_and_name(queue, job)
        definition = self._registry.definitions().get(name) if kind is PauseKind.JOB else None
        return self._store.resume(kind, name if definition is None else definition.name)

    def list(self) -> PauseRows:
        """The queues and jobs that are paused now."""
        now = self._clock.now()
        return [row for row in self._store.list_pauses() if row.until is None or row.until > now]

    def _known_job(self, name: str) -> str:
        definition = self._registry.find(name)
        if definition is not None:
            return definition.name
        # The database knows the jobs of other programs, once those have started.
        known = {row.name for row in self._store.list_jobs()}
        known.update(self._store.scheduled_jobs())
        if name not in known and not self._registry.is_empty:
            raise JobNotFound(name, known=known | set(self._registry.definitions()))
        return name


def check_note(note: str) -> str:
    """The note of a pause.

    Raises:
        InvalidOption: It is too long.
    """
    if len(note) > NOTE_MAX:
        raise InvalidOption("note", note, f"must be a string of at most {NOTE_MAX:,} characters")
    return note


def check_until(until: When | None, now: datetime) -> datetime | None:
    """The end of a pause; None if it lasts until it is resumed.

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


def _kind_and_name(queue: str | None, job: str | None) -> tuple[PauseKind, str]:
    if (queue is None) == (job is None):
        raise InvalidOption(
            "queue or job", (queue, job), "must be given, and not both", fix='Write queue="emails".'
        )
    if queue is not None:
        return PauseKind.QUEUE, check_name("queue", queue, forbidden="=")
    return PauseKind.JOB, check_name("job", job, forbidden="=")
