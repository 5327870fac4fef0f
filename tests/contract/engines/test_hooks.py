"""Hooks see the outcome that is recorded, in every engine."""

from datetime import timedelta

import pytest

from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.status import RunStatus


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "hooks"
    path.touch()
    return path


@pytest.fixture
def run(harness, file):
    """Make one attempt; return its transition and the notes of its hooks."""

    def make(job, **args):
        harness.submit(harness.claim(job, file=str(file), **args))
        [step] = harness.steps(1)
        return step, notes(harness, file)

    return make


def notes(harness, file):
    """The notes of the hooks, once ``on_after`` was called."""
    harness.until(lambda: "after" in file.read_text())
    return file.read_text().splitlines()


def started(harness, job, file, **args):
    claim = harness.claim(job, file=str(file), **args)
    harness.submit(claim)
    harness.until(lambda: harness.held.of(claim).started_at is not None)
    return claim


class TestOutcomes:
    @pytest.mark.parametrize(
        ("how", "outcome", "expected"),
        [
            ("fine", OutcomeKind.SUCCEEDED, ["success fine", "after Succeeded"]),
            ("value", OutcomeKind.FAILED, ["error ValueError", "after Failed"]),
            ("exit", OutcomeKind.FAILED, ["error SystemExit", "after Failed"]),
            ("generator", OutcomeKind.FAILED, ["error RuntimeError", "after Failed"]),
            ("retry", OutcomeKind.FAILED, ["error RetryLater", "after Failed"]),
            ("delay", OutcomeKind.FAILED, ["error InvalidDuration", "after Failed"]),
            ("canceled", OutcomeKind.FAILED, ["error CancelledError", "after Failed"]),
            ("reported", OutcomeKind.FAILED, ["error RunUnsuccessful", "after Failed"]),
            ("snooze", OutcomeKind.SNOOZED, ["after Snoozed"]),
        ],
    )
    def test_every_way_to_leave_a_handler(self, run, how, outcome, expected):
        step, seen = run("leaves", how=how)

        assert step.outcome is outcome
        assert seen == expected
        if how != "reported" and outcome is OutcomeKind.FAILED:
            assert step.reason.startswith(expected[0].removeprefix("error "))

    def test_a_timeout_is_an_error(self, run):
        step, seen = run("overdue")

        assert step.reason.startswith("AttemptTimeout")
        assert seen == ["error AttemptTimeout", "after Failed"]

    def test_a_slow_hook_does_not_change_the_outcome(self, harness, file):
        harness.submit(harness.claim("has_a_slow_hook", file=str(file)))

        [step] = harness.steps(1)
        assert step.outcome is OutcomeKind.SUCCEEDED
        # Where a hook can be ended, it may take as long as the timeout, and on_after is dropped.
        assert file.read_text().splitlines()[:1] == ["success None"]
        assert "error" not in file.read_text()


class TestCancels:
    def test_a_cancel_calls_only_on_after(self, harness, file):
        claim = started(harness, "polls", file)

        harness.held.cancel(claim.run_id)

        [step] = harness.steps(1)
        assert step.to_status is RunStatus.CANCELED
        assert notes(harness, file) == ["after Canceled"]

    @pytest.mark.parametrize(
        ("stop", "outcome"),
        [
            (lambda held, claim: held.cancel(claim.run_id), "Canceled"),
            (lambda held, claim: held.revoke(claim.run_id, token=claim.token), "Interrupted"),
        ],
    )
    def test_a_handler_may_raise_to_stop(self, harness, file, stop, outcome):
        claim = started(harness, "aborts", file)

        stop(harness.held, claim)

        [step] = harness.steps(1)
        assert step.outcome.value == outcome.lower()
        assert notes(harness, file) == [f"after {outcome}"]

    def test_a_worker_that_stops_calls_only_on_after(self, harness, file):
        started(harness, "sleeps", file, seconds=0.8)

        harness.interrupt()

        [step] = harness.steps(1)
        assert step.outcome is OutcomeKind.INTERRUPTED
        assert notes(harness, file) == ["after Interrupted"]

    def test_an_attempt_whose_lease_was_lost_calls_only_on_after(self, harness, file):
        claim = started(harness, "polls", file)

        harness.held.revoke(claim.run_id, token=claim.token)

        [step] = harness.steps(1)
        assert step.outcome is OutcomeKind.INTERRUPTED
        assert notes(harness, file) == ["after Interrupted"]


class TestGivenUp:
    """An attempt that ignores its timeout is recorded as failed before it ends."""

    @pytest.fixture(params=["inline", "threads"])
    def kind(self, request):
        return request.param

    @pytest.mark.parametrize(
        ("job", "args"),
        [("overdue", {}), ("raises_when_late", {"seconds": 0.6})],
    )
    def test_its_hooks_get_the_timeout(self, harness, file, job, args):
        started(harness, job, file, **args)
        harness.until(lambda: harness.runner.watch_deadlines(timedelta(0)))

        [step] = harness.steps(1)
        assert step.reason.startswith("AttemptTimeout")
        assert notes(harness, file) == ["error AttemptTimeout", "after Failed"]

    def test_a_hook_that_does_not_end_does_not_change_the_outcome(self, harness, file):
        started(harness, "has_a_slow_hook", file)
        harness.until(lambda: "success" in file.read_text())

        harness.until(lambda: harness.runner.watch_deadlines(timedelta(0)) or harness.writer.outbox)

        [step] = harness.steps(1)
        assert step.outcome is OutcomeKind.SUCCEEDED


class TestKilled:
    @pytest.fixture
    def kind(self):
        return "processes"

    def test_a_process_that_dies_in_a_hook_keeps_its_outcome(self, harness):
        harness.submit(harness.claim("dies_in_a_hook"))

        [step] = harness.steps(1)

        assert (step.outcome, step.result) == (OutcomeKind.SUCCEEDED, '"done"')
        assert len(step.follow_ups) == 1  # that of the handler; the hook's was not sent

    @pytest.mark.parametrize("how", ["killed", "ended"])
    def test_a_process_that_dies(self, run, how, caplog, capfd):
        step, seen = run("is_killed", how=how)

        assert step.outcome is OutcomeKind.CRASHED
        assert seen == ["error RunUnsuccessful", "after Crashed"]
        assert "AssertionError" not in caplog.text + "".join(capfd.readouterr())
