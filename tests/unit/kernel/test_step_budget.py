"""The work for a rule is counted, and bounded."""

import threading
from datetime import UTC, datetime

import pytest

from hostile_rules import COSTLY_TEXTS
from tickwork import schedules
from tickwork._domain.schedules.zones import Zone
from tickwork._kernel import step_budget as step_budget_module
from tickwork._kernel.step_budget import STEPS_MAX, count_steps, step_budget
from tickwork.errors import InvalidSchedule, RuleTooCostly

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


class TestBudget:
    """Steps are counted from the outermost call on."""

    def test_a_step_too_many_is_refused(self):
        with step_budget():
            count_steps(STEPS_MAX)
            with pytest.raises(RuleTooCostly, match=f"more than {STEPS_MAX:,} steps"):
                count_steps()

    def test_calls_inside_share_it(self):
        with step_budget():
            with step_budget():
                count_steps(STEPS_MAX)
            with step_budget(), pytest.raises(RuleTooCostly):
                count_steps()

    def test_the_next_call_has_a_new_one(self):
        for _ in range(3):
            with step_budget():
                count_steps(STEPS_MAX)

    def test_an_error_ends_it(self):
        with pytest.raises(RuleTooCostly), step_budget():
            count_steps(STEPS_MAX + 1)
        count_steps(STEPS_MAX + 1)  # nothing is counted outside of a budget

    def test_each_thread_has_its_own(self):
        failed = []

        def spend() -> None:
            try:
                with step_budget():
                    count_steps(STEPS_MAX)
            except RuleTooCostly as error:
                failed.append(error)

        with step_budget():
            count_steps(STEPS_MAX)
            threads = [threading.Thread(target=spend) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        assert failed == []


class TestRules:
    """No method of a rule takes more steps than that, whatever the rule is."""

    @pytest.mark.parametrize("name", COSTLY_TEXTS)
    @pytest.mark.parametrize(
        "call",
        [
            lambda rule: rule.next_after(NEW_YEAR),
            lambda rule: rule.prev_before(NEW_YEAR),
            lambda rule: rule.count_between(datetime(2, 1, 2, tzinfo=UTC), NEW_YEAR),
        ],
        ids=["next", "prev", "count"],
    )
    def test_a_costly_rule_is_refused(self, name, call, monkeypatch):
        monkeypatch.setattr(step_budget_module, "STEPS_MAX", 10_000)
        with pytest.raises(RuleTooCostly):
            call(schedules.from_text(COSTLY_TEXTS[name]))

    def test_as_many_firings_as_are_allowed_can_be_counted(self):
        plain = schedules.every_second().starting(NEW_YEAR).max_firings(100_000)
        windows = schedules.every_minute().between("9:00", "17:00").starting(NEW_YEAR)

        assert plain.prev_before(datetime(2027, 1, 1, tzinfo=UTC)) == datetime(
            2026, 1, 2, 3, 46, 39, tzinfo=UTC
        )
        assert windows.max_firings(100_000).prev_before(datetime(2027, 1, 1, tzinfo=UTC))

    def test_a_rule_has_at_most_a_hundred_windows(self):
        rule = schedules.hourly()
        for minute in range(101):
            rule = rule.unless_between(f"1:{minute % 60:02}", f"{2 + minute // 60}:00")

        with pytest.raises(InvalidSchedule, match="at most 100 windows of the day, got 101"):
            rule.next_after(NEW_YEAR)

    def test_a_zone_keeps_the_spans_of_a_few_years_only(self):
        zone = Zone("Europe/Berlin", Zone.named("Europe/Berlin").info)
        for year in range(1000, 3000, 2):
            moment = datetime(year, 1, 1, tzinfo=UTC)
            zone.span_at(int(moment.timestamp()))

        assert len(zone._blocks) <= 64
