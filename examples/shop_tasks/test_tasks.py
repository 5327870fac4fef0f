"""The tasks in memory: no broker, no worker, no waiting."""

from datetime import UTC, date, datetime

import pytest
from shop_tasks import shop, tasks
from shop_tasks.app import app
from shop_tasks.tasks import Item, charge, report, ship

from tickwork import RunStatus, Tickwork
from tickwork.integrations.pytest_plugin import Swap
from tickwork.testing import assert_dispatched, assert_not_dispatched, drain, travel


@pytest.fixture
def tickwork_app(tickwork_swap: Swap) -> Tickwork:
    """The application in memory, on a clock that the test moves."""
    return tickwork_swap(app)


def test_a_charged_order_is_shipped(tickwork_app: Tickwork) -> None:
    run_id = shop.sell(order=7, amount=1250)

    done = drain(tickwork_app)

    assert [attempt.job for attempt in done] == ["charge", "ship"]
    assert tickwork_app.get_run(run_id).result() == f"charge of 1250 for order 7 ({run_id[:8]})"
    [shipped] = assert_dispatched(tickwork_app, ship, args={"order": 7}, queue="warehouse")
    assert shipped.handle.result() == 2


def test_a_lost_connection_is_retried_and_nothing_is_shipped_before(
    tickwork_app: Tickwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []

    def fail_twice(order: int, amount: int, *, key: str) -> str:
        keys.append(key)
        if len(keys) < 3:
            raise ConnectionError("the provider is away")
        return "charged"

    monkeypatch.setattr(tasks.provider, "charge", fail_twice)
    shop.sell(order=7, amount=1250)

    first = drain(tickwork_app)
    assert [attempt.error for attempt in first] == ["ConnectionError: the provider is away"]
    assert_not_dispatched(tickwork_app, ship)
    rest = travel(tickwork_app, minutes=10)

    assert [attempt.job for attempt in rest] == ["charge", "charge", "ship"]
    assert len(set(keys)) == 1  # the provider charges once


def test_a_rejected_card_is_not_retried(
    tickwork_app: Tickwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(order: int, amount: int, *, key: str) -> str:
        raise tasks.PaymentRejected(f"order {order}")

    monkeypatch.setattr(tasks.provider, "charge", reject)
    run_id = shop.sell(order=7, amount=1250)

    assert len(travel(tickwork_app, hours=1)) == 1
    assert tickwork_app.get_run(run_id).status is RunStatus.FAILED_PERMANENT


def test_a_task_with_a_countdown(tickwork_app: Tickwork) -> None:
    shop.sell_later(order=7, amount=1250)

    [found] = assert_dispatched(tickwork_app, charge, queue="payments")
    assert (found.priority, found.at) == (5, datetime(2026, 1, 1, 0, 10, tzinfo=UTC))
    assert len(drain(tickwork_app)) == 0
    assert len(travel(tickwork_app, minutes=10)) == 2


def test_an_order_without_items_waits(tickwork_app: Tickwork) -> None:
    ship.dispatch(order=7, items=[])

    [attempt] = drain(tickwork_app)

    assert attempt.due_at == datetime(2026, 1, 1, 1, tzinfo=UTC)


def test_arguments_keep_their_types(tickwork_app: Tickwork) -> None:
    run = ship.dispatch(order=7, items=[Item("milk", 3)])
    drain(tickwork_app)

    assert run.result() == 3


def test_a_group_has_each_day_once(tickwork_app: Tickwork) -> None:
    assert shop.report_month(2026, 2, days=28) == 28
    assert shop.report_month(2026, 2, days=28) == 0
    assert len(drain(tickwork_app)) == 28


@pytest.mark.tickwork(start="2026-03-27T00:00:00+01:00")  # a Friday
def test_the_report_is_sent_on_working_days(tickwork_app: Tickwork) -> None:
    done = travel(tickwork_app, days=4).of(report)

    assert [attempt.result for attempt in done] == [
        "sales of 27 March 2026",
        "sales of 30 March 2026",
    ]
    assert done[0].nominal_at == datetime(2026, 3, 27, 6, tzinfo=UTC)
    assert date(2026, 3, 28).weekday() == 5
