"""Values as pages show them: times, durations, colours, and the geometry of charts."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from jinja2 import pass_context
from jinja2.runtime import Context

from tickwork._domain.identity import WorkerId
from tickwork._inspect.runs import RunView
from tickwork._inspect.status import WorkerView
from tickwork._kernel.durations import human_duration, relative_time
from tickwork._kernel.json_form import as_json
from tickwork._kernel.plain_text import count_of
from tickwork._stores.contract import Attempt, CountPrecision, RunCount
from tickwork.dashboard.display_zone import DisplayZone

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
LANES_MAX: Final = 16
"""The most runs at the same time that the chart of a worker shows."""

LANE_HEIGHT: Final = 11


def tone(value: object) -> str:
    return TONES.get(str(value), "idle")


@pass_context
def moment(context: Context, at: datetime | None, schedule_zone: str = "") -> str:
    """A time in the zone that the browser has selected."""
    zone: DisplayZone = context.get("zone") or DisplayZone()
    return zone.text(at, schedule_zone)


def seconds(value: float) -> str:
    """A number of seconds as a duration."""
    return human_duration(timedelta(seconds=value))


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


def runs_are(count: int) -> str:
    return f"{count_of(count, 'run')} {'is' if count == 1 else 'are'}"


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
    "moment": moment,
    "relative": relative_time,
    "seconds": seconds,
    "lasted": human_duration,
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
    """What one worker ran: runs at the same time are below each other."""

    worker: str
    label: str
    is_silent: bool
    y: int
    height: int
    bars: list[TimeBar]
    left_out: int  # runs for which there was no place


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
        kind = {"suspended": "busy", "succeeded": "good"}.get(each.outcome, "bad")
        spans.append((f"attempt {each.attempt}", kind, started, each.ended_at))
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
            text=human_duration(to - since),
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


def draw_gantt(
    runs: Iterable[RunView], workers: Sequence[WorkerView], *, begin: datetime, now: datetime
) -> Gantt:
    """The runs of each worker since ``begin``; silent workers, and what they hold, come first."""
    scale = _Scale(begin, now, left=150, right=900)
    known = {each.id: each for each in workers}
    shown = [
        run
        for run in {run.id: run for run in runs}.values()
        if run.started_at is not None and run.worker is not None and (run.ended_at or now) >= begin
    ]
    shown.sort(key=lambda run: (run.started_at or now, run.id))

    # A worker that has ended holds nothing, and has no row any more.
    silent = {str(each.id) for each in workers if each.is_silent}
    silent |= {str(run.worker) for run in shown if run.ended_at is None and run.worker not in known}
    rows: list[GanttRow] = []
    y = 0
    names = {str(run.worker) for run in shown}
    for worker in sorted(names, key=lambda name: (name not in silent, name)):
        bars, lanes, left_out = _place_bars(
            [run for run in shown if run.worker == worker], scale, y=y, now=now
        )
        view = known.get(WorkerId(worker))
        height = max(lanes * LANE_HEIGHT, 2 * LANE_HEIGHT) + 6
        rows.append(
            GanttRow(
                worker=worker,
                label=worker[:13] if view is None else f"{view.host[:14]} {view.pid}",
                is_silent=worker in silent,
                y=y,
                height=height,
                bars=bars,
                left_out=left_out,
            )
        )
        y += height
    return Gantt(begin=begin, end=now, count=len(shown), height=y + 20, rows=rows)


def _place_bars(
    runs: Sequence[RunView], scale: "_Scale", *, y: int, now: datetime
) -> tuple[list[TimeBar], int, int]:
    """A bar for each run, in the first lane that is free at its start."""
    free_at: list[datetime] = []
    bars: list[TimeBar] = []
    left_out = 0
    for run in runs:
        assert run.started_at is not None, run.id
        to = run.ended_at or now
        lane = next((at for at, free in enumerate(free_at) if free <= run.started_at), len(free_at))
        if lane >= LANES_MAX:
            left_out += 1
            continue
        free_at[lane : lane + 1] = [to]
        left = scale.x(run.started_at)
        bars.append(
            TimeBar(
                label=run.job,
                text=f"{run.job}, {run.status.value.replace('_', ' ')}, "
                f"{human_duration(to - run.started_at)}",
                tone=_end_tone(run),
                x=left,
                width=max(scale.x(to) - left, 2),
                y=y + lane * LANE_HEIGHT,
                id=run.id,
            )
        )
    return bars, len(free_at), left_out
