"""What a worker knows about eras: the rules, and a model of transactions."""

import random
from dataclasses import dataclass, field

import pytest

from tickwork._domain.eras import (
    FRONTS_MAX,
    LAST_ERA,
    NOTHING_KNOWN,
    EraLook,
    EraMap,
    FirstRun,
    Front,
    TransactionSnapshot,
    is_sound,
    learn,
    select_small,
)


def a_look(boundary: int, number: int, *running: int, **given) -> EraLook:
    """A look of the transaction ``number``, before which all but ``running`` have ended."""
    return EraLook(boundary, number, TransactionSnapshot(number, frozenset(running)), **given)


class TestSnapshots:
    def test_a_number_behind_the_last_completed_one_has_not_ended(self):
        snapshot = TransactionSnapshot(10, frozenset({7}))

        assert snapshot.has_ended(9)
        assert not snapshot.has_ended(7)
        assert not snapshot.has_ended(10)
        assert snapshot.unended(5, 13) == {7, 10, 11, 12}


class TestLearning:
    def test_after_the_first_look_only_the_current_era_is_open(self):
        learned = learn(NOTHING_KNOWN, a_look(5, 9), looked_up=0)

        assert learned == EraMap(5)
        assert learned.is_simple

    def test_runs_of_older_eras_are_the_rest_in_the_order_of_claims(self):
        found = [FirstRun(3, 50, 1, "b"), FirstRun(4, 10, 9, "a"), FirstRun(5, 1, 1, "c")]

        learned = learn(NOTHING_KNOWN, a_look(5, 9, found=found), looked_up=0)

        assert [first.era for first in learned.rest] == [4, 3]

    def test_a_writer_that_is_late_keeps_its_front_open(self):
        known = EraMap(5)

        learned = learn(known, a_look(10, 12, 3, 7, 11), looked_up=0)

        # 3 writes its own era, which is in an older front.
        assert learned.fronts == (Front(5, 10, frozenset({7, 11})),)
        assert set(learned.spans()) == {(10, LAST_ERA, None), (5, 10, 7), (5, 10, 11)}

    def test_its_front_is_searched_when_it_has_ended(self):
        known = EraMap(10, (Front(5, 10, frozenset({7, 8})),), (FirstRun(5, 50, 1, "b"),))
        found = [FirstRun(5, 10, 1, "a"), FirstRun(7, 10, 2, "c")]

        learned = learn(known, a_look(10, 20, 8, found=found), looked_up=1)

        assert learned.fronts == (Front(5, 10, frozenset({8})),)
        assert learned.rest == (FirstRun(5, 10, 1, "a"), FirstRun(7, 10, 2, "c"))

    def test_an_old_era_without_runs_is_forgotten(self):
        known = EraMap(10, (), (FirstRun(3, 1, 1, "a"), FirstRun(4, 1, 2, "b")))

        learned = learn(known, a_look(10, 20, moved=[FirstRun(4, 1, 9, "z")]), looked_up=2)

        assert learned == EraMap(10, (), (FirstRun(4, 1, 9, "z"),))

    def test_one_that_was_not_looked_up_stays(self):
        known = EraMap(10, (), (FirstRun(3, 1, 1, "a"), FirstRun(4, 1, 2, "b")))

        assert learn(known, a_look(10, 20), looked_up=1).rest == (FirstRun(4, 1, 2, "b"),)

    def test_eras_above_the_boundary_are_searched_too(self):
        found = [FirstRun(5_000_000, 1, 1, "a")]

        assert learn(EraMap(10), a_look(10, 20, found=found), looked_up=0).rest == tuple(found)

    def test_the_oldest_of_many_fronts_are_merged(self):
        known = NOTHING_KNOWN
        for number in range(1, 2 * FRONTS_MAX):
            late = [100 * n + 1 for n in range(1, number + 1)]
            known = learn(known, a_look(100 * number, 100 * number + 50, *late), looked_up=0)
            known = learn(known, a_look(100 * number + 60, 100 * number + 70, *late), looked_up=0)

        assert len(known.fronts) <= FRONTS_MAX
        assert known.fronts[0].low == 0
        assert set(late) - known.late <= {late[-1]}


