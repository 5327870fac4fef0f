from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork._domain.identity import RunId, ScheduleId
from tickwork._domain.limits.limits import (
    KEY_MAX,
    Candidate,
    Limit,
    Unique,
    UniqueKey,
    decide_grants,
    gate_of,
    held_key,
    is_kept_between_attempts,
    is_overlap_key,
    is_released_by_claim,
    limit_of,
    one_at_a_time,
    unique_key,
    waiting_key,
)
from tickwork._domain.names import NAME_MAX
from tickwork.errors import InvalidOption
from unit.builders import NOON

SCHEDULE = ScheduleId("019cb0d2-0000-7000-8000-000000000001")


def key(
    per: tuple[str, ...],
    *,
    job: str = "send",
    queue: str = "mail",
    tenant: str = "acme",
    **args: Any,
) -> str:
    return Limit(1, per=per).key(job=job, queue=queue, tenant=tenant, args=args)


class TestKeys:
    """Runs share a key exactly when they compete for the same slots."""

    @pytest.mark.parametrize(
        ("per", "text"),
        [
            (("job",), "job:send"),
            (("queue",), "queue:mail"),
            (("tenant",), 'tenant:send="acme"'),
            (("account",), "account:send=42"),
            (("missing",), "missing:send=null"),
            (("tenant", "queue"), 'tenant+queue:mail="acme"'),
            (("tenant", "account"), 'tenant+account:send=["acme",42]'),
            (("job", "account"), "job+account:send=42"),
        ],
    )
    def test_the_text(self, per, text):
        assert key(per, account=42) == text
        assert limit_of(text) == Limit(1, per=per).name(job="send", queue="mail")

    def test_limits_span_tenants_unless_per_contains_the_tenant(self):
        assert key(("account",), tenant="a", account=1) == key(("account",), tenant="b", account=1)
        assert key(("tenant",), tenant="a") != key(("tenant",), tenant="b")

    def test_values_of_different_types_are_different(self):
        assert len({key(("x",), x=x) for x in (1, "1", 1.0, True, None, [1])}) == 6

    def test_equal_values_are_equal_however_they_are_written(self):
        assert key(("x",), x={"a": 1, "b": 2}) == key(("x",), x={"b": 2, "a": 1})

    @given(st.text(st.characters(codec="ascii", exclude_characters="\x00"), min_size=300))
    def test_a_long_value_still_fits(self, value):
        made = key(("x" * 60,), job="j" * NAME_MAX, x=value)

        assert len(made) <= KEY_MAX
        assert limit_of(made) == f"{'x' * 60}:{'j' * NAME_MAX}"

    def test_long_values_stay_apart(self):
        assert key(("x",), x="a" * 500) != key(("x",), x="a" * 499 + "b")

    def test_parameters_are_the_other_parts(self):
        assert Limit(1, per=("tenant", "queue", "account")).parameters == ("account",)

    @pytest.mark.parametrize("name", ["job:send", "account:send=42", one_at_a_time(SCHEDULE)])
    def test_every_key_has_a_gate(self, name):
        assert 0 <= gate_of(name) < 1024

    def test_gates_never_move(self):
        # Workers of two releases must lock the same row.
        assert gate_of("job:send") == 177

    @pytest.mark.parametrize(
        ("slots", "per"),
        [
            (0, ("job",)),
            (-1, ("job",)),
            (1_000_001, ("job",)),
            (1, ()),
            (1, ("a", "a")),
            (1, ("not a name",)),
            (1, ("x" * 61,)),
        ],
    )
    def test_an_invalid_limit_is_an_error(self, slots, per):
        with pytest.raises(InvalidOption):
            Limit(slots, per=per)


def candidates(*keys: Iterable[str]) -> list[Candidate]:
    return [Candidate(RunId(f"run-{number}"), tuple(each)) for number, each in enumerate(keys, 1)]


