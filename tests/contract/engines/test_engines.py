"""What every engine promises: each claim starts in its turn, and is handed over once."""

import pytest

from contract.engines.jobs import app
from tickwork._define.context import RunContext
from tickwork._domain.outcome import Failed, OutcomeKind, Succeeded
from tickwork._domain.status import RunStatus
from tickwork._kernel.clock import SystemClock
from tickwork.engines.inline import InlineEngine
from unit.builders import a_claim


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

    def test_a_cancel_reaches_an_attempt_that_is_being_made(self, bench):
        claim = bench.claim("long", seconds=1.0 if bench.kind == "threads" else 20.0)
        bench.submit(claim)
        bench.until(lambda: bench.held.of(claim).started_at is not None)

        bench.held.cancel(claim.run_id)

        [step] = bench.steps(1)
        # Nothing can end a thread from outside: it was told, and did not look.
        is_thread = bench.kind == "threads"
        assert step.to_status is (RunStatus.COMPLETED if is_thread else RunStatus.CANCELED)

    def test_one_that_was_cancelled_before_it_began_is_not_begun(self, make_bench):
        bench = make_bench(1)
        first, second = bench.claim("long", seconds=0.3), bench.claim("note", n=1)
        bench.submit(first, second)

        bench.held.cancel(second.run_id)

        steps = bench.steps(2)
        assert steps[1].to_status is RunStatus.CANCELED
        assert steps[1].started_at is None

    def test_one_that_was_lost_before_it_began_is_let_go(self, make_bench):
        bench = make_bench(1)
        first, second = bench.claim("long", seconds=0.3), bench.claim("note", n=1)
        bench.submit(first, second)

        bench.held.revoke(second.run_id, token=second.token)

        bench.until(lambda: bench.held.of(second) is None)
        assert ids(step.claim for step in bench.steps(1)) == ids([first])


class TestTurns:
    def test_they_start_in_order(self, make_bench):
        bench = make_bench(1)
        claims = [bench.claim("note", n=n) for n in range(20)]

        bench.submit(*claims[:15])
        bench.submit(*claims[15:])

        assert ids(step.claim for step in bench.steps(20)) == ids(claims)

    def test_no_more_than_there_are_slots_are_made_at_once(self, bench):
        bench.submit(*(bench.claim("long", seconds=0.5) for _ in range(3)))

        bench.until(lambda: (bench.engine.running, bench.engine.waiting) == (2, 1))
        assert len(bench.engine.unfinished()) == 2

        assert len(bench.steps(3)) == 3
        bench.until(lambda: (bench.engine.running, bench.engine.waiting) == (0, 0))
        assert bench.engine.unfinished() == []

    def test_whoever_writes_is_called_when_there_is_nothing_left(self, bench):
        bench.submit(bench.claim("note", n=1))

        bench.steps(1)

        bench.until(lambda: bench.calls > 0)

    def test_each_is_handed_over_once(self, make_bench):
        bench = make_bench(4)
        claims = [bench.claim("note", n=n) for n in range(50)]
        for claim in claims:
            bench.submit(claim)

        steps = bench.steps(50)

        assert sorted(ids(step.claim for step in steps)) == sorted(ids(claims))


class TestEnding:
    def test_what_has_not_begun_can_be_taken_back(self, make_bench):
        bench = make_bench(1)
        claims = [bench.claim("long", seconds=0.3), *(bench.claim("note", n=1) for _ in range(3))]
        bench.submit(*claims)
        bench.until(lambda: bench.held.of(claims[0]).started_at is not None)

        assert ids(bench.engine.take_back()) == ids(claims[1:])

        assert ids(step.claim for step in bench.steps(1)) == ids(claims[:1])
        assert bench.engine.waiting == 0

    def test_an_interruption_gives_back_everything_once(self, bench):
        claims = [bench.claim("long", seconds=1.0) for _ in range(4)]
        bench.submit(*claims)
        bench.until(lambda: len(bench.engine.unfinished()) == 2)
        bench.until(lambda: all(bench.held.of(c).started_at for c in claims[:2]))

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

    def test_it_can_be_stopped_before_it_did_anything(self, bench):
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

    def test_a_cancel_while_it_loads_is_a_cancel(self, bench):
        claim = bench.claim("note", n=1)
        bench.submit(claim)
        bench.until(lambda: bench.held.of(claim).stop is not None)

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


class TestInline:
    """The same outcomes where somebody waits for them."""

    def outcome(self, job, args):
        engine = InlineEngine(clock=SystemClock(), construct=lambda: app.construct)
        definition = app.registry.get(job)
        desk = None
        ctx = RunContext(a_claim(job=job), desk=desk, args=args)  # type: ignore[arg-type]
        try:
            return engine(definition, ctx, definition.spec.timeout)
        finally:
            engine.close()

    @pytest.mark.parametrize("end", ["", "_too"])
    def test_success_failure_and_timeout(self, end):
        assert self.outcome(f"note{end}", {"n": 3}) == Succeeded("6")
        failed, late = self.outcome(f"boom{end}", {}), self.outcome(f"late{end}", {})
        assert isinstance(failed, Failed)
        assert failed.error == "ValueError: no"
        assert "AttemptTimeout" in late.error
