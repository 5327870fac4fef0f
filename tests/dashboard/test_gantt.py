"""What ran when: runs at the same time are below each other, and silent workers are shown."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from tickwork import RunStatus, Tickwork
from tickwork._domain.identity import RunId, WorkerId
from tickwork.dashboard.presentation import LANES_MAX, draw_gantt

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ANN, BOB = (WorkerId(f"019b76da-a800-7000-8000-00000000000{number}") for number in (1, 2))


@pytest.fixture(scope="module")
def run():
    with Tickwork("memory://") as app:

        @app.job
        def work() -> None: ...

        view = app.inspect.view(app.dispatch("work").read())

    numbers = count(1)

    def make(start, end, *, worker=ANN, status=RunStatus.COMPLETED):
        return replace(
            view,
            id=RunId(f"019b76da-a800-7000-8000-{next(numbers):012}"),
            worker=worker,
            status=status,
            started_at=NOON + start * MINUTE,
            ended_at=None if end is None else NOON + end * MINUTE,
        )

    return make


def draw(runs, workers=()):
    return draw_gantt(runs, workers, begin=NOON, now=NOON + 10 * MINUTE)


def test_runs_at_the_same_time_have_a_lane_each(run):
    [row] = draw([run(0, 4), run(1, 3), run(4, 6), run(3, 5)]).rows

    assert len({bar.y for bar in row.bars}) == 2
    for bar in row.bars:
        for other in row.bars:
            apart = bar.x + bar.width <= other.x or other.x + other.width <= bar.x
            assert bar is other or bar.y != other.y or apart


def test_what_a_silent_worker_holds_comes_first(run):
    held = run(-600, None, worker=BOB, status=RunStatus.RUNNING)
    found = draw([run(1, 2), held])

    # Both have no row any more: one of them has ended, and holds nothing.
    assert [(row.worker, row.is_silent) for row in found.rows] == [(BOB, True), (ANN, False)]
    [bar] = found.rows[0].bars
    assert (bar.id, bar.tone) == (held.id, "busy")
    assert bar.x == 150  # since before the chart begins
    assert bar.width == 750


def test_a_run_that_is_listed_twice_is_drawn_once(run):
    one = run(1, 2)
    assert draw([one, one]).count == 1


def test_runs_before_the_chart_are_left_out(run):
    assert draw([run(-9, -1)]).rows == []


def test_there_is_an_end_to_the_lanes(run):
    [row] = draw([run(1, 9) for _ in range(LANES_MAX + 5)]).rows

    assert (len(row.bars), row.left_out) == (LANES_MAX, 5)
