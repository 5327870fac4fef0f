"""When a store looks again, and from where on it reads an index of times."""

import pytest

from tickwork._domain.eras import NOTHING_KNOWN, EraMap, FirstRun
from tickwork._stores._sql import era_memory
from tickwork._stores._sql.era_memory import BEGINNING, FLOOR_MARGIN, EraMemory, TimeFloor


class Seconds:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds(monkeypatch):
    seconds = Seconds()
    monkeypatch.setattr(era_memory, "monotonic", seconds)
    return seconds


class TestLooks:
    def test_what_a_look_found_is_used_until_something_is_left_in_old_eras(self, seconds):
        memory = EraMemory()
        assert memory.should_look()

        memory.remember(NOTHING_KNOWN, EraMap(5))
        seconds.now += 10
        assert not memory.should_look()

        memory.remember(memory.map, EraMap(9, (), (FirstRun(5),)))
        assert not memory.should_look()
        seconds.now += 0.03
        assert memory.should_look()

    def test_once_a_minute_everything_is_forgotten(self, seconds):
        memory = EraMemory()
        memory.remember(NOTHING_KNOWN, EraMap(5))

        seconds.now += 60

        assert memory.should_look()
        assert memory.map is NOTHING_KNOWN

    def test_a_look_that_began_before_it_was_forgotten_changes_nothing(self, seconds):
        memory = EraMemory()
        memory.remember(NOTHING_KNOWN, known := EraMap(5))
        memory.forget()

        memory.remember(known, EraMap(9))

        assert memory.map is NOTHING_KNOWN


class TestMoves:
    def test_the_boundary_moves_after_a_claim_that_read_many_dead_entries(self, seconds):
        memory = EraMemory()
        memory.remember(NOTHING_KNOWN, EraMap(5))

        assert not memory.should_move(dead=128, rows=1)
        assert not memory.should_move(dead=400, rows=100)
        assert not memory.should_look()
        assert memory.should_move(dead=129, rows=1)
        assert memory.should_look()

    def test_with_runs_in_old_eras_a_look_may_be_enough(self, seconds):
        memory = EraMemory()
        memory.remember(NOTHING_KNOWN, EraMap(5, (), (FirstRun(3),)))

        assert not memory.should_move(dead=1000, rows=1)
        assert memory.should_look()
        assert memory.should_move(dead=1000, rows=1)

    def test_dead_entries_are_counted_now_and_then(self, seconds):
        memory = EraMemory()
        assert not memory.should_check()
        seconds.now += 0.26
        assert memory.should_check()
        assert not memory.should_check()
        memory.count_rows(8192)
        assert memory.should_check()


class TestTimeFloor:
    def test_an_index_without_many_dead_entries_is_read_from_its_beginning(self, seconds):
        floor = TimeFloor()

        floor.learn(7, dead=128)

        assert floor.lowest == BEGINNING

    def test_one_with_many_is_read_from_the_last_known_time_on_for_some_seconds(self, seconds):
        floor = TimeFloor()
        first = 10 * FLOOR_MARGIN

        floor.learn(first, dead=20_000)

        assert floor.lowest == first - FLOOR_MARGIN
        seconds.now += 2
        assert floor.lowest == BEGINNING

    def test_it_is_never_longer_than_ten_seconds(self, seconds):
        floor = TimeFloor()

        floor.learn(7, dead=10_000_000)

        seconds.now += 10
        assert floor.lowest == BEGINNING
