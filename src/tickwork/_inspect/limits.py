"""Limits as people see them: in code, overridden, in force, and who holds their slots."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tickwork._domain.identity import RunId
from tickwork._domain.limits.limits import limit_of
from tickwork._domain.limits.rates import is_rate, window_of
from tickwork._stores.contract import LimitRow, Store

HOLDERS_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitView:
    """A limit: in code, an override, and the one in force."""

    name: str
    slots: int  # in code; 0: no limit
    override: int | None
    in_force: int
    taken: int | None  # slots; null for a rate limit, and for a limit with one count for each value
    started: int | None  # runs in the window of a rate limit that has one count; null for others
    holders: list[RunId]  # the first runs that hold slots


def view_limits(store: Store, rows: Sequence[LimitRow], *, now: datetime) -> list[LimitView]:
    counted = [row.name for row in rows if _has_one_count(row.name)]
    started = store.count_starts(
        {row.name: now - window_of(row.name) for row in rows if _is_one_rate(row.name)}
    )
    taken = store.count_taken(counted)
    return [
        LimitView(
            name=row.name,
            slots=row.slots,
            override=row.override,
            in_force=row.in_force,
            taken=taken.get(row.name, 0) if row.name in counted else None,
            started=started.get(row.name),
            holders=store.slot_holders(row.name, limit=HOLDERS_MAX) if taken.get(row.name) else [],
        )
        for row in rows
    ]


def _has_one_count(name: str) -> bool:
    return not is_rate(name) and _counts_all(name)


def _is_one_rate(name: str) -> bool:
    return is_rate(name) and _counts_all(name)


def _counts_all(name: str) -> bool:
    """Whether a limit counts all runs of a job or of a queue together: not by tenant or value."""
    parts = name.partition(":")[0].partition("/")[0].split("+")
    return limit_of(name) == name and {"job", "queue"}.issuperset(parts)
