"""Reads the jobs and schedules that a configuration file declares: ``tickwork.toml``.

All problems are found before anything is declared, and reported together.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from tickwork._calendars.calendars import Calendars
from tickwork._config.config_rule import RULE_METHODS, check_pattern, read_timing
from tickwork._config.import_path import INVALID, import_at
from tickwork._config.toml_document import Document, Path, shown
from tickwork._define.definition import NO_TIMING, Declaration, Definition, schedule_spec
from tickwork._define.options import (
    DEFAULT_OPTIONS,
    ERRORS,
    HOOKS,
    JOB_OPTIONS,
    NO_OPTIONS,
    SCHEDULE_OPTIONS,
    JobDefaults,
    JobOptions,
    options_by_name,
    parameters_of_option,
)
from tickwork._define.registry import Registry, declare
from tickwork._domain.names import check_name
from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.pattern import SYMBOLS, SymbolRule, Symbols
from tickwork._domain.schedules.timing import Timing
from tickwork._handlers.handlers import handler_of
from tickwork._handlers.payloads import HandlerPayload
from tickwork.errors import ArgumentError, InvalidOption, TickworkError, suggest

DEFAULTS: Final = "defaults"
TABLES: Final = ("tickwork", DEFAULTS, "symbols", "calendars", "jobs", "schedules")

# Names that other schedulers use for the same options.
_SYNONYMS: Final = {"single_instance": "overlap", "max_running_time": "timeout"}
_JOB_KEYS: Final = ("class", "handler", "name", "run", *_SYNONYMS, *sorted(JOB_OPTIONS))
_SCHEDULE_KEYS: Final = ("name", "job", "run", "single_instance", *sorted(SCHEDULE_OPTIONS))
# An interval counts from when its schedule is first stored. To check a rule, any instant will do.
_ANCHOR: Final = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_defaults(document: Document) -> JobDefaults:
    """Read the defaults of all jobs in a file. Problems are reported to the document."""
    path: Path = (DEFAULTS,)
    table = document.table(path, document.content.get(DEFAULTS, {}))
    document.check_keys(path, table, tuple(sorted(DEFAULT_OPTIONS)))
    options = _OptionReader(document).read(path, table, DEFAULT_OPTIONS)
    try:
        return JobDefaults(**options)
    except InvalidOption as error:
        document.report_error(path, error)
        return JobDefaults()


def report_late_defaults(document: Document, current: JobDefaults) -> None:
    """Report defaults in a file that differ from those of the existing application."""
    if DEFAULTS in document.content and read_defaults(document) != current:
        document.report(
            (DEFAULTS,),
            f"The defaults cannot be changed: the app was created with {current}. "
            f"Create it with Tickwork(config={document.source!r}).",
        )


def read_declarations(
    document: Document,
    *,
    registry: Registry,
    symbols: Symbols,
    calendars: Calendars,
    timezone: str,
) -> tuple[list[Declaration], Symbols, Calendars]:
    document.check_keys((), document.content, TABLES)
    reader = _DeclarationReader(document, registry, symbols, calendars, timezone)
    return reader.read(), reader.symbols, reader.calendars


class _OptionReader:
    """Reads the options of jobs, schedules and defaults."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def read(self, path: Path, table: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
        """Read the options of a table. An invalid one is reported at its line and left out."""
        options: dict[str, Any] = {}
        for key in table:
            option = _SYNONYMS.get(key, key)
            if option not in known:
                continue
            if option in options:
                self._document.report(
                    (*path, key), f"{key!r} and {_synonym_in(table, key)!r} are the same option."
                )
                continue
            with self._document.reporting((*path, key)):
                value = self.value(path, key, table[key])
                if value is not None and self._has_known_keys((*path, key), option, value):
                    options_by_name({option: value}).spec("job", args="{}")
                    options[option] = value
        return options

    def value(self, path: Path, key: str, value: Any) -> Any:
        """Convert a value for the option; None if the option is not set."""
        if key == "single_instance":
            if not isinstance(value, bool):
                raise InvalidOption(key, value, "must be true or false")
            return "skip" if value else "allow"
        if key == "max_running_time" and value == 0 and not isinstance(value, bool):
            return None  # other schedulers write 0 for no timeout
        if key in HOOKS or key == "on_missed":
            return self._imported((*path, key), value)
        if key in ERRORS:
            texts = value if isinstance(value, list) else [value]
            paths = [_error_path(each) for each in texts]
            return self._imported((*path, key), paths)
        return value

    def _has_known_keys(self, path: Path, option: str, value: Any) -> bool:
        """Whether tables of arguments, alone or in a list, have only keys the option takes."""
        before = self._document.problem_count
        names = parameters_of_option(option)
        tables = [(path, value)]
        if isinstance(value, list):
            tables = [((*path, position), each) for position, each in enumerate(value)]
        for here, table in tables:
            if isinstance(table, dict) and names:
                self._document.check_keys(here, table, names)
        return self._document.problem_count == before

    def _imported(self, path: Path, value: Any) -> list[Any] | None:
        paths = value if isinstance(value, list) else [value]
        functions = [
            import_at(self._document, (*path, place), each) for place, each in enumerate(paths)
        ]
        return None if any(each is INVALID for each in functions) else functions


