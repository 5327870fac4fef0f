"""Rules live in rows as text: what was written is read back, and all else is refused."""

import json
from datetime import UTC, date, datetime, time, timedelta

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tickwork._domain.schedules.bounds import Bounded, Window, Windowed
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.interval import Interval, Once
from tickwork._domain.schedules.pattern import FieldTexts, Pattern
from tickwork._domain.schedules.recurrence import Missing, Recurrence, Unit
from tickwork._domain.schedules.rules import TEXT_LENGTH_MAX, from_text
from tickwork.errors import InvalidSchedule

T0 = datetime(2026, 1, 1, tzinfo=UTC)

quickly = settings(
    max_examples=150,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # the other phases take minutes
)

# ---------------------------------------------------------------- any rule at all

zones = st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"])
instants = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))
crons = st.builds(
    Cron,
    st.sampled_from(["* * * * *", "*/5 0 9 * * 1-5", "0 0 L * 5#2", "@daily", "H H(0-7) * * *"]),
    zones,
    st.text(max_size=5),
)
numbers = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "day": (1, 31),
    "month": (1, 12),
    "weekday": (0, 7),
    "year": (1970, 9998),
}
options = st.fixed_dictionaries(
    {},
    optional={
        name: st.one_of(
            st.just("*"),
            st.integers(low, high).map(str),
            st.lists(st.integers(low, high), min_size=2, max_size=2).map(
                lambda pair: f"{min(pair)}-{max(pair)}/3"
            ),
        )
        for name, (low, high) in numbers.items()
    },
).map(lambda texts: FieldTexts(**texts))
patterns = st.one_of(
    st.builds(lambda options, tz: Pattern(options, tz=tz), options, zones),
    st.builds(
        lambda options, tz, key: Pattern(options, cron="H 0 13 * 5", key=key, tz=tz),
        options,
        zones,
        st.text(max_size=5),
    ),
)
intervals = st.builds(
    Interval,
    length=st.integers(1, 10**9).map(lambda seconds: timedelta(seconds=seconds)),
    anchor=instants,
    tz=zones,
)
onces = st.builds(Once, at=instants, tz=zones)
recurrences = st.builds(
    lambda unit, weekdays, **facts: Recurrence(
        unit=unit, weekdays=tuple(weekdays) if unit is Unit.WEEK else (), **facts
    ),
    st.sampled_from(Unit),
    st.sets(st.integers(0, 7)),
    anchor=instants,
    interval=st.integers(1, 10_000),
    missing=st.sampled_from(Missing),
    tz=zones,
)
plain_rules = st.one_of(crons, patterns, intervals, onces, recurrences)
windows = st.builds(
    Window,
    *[st.times().map(lambda clock: clock.replace(microsecond=0, fold=0))] * 2,
)


def restrict(rules):
    return st.one_of(
        st.builds(
            Bounded,
            rule=rules,
            starting=instants,
            until=st.one_of(st.none(), instants),
            max_firings=st.one_of(st.none(), st.integers(1, 9)),
        ),
        st.builds(
            Windowed,
            rule=rules,
            between=st.lists(windows, max_size=2).map(tuple),
            unless=st.lists(windows, max_size=2).map(tuple),
            dates=st.frozensets(st.dates(date(1990, 1, 1), date(2090, 1, 1)), max_size=3),
        ),
    )


rules = st.recursive(plain_rules, restrict, max_leaves=3)

ONE_OF_EACH: list[Rule] = [
    Cron.parse("H 9 * * 1-5", tz="Europe/Berlin", key="report"),
    Pattern.of(minute="*/15", hour=range(9, 18), year=2026),
    Interval(length=timedelta(minutes=15), anchor=T0),
    Once(at=T0),
    Recurrence(unit=Unit.WEEK, interval=2, anchor=T0, weekdays=(1, 5)),
    Bounded(rule=Cron.parse("0 9 * * *"), starting=T0, until=T0, max_firings=3),
    Windowed(
        rule=Cron.parse("0 * * * *"),
        between=(Window(time(9), time(17)),),
        unless=(Window(time(12), time(13)),),
        dates=frozenset({date(2026, 12, 25)}),
    ),
]


