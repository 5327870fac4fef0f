"""The contract of every engine, and what only some of them do."""

from datetime import timedelta
from multiprocessing.connection import Pipe
from typing import Any

import pytest

from contract.engines.conftest import UNUSED
from contract.engines.jobs import app
from tickwork._domain.identity import RunId
from tickwork._domain.runs.outcome import OutcomeKind, Succeeded
from tickwork._domain.runs.status import RunStatus
from tickwork._engines.local.processes import ChildProcess
from tickwork._engines.wire import AttemptReply, LogMessage
from tickwork_conformance.engines import (
    TestEngineHealth,
    TestEngineOrder,
    TestEngineOutcomes,
    TestEngineStops,
    TestEngineSuspensions,
)
from unit.builders import NOON, a_claim

__all__ = [
    "TestEngineHealth",
    "TestEngineOrder",
    "TestEngineOutcomes",
    "TestEngineStops",
    "TestEngineSuspensions",
]

ASYNC_JOBS: tuple[tuple[str, dict[str, int]], ...] = (
    ("note", {"n": 3}),
    ("boom", {}),
    ("late", {}),
)


class TestCoroutines:
    @pytest.fixture
    def kind(self):
        return "asyncio"

    def test_a_coroutine_that_raises_another_error_when_it_is_canceled(self, harness):
        claim = harness.claim("long", seconds=20.0)._replace(job="aborts_without_hooks", args="{}")
        harness.held.drop_all([claim])
        harness.held.add([claim], extended_at=0.0, cancel_attempt=harness.engine.cancel)
        harness.submit(claim)
        harness.until(lambda: harness.held.of(claim).started_at is not None)

        harness.held.cancel(claim.run_id)

        [step] = harness.steps(1)
        assert step.to_status is RunStatus.CANCELED

    def test_a_wait_for_a_blocked_loop_ends(self, harness):
        claim = harness.claim("long", seconds=1.0)._replace(job="blocks_the_loop")
        harness.held.add([claim], extended_at=0.0)
        harness.submit(claim)
        harness.until(lambda: harness.held.of(claim).started_at is not None)

        async def disconnect() -> None: ...

        with pytest.raises(TimeoutError):
            harness.engine.wait(disconnect(), seconds=0.05)
        assert harness.steps(0) == []  # the handler still blocks it


class TestProcesses:
    @pytest.fixture
    def kind(self):
        return "processes"

    def test_a_child_that_dies_is_a_crash_and_is_replaced(self, make_harness):
        harness = make_harness(1)

        harness.submit(harness.claim("dies"), harness.claim("note", n=2))

        steps = harness.steps(2)
        assert steps[0].outcome is OutcomeKind.CRASHED
        assert (steps[0].crash, steps[0].uncounted_attempts) == (1, 1)
        assert "status 7" in steps[0].reason
        assert steps[1].result == "4"

    def test_a_cancel_while_the_child_loads_the_application(self, harness):
        claim = harness.claim("note", n=1)
        harness.submit(claim)
        harness.until(lambda: harness.held.of(claim).started_at is not None)

        harness.held.cancel(claim.run_id)

        [step] = harness.steps(1)
        assert step.to_status in {RunStatus.CANCELED, RunStatus.COMPLETED}

    def test_a_child_that_does_not_know_the_job_is_a_crash(self, harness):
        @app.job(name="only_here")
        def only_here() -> None: ...

        harness.submit(harness.claim("only_here"))

        [step] = harness.steps(1)
        assert (step.outcome, step.to_status) == (OutcomeKind.CRASHED, RunStatus.PENDING)
        assert "does not know the job" in step.reason


class TestSecrets:
    @pytest.fixture
    def kind(self):
        return "processes"

    def test_they_leave_a_child_process_masked(self, make_harness):
        harness = make_harness(1)

        harness.submit(harness.claim("tells", token="t0ken-1234"))

        assert harness.steps(1)
        assert harness.log == [("run-1", "sent ***")]


