"""What Cron says to what it cannot read: where, why, and what would work."""

import pickle
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tickwork._domain.schedules.cron import Cron
from tickwork.errors import CronError, InvalidSchedule, NaiveDatetime, TickworkError

SHAPE = (
    "The fields are: minute hour day-of-month month day-of-week; "
    "a sixth field, the second, comes first."
)
DAY_LETTERS = "L is the last day, LW the last weekday, 15W the weekday nearest to the 15th."
STEADY = "A cron field starts again in each period. For a fixed interval, use every(...)."


def refusal(expr: Any, **options: Any) -> CronError:
    with pytest.raises(CronError) as caught:
        Cron.parse(expr, **options)
    return caught.value


class TestTheMessage:
    """The message names the error and its place; attributes have the same for programs."""

    def test_it_names_expression_field_token_and_range(self):
        error = refusal("61 * * * *")

        assert (
            str(error)
            == "Invalid cron expression '61 * * * *': minute (field 1) '61' is not in 0-59."
        )
        assert error.expr == "61 * * * *"
        assert error.field == "minute"
        assert error.token == "61"
        assert error.position == 0
        assert error.hint == ""

    def test_the_hint_is_its_second_line(self):
        error = refusal("0 22-2 * * *")

        assert str(error).splitlines() == [
            "Invalid cron expression '0 22-2 * * *': hour (field 2) '22-2' runs backwards.",
            "Write '22-23,0-2'.",
        ]

    def test_it_is_a_value_error_of_tickworks_own_tree(self):
        error = refusal("61 * * * *")

        assert isinstance(error, ValueError)
        assert isinstance(error, InvalidSchedule)
        assert isinstance(error, TickworkError)
        assert error.code == "invalid-cron"

    def test_it_survives_the_way_back_from_another_process(self):
        error = refusal("0 22-2 * * *")

        copy = pickle.loads(pickle.dumps(error))

        assert str(copy) == str(error)
        assert (copy.field, copy.token, copy.position, copy.hint) == (
            "hour",
            "22-2",
            2,
            "Write '22-23,0-2'.",
        )

    def test_fields_are_counted_as_they_stand_when_seconds_come_first(self):
        error = refusal("0 0 24 * * *")

        assert (
            error.what
            == "Invalid cron expression '0 0 24 * * *': hour (field 3) '24' is not in 0-23."
        )
        assert error.position == 4

    def test_the_position_holds_through_extra_space(self):
        error = refusal("  0\t 99   * * *")

        assert error.expr[error.position :].startswith("99")

    def test_the_position_is_that_of_the_item_in_its_list(self):
        error = refusal("1,2,61 * * * *")

        assert (error.token, error.position) == ("61", 4)

    def test_the_position_is_not_that_of_an_earlier_item_that_looks_alike(self):
        error = refusal("10-20,0- * * * *")

        assert (error.token, error.position) == ("0-", 6)


@pytest.mark.parametrize(
    ("expr", "reason", "hint"),
    [
        ("", "it is empty", "'* * * * *' means every minute."),
        ("   ", "it is empty", "'* * * * *' means every minute."),
        ("\t\n", "it is empty", "'* * * * *' means every minute."),
        ("*", "it has 1 field, not 5 or 6", SHAPE),
        ("* * * *", "it has 4 fields, not 5 or 6", SHAPE),
        (
            "* * * * * * *",
            "it has 7 fields, not 5 or 6",
            "For years, use a pattern: pattern(minutes=0, hours=9, year='2026-2030').",
        ),
        ("* * * * * * * *", "it has 8 fields, not 5 or 6", SHAPE),
        ("@daily 5", "it has 2 fields, not 5 or 6", SHAPE),
        ("\x00", "it has 1 field, not 5 or 6", SHAPE),
    ],
)
class TestTheNumberOfFields:
    """There are five fields, or six."""

    def test_the_error_counts_the_fields(self, expr, reason, hint):
        error = refusal(expr)

        assert error.what == f"Invalid cron expression {expr!r}: {reason}."
        assert error.hint == hint
        assert (error.field, error.token, error.position) == ("", "", 0)


