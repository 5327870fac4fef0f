"""Everything that a definition can say about how a job runs: as a value, and as words."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any, Final, Self, TypeAlias

from tickwork._domain.job import EngineKind, JobSpec, Misfire, Overlap
from tickwork._domain.lease import LEASE_DEFAULT, Lease
from tickwork._domain.limits import Limit, Unique
from tickwork._domain.names import checked_name
from tickwork._domain.rates import as_window
from tickwork._domain.retry import NO_RETRY, Exponential, Fixed, Jitter, RetryPolicy
from tickwork._domain.run import CRASHES_MAX, PRIORITY_DEFAULT, QUEUE_DEFAULT
from tickwork._kernel.durations import as_duration
from tickwork.errors import InvalidOption, UnknownOption

Length: TypeAlias = timedelta | float | str
"""A length of time: a timedelta, seconds, or a text such as ``"5m"``."""

Hook: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What was said about a job, besides when it is due. None: nothing was said."""

    queue: str = QUEUE_DEFAULT
    priority: int = PRIORITY_DEFAULT
    limits: tuple[Limit, ...] = ()
    lease: Lease = LEASE_DEFAULT
    timeout: timedelta | None = None
    retry: RetryPolicy = NO_RETRY
    crashes_max: int = CRASHES_MAX
    engine: EngineKind = EngineKind.AUTO
    unique: Unique | None = None
    expires: timedelta | None = None
    overlap: Overlap = Overlap.SKIP
    misfire: Misfire = Misfire.ONE
    grace: timedelta = timedelta(seconds=60)
    jitter: timedelta = timedelta(0)
    args: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    when: tuple[Hook, ...] = ()
    skip: tuple[Hook, ...] = ()
    before: tuple[Hook, ...] = ()
    success: tuple[Hook, ...] = ()
    error: tuple[Hook, ...] = ()
    after: tuple[Hook, ...] = ()
    said: frozenset[str] = frozenset()  # the words that were used

    def spec(self, name: str, *, args: str) -> JobSpec:
        """The job as a value; ``args`` are its defaults as they are stored."""
        return JobSpec(
            name=name,
            queue=self.queue,
            priority=self.priority,
            limits=self.limits,
            lease=self.lease,
            timeout=self.timeout,
            retry=self.retry,
            crashes_max=self.crashes_max,
            unique=self.unique,
            expires=self.expires,
            overlap=self.overlap,
            misfire=self.misfire,
            grace=self.grace,
            jitter=self.jitter,
            args=args,
            tags=self.tags,
            aliases=self.aliases,
        )

    @property
    def is_plain(self) -> bool:
        """Whether neither filters nor hooks surround the handler."""
        return not (
            self.when or self.skip or self.before or self.success or self.error or self.after
        )


NOTHING_SAID: Final = JobOptions()


class ScheduleOptionMethods(ABC):
    """What may differ between two schedules of one job."""

    __slots__ = ()

    @property
    @abstractmethod
    def _options(self) -> JobOptions:
        """What was said so far."""

    @abstractmethod
    def _say(self, options: JobOptions) -> Self:
        """The same with something more said."""

    def _said(self, word: str, **changes: Any) -> Self:
        options = self._options
        return self._say(replace(options, said=options.said | {word}, **changes))

    def args(self, /, **args: Any) -> Self:
        """Arguments for every run; those of a dispatch override them key by key."""
        return self._said("args", args={**self._options.args, **args})

    def queue(self, name: str) -> Self:
        """The queue in which its runs wait: workers take all of them, or those they name."""
        return self._said("queue", queue=checked_name("queue", name, forbidden="="))

    def priority(self, priority: int) -> Self:
        """Lower runs first. Ties go by due time, then by age."""
        return self._said("priority", priority=_whole("priority", priority))

    def overlap(self, policy: Overlap | str) -> Self:
        """What happens when it is due again before its last run has finished."""
        return self._said("overlap", overlap=_choice("overlap", policy, Overlap))

    def misfire(self, policy: Misfire | str, *, grace: Length | None = None) -> Self:
        """What happens to instants that passed unfired, by more than ``grace`` (60 s)."""
        chosen = _choice("misfire", policy, Misfire)
        length = self._options.grace if grace is None else as_duration(grace)
        return self._said("misfire", misfire=chosen, grace=length)

    def jitter(self, length: Length) -> Self:
        """Spread the runs of each instant over this time, each schedule at its own place."""
        return self._said("jitter", jitter=as_duration(length))

    def expires(self, after: Length) -> Self:
        """Skip a run that could not start within this time of when it was due."""
        return self._said("expires", expires=as_duration(after))

    def tags(self, *tags: str) -> Self:
        """Words by which people find its runs."""
        return self._said("tags", tags=(*self._options.tags, *tags))


