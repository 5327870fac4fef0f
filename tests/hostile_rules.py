"""Rules that would take hours or gigabytes to compute, if nothing bounded them."""

import json
from typing import Any

BASE: dict[str, Any] = {"kind": "cron", "expr": "* * * * * *", "tz": "UTC"}


def inside(kind: str, rule: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {"kind": kind, "rule": rule, **facts}


def nested(depth: int) -> dict[str, Any]:
    """Windows inside of windows, which never match together."""
    rule: dict[str, Any] = {"kind": "pattern", "month": "2", "day": "29", "hour": "*", "tz": "UTC"}
    for number in range(depth):
        edge = ("01", "02", "03", "05", "07", "11", "13", "17")[number]
        rule = inside("windowed", rule, unless=[f"{edge}:00:00-{edge}:59:59"])
    return inside("windowed", rule, between=["01:00:00-01:59:59"])


def counted(rule: dict[str, Any], count: int = 100_000) -> dict[str, Any]:
    return inside("bounded", rule, starting="1970-01-01T00:00:00+00:00", max_firings=count)


DAILY = {
    "kind": "recurrence",
    "unit": "day",
    "interval": 1,
    "anchor": "0002-01-01T00:00:00+00:00",
    "missing": "clamp",
    "tz": "Europe/Berlin",
}
COSTLY = {
    "very many firings between windows": counted(
        inside("windowed", {**BASE, "expr": "0 * * * *"}, between=["03:00:00-03:00:00"])
    ),
    "counts inside of counts": counted(counted(inside("windowed", DAILY, unless=["01:00-02:00"]))),
    "a day of many years, in a zone": counted({**DAILY, "unit": "year"}, 9_000),
}
"""Stored rules, as JSON, that take more steps than a rule may."""

COSTLY_TEXTS = {name: json.dumps(rule) for name, rule in COSTLY.items()}

RULE_TEXTS = (
    json.dumps(nested(7)),
    *COSTLY_TEXTS.values(),
    *(f"daily().except_on(calendar={path!r})" for path in ("tokens", "/etc/passwd", "/dev/zero")),
    "every_second().max_firings(100000)",
    "every_second().between('3:00', '3:00').starting('0002-01-01T00:00Z').max_firings(100000)",
    "daily(starting='0002-01-01T00:00Z').max_firings(100000).between('3:00', '3:00')",
    "monthly(starting='0002-01-31T00:00Z', interval=10000, missing='skip')",
    "yearly(starting='2024-02-29T00:00Z', interval=9999, missing='skip')",
    "daily(starting='9998-12-31T23:59:59Z').unless_between('0:00', '23:59:58')",
    "cron('0 0 30 2 *')",
    "pattern(mon=2, mday=29, wday=1, year='1971-9997/2')",
    "minutes(range(0, 100000000))",
    "minutes(range(0, 9999), range(0, 9999), range(1, 5, 0))",
    "every(days=1e300)",
    "every(days=999999999999999999999)",
    "every(seconds=1e-9)",
    "every(minutes=[1])",
    "daily_at(9).between(1, 2)",
    "twice_daily('a', 9999999999999)",
    "yearly_on(13, 32)",
    "timezone(5).daily()",
    "symbol([1]).hours({})",
    "between(None, None).daily()",
    "daily(interval=10**9)",
    "weekly(weekdays='x')",
    "weekly(weekdays=5.5)",
    "once('9999-12-31T23:59:59-12:00')",
    "once('0001-01-01T00:00:00+12:00')",
    "daily().starting('9999-12-31T23:59:59-23:59').until('0001-01-01T00:00+23:59')",
    "hours(" + "-" * 900 + "1)",
    "(" * 450 + ")" * 450,
    "a(" * 300,
    "daily()" + ".mondays()" * 99,
    "daily()" + ".between('1','2')" * 55,
    "hours(" + "[" * 90 + "]" * 90 + ")",
    "hours(" + "9" * 900 + ")",
    "minutes=" + "1," * 450 + "1 hours=1",
    "minutes=" + "9" * 900,
    "minutes=*/999999 hours=*",
    "{" + '"a":{' * 150,
    '{"kind":"interval","seconds":1e308,"anchor":"2026-01-01T00:00:00+00:00","tz":"UTC"}',
    '{"kind":"interval","seconds":NaN,"anchor":"2026-01-01T00:00:00+00:00","tz":"UTC"}',
    '{"kind":"once","at":"9999-12-31T23:59:59-12:00","tz":"UTC"}',
    '{"kind":"pattern","second":5,"tz":"UTC"}',
    '{"kind":"cron","expr":null,"tz":[]}',
    "1" * 1_000,
    "* " * 500,
    "lambda: 0()",
    "().__class__()",
    "open('/etc/passwd')()",
    "daily().__init__()",
    "daily().on(daily())",
)
