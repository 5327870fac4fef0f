"""Merges consecutive equal skips of a schedule into one row that counts them."""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Self

from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.run import Claim
from tickwork._domain.transitions import Transition
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.rows import micros
from tickwork.stores._sql.statement import Operation, Row, WriteConflict


class SkipMark(NamedTuple):
    """The newest row of skips of a schedule, its reason and its last instant."""

    run_id: str
    reason: str
    last_at: int
    next_at: int | None  # the first unfinished firing after it, if there is one


def _is_mark(run_id: object, reason: object, last_at: object, next_at: object) -> bool:
    return (
        isinstance(run_id, str)
        and isinstance(reason, str)
        and isinstance(last_at, int)
        and isinstance(next_at, int | None)
    )


class SkipMerger:
    """Decides which skips are merged into the row of the firing before them."""

    def __init__(self, marks: dict[tuple[str, str], SkipMark]) -> None:
        self._marks = marks
        self._changed: set[tuple[str, str]] = set()
        self._merged: dict[str, Row] = {}  # by the id of the row that counts them

    @classmethod
    def read(cls, query: Queries, schedules: Collection[tuple[str, str]]) -> Operation[Self]:
        """Read the marks of these schedules, by (tenant, name).

        It locks the marks, so that two transactions that change one row run one after the other.
        """
        names = [list(schedule) for schedule in sorted(schedules)]
        yield query.command("lock_marks", names=names)
        rows = yield query("skip_marks", names=names)
        # A mark that cannot be read is replaced by the next one.
        return cls({(row[0], row[1]): SkipMark(*row[2:6]) for row in rows if _is_mark(*row[2:6])})

    def has(self, schedule: tuple[str, str], *, reason: str, at: int) -> bool:
        """Whether this instant is in the newest row already."""
        mark = self._marks.get(schedule)
        return mark is not None and mark.reason == reason and at <= mark.last_at

    def add(
        self,
        schedule: tuple[str, str],
        *,
        run_id: str,
        reason: str,
        first_at: int,
        last_at: int,
        instants: int,
        now: int,
        may_merge: bool = True,
    ) -> bool:
        """Add a skip; return True when it is merged and needs no row of its own."""
        mark = self._marks.get(schedule)
        if (
            may_merge
            and mark is not None
            and mark.reason == reason
            and mark.last_at < first_at
            and (mark.next_at is None or mark.next_at >= first_at)
        ):
            before = self._merged.get(mark.run_id, (0,))[0]
            self._merged[mark.run_id] = (before + instants, last_at, now, mark.run_id)
            self._marks[schedule] = mark._replace(last_at=last_at)
            self._changed.add(schedule)
            return True
        if mark is None or mark.last_at < last_at:
            next_at = None if mark is None else mark.next_at
            self._marks[schedule] = SkipMark(run_id, reason, last_at, next_at)
            self._changed.add(schedule)
        return False

    def write(self, query: Queries) -> Operation[None]:
        """Write the merged rows and the marks of the schedules."""
        if self._merged:
            count = (yield query("merge_skips", many=list(self._merged.values())))[0][0]
            if count != len(self._merged):
                # Their row was pruned in the meantime: these skips would not be counted.
                raise WriteConflict
        if self._changed:
            rows = []
            for schedule in sorted(self._changed):
                mark = self._marks[schedule]
                rows.append((mark.run_id, mark.reason, mark.last_at, *schedule))
            yield query.command("set_skip_marks", many=rows)


def may_merge(step: Transition) -> bool:
    """Whether the run was skipped at its first claim. Any other has attempts, and keeps its row."""
    return step.outcome is OutcomeKind.SKIPPED and step.claim.is_fired and step.claim.token == 1


def schedule_of(claim: Claim) -> tuple[str, str]:
    """The schedule that made this run, by (tenant, name)."""
    assert claim.schedule is not None, claim
    return (claim.tenant, claim.schedule)


def instant_of(claim: Claim) -> int:
    """The instant of the schedule that this run was created for."""
    assert claim.nominal_at is not None, claim
    return micros(claim.nominal_at)


def mark_skips(query: Queries, steps: Sequence[Transition]) -> Operation[None]:
    """Merge skipped runs of schedules; any other result ends a sequence of skips."""
    skipped = [step for step in steps if step.outcome is OutcomeKind.SKIPPED]
    ended = {
        (*schedule_of(step.claim), instant_of(step.claim))
        for step in steps
        if step.outcome is not OutcomeKind.SKIPPED
    }
    if ended:
        yield query.command("clear_skip_marks", many=sorted(ended))
    if not skipped:
        return
    merger = yield from SkipMerger.read(query, {schedule_of(step.claim) for step in skipped})
    dropped: list[Row] = []
    for step in sorted(skipped, key=lambda step: instant_of(step.claim)):
        at = instant_of(step.claim)
        is_merged = merger.add(
            schedule_of(step.claim),
            run_id=step.claim.run_id,
            reason=step.reason,
            first_at=at,
            last_at=at,
            instants=1,
            now=micros(step.ended_at),
            may_merge=may_merge(step),
        )
        if is_merged:
            dropped.append((step.claim.run_id,))
    yield from merger.write(query)
    if dropped:
        yield query.command("drop_history", many=dropped)
