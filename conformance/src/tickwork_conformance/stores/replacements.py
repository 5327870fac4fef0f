from datetime import timedelta
from random import Random
from typing import Any

import pytest

from tickwork._domain.limits.debounce import ReplaceRule
from tickwork._domain.runs.outcome import Failed, Snoozed
from tickwork._domain.runs.run import NewRun
from tickwork._domain.runs.status import Phase
from tickwork._stores.contract import AddedRun
from tickwork_conformance.builders import (
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    a_run,
    add,
    all_runs,
    ids,
    the_run,
)

KEY = "waiting:send_email:4711"
LIMIT = "job:send_email"
OTHER_LIMIT = "queue:default"


def a_replacing_run(key: str = KEY, *, longest: timedelta | None = None, **given: Any) -> NewRun:
    return a_run(overlap_key=key, replaces=ReplaceRule(longest), **given)


class TestReplacements:
    """A run takes the place of the one that waits with its key; at most one waits."""

    def test_the_last_arguments_win(self, store):
        first = a_replacing_run(args='{"n":1}')
        second = a_replacing_run(args='{"n":2}', created_at=NOON + SECOND)
        add(store, first)

        [answer] = store.add_runs([second])

        assert answer == AddedRun(first.id, is_new=False, is_replaced=True)
        assert ids(all_runs(store)) == [first.id]
        assert the_run(store, first).args == '{"n":2}'

    def test_everything_but_the_id_and_the_creation_is_of_the_last_dispatch(self, store):
        add(store, first := a_replacing_run(due_at=NOON + HOUR, tags=("a",), target="x"))
        second = a_replacing_run(
            created_at=NOON + SECOND,
            due_at=NOON + MINUTE,
            queue="slow",
            priority=7,
            expires_at=NOON + 2 * MINUTE,
            args='{"n":2}',
            tags=("b", "c"),
            attempts_max=4,
            limit_keys=(LIMIT,),
            target="y",
            trace="t",
        )
        store.add_runs([second])

        found = the_run(store, first)

        own = {"id": first.id, "created_at": NOON}
        facts = second._asdict() | own
        del facts["unique"], facts["replaces"]
        assert {name: getattr(found, name) for name in facts} == facts
        assert found.phase is Phase.WAITING

    def test_a_running_run_is_not_touched(self, store, worker):
        add(store, first := a_replacing_run(args='{"n":1}'))
        claim = worker.claim_one()

        [answer] = store.add_runs([second := a_replacing_run(args='{"n":2}')])

        assert answer == AddedRun(second.id, is_new=True)
        assert (claim.args, the_run(store, first).args) == ('{"n":1}', '{"n":1}')

    @pytest.mark.parametrize("outcome", [Failed("no"), Snoozed(MINUTE)], ids=["failed", "snoozed"])
    def test_a_run_that_waits_for_its_next_attempt_is_not_touched(self, store, worker, outcome):
        add(store, first := a_replacing_run(args='{"n":1}', attempts_max=2))
        worker.record(worker.claim_one(), outcome)

        [answer] = store.add_runs([a_replacing_run(args='{"n":2}')])

        assert answer.is_new
        assert the_run(store, first).args == '{"n":1}'

    def test_a_finished_or_canceled_run_is_not_touched(self, store, worker, clock):
        add(store, a_replacing_run())
        worker.run()
        add(store, second := a_replacing_run())
        store.cancel(second.id, now=clock.now())

        [answer] = store.add_runs([a_replacing_run()])

        assert answer.is_new

    def test_another_key_waits_beside_it(self, store):
        add(store, a_replacing_run(), a_replacing_run("waiting:send_email:4712"))

        assert len(all_runs(store)) == 2

    def test_a_run_that_does_not_replace_keeps_the_holder(self, store):
        add(store, first := a_replacing_run(args='{"n":1}'))

        [answer] = store.add_runs([a_run(overlap_key=KEY, args='{"n":2}')])

        assert answer == AddedRun(first.id, is_new=False)
        assert the_run(store, first).args == '{"n":1}'

    def test_within_one_call_the_last_one_wins(self, store):
        first, second, third = (a_replacing_run(args=f'{{"n":{n}}}') for n in range(3))
        other = a_replacing_run("waiting:send_email:4712")

        answers = store.add_runs([first, other, second, third])

        replaced = AddedRun(first.id, is_new=False, is_replaced=True)
        assert answers == [
            AddedRun(first.id, is_new=True),
            AddedRun(other.id, is_new=True),
            replaced,
            replaced,
        ]
        assert the_run(store, first).args == '{"n":2}'
        assert len(all_runs(store)) == 2

    def test_one_call_replaces_several_runs_and_adds_others(self, store, worker):
        claimed, *waiting = (a_replacing_run(f"waiting:a:{n}", priority=n) for n in range(4))
        add(store, claimed, *waiting)
        worker.claim_one()

        again = [a_replacing_run(f"waiting:a:{n}", args=f'{{"n":{n}}}') for n in (3, 5, 1, 0, 3)]
        answers = store.add_runs(again)

        assert [answer.is_replaced for answer in answers] == [True, False, True, False, True]
        assert [answer.run_id for answer in answers] == [
            *(waiting[2].id, again[1].id, waiting[0].id, again[3].id, waiting[2].id)
        ]
        assert [the_run(store, answer.run_id).args for answer in answers] == [
            run.args for run in again
        ]
        assert the_run(store, waiting[1]).args == "{}"

    def test_a_repeated_call_adds_no_run_twice(self, store):
        first, second = a_replacing_run(args='{"n":1}'), a_replacing_run(args='{"n":2}')
        store.add_runs([first])
        store.add_runs([second])

        answers = store.add_runs([first, second], may_be_stored=True)

        assert [answer.run_id for answer in answers] == [first.id, first.id]
        assert ids(all_runs(store)) == [first.id]
        assert the_run(store, first).args == '{"n":2}'


