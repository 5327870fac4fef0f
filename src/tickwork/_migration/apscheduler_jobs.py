"""Converts the jobs of APScheduler 3: of a job store in a database, or of a scheduler in a module.

A job store contains pickles, and a pickle can execute code when it is read. Unless the caller
trusts the store, only triggers, times and plain values are read from it.
"""

import io
import pickle  # job stores contain pickles; see ``SafeUnpickler``
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from tickwork._domain.schedules.zones import Zone
from tickwork._migration.calendar_fields import RANGES, CalendarFields
from tickwork._migration.definitions import (
    CALL_HELPER,
    CALL_IMPORTS,
    ConvertedSchedule,
    Entry,
    ImportedSchedules,
    MethodCall,
    NotConvertible,
    UnconvertedEntry,
    call_arguments,
    converted_or_not,
    is_name,
    to_module,
    zone_calls,
)
from tickwork.errors import TickworkError

SAFE_CLASSES: Final = frozenset(
    {
        ("builtins", "set"),
        ("builtins", "frozenset"),
        ("collections", "OrderedDict"),
        ("datetime", "date"),
        ("datetime", "datetime"),
        ("datetime", "time"),
        ("datetime", "timedelta"),
        ("datetime", "timezone"),
        ("pytz", "_UTC"),
        ("pytz", "_p"),
        ("zoneinfo", "ZoneInfo"),
        ("zoneinfo", "ZoneInfo._unpickle"),
        ("builtins", "getattr"),  # replaced, see below
        ("apscheduler.triggers.combining", "AndTrigger"),
        ("apscheduler.triggers.combining", "OrTrigger"),
        ("apscheduler.triggers.calendarinterval", "CalendarIntervalTrigger"),
        ("apscheduler.triggers.cron", "CronTrigger"),
        ("apscheduler.triggers.date", "DateTrigger"),
        ("apscheduler.triggers.interval", "IntervalTrigger"),
        *(
            ("apscheduler.triggers.cron.expressions", f"{name}Expression")
            for name in (
                "All",
                "LastDayOfMonth",
                "MonthRange",
                "Range",
                "WeekdayPosition",
                "WeekdayRange",
            )
        ),
        *(
            ("apscheduler.triggers.cron.fields", f"{name}Field")
            for name in ("Base", "DayOfMonth", "DayOfWeek", "Month", "Week")
        ),
    }
)
"""What may be read from a store that is not trusted: none of these can execute other code."""

NO_TIME: Final = object()
"""A job that was not added to a store yet has no next run time."""


class StoredJob(NamedTuple):
    """A job of APScheduler. ``function`` is its path, as "module:name"."""

    id: str
    function: str
    trigger: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    next_run_time: Any = NO_TIME
    executor: str = "default"
    misfire_grace_time: int | None = None
    is_coalescing: bool = True
    max_instances: int = 1


