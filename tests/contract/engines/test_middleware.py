"""Middleware wraps every attempt, in every engine."""

import pytest

from contract.engines import wrapped_jobs
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork_conformance.engines import EngineHarness


@pytest.fixture
def attempt(tested_engine, tmp_path):
    """Make one attempt; return its transition and what the middleware noted."""
    harness = EngineHarness(tested_engine, 1, wrapped_jobs)
    file = tmp_path / "notes"
    file.touch()

    def make(how, job="work"):
        harness.submit(harness.claim(job, file=str(file), how=how))
        [step] = harness.steps(1)
        return step, file.read_text().splitlines()

    yield make
    harness.interrupt()
    harness.engine.stop()


class TestStartHooks:
    """Each child process calls them, on the loop of its coroutines."""

    @pytest.fixture
    def kind(self):
        return "processes"

    def test_they_are_called_before_the_first_attempt(self, attempt):
        step, _ = attempt("fine", job="is_connected")

        assert step.result == "true"


class TestMiddleware:
    def test_it_sees_arguments_and_result_and_sets_context_variables(self, attempt, kind):
        step, notes = attempt("fine")

        assert step.outcome is OutcomeKind.SUCCEEDED
        # The first middleware is the outermost, and hooks come last.
        assert notes == ["begin work fine", "inner", "returned inside", "after"]

    def test_it_sees_the_exception(self, attempt):
        step, notes = attempt("value")

        assert step.reason == "ValueError: no"
        assert notes == ["begin work value", "inner", "raised ValueError", "after"]

    def test_it_can_replace_the_exception(self, attempt):
        step, notes = attempt("snoozed")

        assert step.outcome is OutcomeKind.SNOOZED
        assert notes == ["begin work snoozed", "inner", "raised Snooze", "after"]

    def test_an_exception_that_it_handles_is_a_success_without_result(self, attempt):
        step, notes = attempt("hidden")

        assert (step.outcome, step.result) == (OutcomeKind.SUCCEEDED, None)
        assert notes == ["begin work hidden", "inner", "returned None", "after"]

    @pytest.mark.parametrize(
        ("how", "reason"),
        [
            ("refused", "PermissionError: not now"),
            ("no yield", "must yield exactly once"),
            ("yields twice", "must yield exactly once"),
        ],
    )
    def test_its_own_exception_fails_the_attempt(self, attempt, how, reason):
        step, notes = attempt(how)

        assert step.outcome is OutcomeKind.FAILED
        assert reason in step.reason
        assert notes[-1] == "after"

    def test_it_is_left_after_a_timeout(self, attempt, kind):
        step, notes = attempt("late", job="waits")

        assert "AttemptTimeout" in step.reason
        assert notes[0] == "begin waits late"
        assert "inner" in notes
        assert notes[-1] == "after"
