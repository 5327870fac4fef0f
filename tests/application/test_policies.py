"""Options of a job: retries, queues, priorities, limits, leases, timeouts, expiry."""

import asyncio

import pytest

from tickwork import Discard, JobResult, RetryLater, RunStatus, Snooze, Tickwork
from tickwork._define.options import JobKeywords
from tickwork._domain.runs.retry import Exponential, Fixed
from tickwork.errors import DuplicateDefinition, InvalidOption


def failing(*outcomes):
    """A handler that fails with these outcomes, then succeeds."""
    left = list(outcomes)

    def handler():
        if not left:
            return "done"
        outcome = left.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return handler


class TestRetries:
    """``max`` counts all attempts and always wins."""

    def test_without_a_policy_an_exception_is_final(self, app, passes):
        run = app.schedule("it", failing(ValueError())).dispatch()
        passes(app)

        assert run.status is RunStatus.FAILED_PERMANENT

    def test_the_delay_doubles_up_to_the_cap(self, app, clock):
        handler = failing(*[ValueError()] * 5)
        run = app.schedule("it", handler).retries(max=5, base=2, cap=10, jitter=None).dispatch()
        delays = []
        for _ in range(4):
            app.run()
            delays.append((run.read().due_at - clock.now()).total_seconds())
            clock.set(run.read().due_at)
        app.run()

        assert delays == [2, 4, 8, 10]
        assert run.status is RunStatus.FAILED_PERMANENT
        assert len(run.attempts()) == 5

    def test_full_jitter_stays_between_zero_and_that(self, app, clock):
        run = app.schedule("it", failing(ValueError())).retries(max=2, base=8).dispatch()
        app.run()

        assert 0 <= (run.read().due_at - clock.now()).total_seconds() < 8
        assert run.status is RunStatus.FAILED

    def test_attempts_counts_all_tries(self, app, clock):
        run = app.job(name="it", attempts=3)(failing(*[ValueError()] * 5)).dispatch()
        for _ in range(5):
            app.run()
            clock.advance(minutes=2)

        assert run.status is RunStatus.FAILED_PERMANENT
        assert len(run.attempts()) == 3

    def test_a_list_of_delays(self, app, clock):
        handler = failing(*[ValueError()] * 5)
        run = app.job(name="it", delays=["10s", "1m"])(handler).dispatch()
        delays = []
        for _ in range(2):
            app.run()
            delays.append((run.read().due_at - clock.now()).total_seconds())
            clock.set(run.read().due_at)
        app.run()

        assert delays == [10, 60]
        assert run.status is RunStatus.FAILED_PERMANENT

    def test_an_exception_that_must_not_be_retried_is_final(self, app):
        options = {"attempts": 3, "dont_retry_on": ValueError}
        run = app.job(name="it", **options)(failing(ValueError("no"))).dispatch()
        app.run()

        assert run.status is RunStatus.FAILED_PERMANENT
        [cause, *_] = app.explain(run.id).causes
        assert "Attempt 1 of 3 failed and is not retried: ValueError: no" in cause.text

    def test_intent_of_the_handler_wins_over_types(self, app):
        run = app.job(name="it", attempts=3, retry_on=OSError)(failing(RetryLater("5s"))).dispatch()
        app.run()

        assert run.status is RunStatus.FAILED

    def test_explicit_intent_without_a_policy_waits_60_s_and_doubles(self, app, clock):
        handler = failing(RetryLater(), JobResult.failure("no", should_retry=True))
        run = app.schedule("it", handler).dispatch()
        delays = []
        for _ in range(2):
            app.run()
            delays.append((run.read().due_at - clock.now()).total_seconds())
            clock.set(run.read().due_at)
        app.run()

        assert delays == [60, 120]
        assert run.result() == "done"

    def test_explicit_intent_ends_after_ten_attempts(self, app, clock):
        run = app.schedule("it", failing(*[RetryLater(0)] * 20)).dispatch()
        attempts = 0
        while made := app.run():
            attempts += made

        assert attempts == 10
        assert run.status is RunStatus.FAILED_PERMANENT

    @pytest.mark.parametrize(
        "intent", [RetryLater(17), JobResult.failure("no", should_retry=True, retry_delay=17)]
    )
    def test_a_given_delay_is_exact(self, app, clock, intent):
        run = app.schedule("it", failing(intent)).retries(max=3, base=100).dispatch()
        app.run()

        assert (run.read().due_at - clock.now()).total_seconds() == 17

    def test_max_overrides_the_handler(self, app, passes):
        handler = failing(*[RetryLater(0)] * 5)
        run = app.schedule("it", handler).retries(max=2, delay=0).dispatch()

        assert passes(app) == 2
        assert run.status is RunStatus.FAILED_PERMANENT

    def test_without_should_retry_the_policy_decides(self, app, passes):
        report = JobResult.failure("no")
        final = app.schedule("final", failing(report)).dispatch()
        again = app.schedule("again", failing(report)).retries(max=2, delay=0).dispatch()
        passes(app)

        assert final.status is RunStatus.FAILED_PERMANENT
        assert again.result() == "done"

    @pytest.mark.parametrize(
        "intent", [Discard("pointless"), JobResult.failure("no", should_retry=False)]
    )
    def test_discard_is_permanent(self, app, passes, intent):
        run = app.schedule("it", failing(intent)).retries(max=5, delay=0).dispatch()

        assert passes(app) == 1
        assert run.status is RunStatus.FAILED_PERMANENT

    def test_snooze_costs_no_attempt(self, app, clock, passes):
        run = app.schedule("it", failing(Snooze(60, "too early"))).dispatch()
        app.run()
        assert run.status is RunStatus.PENDING
        clock.advance(seconds=60)
        passes(app)

        assert run.result() == "done"
        assert run.read().attempt == 1

    def test_the_schedule_continues_after_a_permanent_failure(self, app, clock, passes):
        app.schedule("it", failing(ValueError())).hourly()
        app.run()
        for _ in range(2):
            clock.advance(hours=1)
            passes(app)

        statuses = [run.status for run in app.runs.recent()]
        assert statuses == [RunStatus.COMPLETED, RunStatus.FAILED_PERMANENT]

    def test_every_attempt_is_kept_with_its_error(self, app, passes):
        handler = failing(ValueError("one"), KeyError("two"))
        run = app.schedule("it", handler).retries(max=3, delay=0).dispatch()
        passes(app)

        errors = [attempt.error for attempt in run.attempts()]
        assert errors == ["ValueError: one", "KeyError: 'two'", ""]


