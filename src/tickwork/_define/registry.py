"""Every job that this process knows, by name."""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import getattr_static, ismethod
from threading import RLock
from typing import Any, Final

from tickwork._define.definition import Declaration, Definition, define
from tickwork._define.engine_choice import check_engine
from tickwork._define.options import NO_OPTIONS, JobOptions
from tickwork._handlers.handlers import (
    Handler,
    check_function,
    handler_for_types,
    handler_of,
    import_handler,
    import_row_handler,
    is_path,
    path_of,
    place_of_caller,
)
from tickwork._handlers.middleware import Middleware, MiddlewarePair, check_middleware
from tickwork._handlers.payloads import HandlerPayload, encode_data
from tickwork._kernel.loggers import get_logger
from tickwork._payload.codec import SIZE_MAX
from tickwork._payload.payload_types import Codec
from tickwork.errors import (
    DefinitionError,
    DuplicateDefinition,
    HandlerNotAllowed,
    InvalidOption,
    JobNotFound,
    ScheduleNameTaken,
    suggest,
)

_log: Final = get_logger("tickwork.queues")


class Registry:
    """Declarations by name, and the definitions that follow from them.

    Builders change declarations after they were added, so definitions are built when they
    are first read after a change. Until the next change a lookup is that of a dictionary.
    """

    def __init__(
        self,
        *,
        handler_paths: Iterable[str] = (),
        size_max: int = SIZE_MAX,
        redact: Iterable[str] = (),
        engines: Collection[str] | None = None,
        defaults: JobOptions = NO_OPTIONS,
        queues: Iterable[str] = (),
    ) -> None:
        self.handler_paths: tuple[str, ...] = tuple(handler_paths)
        self.codec: Codec = Codec(size_max=size_max, on_change=self._forget_built)
        self._size_max = size_max
        self._redact = frozenset(redact)
        self._engines = engines
        self.defaults = defaults
        self._lock = RLock()
        self._declarations: dict[str, list[Declaration]] = {}
        self._handlers: list[Any] = []
        self._resolved: dict[str, Definition] = {}  # by path or by job type, on demand
        self._built: dict[Declaration, Definition] = {}
        self._by_name: dict[str, Definition] = {}
        self.current: Mapping[str, Definition] = {}
        """The definitions by name; empty from a change until they are built again."""
        self._imported: dict[str, object] = {}  # by path
        self._is_stale = True
        self._middleware: tuple[MiddlewarePair, ...] = ()
        self.queues: frozenset[str] = frozenset(queues)
        self._unknown_queues: set[str] = set()

    # ------------------------------------------------------------ adding

    def add(self, declaration: Declaration) -> None:
        """Add a declaration to which a builder may add options later."""
        with self._lock:
            self._append(declaration)
            self._mark_stale()

    def add_complete(self, declaration: Declaration) -> None:
        """Add a declaration that will not change any more. On an error, nothing is added."""
        with self._lock, self._all_or_none([declaration]):
            self._append_complete(declaration)

    def add_all(self, declarations: Sequence[Declaration]) -> None:
        """Add several complete declarations: all of them, or none on an error."""
        with self._lock, self._all_or_none(declarations):
            for declaration in declarations:
                self._append_complete(declaration)
            _check_names(self._declarations.values())
            _check_limits(self._declarations.values())

    def replace(self, declaration: Declaration) -> None:
        """Add a job that only this process knows, in place of any other of that name."""
        with self._lock:
            self._declarations[declaration.name] = [declaration]
            self._mark_stale()

    def mark_changed(self) -> None:
        """Note that a builder changed a declaration that was added before."""
        with self._lock:
            self._mark_stale()

    def add_handler(self, instance: Any) -> None:
        for method in ("supports", "handle"):
            if not callable(getattr(instance, method, None)):
                raise DefinitionError(
                    f"{path_of(type(instance))} cannot be registered: it has no {method}().",
                    fix="A handler needs supports(job_type) and handle(run).",
                )
        with self._lock:
            self._handlers.append(instance)
            # Resolve job types again: two handlers may support the same type now.
            self._forget_built()

    def _forget_built(self) -> None:
        with self._lock:
            self._resolved.clear()
            self._built.clear()
            self._mark_stale()

    def _mark_stale(self) -> None:
        self._is_stale = True
        self.current = {}

    def add_middleware(self, middleware: Middleware, *, on_loop: Middleware | None = None) -> None:
        """Wrap the attempts of every job, inside of those that were added before.

        ``on_loop`` wraps those on the event loop of a worker instead, if it is given.
        """
        pair = MiddlewarePair(middleware, on_loop or middleware)
        for each in pair:
            check_middleware(each)
        with self._lock:
            self._middleware = (*self._middleware, pair)
            self._forget_built()

    # ------------------------------------------------------------ reading

    def definitions(self) -> Mapping[str, Definition]:
        """Return all jobs by name and alias, checked as a whole."""
        if self._is_stale:
            self._import_paths()
        with self._lock:
            if self._is_stale:
                # Cleared first: a module that is imported meanwhile may declare a job.
                self._is_stale = False
                try:
                    self._by_name = self._build()
                except BaseException:
                    self._is_stale = True
                    raise
                if not self._is_stale:
                    self.current = self._by_name
            return self._by_name

    def schedules(self) -> list[Declaration]:
        """Return every declaration that has a rule, each once."""
        self.definitions()
        with self._lock:
            first = [declarations[0] for declarations in self._declarations.values()]
        return [each for each in first if each.timing.has_rule and not each.is_adhoc]

    @property
    def is_empty(self) -> bool:
        """Whether this process knows no job at all, so that it cannot detect a wrong name."""
        return not self._handlers and all(each.is_adhoc for each in self.definitions().values())

    def get(self, name: str) -> Definition:
        """Return a job by its name, an alias, the path of its handler, or its type.

        Raises:
            JobNotFound: This process does not know it.
            HandlerNotAllowed: The name is a path that is not allowed in a stored run.
        """
        known = self.definitions().get(name) or self._resolved.get(name)
        return self._resolve(name) if known is None else known

    def encode_data(self, data: Any) -> str:
        """Encode the data of an event.

        Raises:
            PayloadError: It cannot be stored.
        """
        return encode_data(self.codec, data, size_max=self._size_max)

    def find(self, name: str) -> Definition | None:
        """Return a job; None if this process does not know it, for whatever reason."""
        try:
            return self.get(name)
        except Exception:  # noqa: BLE001  # a row may name a module that fails in any way
            return None

    def find_conflict(self, declaration: Declaration) -> DuplicateDefinition | None:
        """Return the error that adding this declaration would raise, if any."""
        with self._lock:
            others = self._declarations.get(declaration.name, [])
        for other in others:
            if not _is_same_target(other, declaration) or not other.is_like(declaration):
                return _duplicate(other, declaration)
        return None

    def check_queue(self, queue: str) -> None:
        """Log a warning if the application declares its queues, and this is none of them."""
        if not self.queues or queue in self.queues or queue in self._unknown_queues:
            return
        self._unknown_queues.add(queue)  # one warning for each
        known = sorted(self.queues)
        hint = suggest(queue, known) or "Add it to queues=[...] of the application."
        _log.warning(
            "The queue %r is not one of the application's queues: %s. %s",
            queue,
            ", ".join(known),
            hint,
        )

    def job_names(self) -> list[str]:
        """Return the names and aliases of all declared jobs. It imports nothing."""
        with self._lock:
            jobs = [first for first, *_ in self._declarations.values() if not first.job]
        return [name for job in jobs for name in (job.name, *job.options.aliases)]

    def job_of(self, target: object) -> str | None:
        """Return the name of the job, if the target is a job that the decorator made."""
        # A row may lead to any object: reading its attributes must not call its code.
        name = getattr_static(target, "name", None)
        function = getattr_static(target, "__wrapped__", None)
        if not isinstance(name, str) or function is None:
            return None
        with self._lock:
            declarations = self._declarations.get(name, [])
        return name if any(each.target is function for each in declarations) else None

    def get_by_target(self, target: object) -> Definition | None:
        """Return the job whose handler is this function or class; None if there is none.

        Raises:
            DefinitionError: Several jobs have this handler.
        """
        path = path_of(target)
        with self._lock:
            jobs = [first for first, *_ in self._declarations.values() if not first.job]
        names = [each.name for each in jobs if each.target is target or each.target == path]
        if len(names) > 1:
            raise DefinitionError(
                f"{path} is the handler of {' and '.join(map(repr, names))}.",
                fix=f"Name one of these jobs: app.dispatch({names[0]!r}).",
            )
        return self.get(names[0]) if names else None

    def get_by_class(self, kind: type) -> Definition:
        """Return the job of a handler class: one that is defined, or the path of the class.

        Raises:
            HandlerNotAllowed: The class is not allowed in a stored run.
        """
        defined = self.get_by_target(kind)
        if defined is not None:
            return defined
        path = path_of(kind)
        if not is_path(path):
            reason = "The class is defined inside a function."
            raise HandlerNotAllowed(path, allowed=self.handler_paths, reason=reason)
        return self.get(path)

    def get_or_add_function(self, function: object) -> Definition:
        """Return the job of a function; define one, named after its path, if there is none.

        Raises:
            DefinitionError: Other processes could not find the function by its path.
        """
        defined = self.get_by_target(function)
        if defined is not None:
            return defined
        path = path_of(function)
        try:
            check_function(path, function, self.handler_paths)
        except HandlerNotAllowed as refused:
            raise DefinitionError(
                f"The function {path} cannot be registered.",
                why=refused.why,
                fix="Define a job: @app.job, and register that.",
            ) from None
        self.add_complete(declare(path, function, options=self.defaults))
        return self.get(path)

    def define(self, declaration: Declaration, *, is_trial: bool = False) -> Definition:
        """Build the definition of a declaration without adding it.

        In a trial, an annotation that cannot be resolved yet is no reason for a warning.
        """
        target, path = declaration.target, ""
        if isinstance(target, str):
            path = target
            target = self._imported[path] if path in self._imported else import_handler(path)
        if target is None:
            handler = self.handler_for(declaration.name)
        else:
            handler = handler_of(target, path=path)
        if handler is None:
            raise DefinitionError(
                f"The job {declaration.name!r} has no handler.",
                why="None was given, and no registered handler supports that job type.",
                fix=f"Pass one to schedule() at {declaration.place}, or register one with "
                "app.handler(...).",
            )
        self.check_engine(declaration.options.engine)
        return self._define(declaration, handler, is_trial=is_trial)

    def check_engine(self, name: str) -> None:
        """Raise an error if the application has no such engine."""
        if self._engines is not None:
            check_engine(name, self._engines)

    def _define_named(self, declaration: Declaration) -> Definition:
        try:
            return self.define(declaration)
        except InvalidOption as error:  # options that do not fit together
            error.name_job(declaration.name, declaration.place)
            raise

    def handler_for(self, job_type: str) -> Handler | None:
        instances = [instance for instance in self._handlers if instance.supports(job_type)]
        if len(instances) > 1:
            names = " and ".join(path_of(type(instance)) for instance in instances[:2])
            raise DefinitionError(
                f"Two handlers support the job type {job_type!r}: {names}.",
                fix="Return True from supports() in only one of them.",
            )
        return handler_for_types(instances[0]) if instances else None

    @contextmanager
    def _all_or_none(self, declarations: Iterable[Declaration]) -> Iterator[None]:
        before = {each.name: self._declarations.get(each.name) for each in declarations}
        try:
            yield
        except DuplicateDefinition:
            for name, others in before.items():
                self._declarations.pop(name, None)
                if others is not None:
                    self._declarations[name] = others
            raise
        finally:
            self._mark_stale()

    def _append_complete(self, declaration: Declaration) -> None:
        for other in self._append(declaration):
            _check_like(other, declaration)

    def _append(self, declaration: Declaration) -> list[Declaration]:
        """Add a declaration; return those that have the same name already."""
        before = self._declarations.get(declaration.name, [])
        for other in before:
            if not _is_same_target(other, declaration):
                raise _duplicate(other, declaration)
        if before and _is_reloaded(before[-1], declaration):
            before = []  # the newest code counts
        self._declarations[declaration.name] = [*before, declaration]
        return before

    def _import_paths(self) -> None:
        """Import handlers that are declared by path, without holding the lock.

        A module may declare jobs while another thread imports it. That thread would wait
        for our lock while we wait for its import.
        """
        while True:  # ends when the modules imported last have declared no further paths
            with self._lock:
                targets = [first.target for first, *_ in self._declarations.values()]
            paths = {path for path in targets if isinstance(path, str)} - self._imported.keys()
            if not paths:
                return
            for path in sorted(paths):
                self._imported[path] = import_handler(path)

    def _build(self) -> dict[str, Definition]:
        _check_names(self._declarations.values())
        by_name: dict[str, Definition] = {}
        built: dict[Declaration, Definition] = {}
        for declaration, *others in self._declarations.values():
            for other in others:
                _check_like(declaration, other)
            if not declaration.job or "queue" in declaration.options.explicit:
                self.check_queue(declaration.options.queue)
            if declaration.job:
                continue
            definition = self._built.get(declaration)
            if definition is None or definition.options is not declaration.options:
                definition = self._define_named(declaration)
            built[declaration] = definition
            for name in (definition.name, *definition.options.aliases):
                by_name[name] = definition
        _check_limits(self._declarations.values())
        self._built = built
        return by_name

    def payload_of(
        self,
        job: str,
        handler: Handler,
        *,
        defaults: Mapping[str, Any] = NO_OPTIONS.args,
        is_trial: bool = False,
    ) -> HandlerPayload:
        """Return what encodes and rebuilds the arguments of a handler."""
        return HandlerPayload(
            job,
            handler,
            self.codec,
            size_max=self._size_max,
            secrets=handler.parameters.secrets | self._redact,
            defaults=defaults,
            is_trial=is_trial,
        )

    def _define(
        self, declaration: Declaration, handler: Handler, *, is_trial: bool = False
    ) -> Definition:
        payload = self.payload_of(
            declaration.name, handler, defaults=declaration.options.args, is_trial=is_trial
        )
        return define(
            declaration,
            handler,
            payload=payload,
            redact=self._redact,
            middleware=self._middleware,
        )

    def _resolve(self, name: str) -> Definition:
        handler = self.handler_for(name)
        if handler is None:
            if not is_path(name):
                raise JobNotFound(name, known=self.definitions())
            try:
                target = import_row_handler(
                    name,
                    self.handler_paths,
                    is_job=lambda candidate: self.job_of(candidate) is not None,
                )
            except HandlerNotAllowed as refused:
                not_found = JobNotFound(name, known=self.definitions())
                if not_found.fix.startswith("Did you mean"):
                    raise not_found from refused
                raise
            job = self.job_of(target)
            if job is not None:
                return self.definitions()[job]
            handler = handler_of(target, path=name)
        declaration = Declaration(name=name, target=None, place=handler.path, options=self.defaults)
        definition = self._define(declaration, handler)
        self._resolved[name] = definition
        return definition