class SafeUnpickler(pickle.Unpickler):
    """Reads pickles with triggers, times and plain values."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in SAFE_CLASSES:
            raise NotConvertible(
                f"It contains {module}.{name}. If you trust the job store, read it with --trust: "
                "then reading it can execute code."
            )
        if (module, name) == ("builtins", "getattr"):
            return _zone_attribute
        return super().find_class(module, name)


def _zone_attribute(owner: object, name: str) -> Any:
    """The one attribute that a pickle of a time zone needs."""
    from zoneinfo import ZoneInfo  # noqa: PLC0415  # rarely needed

    if owner is not ZoneInfo or name != "_unpickle":
        raise NotConvertible(f"It reads the attribute {name} of {owner!r}.")
    return ZoneInfo._unpickle  # type: ignore[attr-defined]  # noqa: SLF001


def read_job_store(
    rows: Iterable[tuple[str, bytes]], *, source: str, is_trusted: bool, now: datetime
) -> ImportedSchedules:
    """Convert the rows of a job store: the id and the pickled state of each job."""
    entries = (_row_entry(job_id, state, is_trusted, now) for job_id, state in rows)
    return _to_module(entries, source)


def _row_entry(job_id: str, state: bytes, is_trusted: bool, now: datetime) -> Entry:  # noqa: FBT001
    read: Callable[[bytes], Any] = (
        pickle.loads if is_trusted else lambda data: SafeUnpickler(io.BytesIO(data)).load()
    )
    try:
        state_values = read(state)
        job = StoredJob(
            id=str(state_values["id"]),
            function=str(state_values["func"]),
            trigger=state_values["trigger"],
            args=tuple(state_values["args"]),
            kwargs=dict(state_values["kwargs"]),
            next_run_time=state_values["next_run_time"],
            executor=str(state_values["executor"]),
            misfire_grace_time=state_values["misfire_grace_time"],
            is_coalescing=bool(state_values["coalesce"]),
            max_instances=int(state_values["max_instances"]),
        )
    except NotConvertible as reason:
        return UnconvertedEntry(name=job_id, source="a row of the job store", reason=str(reason))
    except Exception as error:  # noqa: BLE001  # a broken pickle raises anything
        fault = f"The row cannot be read: {type(error).__name__}: {error}"
        return UnconvertedEntry(name=job_id, source="a row of the job store", reason=fault)
    return _job_entry(job, now)


def read_scheduler(
    scheduler: Any, *, source: str, defaults: Mapping[str, Any], now: datetime
) -> ImportedSchedules:
    """Convert the jobs that a program has added to its scheduler."""

    def entries() -> Iterator[Entry]:
        for job in scheduler.get_jobs():
            yield _job_entry(_stored_job(job, defaults), now)
        for alias, store in getattr(scheduler, "_jobstores", {}).items():
            if type(store).__name__ != "MemoryJobStore":
                yield UnconvertedEntry(
                    name=f"job store {alias!r}",
                    source=type(store).__name__,
                    reason="Jobs in a database are not read from a module. Pass its URL.",
                )

    return _to_module(entries(), source)


def _stored_job(job: Any, defaults: Mapping[str, Any]) -> StoredJob:
    def option(name: str) -> Any:
        return getattr(job, name, defaults.get(name))

    return StoredJob(
        id=str(job.id),
        function=str(job.func_ref or ""),
        trigger=job.trigger,
        args=tuple(job.args),
        kwargs=dict(job.kwargs),
        next_run_time=getattr(job, "next_run_time", NO_TIME),
        executor=str(job.executor),
        misfire_grace_time=option("misfire_grace_time"),
        is_coalescing=bool(option("coalesce")),
        max_instances=int(option("max_instances")),
    )


def _to_module(entries: Iterable[Entry], source: str) -> ImportedSchedules:
    return to_module(
        entries, source=f"apscheduler {source}", imports=CALL_IMPORTS, helper=CALL_HELPER
    )


def _job_entry(job: StoredJob, now: datetime) -> Entry:
    def convert() -> ConvertedSchedule:
        if job.next_run_time is None:
            raise NotConvertible("It is paused. Resume it, and import it again.")
        module, _, name = job.function.partition(":")
        if not name or not all(map(is_name, [*module.split("."), *name.split(".")])):
            raise NotConvertible("Its function cannot be imported by name.")
        timing, notes = _timing(job.trigger)
        options, more = _options(job)
        arguments = call_arguments(job.args, job.kwargs)
        return ConvertedSchedule(
            name=job.id,
            handler=f"call({module}.{name}{', ' if arguments else ''}{arguments})",
            timing=timing,
            options=options,
            notes=[*notes, *more],
            modules=[module],
        )

    return converted_or_not(job.id, f"{job.function}: {job.trigger}", convert, now=now)


def _options(job: StoredJob) -> tuple[list[MethodCall], list[str]]:
    options, notes = [], []
    if job.misfire_grace_time is None:
        options.append(MethodCall("misfire", ("one" if job.is_coalescing else "all",)))
    else:
        options.append(MethodCall("misfire", ("skip",), {"grace": job.misfire_grace_time}))
        if job.is_coalescing:
            notes.append(
                "coalesce: firings that are late by less than the grace time each have a run here."
            )
    if job.max_instances > 1:
        options += [
            MethodCall("overlap", ("allow",)),
            MethodCall("concurrency", (job.max_instances,)),
        ]
        notes.append(f"max_instances: runs beyond {job.max_instances} wait here.")
    jitter = getattr(job.trigger, "jitter", None)
    if jitter:
        options.append(MethodCall("jitter", (jitter,)))
        notes.append("jitter: here the delay is derived from the schedule and the instant.")
    if job.executor != "default":
        notes.append(f"executor: it was {job.executor!r}. Choose an engine: .engine(...).")
    return options, notes


def _timing(trigger: Any) -> tuple[list[MethodCall], list[str]]:
    kind = type(trigger).__name__
    if kind == "DateTrigger":
        return [MethodCall("once", (_instant(trigger.run_date),))], _fraction(trigger.run_date)
    if kind == "IntervalTrigger":
        seconds = trigger.interval.total_seconds()
        length = int(seconds) if seconds == int(seconds) else seconds
        every = MethodCall(
            "every", (), {"seconds": length, "starting": _instant(trigger.start_date)}
        )
        return [every, *_end(trigger)], _fraction(trigger.start_date)
    if kind == "CronTrigger":
        start = trigger.start_date
        started = [] if start is None else [MethodCall("starting", (_instant(start),))]
        calls = [*_cron_fields(trigger).to_calls(), *zone_calls(_zone_name(trigger.timezone))]
        return [*calls, *started, *_end(trigger)], []
    raise NotConvertible(f"There is no rule like {kind}.")


def _end(trigger: Any) -> list[MethodCall]:
    return [] if trigger.end_date is None else [MethodCall("until", (_instant(trigger.end_date),))]


def _instant(at: datetime) -> str:
    return at.replace(microsecond=0).isoformat()


def _fraction(at: datetime) -> list[str]:
    return ["Firings are on whole seconds here."] if at.microsecond else []


def _zone_name(zone: Any) -> str:
    try:
        return Zone.named(zone).name
    except TickworkError as error:
        raise NotConvertible(f"Its time zone has no name. {error.what}") from None


def _cron_fields(trigger: Any) -> CalendarFields:
    values: dict[str, list[int]] = {}
    marks: dict[str, list[str]] = {"day": [], "weekday": []}
    for field in trigger.fields:
        if field.name == "week":
            if str(field) != "*":
                raise NotConvertible("There is no rule for weeks of the year.")
            continue
        name = "weekday" if field.name == "day_of_week" else field.name
        values[name] = []
        for expression in field.expressions:
            kind = type(expression).__name__
            if kind == "LastDayOfMonthExpression":
                marks["day"].append("L")
            elif kind == "WeekdayPositionExpression":
                day, nth = (expression.weekday + 1) % 7, expression.option_num + 1
                marks["weekday"].append(f"{day}L" if nth > 5 else f"{day}#{nth}")
            else:
                values[name] += _numbers(name, expression)
    if marks["weekday"] and not values["day"] and not marks["day"]:
        values["day"] = list(range(1, 32))
    return CalendarFields(
        **{name: frozenset(numbers) for name, numbers in values.items()},
        day_marks=marks["day"],
        weekday_marks=marks["weekday"],
    )


def _numbers(name: str, expression: Any) -> list[int]:
    least, greatest = RANGES[name]
    first = getattr(expression, "first", None)
    last = getattr(expression, "last", None)
    first = least if first is None else first
    last = greatest if last is None else min(last, greatest)
    numbers = range(first, last + 1, expression.step or 1)
    # Weekday 0 is Monday there.
    return [(number + 1) % 7 for number in numbers] if name == "weekday" else list(numbers)
