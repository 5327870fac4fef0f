"""What an engine does when a part of it fails: it loses no slot and no claim, and reports it."""

import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from contract.engines import jobs
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.status import RunStatus
from tickwork._engines.contract import EngineHealth, health_of
from tickwork._engines.local import processes
from tickwork.errors import EngineBroken

TESTS = Path(__file__).resolve().parents[2]

STOPS = [
    "exits in a callback",
    "exits in a timer",
    "exits in a task",
    "interrupts in a callback",
]


def a_loop_claim(harness, how, seconds=20.0):
    return harness.claim("stops_the_loop", how=how, seconds=seconds)


class TestStoppedLoop:
    """Code that stops the event loop fails its own run, and no other."""

    @pytest.fixture
    def kind(self):
        return "asyncio"

    @pytest.mark.parametrize("how", STOPS)
    def test_its_run_fails_and_the_others_go_on(self, make_harness, how):
        harness = make_harness(10)
        beside = [harness.claim("long", seconds=0.3) for _ in range(5)]
        culprit, later = a_loop_claim(harness, how), harness.claim("note", n=4)

        harness.submit(*beside, culprit)
        harness.steps(1)
        harness.submit(later)

        first, *others = harness.steps(7)
        assert first.claim.run_id == culprit.run_id
        assert first.outcome is OutcomeKind.FAILED
        assert "stopped the event loop: " in first.reason
        assert ("SystemExit(3)" in first.reason) == how.startswith("exits")
        assert {step.to_status for step in others} == {RunStatus.COMPLETED}
        assert health_of(harness.engine) == EngineHealth(restarts=1)
        harness.until(lambda: not harness.engine.running)

    def test_its_hooks_get_the_failure(self, harness, tmp_path):
        file = tmp_path / "notes"
        harness.submit(
            harness.claim("stops_the_loop_with_hooks", file=str(file), how="exits in a task")
        )

        [step] = harness.steps(1)

        assert step.outcome is OutcomeKind.FAILED
        harness.until(file.exists)
        harness.until(lambda: not harness.engine.running)
        assert file.read_text().splitlines() == ["error RuntimeError", "after Failed"]

    def test_a_coroutine_cannot_stop_it(self, harness):
        harness.submit(a_loop_claim(harness, "stops it"), harness.claim("note", n=4))

        failed, done = harness.steps(2)

        assert failed.reason.startswith("RuntimeError: A handler must not stop the event loop")
        assert "loop.stop()" in failed.traceback
        assert done.result == "8"
        assert health_of(harness.engine) == EngineHealth()

    def test_a_callback_cannot_stop_it(self, harness):
        harness.submit(a_loop_claim(harness, "stops in a callback", seconds=0.01))

        [step] = harness.steps(1)

        assert step.result == '"went on"'

    def test_code_of_a_run_that_has_ended_changes_nothing(self, harness, caplog):
        ended = a_loop_claim(harness, "exits in a timer", seconds=0.0)
        harness.submit(ended, harness.claim("long", seconds=0.3))

        steps = harness.steps(2)

        assert [step.to_status for step in steps] == [RunStatus.COMPLETED] * 2
        assert f"code of run {ended.run_id} stopped the event loop" in caplog.text

    def test_any_number_of_runs_can_fail_like_this(self, make_harness):
        harness = make_harness(100)
        beside = harness.claim("long", seconds=1.0)

        harness.submit(beside, *(a_loop_claim(harness, "exits in a callback") for _ in range(50)))

        steps = harness.steps(51)
        assert [step.outcome for step in steps].count(OutcomeKind.FAILED) == 50
        assert steps[-1].claim is beside
        assert steps[-1].outcome is OutcomeKind.SUCCEEDED

    def test_a_loop_that_fails_again_and_again_is_broken_and_gives_back_its_claims(self, harness):
        running = [harness.claim("long", seconds=20.0) for _ in range(2)]
        waiting = harness.claim("note", n=1)
        harness.submit(*running, waiting)
        harness.until(lambda: all(map(harness.has_started, running)))

        for _ in range(10):
            harness.engine._loop.call(sys.exit)

        steps = {step.claim.run_id: step.outcome for step in harness.steps(3)}
        # Each of those that ran may be the cause.
        assert [steps[claim.run_id] for claim in running] == [OutcomeKind.CRASHED] * 2
        assert steps[waiting.run_id] is OutcomeKind.INTERRUPTED
        health = health_of(harness.engine)
        assert (health.is_alive, health.restarts) == (False, 10)
        assert "failed 10 times in a row" in health.reason
        assert (harness.engine.slots, harness.engine.running, harness.engine.unfinished()) == (
            0,
            0,
            [],
        )
        with pytest.raises(EngineBroken, match="failed 10 times"):
            harness.engine.submit([harness.claim("note", n=1)])
        with pytest.raises(EngineBroken):
            harness.engine.wait(jobs.leave_with_status())
        assert harness.take_back() == []


