"""The options of a job: their values, and the methods that set them.

``option_table`` lists the options. ``JobOptions`` holds their values. The methods of
``JobOptionMethods`` set them: the builder inherits these methods, and the decorator and
configuration files call them by name (:func:`options_by_name`). ``JobKeywords`` lists the same
names for type checkers. A test compares both with the table. An option that is plain data has its
field in ``JobPolicies``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Final, Never, Self, TypeAlias, TypedDict, TypeVar, Unpack

from tickwork._define.engine_choice import AUTO
from tickwork._define.option_table import (
    OPTIONS,
    Kind,
    Scope,
    as_choice,
    as_integer,
    as_length,
    names_of,
)
from tickwork._domain.job import (
    JobPolicies,
    JobSpec,
    Misfire,
    Overlap,
    check_priority,
    check_tags,
)
from tickwork._domain.limits.debounce import Debounce
from tickwork._domain.limits.limits import Limit, OnConflict, Unique
from tickwork._domain.limits.rates import as_window
from tickwork._domain.names import check_name
from tickwork._domain.runs.lease import Lease
from tickwork._domain.runs.retention import Keep
from tickwork._domain.runs.retry import (
    ANY_ERROR,
    Delays,
    Exponential,
    Fixed,
    Jitter,
    NoRetry,
    RetryErrors,
    RetryPolicy,
)
from tickwork._kernel.plain_text import count_of
from tickwork.errors import (
    DefinitionError,
    InvalidOption,
    UnknownOption,
)

_C = TypeVar("_C", bound=type)

Duration: TypeAlias = timedelta | float | str
"""A length of time: a timedelta, seconds, or a string such as ``"5m"``."""

Hook: TypeAlias = Callable[..., Any]

_ArgumentsByName: TypeAlias = Mapping[str, Any]
_Hooks: TypeAlias = Hook | Sequence[Hook]
_Errors: TypeAlias = type[BaseException] | Sequence[type[BaseException]]
_Strings: TypeAlias = str | Sequence[str] | AbstractSet[str]

FOREVER: Final = "forever"

HOOKS: Final = {
    "when": "when",
    "skip": "skip",
    "on_before": "before",
    "on_success": "success",
    "on_error": "error",
    "on_after": "after",
}
"""Options that take functions, and the field of each in :class:`JobOptions`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions(JobPolicies):
    """The options of a job, as they were given: with functions, and arguments not encoded."""

    engine: str = AUTO
    retry_errors: RetryErrors = ANY_ERROR
    args: Mapping[str, Any] = field(default_factory=dict)
    when: tuple[Hook, ...] = ()
    skip: tuple[Hook, ...] = ()
    before: tuple[Hook, ...] = ()
    success: tuple[Hook, ...] = ()
    error: tuple[Hook, ...] = ()
    after: tuple[Hook, ...] = ()
    missed: tuple[Hook, ...] = ()
    explicit: frozenset[str] = frozenset()  # the options that were given; others are defaults

    def spec(self, name: str, *, args: str) -> JobSpec:
        """Build and check the spec; ``args`` are the encoded default arguments."""
        return JobSpec(name=name, args=args, **{each: getattr(self, each) for each in _POLICIES})

    @property
    def is_plain(self) -> bool:
        """Whether there are neither filters nor hooks around the handler."""
        return not any(getattr(self, each) for each in HOOKS.values())


_POLICIES: Final = tuple(each.name for each in fields(JobPolicies))
NO_OPTIONS: Final = JobOptions()


class DefaultKeywords(TypedDict, total=False):
    """The options that can be defaults of an application: the arguments of ``JobDefaults``."""

    attempts: int
    crashes: int
    delays: Sequence[Duration]
    dont_retry_on: _Errors
    engine: str
    expect_within: Duration | _ArgumentsByName
    expires: Duration
    history: Duration | None
    jitter: Duration
    keep: Keep | str
    lease: Duration
    misfire: Misfire | str | _ArgumentsByName
    overlap: Overlap | str
    priority: int
    queue: str
    results: Duration | None
    retries: _ArgumentsByName
    retry_on: _Errors
    tags: _Strings
    timeout: Duration