class JobOptionMethods(ScheduleOptionMethods):
    """Everything that can be said about a job."""

    __slots__ = ()

    def concurrency(self, slots: int, *, per: str | Iterable[str] = "job") -> Self:
        """At most so many at a time, across all workers: per job, queue, or argument's value.

        Calls add up. ``concurrency(0)`` says that there is no limit.
        """
        parts = _texts("per", per)
        if slots == 0 and type(slots) is int:
            kept = tuple(
                limit
                for limit in self._options.limits
                if limit.per != parts or limit.window is not None
            )
            return self._said("concurrency", limits=kept)
        limit = Limit(_whole("concurrency", slots), parts)
        return self._said("concurrency", limits=(*self._options.limits, limit))

    def rate(
        self,
        count: int | str,
        *,
        per: Length | None = None,
        by: str | Iterable[str] = "job",
    ) -> Self:
        """At most so many starts in any such time, across all workers: ``rate(100, per="minute")``.

        ``per`` is ``"second"`` to ``"week"``, or a length of time. ``by`` says whose starts are
        counted: the job's, the ``"queue"``'s, or those of each value of an argument. Calls add
        up. ``rate("100/minute")`` says the same in one text.
        """
        if isinstance(count, str):
            count, per = _rate_text(count, per)
        if per is None:
            raise InvalidOption("per", per, "must be given", fix='Write rate(100, per="minute").')
        limit = Limit(_whole("rate", count), _texts("by", by), as_window(per))
        return self._said("rate", limits=(*self._options.limits, limit))

    def lease(self, length: Length) -> Self:
        """How long a claim holds when its worker falls silent; heartbeats extend it."""
        return self._said("lease", lease=Lease(as_duration(length)))

    def timeout(self, length: Length) -> Self:
        """How long one attempt may take. Longer is a failed attempt."""
        return self._said("timeout", timeout=as_duration(length))

    def retries(
        self,
        max: int,  # noqa: A002  # what the mission calls it
        *,
        base: Length = 1,
        cap: Length = 60,
        jitter: Jitter | str | None = "full",
        delay: Length | None = None,
    ) -> Self:
        """Try again after a failure: ``max`` counts all attempts, the first one included.

        The wait doubles from ``base`` up to ``cap``, and full jitter takes a random part of
        it. With ``delay`` it is always that.
        """
        policy: RetryPolicy
        _whole("retries", max)
        if delay is not None:
            policy = Fixed(attempts_max=max, delay=as_duration(delay))
        else:
            policy = Exponential(
                attempts_max=max,
                base=as_duration(base),
                cap=as_duration(cap),
                jitter=_choice("jitter", jitter or "none", Jitter),
            )
        return self._said("retries", retry=policy)

    def crashes(self, max: int) -> Self:  # noqa: A002  # as retries
        """After so many workers died while running it, a run is given up as poison."""
        return self._said("crashes", crashes_max=_whole("crashes", max))

    def engine(self, kind: EngineKind | str) -> Self:
        """Where its attempts happen: ``"process"`` is a process of their own.

        It costs a start and some memory, and can be killed: by its timeout, by a cancel, and
        by its own crash, which then takes nothing else with it.
        """
        return self._said("engine", engine=_choice("engine", kind, EngineKind))

    def unique(
        self,
        key: str | None = None,
        *,
        by: str | Iterable[str] = (),
        within: Length | None = None,
    ) -> Self:
        """At most one unfinished run of the same key: given, by arguments, or by all of them.

        With ``within``, none for that long after the first one, finished or not.
        """
        if key is not None:
            _check_key(key)
        made = Unique(
            key=key,
            by=_texts("by", by),
            within=None if within is None else as_duration(within),
        )
        return self._said("unique", unique=made)

    def aliases(self, *names: str) -> Self:
        """Names that this job had before: runs stored under them still find it."""
        return self._said("aliases", aliases=(*self._options.aliases, *names))

    def when(self, check: Hook) -> Self:
        """Hold a run back unless this is true. Several must all be."""
        return self._said("when", when=(*self._options.when, _called("when", check)))

    def skip(self, check: Hook) -> Self:
        """Skip a run if this is true. One of several is enough."""
        return self._said("skip", skip=(*self._options.skip, _called("skip", check)))

    def on_before(self, hook: Hook) -> Self:
        """Called as ``hook(ctx)`` before each attempt; raising fails the attempt."""
        return self._said("on_before", before=(*self._options.before, _called("on_before", hook)))

    def on_success(self, hook: Hook) -> Self:
        """Called as ``hook(ctx, result)`` after an attempt that succeeded."""
        return self._said(
            "on_success", success=(*self._options.success, _called("on_success", hook))
        )

    def on_error(self, hook: Hook) -> Self:
        """Called as ``hook(ctx, exception)`` after an attempt that failed."""
        return self._said("on_error", error=(*self._options.error, _called("on_error", hook)))

    def on_after(self, hook: Hook) -> Self:
        """Called as ``hook(ctx, outcome)`` after every attempt, whatever came of it."""
        return self._said("on_after", after=(*self._options.after, _called("on_after", hook)))


