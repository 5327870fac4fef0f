from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta

import pytest

from tickwork._dispatch.dispatch_options import NO_DISPATCH_OPTIONS, DispatchOptions
from unit.builders import NOON

HOUR = timedelta(hours=1)


class TestDueAt:
    """The options ``at`` and ``delay`` decide when a run is due."""

    @pytest.mark.parametrize(
        ("options", "due_at"),
        [
            (NO_DISPATCH_OPTIONS, NOON),
            (DispatchOptions(delay=HOUR), NOON + HOUR),
            (DispatchOptions(delay=timedelta(0)), NOON),
            (DispatchOptions(at=NOON + HOUR), NOON + HOUR),
            (DispatchOptions(at=NOON - HOUR), NOON),
            (DispatchOptions(delay=timedelta.max), datetime.max.replace(tzinfo=UTC)),
        ],
    )
    def test_a_table(self, options, due_at):
        assert options.due_at(NOON) == due_at


class TestDispatchOptions:
    """Options of a dispatch are a value, and override those of the job."""

    def test_it_cannot_be_changed(self):
        with pytest.raises(FrozenInstanceError):
            NO_DISPATCH_OPTIONS.queue = "slow"  # type: ignore[misc]

    def test_without_options_those_of_the_job_apply(self, app):
        job = app.schedule("it", lambda: None).queue("slow").priority(5).tags("red")
        job.expires("1h").concurrency(3)

        run = job.dispatch().read()

        assert (run.queue, run.priority, run.tags) == ("slow", 5, ("red",))
        assert run.limit_keys == ("job:it",)
        assert run.expires_at == run.due_at + HOUR

    def test_options_of_a_draft_override_those_of_the_job(self, app):
        job = app.schedule("it", lambda: None).queue("slow").priority(5)
        job.expires("1h").concurrency(3, per="queue")

        run = job.job.queue("quick").priority(0).expires("2h").dispatch().read()

        assert (run.queue, run.priority) == ("quick", 0)
        assert run.limit_keys == ("queue:quick",)
        assert run.expires_at == run.due_at + 2 * HOUR

    def test_a_limit_per_argument_uses_the_arguments_of_job_draft_and_dispatch(self, app):
        job = app.schedule("it", lambda account=1, **rest: None).args(account=7)
        job.concurrency(1, per="account")

        assert job.dispatch().read().limit_keys == ("account:it=7",)
        assert job.job.args(account=8).dispatch().read().limit_keys == ("account:it=8",)
        assert job.job.args(account=8).dispatch(account=9).read().limit_keys == ("account:it=9",)
        assert job.dispatch_many([{"account": 1}])[0].read().limit_keys == ("account:it=1",)

    def test_ids_increase_in_the_order_of_dispatches(self, app):
        job = app.schedule("it", lambda: None)
        runs = [job.dispatch(), *job.dispatch_many([{}] * 3), job.dispatch()]

        assert [run.id for run in runs] == sorted(run.id for run in runs)
