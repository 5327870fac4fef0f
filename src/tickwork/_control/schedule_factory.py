"""Builds the specs of schedules that a program creates or changes at run time."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from hashlib import blake2b
from typing import Any

from tickwork._calendars.calendars import Calendars
from tickwork._control.rule_from_definition import (
    build_rule,
    check_storable,
    set_max_firings,
    timing_of,
)
from tickwork._control.schedule_definition import ScheduleDefinition, convert_options
from tickwork._define.option_table import FROM_THE_JOB, OWN, POLICIES
from tickwork._define.registry import Registry
from tickwork._dispatch.job_lookup import FoundJob, find_job
from tickwork._domain.job import ScheduleOrigin, ScheduleSpec
from tickwork._domain.names import NAME_MAX
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.interval import Once
from tickwork._domain.schedules.pattern import Symbols
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.schedules.zones import EPOCH
from tickwork._payload.codec import decode, encode, encode_canonical
from tickwork.errors import DefinitionError, InvalidOption, InvalidSchedule


class ScheduleFactory:
    """Builds specs and checks them as a whole, so that a stored schedule can always fire."""

    def __init__(
        self,
        *,
        registry: Registry,
        timezone: str,
        symbols: Symbols,
        calendars: Calendars,
        size_max: int,
    ) -> None:
        self._registry = registry
        self._timezone = timezone
        self._symbols = symbols
        self._calendars = calendars
        self._size_max = size_max

    def build(self, definition: ScheduleDefinition, *, anchor: datetime) -> ScheduleSpec:
        """Build the spec of a definition. An interval without a start counts from ``anchor``."""
        job = find_job(definition.job, self._registry)
        timing = timing_of(
            definition.rule,
            at=definition.starts_at,
            max_firings=definition.max_firings,
            timezone=definition.timezone,
            symbols=self._symbols,
            calendars=self._calendars,
        )
        args = self._encode_args({**job.options.args, **definition.args}, job, definition.name)
        options: dict[str, Any] = {
            name: getattr(definition, name) for name in (*POLICIES, *FROM_THE_JOB)
        }
        own: dict[str, Any] = {name: getattr(definition, name) for name in OWN}
        name = definition.name
        if not name:
            # Anchored at a fixed instant: the derived name must not depend on the current time.
            plain = build_rule(timing, key="", tz=self._timezone, anchor=EPOCH)
            identity = {"args": args, "rule": plain.to_text(), "tenant": definition.tenant}
            name = _derive_name(job.name, {**identity, **options, **own})
        rule = build_rule(timing, key=name, tz=self._timezone, anchor=anchor)
        return ScheduleSpec(
            name=name,
            tenant=definition.tenant,
            job=job.name,
            rule=rule.to_text(),
            zone=rule.tz,
            args=args,
            origin=ScheduleOrigin.API,
            **own,
            **_fill_from_job(options, job),
        )

    def apply_changes(
        self, spec: ScheduleSpec, changes: Mapping[str, Any], *, created_at: datetime, now: datetime
    ) -> ScheduleSpec:
        converted = convert_options(changes)
        job = (
            find_job(converted["job"], self._registry)
            if "job" in converted
            else self._find_job_of(spec)
        )
        changed: dict[str, Any] = {name: converted[name] for name in OWN if name in converted}
        options: dict[str, Any] = {
            name: converted[name] for name in (*POLICIES, *FROM_THE_JOB) if name in converted
        }
        changed |= _fill_from_job(options, job)
        if "args" in converted or "job" in converted:
            args = converted["args"] if "args" in converted else self._decode_args(spec)
            changed["args"] = self._encode_args({**job.options.args, **args}, job, spec.name)
        rule = self._change_rule(spec, converted, created_at=created_at, now=now)
        if rule is not None:
            changed |= {"rule": rule.to_text(), "zone": rule.tz}
        return replace(spec, job=job.name, **changed)

    def _change_rule(
        self, spec: ScheduleSpec, options: Mapping[str, Any], *, created_at: datetime, now: datetime
    ) -> Rule | None:
        """Return the new rule; None if no option changes it."""
        at, max_firings = options.get("at"), options.get("max_firings")
        if "rule" in options:
            if options["rule"] is None:
                raise InvalidOption("rule", None, "must be a rule, such as '0 9 * * *'")
            timing = timing_of(
                options["rule"],
                at=at,
                max_firings=max_firings,
                timezone=options.get("timezone"),
                symbols=self._symbols,
                calendars=self._calendars,
            )
            # max_firings counts from now. Without it, an interval keeps its anchor.
            anchor = created_at if max_firings is None else now
            # The new rule keeps the time zone of the schedule, unless it has one itself.
            zone = self._timezone if "timezone" in options else spec.zone
            return build_rule(timing, key=spec.name, tz=zone, anchor=anchor)
        stored = from_text(spec.rule)
        for name in ("at", "timezone"):
            if options.get(name) is not None and not (name == "at" and isinstance(stored, Once)):
                raise InvalidSchedule(
                    f"{name} cannot be changed without the rule.",
                    why=f"The rule of {spec.name!r} is {stored.describe()}.",
                    fix="Pass the rule, too: rule=...",
                )
        if at is not None:
            return check_storable(Once(at=at, tz=spec.zone))
        if "max_firings" in options:
            return check_storable(set_max_firings(stored, max_firings, now=now))
        return None

    def _find_job_of(self, spec: ScheduleSpec) -> FoundJob:
        """Find the job of a stored schedule. Another program may define it."""
        definition = self._registry.find(spec.job)
        return FoundJob(spec.job) if definition is None else FoundJob(spec.job, definition)

    def _decode_args(self, spec: ScheduleSpec) -> Mapping[str, Any]:
        definition = self._registry.find(spec.job)
        args: Mapping[str, Any]
        args = decode(spec.args) if definition is None else definition.payload.decode(spec.args)
        return args

    def _encode_args(self, args: Mapping[str, Any], job: FoundJob, schedule: str) -> str:
        job.check(args, schedule=schedule)
        if job.definition is not None:
            return job.definition.payload.encode(args)
        return encode(dict(args), size_max=self._size_max)


def _derive_name(job: str, identity: Mapping[str, Any]) -> str:
    """Name a schedule after its job and a hash of its options: equal options, equal names."""
    set_options = {name: fact for name, fact in identity.items() if fact not in (None, (), "")}
    digest = blake2b(encode_canonical(set_options).encode(), digest_size=8).hexdigest()
    return f"{job[: NAME_MAX - len(digest) - 1]}-{digest}"


def _fill_from_job(options: Mapping[str, Any], job: FoundJob) -> dict[str, Any]:
    """Replace options that are None by those of the job."""
    job_options = job.options if job.definition is None else job.definition.options
    filled = dict(options)
    for name, value in options.items():
        # Of a job that another program defines, only the options given here are known.
        if value is None and (name in POLICIES or name in job.options.explicit):
            filled[name] = getattr(job_options, name)
    return filled


def check_not_code(spec: ScheduleSpec, *, doing: str) -> None:
    """Raise if code defines the schedule: the next start would undo the change."""
    if spec.origin is ScheduleOrigin.CODE:
        raise DefinitionError(
            f"The schedule {spec.name!r} is defined in code and cannot be {doing} here.",
            why="The next program that starts would write it again.",
            fix="Change it in code. pause(), resume() and run_now() do work on it.",
        )
