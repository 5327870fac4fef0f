"""Whatever the text of a rule, calendar, URL or cron expression is: it ends soon, with our error.

No file is opened and no address is called, and the calls of functions are counted: a loop that
nothing bounds fails here, on a busy machine as well.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostile_rules import RULE_TEXTS
from opened_files import opened_files
from tickwork import schedules
from tickwork._calendars.calendars import Calendars
from tickwork._calendars.holiday_dates import days_of_events, read_events
from tickwork._config.config_rule import RULE_METHODS
from tickwork._config.rule_text import store_form
from tickwork._domain.schedules.pattern import FIELD_NAMES, PATTERN_FIELDS, SYMBOLS
from tickwork._domain.schedules.rules import TEXT_LENGTH_MAX
from tickwork._inspect.rule_preview import preview_rule
from tickwork._kernel import step_budget
from tickwork._stores import open_store
from tickwork.errors import InvalidSchedule, TickworkError

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

EFFORT = int(os.environ.get("TICKWORK_TEST_EFFORT", "1"))
EXAMPLES = settings(max_examples=3_000 * EFFORT)
STEPS = 3_000
CALLS_MAX = 1_000_000 + 100 * STEPS
"""Parsing and describing a long text, and the calls that are made for each step."""

NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)
CALENDARS = Calendars({"closed": frozenset({NOW.date()})})


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_budget, "STEPS_MAX", STEPS)


@contextmanager
def harmless(*, may_open: str = "") -> Iterator[None]:
    """Only errors of tickwork leave this block, nothing is opened, and its calls are bounded."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1
        assert calls < CALLS_MAX, "more function calls than any text may cause"

    before = sys.getprofile()
    with opened_files() as opened, suppress(TickworkError):
        sys.setprofile(count)
        try:
            yield
        finally:
            sys.setprofile(before)
    assert set(opened) <= {f"open {may_open}"}


# ---------------------------------------------------------------- texts

INTEGERS = st.integers(-3, 70) | st.sampled_from([400, 9_999, 10**6, 10**9, 10**18, 10**400])
PATHS = st.sampled_from(
    [
        "closed",
        "tokens",
        "/etc/passwd",
        "/dev/zero",
        "../x",
        "file:///etc/hosts",
        "http://127.0.0.1/",
    ]
)
ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia", "../../etc/passwd", "/etc/passwd"]
) | st.text(max_size=20)
INSTANTS = st.sampled_from(
    ["2026-01-01T00:00Z", "0002-01-01T00:00Z", "9998-12-31T23:59:59Z", "9999-12-31T23:59-12:00"]
) | st.datetimes().map(lambda moment: f"{moment.isoformat()}+00:00")
TIMES = st.sampled_from(["9:00", "24:00", "00:00", "23:59:59", "3"])
SCALARS = st.one_of(
    INTEGERS,
    PATHS,
    ZONES,
    INSTANTS,
    TIMES,
    st.floats(),
    st.none(),
    st.booleans(),
    st.text(max_size=9),
)
VALUES = st.recursive(
    SCALARS,
    lambda each: (
        st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=5), each, max_size=3)
    ),
    max_leaves=8,
)
ARGUMENT_NAMES = st.sampled_from(
    [
        *("interval", "starting", "until", "max_firings", "missing", "weekdays", "calendar"),
        *("country", "days", "hours", "minutes", "seconds", *PATTERN_FIELDS, *FIELD_NAMES),
    ]
)


@st.composite
def arguments(draw: st.DrawFn) -> str:
    match draw(st.integers(0, 3)):
        case 0:
            return ""
        case 1:
            return ", ".join(map(repr, draw(st.lists(VALUES, max_size=3))))
        case 2:
            given_ = draw(st.dictionaries(ARGUMENT_NAMES, VALUES, max_size=3))
            return ", ".join(f"{name}={value!r}" for name, value in given_.items())
        case _:
            return f"range({', '.join(map(str, draw(st.lists(INTEGERS, max_size=4))))})"