# One row: the expression, what follows it in the message, and the hint. Field, token and
# position are read off the message, which must agree with the attributes.
OUT_OF_RANGE = [
    ("60 * * * *", "minute (field 1) '60' is not in 0-59", ""),
    ("* 24 * * *", "hour (field 2) '24' is not in 0-23", ""),
    ("* * 0 * *", "day of month (field 3) '0' is not in 1-31", ""),
    ("* * 32 * *", "day of month (field 3) '32' is not in 1-31", ""),
    ("* * * 0 *", "month (field 4) '0' is not in 1-12", ""),
    ("* * * 13 *", "month (field 4) '13' is not in 1-12", ""),
    ("* * * * 8", "day of week (field 5) '8' is not in 0-7", ""),
    ("60 * * * * *", "second (field 1) '60' is not in 0-59", ""),
    ("50-60 * * * *", "minute (field 1) '50-60' is not in 0-59", ""),
    ("60/5 * * * *", "minute (field 1) '60/5' is not in 0-59", ""),
    (f"{'9' * 20} * * * *", f"minute (field 1) '{'9' * 20}' is not in 0-59", ""),
]
RANGES = [
    ("0 22-2 * * *", "hour (field 2) '22-2' runs backwards", "Write '22-23,0-2'."),
    ("0 23-0 * * *", "hour (field 2) '23-0' runs backwards", "Write '23,0'."),
    ("50-10 * * * *", "minute (field 1) '50-10' runs backwards", "Write '50-59,0-10'."),
    ("* * 28-3 * *", "day of month (field 3) '28-3' runs backwards", "Write '28-31,1-3'."),
    ("* * * NOV-FEB *", "month (field 4) 'NOV-FEB' runs backwards", "Write '11-12,1-2'."),
    ("* * * * FRI-MON", "day of week (field 5) 'FRI-MON' runs backwards", "Write '5-6,0-1'."),
    ("* * * * 6-1", "day of week (field 5) '6-1' runs backwards", "Write '6,0-1'."),
    ("-0 * * * *", "minute (field 1) '-0' is incomplete", ""),
    ("-5 * * * *", "minute (field 1) '-5' is incomplete", ""),
    ("0- * * * *", "minute (field 1) '0-' is incomplete", ""),
    ("- * * * *", "minute (field 1) '-' is incomplete", ""),
    ("--0 * * * *", "minute (field 1) '--0' is incomplete", ""),
]
STEPS = [
    ("*/0 * * * *", "minute (field 1) '*/0' has a step of 0", ""),
    ("1-5/0 * * * *", "minute (field 1) '1-5/0' has a step of 0", ""),
    ("5/0 * * * *", "minute (field 1) '5/0' has a step of 0", ""),
    ("*/ * * * *", "minute (field 1) '*/' needs a number after '/'", ""),
    ("*/x * * * *", "minute (field 1) '*/x' needs a number after '/'", ""),
    ("*/-5 * * * *", "minute (field 1) '*/-5' needs a number after '/'", ""),
    ("*/1.5 * * * *", "minute (field 1) '*/1.5' needs a number after '/'", ""),
    ("5/2/3 * * * *", "minute (field 1) '5/2/3' needs a number after '/'", ""),
    ("*/90 * * * *", "minute (field 1) '*/90' has a step that is longer than 0-59", STEADY),
    ("0 */36 * * *", "hour (field 2) '*/36' has a step that is longer than 0-23", STEADY),
    ("0 0 */45 * *", "day of month (field 3) '*/45' has a step that is longer than 1-31", STEADY),
    ("0 0 * * */14", "day of week (field 5) '*/14' has a step that is longer than 0-6", STEADY),
]
LISTS = [
    (",1 * * * *", "minute (field 1) ',1' has an empty item", "Write '1'."),
    ("1, * * * *", "minute (field 1) '1,' has an empty item", "Write '1'."),
    ("1,,2 * * * *", "minute (field 1) '1,,2' has an empty item", "Write '1,2'."),
    (", * * * *", "minute (field 1) ',' has an empty item", ""),
    ("1 ,2 * * *", "hour (field 2) ',2' has an empty item", "Write '2'."),
]
LETTERS = [
    ("L * * * *", "minute (field 1) 'L' is not in 0-59", ""),
    ("* L * * *", "hour (field 2) 'L' is not in 0-23", ""),
    ("* * * L *", "month (field 4) 'L' is not in 1-12 and not a name such as JAN", ""),
    (
        "* * * * L",
        "day of week (field 5) 'L' needs a weekday before 'L'",
        "5L is the last Friday; the last day of the month is L in the day-of-month field.",
    ),
    ("* * 5L * *", "day of month (field 3) '5L' is not a day", DAY_LETTERS),
    ("* * W * *", "day of month (field 3) 'W' is not a day", DAY_LETTERS),
    ("* * WL * *", "day of month (field 3) 'WL' is not a day", DAY_LETTERS),
    ("* * L,W * *", "day of month (field 3) 'W' is not a day", DAY_LETTERS),
    ("* * 1-5W * *", "day of month (field 3) '1-5W' is not a day", DAY_LETTERS),
    ("* * 32W * *", "day of month (field 3) '32W' is not in 1-31", ""),
    ("* * 0W * *", "day of month (field 3) '0W' is not in 1-31", ""),
    *(
        (
            f"* * * * {text}",
            f"day of week (field 5) '{text}' needs a number from 1 to 5 after '#'",
            "5#2 is the second Friday.",
        )
        for text in ("5#6", "5#0", "5#", "5#-1", "5#L", "5#2#3")
    ),
    ("* * * * #2", "day of week (field 5) '#2' is incomplete", ""),
    ("* * * * 8#2", "day of week (field 5) '8#2' is not in 0-7", ""),
    ("* * * * 8L", "day of week (field 5) '8L' is not in 0-7", ""),
    ("? * * * *", "minute (field 1) '?' is allowed in the day fields only", "Write '*'."),
    ("* * * ? *", "month (field 4) '?' is allowed in the day fields only", "Write '*'."),
    (
        "H * * * *",
        "minute (field 1) 'H' needs the name of the schedule for its hash",
        "Pass a key: Cron.parse(expr, key='nightly-report').",
    ),
]
NAMES = [
    (
        "* * * JANUARY *",
        "month (field 4) 'JANUARY' is not in 1-12 and not a name such as JAN",
        "Did you mean 'JAN'?",
    ),
    ("* * * FOO *", "month (field 4) 'FOO' is not in 1-12 and not a name such as JAN", ""),
    ("* * * MON *", "month (field 4) 'MON' is not in 1-12 and not a name such as JAN", ""),
    ("MON * * * *", "minute (field 1) 'MON' is not in 0-59", ""),
]
NOT_A_NUMBER = [
    (f"{text} * * * *", f"minute (field 1) {text!r} is not in 0-59", "")
    for text in ("x", "5*", "**", "*-5", "0x10", "1e1", "+5", "1_0", "0;rm", "0\x00", "0.5")
]


