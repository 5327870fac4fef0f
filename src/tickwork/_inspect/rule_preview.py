"""A rule in plain English, its next instants, and what clock changes do to it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from tickwork._calendars.calendars import Calendars
from tickwork._config.rule_text import parse_rule_text
from tickwork._domain.schedules.changes import effects
from tickwork._domain.schedules.contract import walk
from tickwork._domain.schedules.pattern import SymbolRule
from tickwork._domain.schedules.zones import Zone
from tickwork._kernel.step_budget import step_budget

NOTES_DAYS: Final = 400
"""How far ahead a preview searches for clock changes: each zone has one within a year."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePreview:
    """A rule in plain English, its next instants, and the effects of clock changes."""

    rule: str  # as it was given
    description: str  # in plain English
    zone: str
    instants: list[datetime]
    notes: list[str]  # the effects of clock changes
    stored: dict[str, Any]  # as the database stores it; requests take it as a rule, too


@step_budget()
def preview_rule(
    rule: str,
    *,
    zone: str,
    count: int,
    start: datetime,
    symbols: Mapping[str, SymbolRule],
    calendars: Calendars,
) -> RulePreview:
    """Preview a rule: cron, a symbol, a pattern, or a chain of methods.

    Raises:
        InvalidSchedule: The rule is not valid, or takes too many steps to compute.
        InvalidOption: There is no such time zone.
    """
    timing = parse_rule_text(rule, symbols=symbols, calendars=calendars)
    schedule = timing.rule(tz=Zone.named(zone).name, anchor=start, key="preview")
    instants = list(islice(walk(schedule, start), count))
    horizon = max([start + timedelta(days=NOTES_DAYS), *instants[-1:]])
    return RulePreview(
        rule=rule,
        description=schedule.describe(),
        zone=schedule.tz,
        instants=instants,
        notes=[effect.text for effect in effects(schedule, after=start, until=horizon)],
        stored=json.loads(schedule.to_text()),
    )
