from dataclasses import replace
from datetime import timedelta

import pytest

from tickwork._domain.identity import ScheduleId
from tickwork._domain.job import Misfire, Overlap, ScheduleOrigin, ScheduleRow
from tickwork._domain.shared_names import DefinitionKind, DefinitionRow
from tickwork._stores.contract import NewSchedule
from tickwork_conformance.builders import (
    DAY,
    HOUR,
    MINUTE,
    NOON,
    a_fired_run,
    a_schedule,
    add,
    added,
    an_id,
    the_run,
    tick,
)

UNKNOWN = ScheduleId("019cb0d2-0000-7000-8000-ffffffffffff")


class TestSchedulesAdding:
    """A schedule exists once for each tenant and name."""

    def test_every_field_is_stored(self, store, clock):
        spec = a_schedule(
            "Grüße 🦀",
            job="resize",
            rule='{"cron": "0 9 * * 1-5"}',
            zone="Europe/Berlin",
            tenant="acme",
            args='{"width": 80}',
            queue="images",
            priority=-7,
            expires=timedelta(hours=2),
            overlap=Overlap.QUEUE_ONE,
            misfire=Misfire.ALL,
            grace=timedelta(seconds=90, microseconds=1),
            jitter=timedelta(seconds=30),
            until=NOON + 30 * DAY,
            target="image-42",
            tags=("paid", "thumbnail"),
            origin=ScheduleOrigin.API,
        )

        row = store.add_schedule(
            schedule_id := ScheduleId(an_id()), spec, now=clock.now(), next_due_at=NOON + HOUR
        )

        assert (row.id, row.spec) == (schedule_id, spec)
        assert (row.created_at, row.next_due_at, row.last_fired_at) == (NOON, NOON + HOUR, None)
        assert (row.revision, row.is_paused) == (1, False)
        assert store.get_schedule("acme", "Grüße 🦀") == row

    def test_values_that_were_not_given_are_empty(self, store):
        row = added(store, next_due_at=None)

        assert row.spec == a_schedule()
        assert row.next_due_at is None
        assert store.get_schedule("", "digest") == row

    def test_a_second_schedule_with_the_name_changes_nothing(self, store, clock):
        first = added(store)

        second = store.add_schedule(
            ScheduleId(an_id()),
            a_schedule(rule="another rule"),
            now=clock.now() + DAY,
            next_due_at=NOON + DAY,
        )

        assert second == first
        assert store.list_schedules() == [first]

    @pytest.mark.parametrize(
        "other", [{"tenant": "acme"}, {"name": "Digest"}, {"name": "digést"}], ids=str
    )
    def test_names_are_case_sensitive_and_separate_for_each_tenant(self, store, other):
        first = added(store)

        second = added(store, **other)

        assert second.id != first.id
        assert len(store.list_schedules()) == 2

    def test_an_unknown_name_is_not_found(self, store):
        added(store)

        assert store.get_schedule("", "report") is None
        assert store.get_schedule("acme", "digest") is None


class TestSchedulesAddingMany:
    """The schedules of a program are added as one batch."""

    def test_the_results_are_in_the_given_order(self, store, clock):
        there = added(store, "b")
        new = [NewSchedule(ScheduleId(an_id()), a_schedule(name), NOON + HOUR) for name in "cba"]

        rows = store.add_schedules(new, now=clock.now() + MINUTE)

        assert [row.spec.name for row in rows] == ["c", "b", "a"]
        assert [row.id for row in rows] == [new[0].id, there.id, new[2].id]
        assert rows[1] == there
        assert (rows[0].next_due_at, rows[0].created_at) == (NOON + HOUR, NOON + MINUTE)
        assert store.list_schedules() == sorted(rows, key=lambda row: row.spec.name)

    def test_of_equal_names_the_first_is_added(self, store, clock):
        rules = [a_schedule(rule="first"), a_schedule(rule="second")]
        new = [NewSchedule(ScheduleId(an_id()), spec, NOON) for spec in rules]

        first, second = store.add_schedules(new, now=clock.now())

        assert first == second
        assert (first.id, first.spec.rule) == (new[0].id, "first")

    def test_tenants_have_separate_names(self, store, clock):
        specs = [a_schedule(), a_schedule(tenant="acme")]
        new = [NewSchedule(ScheduleId(an_id()), spec, None) for spec in specs]

        rows = store.add_schedules(new, now=clock.now())

        assert [row.spec for row in rows] == specs

    def test_an_empty_batch(self, store, clock):
        assert store.add_schedules([], now=clock.now()) == []


