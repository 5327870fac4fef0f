"""A job as this process knows it: its spec, and the code that stands beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from tickwork._define.arguments import Parameters, encoded, masked_args
from tickwork._define.handlers import Handler
from tickwork._define.options import NOTHING_SAID, JobOptions
from tickwork._domain.job import JobSpec, ScheduleSpec
from tickwork._domain.limits import Unique
from tickwork._domain.run import NO_ARGS
from tickwork._domain.schedules.contract import Schedule
from tickwork._domain.schedules.timing import Timing
from tickwork._kernel.codec import SIZE_MAX, decode
from tickwork.errors import DefinitionError

NO_TIMING = Timing()


@dataclass(slots=True, kw_only=True, eq=False)
class Declaration:
    """What a program has said so far under one name. The builder adds to it.

    ``job`` is the job of which this is one more schedule; empty when it is a job itself.
    """

    name: str
    target: object
    place: str
    options: JobOptions = NOTHING_SAID
    timing: Timing = NO_TIMING
    job: str = ""
    is_adhoc: bool = False
    is_remote: bool = False  # another program defines it
    loading: object = None  # tells two loadings of the handler's module apart

    @property
    def job_name(self) -> str:
        """The job that it is, or of which it is a schedule."""
        return self.job or self.name

    def is_like(self, other: "Declaration") -> bool:
        """Whether both say the same, so that one of them is enough.

        By which words does not matter: what a job does not say is as if it said the default.
        Of a schedule it matters, because what that does not say is as its job says.
        """
        said = other.options.said if not self.job else self.options.said
        return (
            self.job == other.job
            and replace(self.options, said=said) == other.options
            and replace(self.timing, word="") == replace(other.timing, word="")
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Definition:
    """A job that can be called: what a worker needs to make an attempt."""

    spec: JobSpec
    handler: Handler
    options: JobOptions
    place: str
    is_adhoc: bool = False
    is_remote: bool = False
    size_max: int = SIZE_MAX
    redacted: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    is_simple: bool = False  # a function, and nothing around it

    @property
    def name(self) -> str:
        """The job's name."""
        return self.spec.name

    @property
    def parameters(self) -> Parameters:
        """What the handler takes."""
        return self.handler.parameters

    @property
    def secrets(self) -> frozenset[str]:
        """Arguments that people must not see."""
        return self.parameters.secrets | self.redacted

    def args_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """The arguments of a dispatch, over the definition's, checked and as they are stored.

        Raises:
            ArgumentError: They do not fit the handler.
            PayloadError: They cannot be stored.
        """
        given = self.parameters.bind(self.name, args, kwargs) if args else kwargs
        if self.defaults:
            given = {**self.defaults, **given}
        self.parameters.check(self.name, given)
        return encoded(given, size_max=self.size_max)

    def check_unique(self, unique: Unique) -> None:
        """See that the handler takes what runs are told apart by.

        Raises:
            DefinitionError: It does not.
        """
        _check_names(self.name, set(unique.by), "tells runs apart by", self.parameters)

    def shown_args(self, args: str) -> dict[str, Any]:
        """Stored arguments as people may see them."""
        return masked_args(decode(args), self.secrets)


def defined(
    entry: Declaration, handler: Handler, *, size_max: int = SIZE_MAX, redact: frozenset[str]
) -> Definition:
    """Make a definition of what was said, and check it as a whole.

    Raises:
        DefinitionError: Something does not fit the handler.
    """
    options = entry.options
    spec = options.spec(entry.name, args=encoded(options.args, size_max=size_max))
    named = {name for limit in spec.limits for name in limit.parameters}
    if spec.unique is not None:
        named.update(spec.unique.by)
    _check_names(entry.name, named, "tells runs apart by", handler.parameters)
    _check_names(entry.name, set(options.args), "has args for", handler.parameters)
    return Definition(
        spec=spec,
        handler=handler,
        options=options,
        place=entry.place,
        is_adhoc=entry.is_adhoc,
        is_remote=entry.is_remote,
        size_max=size_max,
        redacted=redact,
        defaults=dict(options.args),
        is_simple=options.is_plain and handler.is_simple,
    )


def schedule_spec(
    entry: Declaration, definition: Definition, *, tz: str, anchor: datetime | None
) -> tuple[ScheduleSpec, Schedule]:
    """The schedule that an entry says, and its rule.

    Raises:
        InvalidSchedule: What was said about when cannot be.
        ArgumentError: The handler would miss an argument.
    """
    said = entry.options.said if entry.job else frozenset[str]()
    own = entry.options

    def policy(word: str, name: str) -> Any:
        # One more schedule of a job is as the job says, unless it says otherwise itself.
        return getattr(own if word in said else definition.options, name)

    definition.parameters.check(definition.name, {**definition.defaults, **own.args})
    rule = entry.timing.rule(key=entry.name, tz=tz, anchor=anchor)
    made = ScheduleSpec(
        name=entry.name,
        job=definition.name,
        rule=rule.to_text(),
        zone=entry.timing.zone_name(tz),
        args=encoded(own.args, size_max=definition.size_max) if entry.job else NO_ARGS,
        queue=own.queue if "queue" in said else None,
        priority=own.priority if "priority" in said else None,
        expires=own.expires if "expires" in said else None,
        overlap=policy("overlap", "overlap"),
        misfire=policy("misfire", "misfire"),
        grace=policy("misfire", "grace"),
        jitter=policy("jitter", "jitter"),
        tags=own.tags if "tags" in said else (),
    )
    return made, rule


def _check_names(job: str, named: set[str], what: str, parameters: Parameters) -> None:
    unknown = set() if parameters.takes_any else named - set(parameters.names)
    if unknown:
        name = min(unknown)
        close = get_close_matches(name, parameters.names, n=1)
        raise DefinitionError(
            f"The job {job!r} {what} {name!r}, which its handler does not take.",
            why=f"It takes {parameters.shown}.",
            fix=f"Did you mean {close[0]!r}?" if close else "",
        )
