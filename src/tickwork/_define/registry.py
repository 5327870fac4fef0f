"""Every job that this process knows, by name."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import ismethod
from threading import RLock
from typing import Any

from tickwork._define.definition import Declaration, Definition, defined
from tickwork._define.handlers import (
    Handler,
    check_allowed,
    handler_of,
    import_handler,
    is_path,
    path_of,
    place_of_caller,
    supporting,
)
from tickwork._define.options import NOTHING_SAID, JobOptions
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
        self.handler_paths: tuple[str, ...] = tuple(handler_paths)
        self._size_max = size_max
        self._redact = frozenset(redact)
        self._lock = RLock()
        self._entries: dict[str, list[Declaration]] = {}
        self._handlers: list[Any] = []
        self._found: dict[str, Definition] = {}  # by path or by job type, on demand
        self._kept: dict[Declaration, tuple[JobOptions, Definition]] = {}  # made before
        self._by_name: dict[str, Definition] = {}
        self._imported: dict[str, object] = {}  # by path
        self._is_stale = True

    # ------------------------------------------------------------ saying

    def add(self, entry: Declaration) -> None:
        """Take in what a program says under a name.

        Raises:
            DuplicateDefinition: Somebody else said something different under it.
        """
        with self._lock:
            self._take_in(entry)
            self._is_stale = True

    def add_whole(self, entry: Declaration) -> None:
        """Take in what is said in full already, or nothing of it.

        Raises:
            DuplicateDefinition: Somebody else said something different under its name.
        """
        with self._lock, self._all_or_none([entry]):
            self._take_in_whole(entry)

    def add_all(self, entries: Sequence[Declaration]) -> None:
        """Take in several, each said in full: all of them, or none.

        Raises:
            DuplicateDefinition: Somebody else said something different under one of the
                names, or about a limit that is shared.
        """
        with self._lock, self._all_or_none(entries):
            for entry in entries:
                self._take_in_whole(entry)
            _check_names(self._entries.values())
            _check_limits(self._entries.values())

    def replace(self, entry: Declaration) -> None:
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
            # Who supports a type is asked again: there may be two by now.
            self._found.clear()
            self._kept.clear()
            self._is_stale = True

    # ------------------------------------------------------------ asking

    def definitions(self) -> Mapping[str, Definition]:
        """All jobs by name and alias, checked as a whole.

        Raises:
            DefinitionError: Something that was said cannot be.
        """
        if self._is_stale:
            self._import_paths()
        with self._lock:
            if self._is_stale:
                # Cleared first: what is said while we look makes it stale again.
                self._is_stale = False
                try:
                    self._by_name = self._made()
                except BaseException:
                    self._is_stale = True
                    raise
            return self._by_name

    def schedules(self) -> list[Declaration]:
        """Everything that says when, each once."""
        self.definitions()
        with self._lock:
            first = [entries[0] for entries in self._entries.values()]
        return [entry for entry in first if entry.timing.is_said and not entry.is_adhoc]

    @property
    def is_empty(self) -> bool:
        """Whether this process knows no job at all, so that no name can be wrong here."""
        return not self._handlers and all(each.is_adhoc for each in self.definitions().values())

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
        except Exception:  # noqa: BLE001  # a row may name a module that fails in any way
            return None

    def conflict(self, entry: Declaration) -> DuplicateDefinition | None:
        """What stands against taking this in, if anything under its name does."""
        with self._lock:
            said = self._entries.get(entry.name, [])
        for other in said:
            if not _is_same_target(other, entry) or not other.is_like(entry):
                return _duplicate(other, entry)
        return None

    def job_names(self) -> list[str]:
        """The names under which jobs were defined, old ones included; nothing is imported."""
        with self._lock:
            jobs = [entry for entry, *_ in self._entries.values() if not entry.job]
        return [name for entry in jobs for name in (entry.name, *entry.options.aliases)]

    def job_of(self, target: object) -> str | None:
        """The name of the job that this is, if a decorator has made one of a function."""
        name, function = getattr(target, "name", None), getattr(target, "__wrapped__", None)
        if not isinstance(name, str) or function is None:
            return None
        with self._lock:
            said = self._entries.get(name, [])
        return name if any(entry.target is function for entry in said) else None

    def tried(self, entry: Declaration) -> Definition:
        """The definition that this would be; nothing is taken in.

        Raises:
            DefinitionError: It cannot be.
            ImportError: Its handler's module cannot be imported.
        """
        target = entry.target
        if isinstance(target, str):
            path = target
            target = self._imported[path] if path in self._imported else import_handler(path)
        handler = self.supporter(entry.name) if target is None else handler_of(target)
        if handler is None:
            raise DefinitionError(
                f"The job {entry.name!r} has no handler.",
                why="None was given, and no registered handler supports that type.",
                fix=f"Pass one to schedule(), or register one: app.handler(...). ({entry.place})",
            )
        return defined(entry, handler, size_max=self._size_max, redact=self._redact)

    @contextmanager
    def _all_or_none(self, entries: Iterable[Declaration]) -> Iterator[None]:
        before = {entry.name: self._entries.get(entry.name) for entry in entries}
        try:
            yield
        except DuplicateDefinition:
            for name, said in before.items():
                self._entries.pop(name, None)
                if said is not None:
                    self._entries[name] = said
            raise
        finally:
            self._is_stale = True

    def _take_in_whole(self, entry: Declaration) -> None:
        for other in self._take_in(entry):
            _check_like(other, entry)

    def _take_in(self, entry: Declaration) -> list[Declaration]:
        """Add an entry; return what was said under its name before."""
        before = self._entries.get(entry.name, [])
        for other in before:
            if not _is_same_target(other, entry):
                raise _duplicate(other, entry)
        if before and _is_loaded_again(before[-1], entry):
            before = []  # the newest code counts
        self._entries[entry.name] = [*before, entry]
        return before

    def _import_paths(self) -> None:
        """Import what definitions name by path, without the lock.

        A module that is being imported may define jobs, and another thread may be the one
        that imports it: it would wait for our lock while we wait for its import.
        """
        while True:  # ends when the modules imported last have named no further paths
            with self._lock:
                targets = [entry.target for entry, *_ in self._entries.values()]
            paths = {path for path in targets if isinstance(path, str)} - self._imported.keys()
            if not paths:
                return
            for path in sorted(paths):
                self._imported[path] = import_handler(path)

    def _made(self) -> dict[str, Definition]:
        _check_names(self._entries.values())
        made: dict[str, Definition] = {}
        kept: dict[Declaration, tuple[JobOptions, Definition]] = {}
        for entry, *others in self._entries.values():
            for other in others:
                _check_like(entry, other)
            if entry.job:
                continue
            # Asked for before it is used: if more is said meanwhile, it is made anew next time.
            options = entry.options
            before = self._kept.get(entry)
            is_same = before is not None and before[0] is options
            kept[entry] = before if before and is_same else (options, self.tried(entry))
            for name in (entry.name, *options.aliases):
                made[name] = kept[entry][1]
        _check_limits(self._entries.values())
        self._kept = kept
        return made

    def _resolved(self, name: str) -> Definition:
        handler = self.supporter(name)
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
            target = import_handler(name)
            job = self.job_of(target)
            if job is not None:
                return self.definitions()[job]
            handler = handler_of(target)
        entry = Declaration(name=name, target=None, place=handler.path, options=NOTHING_SAID)
        made = defined(entry, handler, size_max=self._size_max, redact=self._redact)
        self._found[name] = made
        return made

    def supporter(self, job_type: str) -> Handler | None:
        """The registered handler of a job type.

        Raises:
            DefinitionError: There are two.
        """
        found = [instance for instance in self._handlers if instance.supports(job_type)]
        if len(found) > 1:
            names = " and ".join(path_of(type(instance)) for instance in found[:2])
            raise DefinitionError(
                f"Two handlers support the job type {job_type!r}: {names}.",
                fix="Let only one of them return True from supports().",
            )
        return supporting(found[0]) if found else None


def declare(name: str, target: object, *, place: str = "", **said: Any) -> Declaration:
    """An entry that remembers where in the user's code it was made."""
    module = (
        None if target is None or isinstance(target, str) else path_of(target).partition(":")[0]
    )
    return Declaration(
        name=name,
        target=target,
        place=place or place_of_caller(),
        loading=getattr(sys.modules.get(module or ""), "__spec__", None),
        **said,
    )