def declare(name: str, target: object, *, place: str = "", **fields: Any) -> Declaration:
    """Make a declaration that knows where in the user's code it was made."""
    module = (
        None if target is None or isinstance(target, str) else path_of(target).partition(":")[0]
    )
    return Declaration(
        name=name,
        target=target,
        place=place or place_of_caller(),
        module_spec=getattr(sys.modules.get(module or ""), "__spec__", None),
        **fields,
    )


def _is_same_target(one: Declaration, other: Declaration) -> bool:
    """Whether both name the same code, possibly of a module that was reloaded."""
    if one.job != other.job:
        return False
    if one.target is other.target or (ismethod(one.target) and one.target == other.target):
        return True
    if one.target is None or other.target is None:
        return False
    if isinstance(one.target, str) or isinstance(other.target, str):
        return _path(one) == _path(other)
    return _is_reloaded(one, other)


def _is_reloaded(old: Declaration, new: Declaration) -> bool:
    """Whether the same code was executed again and made the new declaration.

    A module that is reloaded has a new spec. A script or a notebook has none: there, a
    declaration at another line of the same file is another one.
    """
    if old.target is new.target or isinstance(old.target, str) or isinstance(new.target, str):
        return False
    if _path(old) != _path(new) or "<" in _path(new):
        return False
    if old.module_spec is not None:
        return old.module_spec is not new.module_spec
    return old.place == new.place or old.place.rpartition(":")[0] != new.place.rpartition(":")[0]