class TestOrder:
    """Lower priorities first; ties by due time, then by age."""

    def test_priority_then_due_time_then_age(self, app, clock, passes):
        seen = []

        def note(name):
            seen.append(name)

        job = app.schedule("it", note)
        urgent = app.schedule("urgent", note).priority(10)
        job.delay(2).dispatch("later")
        job.delay(1).dispatch("sooner")
        job.delay(1).dispatch("as soon, but younger")
        urgent.delay(2).dispatch("urgent")
        clock.advance(seconds=5)
        passes(app)

        assert seen == ["urgent", "sooner", "as soon, but younger", "later"]

    def test_a_dispatch_may_set_another_queue_and_priority(self, app):
        job = app.schedule("it", lambda: None).queue("slow").priority(5).job
        run = job.queue("fast").priority(1).dispatch().read()

        assert (run.queue, run.priority) == ("fast", 1)
        assert job.dispatch().read().queue == "slow"


class TestLimits:
    """Exact across all workers: here, two programs on one database."""

    def crowd(self, app, limited, runs, **args):
        """The largest number of these that ran at the same time."""
        running, most = 0, 0

        def handler(**kwargs):
            nonlocal running, most
            running += 1
            most = max(most, running)
            app.run(batch=1)
            running -= 1

        job = limited(app.schedule("it", handler))
        job.dispatch_many([dict(args) for _ in range(runs)])
        while app.run(batch=1):
            pass
        return most

    def test_per_job(self, app):
        assert self.crowd(app, lambda job: job.concurrency(2), 6) == 2

    def test_per_queue(self, app):
        assert self.crowd(app, lambda job: job.queue("q").concurrency(3, per="queue"), 6) == 3

    def test_without_a_limit_all_of_them_run(self, app):
        assert self.crowd(app, lambda job: job.concurrency(2).concurrency(0), 4) == 4

    def test_per_value_of_an_argument(self, app):
        running, together = [], set()

        def handler(account):
            running.append(account)
            together.add(tuple(sorted(running)))
            app.run(batch=1)
            running.remove(account)

        job = app.schedule("it", handler).concurrency(1, per="account")
        job.dispatch_many([{"account": account} for account in "aabb"])
        while app.run(batch=1):
            pass

        assert ("a", "b") in together
        assert not {("a", "a"), ("b", "b")} & together

    def test_calls_accumulate(self, app):
        job = app.schedule("it", lambda account: None)
        job.concurrency(5).concurrency(1, per="account").dispatch(account=1)

        assert {key.partition("=")[0] for key in app.runs.recent()[0].limit_keys} == {
            "job:it",
            "account:it",
        }

    def test_unequal_limits_for_one_queue_are_an_error(self, app):
        app.schedule("one", lambda: None).queue("q").concurrency(2, per="queue")
        app.schedule("two", lambda: None).queue("q").concurrency(3, per="queue")

        with pytest.raises(DuplicateDefinition, match="queue:q"):
            app.run()