@pytest.mark.parametrize(
    ("expr", "reason", "hint"),
    [*OUT_OF_RANGE, *RANGES, *STEPS, *LISTS, *LETTERS, *NAMES, *NOT_A_NUMBER],
)
class TestOneField:
    """An error in a field names the field and its number."""

    def test_the_error_explains_what_is_wrong(self, expr, reason, hint):
        error = refusal(expr)

        assert error.what == f"Invalid cron expression {expr!r}: {reason}."
        assert error.hint == hint

    def test_its_attributes_agree_with_its_message(self, expr, reason, hint):
        error = refusal(expr)

        number = int(reason.split("(field ")[1].split(")")[0])
        assert reason.startswith(f"{error.field} (field {number}) {error.token!r} ")
        assert expr[error.position :].startswith(error.token)
        assert error.token in expr.split()[number - 1]


class TestRangesOfZero:
    """However oddly `0-0` is spelled, it is one value or an error, never a whole field."""

    @pytest.mark.parametrize("text", ["0--0", "0-0-0", "-0", "0-", "--0", "0-0-", "-0-0"])
    def test_odd_spellings_are_errors(self, text):
        error = refusal(f"{text} * * * *")

        assert (error.field, error.token, error.position) == ("minute", text, 0)

    @pytest.mark.parametrize("text", ["0-0", "00-0", "0-00", "0-0/5"])
    def test_plain_spellings_are_one_value(self, text):
        firing = Cron.parse(f"{text} * * * *").next(datetime(2026, 1, 1, tzinfo=UTC))

        assert firing == datetime(2026, 1, 1, 1, tzinfo=UTC)