class JobKeywords(DefaultKeywords, total=False):
    """The keyword arguments of ``@app.job``: one for each method of the builder.

    A mapping holds the arguments of the method: ``retries={"max": 5, "base": 2}``.
    """

    aliases: _Strings
    args: Mapping[str, Any]
    concurrency: int | _ArgumentsByName | Sequence[int | _ArgumentsByName]
    debounce: Duration | _ArgumentsByName
    on_after: _Hooks
    on_before: _Hooks
    on_error: _Hooks
    on_missed: _Hooks
    on_success: _Hooks
    rate: str | _ArgumentsByName | Sequence[str | _ArgumentsByName]
    skip: _Hooks
    unique: bool | str | _ArgumentsByName
    when: _Hooks


def _name_job_in_errors(methods: _C) -> _C:
    """Let the errors of each option name the job and the place, where these are known."""
    for name, method in list(vars(methods).items()):
        if not name.startswith("_"):
            setattr(methods, name, _naming_job(method))
    return methods


def _naming_job(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def set_option(self: "ScheduleOptionMethods", /, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except DefinitionError as error:
            self._name_job(error)
            raise

    return set_option


@_name_job_in_errors
class ScheduleOptionMethods(ABC):
    """Options that may differ between two schedules of one job."""

    __slots__ = ()

    @property
    @abstractmethod
    def _options(self) -> JobOptions:
        """The options given so far."""

    @abstractmethod
    def _with_options(self, options: JobOptions) -> Self: ...

    @abstractmethod
    def _name_job(self, error: DefinitionError) -> None:
        """Add to an error which job it is about, if that is known."""

    def _set(self, option: str, **changes: Any) -> Self:
        options = self._options
        return self._with_options(replace(options, explicit=options.explicit | {option}, **changes))

    def args(self, /, **args: Any) -> Self:
        """Set default arguments. Arguments of a dispatch override them one by one."""
        return self._set("args", args={**self._options.args, **args})

    def queue(self, name: str) -> Self:
        """Put its runs into this queue. A worker serves all queues, or those it is started with."""
        return self._set("queue", queue=check_name("queue", name, forbidden="="))

    def priority(self, priority: int) -> Self:
        """Set the priority: lower numbers run first. Equal ones run by due time, then by age."""
        return self._set("priority", priority=check_priority(priority))

    def overlap(self, policy: Overlap | str) -> Self:
        """Choose what happens when it is due again before its last run has finished."""
        return self._set("overlap", overlap=as_choice("overlap", policy, Overlap))

    def misfire(self, policy: Misfire | str, *, grace: Duration | None = None) -> Self:
        """Choose what happens to firings that are late by more than ``grace`` (60 seconds)."""
        chosen = as_choice("misfire", policy, Misfire)
        length = self._options.grace if grace is None else as_length("grace", grace)
        return self._set("misfire", misfire=chosen, grace=length)

    def jitter(self, length: Duration) -> Self:
        """Delay each run by up to this long, so that schedules do not all start together."""
        return self._set("jitter", jitter=as_length("jitter", length))

    def expires(self, after: Duration) -> Self:
        """Skip a run that could not start within this time after it was due."""
        return self._set("expires", expires=as_length("expires", after))

    def expect_within(
        self,
        length: Duration | None = None,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
    ) -> Self:
        """Expect a firing to complete within this time. If it does not, watchers raise an alert."""
        added = timedelta(seconds=seconds, minutes=minutes, hours=hours)
        if (length is None) == (not added):
            raise InvalidOption(
                "expect_within",
                length,
                "must be one length",
                fix="Write expect_within(minutes=30).",
            )
        within = as_length("expect_within", added if length is None else length)
        return self._set("expect_within", expect_within=within)

    def on_missed(self, hook: Hook) -> Self:
        """Call ``hook(event)`` when a firing did not complete within ``expect_within``.

        The process that watches calls it: a worker of the program, or ``tickwork watch``.
        """
        if not callable(hook):
            raise InvalidOption("on_missed", type(hook), "must be callable")
        return self._set("on_missed", missed=(*self._options.missed, hook))

    def tags(self, *tags: str) -> Self:
        """Add tags, to find its runs by."""
        before = self._options.tags if "tags" in self._options.explicit else ()
        return self._set("tags", tags=check_tags((*before, *tags)))


@_name_job_in_errors
class JobOptionMethods(ScheduleOptionMethods):
    """All options of a job."""

    __slots__ = ()

    def concurrency(self, slots: int, *, per: str | Iterable[str] = "job") -> Self:
        """Limit how many run at a time, across all workers: per job, queue, or argument value.

        Several calls add several limits. ``concurrency(0)`` removes the limit.
        """
        parts = _as_names("per", per)
        if slots == 0 and type(slots) is int:
            kept = tuple(
                limit
                for limit in self._options.limits
                if limit.per != parts or limit.window is not None
            )
            return self._set("concurrency", limits=kept)
        return self._add_limit("concurrency", Limit(as_integer("concurrency", slots), parts))

    def rate(
        self,
        count: int | str,
        *,
        per: Duration | None = None,
        by: str | Iterable[str] = "job",
    ) -> Self:
        """Limit how many start per unit of time, across all workers: ``rate(100, per="minute")``.

        ``per`` is ``"second"`` to ``"week"``, or a length of time. ``by`` chooses which starts
        are counted together: those of the ``"job"``, the ``"queue"``, or each value of an
        argument. Several calls add several limits. ``rate("100/minute")`` is the short form.
        """
        if isinstance(count, str):
            count, per = _parse_rate(count, per)
        if per is None:
            raise InvalidOption("per", per, "must be given", fix='Write rate(100, per="minute").')
        limit = Limit(as_integer("rate", count), _as_names("by", by), as_window(per))
        return self._add_limit("rate", limit)

    def _add_limit(self, option: str, limit: Limit) -> Self:
        before = self._options.limits
        if any((limit.per, limit.window) == (each.per, each.window) for each in before):
            raise InvalidOption(option, "+".join(limit.per), "must name each limit once")
        return self._set(option, limits=(*before, limit))

    def lease(self, length: Duration) -> Self:
        """Set how long a claim lasts without a heartbeat of its worker."""
        return self._set("lease", lease=Lease(as_length("lease", length)))

    def timeout(self, length: Duration) -> Self:
        """Set how long one attempt may take. An attempt that takes longer fails."""
        return self._set("timeout", timeout=as_length("timeout", length))

    def attempts(self, count: int) -> Self:
        """Set the number of attempts, the first one included. The default is one.

        The delay between them doubles from one second to a minute, with full jitter, unless
        ``delays`` is set.
        """
        self._check_one_formula("attempts")
        policy, count = self._options.retry, as_integer("attempts", count)
        if isinstance(policy, NoRetry):
            return self._set("attempts", retry=Exponential(attempts_max=count))
        return self._set("attempts", retry=replace(policy, attempts_max=count))

    def retries(
        self,
        *bare: Never,
        max: int | None = None,  # noqa: A002  # the public name
        base: Duration = 1,
        cap: Duration = 60,
        jitter: Jitter | str | None = "full",
        delay: Duration | None = None,
    ) -> Self:
        """Retry after a failure, by a formula. ``max`` counts all attempts, the first included.

        The delay doubles from ``base`` up to ``cap``, and full jitter takes a random part of
        it. With ``delay`` it is always the same. :meth:`attempts` is the short form.
        """
        if bare:
            raise _bare_retries(bare[0])
        if max is None:
            raise InvalidOption("retries", max, "must include 'max'", fix="Write retries(max=3).")
        self._check_one_formula("retries")
        policy: RetryPolicy
        as_integer("max", max)
        if delay is not None:
            policy = Fixed(attempts_max=max, delay=as_length("delay", delay))
        else:
            policy = Exponential(
                attempts_max=max,
                base=as_length("base", base),
                cap=as_length("cap", cap),
                jitter=as_choice("jitter", jitter or "none", Jitter),
            )
        return self._set("retries", retry=policy)

    def delays(self, lengths: Sequence[Duration]) -> Self:
        """Set the delay after each failed attempt: ``delays(["10s", "1m", "10m"])``.

        The number of attempts is one more, unless ``attempts`` is set; the last delay repeats.
        """
        self._check_one_formula("delays")
        if not isinstance(lengths, list | tuple):
            raise InvalidOption(
                "delays", lengths, "must be a list of lengths", fix='Write ["10s", "1m"].'
            )
        is_counted = "attempts" in self._options.explicit
        count = self._options.retry.attempts_max if is_counted else len(lengths) + 1
        made = Delays(
            attempts_max=count, delays=tuple(as_length("delays", each) for each in lengths)
        )
        return self._set("delays", retry=made)

    def _check_one_formula(self, option: str) -> None:
        formulas = {option} | ({"attempts", "delays", "retries"} & self._options.explicit)
        if "retries" in formulas and len(formulas) > 1:
            raise InvalidOption(
                min(formulas),
                sorted(formulas),
                "must not be combined with retries",
                fix="Use attempts with delays, or retries(max=...) alone.",
            )

    def retry_on(self, *errors: type[BaseException]) -> Self:
        """Retry only after exceptions of these types. Any other exception is final.

        ``RetryLater``, ``Discard`` and ``JobResult.failure`` decide for themselves.
        """
        retry_errors = self._options.retry_errors
        before = retry_errors.only if "retry_on" in self._options.explicit else ()
        only = (*before, *_check_errors("retry_on", errors))
        return self._set("retry_on", retry_errors=replace(retry_errors, only=only))

    def dont_retry_on(self, *errors: type[BaseException]) -> Self:
        """Do not retry after exceptions of these types, even if ``retry_on`` names them."""
        retry_errors = self._options.retry_errors
        before = retry_errors.never if "dont_retry_on" in self._options.explicit else ()
        never = (*before, *_check_errors("dont_retry_on", errors))
        return self._set("dont_retry_on", retry_errors=replace(retry_errors, never=never))

    def history(self, length: Duration | None) -> Self:
        """Set how long finished runs are kept: 30 days unless set, ``"forever"`` for no limit.

        Workers delete older ones, with their attempts and logs.
        """
        return self._set_retention("history", history=_as_retention("history", length))

    def results(self, length: Duration | None) -> Self:
        """Set how long results are kept, if that is shorter than the history."""
        return self._set_retention("results", results=_as_retention("results", length))

    def keep(self, what: Keep | str) -> Self:
        """``"failures"`` keeps failed runs for longer than the history, until you prune them."""
        return self._set_retention("keep", keep=as_choice("keep", what, Keep))

    def _set_retention(self, option: str, **changes: Any) -> Self:
        return self._set(option, retention=replace(self._options.retention, **changes))

    def crashes(self, max: int) -> Self:  # noqa: A002  # as retries
        """Set how many times a run may crash its worker before it becomes ``failed_permanent``."""
        return self._set("crashes", crashes_max=as_integer("crashes", max))

    def engine(self, name: str) -> Self:
        """Choose where attempts run: ``"process"`` runs each in a process of its own.

        A process takes time and memory to start. It can be killed, by a timeout or a cancel,
        and its crash affects no other run.
        """
        if not isinstance(name, str):
            raise InvalidOption("engine", name, "must be the name of an engine")
        return self._set("engine", engine=name)

    def unique(
        self,
        key: str | None = None,
        *,
        by: str | Iterable[str] = (),
        within: Duration | None = None,
        on_conflict: OnConflict | str = OnConflict.KEEP,
    ) -> Self:
        """Allow one unfinished run per key: the one given, some arguments, or all of them.

        With ``within``, the key stays taken for that long, even if the first run finished. With
        ``on_conflict="replace"``, a dispatch replaces the run that waits with its key.
        """
        return self._set("unique", unique=as_unique(key, by, within, on_conflict))

    def debounce(
        self,
        quiet: Duration,
        *,
        max: Duration | None = None,  # noqa: A002  # the public name
        by: str | Iterable[str] = (),
    ) -> Self:
        """Run once for each quiet period: this long after the last dispatch with the same key.

        The run has the arguments of the last dispatch. It is due ``max`` after the first one at the
        latest. The key is the arguments named in ``by``, or all of them.
        """
        return self._set("debounce", debounce=as_debounce(quiet, max, by))

    def aliases(self, *names: str) -> Self:
        """Add former names of the job: stored runs that have them still find it."""
        for name in names:
            check_name("aliases", name, forbidden="=")
        return self._set("aliases", aliases=(*self._options.aliases, *names))

    def when(self, check: Hook) -> Self:
        """Start a run only if this returns True. Of several checks, all must.

        A firing is skipped otherwise. A dispatched run is postponed and checked again.
        """
        return self._add_hook("when", check)

    def skip(self, check: Hook) -> Self:
        """Skip a run if this returns True. Of several checks, one is enough."""
        return self._add_hook("skip", check)

    def on_before(self, hook: Hook) -> Self:
        """Call ``hook(ctx)`` before each attempt. If it raises, the attempt fails."""
        return self._add_hook("on_before", hook)

    def on_success(self, hook: Hook) -> Self:
        """Call ``hook(ctx, result)`` after an attempt that succeeded.

        A hook receives values by the names of its parameters: ctx, result, error, outcome.
        """
        return self._add_hook("on_success", hook)

    def on_error(self, hook: Hook) -> Self:
        """Call ``hook(ctx, error)`` after an attempt that failed or timed out."""
        return self._add_hook("on_error", hook)

    def on_after(self, hook: Hook) -> Self:
        """Call ``hook(ctx, outcome)`` after every attempt, also one that was canceled."""
        return self._add_hook("on_after", hook)

    def _add_hook(self, option: str, hook: object) -> Self:
        if not callable(hook):
            raise InvalidOption(option, type(hook), "must be callable")
        name = HOOKS[option]
        return self._set(option, **{name: (*getattr(self._options, name), hook)})


@dataclass(frozen=True, slots=True)
class OptionCollector(JobOptionMethods):
    """Collects options that are set by name, for the decorator and configuration files."""

    options: JobOptions = NO_OPTIONS

    @property
    def _options(self) -> JobOptions:
        return self.options

    def _with_options(self, options: JobOptions) -> Self:
        return type(self)(options)

    def _name_job(self, error: DefinitionError) -> None:
        """The caller knows the job."""


SCHEDULE_OPTIONS: Final = frozenset(names_of(Scope.CODE_SCHEDULE))
JOB_OPTIONS: Final = frozenset(names_of(Scope.JOB))
DEFAULT_OPTIONS: Final = frozenset(names_of(Scope.APPLICATION))

# Options that take any number of values, and options that may be set several times.
_STRINGS: Final = frozenset(each.name for each in OPTIONS if each.kind is Kind.NAMES)
ERRORS: Final = frozenset(each.name for each in OPTIONS if each.kind is Kind.ERRORS)
_REPEATED: Final = frozenset(
    {"concurrency", "rate", *(each.name for each in OPTIONS if each.kind is Kind.FUNCTIONS)}
)


def options_by_name(values: Mapping[str, Any], defaults: JobOptions = NO_OPTIONS) -> JobOptions:
    """Set options by calling the builder's methods of these names.

    A mapping holds the arguments of a method (``retries={"max": 5, "base": 2}``), a list those
    of several calls (``concurrency=[3, {"slots": 1, "per": "account_id"}]``).

    Raises:
        InvalidOption: An option does not exist, or its value is invalid.
    """
    collector = OptionCollector(defaults)
    for name, value in values.items():
        collector = _set_option(collector, name, value)
    return collector.options


class JobDefaults:
    """Options for all jobs of an application, unless a job sets its own.

    >>> from tickwork import JobDefaults, Tickwork
    >>> app = Tickwork("memory://", defaults=JobDefaults(attempts=3, timeout="5m"))
    >>> @app.job(attempts=1)
    ... def once() -> None: ...
    >>> once.definition.spec.attempts_max, once.definition.spec.timeout
    (1, datetime.timedelta(seconds=300))

    Raises:
        InvalidOption: An option does not exist, cannot be a default, or has an invalid value.
    """

    __slots__ = ("options", "values_set")

    def __init__(self, **options: Unpack[DefaultKeywords]) -> None:
        for name in options:
            if name in JOB_OPTIONS and name not in DEFAULT_OPTIONS:
                raise InvalidOption(
                    "defaults", name, "must not set this option", fix="Set it on each job."
                )
            if name not in DEFAULT_OPTIONS:
                raise UnknownOption("JobDefaults", name, known=DEFAULT_OPTIONS)
        self.values_set: Mapping[str, Any] = dict(options)
        # A job that gets these options has not set them itself.
        self.options: JobOptions = replace(options_by_name(options), explicit=frozenset())
        self.options.spec("defaults", args="{}")

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self.values_set.items())
        return f"JobDefaults({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobDefaults) and self.options == other.options

    __hash__ = None  # type: ignore[assignment]


def _set_option(collector: OptionCollector, name: str, value: Any) -> OptionCollector:
    if name not in JOB_OPTIONS:
        raise UnknownOption("A job", name, known=JOB_OPTIONS)
    method: Callable[..., OptionCollector] = getattr(collector, name)
    if name == "args" and not isinstance(value, Mapping):
        raise InvalidOption(name, value, "must map names to values")
    if name in _STRINGS:
        values = (value,) if isinstance(value, str) else value
        if not isinstance(values, list | tuple | set | frozenset):
            raise InvalidOption(name, value, "must be a string or a list of strings")
        return method(*values)
    if name in ERRORS:
        return method(*(value if isinstance(value, list | tuple) else (value,)))
    if name == "retries" and not isinstance(value, Mapping):
        raise _bare_retries(value)
    if name == "unique" and isinstance(value, bool):
        return method() if value else collector
    if isinstance(value, Mapping):
        _check_arguments(method, name, value)
        return method(**value)
    if name in _REPEATED and isinstance(value, list | tuple):
        for each in value:
            collector = _set_option(collector, name, each)
        return collector
    return method(value)


def parameters_of_option(option: str) -> tuple[str, ...]:
    """Return the keys that a table may have; none for an option that takes any."""
    return tuple(_named_parameters(getattr(OptionCollector, option)))[1:]  # without self


def _named_parameters(method: Callable[..., object]) -> dict[str, Parameter]:
    any_number = {Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL}
    parameters = signature(method).parameters
    return {name: each for name, each in parameters.items() if each.kind not in any_number}


def _check_arguments(
    method: Callable[..., object], name: str, arguments: Mapping[str, Any]
) -> None:
    if any(each.kind is each.VAR_KEYWORD for each in signature(method).parameters.values()):
        return
    parameters = _named_parameters(method)
    for unknown in arguments.keys() - parameters.keys():
        raise UnknownOption(name, unknown, known=parameters)
    for parameter in parameters.values():
        if parameter.default is parameter.empty and parameter.name not in arguments:
            raise InvalidOption(name, arguments, f"must include {parameter.name!r}")


def _as_retention(option: str, length: Any) -> timedelta | None:
    return None if length is None or length == FOREVER else as_length(option, length)


def _bare_retries(value: object) -> InvalidOption:
    if not isinstance(value, int) or isinstance(value, bool):
        return InvalidOption(
            "retries", value, "must be a table", fix='Write {"max": 3, "base": 2}.'
        )
    return InvalidOption(
        "retries",
        value,
        f"must not be a bare number, because it reads as {count_of(value, 'retry', 'retries')}",
        fix=f"Write attempts={value + 1}, which counts all tries, or retries(max={value + 1}).",
    )


def _check_errors(option: str, errors: tuple[Any, ...]) -> tuple[type[BaseException], ...]:
    for error in errors:
        if not isinstance(error, type) or not issubclass(error, BaseException):
            raise InvalidOption(option, error, "must be an exception type, or a list of them")
    return errors


def _parse_rate(text: str, per: Duration | None) -> tuple[int, str]:
    count, slash, within = text.partition("/")
    if per is not None or not slash or not count.strip().isdecimal():
        raise InvalidOption(
            "rate", text, "must be a count, a slash and a length of time", fix="Write '100/minute'."
        )
    return int(count), within.strip()


def as_unique(
    key: object,
    by: str | Iterable[str],
    within: Duration | None,
    on_conflict: OnConflict | str,
) -> Unique:
    """Check what the option ``unique`` is given."""
    if key is not None and (not isinstance(key, str) or not key):
        raise InvalidOption("unique", key, "must be a string that is not empty")
    return Unique(
        key=key,
        by=_as_names("by", by),
        within=None if within is None else as_length("within", within),
        on_conflict=as_choice("on_conflict", on_conflict, OnConflict),
    )


def as_debounce(quiet: Duration, longest: Duration | None, by: str | Iterable[str]) -> Debounce:
    """Check what the option ``debounce`` is given."""
    return Debounce(
        quiet=as_length("debounce", quiet),
        max=None if longest is None else as_length("max", longest),
        by=_as_names("by", by),
    )


def _as_names(option: str, value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if not all(isinstance(each, str) for each in names):
        raise InvalidOption(option, value, "must be a name or a list of names")
    return names