def _path(declaration: Declaration) -> str:
    target = declaration.target
    return target if isinstance(target, str) else path_of(target)


def _duplicate(first: Declaration, second: Declaration) -> DuplicateDefinition:
    if bool(first.job) != bool(second.job):
        job, schedule = (second, first) if first.job else (first, second)
        return ScheduleNameTaken("schedule", first.name, first=job.place, second=schedule.place)
    kind = "job" if not first.job else "schedule"
    return DuplicateDefinition(kind, first.name, first=first.place, second=second.place)


def _check_like(one: Declaration, other: Declaration) -> None:
    if not one.is_like(other):
        raise _duplicate(one, other)


def _check_names(by_name: Iterable[list[Declaration]]) -> None:
    """Check that no name or alias belongs to two jobs."""
    taken: dict[str, Declaration] = {}
    for declaration, *_ in by_name:
        if declaration.job:
            continue
        for name in (declaration.name, *declaration.options.aliases):
            other = taken.setdefault(name, declaration)
            if other is not declaration:
                raise DuplicateDefinition("job", name, first=other.place, second=declaration.place)


def _check_limits(by_name: Iterable[list[Declaration]]) -> None:
    """Check that jobs which share a limit agree on it."""
    taken: dict[str, tuple[int, Declaration]] = {}
    for declaration, *_ in by_name:
        for limit in declaration.options.limits:
            name = limit.name(job=declaration.name, queue=declaration.options.queue)
            slots, other = taken.setdefault(name, (limit.slots, declaration))
            if slots != limit.slots:
                raise DuplicateDefinition(
                    "limit",
                    name,
                    first=f"{other.place} ({slots})",
                    second=f"{declaration.place} ({limit.slots})",
                )
