"""Definitions that are made at run time, turned into what a row holds."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from tickwork._client.job_lookup import FoundJob, find_job
from tickwork._client.rule_from_definition import Symbols, counted, made_rule, readable, timing_of
from tickwork._client.schedule_definition import ScheduleDefinition, checked
from tickwork._define.arguments import encoded
from tickwork._define.options import JobOptions
from tickwork._define.registry import Registry
from tickwork._domain.job import Origin, ScheduleSpec
from tickwork._domain.names import NAME_MAX
from tickwork._domain.schedules.contract import Schedule
from tickwork._domain.schedules.interval import Once
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.schedules.zones import EPOCH
from tickwork._kernel.codec import decode, encode_canonical
from tickwork.errors import DefinitionError, InvalidOption, InvalidSchedule

POLICIES: Final = ("overlap", "misfire", "grace", "jitter")
"""What a schedule that does not say takes over from its job when it is made."""

FROM_THE_JOB: Final = ("queue", "priority", "expires")
"""What it takes from its job at each firing, unless it says otherwise."""


class Made(NamedTuple):
    """A schedule on its way into a row."""

    spec: ScheduleSpec
    rule: Schedule


class Maker:
    """Makes specs, and checks them as a whole: nothing that passes here fails to fire later."""

    def __init__(
        self, *, registry: Registry, timezone: str, symbols: Symbols, size_max: int
    ) -> None:
        self._registry = registry
        self._timezone = timezone
        self._symbols = symbols
        self._size_max = size_max

    def made(self, wanted: ScheduleDefinition, *, anchor: datetime) -> Made:
        """What a definition says; ``anchor`` is what an interval without a start counts from.

        Raises:
            DefinitionError: Something that was said cannot be.
            ArgumentError: The job's handler does not take the arguments.
            PayloadError: They cannot be stored.
        """
        found = find_job(wanted.job, self._registry)
        timing = timing_of(
            wanted.rule,
            at=wanted.starts_at,
            max_firings=wanted.max_firings,
            timezone=wanted.timezone,
            symbols=self._symbols,
        )
        args = self._args({**found.options.args, **wanted.args}, found)
        said: dict[str, Any] = {name: getattr(wanted, name) for name in (*POLICIES, *FROM_THE_JOB)}
        name = wanted.name
        if not name:
            # Counted from a fixed instant: when it was first said is no part of its name.
            plain = made_rule(timing, key="", tz=self._timezone, anchor=EPOCH)
            facts = {"args": args, "rule": plain.to_text(), "target": wanted.target, **said}
            facts |= {"tenant": wanted.tenant, "until": wanted.ends_at, "tags": list(wanted.tags)}
            name = derived_name(found.name, facts)
        rule = made_rule(timing, key=name, tz=self._timezone, anchor=anchor)
        spec = ScheduleSpec(
            name=name,
            tenant=wanted.tenant,
            job=found.name,
            rule=rule.to_text(),
            zone=rule.tz,
            args=args,
            until=wanted.ends_at,
            target=wanted.target,
            tags=tuple(wanted.tags),
            origin=Origin.API,
            **_filled(said, found),
        )
        return Made(spec, rule)

    def changed(
        self, spec: ScheduleSpec, changes: Mapping[str, Any], *, created_at: datetime, now: datetime
    ) -> Made:
        """A schedule with some things said anew.

        Raises:
            DefinitionError: Something that was said cannot be.
            ArgumentError: The job's handler does not take the arguments.
            PayloadError: They cannot be stored.
        """
        said = checked(changes)
        found = (
            self._find_known(spec.job)
            if "job" not in said
            else find_job(said["job"], self._registry)
        )
        news: dict[str, Any] = {
            name: said[name] for name in ("until", "target", "tags") if name in said
        }
        news |= _filled(
            {name: said[name] for name in (*POLICIES, *FROM_THE_JOB) if name in said}, found
        )
        if "args" in said or "job" in said:
            args = said.get("args", decode(spec.args))
            news["args"] = self._args({**found.options.args, **args}, found)
        rule = self._rule_changed(spec, said, created_at=created_at, now=now)
        if rule is None:
            rule = from_text(spec.rule)
        else:
            news |= {"rule": rule.to_text(), "zone": rule.tz}
        return Made(replace(spec, job=found.name, **news), rule)

    def _rule_changed(
        self, spec: ScheduleSpec, said: Mapping[str, Any], *, created_at: datetime, now: datetime
    ) -> Schedule | None:
        at, max_firings = said.get("at"), said.get("max_firings")
        if "rule" in said:
            if said["rule"] is None:
                raise InvalidOption("rule", None, "must be a rule, such as '0 9 * * *'")
            timing = timing_of(
                said["rule"],
                at=at,
                max_firings=max_firings,
                timezone=said.get("timezone"),
                symbols=self._symbols,
            )
            # What counts firings counts from now on; what counts time, from where it did.
            anchor = created_at if max_firings is None else now
            return made_rule(timing, key=spec.name, tz=self._timezone, anchor=anchor)
        for name in ("at", "timezone"):
            if said.get(name) is not None and not (name == "at" and _is_once(spec)):
                raise InvalidSchedule(
                    f"{name}= alone does not say when a schedule falls due.",
                    why=f"The rule of {spec.name!r} is {from_text(spec.rule).describe()}.",
                    fix="Say the rule anew, too: rule=...",
                )
        if at is not None:
            return readable(Once(at=at, tz=spec.zone))
        if "max_firings" in said:
            return readable(counted(from_text(spec.rule), max_firings, now=now))
        return None

    def _find_known(self, job: str) -> FoundJob:
        """The job of a schedule that is there: known here, or not."""
        definition = self._registry.find(job)
        return FoundJob(job) if definition is None else FoundJob(job, definition)

    def _args(self, args: Mapping[str, Any], found: FoundJob) -> str:
        found.check(args)
        return encoded(args, size_max=self._size_max)


def derived_name(job: str, facts: Mapping[str, Any]) -> str:
    """The name of a schedule that was given none: the same for the same facts."""
    said = {name: fact for name, fact in facts.items() if fact not in (None, [], "")}
    mark = blake2b(encode_canonical(said).encode(), digest_size=8).hexdigest()
    return f"{job[: NAME_MAX - len(mark) - 1]}-{mark}"


def _filled(said: Mapping[str, Any], found: FoundJob) -> dict[str, Any]:
    """These options, and the job's where they are None."""
    definition = found.definition
    policies: JobOptions = found.options if definition is None else definition.options
    filled = dict(said)
    for name, value in said.items():
        # Of a job that is not known here, only what was said about it here is known.
        if value is None and (name in POLICIES or name in found.options.said):
            filled[name] = getattr(policies, name)
    return filled


def _is_once(spec: ScheduleSpec) -> bool:
    return isinstance(from_text(spec.rule), Once)


def check_not_code(spec: ScheduleSpec, *, doing: str) -> None:
    """See that a schedule is not one of code, which would only say it again.

    Raises:
        DefinitionError: It is.
    """
    if spec.origin is Origin.CODE:
        raise DefinitionError(
            f"The schedule {spec.name!r} is defined in code, and cannot be {doing} here.",
            why="The next program that starts would say it again.",
            fix="Change it in code. pause(), resume() and run_now() work on it, too.",
        )
