from datetime import timedelta
from typing import Any

import pytest

from tickwork._domain.limits.debounce import Debounce, debounce_key, is_debounced, replace_key
from tickwork._domain.limits.limits import (
    OnConflict,
    Unique,
    is_overlap_key,
    is_released_by_claim,
    unique_key,
)
from tickwork._domain.names import NAME_MAX
from tickwork.errors import InvalidOption
from unit.builders import NOON

SECOND = timedelta(seconds=1)
DEBOUNCE = Debounce(quiet=SECOND)
REPLACE = Unique(on_conflict=OnConflict.REPLACE)


class TestKeys:
    """A claim frees the key. Jobs, tenants and the two options share none."""

    def test_keys_differ(self):
        facts: list[dict[str, Any]] = [
            {"job": job, "tenant": tenant, "args": {"doc": doc}}
            for job in ("index", "sync")
            for tenant in ("", "acme")
            for doc in (7, "7")
        ]
        keys = [debounce_key(DEBOUNCE, **each) for each in facts]
        keys += [replace_key(REPLACE, **each) for each in facts]
        keys += [unique_key(Unique(), now=NOON, **each).key for each in facts]

        assert len(set(keys)) == len(keys)

    def test_only_the_named_arguments_count(self):
        by_doc = Debounce(quiet=SECOND, by=("doc",))

        def key(**args: object) -> str:
            return debounce_key(by_doc, job="index", tenant="", args=args)

        assert key(doc=7, text="a") == key(doc=7, text="b") != key(doc=8, text="a")

    @pytest.mark.parametrize("job", ["index", "held:x", "j" * NAME_MAX])
    def test_a_claim_frees_it_and_no_schedule_has_it(self, job):
        keys = [
            debounce_key(DEBOUNCE, job=job, tenant="", args={}),
            replace_key(REPLACE, job=job, tenant="", args={}),
        ]

        for key in keys:
            assert is_released_by_claim(key)
            assert not is_overlap_key(key)
            assert len(key) <= 512
        assert [is_debounced(key) for key in keys] == [True, False]


class TestOption:
    """The lengths fit together."""

    def test_the_longest_wait_may_be_the_quiet_period(self):
        assert Debounce(quiet=SECOND, max=SECOND).max == SECOND

    @pytest.mark.parametrize(
        "given", [{"quiet": timedelta(0)}, {"quiet": 2 * SECOND, "max": SECOND}]
    )
    def test_others_are_errors(self, given):
        with pytest.raises(InvalidOption):
            Debounce(**given)
