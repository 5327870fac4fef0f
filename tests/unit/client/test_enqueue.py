from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta

import pytest

from tickwork._client.enqueue import PLAIN_ORDER, Order
from unit.builders import NOON

HOUR = timedelta(hours=1)


class TestDueAt:
    """What was said about when, as an instant."""

    @pytest.mark.parametrize(
        ("order", "due_at"),
        [
            (PLAIN_ORDER, NOON),
            (Order(delay=HOUR), NOON + HOUR),
            (Order(delay=timedelta(0)), NOON),
            (Order(at=NOON + HOUR), NOON + HOUR),
            (Order(at=NOON - HOUR), NOON),
            (Order(delay=timedelta.max), datetime.max.replace(tzinfo=UTC)),
        ],
    )
    def test_a_table(self, order, due_at):
        assert order.due_at(NOON) == due_at


class TestOrders:
    """An order is a value."""

    def test_it_cannot_be_changed(self):
        with pytest.raises(FrozenInstanceError):
            PLAIN_ORDER.queue = "slow"  # type: ignore[misc]

    def test_nothing_said_is_as_the_job_says(self, app):
        job = app.schedule("it", lambda: None).queue("slow").priority(5).tags("red")
        job.expires("1h").concurrency(3)

        run = job.dispatch().read()

        assert (run.queue, run.priority, run.tags) == ("slow", 5, ("red",))
        assert run.limit_keys == ("job:it",)
        assert run.expires_at == run.due_at + HOUR

    def test_said_on_a_draft_it_is_otherwise(self, app):
        job = app.schedule("it", lambda: None).queue("slow").priority(5)
        job.expires("1h").concurrency(3, per="queue")

        run = job.job.queue("quick").priority(0).expires("2h").dispatch().read()

        assert (run.queue, run.priority) == ("quick", 0)
        assert run.limit_keys == ("queue:quick",)
        assert run.expires_at == run.due_at + 2 * HOUR

    def test_a_limit_per_argument_goes_by_all_arguments(self, app):
        job = app.schedule("it", lambda account=1, **rest: None).args(account=7)
        job.concurrency(1, per="account")

        assert job.dispatch().read().limit_keys == ("account:it=7",)
        assert job.job.args(account=8).dispatch().read().limit_keys == ("account:it=8",)
        assert job.job.args(account=8).dispatch(account=9).read().limit_keys == ("account:it=9",)
        assert job.dispatch_many([{"account": 1}])[0].read().limit_keys == ("account:it=1",)

    def test_ids_go_up_with_the_order_of_dispatches(self, app):
        job = app.schedule("it", lambda: None)
        runs = [job.dispatch(), *job.dispatch_many([{}] * 3), job.dispatch()]

        assert [run.id for run in runs] == sorted(run.id for run in runs)
