"""``when``, ``skip`` and the hooks around an attempt."""

import pytest

from tickwork import JobResult, RunStatus, Snooze
from tickwork.errors import DefinitionError, RunUnsuccessful


class Recorder:
    """Records calls, in order."""

    def __init__(self):
        self.calls = []

    def note(self, name, answer=None):
        def hook(*facts):
            self.calls.append((name, *facts[1:]))
            return answer

        return hook

    @property
    def names(self):
        return [name for name, *_ in self.calls]


@pytest.fixture
def seen():
    return Recorder()


class TestFilters:
    """They run on the worker before ``on_before``, on first attempts."""

    def test_a_firing_for_which_when_is_false_is_skipped_with_a_reason(self, app, clock, passes):
        app.schedule("report", lambda: None).hourly().when(lambda: False)
        app.run()
        clock.advance(hours=1)
        passes(app)

        [run] = app.runs.recent()
        assert run.status is RunStatus.SKIPPED
        assert run.reason.startswith("when: ")

    def test_a_filter_gets_the_defaults_of_the_handlers_parameters(self, app, passes):
        seen: list[tuple[int, str]] = []

        def note(size: int, kind: str) -> bool:
            seen.append((size, kind))
            return True

        @app.job(when=note)
        def report(size: int = 10, kind: str = "short") -> None: ...

        report.dispatch()
        report.dispatch(kind="long")
        passes(app)

        assert seen == [(10, "short"), (10, "long")]

    def test_a_filter_with_an_unknown_parameter_is_refused_where_it_is_defined(self, app, passes):
        with pytest.raises(DefinitionError, match="its parameter 'pages' is not an argument"):
            app.schedule("report", lambda page: None).when(lambda pages: True)
        with pytest.raises(DefinitionError, match="its parameter 'pages' is not an argument"):

            @app.job(skip=lambda pages: True)
            def other(page: int) -> None: ...

        app.schedule("it", lambda: None).when(lambda ctx, limit=3: True).dispatch()
        assert passes(app) == 1

    def test_equal_skips_in_a_row_are_one_row_with_count_first_and_last(self, app, clock, passes):
        app.schedule("report", lambda: None).hourly().skip(lambda: True)
        app.run()
        for _ in range(3):
            clock.advance(hours=1)
            passes(app)

        [run] = app.runs.recent()
        assert run.instants == 3
        assert run.nominal_at.hour == 1
        assert run.last_nominal_at.hour == 3

    def test_a_dispatched_run_for_which_skip_is_true_is_skipped(self, app, passes):
        run = app.schedule("it", lambda: None).skip(lambda: True).dispatch()

        assert passes(app) == 0
        assert run.status is RunStatus.SKIPPED

    def test_a_dispatched_run_for_which_when_is_false_is_postponed(self, app, clock):
        is_open = False
        run = app.schedule("it", lambda: "done").when(lambda: is_open).dispatch()
        delays = []
        for _ in range(7):
            assert app.run() == 0
            delays.append((run.read().due_at - clock.now()).total_seconds())
            clock.set(run.read().due_at)

        is_open = True

        assert delays == [30, 60, 120, 240, 480, 600, 600]
        assert app.run() == 1
        assert run.result() == "done"
        assert run.read().attempt == 1

    def test_filters_get_the_arguments_that_they_take(self, app, passes):
        seen = []

        def is_wanted(kind):
            seen.append(kind)
            return True

        app.schedule("it", lambda kind, size: None).when(is_wanted).dispatch(kind="a", size=1)
        passes(app)

        assert seen == ["a"]

    def test_several_filters_are_all_checked(self, app, passes):
        both = app.schedule("both", lambda: None).when(lambda: True).when(lambda: False)
        either = app.schedule("either", lambda: None).skip(lambda: False).skip(lambda: True)
        put_off, skipped = both.dispatch(), either.dispatch()
        passes(app)

        assert put_off.status is RunStatus.PENDING
        assert skipped.status is RunStatus.SKIPPED

    def test_a_raising_filter_is_a_failed_attempt(self, app, seen):
        def broken():
            raise ValueError("no idea")

        job = app.schedule("it", lambda: None).when(broken)
        run = job.on_before(seen.note("before")).on_error(seen.note("error")).dispatch()

        assert app.run() == 1
        assert run.status is RunStatus.FAILED_PERMANENT
        assert seen.names == ["error"]

    def test_a_retry_is_not_filtered_again(self, app, passes):
        calls = []

        def once(ctx=None):
            calls.append(1)
            return len(calls) == 1

        def fail_once():
            if len(calls) == 1:
                calls.append(2)
                raise ValueError

        run = app.schedule("it", fail_once).when(once).retries(max=2, delay=0).dispatch()
        passes(app)

        assert run.status is RunStatus.COMPLETED
        assert calls == [1, 2]


