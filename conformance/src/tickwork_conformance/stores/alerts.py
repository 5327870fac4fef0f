"""The history of alerts: one row for each incident, however many processes find it."""

from collections.abc import Sequence
from datetime import timedelta

from tickwork._domain.alert_history import AlertChanges, AlertCursor, AlertRow
from tickwork._kernel.ids import new_id
from tickwork_conformance.builders import DAY, HOUR, NOON


def an_alert(name: str = "failing//report", hours: int = 0) -> AlertRow:
    began_at = NOON + timedelta(hours=hours)
    text = "report failed 3 times in a row: Ünïcode \U0001f642"
    return AlertRow(new_id(began_at), name, "failing", "bad", text, began_at)


def changes(
    begun: Sequence[AlertRow] = (), reopened: Sequence[str] = (), ended: Sequence[str] = ()
) -> AlertChanges:
    return AlertChanges(begun=begun, reopened=reopened, ended=ended)


class TestAlertHistory:
    def test_an_alert_is_open_until_it_ends(self, store):
        alert = an_alert()
        store.change_alerts(changes([alert]), now=NOON)
        assert store.list_open_alerts() == [alert]
        assert store.list_ended_alerts() == []

        store.change_alerts(changes(ended=[alert.id]), now=NOON + HOUR)

        assert store.list_open_alerts() == []
        assert store.list_ended_alerts() == [alert._replace(ended_at=NOON + HOUR)]

    def test_a_name_has_one_open_row(self, store):
        first, second = an_alert(), an_alert(hours=1)
        store.change_alerts(changes([first]), now=NOON)
        store.change_alerts(changes([second, other := an_alert("other")]), now=NOON)

        assert sorted(store.list_open_alerts()) == sorted([first, other])

    def test_names_are_case_sensitive(self, store):
        alerts = [an_alert(name) for name in ("failing//a", "failing//A", "failing//a ")]
        store.change_alerts(changes(alerts), now=NOON)

        assert sorted(store.list_open_alerts()) == sorted(alerts)

    def test_the_next_incident_of_a_name_is_another_row(self, store):
        first, second = an_alert(), an_alert(hours=2)
        store.change_alerts(changes([first]), now=NOON)
        store.change_alerts(changes(ended=[first.id]), now=NOON + HOUR)
        store.change_alerts(changes([second]), now=NOON + 2 * HOUR)

        assert store.list_open_alerts() == [second]
        assert [row.id for row in store.list_ended_alerts()] == [first.id]

    def test_the_first_end_counts(self, store):
        alert = an_alert()
        store.change_alerts(changes([alert]), now=NOON)
        for hours in (1, 2):
            store.change_alerts(changes(ended=[alert.id]), now=NOON + hours * HOUR)

        assert store.list_ended_alerts() == [alert._replace(ended_at=NOON + HOUR)]

    def test_an_alert_that_came_back_is_open_again(self, store):
        alert = an_alert()
        store.change_alerts(changes([alert]), now=NOON)
        store.change_alerts(changes(ended=[alert.id]), now=NOON + HOUR)
        store.change_alerts(changes(reopened=[alert.id]), now=NOON + HOUR)

        assert store.list_open_alerts() == [alert]
        assert store.list_ended_alerts() == []

    def test_ended_alerts_come_in_pages_the_last_end_first(self, store):
        alerts = [an_alert(f"failing//{number}", hours=-number) for number in range(5)]
        store.change_alerts(changes(alerts), now=NOON)
        # Three end at one time.
        store.change_alerts(changes(ended=[each.id for each in alerts[:3]]), now=NOON + HOUR)
        store.change_alerts(changes(ended=[each.id for each in alerts[3:]]), now=NOON + DAY)

        found: list[AlertRow] = []
        before = None
        while page := store.list_ended_alerts(before=before, limit=2):
            found += page
            before = AlertCursor(page[-1].ended_at, page[-1].id)

        expected = [*sorted(alerts[3:], reverse=True), *sorted(alerts[:3], reverse=True)]
        assert [row.name for row in found] == [row.name for row in expected]

    def test_ended_alerts_since_an_instant(self, store):
        early, late = an_alert("a"), an_alert("b")
        store.change_alerts(changes([early, late]), now=NOON)
        store.change_alerts(changes(ended=[early.id]), now=NOON + HOUR)
        store.change_alerts(changes(ended=[late.id]), now=NOON + DAY)

        assert [row.name for row in store.list_ended_alerts(since=NOON + DAY)] == ["b"]

    def test_old_alerts_are_pruned_in_batches_and_open_ones_stay(self, store):
        alerts = [an_alert(f"failing//{number}") for number in range(5)]
        store.change_alerts(changes(alerts), now=NOON)
        for hours, alert in enumerate(alerts[:4]):
            store.change_alerts(changes(ended=[alert.id]), now=NOON + hours * HOUR)

        gone = [store.prune_alerts(before=NOON + 3 * HOUR, limit=2) for _ in range(3)]

        assert gone == [2, 1, 0]
        assert [row.name for row in store.list_ended_alerts()] == ["failing//3"]
        assert [row.name for row in store.list_open_alerts()] == ["failing//4"]