class TestSchedulesGettingMany:
    """Several schedules are read by tenant and name at once."""

    def test_unknown_schedules_are_left_out(self, store):
        rows = [added(store), added(store, tenant="acme"), added(store, "report")]
        added(store, "report", tenant="acme")
        names = [("", "report"), ("acme", "digest"), ("", "digest"), ("", "digest"), ("", "none")]

        found = store.get_schedules(names)

        assert sorted(found, key=lambda row: row.id) == rows

    def test_an_empty_batch(self, store):
        added(store)

        assert store.get_schedules([]) == []


class TestSchedulesScheduledJobs:
    """A worker lists the jobs that have schedules when it starts."""

    def test_each_job_is_listed_once(self, store):
        for name, job in [("a", "sweep"), ("b", "resize"), ("c", "sweep"), ("d", "Resize")]:
            added(store, name, job=job)

        assert store.scheduled_jobs() == ["Resize", "resize", "sweep"]

    def test_jobs_of_all_tenants_and_of_paused_schedules_are_listed(self, store, clock):
        added(store, next_due_at=None, tenant="acme")
        paused = added(store, "paused", job="sweep")
        store.pause_schedule(paused.id, now=clock.now())

        assert store.scheduled_jobs() == ["send_email", "sweep"]

    def test_a_store_without_schedules_lists_no_jobs(self, store):
        row = added(store)
        store.remove_schedule(row.id)

        assert store.scheduled_jobs() == []


class TestSchedulesChanging:
    """A change needs the last revision of the schedule."""

    def test_a_change_keeps_the_identity(self, store, clock):
        row = added(store)
        clock.advance(days=1)
        spec = a_schedule(rule="another rule", queue="emails", overlap=Overlap.ALLOW)

        changed = store.change_schedule(row, spec, now=clock.now(), next_due_at=NOON + 2 * DAY)

        assert changed is not None
        assert (changed.id, changed.created_at) == (row.id, NOON)
        assert (changed.spec, changed.next_due_at) == (spec, NOON + 2 * DAY)
        assert changed.revision == row.revision + 1
        assert store.get_schedule("", "digest") == changed

    def test_a_change_keeps_the_last_firing(self, store, clock):
        row = added(store)
        tick(store, clock)

        changed = store.change_schedule(
            row, a_schedule(rule="another rule"), now=clock.now(), next_due_at=NOON + DAY
        )

        assert changed is not None
        assert changed.last_fired_at == NOON

    def test_a_change_keeps_the_pause(self, store, clock):
        row = added(store)
        store.pause_schedule(row.id, now=clock.now(), note="too loud")

        changed = store.change_schedule(
            row, a_schedule(rule="another rule"), now=clock.now(), next_due_at=NOON
        )

        assert changed is not None
        assert (changed.paused_at, changed.paused_note) == (NOON, "too loud")

    def test_a_change_of_an_older_revision_is_rejected(self, store, clock):
        row = added(store)
        newer = store.change_schedule(
            row, a_schedule(rule="second"), now=clock.now(), next_due_at=NOON
        )

        answer = store.change_schedule(
            row, a_schedule(rule="third"), now=clock.now(), next_due_at=NOON + DAY
        )

        assert answer is None
        assert store.get_schedule("", "digest") == newer

    def test_a_change_does_not_restore_a_removed_schedule(self, store, clock):
        row = added(store)
        store.remove_schedule(row.id)

        answer = store.change_schedule(row, row.spec, now=clock.now(), next_due_at=NOON)

        assert answer is None
        assert store.list_schedules() == []