class TestTimeouts:
    """A timeout is a failed attempt."""

    def test_a_coroutine_is_cancelled(self, make_app):
        app = make_app(clock=None)
        seen = []

        @app.job(timeout=0.05)
        async def sleep() -> None:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        run = sleep.dispatch()
        app.run()

        assert seen == ["cancelled"]
        assert "exceeded its timeout of 0.05s" in run.read().reason
        assert run.status is RunStatus.FAILED_PERMANENT

    def test_a_function_that_exceeds_its_timeout_fails(self, app, clock):
        @app.job(timeout=5, retries={"max": 2, "delay": 0})
        def slow() -> None:
            clock.advance(seconds=6)

        run = slow.dispatch()

        assert app.run() == 1
        assert run.status is RunStatus.FAILED


class TestExpiry:
    """A run that has expired does not start."""

    def test_a_run_that_could_not_start_in_time_is_skipped_with_the_reason(self, app, clock):
        run = app.schedule("it", lambda: None).expires(60).dispatch()
        clock.advance(seconds=61)

        assert app.run() == 0
        assert run.status is RunStatus.SKIPPED
        assert "did not start in time" in run.read().reason


class TestLeases:
    """The lease ends, another worker takes the run, the first can no longer write."""

    def test_a_run_whose_lease_expired_goes_to_another_worker(self, make_app, clock, passes):
        first, second = make_app(), make_app()
        seen = []

        def work(app):
            def handler():
                seen.append(app)
                if len(seen) == 1:
                    clock.advance(seconds=11)
                    second.run()
                return len(seen)

            return handler

        first.schedule("it", work(first)).lease(10)
        second.schedule("it", work(second)).lease(10)
        run = first.dispatch("it")
        first.run()

        assert seen == [first, second]
        assert run.result() == 2


OPTIONS: JobKeywords = {
    "queue": "emails",
    "priority": 7,
    "concurrency": [3, {"slots": 1, "per": "to"}],
    "rate": ["100/minute", {"count": 5, "per": "second", "by": "to"}],
    "lease": "2m",
    "timeout": 30,
    "retries": {"max": 5, "base": 2, "cap": 60, "jitter": "none"},
    "crashes": 5,
    "unique": {"by": "to", "within": "1h"},
    "expires": "1d",
    "overlap": "queue_one",
    "misfire": {"policy": "all", "grace": 10},
    "jitter": 5,
    "tags": ["mail"],
    "aliases": ["old_send"],
    "args": {"to": "all"},
}


class TestEqualSpecs:
    """The builder and the decorator make equal specs."""

    def test_for_all_options(self):
        decorated, built = Tickwork("memory://"), Tickwork("memory://")

        @decorated.job(name="send", **OPTIONS)
        def send(to: str) -> None: ...

        builder = built.schedule("send", lambda to: None)
        builder.queue("emails").priority(7).concurrency(3).concurrency(1, per="to").lease(120)
        builder.rate(100, per="minute").rate(5, per=1, by="to")
        builder.timeout(30).retries(max=5, base=2, cap=60, jitter="none").crashes(5)
        builder.unique(by="to", within="1h").expires("1d").overlap("queue_one")
        builder.misfire("all", grace=10).jitter(5).tags("mail").aliases("old_send").args(to="all")

        assert send.definition.spec == builder.job.definition.spec

    def test_defaults(self):
        spec = Tickwork("memory://").schedule("it", lambda: None).job.definition.spec

        assert (spec.queue, spec.priority, spec.limits, spec.attempts_max) == (
            "default",
            100,
            (),
            1,
        )
        assert (spec.lease.length.seconds, spec.timeout, spec.crashes_max) == (60, None, 3)
        assert (spec.overlap, spec.misfire, spec.grace.seconds) == ("skip", "one", 60)

    def test_retries_default_to_full_jitter_from_one_second_to_a_minute(self):
        spec = Tickwork("memory://").schedule("it", lambda: None).attempts(5).job.definition.spec

        assert spec.retry == Exponential(attempts_max=5)
        fixed = Tickwork("memory://").schedule("it", lambda: None).retries(max=5, delay=3)
        assert isinstance(fixed.job.definition.spec.retry, Fixed)

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("queue", ""),
            ("priority", "high"),
            ("priority", 10**6),
            ("concurrency", -1),
            ("rate", "0/minute"),
            ("lease", 0.5),
            ("timeout", 0),
            ("attempts", 0),
            ("retries", 3),
            ("overlap", "skpi"),
            ("misfire", "twice"),
            ("jitter", -1),
            ("expires", 0),
            ("unique", {"key": "k", "by": "to"}),
            ("colour", "red"),
        ],
    )
    def test_an_invalid_value_is_refused_where_it_is_given(self, option, value):
        app = Tickwork("memory://")

        with pytest.raises((InvalidOption, ValueError), match=r"."):
            app.job(**{option: value})(lambda to: None)