class TestHooks:
    """Called per attempt, in order, several allowed; fewer parameters are fine."""

    def hooked(self, builder, seen):
        return (
            builder.on_before(seen.note("before"))
            .on_success(seen.note("success"))
            .on_error(seen.note("error"))
            .on_after(seen.note("after"))
        )

    def test_success(self, app, passes, seen):
        self.hooked(app.schedule("it", lambda: 42), seen).dispatch()
        passes(app)

        assert seen.names == ["before", "success", "after"]
        assert seen.calls[1] == ("success", 42)

    def test_failure(self, app, passes, seen):
        def fail():
            raise KeyError("lost")

        self.hooked(app.schedule("it", fail), seen).dispatch()
        passes(app)

        assert seen.names == ["before", "error", "after"]
        assert isinstance(seen.calls[1][1], KeyError)

    def test_a_reported_failure_calls_on_error(self, app, passes, seen):
        report = JobResult.failure("out of paper")
        self.hooked(app.schedule("it", lambda: report), seen).dispatch()
        passes(app)

        assert seen.names == ["before", "error", "after"]
        assert isinstance(seen.calls[1][1], RunUnsuccessful)

    def test_snooze_calls_only_on_after(self, app, seen):
        def later():
            raise Snooze(60)

        self.hooked(app.schedule("it", later), seen).dispatch()
        app.run()

        assert seen.names == ["before", "after"]

    def test_a_failing_on_before_is_a_failed_attempt(self, app, passes, seen):
        def refuse(ctx):
            raise ValueError("not today")

        builder = app.schedule("it", lambda: seen.calls.append("handler")).on_before(refuse)
        run = builder.on_error(seen.note("error")).on_after(seen.note("after")).dispatch()
        passes(app)

        assert run.read().reason == "ValueError: not today"
        assert seen.names == ["error", "after"]

    @pytest.mark.parametrize("hook", ["on_success", "on_after"])
    def test_a_failing_later_hook_is_recorded_and_does_not_change_the_outcome(
        self, app, passes, seen, hook
    ):
        def fail(*facts):
            raise ValueError("in a hook")

        builder = getattr(app.schedule("it", lambda: 42), hook)(fail)
        run = builder.on_after(seen.note("after")).dispatch()
        passes(app)

        assert run.result() == 42
        assert seen.names == ["after"]
        assert "in a hook" in run.log()[0].message

    def test_several_are_called_in_order_and_may_be_async(self, app, passes):
        seen = []

        async def first(ctx):
            seen.append("first")

        builder = app.schedule("it", lambda: None).on_before(first)
        builder.on_before(lambda: seen.append("second")).dispatch()
        passes(app)

        assert seen == ["first", "second"]

    def test_they_are_called_at_each_attempt(self, app, passes, seen):
        def fail():
            raise ValueError

        self.hooked(app.schedule("it", fail).retries(max=3, delay=0), seen).dispatch()
        passes(app)

        assert seen.names == ["before", "error", "after"] * 3