class TestReversedRanges:
    """The spelling that the hint gives works, and means what was meant."""

    @pytest.mark.parametrize(
        ("expr", "field"),
        [
            ("0 22-2 * * *", 1),
            ("50-10 * * * *", 0),
            ("0 0 28-3 * *", 2),
            ("0 0 1 11-2 *", 3),
            ("0 0 * * FRI-MON", 4),
            ("0 0 * * 6-1", 4),
            ("0 0 * * 7-2", 4),
        ],
    )
    def test_the_hint_can_be_pasted(self, expr, field):
        spelling = refusal(expr).hint.removeprefix("Write '").removesuffix("'.")
        fields = expr.split()
        fields[field] = spelling

        assert Cron.parse(" ".join(fields)).next(datetime(2026, 1, 1, tzinfo=UTC)) is not None

    def test_the_hint_does_not_say_anything_twice(self):
        assert refusal("0 0 * * 7-2").hint == "Write '0-2'."

    def test_the_hint_keeps_the_step(self):
        hint = refusal("0 20-4/2 * * *").hint

        assert hint == "" or "/2" in hint


class TestWeekdays:
    """0 and 7 are Sunday everywhere, in error messages too."""

    def test_a_number_and_a_name_get_the_same_range(self):
        number, word = refusal("* * * * 8"), refusal("* * * * FOO")

        assert "is not in 0-7" in number.what
        assert "is not in 0-7" in word.what

    def test_a_long_name_leads_to_the_short_one(self):
        assert refusal("* * * * MONDAY").hint == "Did you mean 'MON'?"


class TestDigits:
    """Digits are ASCII. Others may look like a number and be read as none."""

    @pytest.mark.parametrize(
        "digit",
        [
            pytest.param("\u0669", id="Arabic nine"),
            pytest.param("\u06f9", id="Persian nine"),
            pytest.param("\u096f", id="Devanagari nine"),
            pytest.param("\uff19", id="fullwidth nine"),
            pytest.param("\u00b9", id="superscript one"),
            pytest.param("\u2460", id="circled one"),
            pytest.param("\u2003", id="a wide space"),
            pytest.param("\u00a0", id="a hard space"),
            pytest.param("\u200b", id="a space without width"),
            pytest.param("\ud800", id="half a surrogate pair"),
        ],
    )
    def test_other_digits_are_errors_with_their_position(self, digit):
        expr = f"0 {digit} * * *"

        error = refusal(expr)

        assert error.what == (
            f"Invalid cron expression {expr!r}: {digit!r} at position 2 is not an ASCII character."
        )
        assert error.hint == "Use the digits 0-9 and the letters A-Z."
        assert (error.token, error.position) == (digit, 2)

    def test_leading_zeros_are_fine(self):
        assert Cron.parse("05 09 01 01 *").next(datetime(2026, 1, 1, tzinfo=UTC)) == datetime(
            2026, 1, 1, 9, 5, tzinfo=UTC
        )


class TestMacros:
    """An unknown macro is answered with the nearest one, or with all."""

    def test_a_typo_in_a_macro_gets_a_suggestion(self):
        error = refusal("@dayly")

        assert error.what == "Invalid cron expression '@dayly': there is no macro '@dayly'."
        assert error.hint == "Did you mean '@daily'?"
        assert (error.token, error.position) == ("@dayly", 0)

    @pytest.mark.parametrize("name", ["@", "@reboot", "@\x00"])
    def test_anything_else_is_answered_with_all(self, name):
        assert refusal(name).hint == (
            "The macros are: @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly."
        )


class TestLength:
    """No expression is longer than 1,024 characters, and no message shows it whole."""

    def test_the_longest_is_read(self):
        assert Cron.parse("* * * * *".ljust(1_024)) is not None
        assert Cron.parse(f"{'0,' * 500}0 * * * *") is not None

    @pytest.mark.parametrize(
        "expr", ["x" * 10_000, "* " * 5_000, "\u0669" * 10_000, "1," * 5_000, " " * 1_025]
    )
    def test_a_longer_expression_is_an_error(self, expr):
        error = refusal(expr)

        assert f"it has {len(expr):,} characters, but 1,024 are allowed" in error.what

    @pytest.mark.parametrize(
        "expr",
        ["x" * 10_000, f"{'9' * 900} * * * *", f"{'x' * 900} * * * *", f"@{'x' * 900}", "1 " * 500],
    )
    def test_the_message_stays_short(self, expr):
        assert len(str(refusal(expr))) < 400