class TestReplacementsDueTimes:
    """Each dispatch delays the run, up to the longest wait since the first one."""

    def test_a_run_that_is_not_due_gets_the_due_time_of_the_last_dispatch(self, store):
        add(store, first := a_replacing_run(due_at=NOON + MINUTE))

        store.add_runs([a_replacing_run(created_at=NOON + SECOND, due_at=NOON + HOUR)])

        assert the_run(store, first).due_at == NOON + HOUR

    def test_it_can_become_due_earlier(self, store, worker):
        add(store, first := a_replacing_run(due_at=NOON + HOUR))

        store.add_runs([a_replacing_run()])

        assert the_run(store, first).phase is Phase.READY
        assert ids(worker.claim()) == [first.id]

    def test_a_run_that_is_due_keeps_its_due_time(self, store, worker, clock):
        add(store, first := a_replacing_run(), second := a_run(due_at=NOON, created_at=NOON))
        clock.advance(minutes=1)

        again = a_replacing_run(created_at=clock.now(), due_at=clock.now() + MINUTE)
        store.add_runs([again])

        assert the_run(store, first).due_at == NOON
        assert ids(worker.claim()) == [first.id, second.id]

    def test_a_run_that_is_due_and_was_not_staged_becomes_ready(self, store, worker, clock):
        add(store, first := a_replacing_run(due_at=NOON + SECOND))
        clock.advance(minutes=1)

        store.add_runs([a_replacing_run(created_at=clock.now(), due_at=clock.now() + MINUTE)])

        assert ids(worker.claim()) == [first.id]

    def test_the_longest_wait_counts_from_the_first_dispatch(self, store, worker, clock):
        longest = 3 * MINUTE
        add(store, first := a_replacing_run(longest=longest, due_at=NOON + MINUTE))
        for _ in range(4):
            clock.advance(seconds=50)
            now = clock.now()
            again = a_replacing_run(longest=longest, created_at=now, due_at=now + MINUTE)
            if now < NOON + longest:
                assert store.add_runs([again])[0].run_id == first.id

        assert the_run(store, first).due_at == NOON + longest

    def test_a_shorter_longest_wait_makes_it_due_at_once(self, store, worker, clock):
        add(store, first := a_replacing_run(due_at=NOON + HOUR))
        clock.advance(minutes=10)
        now = clock.now()

        store.add_runs([a_replacing_run(longest=MINUTE, created_at=now, due_at=now + MINUTE)])

        assert the_run(store, first).due_at == now
        assert ids(worker.claim()) == [first.id]

    def test_within_one_call_the_longest_wait_counts_too(self, store):
        first = a_replacing_run(due_at=NOON + MINUTE)
        second = a_replacing_run(
            longest=MINUTE, created_at=NOON + SECOND, due_at=NOON + SECOND + MINUTE
        )

        store.add_runs([first, second])

        assert the_run(store, first).due_at == NOON + MINUTE

    def test_the_expiry_counts_from_the_new_due_time(self, store, clock):
        add(store, first := a_replacing_run(due_at=NOON + MINUTE, longest=MINUTE))
        clock.advance(seconds=30)
        now = clock.now()
        due_at = now + MINUTE

        again = a_replacing_run(
            longest=MINUTE, created_at=now, due_at=due_at, expires_at=due_at + HOUR
        )
        store.add_runs([again])

        assert the_run(store, first).expires_at == NOON + MINUTE + HOUR

    def test_the_expiry_of_a_run_that_is_due_counts_from_the_last_dispatch(self, store, clock):
        add(store, first := a_replacing_run(expires_at=NOON + MINUTE))
        clock.advance(hours=1)
        now = clock.now()

        store.add_runs([a_replacing_run(created_at=now, expires_at=now + MINUTE)])

        assert the_run(store, first).expires_at == now + MINUTE


