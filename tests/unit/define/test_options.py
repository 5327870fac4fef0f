"""The options of a job: as methods of the builder, and by name."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tickwork import JobDefaults, Tickwork
from tickwork._define.options import (
    JOB_OPTIONS,
    NO_OPTIONS,
    JobOptions,
    OptionCollector,
    options_by_name,
)
from tickwork._domain.job import Misfire, Overlap
from tickwork._domain.limits.debounce import Debounce
from tickwork._domain.limits.limits import Limit, OnConflict, Unique
from tickwork._domain.runs.lease import Lease
from tickwork._domain.runs.retention import Keep, Retention
from tickwork._domain.runs.retry import Delays, Exponential, Fixed, Jitter, RetryErrors
from tickwork.errors import InvalidDuration, InvalidOption

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def hook() -> None:
    """Any hook."""


def check() -> bool:
    return True


# Each option: set with the builder, set by name, and the resulting fields.
CASES: list[tuple[str, Callable[[Any], Any], Any, dict[str, Any]]] = [
    ("args", lambda job: job.args(kind="daily"), {"kind": "daily"}, {"args": {"kind": "daily"}}),
    ("queue", lambda job: job.queue("emails"), "emails", {"queue": "emails"}),
    ("priority", lambda job: job.priority(-5), -5, {"priority": -5}),
    ("overlap", lambda job: job.overlap("allow"), "allow", {"overlap": Overlap.ALLOW}),
    ("overlap", lambda job: job.overlap(Overlap.SKIP), "skip", {"overlap": Overlap.SKIP}),
    ("misfire", lambda job: job.misfire("all"), "all", {"misfire": Misfire.ALL}),
    (
        "misfire",
        lambda job: job.misfire("skip", grace="1m"),
        {"policy": "skip", "grace": 60},
        {"misfire": Misfire.SKIP, "grace": MINUTE},
    ),
    ("jitter", lambda job: job.jitter(60), "1m", {"jitter": MINUTE}),
    ("expires", lambda job: job.expires("1m"), 60.0, {"expires": MINUTE}),
    ("expect_within", lambda job: job.expect_within("1m"), 60, {"expect_within": MINUTE}),
    (
        "expect_within",
        lambda job: job.expect_within(minutes=1),
        {"minutes": 1},
        {"expect_within": MINUTE},
    ),
    ("on_missed", lambda job: job.on_missed(check), check, {"missed": (check,)}),
    ("tags", lambda job: job.tags("a", "b"), ["a", "b"], {"tags": ("a", "b")}),
    ("tags", lambda job: job.tags("a").tags("b"), ("a", "b"), {"tags": ("a", "b")}),
    ("tags", lambda job: job.tags("ab"), "ab", {"tags": ("ab",)}),
    ("concurrency", lambda job: job.concurrency(3), 3, {"limits": (Limit(3),)}),
    (
        "concurrency",
        lambda job: job.concurrency(3, per="queue"),
        {"slots": 3, "per": "queue"},
        {"limits": (Limit(3, ("queue",)),)},
    ),
    (
        "concurrency",
        lambda job: job.concurrency(3).concurrency(1, per=["tenant", "account_id"]),
        [3, {"slots": 1, "per": ["tenant", "account_id"]}],
        {"limits": (Limit(3), Limit(1, ("tenant", "account_id")))},
    ),
    ("concurrency", lambda job: job.concurrency(3).concurrency(0), [3, 0], {"limits": ()}),
    (
        "rate",
        lambda job: job.rate(100, per="minute"),
        "100/minute",
        {"limits": (Limit(100, window=MINUTE),)},
    ),
    (
        "rate",
        lambda job: job.rate("100/minute", by="queue").rate(5, per=1, by=["tenant", "to"]),
        [{"count": 100, "per": MINUTE, "by": "queue"}, {"count": "5/1s", "by": ["tenant", "to"]}],
        {
            "limits": (
                Limit(100, ("queue",), MINUTE),
                Limit(5, ("tenant", "to"), timedelta(seconds=1)),
            )
        },
    ),
    ("lease", lambda job: job.lease(60.0), "1m", {"lease": Lease(MINUTE)}),
    ("timeout", lambda job: job.timeout(MINUTE), 60, {"timeout": MINUTE}),
    ("attempts", lambda job: job.attempts(5), 5, {"retry": Exponential(attempts_max=5)}),
    (
        "delays",
        lambda job: job.delays(["10s", 60]),
        ("10s", "1m"),
        {"retry": Delays(attempts_max=3, delays=(timedelta(seconds=10), MINUTE))},
    ),
    (
        "retry_on",
        lambda job: job.retry_on(OSError).retry_on(KeyError),
        (OSError, KeyError),
        {"retry_errors": RetryErrors(only=(OSError, KeyError))},
    ),
    (
        "dont_retry_on",
        lambda job: job.dont_retry_on(ValueError),
        ValueError,
        {"retry_errors": RetryErrors(never=(ValueError,))},
    ),
    (
        "retries",
        lambda job: job.retries(max=5, base=2, cap="1m", jitter=None),
        {"max": 5, "base": "2s", "cap": 60, "jitter": "none"},
        {
            "retry": Exponential(
                attempts_max=5, base=timedelta(seconds=2), cap=MINUTE, jitter=Jitter.NONE
            )
        },
    ),
    (
        "retries",
        lambda job: job.retries(max=3, delay="1m"),
        {"max": 3, "delay": 60},
        {"retry": Fixed(attempts_max=3, delay=MINUTE)},
    ),
    ("history", lambda job: job.history("7d"), "7d", {"retention": Retention(history=7 * DAY)}),
    ("history", lambda job: job.history("forever"), None, {"retention": Retention(history=None)}),
    ("results", lambda job: job.results("1d"), "24h", {"retention": Retention(results=DAY)}),
    (
        "keep",
        lambda job: job.keep("failures"),
        "failures",
        {"retention": Retention(keep=Keep.FAILURES)},
    ),
    ("crashes", lambda job: job.crashes(5), 5, {"crashes_max": 5}),
    ("engine", lambda job: job.engine("process"), "process", {"engine": "process"}),
    ("unique", lambda job: job.unique(), True, {"unique": Unique()}),
    ("unique", lambda job: job.unique("digest"), "digest", {"unique": Unique(key="digest")}),
    (
        "unique",
        lambda job: job.unique(by="account_id", within="1m"),
        {"by": ["account_id"], "within": 60},
        {"unique": Unique(by=("account_id",), within=MINUTE)},
    ),
    (
        "unique",
        lambda job: job.unique(by="account_id", on_conflict="replace"),
        {"by": "account_id", "on_conflict": "replace"},
        {"unique": Unique(by=("account_id",), on_conflict=OnConflict.REPLACE)},
    ),
    ("debounce", lambda job: job.debounce("1m"), 60, {"debounce": Debounce(quiet=MINUTE)}),
    (
        "debounce",
        lambda job: job.debounce("1m", max="2m", by="account_id"),
        {"quiet": 60, "max": 120, "by": ["account_id"]},
        {"debounce": Debounce(quiet=MINUTE, max=2 * MINUTE, by=("account_id",))},
    ),
    ("aliases", lambda job: job.aliases("old"), "old", {"aliases": ("old",)}),
    ("aliases", lambda job: job.aliases("a", "b"), ["a", "b"], {"aliases": ("a", "b")}),
    ("when", lambda job: job.when(check), check, {"when": (check,)}),
    ("when", lambda job: job.when(check).when(hook), [check, hook], {"when": (check, hook)}),
    ("skip", lambda job: job.skip(check), check, {"skip": (check,)}),
    ("on_before", lambda job: job.on_before(hook), hook, {"before": (hook,)}),
    ("on_success", lambda job: job.on_success(hook), hook, {"success": (hook,)}),
    ("on_error", lambda job: job.on_error(hook), [hook], {"error": (hook,)}),
    ("on_after", lambda job: job.on_after(hook), hook, {"after": (hook,)}),
]


class TestOptions:
    """An option has the same meaning in the builder and by name."""

    @pytest.mark.parametrize(("option", "chain", "value", "meaning"), CASES)
    def test_an_option_sets_its_fields(self, option, chain, value, meaning):
        options = chain(OptionCollector()).options

        assert options == JobOptions(**meaning, explicit=frozenset({option}))
        assert options_by_name({option: value}) == options

    def test_there_is_a_case_for_each_option(self):
        assert {option for option, *_ in CASES} == JOB_OPTIONS

    def test_collectors_are_values(self):
        mail = OptionCollector().queue("emails")
        urgent = mail.priority(1)

        assert mail.options.priority == 100
        assert (urgent.options.queue, urgent.options.priority) == ("emails", 1)

    def test_options_that_were_given_are_remembered(self):
        assert options_by_name({"queue": "default", "priority": 100}).explicit == {
            "queue",
            "priority",
        }
        assert NO_OPTIONS.explicit == frozenset()

    def test_a_second_call_replaces_or_adds(self):
        options = OptionCollector().queue("a").queue("b").args(x=1, y=1).args(y=2).options

        assert options.queue == "b"
        assert options.args == {"x": 1, "y": 2}

    def test_an_argument_may_have_any_name(self):
        assert options_by_name({"args": {"self": 1, "name": 2}}).args == {"self": 1, "name": 2}

    def test_grace_stays_when_the_policy_is_set_again(self):
        options = OptionCollector().misfire("skip", grace="5m").misfire("all").options

        assert options.grace == timedelta(minutes=5)

    def test_unique_false_is_the_default(self):
        assert options_by_name({"unique": False}) == NO_OPTIONS

    def test_a_plain_job_has_neither_filters_nor_hooks(self):
        assert options_by_name({"queue": "emails"}).is_plain
        for option in ("when", "skip", "on_before", "on_success", "on_error", "on_after"):
            assert not options_by_name({option: hook}).is_plain

    def test_a_spec_has_everything_except_functions(self):
        options = options_by_name({"queue": "emails", "when": check, "crashes": 5})

        spec = options.spec("digest", args='{"kind":"daily"}')

        assert (spec.name, spec.queue, spec.crashes_max) == ("digest", "emails", 5)
        assert spec.args == '{"kind":"daily"}'


class TestBadValues:
    """An invalid value is refused where it is given, and the error names the option."""

    @pytest.mark.parametrize(
        ("option", "value", "reason"),
        [
            ("args", 5, "must map names to values"),
            ("args", ["a"], "must map names to values"),
            ("queue", 5, "must be a string"),
            ("queue", "", "must not be empty"),
            ("queue", "a=b", "must not contain '='"),
            ("queue", ["a", "b"], "must be a string"),
            ("priority", "high", "must be an integer"),
            ("priority", True, "must be an integer"),
            ("priority", 1.5, "must be an integer"),
            ("priority", [1, 2], "must be an integer"),
            ("overlap", "skipp", "Did you mean 'skip'?"),
            ("overlap", 5, "must be one of skip, queue_one"),
            ("overlap", True, "must be one of"),
            ("misfire", "most", "must be one of one, skip, all"),
            ("misfire", {"policy": "one", "graec": 5}, "no option 'graec'.*Did you mean 'grace'?"),
            ("misfire", {"grace": 5}, "must include 'policy'"),
            ("tags", 5, "a string or a list of strings"),
            ("concurrency", -1, "between 1 and 1,000,000"),
            ("concurrency", "3", "must be an integer"),
            ("concurrency", True, "must be an integer"),
            ("concurrency", {"slots": 1, "per": 5}, "a name or a list of names"),
            ("concurrency", {"slots": 1, "per": ["a", 5]}, "a name or a list of names"),
            ("concurrency", {"slots": 1, "per": "a b"}, "the name of a parameter"),
            ("concurrency", {"per": "queue"}, "must include 'slots'"),
            ("rate", 100, 'must be given.*per="minute"'),
            ("rate", {"count": 0, "per": "minute"}, "pause the job"),
            ("rate", {"count": True, "per": "minute"}, "must be an integer"),
            ("rate", {"count": 1.5, "per": "minute"}, "must be an integer"),
            ("rate", {"count": 1, "per": "queue"}, "by='queue'"),
            ("rate", {"count": 1, "per": "minuet"}, "Did you mean 'minute'"),
            ("rate", {"count": 1, "per": "minute", "by": "a b"}, "the name of a parameter"),
            ("rate", {"count": "1/minute", "per": "hour"}, "a slash and a length of time"),
            ("rate", "100", "a slash and a length of time"),
            ("rate", "many/minute", "a slash and a length of time"),
            ("rate", (100, "minute"), "must be given"),
            ("lease", 0, "lease"),
            ("attempts", 0, "between 1 and"),
            ("attempts", True, "must be an integer"),
            ("attempts", "5", "must be an integer"),
            ("attempts", [1, 2], "must be an integer"),
            ("history", "1s", "must be between 1m and"),
            ("results", -1, "must be between 1m and"),
            ("keep", "all", "must be one of nothing, failures"),
            ("delays", [], "must have at least one"),
            ("delays", "10s", "must be a list"),
            ("delays", 10, "must be a list"),
            ("delays", ["10s", -1], "must not be negative"),
            ("retry_on", "ConnectionError", "must be an exception type"),
            ("retry_on", [int], "must be an exception type"),
            ("dont_retry_on", ValueError("x"), "must be an exception type"),
            ("retries", {"max": 0}, "between 1 and"),
            ("retries", {"max": "5"}, "must be an integer"),
            ("retries", 1, "must not be a bare number.*attempts=2"),
            ("retries", 0, "must not be a bare number.*attempts=1"),
            ("retries", "5", "must be a table"),
            ("retries", {"max": 5, "bse": 1}, "no option 'bse'.*Did you mean 'base'?"),
            ("retries", {"max": 5, "zzz": 1}, "no option 'zzz'.*options are: base, cap"),
            ("retries", {"base": 1}, "must include 'max'"),
            ("retries", {"max": 5, "base": -1}, "must not be negative"),
            ("retries", {"max": 5, "jitter": "some"}, "must be one of"),
            ("crashes", "5", "must be an integer"),
            ("engine", 3, "must be the name of an engine"),
            ("unique", 5, "a string that is not empty"),
            ("unique", "", "a string that is not empty"),
            ("unique", {"by": 5}, "a name or a list of names"),
            ("unique", {"key": "a", "by": "b"}, "must have a key or by=, not both"),
            ("unique", {"within": 0}, "longer than 0s"),
            ("unique", {"within": 5, "on_conflict": "replace"}, "not be combined with within"),
            ("unique", {"on_conflict": "last"}, "must be one of keep, replace"),
            ("debounce", 0, "longer than 0s"),
            ("debounce", {"max": 5}, "must include 'quiet'"),
            ("debounce", {"quiet": 5, "max": 4}, "must not be shorter than the quiet period"),
            ("debounce", {"quiet": 5, "by": 5}, "a name or a list of names"),
            ("aliases", {"old": 1}, "a string or a list of strings"),
            ("when", "shop.checks:open", "must be callable"),
            ("skip", None, "must be callable"),
            ("on_before", 5, "must be callable"),
            ("on_success", [hook, 5], "must be callable"),
            ("on_error", 5, "must be callable"),
            ("on_after", 5, "must be callable"),
        ],
    )
    def test_the_error_has_the_rule(self, option, value, reason):
        with pytest.raises(InvalidOption, match=f"(?s){reason}"):
            options_by_name({option: value})

    @pytest.mark.parametrize("option", ["jitter", "expires", "lease", "timeout"])
    @pytest.mark.parametrize("value", [True, "soon", "5", None, [5]])
    def test_a_length_of_time_is_a_number_of_seconds_or_a_string_with_units(self, option, value):
        with pytest.raises(InvalidDuration):
            options_by_name({option: value})

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("misfire", {"policy": "one", "grace": -1}),
            ("tags", ["a", "a"]),
            ("tags", [5]),
            ("aliases", ["a=b"]),
            ("concurrency", [1, 2]),
            ("rate", ["1/minute", "2/60s"]),
        ],
    )
    def test_values_that_do_not_fit_together_are_refused_where_they_are_set(self, option, value):
        with pytest.raises(InvalidOption):
            options_by_name({option: value})

    def test_removing_the_concurrency_limit_keeps_the_rate(self):
        collector = OptionCollector().rate(3, per="minute").concurrency(5).concurrency(0)

        assert collector.options.limits == (Limit(3, window=MINUTE),)

    def test_an_unknown_option_suggests_a_close_one(self):
        with pytest.raises(InvalidOption, match="Did you mean 'priority'"):
            options_by_name({"prioritiy": 5})
        with pytest.raises(InvalidOption, match="The options are: aliases, args, attempts"):
            options_by_name({"xyz": 5})


class TestAttempts:
    """``attempts`` counts all tries. It can be combined with a formula or a list of delays."""

    @pytest.mark.parametrize(
        "chain",
        [
            lambda job: job.attempts(5).delays(["10s", "1m"]),
            lambda job: job.delays(["10s", "1m"]).attempts(5),
        ],
    )
    def test_with_delays_in_any_order(self, chain):
        policy = chain(OptionCollector()).options.retry

        assert policy.attempts_max == 5
        assert [policy.delay_after(n, 0.5).total_seconds() for n in range(1, 5)] == [10, 60, 60, 60]

    def test_delays_alone_give_one_attempt_more(self):
        assert options_by_name({"delays": ["1s", "2s", "3s"]}).retry.attempts_max == 4

    @pytest.mark.parametrize("other", [{"attempts": 3}, {"delays": ["1s"]}])
    def test_a_formula_cannot_be_combined(self, other):
        both = {"retries": {"max": 5}, **other}
        for given in (both, dict(reversed(both.items()))):
            with pytest.raises(
                InvalidOption, match="must not be combined with retries, got "
            ) as bad:
                options_by_name(given)
            assert bad.value.option == next(iter(other))

    def test_a_bare_number_in_the_builder_is_refused_too(self):
        with pytest.raises(InvalidOption, match=r"(?s)reads as 3 retries.*attempts=4"):
            OptionCollector().retries(3)  # type: ignore[arg-type]

    def test_error_types_without_attempts_do_nothing_and_are_refused(self):
        with pytest.raises(InvalidOption, match=r"(?s)must come with attempts.*attempts=3"):
            Tickwork("memory://").job(retry_on=OSError)(hook)


class TestDefaults:
    """``JobDefaults`` are options of all jobs, unless a job sets its own."""

    def app(self, **given: Any) -> Tickwork:
        return Tickwork("memory://", defaults=JobDefaults(**given))

    def test_they_apply_to_every_way_to_define_a_job(self):
        app = self.app(queue="slow", attempts=3, timeout="5m")
        app.job(hook)
        app.schedule("builder", hook)
        app.adhoc("adhoc", hook)

        for name in ("hook", "builder", "adhoc"):
            spec = app.registry.get(name).spec
            assert (spec.queue, spec.attempts_max, spec.timeout) == ("slow", 3, 5 * MINUTE)

    def test_they_apply_to_job_types(self):
        class Reports:
            def supports(self, job_type: str) -> bool:
                return job_type == "report"

            def handle(self, run: object) -> None: ...

        app = self.app(queue="slow")
        app.handler(Reports())

        assert app.registry.get("report").spec.queue == "slow"

    def test_a_job_overrides_them(self):
        app = self.app(queue="slow", tags=["a"], retry_on=OSError, attempts=3, delays=["1s"])
        options = app.job(queue="fast", tags="b", retry_on=KeyError, attempts=5)(
            hook
        ).definition.options

        assert (options.queue, options.tags) == ("fast", ("b",))
        assert options.retry_errors.only == (KeyError,)
        assert options.retry == Delays(attempts_max=5, delays=(timedelta(seconds=1),))

    def test_a_formula_of_a_job_replaces_the_default_delays(self):
        job = self.app(attempts=3, delays=["1s"]).job(retries={"max": 2, "base": 5})(hook)

        assert isinstance(job.definition.spec.retry, Exponential)

    def test_they_do_not_apply_to_remote_jobs(self):
        remote = self.app(queue="slow").remote("theirs")

        assert remote.job.definition.spec.queue == "default"

    def test_a_schedule_of_a_job_has_the_options_of_the_job(self):
        app = self.app(overlap="allow")
        job = app.job(overlap="queue_one")(hook)
        app.schedule("more", job).hourly()
        app.schedule("other", check).hourly()

        app.run()  # writes the schedules
        overlaps = {view.name: view.overlap for view in app.schedules.list()}
        assert overlaps == {"more": "queue_one", "other": "allow"}

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"atempts": 3}, "Did you mean 'attempts'"),
            ({"unique": True}, "must not set this option.*each job"),
            ({"attempts": 0}, "between 1 and"),
            ({"history": "1s"}, "must be between"),
        ],
    )
    def test_invalid_defaults_are_refused(self, given, message):
        with pytest.raises(InvalidOption, match=f"(?s){message}"):
            JobDefaults(**given)

    def test_two_equal_defaults_are_equal(self):
        assert JobDefaults(timeout="60s") == JobDefaults(timeout="1m")
        assert repr(JobDefaults(attempts=3)) == "JobDefaults(attempts=3)"
