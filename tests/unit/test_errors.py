import inspect
import pickle
import re
from datetime import timedelta
from typing import Any
from urllib.parse import unquote

import pytest

from docs.error_examples import ERRORS, SIGNALS
from tickwork import errors
from tickwork.errors import (
    AccessDenied,
    InvalidStoreUrl,
    Signal,
    StoreUnavailable,
    TickworkError,
)

EXAMPLES: list[Any] = [*ERRORS, *(signal for signal, _ in SIGNALS)]
KINDS: list[Any] = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, Exception)
    and not issubclass(kind, Warning)
    and kind.__module__ == errors.__name__
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
            kind.__name__: (parent(kind), mixed_in(kind)) for kind in [*KINDS, errors.SuspendRun]
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
    others = kind.__bases__ if kind is errors.SuspendRun else kind.__bases__[1:]
    return next((base.__name__ for base in others), None)


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

    def test_a_declared_message_contains_the_fields_of_the_error(self):
        error = errors.WaitTimeout("id", status="running", waited=timedelta(minutes=2))

        assert error.what == "The run id did not finish within 120s; it is running."
        assert (error.run_id, error.status, error.waited) == ("id", "running", timedelta(minutes=2))

    def test_a_field_is_no_format_string(self):
        error = errors.KeyReused("{key} {0}")

        assert error.what == "The idempotency key '{key} {0}' belongs to another request."

    def test_a_declared_error_is_called_with_its_fields_only(self):
        with pytest.raises(TypeError):
            errors.AlreadyClaimed("id", "running")  # type: ignore[call-arg]

    def test_a_long_value_is_cut(self):
        assert len(errors.InvalidOption("tags", "x" * 1000, "must be shorter").what) < 120


class TestMasking:
    """A URL in a message has no password in it."""

    @pytest.mark.parametrize("kind", [InvalidStoreUrl, StoreUnavailable, AccessDenied])
    @pytest.mark.parametrize("password", ["s3cret", "s3%2Fcret", "S3CRET"])
    def test_nor_does_the_text_of_a_driver_show_it(self, kind, password):
        url = f"postgresql://app:{password}@db/jobs"
        error = kind(url, f"invalid port: {password.lower()} or {unquote(password)}")

        assert "cret" not in str(error).lower()
        assert "invalid port: *** or ***" in str(error)

    @pytest.mark.parametrize("password", ["s3@cret", "s3/cret", "s3?cret", "s3#cret"])
    def test_a_character_that_is_not_escaped_is_named_instead(self, password):
        """The driver takes a part of the password for something else, and shows it."""
        url = f"postgresql://app:{password}@db/jobs"
        error = StoreUnavailable(url, 'could not translate host name "cret" to address')

        assert "cret" not in str(error)
        assert "%40" in str(error)


class TestSignals:
    """A signal has a delay and a reason, and is not caught by accident."""

    def test_an_error_handler_around_a_dispatch_lets_it_pass(self):
        assert not issubclass(Signal, TickworkError)

    def test_seconds_are_taken_as_a_delay(self):
        assert errors.Snooze(90).delay == timedelta(minutes=1, seconds=30)

    def test_no_delay_leaves_it_to_the_policy(self):
        assert errors.RetryLater().delay is None