class TestReplacementsBlockedRuns:
    """A run that waits for a limit keeps its place, unless its limits change."""

    def test_it_stays_blocked_and_gets_the_arguments(self, store, worker):
        store.set_limits({LIMIT: 1})
        add(store, a_run(limit_keys=(LIMIT,)), first := a_replacing_run(limit_keys=(LIMIT,)))
        running = worker.claim_one()
        assert worker.claim() == []

        store.add_runs([a_replacing_run(limit_keys=(LIMIT,), args='{"n":2}')])

        found = the_run(store, first)
        assert (found.phase, found.blocked_on, found.args) == (Phase.BLOCKED, LIMIT, '{"n":2}')
        worker.record(running)
        assert [claim.args for claim in worker.claim()] == ['{"n":2}']

    def test_with_other_limits_it_is_ready_again(self, store, worker):
        store.set_limits({LIMIT: 1, OTHER_LIMIT: 1})
        add(store, a_run(limit_keys=(LIMIT,)), first := a_replacing_run(limit_keys=(LIMIT,)))
        worker.claim_one()
        assert worker.claim() == []

        store.add_runs([a_replacing_run(limit_keys=(OTHER_LIMIT,))])

        assert the_run(store, first).phase is Phase.READY
        assert ids(worker.claim()) == [first.id]


class TestReplacementsRandomly:
    """Any sequence of dispatches, claims and ends follows a model with three facts."""

    @pytest.mark.parametrize("seed", range(3))
    def test_model(self, store, worker, clock, seed):
        random = Random(seed)
        keys = [f"waiting:a:{n}" for n in range(3)]
        model: dict[str, dict[str, Any]] = {}
        held: list[Any] = []
        for number in range(60):
            now = clock.now()
            act = random.choice(["dispatch", "dispatch", "dispatch", "claim", "end", "advance"])
            if act == "dispatch":
                key, quiet = random.choice(keys), random.choice([0, 10, 60]) * SECOND
                longest = random.choice([None, 90 * SECOND])
                new = a_replacing_run(
                    key,
                    longest=longest,
                    created_at=now,
                    due_at=now + quiet,
                    args=f'{{"n":{number}}}',
                )
                [answer] = store.add_runs([new])
                old = model.get(key)
                assert answer.is_replaced == (old is not None)
                assert answer.run_id == (new.id if old is None else old["id"])
                due_at, first = new.due_at, now
                if old is not None:
                    first = old["first"]
                    if longest is not None:
                        due_at = max(now, min(due_at, first + longest))
                    due_at = old["due_at"] if old["due_at"] <= now else due_at
                model[key] = {
                    "id": answer.run_id, "first": first, "due_at": due_at, "args": new.args
                }  # fmt: skip
            elif act == "claim":
                store.stage(now=now, limit=100)
                claims = worker.claim()
                due = {key: one for key, one in model.items() if one["due_at"] <= now}
                assert {(claim.run_id, claim.args) for claim in claims} == {
                    (one["id"], one["args"]) for one in due.values()
                }
                model = {key: one for key, one in model.items() if key not in due}
                held += claims
            elif act == "end" and held:
                assert worker.record(held.pop(0)) == []
            else:
                clock.advance(seconds=random.choice([1, 20]))
                for claim in held:
                    worker.beat(claim, until=clock.now() + MINUTE)
        waiting = [run for run in all_runs(store) if run.token == 0]
        assert {(run.overlap_key, run.id, run.due_at, run.args) for run in waiting} == {
            (key, one["id"], one["due_at"], one["args"]) for key, one in model.items()
        }
