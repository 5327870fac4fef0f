"""What a worker needs to prune history by itself: pages of finished runs, and their deletion."""

from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.outcome import Failed, Succeeded
from tickwork._domain.runs.retention import EndedRun, HistoryCursor
from tickwork._domain.runs.status import RunStatus
from tickwork._stores.contract import LogLine
from tickwork_conformance.builders import DAY, HOUR, MINUTE, NOON, a_run, add, ids, the_run


def finish(store, worker, *runs, outcome=None):
    add(store, *runs)
    for claim in worker.claim():
        worker.record(claim, *([] if outcome is None else [outcome]))


def pages(store, *, before, limit):
    """Every page of finished runs, one after the other."""
    found, after = [], None
    while page := store.list_ended(after=after, before=before, limit=limit):
        found.append(ids(page))
        after = HistoryCursor(page[-1].ended_at, page[-1].id)
    return found


class TestRetentionPagesOfFinishedRuns:
    """Finished runs are listed by the time of their end, the oldest first, each once."""

    def test_a_row_has_the_values_that_retention_needs(self, store, worker):
        finish(store, worker, done := a_run(job="a"), outcome=Succeeded("[1]"))
        finish(store, worker, failed := a_run(job="b"), outcome=Failed("no"))

        found = store.list_ended(after=None, before=NOON + MINUTE, limit=10)

        assert sorted(found, key=lambda each: each.job) == [
            EndedRun(done.id, "a", has_failed=False, ended_at=NOON, has_result=True),
            EndedRun(failed.id, "b", has_failed=True, ended_at=NOON, has_result=False),
        ]

    def test_only_runs_that_ended_before(self, store, clock, worker):
        finish(store, worker, old := a_run())
        clock.advance(days=1)
        finish(store, worker, a_run())
        add(store, a_run())  # it has not ended

        assert ids(store.list_ended(after=None, before=clock.now(), limit=10)) == [old.id]

    def test_each_run_is_on_one_page_even_if_many_ended_together(self, store, clock, worker):
        runs = [a_run() for _ in range(12)]
        for start in (0, 8):
            finish(store, worker, *runs[start : start + 8])
            clock.advance(hours=1)

        found = pages(store, before=clock.now(), limit=5)

        assert [len(page) for page in found] == [5, 5, 2]
        assert sorted(each for page in found for each in page) == sorted(ids(runs))
        assert set(found[2]) <= set(ids(runs[8:]))


class TestRetentionDeletingFinishedRuns:
    """Finished runs are deleted with their attempts and logs. Unfinished runs are not."""

    def test_attempts_and_logs_are_deleted_too(self, store, worker):
        finish(store, worker, gone := a_run(), kept := a_run(), outcome=Failed("no"))
        store.append_logs({gone.id: [LogLine(NOON, "INFO", "shop", "hello")]}, lines_max=10)

        assert store.delete_runs([gone.id]) == 1

        assert store.run_record(gone.id) is None
        assert len(store.run_record(kept.id).attempts) == 1
        add(store, a_run(id=gone.id))
        assert store.run_record(gone.id) == (the_run(store, gone), [], [], [])

    def test_an_unfinished_run_stays(self, store):
        add(store, run := a_run())

        assert store.delete_runs([run.id]) == 0
        assert the_run(store, run).status is RunStatus.PENDING

    def test_nothing_to_delete(self, store):
        assert store.delete_runs([]) == 0
        assert store.clear_results([], reason="expired") == 0


class TestRetentionClearingResults:
    """A result can be deleted before its run."""

    def test_the_result_is_deleted_and_the_run_stays(self, store, worker):
        finish(store, worker, run := a_run(), other := a_run(), outcome=Succeeded("[1]"))

        assert store.clear_results([run.id], reason="The result has expired.") == 1

        cleared = the_run(store, run)
        assert (cleared.status, cleared.result) == (RunStatus.COMPLETED, None)
        assert cleared.reason == "The result has expired."
        assert the_run(store, other).result == "[1]"
        [found, _] = sorted(
            store.list_ended(after=None, before=NOON + MINUTE, limit=10),
            key=lambda each: each.has_result,
        )
        assert (found.id, found.has_result) == (run.id, False)


class TestRetentionPruningKeys:
    """Keys whose window has passed are deleted, also without their runs."""

    def test_a_key_whose_window_has_passed_is_deleted(self, store, clock, worker):
        key = UniqueKey("hourly", NOON + HOUR)
        finish(store, worker, run := a_run(unique=key))
        clock.advance(days=2)

        store.prune_keys(before=clock.now() - DAY, limit=10)

        [answer] = store.add_runs([a_run(unique=key, created_at=clock.now())])
        assert answer.is_new
        assert the_run(store, run).is_finished