class TestGranting:
    """Slots are given in claim order, and never more than there are."""

    def test_runs_without_keys_pass(self):
        grants = decide_grants(candidates([], []), taken={}, slots_by_limit={})

        assert grants.granted == ["run-1", "run-2"]

    def test_the_first_come_until_it_is_full(self):
        grants = decide_grants(
            candidates(["job:a"], ["job:a"], ["job:a"]),
            taken={"job:a": 1},
            slots_by_limit={"job:a": 3},
        )

        assert grants.granted == ["run-1", "run-2"]
        assert grants.blocked_on == {"run-3": "job:a"}

    def test_a_run_needs_all_of_its_keys(self):
        grants = decide_grants(
            candidates(["job:a", "queue:q"], ["queue:q"]),
            taken={"job:a": 1},
            slots_by_limit={"job:a": 1, "queue:q": 1},
        )

        assert grants.granted == ["run-2"]
        assert grants.blocked_on == {"run-1": "job:a"}

    def test_a_run_that_gets_nothing_takes_nothing(self):
        grants = decide_grants(
            candidates(["queue:q", "job:a"], ["queue:q"], ["queue:q"]),
            taken={"job:a": 1},
            slots_by_limit={"job:a": 1, "queue:q": 1},
        )

        assert grants.granted == ["run-2"]
        assert grants.blocked_on == {"run-1": "job:a", "run-3": "queue:q"}

    def test_values_of_one_limit_are_counted_apart(self):
        grants = decide_grants(
            candidates(["x:a=1"], ["x:a=1"], ["x:a=2"]), taken={}, slots_by_limit={"x:a": 1}
        )

        assert grants.granted == ["run-1", "run-3"]
        assert grants.blocked_on == {"run-2": "x:a=1"}

    def test_a_run_stays_ready_if_another_process_holds_its_gate(self):
        grants = decide_grants(
            candidates(["job:a"], ["job:b"], []),
            taken={},
            slots_by_limit={"job:a": 1, "job:b": 1},
            gates={gate_of("job:b")},
        )

        assert grants.left_ready == ["run-1"]
        assert grants.granted == ["run-2", "run-3"]

    @pytest.mark.parametrize("slots_by_limit", [{}, {"job:a": 0}])
    def test_a_limit_that_was_lifted_limits_nothing(self, slots_by_limit):
        grants = decide_grants(
            candidates(["job:a"], ["job:a"]), taken={"job:a": 7}, slots_by_limit=slots_by_limit
        )

        assert len(grants.granted) == 2

    def test_a_limit_that_was_lowered_grants_nothing_until_there_is_room(self):
        grants = decide_grants(
            candidates(["job:a"]), taken={"job:a": 5}, slots_by_limit={"job:a": 2}
        )

        assert grants.blocked_on == {"run-1": "job:a"}

    def test_a_schedule_whose_runs_queue_up_has_one_slot(self):
        only = one_at_a_time(SCHEDULE)

        grants = decide_grants(candidates([only], [only]), taken={}, slots_by_limit={})

        assert grants.granted == ["run-1"]
        assert grants.blocked_on == {"run-2": only}

    def test_room_that_a_blocked_run_leaves_is_handed_on(self):
        # Both were unblocked because job:a had room. Now that one waits for queue:q,
        # another run that waits for job:a must be unblocked, or none ever is.
        grants = decide_grants(
            candidates(["job:a", "queue:q"]),
            taken={"queue:q": 1},
            slots_by_limit={"job:a": 2, "queue:q": 1},
        )

        assert grants.room_by_key == {"job:a": 2}

    def test_room_that_was_taken_after_all_is_not_handed_on(self):
        grants = decide_grants(
            candidates(["job:a", "queue:q"], ["job:a"]),
            taken={"queue:q": 1},
            slots_by_limit={"job:a": 1, "queue:q": 1},
        )

        assert grants.room_by_key == {}

    @given(
        st.lists(st.lists(st.sampled_from("abc"), unique=True), max_size=12),
        st.dictionaries(st.sampled_from("abc"), st.integers(0, 4)),
        st.dictionaries(st.sampled_from("abc"), st.integers(0, 4)),
        st.none() | st.sets(st.sampled_from([gate_of(name) for name in "abc"])),
    )
    def test_no_limit_is_exceeded_and_no_run_forgotten(self, keys, taken, slots, gates):
        offered = candidates(*keys)

        grants = decide_grants(offered, taken=taken, slots_by_limit=slots, gates=gates)

        keys_by_run = dict(offered)
        assert sorted([*grants.granted, *grants.blocked_on, *grants.left_ready]) == sorted(
            keys_by_run
        )
        for name, limit in slots.items():
            new = sum(name in keys_by_run[run] for run in grants.granted)
            assert not limit or not new or taken.get(name, 0) + new <= limit
        for run, full in grants.blocked_on.items():
            assert full in keys_by_run[run]
            assert full not in grants.room_by_key