class TestLoopHealth:
    @pytest.fixture
    def kind(self):
        return "asyncio"

    def test_a_loop_that_is_blocked_is_silent(self, harness):
        claim = harness.claim("long", seconds=0.8)._replace(job="blocks_the_loop")
        harness.held.drop_all([claim])
        harness.hold(claim)
        harness.submit(claim)
        harness.until(lambda: harness.has_started(claim))

        harness.until(lambda: health_of(harness.engine).silent_seconds > 0.1)

        assert health_of(harness.engine).is_alive
        harness.until(lambda: harness.steps(1) and not health_of(harness.engine).silent_seconds)

    def test_tasks_that_could_not_start_are_started_later(self, harness, monkeypatch):
        engine, failures = harness.engine, [MemoryError(), MemoryError()]
        work = engine._work

        def fail_twice():
            if failures:
                raise failures.pop()
            return work()

        monkeypatch.setattr(engine, "_work", fail_twice)
        harness.submit(harness.claim("note", n=4))

        def is_done():
            engine.rebalance()  # as the worker does
            return harness.steps(0)

        harness.until(is_done)
        assert [step.result for step in harness.steps(1)] == ["8"]


@pytest.mark.parametrize("kind", ["threads", "processes", "asyncio"])
class TestAllOrNothing:
    """An engine accepts all claims of a submit, or none."""

    def test_without_a_thread_it_accepts_none(self, harness, monkeypatch):
        def fail(_):
            raise RuntimeError("can't start new thread")

        claims = [harness.claim("note", n=n) for n in range(3)]
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            with pytest.raises(EngineBroken, match="can't start new thread"):
                harness.engine.submit(claims)
        health = health_of(harness.engine)
        assert (health.is_alive, health.reason) == (False, "RuntimeError: can't start new thread")
        assert (harness.engine.waiting, harness.engine.running) == (0, 0)

        harness.submit(*claims)  # a thread can start again

        assert sorted(step.result for step in harness.steps(3)) == ["0", "2", "4"]
        assert health_of(harness.engine) == EngineHealth()


def fail_to_trace(*_: object) -> None:
    raise ZeroDivisionError


def is_alive(thread: threading.Thread) -> bool:
    return thread.is_alive()


