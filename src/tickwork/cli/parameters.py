"""Types of parameters, and the options that several commands have."""

import os
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import click

from tickwork._domain.runs.status import RunStatus
from tickwork._kernel.clock import SystemClock
from tickwork._kernel.durations import parse_duration
from tickwork._stores.contract import RunFilter
from tickwork.cli.app_loader import APP_VARIABLE, load_app
from tickwork.errors import TickworkError


class DurationParam(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions
    """A duration: ``90s``, ``5m``, or a number of seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            return timedelta(seconds=float(value))
        except (ValueError, OverflowError):
            pass
        try:
            return parse_duration(value)
        except TickworkError as error:
            self.fail(f"{error.what} {error.fix}", param, ctx)


class SizeParam(click.ParamType):  # type: ignore[type-arg]  # as above
    """A size of memory in bytes: ``512M``, ``2G``, or a number of bytes."""

    name = "size"
    _FACTORS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
        size = int(float(match[1]) * self._FACTORS[match[2].upper()]) if match else 0
        if size <= 0:
            self.fail(f"It must be a size such as 512M or 2G, got {value!r}.", param, ctx)
        return size


class TimeParam(click.ParamType):  # type: ignore[type-arg]  # as above
    """A time: ``2026-03-01T09:00+01:00``, the same without an offset, or ``2h``.

    Without an offset it is in the local time zone. A duration counts from now: back for
    options about the past, forward for the others.
    """

    name = "time"

    def __init__(self, *, is_past: bool = False) -> None:
        self._is_past = is_past

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return datetime.fromisoformat(value).astimezone()
        except ValueError:
            pass
        try:
            duration = parse_duration(value)
            now = SystemClock().now()
            return now - duration if self._is_past else now + duration
        except (TickworkError, OverflowError):
            direction = "ago" if self._is_past else "from now"
            self.fail(
                f"{value!r} is not a time. Use 2026-03-01T09:00, 2026-03-01T09:00+01:00, "
                f"or a duration: 2h means two hours {direction}.",
                param,
                ctx,
            )


class AddressParam(click.ParamType):  # type: ignore[type-arg]  # as above
    """An address to listen on: ``:8080``, ``127.0.0.1:8080`` or ``[::1]:8080``."""

    name = "address"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        host, colon, port = str(value).rpartition(":")
        if (
            not colon
            or not port.isdecimal()
            or int(port) > 65_535
            or (":" in host and "[" not in host)
        ):
            self.fail(
                f"It must be an address such as :8080 or 127.0.0.1:8080, got {value!r}.", param, ctx
            )
        return host.strip("[]"), int(port)


ADDRESS: Final = AddressParam()
DURATION: Final = DurationParam()
SIZE: Final = SizeParam()
PAST_TIME: Final = TimeParam(is_past=True)
FUTURE_TIME: Final = TimeParam()
LIMIT: Final = click.IntRange(1, 10_000)


def complete_jobs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of jobs in the shell; without an application, complete nothing."""
    try:
        path = ctx.find_root().params.get("path") or os.environ.get(APP_VARIABLE)
        names = load_app(path).registry.job_names()
    except Exception:  # noqa: BLE001  # an error would appear in the middle of the user's prompt
        return []
    return [name for name in names if name.startswith(incomplete)]


def number_option(
    *names: str,
    help: str,  # noqa: A002  # as in click
    type: Any = int,  # noqa: A002  # as in click
    default: float | None = None,
) -> Callable[[Any], Any]:
    has_default = default is not None
    return click.option(
        *names, metavar="N", type=type, default=default, show_default=has_default, help=help
    )


def apply_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Join options into one decorator."""

    def apply(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


run_filter_options: Final = apply_options(
    click.option("-j", "--job", shell_complete=complete_jobs, help="Only runs of this job."),
    click.option("-q", "--queue", help="Only runs in this queue."),
    click.option(
        "-s",
        "--status",
        "statuses",
        metavar="STATUS",
        type=click.Choice([status.value for status in RunStatus]),
        multiple=True,
        help=f"Only runs with this status: {', '.join(RunStatus)}. Repeatable.",
    ),
    click.option("--schedule", help="Only runs of this schedule."),
    click.option("--tag", help="Only runs with this tag."),
    click.option("--tenant", help="Only runs of this tenant."),
    click.option(
        "--since", type=PAST_TIME, help="Only runs created since this time. 2h: two hours ago."
    ),
    click.option(
        "--before", type=PAST_TIME, help="Only runs created before this time. 2h: two hours ago."
    ),
    click.option(
        "--waiting",
        "is_suspended",
        is_flag=True,
        default=None,
        help="Only suspended runs: they sleep, or wait for an event.",
    ),
)
"""The options that select runs. ``read_run_filter`` reads their values."""


def read_run_filter(options: dict[str, Any]) -> RunFilter:
    statuses = frozenset(RunStatus(status) for status in options.pop("statuses"))
    is_suspended = bool(options.pop("is_suspended"))
    return RunFilter(statuses=statuses, is_suspended=is_suspended, **options)