class TestUniqueness:
    """A key contains what the policy names, and tenants never share one."""

    def made(
        self, unique: Unique, *, job: str = "send", tenant: str = "", **args: Any
    ) -> UniqueKey:
        return unique_key(unique, job=job, tenant=tenant, args=args, now=NOON)

    def test_all_arguments_count_by_default(self):
        assert self.made(Unique(), a=1, b=2) == self.made(Unique(), b=2, a=1)
        assert self.made(Unique(), a=1) != self.made(Unique(), a=2)

    def test_only_those_that_are_named(self):
        by_a = Unique(by=("a",))

        assert self.made(by_a, a=1, b=2) == self.made(by_a, a=1, b=3)
        assert self.made(by_a, a=1) != self.made(by_a, a=2)

    def test_a_key_of_ones_own(self):
        assert self.made(Unique(key="x"), a=1) == self.made(Unique(key="x"), a=2)
        assert self.made(Unique(key="x")) != self.made(Unique(key="y"))

    def test_jobs_and_tenants_are_apart(self):
        keys = {
            self.made(Unique(), job=job, tenant=tenant).key
            for job in ("send", "sweep")
            for tenant in ("", "acme")
        }

        assert len(keys) == 4

    def test_a_key_of_ones_own_is_no_argument(self):
        assert self.made(Unique(key="x")).key != self.made(Unique(), key="x").key

    def test_without_a_window_it_ends_with_the_run(self):
        assert self.made(Unique()).until is None

    def test_a_window_outlives_the_run(self):
        assert self.made(Unique(within=timedelta(hours=1))).until == NOON + timedelta(hours=1)

    @pytest.mark.parametrize("options", [{"key": "x", "by": ("a",)}, {"within": timedelta(0)}])
    def test_invalid_policies_are_errors(self, options):
        with pytest.raises(InvalidOption):
            Unique(**options)


class TestOverlapKeys:
    """Three keys of one schedule, each with a meaning of its own."""

    def test_they_are_apart(self):
        assert len({held_key(SCHEDULE), waiting_key(SCHEDULE), one_at_a_time(SCHEDULE)}) == 3

    def test_a_unique_key_is_never_taken_for_one(self):
        assert is_overlap_key(held_key(SCHEDULE))
        assert is_overlap_key(waiting_key(SCHEDULE))
        for job in ("held", "waiting", "send"):
            unique = unique_key(Unique(), job=job, tenant="", args={}, now=NOON)
            assert not is_overlap_key(unique.key)

    def test_a_claim_frees_the_waiting_key_only(self):
        assert is_released_by_claim(waiting_key(SCHEDULE))
        assert not is_released_by_claim(held_key(SCHEDULE))

    def test_only_the_schedules_own_slot_is_kept_for_a_retry(self):
        assert is_kept_between_attempts(one_at_a_time(SCHEDULE))
        assert not is_kept_between_attempts("job:send")
