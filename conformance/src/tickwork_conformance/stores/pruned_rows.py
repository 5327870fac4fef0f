import pytest

from tickwork._domain.job import ScheduleOrigin
from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.outcome import Failed
from tickwork._domain.shared_names import DefinitionKind, DefinitionRow
from tickwork._stores.contract import AddedRun, LogLine, Pause, PauseKind, Pruned, Store
from tickwork_conformance.builders import (
    DAY,
    HOUR,
    MINUTE,
    NOON,
    a_fired_run,
    a_run,
    add,
    added,
    all_runs,
    ids,
    the_run,
)


class TestPrunedRowsPruningRuns:
    """Finished runs that are old enough are deleted, with their attempts and logs."""

    def test_runs_that_ended_before_are_deleted(self, store, clock, worker):
        add(store, old := a_run())
        worker.run()
        clock.advance(days=2)
        add(store, new := a_run())
        worker.run()

        pruned = store.prune(before=clock.now() - DAY, limit=10)

        assert pruned.runs == 1
        assert store.get_run(old.id) is None
        assert the_run(store, new).is_finished

    def test_a_run_that_ended_at_that_instant_stays(self, store, clock, worker):
        add(store, a_run())
        worker.run()

        assert store.prune(before=clock.now(), limit=10).runs == 0

    def test_unfinished_runs_stay_however_old(self, store, clock, worker):
        add(store, *(runs := [a_run(), a_run(), a_run(due_at=NOON + HOUR)]))
        worker.claim(1)
        clock.advance(days=365)

        assert store.prune(before=clock.now(), limit=10).runs == 0
        assert ids(all_runs(store)) == ids(runs)

    def test_attempts_and_logs_are_deleted_with_their_run(self, store, clock, worker):
        add(store, run := a_run())
        store.append_logs({run.id: [LogLine(NOON, "INFO", "shop", "hello")]}, lines_max=10)
        worker.record(worker.claim_one(), Failed("no"))
        store.prune(before=NOON + MINUTE, limit=10)
        assert store.run_record(run.id) is None

        add(store, a_run(id=run.id))  # the id is free, and no rows remain for it

        assert store.run_record(run.id) == (the_run(store, run), [], [], [])

    def test_attempts_and_logs_of_others_stay(self, store, clock, worker):
        add(store, a_run(), kept := a_run(attempts_max=2, priority=500))
        first, second = worker.claim()
        worker.record(first)
        worker.record(second, Failed("no"))
        store.append_logs({kept.id: [LogLine(NOON, "INFO", "shop", "hello")]}, lines_max=10)

        store.prune(before=NOON + DAY, limit=10)

        story = store.run_record(kept.id)
        assert (len(story.attempts), len(story.log)) == (1, 1)

    def test_one_batch_at_a_time_the_oldest_first(self, store, clock, worker):
        add(store, *(runs := [a_run() for _ in range(5)]))
        for claim in worker.claim():
            worker.record(claim)
            clock.advance(minutes=1)
        clock.advance(days=1)

        first = store.prune(before=clock.now(), limit=2)
        left = ids(all_runs(store))
        rest = [store.prune(before=clock.now(), limit=2).runs for _ in range(3)]

        assert first.runs == 2
        assert left == ids(runs[2:])
        assert rest == [2, 1, 0]

    def test_the_window_of_a_unique_key_outlasts_its_run(self, store, clock, worker):
        key = UniqueKey("monthly", NOON + 30 * DAY)
        add(store, run := a_run(unique=key))
        worker.run()
        clock.advance(days=2)
        store.prune(before=clock.now(), limit=10)

        [answer] = store.add_runs([a_run(unique=key, created_at=clock.now())])

        assert answer == AddedRun(run.id, is_new=False)


