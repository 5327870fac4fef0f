"""Converts the ``beat_schedule`` of a Celery application."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from tickwork._domain.schedules.zones import Zone
from tickwork._engines.remote.celery import TASK_OPTIONS
from tickwork._migration.calendar_fields import CalendarFields
from tickwork._migration.definitions import (
    ConvertedSchedule,
    Entry,
    ImportedSchedules,
    MethodCall,
    NotConvertible,
    call_arguments,
    converted_or_not,
    literal,
    to_module,
    zone_calls,
)
from tickwork.errors import TickworkError

OWN_SCHEDULER: Final = "celery.beat:PersistentScheduler"
EPOCH_DAY: Final = "2000-01-01T00:00:00+00:00"
ROUNDED_TO: Final = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1))


def read_beat_schedule(
    celery_app: Any, *, module: str, attribute: str, zone: str | None, now: datetime
) -> ImportedSchedules:
    """Convert all entries. ``zone`` replaces a time zone of the application without a name."""
    celery_app.finalize(auto=True)
    entries: Mapping[str, Any] = celery_app.conf.beat_schedule
    notes = []
    scheduler = str(celery_app.conf.beat_scheduler)
    if scheduler != OWN_SCHEDULER:
        notes.append(f"beat_scheduler is {scheduler}: entries in its database are not read.")
    return to_module(
        _entries(entries, celery_app, zone=zone, now=now),
        source=f"celery {module}:{attribute}",
        imports=(
            "from tickwork.integrations.celery import celery_task",
            f"from {module} import {attribute} as celery_app",
        ),
        notes=notes,
    )


def _entries(
    entries: Mapping[str, Any], celery_app: Any, *, zone: str | None, now: datetime
) -> Iterator[Entry]:
    for name, entry in entries.items():
        entry_options = entry if isinstance(entry, Mapping) else vars(entry)

        def convert(
            name: str = str(name), entry_options: Mapping[str, Any] = entry_options
        ) -> ConvertedSchedule:
            timing, notes = _timing(entry_options, celery_app, zone)
            args, kwargs = (
                list(entry_options.get("args") or ()),
                dict(entry_options.get("kwargs") or {}),
            )
            options = dict(entry_options.get("options") or {})
            if isinstance(options.get("expires"), timedelta):
                options["expires"] = options["expires"].total_seconds()
            task = entry_options.get("task")
            if not isinstance(task, str):
                raise NotConvertible("The entry names no task.")
            _check_sent(kwargs, options)
            sent = call_arguments((task,), {**({"args": args} if args else {}), **options})
            return ConvertedSchedule(
                name=name,
                handler=f"celery_task({sent}, celery=celery_app)",
                timing=timing,
                options=[MethodCall("args", (), kwargs)] if kwargs else [],
                notes=notes,
            )

        yield converted_or_not(str(name), _shown(entry_options), convert, now=now)


def _check_sent(kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Check what the arguments of a run and ``celery_task`` can express."""
    for name in options.keys() - TASK_OPTIONS:
        raise NotConvertible(f"celery_task() has no option {name!r}.")
    if "ctx" in kwargs:
        raise NotConvertible("A keyword argument is called ctx, as the context of a run is.")
    try:
        json.dumps(kwargs, allow_nan=False)
    except (TypeError, ValueError):
        literal(kwargs)  # it names the type, if there is no literal either
        raise NotConvertible("A keyword argument is not JSON.") from None


def _shown(options: Mapping[str, Any]) -> str:
    rule = options.get("schedule")
    try:
        return f"{options.get('task')}: {rule!r}"
    except Exception:  # noqa: BLE001  # code of the program
        return f"{options.get('task')}: {type(rule).__qualname__}"


def _timing(
    options: Mapping[str, Any], celery_app: Any, zone: str | None
) -> tuple[list[MethodCall], list[str]]:
    from celery.schedules import (  # noqa: PLC0415  # only with Celery
        crontab,
        maybe_schedule,
        schedule,
        solar,
    )

    try:
        rule = maybe_schedule(
            options.get("schedule"), bool(options.get("relative")), app=celery_app
        )
    except AttributeError:
        rule = options.get("schedule")
    if getattr(rule, "nowfun", None) is not None:
        raise NotConvertible("It has a clock of its own (nowfun).")
    if isinstance(rule, solar):
        raise NotConvertible(
            "The time of a solar event is different every day, and tickwork has no rule for it."
        )
    if type(rule) is crontab:
        fields = CalendarFields(
            minute=rule.minute,
            hour=rule.hour,
            day=rule.day_of_month,
            month=rule.month_of_year,
            weekday=rule.day_of_week,
        )
        return [*fields.to_calls(), *zone_calls(_zone_of(celery_app, zone))], []
    if type(rule) is schedule:
        length = {"seconds": _plain_number(rule.run_every.total_seconds())}
        if rule.relative:
            return _relative_timing(rule.run_every, length, celery_app, zone)
        return [MethodCall("every", (), length)], []
    kind = f"{type(rule).__module__}.{type(rule).__qualname__}"
    raise NotConvertible(f"{kind} is not a schedule of Celery itself.")


def _relative_timing(
    length: timedelta, seconds: Mapping[str, float], celery_app: Any, zone: str | None
) -> tuple[list[MethodCall], list[str]]:
    """Celery rounds each firing down to a full minute, hour or day, the unit of its interval."""
    unit = next((each for each in ROUNDED_TO if length >= each), timedelta(seconds=1))
    if length % unit:
        raise NotConvertible(f"Celery rounds down its firings to multiples of {unit}.")
    if length == timedelta(days=1):
        return [MethodCall("cron", ("0 0 * * *",)), *zone_calls(_zone_of(celery_app, zone))], []
    if unit == timedelta(days=1):
        raise NotConvertible("It fires at midnight, every nth day from the start of beat on.")
    note = "Celery counts from the start of beat, tickwork from 2000-01-01 00:00 UTC."
    return [MethodCall("every", (), {**seconds, "starting": EPOCH_DAY})], [note]


def _zone_of(celery_app: Any, zone: str | None) -> str:
    if zone is not None:
        return Zone.named(zone).name
    try:
        return Zone.named(celery_app.timezone).name
    except TickworkError:
        raise NotConvertible(
            "The application uses the local time zone of its machine. Name it with --timezone."
        ) from None


def _plain_number(seconds: float) -> float:
    """Leave out a fraction of zero."""
    return int(seconds) if seconds == int(seconds) else seconds
