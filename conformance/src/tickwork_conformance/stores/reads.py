from dataclasses import asdict
from datetime import datetime

import pytest

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.job import Misfire
from tickwork._domain.runs.outcome import Failed, Succeeded
from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.transitions import Transition, reap
from tickwork._stores.contract import ChangeResult, CountPrecision, LogLine, RunFilter
from tickwork_conformance.builders import (
    HOUR,
    MINUTE,
    NOON,
    UNKNOWN_ID,
    a_fired_run,
    a_run,
    add,
    added,
    ids,
    the_run,
    tick,
)

EVERYTHING = RunFilter()


def reaped(claim: Claim, now: datetime) -> Transition:
    """The transition of a run whose worker died for the last time."""
    return reap(claim, has_started=True, now=now, crashes_max=1)


def label_of(value: object) -> str:
    """The label of a filter, the same in every process."""
    if not isinstance(value, RunFilter):
        return str(value)
    given = {name: part for name, part in asdict(value).items() if part not in {None, frozenset()}}
    if "statuses" in given:
        given["statuses"] = sorted(given["statuses"])
    return ", ".join(f"{name}={part}" for name, part in given.items())


class TestReadsOneRun:
    """A run is found by its id, unfinished or finished."""

    def test_a_run_is_found_in_every_state(self, store, worker):
        add(store, finished := a_run())
        worker.run()
        add(store, unfinished := a_run())

        assert store.get_run(unfinished.id).status is RunStatus.PENDING
        assert store.get_run(finished.id).status is RunStatus.COMPLETED

    def test_an_unknown_id_is_not_found(self, store):
        assert store.get_run(UNKNOWN_ID) is None

    @pytest.mark.parametrize(
        "text", ["", "zzz", "42", UNKNOWN_ID + "0", "{" + UNKNOWN_ID + "}", "\x00"]
    )
    def test_a_text_that_is_no_id_is_unknown(self, store, clock, text):
        add(store, run := a_run())

        assert store.get_run(text) is None
        assert ids(store.get_runs([text, run.id])) == [run.id]
        assert store.run_record(text) is None
        assert store.find_turn(text) is None
        assert store.cancel(text, now=clock.now()) is ChangeResult.UNKNOWN
        assert store.reschedule(text, due_at=NOON, now=clock.now()) is ChangeResult.UNKNOWN

    def test_several_runs_by_id(self, store, worker):
        add(store, finished := a_run())
        worker.run()
        add(store, unfinished := a_run(), a_run())

        runs = store.get_runs([unfinished.id, UNKNOWN_ID, finished.id])

        assert sorted(ids(runs)) == [finished.id, unfinished.id]
        assert {run.id: run for run in runs} == {
            run.id: the_run(store, run) for run in (finished, unfinished)
        }

    def test_no_ids(self, store):
        assert store.get_runs([]) == []


class TestReadsOutcomes:
    """A finished run has an outcome; an unfinished one has none yet."""

    def test_an_unfinished_run_has_no_outcome(self, store, worker):
        add(store, waiting := a_run(attempts_max=2), running := a_run())
        worker.record(worker.claim_one(), Failed("no"))
        worker.claim_one()

        assert the_run(store, waiting).outcome is None
        assert the_run(store, running).outcome is None

    def test_every_final_status_has_an_outcome(self, store, clock, worker):
        add(store, *(runs := [a_run() for _ in range(4)]), a_run(due_at=NOON + HOUR))
        recorded, failed, completed, expired = worker.claim()
        worker.record(recorded)
        worker.record(failed, Failed("no"))
        store.complete(completed, now=clock.now())
        worker.start(expired)
        clock.advance(minutes=2)
        store.reap(now=clock.now(), limit=1, decide=lambda one: reaped(one.claim, clock.now()))
        [waiting] = [run for run in store.list_runs(EVERYTHING).runs if not run.is_finished]
        store.cancel(waiting.id, now=clock.now())

        words = ["succeeded", "failed", "succeeded", "crashed", "canceled"]
        found = [*(run.id for run in runs), waiting.id]
        assert [the_run(store, run_id).outcome for run_id in found] == words
        assert [run.outcome for run in store.list_runs(EVERYTHING).runs[::-1]] == words
        assert [store.run_record(run_id).run.outcome for run_id in found] == words

    def test_a_firing_that_gave_no_run(self, store, clock):
        added(store, misfire=Misfire.SKIP, next_due_at=NOON - HOUR)
        tick(store, clock)

        skip, *_ = [run for run in store.list_runs(EVERYTHING).runs if run.is_finished]
        assert skip.outcome == "skipped"