CALLS = st.builds("{}({})".format, st.sampled_from(sorted(RULE_METHODS)), arguments())
CHAINS = st.lists(CALLS, min_size=1, max_size=6).map(".".join)
PAIRS = st.lists(
    st.builds("{}={}".format, ARGUMENT_NAMES, VALUES | st.text("0123456789,-*/L", max_size=9)),
    max_size=5,
).map(" ".join)
CRON_FIELDS = st.text("0123456789*/-,#LWHhJANMO()?", max_size=8)
CRON = st.lists(CRON_FIELDS, min_size=4, max_size=7).map(" ".join)
SYNTAX = st.text("(){}[]'\".,=-+*:0a \\\n", max_size=300)


FIELDS = (
    st.sampled_from(["*", "*/7", "1-5", "0", "29", "1,2,3", "L", "99", "1970-9998/2"]) | SCALARS
)
WINDOW_TEXTS = (
    st.sampled_from(["09:00:00-17:00:00", "03:00:00-03:00:00", "23:00-01:00", "x"]) | SCALARS
)
BASES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"kind": st.just("cron"), "expr": CRON | VALUES, "tz": ZONES}),
    st.fixed_dictionaries(
        {"kind": st.just("pattern"), "tz": ZONES},
        optional=dict.fromkeys((*FIELD_NAMES, "cron", "key"), FIELDS),
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("interval"),
            "seconds": INTEGERS | VALUES,
            "anchor": INSTANTS | VALUES,
            "tz": ZONES,
        }
    ),
    st.fixed_dictionaries({"kind": st.just("once"), "at": INSTANTS | VALUES, "tz": ZONES}),
    st.fixed_dictionaries(
        {
            "kind": st.just("recurrence"),
            "unit": st.sampled_from(["day", "week", "month", "year", "eon"]),
            "interval": INTEGERS | VALUES,
            "anchor": INSTANTS,
            "missing": st.sampled_from(["clamp", "skip", "x"]),
            "tz": ZONES,
        },
        optional={"weekdays": st.lists(INTEGERS, max_size=9) | VALUES},
    ),
)
STORED = st.recursive(
    BASES,
    lambda rule: st.one_of(
        st.fixed_dictionaries(
            {"kind": st.just("bounded"), "rule": rule},
            optional={
                "starting": INSTANTS | VALUES,
                "until": INSTANTS | VALUES,
                "max_firings": INTEGERS | VALUES,
            },
        ),
        st.fixed_dictionaries(
            {"kind": st.just("windowed"), "rule": rule},
            optional={
                "between": st.lists(WINDOW_TEXTS, max_size=4) | VALUES,
                "unless": st.lists(WINDOW_TEXTS, max_size=4) | VALUES,
                "dates": st.lists(st.dates().map(str), max_size=5) | VALUES,
                "calendar": PATHS,
            },
        ),
    ),
    max_leaves=4,
).map(json.dumps)
RULES = st.one_of(
    CHAINS, PAIRS, CRON, STORED, SYNTAX, st.text(max_size=300), st.sampled_from(RULE_TEXTS)
)


# ---------------------------------------------------------------- promises


@EXAMPLES
@given(RULES, ZONES, st.integers(1, 100))
def test_a_preview_of_any_text(rule: str, zone: str, count: int) -> None:
    with harmless():
        found = preview_rule(
            rule, zone=zone, count=count, start=NOW, symbols=SYMBOLS, calendars=CALENDARS
        )
        assert len(found.instants) <= count
        assert len(store_form(found.stored)) <= TEXT_LENGTH_MAX


