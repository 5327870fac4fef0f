"""The contract of every engine: claims start in order, and each gets exactly one outcome."""

from datetime import timedelta
from multiprocessing.connection import Pipe
from typing import Any

import pytest

from contract.engines.conftest import UNUSED
from contract.engines.jobs import app
from tickwork._domain.identity import RunId
from tickwork._domain.outcome import OutcomeKind, Succeeded
from tickwork._domain.status import RunStatus
from tickwork.engines.processes import ChildProcess
from tickwork.engines.wire import AttemptReply, LogMessage
from unit.builders import NOON, a_claim

ASYNC_JOBS: tuple[tuple[str, dict[str, int]], ...] = (
    ("note", {"n": 3}),
    ("boom", {}),
    ("late", {}),
)


def ids(claims):
    return [claim.run_id for claim in claims]


class TestOutcomes:
    def test_a_success_has_its_result(self, bench):
        bench.submit(bench.claim("note", n=4))

        [step] = bench.steps(1)

        assert (step.to_status, step.result) == (RunStatus.COMPLETED, "8")
        assert step.started_at is not None

    def test_a_failure_has_its_error(self, bench):
        bench.submit(bench.claim("boom"))

        [step] = bench.steps(1)

        assert step.outcome is OutcomeKind.FAILED
        assert step.reason == "ValueError: no"
        assert "raise ValueError" in step.traceback

    def test_a_timeout_is_a_failure(self, bench):
        bench.submit(bench.claim("late"))

        [step] = bench.steps(1)

        assert step.outcome is OutcomeKind.FAILED
        assert "AttemptTimeout" in step.reason

    def test_a_running_attempt_can_be_canceled(self, bench):
        is_thread = bench.kind in {"threads", "inline"}
        claim = bench.claim("long", seconds=1.0 if is_thread else 20.0)
        bench.submit(claim)
        bench.until(lambda: bench.held.of(claim).started_at is not None)

        bench.held.cancel(claim.run_id)

        [step] = bench.steps(1)
        # A thread cannot be ended from outside, and this handler does not poll.
        assert step.to_status is (RunStatus.COMPLETED if is_thread else RunStatus.CANCELED)

    def test_a_claim_that_is_canceled_before_it_starts_does_not_start(self, make_bench):
        bench = make_bench(1)
        first, second = bench.claim("long", seconds=0.3), bench.claim("note", n=1)
        bench.submit(first, second)

        bench.held.cancel(second.run_id)

        steps = bench.steps(2)
        assert steps[1].to_status is RunStatus.CANCELED
        assert steps[1].started_at is None

    def test_a_claim_that_is_lost_before_it_starts_is_dropped(self, make_bench):
        bench = make_bench(1)
        first, second = bench.claim("long", seconds=0.3), bench.claim("note", n=1)
        bench.submit(first, second)

        bench.held.revoke(second.run_id, token=second.token)

        bench.until(lambda: bench.held.of(second) is None)
        assert ids(step.claim for step in bench.steps(1)) == ids([first])


class TestOrder:
    def test_they_start_in_order(self, make_bench):
        bench = make_bench(1)
        claims = [bench.claim("note", n=n) for n in range(20)]

        bench.submit(*claims[:15])
        bench.submit(*claims[15:])

        assert ids(step.claim for step in bench.steps(20)) == ids(claims)

    def test_no_more_attempts_run_than_there_are_slots(self, bench):
        slots = bench.engine.slots
        bench.submit(*(bench.claim("long", seconds=0.5) for _ in range(3)))

        bench.until(lambda: (bench.engine.running, bench.engine.waiting) == (slots, 3 - slots))
        assert len(bench.engine.unfinished()) == slots

        assert len(bench.steps(3)) == 3
        bench.until(lambda: (bench.engine.running, bench.engine.waiting) == (0, 0))
        assert bench.engine.unfinished() == []

    def test_the_worker_is_notified_when_no_claim_is_left(self, bench):
        bench.submit(bench.claim("note", n=1))

        bench.steps(1)

        bench.until(lambda: bench.notifications > 0)

    def test_each_claim_has_one_outcome(self, make_bench):
        bench = make_bench(4)
        claims = [bench.claim("note", n=n) for n in range(50)]
        for claim in claims:
            bench.submit(claim)

        steps = bench.steps(50)

        assert sorted(ids(step.claim for step in steps)) == sorted(ids(claims))


