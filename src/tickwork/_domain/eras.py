"""Where ready runs can be, while a long transaction keeps the dead rows of a database.

A *boundary* is a transaction number that moves up now and then. Each ready run has an *era*: the
boundary, or the number of the transaction that made it ready, whichever is lower. A claim reads the
eras that can have rows, each from its first row on, and so it reads no dead rows of other eras.

The rules here are pure: they decide what a worker knows after a look at the database. The
proof is in ``docs/adr/0026-eras.md``.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

LAST_ERA: Final = 2**63 - 1

FRONTS_MAX: Final = 16
"""The most fronts that a worker remembers; the oldest become one."""

UNCOMPLETED_MAX: Final = 10_000
"""Between a snapshot and a transaction. Savepoints of other programs may have used more numbers."""


class FirstRun(NamedTuple):
    """An era, and where its ready runs begin in the order of claims."""

    era: int
    priority: int = -(2**31)
    due_at: int = -(2**63)  # microseconds
    run_id: str = "00000000-0000-0000-0000-000000000000"

    @property
    def key(self) -> tuple[int, int, str]:
        return self[1:]


class TransactionSnapshot(NamedTuple):
    """Which transactions had ended at a moment: those below ``end`` that are not ``running``."""

    end: int
    running: frozenset[int] = frozenset()

    def has_ended(self, number: int) -> bool:
        return number < self.end and number not in self.running

    def unended(self, low: int, high: int) -> frozenset[int]:
        """The transactions from ``low`` to below ``high`` that had not ended.

        A snapshot ends with the last transaction that *completed*. Later numbers count as running.
        """
        running = {number for number in self.running if low <= number < high}
        return frozenset(running.union(range(max(low, self.end), high)))


class Front(NamedTuple):
    """Eras from ``low`` to below ``high`` that get rows when one of the ``late`` commits."""

    low: int
    high: int
    late: frozenset[int]


class EraLook(NamedTuple):
    """What one statement of the transaction ``number`` saw.

    It read the boundary before the transaction got its number. ``found`` are the first runs of the
    eras that it searched from their beginning, ``moved`` those of eras whose first run was known.
    """

    boundary: int
    number: int
    snapshot: TransactionSnapshot
    found: Collection[FirstRun] = ()
    moved: Collection[FirstRun] = ()
    is_first: bool = True  # whether it was the first statement of its transaction with a number


class EraMap(NamedTuple):
    """What a worker knows. Ready runs are in the current era and in ``rest``; nowhere else.

    New rows appear in the era of the ``boundary`` as long as the boundary stays, and in a front
    when one of its late transactions has ended. Rows of other eras can only leave.
    """

    boundary: int | None = None  # None: nothing is known
    fronts: tuple[Front, ...] = ()
    rest: tuple[FirstRun, ...] = ()  # in the order of claims

    @property
    def is_simple(self) -> bool:
        """Whether all ready runs are in the current era."""
        return self.boundary is not None and not self.fronts and not self.rest

    @property
    def late(self) -> frozenset[int]:
        return frozenset[int]().union(*(front.late for front in self.fronts))

    @property
    def eras(self) -> list[int]:
        return [self.boundary or 0, *(first.era for first in self.rest)]

    def heads(self, most: int) -> tuple[list[FirstRun], FirstRun | None]:
        """Where the first runs of all are: the current era, and at most ``most - 1`` others.

        The second value is the first run of the next era, if there are more: no run from there on
        may be claimed before the others are known to be claimed.
        """
        heads = [FirstRun(self.boundary or 0), *self.rest[: most - 1]]
        return heads, next(iter(self.rest[most - 1 :]), None)

    def spans(self) -> list[tuple[int, int, int | None]]:
        """What the next look searches from the beginning: eras from, and below, one number.

        The third value is the late transaction that must have ended first.
        """
        return [
            (self.boundary or 0, LAST_ERA, None),
            *((front.low, front.high, late) for front in self.fronts for late in front.late),
        ]


NOTHING_KNOWN: Final = EraMap()


def learn(known: EraMap, look: EraLook, *, looked_up: int) -> EraMap:
    """Return what a worker knows after a look that was made with ``known``.

    ``looked_up`` is the number of eras in ``rest`` whose first run the look searched for.
    """
    low = known.boundary or 0
    ended = [front for front in known.fronts if any(map(look.snapshot.has_ended, front.late))]
    searched = [*ended, Front(low, LAST_ERA, frozenset())]
    firsts = {first.era: first for first in (*known.rest[looked_up:], *look.moved)}
    rest = [
        *(first for first in firsts.values() if not _is_in(first.era, searched)),
        *(first for first in look.found if first.era != look.boundary),
    ]
    fronts = [
        front._replace(late=frozenset(n for n in front.late if not look.snapshot.has_ended(n)))
        for front in known.fronts
    ]
    if is_sound(known, look) and (known.boundary is None or look.boundary > known.boundary):
        # A transaction with a higher number read the boundary later, so its eras are not below it.
        late = look.snapshot.unended(low, look.number)
        fronts.append(Front(low, look.boundary, late))
    return EraMap(
        look.boundary,
        tuple(_merge([front for front in fronts if front.late])),
        tuple(sorted(rest, key=lambda first: first.key)),
    )


def is_sound(known: EraMap, look: EraLook) -> bool:
    """Whether a worker may remember what follows from a look.

    Otherwise it is true for the transaction of the look only: the transaction had its number before
    the boundary was read, or the boundary is of another server, from which the tables were copied.
    """
    return (
        look.is_first
        and look.number >= look.boundary
        and look.number - look.snapshot.end < UNCOMPLETED_MAX
        and (known.boundary is None or look.boundary >= known.boundary)
    )


def select_small(sizes: Iterable[tuple[int, int]], *, most: int, size_max: int) -> list[int]:
    """Return the eras with the fewest rows, from pairs of an era and its number of rows."""
    small = sorted((size, era) for era, size in sizes if size < size_max)
    return [era for _, era in small[:most]]


def _is_in(era: int, fronts: Iterable[Front]) -> bool:
    return any(front.low <= era < front.high for front in fronts)


def _merge(fronts: Sequence[Front]) -> Sequence[Front]:
    """Fronts are in the order of their eras; the oldest are merged if there are too many."""
    count = len(fronts) - FRONTS_MAX + 1
    if count <= 1:
        return fronts
    old = fronts[:count]
    late = frozenset[int]().union(*(front.late for front in old))
    return [Front(old[0].low, old[-1].high, late), *fronts[count:]]