class TestSchedulesRemoving:
    """A removed schedule does not fire; its runs stay."""

    def test_a_removed_schedule_is_not_found(self, store, clock):
        row = added(store)

        assert store.remove_schedule(row.id)
        assert store.get_schedule("", "digest") is None
        assert tick(store, clock).runs == []

    def test_runs_of_a_removed_schedule_stay(self, store):
        row = added(store)
        add(store, run := a_fired_run("digest"))

        store.remove_schedule(row.id)

        assert the_run(store, run).schedule == "digest"

    def test_the_name_of_a_removed_schedule_is_free(self, store):
        row = added(store)
        store.remove_schedule(row.id)

        again = added(store)

        assert again.id != row.id

    def test_removing_an_unknown_schedule(self, store):
        assert not store.remove_schedule(UNKNOWN)


class TestSchedulesPausing:
    """A schedule can be paused and resumed."""

    def test_a_pause_has_a_time_and_a_note(self, store, clock):
        row = added(store, next_due_at=NOON + HOUR)

        assert store.pause_schedule(row.id, now=clock.now(), note="too loud")

        paused = store.get_schedule("", "digest")
        assert paused == replace(row, paused_at=NOON, paused_note="too loud")

    def test_a_pause_with_an_end_has_its_next_instant(self, store, clock):
        row = added(store)

        store.pause_schedule(
            row.id, now=clock.now(), until=NOON + HOUR, next_due_at=NOON + HOUR + MINUTE
        )

        paused = store.get_schedule("", "digest")
        assert (paused.paused_at, paused.paused_until) == (NOON, NOON + HOUR)
        assert paused.next_due_at == NOON + HOUR + MINUTE

    def test_it_resumes_at_the_given_instant(self, store, clock):
        row = added(store)
        store.pause_schedule(row.id, now=clock.now(), note="too loud", until=NOON + HOUR)

        assert store.resume_schedule(row.id, next_due_at=NOON + DAY)

        assert store.get_schedule("", "digest") == replace(row, next_due_at=NOON + DAY)

    def test_pause_and_resume_do_not_change_the_spec(self, store, clock):
        row = added(store)
        store.pause_schedule(row.id, now=clock.now())
        store.resume_schedule(row.id, next_due_at=NOON)

        changed = store.change_schedule(row, row.spec, now=clock.now(), next_due_at=NOON)

        assert changed is not None

    def test_there_is_no_such_schedule(self, store, clock):
        assert not store.pause_schedule(UNKNOWN, now=clock.now())
        assert not store.resume_schedule(UNKNOWN, next_due_at=NOON)


class TestSchedulesStamping:
    """Live programs mark their definitions as seen, so that others can be retired."""

    def test_schedules_show_when_they_were_last_seen(self, store, clock):
        seen, unseen = added(store, "seen"), added(store, "unseen")
        clock.advance(hours=1)

        store.stamp_seen(jobs=[], schedules=[seen.id, UNKNOWN], now=clock.now())

        assert store.get_schedule("", "seen") == replace(seen, seen_at=NOON + HOUR)
        assert store.get_schedule("", "unseen") == unseen

    def test_jobs_show_when_they_were_last_seen(self, store, clock):
        store.stamp_seen(jobs=["sweep", "resize"], schedules=[], now=clock.now())
        clock.advance(hours=1)
        store.stamp_seen(jobs=["sweep"], schedules=[], now=clock.now())

        assert [(job.tenant, job.name, job.seen_at) for job in store.list_jobs()] == [
            ("", "resize", NOON),
            ("", "sweep", NOON + HOUR),
        ]

    def test_marking_a_job_as_seen_keeps_its_history(self, store, clock, worker):
        add(store, a_fired_run())
        worker.run()

        store.stamp_seen(jobs=["send_email"], schedules=[], now=clock.now())

        [job] = store.list_jobs()
        assert (job.last_success_at, job.seen_at) == (NOON, NOON)

    def test_applications_report_what_they_define(self, store, clock):
        def report(application: str, handler: str) -> None:
            row = DefinitionRow(DefinitionKind.JOB, "send", application, handler, clock.now())
            store.stamp_seen(jobs=[], schedules=[], now=clock.now(), definitions=[row])

        report("shop", "shop.jobs:send")
        report("crm", "crm.jobs:send")
        clock.advance(hours=1)
        report("shop", "shop.mail:send")

        assert store.list_definitions(since=NOON) == [
            DefinitionRow(DefinitionKind.JOB, "send", "crm", "crm.jobs:send", NOON),
            DefinitionRow(DefinitionKind.JOB, "send", "shop", "shop.mail:send", NOON + HOUR),
        ]
        assert [row.application for row in store.list_definitions(since=NOON + HOUR)] == ["shop"]

    def test_a_job_and_a_schedule_of_one_name_are_two_definitions(self, store, clock):
        rows = [
            DefinitionRow(kind, "send", "shop", "", NOON)
            for kind in (DefinitionKind.SCHEDULE, DefinitionKind.JOB)
        ]

        store.stamp_seen(jobs=[], schedules=[], now=clock.now(), definitions=rows)

        assert store.list_definitions(since=NOON) == rows[::-1]

    def test_marking_nothing_as_seen(self, store, clock):
        store.stamp_seen(jobs=[], schedules=[], now=clock.now())

        assert store.list_jobs() == []