@EXAMPLES
@given(STORED, INSTANTS, INSTANTS)
def test_any_stored_rule(text: str, first: str, last: str) -> None:
    begin, end = (datetime.fromisoformat(moment) for moment in (first, last))
    for call in (
        lambda rule: rule.next_after(begin),
        lambda rule: rule.prev_before(end),
        lambda rule: rule.count_between(begin, end),
        lambda rule: rule.preview(50, after=begin),
        lambda rule: rule.describe(),
    ):
        with harmless():
            rule = schedules.from_text(text)
            assert schedules.from_text(rule.to_text()) == rule
            call(rule)


@EXAMPLES
@given(CRON | SYNTAX | st.text(max_size=2_000), ZONES)
def test_any_cron_text(expr: str, zone: str) -> None:
    with harmless():
        rule = schedules.Cron.parse(expr, tz=zone, key="x")
        rule.preview(20, after=NOW)
        rule.prev_before(NOW)
        rule.describe()


EVENT_DATES = st.dates().map(lambda day: f"VALUE=DATE:{day:%Y%m%d}") | st.text(max_size=12)
RULE_PARTS = st.lists(
    st.builds(
        "{}={}".format,
        st.sampled_from(
            [
                "FREQ",
                "INTERVAL",
                "COUNT",
                "UNTIL",
                "WKST",
                "BYMONTH",
                "BYMONTHDAY",
                "BYDAY",
                "BYYEARDAY",
                "BYWEEKNO",
                "BYSETPOS",
                "BYHOUR",
                "BYSECOND",
                "X-ANY",
            ]
        ),
        st.sampled_from(["DAILY", "SECONDLY", "YEARLY", "MONTHLY", "WEEKLY", "MO", "-1SU", "2,30"])
        | INTEGERS.map(str)
        | st.text(max_size=6),
    ),
    min_size=1,
    max_size=5,
).map(";".join)
EVENT_LINES = st.one_of(
    EVENT_DATES.map("DTSTART;{}".format),
    EVENT_DATES.map("DTEND;{}".format),
    st.sampled_from(["DURATION:P1D", "DURATION:P99999999D", "DURATION:-P1D", "STATUS:CANCELLED"]),
    RULE_PARTS.map("RRULE:FREQ=DAILY;{}".format),
    RULE_PARTS.map("RRULE:{}".format),
    EVENT_DATES.map("EXDATE;{}".format),
    EVENT_DATES.map("RDATE;{}".format),
    EVENT_DATES.map("RECURRENCE-ID;{}".format),
    st.text(max_size=30),
)
EVENTS = st.lists(EVENT_LINES, max_size=6).map(
    lambda lines: "\r\n".join(
        [
            "BEGIN:VCALENDAR",
            "BEGIN:VEVENT",
            "DTSTART;VALUE=DATE:19000101",
            *lines,
            "END:VEVENT",
            "END:VCALENDAR",
            "",
        ]
    )
)


@EXAMPLES
@given(EVENTS | st.text(max_size=300))
def test_any_calendar(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any.ics"
    file.write_text(text, encoding="utf-8", errors="replace")
    with opened_files() as opened, suppress(InvalidSchedule):
        events = read_events(file)
        found = days_of_events(events, first=2026, last=2028)
        assert all(2026 <= day.year <= 2028 for day in found)
    assert set(opened) <= {f"open {file}"}


URL_PARTS = st.text("abc:/@?#[]%&=. \\1", max_size=15) | st.text(max_size=15)
URLS = st.builds(
    "{}{}{}".format,
    st.sampled_from(
        [
            "",
            "sqlite:",
            "sqlite:///",
            "postgresql://",
            "mysql://",
            "mariadb+x://",
            "memory://",
            "x:",
        ]
    ),
    URL_PARTS,
    st.sampled_from(["", "?synchronous=", "?busy_timeout=", "?prefix=", "?x=1", "#"]) | URL_PARTS,
)


@EXAMPLES
@given(URLS | st.text(max_size=100))
def test_any_url_of_a_store(url: str) -> None:
    with harmless(may_open="/proc/mounts"):  # whether the file of SQLite is on a network drive
        open_store(url).close()
