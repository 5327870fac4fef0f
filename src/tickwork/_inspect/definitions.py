"""The jobs and schedules that a program defines. Read from the registry, without the database."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_never

from tickwork._define.definition import Declaration, Definition, schedule_spec
from tickwork._define.registry import Registry
from tickwork._domain.limits.debounce import Debounce
from tickwork._domain.limits.limits import OnConflict, Unique
from tickwork._domain.runs.retention import Keep, Retention
from tickwork._domain.runs.retry import Delays, Exponential, Fixed, Jitter, NoRetry, RetryPolicy
from tickwork._handlers.handlers import path_of
from tickwork._kernel.durations import human_duration
from tickwork.errors import JobNotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDescription:
    """A schedule as it is defined in code."""

    name: str
    rule: str  # in plain English
    zone: str
    overlap: str
    misfire: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDescription:
    """A job as it is defined in code."""

    name: str
    handler: str
    signature: str
    place: str  # file and line of the definition
    queue: str
    priority: int
    limits: dict[str, int]  # slots by name of the limit
    attempts_max: int
    retry: str  # in plain English
    retry_on: list[str]  # exception types; empty: all
    dont_retry_on: list[str]
    timeout: timedelta | None
    lease: timedelta
    crashes_max: int
    unique: str | None
    debounce: str | None  # in plain English
    history: str  # in plain English
    expires: timedelta | None
    engine: str
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    args: dict[str, Any]
    filters: int
    hooks: int
    schedules: list[ScheduleDescription]


def describe_jobs(
    registry: Registry, *, job: str | None, timezone: str, now: datetime
) -> list[JobDescription]:
    """Describe one job, or all jobs by name.

    Raises:
        JobNotFound: The program defines no such job.
    """
    known = registry.definitions()
    if job is None:
        chosen = [each for name, each in known.items() if name == each.name and not each.is_remote]
    elif job in known:
        chosen = [known[job]]
    else:
        raise JobNotFound(job, known=known)
    return [
        _describe_job(
            each,
            [
                _describe_schedule(declaration, each, timezone=timezone, now=now)
                for declaration in registry.schedules()
                if declaration.job_name == each.name
            ],
        )
        for each in sorted(chosen, key=lambda each: each.name)
    ]


def _describe_job(definition: Definition, schedules: list[ScheduleDescription]) -> JobDescription:
    spec, options = definition.spec, definition.options
    hooks = (options.before, options.success, options.error, options.after)
    return JobDescription(
        name=definition.name,
        handler=definition.handler.path,
        signature=definition.parameters.text,
        place=definition.place,
        queue=spec.queue,
        priority=spec.priority,
        limits=spec.slots_by_limit(),
        attempts_max=spec.attempts_max,
        retry=_describe_retry(spec.retry),
        retry_on=[path_of(each) for each in options.retry_errors.only],
        dont_retry_on=[path_of(each) for each in options.retry_errors.never],
        timeout=spec.timeout,
        lease=spec.lease.length,
        crashes_max=spec.crashes_max,
        unique=None if spec.unique is None else _describe_unique(spec.unique),
        debounce=None if spec.debounce is None else _describe_debounce(spec.debounce),
        history=_describe_retention(spec.retention),
        expires=spec.expires,
        engine=options.engine,
        tags=spec.tags,
        aliases=spec.aliases,
        args=definition.decode_masked_args(spec.args),
        filters=len(options.when) + len(options.skip),
        hooks=sum(map(len, hooks)),
        schedules=schedules,
    )


def _describe_schedule(
    declaration: Declaration, job: Definition, *, timezone: str, now: datetime
) -> ScheduleDescription:
    spec = schedule_spec(declaration, job, tz=timezone, anchor=now)
    rule = declaration.timing.rule(key=declaration.name, tz=timezone, anchor=now)
    return ScheduleDescription(
        name=spec.name,
        rule=rule.describe(),
        zone=spec.zone,
        overlap=spec.overlap.value,
        misfire=spec.misfire.value,
    )


def _describe_retry(policy: RetryPolicy) -> str:
    match policy:
        case NoRetry():
            return "none"
        case Fixed():
            return f"every {human_duration(policy.delay)}"
        case Delays():
            listed = ", ".join(map(human_duration, policy.delays))
            repeats = policy.attempts_max > len(policy.delays) + 1
            return f"after {listed}" + (", and so on" if repeats else "")
        case Exponential():
            jitter = "" if policy.jitter is Jitter.NONE else ", with full jitter"
            span = f"{human_duration(policy.base)} to {human_duration(policy.cap)}"
            return f"doubling from {span}{jitter}"
        case _:
            assert_never(policy)


def _describe_retention(retention: Retention) -> str:
    length = "forever" if retention.history is None else human_duration(retention.history)
    results = "" if retention.results is None else f", results {human_duration(retention.results)}"
    kept = ", failures until they are pruned" if retention.keep is Keep.FAILURES else ""
    return f"{length}{results}{kept}"


def _describe_unique(unique: Unique) -> str:
    what = unique.key or _describe_by(unique.by)
    if unique.within is not None:
        what += f", within {human_duration(unique.within)}"
    return f"{what}, the last one wins" if unique.on_conflict is OnConflict.REPLACE else what


def _describe_debounce(debounce: Debounce) -> str:
    longest = "" if debounce.max is None else f", at most {human_duration(debounce.max)}"
    return f"{human_duration(debounce.quiet)} {_describe_by(debounce.by)}{longest}"


def _describe_by(names: tuple[str, ...]) -> str:
    return f"by {', '.join(names)}" if names else "by all arguments"
