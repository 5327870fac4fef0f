from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from oracle.store.rows import replace_fields
from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import Phase, RunStatus
from unit.builders import NOON, a_schedule

RUN = Run(
    id=RunId("a"),
    job="send_email",
    status=RunStatus.PENDING,
    phase=Phase.READY,
    created_at=NOON,
    due_at=NOON,
)


class TestChangedRows:
    """What ``dataclasses.replace`` does, at a fraction of its price."""

    @pytest.mark.parametrize("row", [RUN, a_schedule()], ids=["run", "schedule"])
    def test_without_a_change_it_is_an_equal_row_of_the_same_kind(self, row):
        copy = replace_fields(row)

        assert copy == row
        assert type(copy) is type(row)
        assert copy is not row

    def test_it_gives_what_replace_gives(self):
        changes: dict[str, Any] = {"priority": 3, "tags": ("a",), "phase": Phase.WAITING}

        assert replace_fields(RUN, **changes) == replace(RUN, **changes)
        assert RUN.priority == 100

    def test_the_copy_is_frozen_too(self):
        with pytest.raises(FrozenInstanceError):
            setattr(replace_fields(RUN, priority=3), "priority", 4)  # noqa: B010  # mypy knows better

    def test_a_row_that_cannot_be_is_refused(self):
        with pytest.raises(AssertionError):
            replace_fields(RUN, phase=Phase.RUNNING)

    def test_a_field_that_is_not_there_is_refused(self):
        with pytest.raises(TypeError, match="has no field colour"):
            replace_fields(RUN, colour="red")