class TestSlots:
    """A thread that fails between two attempts gives its slot back."""

    @pytest.fixture
    def kind(self):
        return "threads"

    @pytest.mark.parametrize("part", ["durations.add", "notify"])
    def test_no_slot_is_lost(self, make_harness, monkeypatch, part):
        harness, failures = make_harness(2), [OSError("first"), OSError("second")]
        engine = harness.engine
        owner, name = (
            (engine.durations, "add") if part == "durations.add" else (harness.runner, "notify")
        )
        before = getattr(owner, name)

        def fail_twice(*args):
            if failures:
                raise failures.pop()
            return before(*args)

        monkeypatch.setattr(owner, name, fail_twice)
        engine.submit([harness.claim("long", seconds=0.1) for _ in range(2)])
        harness.until(lambda: health_of(engine).restarts == 2 and not engine.running)

        engine.submit([harness.claim("long", seconds=0.1) for _ in range(4)])

        assert len(harness.steps(6)) == 6
        assert engine.slots == 2

    def test_claims_that_wait_get_another_thread(self, make_harness, monkeypatch):
        harness = make_harness(1)
        engine, failures = harness.engine, [OSError("once")]
        before = engine.durations.add

        def fail_once(*args):
            if failures:
                raise failures.pop()
            return before(*args)

        monkeypatch.setattr(engine.durations, "add", fail_once)
        engine.submit([harness.claim("note", n=n) for n in range(3)])

        def is_done():
            engine.rebalance()  # as the worker does
            return len(harness.steps(0)) == 3

        harness.until(is_done)

    @pytest.mark.parametrize("kind", ["threads", "processes"])
    def test_threads_that_end_before_they_begin_take_no_slot(self, make_harness, monkeypatch):
        harness = make_harness(2)
        engine = harness.engine
        claims = [harness.claim("note", n=n) for n in range(4)]
        with monkeypatch.context() as patch:
            patch.setattr(threading, "excepthook", lambda _: None)
            before = threading.gettrace()
            threading.settrace(fail_to_trace)  # in each new thread
            try:
                engine.submit(claims)
                for _ in range(3):  # as the worker does
                    harness.until(lambda: not any(map(is_alive, engine._threads)))
                    engine.rebalance()
                    health = health_of(engine)
                    assert health.reason == "A thread ended before its first attempt."
            finally:
                threading.settrace(before)
        assert engine.waiting == 4

        harness.until(lambda: not any(map(is_alive, engine._threads)))
        engine.rebalance()

        assert len(harness.steps(4)) == 4
        assert health_of(engine).is_alive

    @pytest.mark.parametrize("kind", ["threads", "processes", "asyncio"])
    def test_an_outcome_that_cannot_be_reported_is_a_crash(self, harness, monkeypatch):
        def fail(*_):
            raise MemoryError

        monkeypatch.setattr(harness.runner, "end", fail)
        monkeypatch.setattr(harness.runner, "fail", fail)
        harness.engine.submit([harness.claim("long", seconds=0.0)])

        [step] = harness.steps(1)
        assert (step.outcome, step.reason) == (OutcomeKind.CRASHED, "Its outcome was lost.")
        harness.until(lambda: not harness.engine.running)

    def test_a_claim_is_not_lost_with_the_thread_of_a_pump(self, harness, monkeypatch):
        def fail(*_):
            raise MemoryError

        engine = harness.engine
        for _ in range(20):
            engine.durations.of("note")
            engine.durations.add("note", 0.00001)
        claim = harness.claim("note", n=4)
        with monkeypatch.context() as patch:
            patch.setattr(harness.runner, "simple_attempt_of", fail)
            engine.submit([claim])
            with pytest.raises(MemoryError):
                engine.make_quick_attempts()

        assert engine.take_back() == [claim]


class TestChildren:
    """Children start from what the worker was when it started."""

    @pytest.fixture
    def kind(self):
        return "processes"

    def test_they_do_not_get_what_a_handler_changed(self, make_harness, monkeypatch):
        monkeypatch.setenv("TICKWORK_TEST_VARIABLE", "from the start")
        harness = make_harness(1)
        recursion = sys.getrecursionlimit()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        monkeypatch.delenv("TICKWORK_TEST_VARIABLE")
        monkeypatch.setattr(sys, "executable", "")
        monkeypatch.setattr(sys, "path", ["/tickwork/test/path"])
        monkeypatch.setattr("tickwork._engines.local.processes.sys.executable", "")
        try:
            sys.setrecursionlimit(recursion - 300)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 100, hard))
            harness.submit(harness.claim("shows_its_start"))
            [step] = harness.steps(1)
        finally:
            sys.setrecursionlimit(recursion)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        assert step.outcome is OutcomeKind.SUCCEEDED, step.reason
        assert json.loads(step.result) == {
            "variable": "from the start",
            "recursion": recursion,
            "files": soft,
            "has_path": False,
        }

    def test_a_child_that_cannot_start_costs_its_run_nothing(self, make_harness, monkeypatch):
        monkeypatch.setattr(processes, "START_PAUSE", 0.001)
        monkeypatch.setattr(sys, "executable", "/bin/false")
        harness = make_harness(1)
        claims = [harness.claim("note", n=n) for n in range(8)]

        harness.submit(*claims)

        steps = harness.steps(8)
        assert {(step.outcome, step.to_status) for step in steps} == {
            (OutcomeKind.INTERRUPTED, RunStatus.PENDING)
        }
        assert {step.uncounted_attempts for step in steps} == {1}
        health = health_of(harness.engine)
        assert not health.is_alive
        assert "Its child processes do not start." in health.reason
        assert "Its interpreter ended before it was ready." in health.reason
        assert (harness.engine.slots, harness.engine.waiting) == (0, 0)
        with pytest.raises(EngineBroken):
            harness.engine.submit(claims)

    @pytest.mark.parametrize(
        ("owner", "name"),
        [(processes, "find_defining_modules"), (processes.ChildProcess, "_send")],
    )
    def test_a_fault_before_the_call_costs_its_run_nothing(self, harness, monkeypatch, owner, name):
        monkeypatch.setattr(processes, "START_PAUSE", 0.001)
        original, errors = getattr(owner, name), [RecursionError("in the worker")]

        def fail_once(*args):
            if errors:
                raise errors.pop()
            return original(*args)

        monkeypatch.setattr(owner, name, fail_once)
        claims = [harness.claim("note", n=n) for n in range(2)]

        for claim in claims:
            harness.submit(claim)
            harness.until(lambda: not harness.engine.running)

        first, second = harness.steps(2)
        assert (first.outcome, first.to_status) == (OutcomeKind.INTERRUPTED, RunStatus.PENDING)
        assert "RecursionError: in the worker" in first.reason
        assert first.uncounted_attempts == 1
        assert second.outcome is OutcomeKind.SUCCEEDED
        assert health_of(harness.engine).is_alive

    def test_a_child_that_starts_later_keeps_the_engine_alive(self, make_harness, monkeypatch):
        monkeypatch.setattr(processes, "START_PAUSE", 0.001)
        monkeypatch.setattr(processes, "START_FAILURES_MAX", 3)
        harness, popen = make_harness(1), subprocess.Popen
        errors: list[OSError] = []

        def fail_at_first(*args, **options):
            if errors:
                raise errors.pop()
            return popen(*args, **options)

        monkeypatch.setattr(processes, "Popen", fail_at_first)
        for _ in range(2):
            errors += [OSError(24, "Too many open files")] * 2
            harness.submit(*(harness.claim("note", n=4) for _ in range(3)))
            harness.until(lambda: not harness.engine.running)
            harness.engine._children[0].close()

        outcomes = [step.outcome for step in harness.steps(6)]
        assert outcomes == [*[OutcomeKind.INTERRUPTED] * 2, OutcomeKind.SUCCEEDED] * 2
        assert health_of(harness.engine).is_alive


