import pytest

from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._stores.contract import Pause, PauseKind
from tickwork_conformance.builders import HOUR, MINUTE, NOON, a_run, add, ids, the_run

KINDS = [PauseKind.QUEUE, PauseKind.JOB]


def a_pause(kind: PauseKind, name: str = "theirs", **given: object) -> Pause:
    facts: dict[str, object] = {"paused_at": NOON}
    return Pause(kind=kind, name=name, **(facts | given))  # type: ignore[arg-type]  # by name


class TestPausesPauses:
    """No run of a paused queue or job is claimed."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_paused_runs_are_not_claimed_and_others_are(self, store, worker, kind):
        add(store, theirs := a_run(**{kind.value: "theirs"}), ours := a_run())
        store.pause(a_pause(kind))

        assert ids(worker.claim()) == [ours.id]
        assert the_run(store, theirs).status is RunStatus.PENDING

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_paused_backlog_does_not_hide_other_runs(self, store, worker, kind):
        add(store, *(a_run(priority=1, **{kind.value: "theirs"}) for _ in range(200)))
        add(store, ours := a_run(priority=50))
        store.pause(a_pause(kind))

        assert ids(worker.claim(1)) == [ours.id]

    @pytest.mark.parametrize("kind", KINDS)
    def test_runs_are_claimed_after_a_resume(self, store, worker, kind):
        add(store, run := a_run(**{kind.value: "theirs"}))
        store.pause(a_pause(kind))

        assert store.resume(kind, "theirs")
        assert ids(worker.claim()) == [run.id]

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_pause_may_end_by_itself(self, store, clock, worker, kind):
        add(store, run := a_run(**{kind.value: "theirs"}))
        store.pause(a_pause(kind, until=NOON + HOUR))

        clock.advance(minutes=59)
        assert worker.claim() == []
        clock.advance(minutes=1)
        assert ids(worker.claim()) == [run.id]

    def test_a_queue_and_a_job_of_the_same_name_are_paused_separately(self, store, worker):
        add(store, queue := a_run(queue="theirs"), job := a_run(job="theirs"))
        store.pause(a_pause(PauseKind.QUEUE))

        assert ids(worker.claim()) == [job.id]
        assert the_run(store, queue).phase is not Phase.RUNNING
        assert not store.resume(PauseKind.JOB, "theirs")

    def test_names_are_equal_only_letter_by_letter(self, store, worker):
        add(store, run := a_run(queue="Theirs"))
        store.pause(a_pause(PauseKind.QUEUE))

        assert ids(worker.claim()) == [run.id]

    def test_running_runs_continue(self, store, worker):
        add(store, run := a_run())
        claim = worker.claim_one()
        store.pause(a_pause(PauseKind.QUEUE, "default"))

        assert worker.beat(claim).lost == []
        assert worker.record(claim) == []
        assert the_run(store, run).status is RunStatus.COMPLETED

    def test_resuming_without_a_pause_returns_false(self, store):
        assert not store.resume(PauseKind.QUEUE, "default")

    def test_pauses_are_listed(self, store):
        pauses = [
            a_pause(PauseKind.JOB, "sweep", note="too slow", until=NOON + HOUR),
            a_pause(PauseKind.QUEUE, "emails"),
        ]
        for pause in pauses:
            store.pause(pause)

        assert sorted(store.list_pauses()) == sorted(pauses)

    def test_a_second_pause_replaces_the_first(self, store):
        store.pause(a_pause(PauseKind.JOB, note="first", until=NOON + HOUR))
        second = a_pause(PauseKind.JOB, note="second", paused_at=NOON + MINUTE)

        store.pause(second)

        assert store.list_pauses() == [second]

    def test_none_is_paused_at_first(self, store):
        assert store.list_pauses() == []


class TestPausesPairs:
    """A worker lists the queues and jobs that have ready runs."""

    def test_each_pair_is_listed_once(self, store):
        add(store, *(a_run(queue="emails") for _ in range(3)), a_run(), a_run(job="sweep"))

        assert sorted(store.ready_pairs()) == [
            ("default", "send_email"),
            ("default", "sweep"),
            ("emails", "send_email"),
        ]

    def test_running_and_waiting_runs_are_not_listed(self, store, worker):
        add(store, a_run())
        worker.claim()
        add(store, a_run(due_at=NOON + HOUR))

        assert store.ready_pairs() == []
