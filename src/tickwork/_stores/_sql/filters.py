"""Composes the SQL of lists, whose filters vary: the only SQL that is built at run time."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from tickwork._domain.runs.status import FINAL, RunStatus
from tickwork._kernel.ids import first_id
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import micros
from tickwork._stores._sql.statement import Statement
from tickwork._stores.contract import RunFilter

ID_AHEAD_MAX: Final = timedelta(days=1)
"""An id has the time at which its run was created, or the instant of the firing, which is earlier.
A day more is for machines whose clocks differ."""


LOOKUP_COST: Final = 10
"""How many rows in the order of ids are read in the time of one look-up by another index."""


class _Conditions(NamedTuple):
    """The conditions of a filter: those that an index answers, and those on each row."""

    indexed: list[str]
    others: list[str]
    params: dict[str, Any]

    @property
    def is_secondary(self) -> bool:
        """Whether the index is not that of ids: each of its rows must be looked up."""
        names = (":job", ":schedule", "unsuccessful")
        return any(name in term for term in self.indexed for name in names)


def filter_runs(  # the parameters of a page
    query: Queries,
    name: str,
    where: RunFilter,
    *,
    cursor: str | None,
    limit: int,
    floor: str | None = None,
) -> Statement:
    """A list query with the conditions of this filter only; ``floor`` is the smallest id.

    An unused condition (``:job IS NULL OR job = :job``) could prevent the use of an index.
    """
    conditions = _conditions(where, cursor, is_history="history" in name)
    terms = [*conditions.indexed, *conditions.others]
    if floor is not None:
        terms.append("id >= :floor")
        conditions.params["floor"] = floor
    return _compose(query, name, terms, "LIMIT :limit", conditions.params | {"limit": limit})


def find_floor(
    query: Queries, name: str, where: RunFilter, *, cursor: str | None, scan_max: int
) -> Statement | None:
    """Select the id of the last row that a search may read; None if the search needs no bound.

    Only conditions that an index answers count: other rows are read to be left out.
    """
    conditions = _conditions(where, cursor, is_history="history" in name)
    if not conditions.others:
        return None
    if conditions.is_secondary:
        scan_max = -(-scan_max // LOOKUP_COST)
    params = conditions.params | {"scan_max": scan_max}
    return _compose(query, name, conditions.indexed, "LIMIT 1 OFFSET :scan_max", params)


def _compose(
    query: Queries, name: str, terms: Sequence[str], ending: str, params: dict[str, Any]
) -> Statement:
    conditions = f"WHERE {' AND '.join(terms)}\n" if terms else ""
    return query.compose(name, f"{conditions}ORDER BY id DESC\n{ending}", params)


def _conditions(where: RunFilter, cursor: str | None, *, is_history: bool) -> _Conditions:
    conditions = _Conditions([], [], {})
    indexed, others, params = conditions
    if cursor is not None:
        indexed.append("id < :cursor")
        params["cursor"] = cursor
    if where.before is not None:
        # The id bounds what is read.
        indexed += ["id < :before_id", "created_at < :before"]
        params["before_id"] = first_id(_later(where.before))
        params["before"] = micros(where.before)
    by_index: set[str] = set()
    if where.schedule is not None and where.tenant is not None:
        by_index = {"schedule", "tenant"}
    elif is_history:
        by_index = {"job"}
    for name in ("tenant", "job", "queue", "schedule", "worker"):
        if (value := getattr(where, name)) is not None:
            (indexed if name in by_index else others).append(f"{name} = :{name}")
            params[name] = value
    if where.tag is not None:
        others.append("{has_tag}")
        params["tag"] = f" {json.dumps(where.tag)}"  # as it is stored
    if where.since is not None:
        others.append("created_at >= :since")
        params["since"] = micros(where.since)
    if where.is_suspended:
        others.append("phase = 'waiting' AND status = 'pending' AND links & 8 <> 0")
    if where.ended_since is not None:
        if is_history:
            others.append("ended_at >= :ended_since")
            params["ended_since"] = micros(where.ended_since)
        else:
            others.append("attempt > 0")
    if where.is_retry is not None:
        others.append("retry_of IS NOT NULL" if where.is_retry else "retry_of IS NULL")
    _add_statuses(conditions, where, is_history=is_history)
    return conditions


def _add_statuses(conditions: _Conditions, where: RunFilter, *, is_history: bool) -> None:
    # Of the statuses that rows of this table can have.
    possible = FINAL if is_history else frozenset(RunStatus) - FINAL
    wanted = where.statuses & possible
    if not wanted or wanted == possible:
        return
    if wanted == {RunStatus.RUNNING}:
        conditions.indexed.append("{is_running}")  # the same condition, by an index
        return
    if is_history and RunStatus.COMPLETED not in wanted and where.job is None:
        conditions.indexed.append("{is_unsuccessful}" if len(wanted) == 1 else "{are_unsuccessful}")
    names = [f"status_{place}" for place in range(len(wanted))]
    conditions.others.append(f"status IN ({', '.join(':' + name for name in names)})")
    statuses = sorted(RunStatus(status).value for status in wanted)
    conditions.params.update(zip(names, statuses, strict=True))


def _later(moment: datetime) -> datetime:
    latest = datetime.max.replace(tzinfo=UTC) - ID_AHEAD_MAX
    return min(moment, latest) + ID_AHEAD_MAX