class TestThereAndBack:
    """``from_text(rule.to_text())`` is the rule."""

    @quickly
    @given(rules)
    def test_a_rule_is_equal_after_storing_and_parsing(self, rule):
        text = rule.to_text()

        copy = from_text(text)

        assert copy == rule
        assert hash(copy) == hash(rule)
        assert copy.to_text() == text
        assert copy.describe() == rule.describe()
        assert copy.tz == rule.tz

    @pytest.mark.parametrize("rule", ONE_OF_EACH, ids=lambda rule: type(rule).__name__)
    def test_the_text_is_one_line_that_names_the_kind(self, rule):
        text = rule.to_text()

        assert "\n" not in text
        assert text.isascii()
        assert json.loads(text)["kind"] == type(rule).__name__.lower()

    def test_equal_rules_have_equal_texts(self):
        one = Interval(length=timedelta(hours=1), anchor=T0)
        other = Interval(length=timedelta(minutes=60), anchor=T0.astimezone())

        assert one == other
        assert one.to_text() == other.to_text()

    def test_unset_values_are_not_written(self):
        assert Bounded(rule=Once(at=T0), until=T0).to_text() == (
            '{"kind":"bounded","rule":{"at":"2026-01-01T00:00:00+00:00","kind":"once","tz":"UTC"},'
            '"until":"2026-01-01T00:00:00+00:00"}'
        )

    def test_rows_that_were_written_stay_readable(self):
        # Texts that are out there. They must never need another spelling.
        assert from_text('{"expr":"0 9 * * *","kind":"cron","tz":"UTC"}') == Cron.parse("0 9 * * *")
        assert from_text(
            '{"anchor":"2026-01-01T00:00:00+00:00","kind":"interval","seconds":900,"tz":"UTC"}'
        ) == Interval(length=timedelta(minutes=15), anchor=T0)
        assert from_text('{"hour":"9","kind":"pattern","second":"0","tz":"UTC"}') == Pattern.of(
            hour=9
        )
        assert from_text(
            '{"anchor":"2026-01-01T00:00:00+00:00","interval":2,"kind":"recurrence",'
            '"missing":"skip","tz":"UTC","unit":"month"}'
        ) == Recurrence(unit=Unit.MONTH, interval=2, anchor=T0, missing=Missing.SKIP)
        assert from_text(
            '{"between":["09:00:00-17:00:00"],"dates":["2026-12-25"],"kind":"windowed",'
            '"rule":{"at":"2026-01-01T00:00:00+00:00","kind":"once","tz":"UTC"}}'
        ) == Windowed(
            rule=Once(at=T0),
            between=(Window(time(9), time(17)),),
            dates=frozenset({date(2026, 12, 25)}),
        )


# ---------------------------------------------------------------- anything else


def text_of(rule, /, **facts):
    """A rule's text with some facts changed, or left out when they are ...."""
    changed = {**json.loads(rule.to_text()), **facts}
    return json.dumps({name: fact for name, fact in changed.items() if fact is not ...})


CRON, PATTERN, INTERVAL, ONCE, RECURRENCE, BOUNDED, WINDOWED = ONE_OF_EACH
NOT_RULES = {
    "nothing": "",
    "no JSON": "0 9 * * *",
    "half a rule": CRON.to_text()[:-1],
    "a number": "5",
    "null": "null",
    "text": '"hourly"',
    "a list": "[]",
    "a list of rules": f"[{CRON.to_text()}]",
    "no kind": "{}",
    "an unknown kind": '{"kind":"lunar"}',
    "a kind that is no text": '{"kind":["cron"]}',
    "a kind that is null": '{"kind":null}',
    "more digits than a number has": f'{{"kind":"interval","seconds":{"9" * 5000}}}',
    "cron without an expression": text_of(CRON, expr=...),
    "cron with a bad expression": text_of(CRON, expr="61 * * * *"),
    "cron with a number": text_of(CRON, expr=5),
    "cron without a zone": text_of(CRON, tz=...),
    "cron with an unknown zone": text_of(CRON, tz="Mars"),
    "cron with a zone that is no text": text_of(CRON, tz=["UTC"]),
    "cron with a key that is no text": text_of(CRON, key=["report"]),
    "cron without the key it needs": text_of(CRON, key=...),
    "pattern with a number": text_of(PATTERN, hour=9),
    "pattern with a list": text_of(PATTERN, hour=["9"]),
    "pattern with nothing": text_of(PATTERN, hour=""),
    "pattern with a bad field": text_of(PATTERN, hour="25"),
    "pattern over no cron": text_of(PATTERN, cron="x"),
    "pattern over a number": text_of(PATTERN, cron=5),
    "pattern with a key that is no text": text_of(PATTERN, key=5),
    "interval without a length": text_of(INTERVAL, seconds=...),
    "interval of no seconds": text_of(INTERVAL, seconds=0),
    "interval of half a second": text_of(INTERVAL, seconds=0.5),
    "interval of too many seconds": text_of(INTERVAL, seconds=10**20),
    "interval without end": text_of(INTERVAL, seconds=float("inf")),
    "interval of no number": text_of(INTERVAL, seconds=float("nan")),
    "interval of text": text_of(INTERVAL, seconds="5"),
    "interval of null": text_of(INTERVAL, seconds=None),
    "interval without an anchor": text_of(INTERVAL, anchor=...),
    "interval with a naive anchor": text_of(INTERVAL, anchor="2026-01-01T00:00:00"),
    "interval from the year 1": text_of(INTERVAL, anchor="0001-01-01T00:00:00+14:00"),
    "interval from a number": text_of(INTERVAL, anchor=0),
    "interval from no instant": text_of(INTERVAL, anchor="tomorrow"),
    "once without an instant": text_of(ONCE, at=...),
    "once at a naive instant": text_of(ONCE, at="2026-01-01T00:00:00"),
    "recurrence of no unit": text_of(RECURRENCE, unit="decade"),
    "recurrence without a unit": text_of(RECURRENCE, unit=...),
    "recurrence every half week": text_of(RECURRENCE, interval=0.5),
    "recurrence every 1.5 weeks": text_of(RECURRENCE, interval=1.5),
    "recurrence every true": text_of(RECURRENCE, interval=True),
    "recurrence of text": text_of(RECURRENCE, interval="2"),
    "recurrence without an interval": text_of(RECURRENCE, interval=...),
    "recurrence on no weekday": text_of(RECURRENCE, weekdays=[8]),
    "recurrence on half a weekday": text_of(RECURRENCE, weekdays=[1.5]),
    "recurrence on a weekday's name": text_of(RECURRENCE, weekdays="mon"),
    "recurrence on null": text_of(RECURRENCE, weekdays=None),
    "recurrence with missing days": text_of(RECURRENCE, missing="other"),
    "recurrence without missing days": text_of(RECURRENCE, missing=...),
    "bounded without a rule": text_of(BOUNDED, rule=...),
    "bounded with text": text_of(BOUNDED, rule="0 9 * * *"),
    "bounded by a naive instant": text_of(BOUNDED, until="2026-01-01"),
    "bounded by a number": text_of(BOUNDED, until=5),
    "bounded to 0 firings": text_of(BOUNDED, max_firings=0),
    "bounded to half a firing": text_of(BOUNDED, max_firings=2.5),
    "bounded to text": text_of(BOUNDED, max_firings="3"),
    "bounded without a beginning": text_of(BOUNDED, starting=...),
    "windowed without a rule": text_of(WINDOWED, rule=...),
    "windowed by text": text_of(WINDOWED, between="09:00:00-17:00:00"),
    "windowed by one end": text_of(WINDOWED, between=["09:00:00"]),
    "windowed by three ends": text_of(WINDOWED, between=["09:00-10:00-11:00"]),
    "windowed by numbers": text_of(WINDOWED, unless=[5]),
    "windowed by no times": text_of(WINDOWED, unless=["a-b"]),
    "windowed by no dates": text_of(WINDOWED, dates=["2026-02-30"]),
    "windowed by a number of dates": text_of(WINDOWED, dates=5),
    "windowed by dates that are numbers": text_of(WINDOWED, dates=[5]),
    "windowed by null": text_of(WINDOWED, dates=None),
}