class TestPrunedRowsPruningJobs:
    """Jobs that no program defines any more are deleted, unless they have unfinished runs."""

    def names(self, store: Store) -> list[str]:
        return [job.name for job in store.list_jobs()]

    def test_definitions_that_were_last_seen_before_are_deleted(self, store, clock):
        store.stamp_seen(jobs=["old", "new"], schedules=[], now=clock.now())
        clock.advance(days=2)
        store.stamp_seen(jobs=["new"], schedules=[], now=clock.now())

        pruned = store.prune(before=clock.now() - DAY, limit=10)

        assert pruned == Pruned(runs=0, jobs=1, schedules=0)
        assert self.names(store) == ["new"]

    def test_what_an_application_reported_before_is_deleted(self, store, clock):
        def rows() -> list[DefinitionRow]:
            return [
                DefinitionRow(DefinitionKind.JOB, "sweep", name, f"{name}:sweep", clock.now())
                for name in ("old", "new")
            ]

        store.stamp_seen(jobs=[], schedules=[], now=clock.now(), definitions=rows())
        clock.advance(days=2)
        store.stamp_seen(jobs=[], schedules=[], now=clock.now(), definitions=rows()[1:])

        store.prune(before=clock.now() - DAY, limit=10, with_definitions=False)
        assert len(store.list_definitions(since=NOON)) == 2
        store.prune(before=clock.now() - DAY, limit=10)
        assert [row.application for row in store.list_definitions(since=NOON)] == ["new"]

    def test_one_with_unfinished_runs_stays(self, store, clock):
        store.stamp_seen(jobs=["sweep"], schedules=[], now=clock.now())
        add(store, a_run(job="sweep"))
        clock.advance(days=2)

        assert store.prune(before=clock.now(), limit=10).jobs == 0
        assert self.names(store) == ["sweep"]

    def test_a_paused_job_stays(self, store, clock):
        store.stamp_seen(jobs=["sweep"], schedules=[], now=clock.now())
        store.pause(Pause(PauseKind.JOB, "sweep", NOON))
        clock.advance(days=2)

        assert store.prune(before=clock.now(), limit=10).jobs == 0

    def test_definitions_are_deleted_only_on_request(self, store, clock):
        store.stamp_seen(jobs=["sweep"], schedules=[], now=clock.now())
        clock.advance(days=2)

        pruned = store.prune(before=clock.now(), limit=10, with_definitions=False)

        assert pruned == Pruned(0, 0, 0)
        assert self.names(store) == ["sweep"]


class TestPrunedRowsPruningSchedules:
    """Schedules that no program defines are deleted, but not paused ones or those of the API."""

    def names(self, store: Store) -> list[str]:
        return [row.spec.name for row in store.list_schedules()]

    def test_definitions_that_were_last_seen_before_are_deleted(self, store, clock):
        added(store, "old")
        row = added(store, "new")
        clock.advance(days=2)
        store.stamp_seen(jobs=[], schedules=[row.id], now=clock.now())

        pruned = store.prune(before=clock.now() - DAY, limit=10)

        assert pruned == Pruned(runs=0, jobs=0, schedules=1)
        assert self.names(store) == ["new"]

    def test_one_that_was_just_added_stays(self, store, clock):
        added(store)

        assert store.prune(before=clock.now(), limit=10).schedules == 0

    def test_schedules_that_were_created_at_run_time_stay(self, store, clock):
        added(store, origin=ScheduleOrigin.API)
        clock.advance(days=365)

        assert store.prune(before=clock.now(), limit=10).schedules == 0

    def test_a_paused_schedule_stays(self, store, clock):
        row = added(store)
        store.pause_schedule(row.id, now=clock.now())
        clock.advance(days=365)

        assert store.prune(before=clock.now(), limit=10).schedules == 0

    def test_one_with_unfinished_runs_stays(self, store, clock, worker):
        added(store)
        add(store, a_fired_run("digest"))
        clock.advance(days=2)
        assert store.prune(before=clock.now(), limit=10).schedules == 0
        worker.run()

        assert store.prune(before=clock.now(), limit=10).schedules == 1

    @pytest.mark.parametrize("other", [{"schedule": "Digest"}, {"tenant": "acme"}], ids=str)
    def test_unfinished_runs_of_others_do_not_keep_it(self, store, clock, other):
        added(store)
        add(store, a_fired_run(**{"schedule": "digest", **other}))
        clock.advance(days=2)

        assert store.prune(before=clock.now(), limit=10).schedules == 1

    def test_definitions_are_deleted_only_on_request(self, store, clock):
        added(store)
        clock.advance(days=2)

        store.prune(before=clock.now(), limit=10, with_definitions=False)

        assert self.names(store) == ["digest"]