class TestForks:
    """A process that a handler forks ends when its code leaves the handler."""

    @pytest.fixture
    def kind(self):
        return "processes"

    @pytest.mark.parametrize("job", ["forks", "forks_as_a_coroutine"])
    @pytest.mark.parametrize("how", ["returns", "raises", "exits"])
    def test_it_does_not_reply_for_a_later_run(self, make_harness, job, how):
        harness = make_harness(1)

        harness.submit(harness.claim(job, how=how, seconds=0.3), harness.claim("long", seconds=0.8))

        steps = harness.steps(2)
        assert [step.result for step in steps] == ['"the handler"', '"done"']

    @pytest.mark.parametrize("job", ["forks_and_waits", "forks_and_waits_as_a_coroutine"])
    @pytest.mark.parametrize(("how", "code"), [("returns", "0"), ("raises", "1"), ("exits", "1")])
    def test_its_exit_code_says_whether_it_failed(self, make_harness, job, how, code):
        harness = make_harness(1)

        harness.submit(harness.claim(job, how=how), harness.claim("note", n=1))

        assert [step.result for step in harness.steps(2)] == [code, "2"]

    @pytest.mark.parametrize(("how", "code"), [("returns", "0"), ("raises", "1"), ("exits", "1")])
    def test_it_calls_no_hooks(self, make_harness, tmp_path, how, code):
        harness, file = make_harness(1), tmp_path / "hooks"

        harness.submit(harness.claim("forks_with_a_hook", file=str(file), how=how))

        assert [step.result for step in harness.steps(1)] == [code]
        assert len(file.read_text().splitlines()) == 1

    def test_it_sends_no_log_lines(self, make_harness):
        harness = make_harness(1)

        harness.submit(harness.claim("logs_in_a_fork"))

        assert [step.result for step in harness.steps(1)] == ["0"]
        assert harness.log == [("run-1", "ours")]


class TestReplies:
    """The parent takes only messages with the run and the token of its request."""

    @pytest.mark.parametrize(("run_id", "token"), [("run-2", 1), ("run-1", 2)])
    def test_others_are_rejected(self, caplog, run_id, token):
        ours, theirs = Pipe()
        child, claim = ChildProcess(UNUSED), a_claim(run_id=RunId("run-1"), token=1)
        process: Any = object()
        child._pipe, child._process = ours, process
        now, lines = NOON, list[LogMessage]()
        theirs.send(LogMessage(RunId(run_id), token, now, "INFO", "shop", "another"))
        theirs.send(AttemptReply(RunId(run_id), token, Succeeded("another"), False))
        theirs.send(LogMessage(claim.run_id, claim.token, now, "INFO", "shop", "own"))
        theirs.send(AttemptReply(claim.run_id, claim.token, Succeeded("own"), False))

        reply = child._receive(claim, None, lines.append)

        assert reply == AttemptReply(claim.run_id, claim.token, Succeeded("own"), False)
        assert [line.message for line in lines] == ["own"]
        assert f"replied for run {run_id}; the reply is ignored" in caplog.text


class TestTimeoutsInline:
    """The caller does not wait for ever for a function that ignores its timeout."""

    @pytest.fixture
    def kind(self):
        return "inline"

    def test_an_attempt_that_was_given_up_blocks_nothing(self, harness):
        claim = harness.claim("ignores_its_timeout")
        harness.submit(claim, harness.claim("note", n=1))
        harness.until(lambda: harness.held.of(claim).started_at is not None)
        harness.until(lambda: harness.runner.watch_deadlines(timedelta(0)))

        steps = harness.steps(2)

        assert "AttemptTimeout" in steps[0].reason
        assert steps[1].result == "2"

    def test_coroutines_run_in_the_same_thread(self, harness):
        harness.submit(*(harness.claim(f"{job}_async", **args) for job, args in ASYNC_JOBS))

        steps = harness.steps(3)

        assert steps[0].result == "6"
        assert steps[1].reason == "ValueError: no"
        assert "AttemptTimeout" in steps[2].reason


@pytest.mark.parametrize("kind", ["asyncio"])
class TestTasksWithSeveralAttempts:
    def test_context_variables_do_not_reach_the_next_attempt(self, make_harness):
        harness = make_harness(1)
        harness.submit(*(harness.claim("sets_a_variable", name=name) for name in "abc"))

        assert [step.result for step in harness.steps(3)] == ['"a"', '"b"', '"c"']

    def test_a_cancel_that_was_ignored_does_not_reach_the_next_attempt(self, make_harness):
        harness = make_harness(1)
        ignoring, waiting = harness.claim("ignores_a_cancel"), harness.claim("long", seconds=0.05)
        harness.submit(ignoring, waiting)
        harness.until(lambda: harness.engine.unfinished() == [ignoring])

        harness.engine.cancel(ignoring)

        assert [step.result for step in harness.steps(2)] == ['"went on"', '"done"']