class TestReadsFindingIds:
    """A run is found by the beginning of its id."""

    def test_ids_of_unfinished_and_finished_runs(self, store, worker):
        add(store, finished := a_run(id="aaaa0001-0000-7000-8000-000000000001"))
        worker.run()
        add(
            store,
            unfinished := a_run(id="aaaa0000-0000-7000-8000-000000000001"),
            a_run(id="aaab0000-0000-7000-8000-000000000001"),
        )

        assert store.find_run_ids("aaaa") == [unfinished.id, finished.id]
        assert store.find_run_ids("aaaa0001-") == [finished.id]
        assert store.find_run_ids(finished.id) == [finished.id]

    def test_no_more_than_the_limit(self, store, worker):
        add(store, *(runs := [a_run() for _ in range(4)]))
        worker.run(2)

        assert store.find_run_ids(runs[0].id[:20], limit=3) == ids(runs[:3])

    def test_ids_in_capital_letters(self, store):
        add(store, run := a_run(id="abcd0000-0000-7000-8000-000000000001"))

        assert store.find_run_ids("ABCD") == [run.id]

    @pytest.mark.parametrize("prefix", ["%", "_", "019cb0d2%", "0_", "*", "zzzz", "\\", "'"])
    def test_no_character_is_a_wildcard(self, store, prefix):
        add(store, a_run())

        assert store.find_run_ids(prefix) == []


