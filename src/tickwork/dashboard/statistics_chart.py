"""Charts of what was counted: percentiles over time, and the outcomes of a schedule by day."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tickwork._domain.runs.status import RunStatus
from tickwork._inspect.activity import Percentiles
from tickwork._inspect.deploys import Deploy
from tickwork._inspect.outcomes import DayOutcomes, OutcomeDays
from tickwork._inspect.statistics import SpanStatistics, StatisticsHistory
from tickwork._kernel.plain_text import count_of

WIDTH: Final = 640
HEIGHT: Final = 110
_DAY: Final = timedelta(days=1)
_CELL: Final = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class PercentileBar:
    """The percentiles of one hour or day: up to the median, to 95 % and to 99 %."""

    at: datetime
    x: float
    width: float
    heights: tuple[float, float, float]  # of the three, from the bottom
    values: Percentiles


@dataclass(frozen=True, slots=True, kw_only=True)
class PercentileChart:
    """Bars over time, in the same scale for runtimes and waits."""

    begin: datetime
    runtimes: list[PercentileBar]
    waits: list[PercentileBar]
    runtime_max: float  # seconds at the top
    wait_max: float
    marks: list["DeployMark"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCell:
    """A day in a grid of weeks."""

    x: int
    y: int
    tone: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DayGrid:
    """The days of a schedule, a column for each week."""

    cells: list[DayCell]
    width: int
    height: int
    days: OutcomeDays


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployMark:
    """A deploy in a chart."""

    x: float
    deploy: Deploy


def draw_percentiles(history: StatisticsHistory, deploys: Sequence[Deploy]) -> PercentileChart:
    runtimes, runtime_max = _draw_bars(history, lambda span: span.runtime)
    waits, wait_max = _draw_bars(history, lambda span: span.wait)
    return PercentileChart(
        begin=history.total.at,
        runtimes=runtimes,
        waits=waits,
        runtime_max=runtime_max,
        wait_max=wait_max,
        marks=[
            DeployMark(x=_place_of(history, each.at), deploy=each)
            for each in deploys
            if history.total.at <= each.at
        ],
    )


def _place_of(history: StatisticsHistory, at: datetime) -> float:
    step = timedelta(seconds=history.step_seconds)
    return round(min((at - history.total.at) / step / _number_of(history), 1) * WIDTH, 1)


def _number_of(history: StatisticsHistory) -> int:
    """How many hours or days the chart shows."""
    last = max((span.at for span in history.spans), default=history.total.at)
    return (last - history.total.at) // timedelta(seconds=history.step_seconds) + 1


def _draw_bars(
    history: StatisticsHistory, get: Callable[[SpanStatistics], Percentiles | None]
) -> tuple[list[PercentileBar], float]:
    found = [(span.at, values) for span in history.spans if (values := get(span)) is not None]
    highest = max((values.p99 for _, values in found), default=0.0)
    step = timedelta(seconds=history.step_seconds)
    width = WIDTH / _number_of(history)
    bars = [
        PercentileBar(
            at=at,
            x=round((at - history.total.at) / step * width, 1),
            width=round(max(width - 1, 1), 1),
            heights=_scale((values.p50, values.p95, values.p99), highest),
            values=values,
        )
        for at, values in found
    ]
    return bars, highest


def _scale(values: tuple[float, float, float], highest: float) -> tuple[float, float, float]:
    low, middle, high = (round(max(value / highest * HEIGHT, 1), 1) for value in values)
    return low, middle, high


def draw_days(outcomes: OutcomeDays, *, weeks: int = 26) -> DayGrid:
    """A grid with a column for each week, as far back as there are days."""
    by_day = {each.day: each for each in outcomes.days}
    if not by_day:
        return DayGrid(cells=[], width=0, height=0, days=outcomes)
    last = max(by_day)
    monday = last - last.weekday() * _DAY - (weeks - 1) * 7 * _DAY
    cells = [
        DayCell(
            x=number // 7 * _CELL,
            y=number % 7 * _CELL,
            tone=_tone_of(by_day.get(day)),
            text=f"{day:%a %Y-%m-%d}: {_text_of(by_day.get(day))}",
        )
        for number in range(weeks * 7)
        if (day := monday + number * _DAY) <= last
    ]
    return DayGrid(cells=cells, width=weeks * _CELL, height=7 * _CELL, days=outcomes)


_WORST_FIRST: Final[Sequence[tuple[RunStatus, str]]] = (
    (RunStatus.FAILED_PERMANENT, "bad"),
    (RunStatus.SKIPPED, "warn"),
    (RunStatus.FAILED, "warn"),
    (RunStatus.CANCELED, "idle"),
    (RunStatus.RUNNING, "busy"),
    (RunStatus.COMPLETED, "good"),
)


def _tone_of(day: DayOutcomes | None) -> str:
    """The colour of the worst outcome of a day."""
    found = {} if day is None else day.runs
    return next((tone for status, tone in _WORST_FIRST if found.get(status.value)), "h0")


def _text_of(day: DayOutcomes | None) -> str:
    if day is None:
        return "no runs"
    return ", ".join(
        f"{number:,} {status.replace('_', ' ')}" for status, number in sorted(day.runs.items())
    ) or count_of(0, "run")
