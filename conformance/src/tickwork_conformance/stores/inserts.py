from datetime import timedelta

import pytest

from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._stores.contract import AddedRun
from tickwork_conformance.builders import (
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    UNKNOWN_ID,
    a_fired_run,
    a_run,
    add,
    all_runs,
    ids,
    the_run,
)

MICROSECOND = timedelta(microseconds=1)


class TestInsertsEnqueuing:
    """An added run is stored with all its fields until it ends."""

    def test_the_results_are_in_the_order_of_the_runs(self, store):
        runs = [a_run(), a_run(), a_run()]

        answers = store.add_runs(runs[::-1])

        assert answers == [AddedRun(run.id, is_new=True) for run in runs[::-1]]

    def test_an_empty_insert(self, store):
        assert store.add_runs([]) == []

    def test_every_field_is_stored(self, store):
        new = a_run(
            job="resize",
            tenant="acme",
            queue="images",
            priority=-7,
            created_at=NOON,
            due_at=NOON + MINUTE,
            expires_at=NOON + HOUR,
            args='{"width": 80}',
            tags=("thumbnail", "paid"),
            attempts_max=5,
            overlap_key="held:019cb0d2-0000-7000-8000-000000000001",
            limit_keys=("job:resize", "queue:images"),
            target="image-42",
            retry_of=UNKNOWN_ID,
            trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )

        store.add_runs([new])

        assert store.get_run(new.id) == Run(
            id=new.id,
            job="resize",
            status=RunStatus.PENDING,
            phase=Phase.WAITING,
            tenant="acme",
            queue="images",
            priority=-7,
            created_at=NOON,
            due_at=NOON + MINUTE,
            expires_at=NOON + HOUR,
            args='{"width": 80}',
            tags=("thumbnail", "paid"),
            attempts_max=5,
            overlap_key="held:019cb0d2-0000-7000-8000-000000000001",
            limit_keys=("job:resize", "queue:images"),
            target="image-42",
            retry_of=UNKNOWN_ID,
            trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )

    def test_values_that_were_not_given_are_empty(self, store):
        new = a_run()

        store.add_runs([new])

        assert store.get_run(new.id) == Run(
            id=new.id,
            job="send_email",
            status=RunStatus.PENDING,
            phase=Phase.READY,
            created_at=NOON,
            due_at=NOON,
        )

    def test_a_run_of_a_schedule_has_its_instant(self, store):
        new = a_fired_run("digest", NOON - MINUTE)

        store.add_runs([new])

        run = the_run(store, new)
        assert (run.schedule, run.nominal_at) == ("digest", NOON - MINUTE)

    def test_times_are_stored_to_the_microsecond(self, store):
        new = a_run(created_at=NOON + MICROSECOND, due_at=NOON - MICROSECOND)

        store.add_runs([new])

        run = the_run(store, new)
        assert (run.created_at, run.due_at) == (NOON + MICROSECOND, NOON - MICROSECOND)

    @pytest.mark.parametrize(
        "text",
        [
            "Grüße, Łódź",
            "日本語",
            "🦀🚀",
            "'; DROP TABLE tickwork_run; --",
            '{"a": "\\u0000"}',
            "%s :x ?",
        ],
        ids=["latin", "kanji", "emoji", "quotes", "escapes", "placeholders"],
    )
    def test_text_is_stored_exactly(self, store, text):
        new = a_run(job=text, queue=text, tenant=text, args=text, tags=(text,), target=text)

        store.add_runs([new])

        run = the_run(store, new)
        assert (run.job, run.queue, run.tenant, run.args, run.target) == (text,) * 5
        assert run.tags == (text,)

    def test_a_large_payload_is_stored_completely(self, store):
        new = a_run(args='{"text": "' + "ä" * 32_000 + '"}')

        store.add_runs([new])

        assert the_run(store, new).args == new.args

    def test_many_runs_are_added_at_once(self, store):
        runs = [a_run() for _ in range(1_000)]

        answers = store.add_runs(runs)

        assert [answer.run_id for answer in answers] == ids(runs)
        assert ids(all_runs(store)) == ids(runs)

    def test_shared_and_different_values_are_stored(self, store):
        texts = [
            "é €",
            "'\"\\",
            "\x01\t\n\u2028",
            "\U0001f600",
            "%s ?1 :rows $1 [[",
            "NULL",
            "",
            "{}",
        ]
        runs = [
            a_run(
                job="resize",
                args=f'{{"text": {number}}} {texts[number % len(texts)]}',
                priority=number % 3,
                due_at=NOON + number * MICROSECOND,
                expires_at=NOON + HOUR if number % 2 else None,
                tags=("paid",) if number % 5 else (),
                trace=texts[number % len(texts)] if number % 7 else None,
                target="image",
            )
            for number in range(40)
        ]
        store.add_runs(runs)
        runs_of_one = [a_run(job="one", args='{"same": 1}') for _ in range(20)]
        store.add_runs(runs_of_one)

        for new in [*runs, *runs_of_one]:
            found = the_run(store, new)
            for name in ("job", "args", "priority", "due_at", "expires_at", "tags", "trace"):
                assert getattr(found, name) == getattr(new, name), name
            assert found.target == new.target
            assert found.created_at == new.created_at
            assert found.phase is new.phase


class TestInsertsPhase:
    """A run that is due is ready at once; any other run waits until it is due."""

    @pytest.mark.parametrize(
        ("due_at", "phase"),
        [
            (NOON - HOUR, Phase.READY),
            (NOON, Phase.READY),
            (NOON + MICROSECOND, Phase.WAITING),
            (NOON + HOUR, Phase.WAITING),
        ],
        ids=["past", "now", "in a moment", "later"],
    )
    def test_the_due_time_decides_the_phase(self, store, due_at, phase):
        new = a_run(due_at=due_at)

        store.add_runs([new])

        assert the_run(store, new).phase is phase

    def test_a_waiting_run_cannot_be_claimed(self, store, worker):
        add(store, a_run(due_at=NOON + SECOND))

        assert worker.claim() == []