class TestReadsLists:
    """Runs are listed by id, the newest first, unfinished and finished together."""

    @pytest.fixture
    def runs(self, store, clock, worker) -> list[NewRun]:
        """Six runs, a minute apart; the even ones have ended. The oldest comes first."""
        runs = [
            a_run(tenant="acme"),
            a_run(job="sweep"),
            a_fired_run("digest", tags=("paid", "big")),
            a_fired_run("digest", queue="emails"),
            a_run(tags=("paid",), retry_of=UNKNOWN_ID),
            a_run(tags=("paidout",), attempts_max=2),
        ]
        runs = [
            a_run(
                id=run.id,
                created_at=NOON + number * MINUTE,
                tenant=run.tenant,
                job=run.job,
                schedule=run.schedule,
                nominal_at=run.nominal_at,
                queue=run.queue,
                tags=run.tags,
                attempts_max=run.attempts_max,
                retry_of=run.retry_of,
            )
            for number, run in enumerate(runs)
        ]
        add(store, *runs)
        clock.set(NOON + HOUR)
        for number, claim in enumerate(worker.claim()):
            if number == 5:
                worker.record(claim, Failed("no"))
            elif number % 2 == 0:
                worker.record(claim, Succeeded())
        return runs

    def test_all_runs(self, store, runs):
        page = store.list_runs(EVERYTHING)

        assert ids(page.runs) == ids(runs[::-1])
        assert page.cursor is None

    def test_listed_runs_equal_runs_that_are_read_by_id(self, store, runs):
        page = store.list_runs(EVERYTHING)

        assert page.runs == [the_run(store, run) for run in runs[::-1]]

    @pytest.mark.parametrize(
        ("where", "numbers"),
        [
            (RunFilter(tenant="acme"), [0]),
            (RunFilter(tenant=""), [1, 2, 3, 4, 5]),
            (RunFilter(job="sweep"), [1]),
            (RunFilter(job="Sweep"), []),
            (RunFilter(queue="emails"), [3]),
            (RunFilter(schedule="digest"), [2, 3]),
            (RunFilter(tag="paid"), [2, 4]),
            (RunFilter(tag="big"), [2]),
            (RunFilter(tag="p%"), []),
            (RunFilter(statuses=frozenset({RunStatus.COMPLETED})), [0, 2, 4]),
            (RunFilter(statuses=frozenset({RunStatus.RUNNING, RunStatus.FAILED})), [1, 3, 5]),
            (RunFilter(statuses=frozenset({RunStatus.RUNNING, RunStatus.COMPLETED})), range(5)),
            (RunFilter(statuses=frozenset({RunStatus.RUNNING})), [1, 3]),
            (RunFilter(statuses=frozenset({RunStatus.RUNNING}), queue="emails"), [3]),
            (RunFilter(is_retry=True), [4]),
            (RunFilter(is_retry=False, statuses=frozenset({RunStatus.COMPLETED})), [0, 2]),
            (RunFilter(since=NOON + 4 * MINUTE), [4, 5]),
            (RunFilter(before=NOON + MINUTE), [0]),
            (RunFilter(since=NOON + MINUTE, before=NOON + 3 * MINUTE), [1, 2]),
            (RunFilter(schedule="digest", queue="emails", tenant=""), [3]),
            (RunFilter(tag="paid", statuses=frozenset({RunStatus.CANCELED})), []),
        ],
        ids=label_of,
    )
    def test_runs_that_match_a_filter(self, store, runs, where, numbers):
        page = store.list_runs(where)

        assert ids(page.runs)[::-1] == [runs[number].id for number in numbers]

    def test_runs_of_one_worker(self, store, runs):
        by_worker: dict[WorkerId, list[RunId]] = {}
        for run in store.list_runs(EVERYTHING).runs:
            if run.worker is not None:
                by_worker.setdefault(run.worker, []).append(run.id)

        assert by_worker
        for worker, expected in by_worker.items():
            assert ids(store.list_runs(RunFilter(worker=worker)).runs) == expected
        assert store.list_runs(RunFilter(worker=WorkerId(runs[0].id))).runs == []

    @pytest.mark.parametrize("tag", ["täg", "標", 'a "b"', "\\", 'x"red\\', ', "red'])
    def test_a_tag_with_any_characters_is_found(self, store, tag):
        run = a_run(tags=("red", tag))
        add(store, run, a_run(tags=("red",)), a_run(tags=(f'x"{tag}', f"{tag}x")))

        assert ids(store.list_runs(RunFilter(tag=tag)).runs) == [run.id]

    @pytest.mark.parametrize("limit", [1, 2, 3, 4, 6, 7])
    def test_page_by_page(self, store, runs, limit):
        page = store.list_runs(EVERYTHING, limit=limit)
        pages = [page.runs]
        while page.cursor is not None:
            page = store.list_runs(EVERYTHING, cursor=page.cursor, limit=limit)
            pages.append(page.runs)

        assert [len(page) <= limit for page in pages] == [True] * len(pages)
        assert ids([run for page in pages for run in page]) == ids(runs[::-1])
        assert all(pages)

    def test_pages_keep_to_the_filter(self, store, runs):
        where = RunFilter(tag="paid")
        first = store.list_runs(where, limit=1)

        second = store.list_runs(where, cursor=first.cursor, limit=1)

        assert ids([*first.runs, *second.runs]) == [runs[4].id, runs[2].id]
        assert second.cursor is None

    @pytest.mark.parametrize("scan_max", [1, 2, 3, 10])
    @pytest.mark.parametrize(
        "where",
        [
            RunFilter(tag="paid"),
            RunFilter(tenant="acme"),
            RunFilter(schedule="digest"),
            RunFilter(job="sweep", queue="emails"),
            RunFilter(since=NOON + MINUTE, before=NOON + 4 * MINUTE),
            RunFilter(statuses=frozenset({RunStatus.CANCELED, RunStatus.RUNNING})),
            RunFilter(statuses=frozenset({RunStatus.FAILED_PERMANENT})),
        ],
        ids=label_of,
    )
    def test_a_bounded_search_continues_where_it_ended(self, store, runs, where, scan_max):
        found, cursor, pages = [], None, 0
        while pages == 0 or cursor is not None:
            page = store.list_runs(where, cursor=cursor, limit=2, scan_max=scan_max)
            summaries = store.list_summaries(where, cursor=cursor, limit=2, scan_max=scan_max)
            assert ids(summaries.runs) == ids(page.runs)
            assert summaries[1:] == page[1:]
            if page.searched_to is not None:
                assert page.cursor == page.searched_to
                assert all(run.id >= page.searched_to for run in page.runs)
            found += page.runs
            cursor, pages = page.cursor, pages + 1
            assert pages <= 2 * len(runs)

        assert found == store.list_runs(where).runs

    def test_a_search_that_an_index_answers_has_no_bound(self, store, runs):
        page = store.list_runs(EVERYTHING, limit=6, scan_max=1)

        assert ids(page.runs) == ids(runs[::-1])
        assert page.searched_to is None

    def test_a_bounded_search_reads_no_more_than_its_bound(self, store, runs):
        page = store.list_runs(RunFilter(tenant="acme"), scan_max=1)  # the oldest run

        assert page.runs == []
        assert page.searched_to is not None

    def test_summaries_have_the_columns_of_the_runs(self, store, runs):
        summaries = store.list_summaries(EVERYTHING).runs

        for run, summary in zip(store.list_runs(EVERYTHING).runs, summaries, strict=True):
            assert summary == tuple(getattr(run, name) for name in summary._fields)

    def test_counting_stops_at_a_limit(self, store, runs):
        paid = RunFilter(tag="paid")

        assert store.count_matches(paid, cap=10, scan_max=100) == (2, CountPrecision.EXACT)
        assert store.count_matches(paid, cap=1, scan_max=100) == (1, CountPrecision.AT_LEAST)
        acme = store.count_matches(RunFilter(tenant="acme"), cap=10, scan_max=1)
        assert acme == (0, CountPrecision.AT_LEAST)
        assert store.count_matches(EVERYTHING, cap=10, scan_max=1) == (6, CountPrecision.EXACT)

    def test_runs_that_come_in_or_end_meanwhile_do_not_shift_the_next_page(
        self, store, clock, runs
    ):
        first = store.list_runs(EVERYTHING, limit=2)
        add(store, a_run(created_at=clock.now()))
        store.cancel(runs[5].id, now=clock.now())

        second = store.list_runs(EVERYTHING, cursor=first.cursor, limit=2)

        assert ids(second.runs) == [runs[3].id, runs[2].id]

    def test_runs_of_the_same_moment_are_all_listed(self, store, worker):
        add(store, *(runs := [a_run() for _ in range(7)]))
        worker.run(3)
        page = store.list_runs(EVERYTHING, limit=2)
        found = page.runs
        while page.cursor is not None:
            page = store.list_runs(EVERYTHING, cursor=page.cursor, limit=2)
            found += page.runs

        assert ids(found) == ids(runs[::-1])

    def test_ids_sort_by_time_and_so_does_the_list(self, store):
        first, second = a_run(created_at=NOON + MINUTE), a_run(created_at=NOON)
        add(store, second, first)

        assert ids(store.list_runs(EVERYTHING).runs) == [second.id, first.id]

    def test_nothing_to_list(self, store):
        page = store.list_runs(EVERYTHING)

        assert (page.runs, page.cursor) == ([], None)