class TestNotARule:
    """Whatever else a row holds is an InvalidSchedule, never another exception."""

    @pytest.mark.parametrize("text", NOT_RULES.values(), ids=NOT_RULES.keys())
    def test_it_is_an_error(self, text):
        with pytest.raises(InvalidSchedule):
            from_text(text)

    def test_the_error_shows_the_text_and_what_to_do(self):
        with pytest.raises(InvalidSchedule) as caught:
            from_text('{"kind":"lunar"}')

        assert (
            caught.value.what == """'{"kind":"lunar"}' is not a rule: there is no kind 'lunar'."""
        )
        assert "newer version" in caught.value.why
        assert "Upgrade" in caught.value.fix

    def test_a_long_text_is_not_repeated_in_full(self):
        with pytest.raises(InvalidSchedule) as caught:
            from_text("x" * 10_000)

        assert len(caught.value.what) < 200

    def test_a_very_long_text_is_not_parsed(self):
        with pytest.raises(InvalidSchedule, match="at most 262,144 characters, got 262,145"):
            from_text(" " * (TEXT_LENGTH_MAX + 1))

    def test_eight_rules_around_a_rule_are_enough(self):
        text = ONCE.to_text()
        for _ in range(8):
            text = f'{{"kind":"bounded","rule":{text}}}'

        assert from_text(text).next_after(T0 - timedelta(days=1)) == T0
        with pytest.raises(InvalidSchedule, match="rules inside rules go too deep"):
            from_text(f'{{"kind":"bounded","rule":{text}}}')

    @pytest.mark.parametrize("opening", ["[", '{"kind":"bounded","rule":', '{"a":'])
    def test_a_tower_of_brackets_does_no_harm(self, opening):
        with pytest.raises(InvalidSchedule):
            from_text(opening * (200_000 // len(opening)))

    @quickly
    @given(st.data())
    def test_a_changed_text_is_a_rule_or_an_error(self, data):
        facts = json.loads(data.draw(st.sampled_from(ONE_OF_EACH)).to_text())
        name = data.draw(st.sampled_from(sorted(facts)))
        facts[name] = data.draw(any_json)

        try:
            rule = from_text(json.dumps(facts))
        except InvalidSchedule:
            return
        # What is accepted works.
        hash(rule)
        rule.next_after(T0)
        rule.prev_before(T0)
        assert from_text(rule.to_text()) == rule

    @quickly
    @given(st.text())
    def test_any_text_is_a_rule_or_an_error(self, text):
        with pytest.raises(InvalidSchedule):
            from_text(text)


any_json = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-1, 8),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(
            ["*", "9", "week", "skip", "UTC", "2026-01-01", "2026-01-01T00:00Z", "9-17"]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)