class TestStopping:
    def test_claims_that_have_not_started_can_be_taken_back(self, make_bench):
        bench = make_bench(1)
        claims = [bench.claim("long", seconds=0.3), *(bench.claim("note", n=1) for _ in range(3))]
        bench.submit(*claims)
        bench.until(lambda: bench.held.of(claims[0]).started_at is not None)

        assert ids(bench.engine.take_back()) == ids(claims[1:])

        assert ids(step.claim for step in bench.steps(1)) == ids(claims[:1])
        assert bench.engine.waiting == 0

    def test_an_interruption_gives_back_each_claim_once(self, bench):
        slots = bench.engine.slots
        claims = [bench.claim("long", seconds=1.0) for _ in range(4)]
        bench.submit(*claims)
        bench.until(lambda: len(bench.engine.unfinished()) == slots)
        bench.until(lambda: all(bench.held.of(claim).started_at for claim in claims[:slots]))

        bench.interrupt()

        steps = bench.steps(4)
        assert {step.outcome for step in steps} == {OutcomeKind.INTERRUPTED}
        assert {step.to_status for step in steps} == {RunStatus.PENDING}
        bench.until(lambda: not bench.engine.unfinished())
        assert sorted(ids(step.claim for step in bench.steps(4))) == sorted(ids(claims))

    def test_nothing_starts_after_an_interruption(self, bench):
        bench.submit(bench.claim("note", n=1))
        bench.steps(1)
        bench.interrupt()
        late = bench.claim("note", n=2)

        bench.submit(late)

        assert ids(bench.engine.take_back()) == ids([late])

    def test_an_engine_that_did_nothing_can_be_stopped(self, bench):
        bench.engine.stop()

        assert bench.engine.running == 0


class TestProcesses:
    @pytest.fixture
    def kind(self):
        return "processes"

    def test_a_child_that_dies_is_a_crash_and_is_replaced(self, make_bench):
        bench = make_bench(1)

        bench.submit(bench.claim("dies"), bench.claim("note", n=2))

        steps = bench.steps(2)
        assert steps[0].outcome is OutcomeKind.CRASHED
        assert (steps[0].crash, steps[0].refund) == (1, 1)
        assert "status 7" in steps[0].reason
        assert steps[1].result == "4"

    def test_a_cancel_while_the_child_loads_the_application(self, bench):
        claim = bench.claim("note", n=1)
        bench.submit(claim)
        bench.until(lambda: bench.held.of(claim).started_at is not None)

        bench.held.cancel(claim.run_id)

        [step] = bench.steps(1)
        assert step.to_status in {RunStatus.CANCELED, RunStatus.COMPLETED}

    def test_a_job_that_the_child_does_not_know_fails(self, bench):
        @app.job(name="only_here")
        def only_here() -> None: ...

        bench.submit(bench.claim("only_here"))

        [step] = bench.steps(1)
        assert step.to_status is RunStatus.FAILED_PERMANENT
        assert "does not know the job" in step.reason


class TestForks:
    """A process that a handler forks ends when its code leaves the handler."""

    @pytest.fixture
    def kind(self):
        return "processes"

    @pytest.mark.parametrize("job", ["forks", "forks_as_a_coroutine"])
    @pytest.mark.parametrize("how", ["returns", "raises", "exits"])
    def test_it_does_not_reply_for_a_later_run(self, make_bench, job, how):
        bench = make_bench(1)

        bench.submit(bench.claim(job, how=how, seconds=0.3), bench.claim("long", seconds=0.8))

        steps = bench.steps(2)
        assert [step.result for step in steps] == ['"the handler"', '"done"']

    @pytest.mark.parametrize(("how", "code"), [("returns", "0"), ("raises", "1"), ("exits", "1")])
    def test_its_exit_code_says_whether_it_failed(self, make_bench, how, code):
        bench = make_bench(1)

        bench.submit(bench.claim("forks_and_waits", how=how), bench.claim("note", n=1))

        assert [step.result for step in bench.steps(2)] == [code, "2"]

    @pytest.mark.parametrize(("how", "code"), [("returns", "0"), ("raises", "1"), ("exits", "1")])
    def test_it_calls_no_hooks(self, make_bench, tmp_path, how, code):
        bench, file = make_bench(1), tmp_path / "hooks"

        bench.submit(bench.claim("forks_with_a_hook", file=str(file), how=how))

        assert [step.result for step in bench.steps(1)] == [code]
        assert len(file.read_text().splitlines()) == 1

    def test_it_sends_no_log_lines(self, make_bench):
        bench = make_bench(1)

        bench.submit(bench.claim("logs_in_a_fork"))

        assert [step.result for step in bench.steps(1)] == ["0"]
        assert bench.log == [("run-1", "ours")]


class TestReplies:
    """The parent takes only messages with the run and the token of its request."""

    @pytest.mark.parametrize(("run_id", "token"), [("run-2", 1), ("run-1", 2)])
    def test_others_are_rejected(self, caplog, run_id, token):
        ours, theirs = Pipe()
        child, claim = ChildProcess(lambda: UNUSED), a_claim(run_id=RunId("run-1"), token=1)
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

    def test_an_attempt_that_was_given_up_blocks_nothing(self, bench):
        claim = bench.claim("ignores_its_timeout")
        bench.submit(claim, bench.claim("note", n=1))
        bench.until(lambda: bench.held.of(claim).started_at is not None)
        bench.until(lambda: bench.runner.watch_deadlines(timedelta(0)))

        steps = bench.steps(2)

        assert "AttemptTimeout" in steps[0].reason
        assert steps[1].result == "2"

    def test_coroutines_run_in_the_same_thread(self, bench):
        bench.submit(*(bench.claim(f"{job}_too", **args) for job, args in ASYNC_JOBS))

        steps = bench.steps(3)

        assert steps[0].result == "6"
        assert steps[1].reason == "ValueError: no"
        assert "AttemptTimeout" in steps[2].reason