class TestReadsRecords:
    """The record of a run has the run, its attempts and its log."""

    def test_an_unfinished_run_has_a_record(self, store):
        add(store, run := a_run())

        assert store.run_record(run.id) == (the_run(store, run), [], [], [])

    def test_a_finished_run_has_a_record(self, store, worker):
        add(store, run := a_run())
        worker.run()

        assert store.run_record(run.id).run.status is RunStatus.COMPLETED

    def test_there_is_no_such_run(self, store):
        assert store.run_record(UNKNOWN_ID) is None


class TestReadsLogs:
    """Log lines of a handler are stored with its run, up to a limit."""

    def lines(self, *messages: str) -> list[LogLine]:
        return [LogLine(NOON, "INFO", "shop.emails", message) for message in messages]

    def test_lines_are_kept_in_order(self, store):
        add(store, run := a_run())
        store.append_logs({run.id: self.lines("b", "a")}, lines_max=10)
        store.append_logs({run.id: self.lines("c 🦀")}, lines_max=10)

        assert store.run_record(run.id).log == self.lines("b", "a", "c 🦀")

    def test_the_first_lines_are_kept(self, store):
        add(store, run := a_run())
        store.append_logs({run.id: self.lines("1", "2")}, lines_max=3)
        store.append_logs({run.id: self.lines("3", "4")}, lines_max=3)
        store.append_logs({run.id: self.lines("5")}, lines_max=3)

        assert store.run_record(run.id).log == self.lines("1", "2", "3")

    def test_lines_stay_when_the_run_has_ended(self, store, worker):
        add(store, run := a_run())
        claim = worker.claim_one()
        store.append_logs({run.id: self.lines("before")}, lines_max=10)
        worker.record(claim)
        store.append_logs({run.id: self.lines("after")}, lines_max=10)

        assert store.run_record(run.id).log == self.lines("before", "after")

    def test_each_run_has_its_own_lines(self, store):
        add(store, run := a_run(), other := a_run())
        store.append_logs({run.id: self.lines("mine")}, lines_max=10)

        assert store.run_record(other.id).log == []

    def test_many_runs_at_once(self, store):
        add(store, run := a_run(), other := a_run())
        store.append_logs({other.id: self.lines("1", "2")}, lines_max=3)

        store.append_logs(
            {other.id: self.lines("3", "4"), run.id: self.lines("a", "b", "c", "d")}, lines_max=3
        )

        assert store.run_record(run.id).log == self.lines("a", "b", "c")
        assert store.run_record(other.id).log == self.lines("1", "2", "3")

    def test_a_smaller_limit_deletes_no_lines(self, store):
        add(store, run := a_run())
        store.append_logs({run.id: self.lines("1", "2")}, lines_max=2)
        store.append_logs({run.id: self.lines("3")}, lines_max=1)

        assert store.run_record(run.id).log == self.lines("1", "2")

    def test_lines_of_an_unknown_run_are_dropped(self, store):
        store.append_logs({UNKNOWN_ID: self.lines("too late")}, lines_max=10)
        add(store, run := a_run(id=UNKNOWN_ID))

        assert store.run_record(run.id).log == []

    def test_no_lines(self, store):
        add(store, run := a_run())
        store.append_logs({run.id: []}, lines_max=10)
        store.append_logs({}, lines_max=10)

        assert store.run_record(run.id).log == []