class TestOtherTypes:
    """An expression is text."""

    @pytest.mark.parametrize("value", [None, 5, 5.0, b"* * * * *", ["*"], object])
    def test_anything_else_is_an_error(self, value):
        error = refusal(value)

        kind = type(value).__name__
        assert (
            error.what
            == f"Invalid cron expression {error.expr!r}: it must be a string, got {kind}."
        )
        assert error.hint == "Write it as a string: '*/5 * * * *'."


class TestSpreading:
    """`H` needs a key and a range that exists."""

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("H(5-1)", "runs backwards"),
            ("H(0-60)", "is not in 0-59"),
            ("H(", "is not in 0-59"),
            ("H()", "is not in 0-59"),
            ("H5", "is not in 0-59"),
            ("HH", "is not in 0-59"),
            ("H(1-2-3)", "is not in 0-59"),
            ("H/0", "has a step of 0"),
            ("H/", "needs a number after '/'"),
        ],
    )
    def test_an_invalid_spread_is_an_error(self, text, reason):
        error = refusal(f"{text} * * * *", key="report")

        assert (
            error.what
            == f"Invalid cron expression '{text} * * * *': minute (field 1) {text!r} {reason}."
        )

    def test_a_spread_up_to_day_7_reaches_sunday(self):
        cron = Cron.parse("0 0 * * H(7-7)", key="report")

        firing = cron.next(datetime(2026, 1, 1, tzinfo=UTC))

        assert firing == datetime(2026, 1, 4, tzinfo=UTC)
        assert "Sunday" in cron.describe()

    def test_any_key_is_good_enough(self):
        assert Cron.parse("H * * * *", key="\ud800") is not None


class TestZones:
    """A zone that does not exist is answered with one that does."""

    @pytest.mark.parametrize("name", ["Europe/Berln", "europe/berlin", "Europe/Berlin "])
    def test_a_typo_gets_a_suggestion(self, name):
        with pytest.raises(InvalidSchedule) as caught:
            Cron.parse("* * * * *", tz=name)

        assert str(caught.value).splitlines() == [
            f"There is no time zone {name!r}.",
            "Time zones are named as in the IANA database, such as 'Europe/Berlin'.",
            "Did you mean 'Europe/Berlin'?",
        ]

    @pytest.mark.parametrize(
        "name",
        ["", "Mars/Phobos", "../../etc/passwd", "/etc/passwd", "Europe", "\x00", "x" * 9_999],
    )
    def test_no_name_gets_further_than_the_zone_database(self, name):
        with pytest.raises(InvalidSchedule, match="There is no time zone") as caught:
            Cron.parse("* * * * *", tz=name)

        assert len(str(caught.value)) < 400

    @pytest.mark.parametrize("value", [None, 5, b"UTC"])
    def test_an_invalid_zone_is_an_error(self, value):
        with pytest.raises(InvalidSchedule, match="has no IANA name"):
            Cron.parse("* * * * *", tz=value)

    def test_the_expression_is_checked_first(self):
        with pytest.raises(CronError):
            Cron.parse("61 * * * *", tz="Mars/Phobos")


NAIVE = datetime(2026, 1, 1, 12)
AWARE = datetime(2026, 1, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))


class TestNaiveDatetimes:
    """A naive datetime is an error in every method."""

    @pytest.mark.parametrize(
        "ask",
        [
            pytest.param(lambda cron: cron.next(NAIVE), id="next"),
            pytest.param(lambda cron: cron.prev(NAIVE), id="prev"),
            pytest.param(lambda cron: cron.matches(NAIVE), id="matches"),
            pytest.param(
                lambda cron: cron.matches(NAIVE.replace(microsecond=1)),
                id="matches, with a fraction of a second",
            ),
            pytest.param(lambda cron: cron.take(1, NAIVE), id="take"),
            pytest.param(lambda cron: list(cron.between(NAIVE, AWARE)), id="between, from"),
            pytest.param(lambda cron: list(cron.between(AWARE, NAIVE)), id="between, to"),
        ],
    )
    def test_it_is_an_error(self, ask):
        with pytest.raises(NaiveDatetime, match=r"2026-01-01 12:00:00.* has no time zone"):
            ask(Cron.parse("* * * * *", tz="Europe/Berlin"))

    def test_the_refusal_is_a_value_error(self):
        assert issubclass(NaiveDatetime, ValueError)
