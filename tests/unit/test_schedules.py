"""The public module of rules: what it offers, and that it is the words of the chain."""

import inspect
from datetime import UTC, datetime, timedelta

import pytest

from tickwork import schedules
from tickwork._domain.schedules.frequencies import Frequencies
from tickwork.errors import InvalidOption
from tickwork.schedules import Timetable

T0 = datetime(2026, 1, 1, tzinfo=UTC)

CLASSES = {
    "Bounded",
    "Cron",
    "Interval",
    "Missing",
    "Once",
    "Pattern",
    "Recurrence",
    "Rule",
    "Timetable",
    "Unit",
    "Window",
    "Windowed",
}
# An end belongs to the rule before it.
NEVER_FIRST = {"starting", "until", "max_firings"}
WORDS = {name for name in vars(Frequencies) if not name.startswith("_")} - NEVER_FIRST

ARGUMENTS: dict[str, tuple[tuple[object, ...], dict[str, object]]] = {
    "cron": (("0 9 * * *",), {}),
    "pattern": ((), {"minutes": 5, "year": 2026}),
    "symbol": (("EVERY_DAY",), {}),
    "every": ((), {"minutes": 15, "starting": T0}),
    "once": ((T0,), {}),
    "on": ((schedules.Cron.parse("0 9 * * *"),), {}),
    "hourly_at": ((17, 47), {}),
    "daily": ((), {"interval": 2, "starting": T0}),
    "daily_at": (("13:00",), {}),
    "twice_daily": ((1, 13), {}),
    "weekly_on": ((1, "8:00"), {}),
    "monthly_on": ((4, "15:00"), {}),
    "twice_monthly": ((1, 16), {}),
    "yearly_on": ((6, 1, "17:00"), {}),
    "seconds": ((5,), {}),
    "minutes": ((5, 6), {}),
    "hours": ((range(9, 18),), {}),
    "days": (("L",), {}),
    "months": (([6, 7],), {}),
    "timezone": (("Europe/Berlin",), {}),
    "between": (("9:00", "17:00"), {}),
    "unless_between": (("9:00", "17:00"), {}),
    "except_on": (("2026-12-25",), {}),
}


class TestPublicNames:
    """What is listed is there, and what is there is listed."""

    def test_all_is_exact(self):
        assert set(schedules.__all__) == {*CLASSES, *WORDS, "SYMBOLS", "from_text"}
        assert len(schedules.__all__) == len(set(schedules.__all__))

    def test_every_name_is_there(self):
        assert all(hasattr(schedules, name) for name in schedules.__all__)

    def test_nothing_of_tickworks_is_public_by_accident(self):
        ours = {
            name
            for name, thing in vars(schedules).items()
            if not name.startswith("_")
            and not inspect.ismodule(thing)
            and getattr(thing, "__module__", "").startswith("tickwork")
        }

        assert ours - {"P"} <= set(schedules.__all__)

    @pytest.mark.parametrize("name", sorted({*CLASSES, *WORDS, "from_text"}))
    def test_everything_has_a_docstring(self, name):
        doc = inspect.getdoc(getattr(schedules, name))

        assert doc
        assert doc.splitlines()[0].endswith((".", ":"))

    @pytest.mark.parametrize("name", sorted(CLASSES - {"Missing", "Rule", "Unit"}))
    def test_methods_say_so_too(self, name):
        silent = {
            method
            for method, thing in inspect.getmembers(getattr(schedules, name), inspect.isfunction)
            if not method.startswith("_") and not inspect.getdoc(thing)
        }

        assert silent <= set(dir(schedules.Rule))


@pytest.mark.parametrize("word", sorted(WORDS))
class TestConstructors:
    """Each method of a timetable is also a function."""

    def test_it_calls_the_method_of_an_empty_timetable(self, word):
        args, named = ARGUMENTS.get(word, ((), {}))

        begun = getattr(schedules, word)(*args, **named)

        assert begun == getattr(Timetable(), word)(*args, **named)
        assert isinstance(begun, Timetable)
        assert begun != Timetable()

    def test_it_has_the_name_and_the_docstring_of_the_method(self, word):
        function = getattr(schedules, word)

        assert function.__name__ == function.__qualname__ == word
        assert function.__doc__ == getattr(Timetable, word).__doc__


class TestPreview:
    """``preview`` starts now, unless a time is given."""

    def test_a_preview_starts_now(self):
        now = datetime.now(UTC)  # noqa: TID251

        found = schedules.hourly().weekdays().preview(3)

        assert len(found) == 3
        assert found[0] > now

    @pytest.mark.parametrize(
        "rule",
        [
            schedules.Cron.parse("0 9 * * *"),
            schedules.Timetable().hourly(),
            schedules.Interval(length=timedelta(hours=1), anchor=datetime(2026, 1, 1, tzinfo=UTC)),
            schedules.Once(at=datetime(2999, 1, 1, tzinfo=UTC)),
            schedules.daily(interval=2, starting=datetime(2026, 1, 1, tzinfo=UTC)).rule(),
            schedules.hourly().between("09:00", "17:00").rule(),
            schedules.hourly().until(datetime(2999, 1, 1, tzinfo=UTC)).rule(),
            schedules.pattern(minutes="*/15").rule(),
        ],
        ids=lambda rule: type(rule).__name__,
    )
    def test_every_rule_has_a_preview(self, rule):
        now = datetime(2026, 3, 1, tzinfo=UTC)

        assert [at > now for at in rule.preview(1, after=now)] == [True]

    @pytest.mark.parametrize("count", [-1, 100_001, 10**30])
    @pytest.mark.parametrize(
        "rule",
        [
            schedules.Cron.parse("0 9 * * *"),
            schedules.every_second(),
            schedules.daily(interval=2, starting="2026-01-01T00:00Z"),
        ],
        ids=["cron", "pattern", "recurrence"],
    )
    def test_a_preview_has_at_most_a_hundred_thousand_instants(self, rule, count):
        with pytest.raises(InvalidOption, match="must be between 0 and 100,000"):
            rule.preview(count, after=datetime(2026, 3, 1, tzinfo=UTC))