class TestReadsCounts:
    """Unfinished runs are counted by phase and queue."""

    def test_runs_are_counted_by_phase(self, store, worker):
        store.set_limits({"job:send_email": 1})
        add(store, *(a_run(priority=1, limit_keys=("job:send_email",)) for _ in range(3)))
        worker.claim(10)
        add(store, a_run())
        add(store, *(a_run(due_at=NOON + HOUR) for _ in range(5)))

        assert store.count_runs().by_phase == {
            Phase.WAITING: 5,
            Phase.READY: 1,
            Phase.BLOCKED: 2,
            Phase.RUNNING: 1,
        }

    def test_runs_are_counted_by_queue(self, store, worker):
        add(store, a_run(queue="emails"), a_run(queue="emails"), a_run(queue="reports"))
        add(store, a_run(queue="emails", due_at=NOON + HOUR))

        assert store.count_runs().by_queue == {
            "emails": {Phase.READY: 2, Phase.WAITING: 1},
            "reports": {Phase.READY: 1},
        }

    def test_counting_ends_at_the_cap(self, store):
        add(store, *(a_run() for _ in range(5)), a_run(due_at=NOON + HOUR))

        counts = store.count_runs(cap=3)

        assert counts.cap == 3
        assert counts.by_phase[Phase.READY] == 3
        assert counts.by_phase[Phase.WAITING] == 1

    def test_a_backlog_in_one_queue_hides_no_other_queue(self, store, worker):
        store.set_limits({"job:send_email": 1})
        add(store, a_run(queue="limited", limit_keys=("job:send_email",)))
        worker.claim(1)
        for queue, count in (("a", 9), ("z", 2)):
            add(store, *(a_run(queue=queue) for _ in range(count)))
            add(store, *(a_run(queue=queue, due_at=NOON + HOUR) for _ in range(count)))
        add(store, *(a_run(queue="limited", limit_keys=("job:send_email",)) for _ in range(5)))
        worker.claim(1, queues=("limited",))

        counts = store.count_runs(cap=4)

        assert counts.by_queue == {
            "a": {Phase.READY: 4, Phase.WAITING: 4},
            "limited": {Phase.RUNNING: 1, Phase.BLOCKED: 4},
            "z": {Phase.READY: 2, Phase.WAITING: 2},
        }
        assert counts.capped == {
            ("a", Phase.READY),
            ("a", Phase.WAITING),
            ("limited", Phase.BLOCKED),
        }
        assert counts.capped_phases == {Phase.READY, Phase.WAITING, Phase.BLOCKED}

    def test_a_count_that_equals_the_cap_is_exact(self, store):
        add(store, *(a_run() for _ in range(3)))

        assert store.count_runs(cap=3).capped == frozenset()
        assert store.count_runs(cap=2).capped_phases == {Phase.READY}

    def test_counts_of_an_empty_store(self, store, worker):
        add(store, a_run())
        worker.run()

        assert store.count_runs().by_phase == dict.fromkeys(Phase, 0)
