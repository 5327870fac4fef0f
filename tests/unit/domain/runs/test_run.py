from dataclasses import replace
from typing import Any

import pytest

from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import OWN_FIELDS, Claim, NewRun, Run, check_claim, run_again
from tickwork._domain.runs.status import PHASES, Phase, RunStatus
from tickwork.errors import NaiveDatetime
from unit.builders import MINUTE, NOON, SECOND, a_claim

ID = RunId("019cb0d2-0000-7000-8000-000000000001")


def a_new_run(**options: Any) -> NewRun:
    facts: dict[str, Any] = {"id": ID, "job": "sweep", "created_at": NOON, "due_at": NOON}
    return NewRun(**facts | options)


def a_run(**options: Any) -> Run:
    facts: dict[str, Any] = {
        "id": ID,
        "job": "sweep",
        "status": RunStatus.PENDING,
        "phase": Phase.READY,
        "created_at": NOON,
        "due_at": NOON,
    }
    return Run(**facts | options)


class TestNewRun:
    """A run on its way in knows everything but who will claim it."""

    def test_its_defaults(self):
        run = a_new_run()

        assert (run.tenant, run.queue, run.priority, run.args) == ("", "default", 100, "{}")
        assert (run.attempts_max, run.overlap_key, run.limit_keys) == (1, None, ())

    @pytest.mark.parametrize(
        ("due_at", "phase"),
        [(NOON - MINUTE, Phase.READY), (NOON, Phase.READY), (NOON + SECOND, Phase.WAITING)],
    )
    def test_it_waits_only_if_it_is_not_due_yet(self, due_at, phase):
        assert a_new_run(due_at=due_at).phase is phase


class TestClaim:
    """A claim is a plain tuple; what only a broken store gets wrong is checked once."""

    def test_it_knows_its_last_attempt(self):
        assert not a_claim(attempt=1, attempts_max=2).is_last_attempt
        assert a_claim(attempt=2, attempts_max=2).is_last_attempt

    def test_it_knows_whether_a_schedule_made_it(self):
        assert a_claim(schedule="nightly", nominal_at=NOON).is_fired
        assert not a_claim().is_fired

    def test_a_valid_claim_passes(self):
        claim = a_claim()

        assert check_claim(claim) is claim

    @pytest.mark.parametrize(
        "broken",
        [
            {"attempt": 0},
            {"attempt": 2, "attempts_max": 1},
            {"token": 0},
            {"crashes": -1},
            {"lease_until": NOON.replace(tzinfo=None)},
        ],
        ids=str,
    )
    def test_an_invalid_claim_does_not(self, broken):
        claim: Claim = a_claim(**broken)

        with pytest.raises(AssertionError):
            check_claim(claim)


class TestRun:
    """A run that is read back agrees with the tables of statuses and phases."""

    @pytest.mark.parametrize("status", RunStatus)
    @pytest.mark.parametrize("phase", Phase)
    def test_status_and_phase_go_together(self, status, phase):
        facts = {
            "status": status,
            "phase": phase,
            "blocked_on": "job:sweep" if phase is Phase.BLOCKED else None,
            "lease_until": NOON if status is RunStatus.RUNNING else None,
        }

        if phase in PHASES[status]:
            assert a_run(**facts).phase is phase
        else:
            with pytest.raises(AssertionError):
                a_run(**facts)

    def test_a_finished_one_has_an_end_and_no_phase(self):
        run = a_run(status=RunStatus.COMPLETED, phase=None, ended_at=NOON)

        assert run.is_finished
        with pytest.raises(AssertionError):
            replace(run, ended_at=None)
        with pytest.raises(AssertionError):
            replace(run, status=RunStatus.PENDING)

    @pytest.mark.parametrize(
        "options",
        [
            {"phase": Phase.BLOCKED},
            {"blocked_on": "job:sweep"},
            {"lease_until": NOON},
            {"status": RunStatus.RUNNING, "phase": Phase.RUNNING},
        ],
        ids=str,
    )
    def test_an_invalid_run_is_an_error(self, options):
        with pytest.raises(AssertionError):
            a_run(**options)

    def test_an_unfinished_one_is_not_finished(self):
        assert not a_run().is_finished


class TestWhenARunIsDue:
    """A run that waits is due from its instant on, and overdue after it."""

    @pytest.mark.parametrize(
        ("now", "is_due", "is_overdue"),
        [(NOON - SECOND, False, False), (NOON, True, False), (NOON + SECOND, True, True)],
    )
    def test_a_waiting_run(self, now, is_due, is_overdue):
        run = a_run()

        assert (run.is_due(now), run.is_overdue(now)) == (is_due, is_overdue)
        assert run.next_attempt_at == NOON

    def test_a_failed_run_waits_for_its_retry(self):
        run = a_run(status=RunStatus.FAILED, phase=Phase.WAITING, due_at=NOON + MINUTE)

        assert not run.is_due(NOON)
        assert run.next_attempt_at == NOON + MINUTE

    @pytest.mark.parametrize(
        "options",
        [
            {"status": RunStatus.RUNNING, "phase": Phase.RUNNING, "lease_until": NOON + MINUTE},
            {"status": RunStatus.COMPLETED, "phase": None, "ended_at": NOON},
            {"status": RunStatus.CANCELED, "phase": None, "ended_at": NOON},
        ],
        ids=lambda options: options["status"].value,
    )
    def test_a_run_that_runs_or_has_finished_has_no_next_attempt(self, options):
        run = a_run(**options)

        assert run.next_attempt_at is None
        assert not run.is_due(NOON + MINUTE)
        assert not run.is_overdue(NOON + MINUTE)

    def test_a_naive_instant_is_refused(self):
        with pytest.raises(NaiveDatetime):
            a_run().is_due(NOON.replace(tzinfo=None))


class TestRunAgain:
    """A retry is a new run with everything that the finished one had, except its own fields."""

    FACTS: dict[str, Any] = {  # noqa: RUF012
        "job": "render",
        "tenant": "acme",
        "queue": "slow",
        "priority": 7,
        "args": '{"page":1}',
        "tags": ("a",),
        "attempts_max": 5,
        "limit_keys": ("job:render",),
        "schedule": "nightly",
        "nominal_at": NOON - MINUTE,
        "target": "order-1",
    }

    def test_each_field_is_copied_or_is_its_own(self):
        assert self.FACTS.keys() | OWN_FIELDS == set(NewRun._fields)
        assert OWN_FIELDS.isdisjoint(self.FACTS)

    def test_no_field_is_lost(self):
        own = {"expires_at": NOON, "overlap_key": "held:1", "retry_of": ID, "trace": "00-1"}
        old = a_run(status=RunStatus.COMPLETED, phase=None, ended_at=NOON, **self.FACTS, **own)
        new_id = RunId(ID.replace("1", "2"))
        again = run_again(old, new_id, now=NOON + MINUTE)

        assert {name: getattr(again, name) for name in self.FACTS} == self.FACTS
        assert again == NewRun(
            id=new_id,
            created_at=NOON + MINUTE,
            due_at=NOON + MINUTE,
            retry_of=ID,
            **self.FACTS,
        )
        plain = a_new_run()
        assert [name for name in self.FACTS if getattr(plain, name) == self.FACTS[name]] == []
