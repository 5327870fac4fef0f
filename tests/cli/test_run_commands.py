"""Counts per queue, progress as a bar, and the hint at runs that failed for good."""

from typing import Any

import pytest

from tickwork import RunContext
from tickwork._stores.contract import RunFilter
from tickwork.cli.follow import RunFollower
from tickwork.cli.formats import progress_text


class TestQueues:
    """``status`` counts the unfinished runs of each queue."""

    @pytest.fixture
    def queues(self, app):
        mail = app.schedule("mail", lambda n: n).queue("emails")
        mail.dispatch(n=1)
        mail.dispatch(n=2)
        mail.delay("1h").dispatch(n=3)
        app.schedule("digest", lambda: None).dispatch()
        app.pause(queue="emails")
        return app

    def test_as_json(self, queues, cli):
        found = {queue["name"]: queue for queue in cli.json("status")["queues"]}

        assert set(found) == {"default", "emails"}
        emails = found["emails"]
        assert (emails["ready"], emails["waiting"], emails["running"]) == (2, 1, 0)
        assert (emails["is_paused"], found["default"]["is_paused"]) == (True, False)
        assert found["default"]["ready"] == 1

    def test_as_text(self, queues, cli):
        lines = cli.text("status").splitlines()

        head = next(line for line in lines if line.startswith("QUEUE"))
        assert head.split() == ["QUEUE", "READY", "WAITING", "BLOCKED", "RUNNING"]
        assert any(line.split() == ["emails", "(paused)", "2", "1", "0", "0"] for line in lines)

    def test_a_queue_with_finished_runs_only_is_not_listed(self, app, cli):
        app.schedule("digest", lambda: None).dispatch()
        app.run()

        assert cli.json("status")["queues"] == []
        assert "QUEUE " not in cli.text("status").partition("JOB")[0]


class TestSuspendedRuns:
    """``runs --waiting`` lists the runs that sleep or wait for an event."""

    def test_those_that_wait(self, app, cli):
        @app.job
        def order(ctx: RunContext) -> None:
            ctx.wait_for("approved", timeout="7d")

        @app.job
        def sleeper(ctx: RunContext) -> None:
            ctx.sleep("7d")

        runs = [order.dispatch(), sleeper.dispatch()]
        app.schedule("digest", lambda: None).delay("1h").dispatch()
        app.run()

        found = cli.json("runs", "--waiting")["runs"]
        assert sorted(each["id"] for each in found) == sorted(run.id for run in runs)
        assert "waits for approved" in cli.text("runs", "--waiting")
        runs[0].signal("approved")
        app.run()
        assert [each["job"] for each in cli.json("runs", "--waiting")["runs"]] == ["sleeper"]


class TestFailedRuns:
    """``failed`` means that a retry follows. Many expect the final failures there."""

    def test_the_status_failed_hints_at_failed_permanent(self, app, cli):
        app.schedule("divides", lambda: 1 / 0).dispatch()
        app.run()

        text = cli.text("runs", "-s", "failed")
        assert "No runs match." in text
        assert "failed_permanent" in text
        assert "add --status failed_permanent" not in cli.text(
            "runs", "-s", "failed", "-s", "failed_permanent"
        )

    def test_other_lists_have_no_hint(self, app, cli):
        assert "failed_permanent" not in cli.text("runs")
        assert "hint" not in cli.json("runs", "-s", "failed")


class TestProgress:
    """What a handler reported with ``ctx.progress`` is a bar."""

    @pytest.fixture
    def half_way(self, app):
        found: dict[str, Any] = {}

        def import_rows(ctx: RunContext) -> None:
            ctx.progress(0.5, note="half way")
            found["runs"] = found["cli"].text("runs")
            found["inspect"] = found["cli"].text("inspect", ctx.run_id)

        app.schedule("import_rows", import_rows)
        return found

    def test_in_the_lists(self, app, cli, half_way):
        half_way["cli"] = cli
        app.dispatch("import_rows")
        app.run()

        assert "█████░░░░░ 50 % half way" in half_way["runs"]
        assert "█████░░░░░ 50 % half way" in half_way["inspect"]

    def test_a_finished_run_shows_it_in_inspect_only(self, app, cli, half_way):
        half_way["cli"] = cli
        run = app.dispatch("import_rows")
        app.run()

        assert "█" not in cli.text("runs")
        assert "half way" in cli.text("inspect", run.id)

    def test_follow_prints_each_change(self, app):
        seen: list[Any] = []

        def import_rows(ctx: RunContext) -> None:
            for share in (0.25, 0.5):
                ctx.progress(share)
                seen.extend(run.progress for run in follower.poll())

        app.schedule("import_rows", import_rows).dispatch()
        follower = RunFollower(app, RunFilter(), limit=10)
        app.run()

        assert [("0.25" in each, "0.5" in each) for each in seen] == [(True, False), (False, True)]

    @pytest.mark.parametrize(
        ("stored", "text"),
        [
            ({"share": 0, "note": ""}, "░░░░░░░░░░ 0 %"),
            ({"share": 1.0, "note": "done"}, "██████████ 100 % done"),
            ({"share": 0.999, "note": ""}, "█████████░ 99 %"),
            ({"share": 7, "note": "edited"}, "{'share': 7, 'note': 'edited'}"),
            ({"share": "x"}, "{'share': 'x'}"),
            ("text of another program", "text of another program"),
        ],
    )
    def test_the_bar(self, stored, text):
        assert progress_text(stored) == text