def _is_same_target(one: Declaration, other: Declaration) -> bool:
    """Whether both name the same code; a module that was loaded again does."""
    if one.job != other.job:
        return False
    if one.target is other.target or (ismethod(one.target) and one.target == other.target):
        return True
    if one.target is None or other.target is None:
        return False
    if isinstance(one.target, str) or isinstance(other.target, str):
        return _path(one) == _path(other)
    return _is_loaded_again(one, other)


def _is_loaded_again(old: Declaration, new: Declaration) -> bool:
    """Whether the code of one was executed once more to make the other.

    A module that is loaded again has a new spec. A script or a notebook has none: there a
    definition at another line of the same file is another definition.
    """
    if old.target is new.target or isinstance(old.target, str) or isinstance(new.target, str):
        return False
    if _path(old) != _path(new) or "<" in _path(new):
        return False
    if old.loading is not None:
        return old.loading is not new.loading
    return old.place == new.place or old.place.rpartition(":")[0] != new.place.rpartition(":")[0]


def _path(entry: Declaration) -> str:
    return entry.target if isinstance(entry.target, str) else path_of(entry.target)


def _duplicate(first: Declaration, second: Declaration) -> DuplicateDefinition:
    kind = "job" if not first.job else "schedule"
    return DuplicateDefinition(kind, first.name, first=first.place, second=second.place)


def _check_like(one: Declaration, other: Declaration) -> None:
    if not one.is_like(other):
        raise _duplicate(one, other)


def _check_names(said: Iterable[list[Declaration]]) -> None:
    """A name is that of one job, be it as an old one."""
    taken: dict[str, Declaration] = {}
    for entry, *_ in said:
        if entry.job:
            continue
        for name in (entry.name, *entry.options.aliases):
            other = taken.setdefault(name, entry)
            if other is not entry:
                raise DuplicateDefinition("job", name, first=other.place, second=entry.place)


def _check_limits(said: Iterable[list[Declaration]]) -> None:
    """Two jobs that share a limit must agree on it."""
    taken: dict[str, tuple[int, Declaration]] = {}
    for entry, *_ in said:
        for limit in entry.options.limits:
            name = limit.name(job=entry.name, queue=entry.options.queue)
            slots, other = taken.setdefault(name, (limit.slots, entry))
            if slots != limit.slots:
                raise DuplicateDefinition(
                    "limit",
                    name,
                    first=f"{other.place} ({slots})",
                    second=f"{entry.place} ({limit.slots})",
                )