def run_script(code: str, *, seconds: float = 60) -> str:
    """Run a program with an engine harness in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT_HEAD + code],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SCRIPT_HEAD = """
import asyncio, os, resource, sys, time
from contract.engines import jobs
from contract.engines.conftest import ENGINES
from tickwork._engines.contract import health_of
from tickwork_conformance.engines import EngineHarness

def wait_until_dead(harness):
    harness.until(lambda: not health_of(harness.engine).is_alive, seconds=10)
    print(health_of(harness.engine).reason, flush=True)
"""


class TestDescriptors:
    """An engine whose descriptors were closed, or that gets none, says so and does not hang."""

    def test_a_loop_without_its_descriptors_is_not_alive(self):
        printed = run_script("""
harness = EngineHarness(ENGINES["asyncio"], 2, jobs)
claim = harness.claim("long", seconds=100.0)
harness.submit(claim)
harness.until(lambda: harness.has_started(claim))
os.closerange(3, 200)
wait_until_dead(harness)
print(harness.engine.unfinished() == [claim], flush=True)
os._exit(0)
""")

        assert "closed the descriptors of the event loop" in printed
        assert printed.endswith("True\n")  # it may still run

    def test_a_loop_whose_selector_fails_is_broken(self):
        printed = run_script("""
harness = EngineHarness(ENGINES["asyncio"], 2, jobs)
claim = harness.claim("long", seconds=0.3)
harness.submit(claim)
harness.until(lambda: harness.has_started(claim))
os.close(harness.engine._loop._loop._selector.fileno())
wait_until_dead(harness)
print([str(step.outcome) for step in harness.steps(1)], flush=True)
os._exit(0)
""")

        assert "Its event loop failed 10 times in a row" in printed
        assert "['crashed']" in printed

    @pytest.mark.parametrize("kind", ["asyncio", "processes"])
    def test_without_free_descriptors_no_claim_is_lost(self, kind):
        printed = run_script(f"""
harness = EngineHarness(ENGINES["{kind}"], 1, jobs)
claims = [harness.claim("note", n=4) for _ in range(6)]
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
files = []
resource.setrlimit(resource.RLIMIT_NOFILE, (12, hard))
try:
    while True:
        files.append(os.dup(0))
except OSError:
    pass
try:
    harness.submit(*claims)
except Exception as error:
    print(type(error).__name__, harness.engine.waiting, flush=True)
else:
    print([str(step.outcome) for step in harness.steps(6)], flush=True)
wait_until_dead(harness)
os._exit(0)
""")

        assert "Too many open files" in printed
        if kind == "asyncio":
            assert printed.startswith("EngineBroken 0\n")
        else:
            assert printed.startswith(f"{['interrupted'] * 6}\n")