class TestSchedulesListing:
    """Schedules are listed by tenant and name, in pages."""

    @pytest.fixture
    def rows(self, store) -> list[ScheduleRow]:
        names = [("zoo", "a"), ("", "b"), ("acme", "c"), ("", "a"), ("acme", "a")]
        added_rows = [added(store, name, tenant=tenant) for tenant, name in names]
        return sorted(added_rows, key=lambda row: (row.spec.tenant, row.spec.name))

    def test_all_schedules_are_listed(self, store, rows):
        assert store.list_schedules() == rows

    def test_schedules_of_one_tenant(self, store, rows):
        assert store.list_schedules(tenant="acme") == rows[2:4]
        assert store.list_schedules(tenant="") == rows[:2]
        assert store.list_schedules(tenant="unknown") == []

    def test_schedules_come_in_pages(self, store, rows):
        first = store.list_schedules(limit=2)
        second = store.list_schedules(after=("", "b"), limit=2)
        third = store.list_schedules(after=("acme", "c"), limit=2)

        assert [first, second, third] == [rows[:2], rows[2:4], rows[4:]]

    def test_schedules_of_one_tenant_come_in_pages(self, store, rows):
        assert store.list_schedules(tenant="acme", after=("acme", "a")) == rows[3:4]

    def test_a_page_after_an_unknown_name(self, store, rows):
        assert store.list_schedules(after=("acme", "b")) == rows[3:]


class TestSchedulesNextFiring:
    """The next firing is the time until which a ticker can sleep."""

    def test_without_schedules_there_is_no_next_firing(self, store):
        added(store, next_due_at=None)

        assert store.next_firing_at() is None

    def test_the_earliest_firing(self, store):
        added(store, "late", next_due_at=NOON + HOUR)
        added(store, "soon", next_due_at=NOON + MINUTE)

        assert store.next_firing_at() == NOON + MINUTE

    def test_the_earliest_firing_of_some_jobs(self, store):
        added(store, "late", next_due_at=NOON + HOUR, job="sweep")
        added(store, "soon", next_due_at=NOON + MINUTE)

        assert store.next_firing_at(jobs=["sweep", "resize"]) == NOON + HOUR
        assert store.next_firing_at(jobs=[]) is None

    def test_a_paused_schedule_does_not_count(self, store, clock):
        row = added(store)
        store.pause_schedule(row.id, now=clock.now())

        assert store.next_firing_at() is None

    def test_a_schedule_whose_pause_will_end_counts(self, store, clock):
        row = added(store)
        store.pause_schedule(
            row.id, now=clock.now(), until=NOON + HOUR, next_due_at=NOON + HOUR + MINUTE
        )

        assert store.next_firing_at() == NOON + HOUR + MINUTE

    def test_a_retired_schedule_does_not_count(self, store, clock):
        added(store, "retired", next_due_at=NOON)
        added(store, "api", next_due_at=NOON + HOUR, origin=ScheduleOrigin.API)
        later = added(store, "seen", next_due_at=NOON + MINUTE)
        store.stamp_seen(jobs=[], schedules=[later.id], now=clock.now() + DAY)

        assert store.next_firing_at() == NOON
        assert store.next_firing_at(seen_after=NOON) == NOON
        assert store.next_firing_at(seen_after=NOON + DAY) == NOON + MINUTE
        assert store.next_firing_at(seen_after=NOON + 2 * DAY) == NOON + HOUR
