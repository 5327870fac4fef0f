"""Jobs as a program declares them, and as the registry defines them once they are checked."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tickwork._define.options import ERRORS, HOOKS, NO_OPTIONS, JobOptions
from tickwork._domain.job import JobSpec, ScheduleSpec
from tickwork._domain.limits.limits import limit_of_name
from tickwork._domain.runs.retry import NoRetry
from tickwork._domain.runs.run import NO_ARGS
from tickwork._domain.schedules.timing import Timing
from tickwork._handlers.arguments import (
    HOOK_FACTS,
    Parameters,
    check_filter,
    check_hook,
)
from tickwork._handlers.handlers import Handler
from tickwork._handlers.middleware import MiddlewarePair
from tickwork._handlers.payloads import HandlerPayload
from tickwork._masks.secret_mask import SecretMask, find_secrets, mask_args
from tickwork._payload.codec import decode
from tickwork.errors import DefinitionError, InvalidOption, TickworkError, suggest

NO_TIMING = Timing()


@dataclass(slots=True, kw_only=True, eq=False)
class Declaration:
    """What a program has declared under one name so far. Builders change it in place.

    ``job`` is set on a further schedule of that job, and empty on a job.
    """

    name: str
    target: object
    place: str
    options: JobOptions = NO_OPTIONS
    timing: Timing = NO_TIMING
    job: str = ""
    is_adhoc: bool = False
    is_remote: bool = False  # another program defines it
    is_dispatched: bool = False  # a builder of it was dispatched: from then on it defines less
    module_spec: object = None  # differs after the handler's module was reloaded

    @property
    def job_name(self) -> str:
        return self.job or self.name

    def is_like(self, other: "Declaration") -> bool:
        """Whether both declare the same, so that one of them is enough.

        For a job, an option that is not given is equal to its default. For a further schedule it
        is not, because an option that is not given comes from the job.

        """
        explicit = other.options.explicit if not self.job else self.options.explicit
        return (
            self.job == other.job
            and replace(self.options, explicit=explicit) == other.options
            and replace(self.timing, method="") == replace(other.timing, method="")
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Definition:
    """A checked job with its handler: what a worker needs to make an attempt."""

    spec: JobSpec
    handler: Handler
    options: JobOptions
    payload: HandlerPayload
    place: str
    is_adhoc: bool = False
    is_remote: bool = False
    secrets: frozenset[str] = frozenset()  # arguments that are masked wherever they are shown
    middleware: tuple[MiddlewarePair, ...] = ()  # the outermost first
    is_simple: bool = False  # a plain function without filters, hooks and middleware

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def defaults(self) -> Mapping[str, Any]:
        return self.options.args

    @property
    def parameters(self) -> Parameters:
        return self.handler.parameters

    def with_stored_limits(self, names: Iterable[str], *, queue: str) -> "Definition":
        """Add the stored limits that apply to runs of this job in this queue.

        Their numbers of slots are in the database: a run has only their keys.
        """
        spec = self.spec
        own = spec.slots_by_limit(queue=queue)
        stored = (limit_of_name(name, job=spec.name, queue=queue) for name in names)
        added = [
            limit.hide(self.secrets)
            for limit in stored
            if limit is not None and limit.name(job=spec.name, queue=queue) not in own
        ]
        limits = (*spec.limits, *added)
        return replace(self, spec=replace(spec, limits=limits)) if added else self

    def check_by(self, names: Iterable[str]) -> None:
        """Check the arguments that are part of a key."""
        _check_names(self.name, set(names), "uses the argument", self.parameters)

    def mask_for(self, args: Mapping[str, Any]) -> SecretMask:
        """Return the mask for texts of an attempt with these arguments."""
        offered = {**self.parameters.defaults, **args}
        secrets = {name: offered[name] for name in self.secrets & offered.keys()}
        values = list(secrets.values())
        with suppress(TickworkError):
            # As stored: the fields of objects have names, too.
            values += find_secrets(decode(self.payload.encode({**args, **secrets})), self.secrets)
        return SecretMask(values)

    def decode_masked_args(self, args: str) -> Any:
        return mask_args(decode(args), self.secrets)


def define(
    declaration: Declaration,
    handler: Handler,
    *,
    payload: HandlerPayload,
    redact: frozenset[str],
    middleware: tuple[MiddlewarePair, ...] = (),
) -> Definition:
    options = declaration.options
    _check_names(declaration.name, set(options.args), "sets the argument", handler.parameters)
    spec = options.spec(declaration.name, args=payload.encode(options.args))
    error_options = sorted(ERRORS & options.explicit)
    if error_options and isinstance(spec.retry, NoRetry):
        option = error_options[-1]
        types = options.retry_errors.only or options.retry_errors.never
        raise InvalidOption(
            option,
            ", ".join(each.__name__ for each in types),
            "must come with attempts",
            fix="Without them the first error is final. Add attempts=3.",
        )
    secrets = handler.parameters.secrets | redact
    spec = replace(spec, limits=tuple(limit.hide(secrets) for limit in spec.limits))
    named = {name for limit in spec.limits for name in limit.parameters}
    for keyed in (spec.unique, spec.debounce):
        named.update(() if keyed is None else keyed.by)
    _check_names(declaration.name, named, "uses the argument", handler.parameters)
    for check in (*options.when, *options.skip):
        check_filter(declaration.name, check, handler.parameters)
    for kind in HOOK_FACTS:
        for hook in getattr(options, HOOKS[kind]):
            check_hook(declaration.name, kind, hook)
    return Definition(
        spec=spec,
        handler=handler,
        options=options,
        payload=payload,
        place=declaration.place,
        is_adhoc=declaration.is_adhoc,
        is_remote=declaration.is_remote,
        secrets=secrets,
        middleware=middleware,
        is_simple=options.is_plain and handler.is_simple and not middleware,
    )


def schedule_spec(
    declaration: Declaration, definition: Definition, *, tz: str, anchor: datetime | None
) -> ScheduleSpec:
    own = declaration.options
    # A further schedule of a job has the job's policies, except those it sets itself.
    explicit = own.explicit if declaration.job else frozenset[str]()

    def option(name: str) -> JobOptions:
        return own if name in explicit else definition.options

    arguments = {**definition.defaults, **own.args}
    definition.parameters.check(definition.name, arguments, schedule=declaration.name)
    rule = declaration.timing.rule(key=declaration.name, tz=tz, anchor=anchor)
    return ScheduleSpec(
        name=declaration.name,
        job=definition.name,
        rule=rule.to_text(),
        zone=declaration.timing.zone_name(tz),
        args=definition.payload.encode(own.args) if declaration.job else NO_ARGS,
        queue=own.queue if "queue" in explicit else None,
        priority=own.priority if "priority" in explicit else None,
        expires=own.expires if "expires" in explicit else None,
        overlap=option("overlap").overlap,
        misfire=option("misfire").misfire,
        grace=option("misfire").grace,
        jitter=option("jitter").jitter,
        expect_within=option("expect_within").expect_within,
        tags=own.tags if "tags" in explicit else (),
    )


def _check_names(job: str, named: set[str], what: str, parameters: Parameters) -> None:
    unknown = set() if parameters.takes_any else named - set(parameters.names)
    if unknown:
        name = min(unknown)
        raise DefinitionError(
            f"The job {job!r} {what} {name!r}, which its handler does not take.",
            why=f"The handler takes {parameters.text}.",
            fix=suggest(name, parameters.names),
        )