@dataclass(frozen=True, slots=True)
class OptionCollector(JobOptionMethods):
    """The words on their own, for whoever has options by name: the decorator, a file."""

    options: JobOptions = NOTHING_SAID

    @property
    def _options(self) -> JobOptions:
        return self.options

    def _say(self, options: JobOptions) -> Self:
        return type(self)(options)


SCHEDULE_OPTIONS: Final = frozenset(
    name for name in vars(ScheduleOptionMethods) if not name.startswith("_")
)
WORDS: Final = SCHEDULE_OPTIONS | {
    name for name in vars(JobOptionMethods) if not name.startswith("_")
}

# Words that take any number of texts, and words that are said again and again.
_SEVERAL: Final = frozenset({"tags", "aliases"})
_REPEATED: Final = frozenset(
    {"concurrency", "rate", "when", "skip", "on_before", "on_success", "on_error", "on_after"}
)


def options_by_name(given: Mapping[str, Any]) -> JobOptions:
    """What the builder's words of these names would say.

    A mapping stands for a word's arguments (``retries={"max": 5, "base": 2}``), a list for
    several calls of it (``concurrency=[3, {"slots": 1, "per": "account_id"}]``).

    Raises:
        InvalidOption: There is no such word, or it does not take that.
    """
    words = OptionCollector()
    for name, value in given.items():
        words = _applied(words, name, value)
    return words.options


def _applied(words: OptionCollector, name: str, value: Any) -> OptionCollector:
    if name not in WORDS:
        raise UnknownOption("A job", name, known=WORDS)
    word: Callable[..., OptionCollector] = getattr(words, name)
    if name == "args" and not isinstance(value, Mapping):
        raise InvalidOption(name, value, "must map names to values")
    if name in _SEVERAL:
        given = (value,) if isinstance(value, str) else value
        if not isinstance(given, list | tuple | set | frozenset):
            raise InvalidOption(name, value, "must be a string or a list of strings")
        return word(*given)
    if name == "unique" and isinstance(value, bool):
        return word() if value else words
    if isinstance(value, Mapping):
        _check_names(word, name, value)
        return word(**value)
    if name in _REPEATED and isinstance(value, list | tuple):
        for each in value:
            words = _applied(words, name, each)
        return words
    return word(value)


def names_taken_by(word: str) -> tuple[str, ...]:
    """What a word takes by name, when it is given a table; nothing for one that takes any."""
    parameters = signature(getattr(OptionCollector, word)).parameters.values()
    any_number = {Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL}
    names = [each.name for each in parameters if each.kind not in any_number]
    return tuple(names[1:])  # without self


def _check_names(word: Callable[..., object], name: str, given: Mapping[str, Any]) -> None:
    """See that a word can be called with these arguments by name."""
    parameters = signature(word).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for unknown in given.keys() - parameters.keys():
        raise UnknownOption(name, unknown, known=parameters)
    for parameter in parameters.values():
        if parameter.default is parameter.empty and parameter.name not in given:
            raise InvalidOption(name, given, f"must include {parameter.name!r}")


def _whole(option: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidOption(option, value, "must be an integer")
    return value


def _rate_text(said: str, per: Length | None) -> tuple[int, str]:
    count, slash, within = said.partition("/")
    if per is not None or not slash or not count.strip().isdecimal():
        raise InvalidOption(
            "rate", said, "must be a count, a slash and a length of time", fix="Write '100/minute'."
        )
    return int(count), within.strip()


def _check_key(key: object) -> None:
    if not isinstance(key, str) or not key:
        raise InvalidOption("unique", key, "must be a string that is not empty")


def _texts(option: str, value: Any) -> tuple[str, ...]:
    given = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if not all(isinstance(each, str) for each in given):
        raise InvalidOption(option, value, "must be a name or a list of names")
    return given


def _choice(option: str, value: Any, kind: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        known = [member.value for member in kind]
        close = get_close_matches(str(value), known, n=1)
        raise InvalidOption(
            option,
            value,
            f"must be one of {', '.join(known)}",
            fix=f"Did you mean {close[0]!r}?" if close else "",
        ) from None


def _called(option: str, hook: object) -> Hook:
    if not callable(hook):
        raise InvalidOption(option, hook, "must be callable")
    return hook
