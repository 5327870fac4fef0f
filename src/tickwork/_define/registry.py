"""Every job that this process knows, by name."""

from collections.abc import Iterable, Mapping
from threading import RLock
from typing import Any

from tickwork._define.definition import Definition, Entry, defined
from tickwork._define.options import NOTHING_SAID
from tickwork._define.resolve import (
    Handler,
    check_allowed,
    handler_of,
    import_handler,
    is_path,
    path_of,
    place_of_caller,
    supporting,
)
from tickwork._kernel.codec import SIZE_MAX
from tickwork.errors import DefinitionError, DuplicateDefinition, HandlerNotAllowed, JobNotFound


class Registry:
    """Names to definitions. What the builder says later is taken in at the next look.

    A lookup is a dictionary's, until something has been said anew.
    """

    def __init__(
        self,
        *,
        handler_paths: Iterable[str] = (),
        size_max: int = SIZE_MAX,
        redact: Iterable[str] = (),
    ) -> None:
        self.handler_paths = tuple(handler_paths)
        self._size_max = size_max
        self._redact = frozenset(redact)
        self._lock = RLock()
        self._entries: dict[str, list[Entry]] = {}
        self._handlers: list[Any] = []
        self._found: dict[str, Definition] = {}  # by path or by job type, on demand
        self._by_name: dict[str, Definition] = {}
        self._is_stale = True

    # ------------------------------------------------------------ saying

    def add(self, entry: Entry) -> None:
        """Take in what a program says under a name.

        Raises:
            DuplicateDefinition: Somebody else said something different under it.
        """
        with self._lock:
            others = self._entries.setdefault(entry.name, [])
            for other in others:
                if not _is_same_target(other, entry):
                    raise _duplicate(other, entry)
            others.append(entry)
            self._is_stale = True

    def replace(self, entry: Entry) -> None:
        """Take in what is known to this process only, whatever had that name before."""
        with self._lock:
            self._entries[entry.name] = [entry]
            self._is_stale = True

    def touch(self) -> None:
        """Something more was said under a name that is here already."""
        self._is_stale = True

    def add_handler(self, instance: Any) -> None:
        """Ask this one about job types that nobody else handles."""
        for method in ("supports", "handle"):
            if not callable(getattr(instance, method, None)):
                raise DefinitionError(
                    f"{path_of(type(instance))} cannot be registered: it has no {method}().",
                    fix="A handler has supports(job_type) and handle(run).",
                )
        with self._lock:
            self._handlers.append(instance)
            self._is_stale = True

    # ------------------------------------------------------------ asking

    def definitions(self) -> Mapping[str, Definition]:
        """All jobs by name and alias, checked as a whole.

        Raises:
            DefinitionError: Something that was said cannot be.
        """
        if not self._is_stale:
            return self._by_name  # replaced as a whole, and only then no longer stale
        with self._lock:
            if self._is_stale:
                self._by_name = self._made()
                self._is_stale = False
            return self._by_name

    def schedules(self) -> list[Entry]:
        """Everything that says when, each once."""
        self.definitions()
        with self._lock:
            first = [entries[0] for entries in self._entries.values()]
        return [entry for entry in first if entry.timing.is_said and not entry.is_adhoc]

    def get(self, name: str) -> Definition:
        """One job: by name, by alias, by the path of its handler, or by its type.

        Raises:
            JobNotFound: This process does not know it.
            HandlerNotAllowed: It is a path that a row must not name.
        """
        known = self.definitions().get(name) or self._found.get(name)
        return self._resolved(name) if known is None else known

    def find(self, name: str) -> Definition | None:
        """The same; None when this process does not know it, for whatever reason."""
        try:
            return self.get(name)
        except (DefinitionError, ImportError):
            return None

    def _made(self) -> dict[str, Definition]:
        made: dict[str, Definition] = {}
        for entry, *others in self._entries.values():
            for other in others:
                if not entry.is_like(other):
                    raise _duplicate(entry, other)
            if entry.job:
                continue
            definition = self._defined(entry)
            for name in (entry.name, *entry.options.aliases):
                if name in made:
                    raise DuplicateDefinition(
                        "job", name, first=made[name].place, second=entry.place
                    )
                made[name] = definition
        _check_limits(made.values())
        return made

    def _defined(self, entry: Entry) -> Definition:
        target = entry.target
        if isinstance(target, str):
            target = import_handler(target)
        handler = self._supporter(entry.name) if target is None else handler_of(target)
        if handler is None:
            raise DefinitionError(
                f"The job {entry.name!r} has no handler.",
                why="None was given, and no registered handler supports that type.",
                fix=f"Pass one to schedule(), or register one: app.handler(...). ({entry.place})",
            )
        return defined(entry, handler, size_max=self._size_max, redact=self._redact)

    def _resolved(self, name: str) -> Definition:
        handler = self._supporter(name)
        if handler is None:
            if not is_path(name):
                raise JobNotFound(name, known=self.definitions())
            try:
                check_allowed(name, self.handler_paths)
            except HandlerNotAllowed as refused:
                close = JobNotFound(name, known=self.definitions()).fix
                if close.startswith("Did you mean"):
                    raise JobNotFound(name, known=self.definitions()) from refused
                raise
            handler = handler_of(import_handler(name))
        entry = Entry(name=name, target=None, place=handler.path, options=NOTHING_SAID)
        made = defined(entry, handler, size_max=self._size_max, redact=self._redact)
        self._found[name] = made
        return made

    def _supporter(self, job_type: str) -> Handler | None:
        found = [instance for instance in self._handlers if instance.supports(job_type)]
        if len(found) > 1:
            names = " and ".join(path_of(type(instance)) for instance in found[:2])
            raise DefinitionError(
                f"Two handlers support the job type {job_type!r}: {names}.",
                fix="Let only one of them return True from supports().",
            )
        return supporting(found[0]) if found else None


def entry_for(name: str, target: object, **said: Any) -> Entry:
    """An entry that remembers where in the user's code it was made."""
    return Entry(name=name, target=target, place=place_of_caller(), **said)


def _is_same_target(one: Entry, other: Entry) -> bool:
    """Whether both name the same code; a module that was loaded again does."""
    if one.job != other.job:
        return False
    if one.target is other.target or isinstance(one.target, str) or isinstance(other.target, str):
        return one.target == other.target
    path = path_of(one.target)
    return path == path_of(other.target) and "<" not in path


def _duplicate(first: Entry, second: Entry) -> DuplicateDefinition:
    kind = "job" if not first.job else "schedule"
    return DuplicateDefinition(kind, first.name, first=first.place, second=second.place)


def _check_limits(definitions: Iterable[Definition]) -> None:
    """Two jobs that share a limit must agree on it."""
    said: dict[str, tuple[int, Definition]] = {}
    for definition in definitions:
        for name, slots in definition.spec.slots_by_limit().items():
            before, other = said.setdefault(name, (slots, definition))
            if before != slots:
                raise DuplicateDefinition(
                    "limit",
                    name,
                    first=f"{other.place} ({before})",
                    second=f"{definition.place} ({slots})",
                )