class TestSoundness:
    @pytest.mark.parametrize(
        ("look", "is_true"),
        [
            (a_look(5, 9), True),
            (a_look(5, 9, is_first=False), False),  # it had its number before it read the boundary
            (a_look(10, 9), False),  # the boundary is of another server
            (a_look(3, 9), False),  # it moved down
            (EraLook(5, 50_000, TransactionSnapshot(9)), False),
        ],
    )
    def test_a_look_is_remembered_only_if_it_proves_something(self, look, is_true):
        assert is_sound(EraMap(4), look) is is_true

    def test_of_another_look_the_runs_count_for_its_own_transaction(self):
        look = a_look(5, 9, found=[FirstRun(3, 1, 1, "a")], is_first=False)

        assert learn(NOTHING_KNOWN, look, looked_up=0) == EraMap(5, (), (FirstRun(3, 1, 1, "a"),))


class TestHeads:
    def test_runs_behind_the_next_era_wait(self):
        known = EraMap(10, (), tuple(FirstRun(n, n, 0, "a") for n in range(1, 5)))

        heads, end = known.heads(3)

        assert [first.era for first in heads] == [10, 1, 2]
        assert end == FirstRun(3, 3, 0, "a")
        assert known.heads(5)[1] is None


def test_the_smallest_eras_are_gathered():
    sizes = [(1, 5), (2, 9000), (3, 1), (4, 7)]

    assert select_small(sizes, most=2, size_max=4096) == [3, 1]


# ---------------------------------------------------------------- a model


@dataclass
class Database:
    """Transactions, the boundary and rows, as PostgreSQL has them."""

    rng: random.Random
    boundary: int = 1
    next_number: int = 3
    running: dict[int, list[int]] = field(default_factory=dict)  # the eras that each wrote
    rows: list[int] = field(default_factory=list)  # the eras of committed rows
    completed: int = 2

    def begin(self) -> int:
        number = self.next_number
        self.next_number += 1
        self.running[number] = []
        return number

    def write(self, number: int) -> None:
        self.running[number].append(min(self.boundary, number))

    def commit(self, number: int) -> None:
        self.rows += self.running.pop(number)
        self.completed = max(self.completed, number)

    def snapshot(self) -> TransactionSnapshot:
        end = self.completed + 1
        return TransactionSnapshot(end, frozenset(n for n in self.running if n < end))

    def look(self, known: EraMap) -> EraLook:
        snapshot, rows = self.snapshot(), sorted(set(self.rows))
        # Others act between the snapshot, the boundary and the number.
        self.act()
        boundary = self.boundary
        self.act()
        number = self.begin()
        spans = [
            (low, high)
            for low, high, late in known.spans()
            if late is None or snapshot.has_ended(late)
        ]
        found = [FirstRun(era) for era in rows if any(low <= era < high for low, high in spans)]
        moved = [first for first in known.rest if first.era in rows]
        self.commit(number)
        return EraLook(boundary, number, snapshot, found, moved)

    def act(self) -> None:
        match self.rng.randrange(6):
            case 0:
                self.begin()
            case 1 | 2 if self.running:
                self.write(self.rng.choice(list(self.running)))
            case 3 if self.running:
                self.commit(self.rng.choice(list(self.running)))
            case 4:
                number = self.begin()
                self.boundary = max(self.boundary, number + 1)
                self.commit(number)
            case 5 if self.rows:
                self.rows.remove(self.rng.choice(self.rows))

    def is_known(self, known: EraMap) -> bool:
        snapshot = self.snapshot()
        return self.boundary == known.boundary and not any(map(snapshot.has_ended, known.late))


@pytest.mark.parametrize("seed", range(60))
def test_no_run_is_in_an_era_that_a_claim_does_not_read(seed):
    database = Database(random.Random(seed))
    known = NOTHING_KNOWN
    for _ in range(400):
        for _ in range(database.rng.randrange(12)):
            database.act()
        if known.boundary is not None and database.is_known(known):
            assert set(database.rows) <= set(known.eras), (seed, known, database)
            continue
        look = database.look(known)
        learned = learn(known, look, looked_up=len(known.rest))
        if is_sound(known, look):
            known = learned