class _DeclarationReader:
    def __init__(
        self,
        document: Document,
        registry: Registry,
        symbols: Symbols,
        calendars: Calendars,
        timezone: str,
    ) -> None:
        self.symbols: dict[str, SymbolRule] = {}
        self.calendars: Calendars = Calendars(calendars)
        self._document = document
        self._option_reader = _OptionReader(document)
        self._registry = registry
        self._known_symbols = symbols
        self._timezone = timezone
        self._count_by_target: Counter[str] = Counter()
        self._path_by_name: dict[str, Path] = {}
        self._job_names: set[str] = set()
        self._definition_by_name: dict[str, Definition] = {}

    def read(self) -> list[Declaration]:
        self._read_symbols()
        self._read_calendars()
        jobs = [self._read_job(path, table) for path, table in self._tables("jobs")]
        schedules = [self._read_schedule(path, table) for path, table in self._tables("schedules")]
        declarations = [each for each in (*jobs, *schedules) if each is not None]
        if self._document.problem_count:
            # Nothing will be declared. Conflicts with other declarations are reported, too.
            for declaration in declarations:
                with self._document.reporting(self._path_by_name[declaration.name]):
                    conflict = self._registry.find_conflict(declaration)
                    if conflict is not None:
                        raise conflict
        return declarations

    # ------------------------------------------------------------ tables

    def _tables(self, name: str) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        tables = self._document.content.get(name, [])
        if not isinstance(tables, list):
            self._document.report(
                (name,), f"{name} must be a list of tables: write [[{name}]] above each."
            )
            return
        for position, table in enumerate(tables):
            path = (name, position)
            if isinstance(table, dict):
                yield path, table
            else:
                self._document.report(path, f"{name} must be tables, got {shown(table)}.")

    def _check_keys(self, path: Path, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        misplaced = {key for key in table if key in RULE_METHODS and key not in known}
        for key in misplaced:
            self._document.report(
                (*path, key), f"{key!r} belongs to the rule: write run = {{ {key} = ... }}."
            )
        rest = {key: value for key, value in table.items() if key not in misplaced}
        self._document.check_keys(path, rest, known)

    def _read_symbols(self) -> None:
        path: Path = ("symbols",)
        tables = self._document.table(path, self._document.content.get("symbols", {}))
        for name, fields in tables.items():
            here = (*path, name)
            count = self._document.problem_count
            if isinstance(fields, str):
                with self._document.reporting(here):
                    Cron.parse(fields, key="")
            else:
                check_pattern(self._document, here, self._document.table(here, fields))
            before = self._known_symbols.get(name)
            if before is not None and before != fields and before is not SYMBOLS.get(name):
                self._document.report(
                    here, f"The symbol {name!r} is already defined as {shown(before)}."
                )
            # An invalid symbol is still defined: a job that uses it is not a second problem.
            self.symbols[name] = fields if self._document.problem_count == count else {}

    def _read_calendars(self) -> None:
        path: Path = ("calendars",)
        tables = self._document.table(path, self._document.content.get("calendars", {}))
        for name, calendar in tables.items():
            here = (*path, name)
            table = calendar if isinstance(calendar, dict) else {"file": calendar}
            if isinstance(calendar, list):
                table = {"dates": calendar}
            self._document.check_keys(here, table, ("file", "dates", "country"))
            with self._document.reporting(here):
                if {"file", "dates"} <= table.keys() or not all(
                    isinstance(value, list if key == "dates" else str)
                    for key, value in table.items()
                ):
                    rule = "must be a path, a list of dates, or a table with file or dates, country"
                    raise InvalidOption(name, calendar, rule)
                source = table.get("file") or table.get("dates") or ()
                self.calendars.add(name, source, country=table.get("country"))

    # ------------------------------------------------------------ jobs and schedules

    def _read_job(self, path: Path, table: Mapping[str, Any]) -> Declaration | None:
        before = self._document.problem_count
        self._check_keys(path, table, _JOB_KEYS)
        name = self._job_name(path, table)
        target = self._target(path, table, name)
        options = self._options(path, table, JOB_OPTIONS, self._registry.defaults)
        timing = self._timing(path, table)
        for alias in options.aliases:
            self._reserve_name((*path, "aliases"), alias, path)
        self._job_names.update(options.aliases, () if name is None else (name,))
        if target is INVALID or name is None:
            return None
        options = self._rebuild_args(path, options, self._payload_of(name, target))
        place = self._document.place(path)
        declaration = declare(name, target, place=place, options=options, timing=timing)
        definition = self._define(path, table, declaration)
        if definition is None:
            return None
        self._definition_by_name.update(dict.fromkeys([name, *options.aliases], definition))
        self._check_rule(path, table, declaration, definition)
        return declaration if self._document.problem_count == before else None

    def _read_schedule(self, path: Path, table: Mapping[str, Any]) -> Declaration | None:
        before = self._document.problem_count
        self._check_keys(path, table, _SCHEDULE_KEYS)
        name = self._name(path, table)
        job = table.get("job")
        options = self._options(path, table, SCHEDULE_OPTIONS, NO_OPTIONS)
        timing = self._timing(path, table)
        if "run" not in table:
            self._document.report(path, "A schedule needs a rule: add run = ...")
        if not isinstance(job, str):
            self._document.report((*path, "job"), "A schedule needs a job: add job = ...")
            return None
        definition = self._find_job((*path, "job"), job)
        if definition is None or name is None:
            return None
        options = self._rebuild_args(path, options, definition.payload)
        declaration = Declaration(
            name=name,
            target=None,
            place=self._document.place(path),
            options=options,
            timing=timing,
            job=definition.name,
        )
        self._check_rule(path, table, declaration, definition)
        return declaration if self._document.problem_count == before else None

    def _find_job(self, path: Path, name: str) -> Definition | None:
        if name in self._job_names:
            return self._definition_by_name.get(name)  # None if the job itself is invalid
        known = self._registry.job_names()
        if name not in known:
            hint = suggest(name, [*self._job_names, *known])
            self._document.report(path, f"There is no job {name!r}, here or in code. {hint}")
            return None
        try:
            return self._registry.get(name)
        except TickworkError as error:
            self._document.report_error(path, error)
            return None

    # ------------------------------------------------------------ names

    def _job_name(self, path: Path, table: Mapping[str, Any]) -> str | None:
        """Return the given name, or that of the class; a class used again gets ``-2``."""
        target = table.get("class", table.get("handler"))
        if isinstance(target, str):
            self._count_by_target[target] += 1
        if "name" in table or target is None:
            return self._name(path, table)
        if not isinstance(target, str):
            return None
        count = self._count_by_target[target]
        own = target.rpartition(":")[2]
        name = own if count == 1 else f"{own}-{count}"
        with self._document.reporting(path):
            self._reserve_name(path, check_name("name", name, forbidden="="), path)
        return name

    def _name(self, path: Path, table: Mapping[str, Any]) -> str | None:
        if "name" not in table:
            self._document.report(path, "The name is missing: add name = ...")
            return None
        here = (*path, "name")
        try:
            name = check_name("name", table["name"], forbidden="=")
        except InvalidOption as error:
            self._document.report_error(here, error)
            return None
        self._reserve_name(here, name, path)
        return name

    def _reserve_name(self, here: Path, name: str, path: Path) -> None:
        first = self._path_by_name.setdefault(name, path)
        if first != path:
            line = self._document.line(first)
            self._document.report(
                here, f"The name {name!r} is already used at line {line}. Choose another one."
            )

    # ------------------------------------------------------------ handlers

    def _target(self, path: Path, table: Mapping[str, Any], name: str | None) -> object:
        """Import the class or handler; ``INVALID`` after a problem was reported."""
        keys = [key for key in ("class", "handler") if key in table]
        if len(keys) > 1:
            self._document.report(
                (*path, "handler"), "A job has a class or a handler. Remove one of them."
            )
            return INVALID
        if not keys:
            return self._target_by_type(path, name)
        target = import_at(self._document, (*path, keys[0]), table[keys[0]])
        if target is INVALID:
            return INVALID
        job = self._registry.job_of(target)
        if job is not None:
            self._document.report(
                (*path, keys[0]),
                f"{table[keys[0]]} is already the job {job!r}. To schedule it, write "
                f"[[schedules]] with job = {job!r}.",
            )
            return INVALID
        try:
            handler_of(target, path=table[keys[0]])
        except TickworkError as error:
            self._document.report_error((*path, keys[0]), error)
            return INVALID
        return target

    def _target_by_type(self, path: Path, name: str | None) -> object:
        if name is None:
            return INVALID
        with self._document.reporting(path):
            if self._registry.handler_for(name) is not None:
                return None
            self._document.report(
                path, "The handler is missing: add class = 'package.module:Name', or handler = ..."
            )
        return INVALID

    # ------------------------------------------------------------ options

    def _options(
        self, path: Path, table: Mapping[str, Any], known: frozenset[str], defaults: JobOptions
    ) -> JobOptions:
        options = self._option_reader.read(path, table, known)
        try:
            return options_by_name(options, defaults)
        except InvalidOption as error:  # two options that exclude each other
            self._document.report_error(path, error)
            return defaults

    def _payload_of(self, name: str, target: object) -> HandlerPayload | None:
        handler = self._registry.handler_for(name) if target is None else handler_of(target)
        return None if handler is None else self._registry.payload_of(name, handler)

    def _rebuild_args(
        self, path: Path, options: JobOptions, payload: HandlerPayload | None
    ) -> JobOptions:
        """Make arguments of what the file has: tables become dataclasses, text becomes a Path."""
        if not options.args or payload is None:
            return options
        try:
            return replace(options, args=payload.rebuild(options.args))
        except TickworkError as error:
            self._document.report_error((*path, "args"), error)
            return replace(options, args={}, explicit=options.explicit - {"args"})

    def _timing(self, path: Path, table: Mapping[str, Any]) -> Timing:
        if "run" not in table:
            return NO_TIMING
        symbols = {**self._known_symbols, **self.symbols}
        timing = read_timing(self._document, (*path, "run"), table["run"], symbols, self.calendars)
        return timing or NO_TIMING

    # ------------------------------------------------------------ the whole

    def _define(
        self, path: Path, table: Mapping[str, Any], declaration: Declaration
    ) -> Definition | None:
        """Build the definition. If that fails, report each option that fails on its own."""
        try:
            return self._registry.define(declaration)
        except TickworkError as error:
            before = self._document.problem_count
            for key in table:
                option = _SYNONYMS.get(key, key)
                # retry_on and dont_retry_on are skipped: without attempts they are always invalid.
                is_given = option in declaration.options.explicit - ERRORS
                value = self._option_reader.value(path, key, table[key]) if is_given else None
                if value is not None:
                    only = options_by_name({option: value})
                    with self._document.reporting((*path, key)):
                        self._registry.define(replace(declaration, options=only))
            if self._document.problem_count == before:
                self._document.report_error(path, error)
            return None

    def _check_rule(
        self, path: Path, table: Mapping[str, Any], declaration: Declaration, definition: Definition
    ) -> None:
        """Check that a schedule can fire, and that its handler gets all arguments."""
        if not declaration.timing.has_rule:
            return
        here = (*path, "run")
        try:
            rule = declaration.timing.rule(key=declaration.name, tz=self._timezone, anchor=_ANCHOR)
        except TickworkError as error:
            self._document.report_error(here, error)
            return
        if rule.next_after(_EPOCH) is None:
            self._document.report(here, f"The rule never fires: {rule.describe()}.")
        try:
            schedule_spec(declaration, definition, tz=self._timezone, anchor=_ANCHOR)
        except ArgumentError as error:
            if "args" in table and "args" not in declaration.options.explicit:
                return  # the invalid args were reported
            self._document.report((*path, "args"), f"{error.what} Add args = {{ ... }}.")
        except TickworkError as error:
            self._document.report_error(path, error)


def _error_path(text: Any) -> Any:
    """Return the path of an exception type; one without a module is built in."""
    is_name = isinstance(text, str) and text.isidentifier()
    return f"builtins:{text}" if is_name else text


def _synonym_in(table: Mapping[str, Any], key: str) -> str:
    """Return the other key of a table that sets the same option."""
    option = _SYNONYMS.get(key, key)
    return next(other for other in table if other != key and _SYNONYMS.get(other, other) == option)
