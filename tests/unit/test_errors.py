import inspect
import pickle
import re
from datetime import timedelta
from typing import Any

import pytest

from docs.error_examples import ERRORS, SIGNALS
from tickwork import errors
from tickwork.errors import Signal, TickworkError, mask_url

EXAMPLES: list[Any] = [*ERRORS, *(signal for signal, _ in SIGNALS)]
KINDS: list[Any] = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, Exception) and kind.__module__ == errors.__name__
]


def named(example):
    return type(example).__name__


class TestTheTree:
    """All errors are in one file, each with an example here and a code of its own."""

    def test_every_kind_has_an_example(self):
        assert {type(example) for example in EXAMPLES} == set(KINDS)

    def test_no_two_kinds_share_a_code(self):
        codes = [kind.code for kind in KINDS]

        assert len(set(codes)) == len(codes)

    def test_every_kind_is_an_error_or_a_signal(self):
        assert {kind for kind in KINDS if not issubclass(kind, TickworkError)} == {
            Signal,
            errors.RetryLater,
            errors.Discard,
            errors.Snooze,
        }

    def test_the_drawing_shows_it_as_it_is(self):
        assert drawn(errors.__doc__ or "") == {
            kind.__name__: (parent(kind), mixed_in(kind)) for kind in KINDS
        }


def drawn(text: str) -> dict[str, tuple[str | None, str | None]]:
    """Name → parent and standard base, as the module's docstring draws them."""
    found: dict[str, tuple[str | None, str | None]] = {}
    line_of_descent: dict[int, str] = {}
    for line in text.splitlines():
        match = re.match(r" {4}((?:[│├└ ][ ─]{2} )*)([A-Z]\w+)(?: +\((\w+)\))?", line)
        if match:
            depth = len(match[1]) // 4
            line_of_descent[depth] = match[2]
            found[match[2]] = (line_of_descent.get(depth - 1), match[3])
    return found


def parent(kind: Any) -> str | None:
    return kind.__bases__[0].__name__ if kind.__bases__[0] in KINDS else None


def mixed_in(kind: Any) -> str | None:
    return next((base.__name__ for base in kind.__bases__[1:]), None)


@pytest.mark.parametrize("example", EXAMPLES, ids=named)
class TestEveryError:
    """An error has a message, and can be pickled."""

    def test_it_has_whole_lines(self, example):
        lines = str(example).splitlines()

        assert all(line == line.strip() != "" for line in lines)

    def test_survives_a_pickle(self, example):
        copy = pickle.loads(pickle.dumps(example))

        assert type(copy) is type(example)
        assert (str(copy), copy.args, vars(copy)) == (str(example), example.args, vars(example))

    def test_has_facts_as_attributes(self, example):
        stated = set(inspect.signature(type(example)).parameters) - {"known", "reason", "faults"}

        assert stated <= vars(example).keys()

    def test_shows_no_password(self, example):
        assert "s3cret" not in f"{example} {vars(example)}"


class TestWording:
    """Errors name what would have worked."""

    def test_what_why_and_fix_are_lines(self):
        error = TickworkError("What.", why="Why.", fix="Fix.")

        assert str(error) == "What.\nWhy.\nFix."

    def test_a_close_name_is_offered(self):
        error = errors.JobNotFound("send_emial", known=["sweep", "send_email"])

        assert str(error).splitlines() == [
            "No job named 'send_emial' is registered in this process.",
            "This process has 2 jobs: send_email, sweep.",
            "Did you mean 'send_email'?",
        ]

    def test_without_a_close_name_the_fix_tells_how_to_load_jobs(self):
        error = errors.JobNotFound("sweep", known=[])

        assert error.why == "This process has no jobs."
        assert "tickwork -a" in error.fix

    def test_a_long_list_is_cut(self):
        error = errors.JobNotFound("x", known=[f"job{number:03}" for number in range(100)])

        assert error.why.startswith("This process has 100 jobs: job000, ")
        assert error.why.endswith("job019 and 80 more.")

    def test_a_schedule_without_relatives_is_just_missing(self):
        assert str(errors.ScheduleNotFound("x")) == "There is no schedule 'x'."

    def test_all_faults_of_a_configuration_are_listed(self):
        error = errors.ConfigError("tickwork.toml", ["one", "two"])

        assert str(error) == "tickwork.toml has 2 errors.\n- one\n- two"
        assert error.faults == ("one", "two")

    def test_a_long_value_is_cut(self):
        assert len(errors.InvalidOption("tags", "x" * 1000, "must be shorter").what) < 120


class TestMasking:
    """A URL in a message has no password in it."""

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("sqlite:///jobs.db", "sqlite:///jobs.db"),
            ("postgresql://db:5432/jobs", "postgresql://db:5432/jobs"),
            ("postgresql://app:p%40ss@db:5432/jobs", "postgresql://app:***@db:5432/jobs"),
            ("mysql://app:p@ss:w/rd@db/jobs", "mysql://app:***@db/jobs"),
            (
                "postgresql://db/x?user=a&password=b&c=d",
                "postgresql://db/x?user=a&password=***&c=d",
            ),
            ("mysql://db/x?PASSWD=b", "mysql://db/x?PASSWD=***"),
        ],
    )
    def test_the_password_is_hidden_everywhere(self, url, shown):
        assert mask_url(url) == shown


class TestSignals:
    """A signal has a delay and a reason, and is not caught by accident."""

    def test_an_error_handler_around_a_dispatch_lets_it_pass(self):
        assert not issubclass(Signal, TickworkError)

    def test_seconds_are_taken_as_a_delay(self):
        assert errors.Snooze(90).delay == timedelta(minutes=1, seconds=30)

    def test_no_delay_leaves_it_to_the_policy(self):
        assert errors.RetryLater().delay is None
