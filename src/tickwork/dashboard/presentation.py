"""Values as pages show them: times, durations, colours, and the geometry of charts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from tickwork._inspect.runs import RunView
from tickwork._kernel.json_form import as_json
from tickwork._kernel.plurals import count_of
from tickwork.stores.contract import Attempt, CountPrecision, RunCount

TONES: Final = {
    "completed": "good",
    "ok": "good",
    "failed": "warn",
    "warn": "warn",
    "blocked": "warn",
    "failed_permanent": "bad",
    "bad": "bad",
    "running": "busy",
}
"""The colour of a status or a level; others are grey."""

BRIEF_MAX: Final = 80


def tone(value: object) -> str:
    return TONES.get(str(value), "idle")


def utc(at: datetime | None) -> str:
    return "none" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def relative(at: datetime, now: datetime) -> str:
    seconds = (at - now).total_seconds()
    size = abs(seconds)
    if size < 1:
        return "now"
    unit, length = next(
        pair for pair in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)) if size >= pair[1]
    )
    text = f"{int(size // length)}{unit}"
    return f"in {text}" if seconds > 0 else f"{text} ago"


def seconds(value: float) -> str:
    """A duration, rounded to two units at most."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    if value < 3_600:
        return f"{int(value // 60)} m {int(value % 60)} s"
    if value < 86_400:
        return f"{int(value // 3_600)} h {int(value % 3_600 // 60)} m"
    return f"{int(value // 86_400)} d {int(value % 86_400 // 3_600)} h"


def count(value: int) -> str:
    return f"{value:,}"


def pretty(value: Any) -> str:
    return json.dumps(as_json(value), indent=2, ensure_ascii=False)


def brief(value: Any) -> str:
    """Arguments in one short line."""
    if not value:
        return "no arguments"
    shown = ", ".join(
        f"{name}={json.dumps(as_json(each), ensure_ascii=False)}" for name, each in value.items()
    )
    return shown if len(shown) <= BRIEF_MAX else f"{shown[: BRIEF_MAX - 1]}…"


def path_part(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="", errors="replace")


def total(found: RunCount) -> str:
    """A number of runs, and how precise it is."""
    match found.precision:
        case CountPrecision.ABOUT:
            digits = 10 ** max(len(str(found.number)) - 2, 0)
            return f"about {round(found.number / digits) * digits:,}"
        case CountPrecision.AT_LEAST:
            return f"{found.number:,}+"
        case CountPrecision.EXACT:
            return f"{found.number:,}"


def total_runs(found: RunCount) -> str:
    return f"{total(found)} run{'' if found.number == 1 else 's'}"


class ShownProgress(NamedTuple):
    """The progress of a run."""

    percent: int | None
    note: str


def read_progress(stored: Any) -> ShownProgress:
    """Read what ``ctx.progress`` stored. Anything else is a note."""
    match stored:
        case {"share": int() | float() as share, "note": str(note)} if 0 <= share <= 1:
            # Rounded down: only a finished task has 100 %.
            return ShownProgress(int(share * 100), note)
        case _:
            return ShownProgress(None, str(stored))


def plain(value: Any) -> str:
    """An option in one line."""
    if value is None or value in ("", [], {}):
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


FILTERS: Final = {
    "plain": plain,
    "tone": tone,
    "utc": utc,
    "relative": relative,
    "seconds": seconds,
    "count": count,
    "count_of": count_of,
    "total": total,
    "total_runs": total_runs,
    "pretty": pretty,
    "brief": brief,
    "path": path_part,
}

# ---------------------------------------------------------------- charts


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBar:
    """A bar of a chart over time."""

    label: str
    text: str
    tone: str
    x: float
    width: float
    y: int = 0
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The attempts of one run over time."""

    begin: datetime
    end: datetime
    height: int
    bars: list[TimeBar]


@dataclass(frozen=True, slots=True, kw_only=True)
class GanttRow:
    """What one worker ran."""

    label: str
    y: int
    bars: list[TimeBar]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gantt:
    """What ran when, on which worker."""

    begin: datetime
    end: datetime
    count: int
    height: int
    rows: list[GanttRow]


class _Scale:
    """Maps instants to x coordinates between ``left`` and ``right``."""

    def __init__(self, begin: datetime, end: datetime, *, left: float, right: float) -> None:
        self._begin = begin
        self._length = max((end - begin).total_seconds(), 0.001)
        self._left, self._width = left, right - left

    def x(self, at: datetime) -> float:
        share = (at - self._begin).total_seconds() / self._length
        return round(self._left + self._width * min(max(share, 0.0), 1.0), 2)


def draw_timeline(run: RunView, attempts: Sequence[Attempt], *, now: datetime) -> Timeline:
    """Waiting, running and backing off: one row for each attempt."""
    spans: list[tuple[str, str, datetime, datetime]] = []
    begin, at = run.created_at, run.created_at
    for each in attempts:
        started = each.started_at or each.ended_at
        spans.append((f"wait {each.attempt}", "wait", at, max(started, at)))
        spans.append((f"attempt {each.attempt}", "bad", started, each.ended_at))
        at = each.ended_at
    is_recorded = bool(attempts) and run.ended_at is not None and run.ended_at <= at
    if not is_recorded:
        started_at = run.started_at if run.started_at and run.started_at >= at else None
        end = run.ended_at or now
        spans.append(("waiting", "wait", at, started_at or end))
        if started_at is not None:
            spans.append((f"attempt {run.attempt or 1}", _end_tone(run), started_at, end))
    last = max([span[3] for span in spans] + [begin + timedelta(milliseconds=1)])
    scale = _Scale(begin, last, left=110, right=636)
    bars = [
        TimeBar(
            label=label,
            text=seconds((to - since).total_seconds()),
            tone=kind,
            x=scale.x(since),
            width=max(scale.x(to) - scale.x(since), 2),
            y=number * 20,
        )
        for number, (label, kind, since, to) in enumerate(spans)
    ]
    return Timeline(begin=begin, end=last, height=len(bars) * 20 + 20, bars=bars)


def _end_tone(run: RunView) -> str:
    found = tone(run.status.value)
    return found if run.ended_at is not None else "busy"


def draw_gantt(runs: Sequence[RunView], *, now: datetime) -> Gantt:
    """The runs of each worker, newest first, over the time that they cover."""
    started = [run for run in runs if run.started_at is not None and run.worker is not None]
    begin = min((run.started_at for run in started if run.started_at), default=now)
    end = max((run.ended_at or now for run in started), default=now)
    scale = _Scale(begin, end, left=120, right=900)
    rows = []
    for number, worker in enumerate(dict.fromkeys(run.worker for run in started)):
        bars = []
        for run in started:
            if run.worker != worker or run.started_at is None:
                continue
            to = run.ended_at or now
            bars.append(
                TimeBar(
                    label=run.job,
                    text=f"{run.job}, {run.status.value.replace('_', ' ')}, "
                    f"{seconds((to - run.started_at).total_seconds())}",
                    tone=_end_tone(run),
                    x=scale.x(run.started_at),
                    width=max(scale.x(to) - scale.x(run.started_at), 2),
                    id=run.id,
                )
            )
        rows.append(GanttRow(label=str(worker)[:13], y=number * 24, bars=bars))
    return Gantt(begin=begin, end=end, count=len(started), height=len(rows) * 24 + 20, rows=rows)
