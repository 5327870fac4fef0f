"""Jobs and schedules that a file declares: ``tickwork.toml``.

Everything that is wrong is found before anything is taken in, and told together.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final

from tickwork._define.config_rule import WORDS as TIMING_WORDS
from tickwork._define.config_rule import Symbols, check_pattern, timing_at
from tickwork._define.definition import Declaration, Definition, schedule_spec
from tickwork._define.handlers import handler_of
from tickwork._define.import_path import FAULTY, imported_at
from tickwork._define.options import (
    SCHEDULE_OPTIONS,
    WORDS,
    JobOptions,
    names_taken_by,
    options_by_name,
)
from tickwork._define.registry import Registry, declare
from tickwork._define.toml_document import Document, shown
from tickwork._define.toml_lines import Path
from tickwork._domain.names import checked_name
from tickwork._domain.schedules.pattern import SYMBOLS
from tickwork._domain.schedules.timing import Timing
from tickwork.errors import ArgumentError, InvalidOption, TickworkError

TABLES: Final = ("tickwork", "symbols", "jobs", "schedules")

# What other schedulers call things: the builder's words say the same.
_ALSO: Final = {"single_instance": "overlap", "max_running_time": "timeout"}
_HOOKS: Final = frozenset({"when", "skip", "on_before", "on_success", "on_error", "on_after"})
_JOB_KEYS: Final = ("class", "handler", "name", "run", *_ALSO, *sorted(WORDS))
_SCHEDULE_KEYS: Final = ("name", "job", "run", "single_instance", *sorted(SCHEDULE_OPTIONS))
# What an interval counts from is settled when it is first written down; here any will do.
_ANCHOR: Final = datetime(2000, 1, 1, tzinfo=UTC)
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Declared:
    """What a file declares: jobs and schedules, and its own symbols."""

    entries: tuple[Declaration, ...] = ()
    symbols: Symbols = field(default_factory=dict)


def declared(
    document: Document, *, registry: Registry, symbols: Symbols, timezone: str
) -> Declared:
    """Read everything that a file declares; what is wrong is noted in the document."""
    document.check_keys((), document.content, TABLES)
    return _Reader(document, registry, symbols, timezone).read()


class _Reader:
    def __init__(
        self, document: Document, registry: Registry, symbols: Symbols, timezone: str
    ) -> None:
        self._document = document
        self._registry = registry
        self._known_symbols = symbols
        self._timezone = timezone
        self._symbols: dict[str, Mapping[str, Any]] = {}
        self._count_by_path: Counter[str] = Counter()
        self._path_by_name: dict[str, Path] = {}
        self._job_names: set[str] = set()
        self._definition_by_name: dict[str, Definition] = {}

    def read(self) -> Declared:
        self._read_symbols()
        jobs = [self._job(path, table) for path, table in self._tables("jobs")]
        schedules = [self._schedule(path, table) for path, table in self._tables("schedules")]
        entries = [entry for entry in (*jobs, *schedules) if entry is not None]
        if self._document.fault_count:
            # Nothing will be taken in; what stands against the rest is told all the same.
            for entry in entries:
                with self._document.noting(self._path_by_name[entry.name]):
                    conflict = self._registry.conflict(entry)
                    if conflict is not None:
                        raise conflict
        return Declared(tuple(entries), self._symbols)

    # ------------------------------------------------------------ tables

    def _tables(self, name: str) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        said = self._document.content.get(name, [])
        if not isinstance(said, list):
            self._document.fault((name,), f"{name} is a list: write [[{name}]] above each.")
            return
        for position, table in enumerate(said):
            path = (name, position)
            if isinstance(table, dict):
                yield path, table
            else:
                self._document.fault(path, f"{name} are tables, not {shown(table)}.")

    def _check_keys(self, path: Path, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        misplaced = {key for key in table if key in TIMING_WORDS and key not in known}
        for key in misplaced:
            self._document.fault(
                (*path, key), f"{key!r} says when: write it inside run = {{ {key} = ... }}."
            )
        rest = {key: value for key, value in table.items() if key not in misplaced}
        self._document.check_keys(path, rest, known)

    def _read_symbols(self) -> None:
        path: Path = ("symbols",)
        said = self._document.table(path, self._document.content.get("symbols", {}))
        for name, fields in said.items():
            here = (*path, name)
            count = self._document.fault_count
            check_pattern(self._document, here, self._document.table(here, fields))
            before = self._known_symbols.get(name)
            if before is not None and before != fields and before is not SYMBOLS.get(name):
                self._document.fault(here, f"The symbol {name!r} is known as {shown(before)}.")
            # One that is wrong is still known: who uses it has not made another mistake.
            self._symbols[name] = fields if self._document.fault_count == count else {}

    # ------------------------------------------------------------ jobs and schedules

    def _job(self, path: Path, table: Mapping[str, Any]) -> Declaration | None:
        before = self._document.fault_count
        self._check_keys(path, table, _JOB_KEYS)
        name = self._job_name(path, table)
        target = self._target(path, table, name)
        options = self._options(path, table, WORDS)
        timing = self._timing(path, table)
        for alias in options.aliases:
            self._take_name((*path, "aliases"), alias, path)
        self._job_names.update(options.aliases, () if name is None else (name,))
        if target is FAULTY or name is None:
            return None
        place = self._document.place(path)
        entry = declare(name, target, place=place, options=options, timing=timing)
        definition = self._tried(path, table, entry)
        if definition is None:
            return None
        self._definition_by_name.update(dict.fromkeys([name, *options.aliases], definition))
        self._check_rule(path, table, entry, definition)
        return entry if self._document.fault_count == before else None

    def _schedule(self, path: Path, table: Mapping[str, Any]) -> Declaration | None:
        before = self._document.fault_count
        self._check_keys(path, table, _SCHEDULE_KEYS)
        name = self._name(path, table)
        job = table.get("job")
        options = self._options(path, table, SCHEDULE_OPTIONS)
        timing = self._timing(path, table)
        if "run" not in table:
            self._document.fault(path, "A schedule says when: add run = ...")
        if not isinstance(job, str):
            self._document.fault((*path, "job"), "A schedule names its job: add job = ...")
            return None
        definition = self._job_of((*path, "job"), job)
        if definition is None or name is None:
            return None
        entry = Declaration(
            name=name,
            target=None,
            place=self._document.place(path),
            options=options,
            timing=timing,
            job=definition.name,
        )
        self._check_rule(path, table, entry, definition)
        return entry if self._document.fault_count == before else None

    def _job_of(self, path: Path, name: str) -> Definition | None:
        """The job of a schedule: from this file, or from code."""
        if name in self._job_names:
            return self._definition_by_name.get(name)  # none, if it has faults of its own
        known = self._registry.job_names()
        if name not in known:
            close = get_close_matches(name, [*self._job_names, *known], n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            self._document.fault(path, f"There is no job {name!r}, here or in code.{hint}")
            return None
        try:
            return self._registry.get(name)
        except TickworkError as error:
            self._document.note(path, error)
            return None

    # ------------------------------------------------------------ names

    def _job_name(self, path: Path, table: Mapping[str, Any]) -> str | None:
        """The name that is given, or that of the class; of the second one of it, with -2."""
        target = table.get("class", table.get("handler"))
        if isinstance(target, str):
            self._count_by_path[target] += 1
        if "name" in table or target is None:
            return self._name(path, table)
        if not isinstance(target, str):
            return None
        count = self._count_by_path[target]
        own = target.rpartition(":")[2]
        name = own if count == 1 else f"{own}-{count}"
        with self._document.noting(path):
            self._take_name(path, checked_name("name", name, forbidden="="), path)
        return name

    def _name(self, path: Path, table: Mapping[str, Any]) -> str | None:
        if "name" not in table:
            self._document.fault(path, "It has no name: add name = ...")
            return None
        here = (*path, "name")
        try:
            name = checked_name("name", table["name"], forbidden="=")
        except InvalidOption as error:
            self._document.note(here, error)
            return None
        self._take_name(here, name, path)
        return name

    def _take_name(self, here: Path, name: str, path: Path) -> None:
        first = self._path_by_name.setdefault(name, path)
        if first != path:
            line = self._document.line(first)
            self._document.fault(
                here, f"{name!r} is a name of what stands at line {line} already. Name it anew."
            )

    # ------------------------------------------------------------ handlers

    def _target(self, path: Path, table: Mapping[str, Any], name: str | None) -> object:
        """What the class or handler names; ``FAULTY`` when it is wrong."""
        keys = [key for key in ("class", "handler") if key in table]
        if len(keys) > 1:
            self._document.fault((*path, "handler"), "It has a class, and a handler too.")
            return FAULTY
        if not keys:
            return self._target_by_type(path, name)
        target = imported_at(self._document, (*path, keys[0]), table[keys[0]])
        if target is FAULTY:
            return FAULTY
        job = self._registry.job_of(target)
        if job is not None:
            self._document.fault(
                (*path, keys[0]),
                f"{table[keys[0]]} is the job {job!r} already. Say when it is due under "
                f"[[schedules]], with job = {job!r}.",
            )
            return FAULTY
        try:
            handler_of(target)
        except TickworkError as error:
            self._document.note((*path, keys[0]), error)
            return FAULTY
        return target

    def _target_by_type(self, path: Path, name: str | None) -> object:
        if name is None:
            return FAULTY
        with self._document.noting(path):
            if self._registry.supporter(name) is not None:
                return None
            self._document.fault(
                path, "It names no class: add class = 'package.module:Name', or a handler."
            )
        return FAULTY

    # ------------------------------------------------------------ options

    def _options(self, path: Path, table: Mapping[str, Any], words: frozenset[str]) -> JobOptions:
        """What the words of a table say. One that is wrong is noted at its line, and left out."""
        said: dict[str, Any] = {}
        for key in table:
            word = _ALSO.get(key, key)
            if word not in words:
                continue
            if word in said:
                self._document.fault(
                    (*path, key), f"{key!r} says what {_other(key, table)!r} says already."
                )
                continue
            with self._document.noting((*path, key)):
                value = self._value(path, key, table[key])
                if value is not None and self._has_known_keys((*path, key), word, value):
                    options_by_name({word: value}).spec("job", args="{}")
                    said[word] = value
        return options_by_name(said)

    def _value(self, path: Path, key: str, value: Any) -> Any:
        """A value as the builder's word takes it; None when there is nothing to say."""
        if key == "single_instance":
            if not isinstance(value, bool):
                raise InvalidOption(key, value, "must be true or false")
            return "skip" if value else "allow"
        if key == "max_running_time" and value == 0 and not isinstance(value, bool):
            return None  # without an end, as that word's other users know it
        if key in _HOOKS:
            return self._hooks((*path, key), value)
        return value

    def _has_known_keys(self, path: Path, word: str, value: Any) -> bool:
        """Whether a table of a word's arguments, or each in a list, names only what there is."""
        before = self._document.fault_count
        names = names_taken_by(word)
        tables = [(path, value)]
        if isinstance(value, list):
            tables = [((*path, position), each) for position, each in enumerate(value)]
        for here, table in tables:
            if isinstance(table, dict) and names:
                self._document.check_keys(here, table, names)
        return self._document.fault_count == before

    def _hooks(self, path: Path, value: Any) -> list[Any] | None:
        said = value if isinstance(value, list) else [value]
        found = [
            imported_at(self._document, (*path, place), each) for place, each in enumerate(said)
        ]
        return None if any(each is FAULTY for each in found) else found

    def _timing(self, path: Path, table: Mapping[str, Any]) -> Timing:
        if "run" not in table:
            return _NO_TIMING
        symbols = {**self._known_symbols, **self._symbols}
        return timing_at(self._document, (*path, "run"), table["run"], symbols) or _NO_TIMING

    # ------------------------------------------------------------ the whole

    def _tried(self, path: Path, table: Mapping[str, Any], entry: Declaration) -> Definition | None:
        """The definition that this would be. What does not fit is noted, word by word."""
        try:
            return self._registry.tried(entry)
        except TickworkError as error:
            before = self._document.fault_count
            for key in table:
                word = _ALSO.get(key, key)
                value = self._value(path, key, table[key]) if word in entry.options.said else None
                if value is not None:
                    only = options_by_name({word: value})
                    with self._document.noting((*path, key)):
                        self._registry.tried(replace(entry, options=only))
            if self._document.fault_count == before:
                self._document.note(path, error)
            return None

    def _check_rule(
        self, path: Path, table: Mapping[str, Any], entry: Declaration, definition: Definition
    ) -> None:
        """See that a schedule can fire, and that its handler would get all arguments."""
        if not entry.timing.is_said:
            return
        here = (*path, "run")
        try:
            rule = entry.timing.rule(key=entry.name, tz=self._timezone, anchor=_ANCHOR)
        except TickworkError as error:
            self._document.note(here, error)
            return
        if rule.next_after(_BEGINNING) is None:
            self._document.fault(here, f"It never fires: {rule.describe()}.")
        try:
            schedule_spec(entry, definition, tz=self._timezone, anchor=_ANCHOR)
        except ArgumentError as error:
            if "args" in table and "args" not in entry.options.said:
                return  # that they are wrong was noted
            self._document.fault((*path, "args"), f"{error.what} Add args = {{ ... }}.")
        except TickworkError as error:
            self._document.note(path, error)


_NO_TIMING: Final = Timing()


def _other(key: str, table: Mapping[str, Any]) -> str:
    """The other key of a table that says the same as this one."""
    word = _ALSO.get(key, key)
    return next(other for other in table if other != key and _ALSO.get(other, other) == word)
