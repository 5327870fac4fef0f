import os
import threading
from datetime import timedelta
from typing import Any

import pytest

from tickwork._stores._sql.pool import Pool, PoolExhausted


class FakeConnection:
    def __init__(self) -> None:
        self.is_reusable = True
        self.is_there = True
        self.is_closed = False

    def is_alive(self) -> bool:
        return self.is_there

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def made() -> list[FakeConnection]:
    return []


@pytest.fixture
def pool(made: list[FakeConnection]) -> Pool[Any]:
    def connect() -> Any:
        made.append(FakeConnection())
        return made[-1]

    return Pool(connect, size=2, timeout=timedelta(milliseconds=20))


class TestLending:
    """A connection is lent to one at a time, and used again while it is good."""

    def test_it_is_used_again(self, pool, made):
        with pool.acquire(), pool.acquire():
            pass
        with pool.acquire():
            pass

        assert len(made) == 2

    def test_the_last_one_used_is_lent_first(self, pool, made):
        with pool.acquire() as outer, pool.acquire() as inner:
            pass

        with pool.acquire() as again:
            assert again is outer
            with pool.acquire() as other:
                assert other is inner

    def test_no_more_than_there_are(self, pool, made):
        with pool.acquire(), pool.acquire(), pytest.raises(PoolExhausted), pool.acquire():
            pass

        assert len(made) == 2

    def test_a_waiting_thread_gets_the_next_free_connection(self, made):
        connect: Any = FakeConnection
        pool = Pool(connect, size=1, timeout=timedelta(seconds=20))
        is_lent, has_got = threading.Event(), threading.Event()

        def wait() -> None:
            is_lent.wait(20)
            with pool.acquire():
                has_got.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        with pool.acquire():
            is_lent.set()
        waiter.join(20)

        assert has_got.is_set()

    def test_one_that_broke_is_not_lent_again(self, pool, made):
        with pool.acquire() as connection:
            connection.is_reusable = False
        with pool.acquire() as other:
            assert other is not connection

        assert connection.is_closed

    def test_one_that_died_meanwhile_is_not_lent_again(self, pool, made):
        with pool.acquire() as connection:
            pass
        connection.is_there = False
        with pool.acquire() as other:
            assert other is not connection

        assert connection.is_closed

    def test_an_error_of_the_caller_does_not_cost_the_connection(self, pool, made):
        with pytest.raises(ValueError, match="mine"), pool.acquire():
            raise ValueError("mine")
        with pool.acquire():
            pass

        assert len(made) == 1

    def test_a_connection_that_cannot_be_had_costs_no_place(self):
        def refuse() -> Any:
            raise OSError

        pool = Pool(refuse, size=1, timeout=timedelta(0))
        for _ in range(3):
            with pytest.raises(OSError), pool.acquire():
                pass


class TestClearing:
    """All are closed: the free ones at once, the others as soon as they come back."""

    def test_the_free_ones(self, pool, made):
        with pool.acquire(), pool.acquire():
            pass

        pool.clear()

        assert [connection.is_closed for connection in made] == [True, True]

    def test_those_that_are_lent(self, pool, made):
        with pool.acquire() as connection:
            pool.clear()
            assert not connection.is_closed

        assert connection.is_closed
        with pool.acquire() as other:
            assert other is not connection


class TestForks:
    """A child leaves its parent's connections alone, and has all places for itself."""

    def test_in_the_child(self, pool, made):
        with pool.acquire():
            pass
        with pool.acquire(), pool.acquire():
            pid = os.fork()
            if pid == 0:
                try:
                    with pool.acquire() as one, pool.acquire() as other:
                        is_right = one not in made[:2] and other not in made[:2]
                    pool.clear()
                    is_right = is_right and not any(made[n].is_closed for n in range(2))
                    os._exit(0 if is_right else 1)
                except BaseException:  # noqa: BLE001  # it must not go on as a second test run
                    os._exit(2)
            _, status = os.waitpid(pid, 0)

        assert os.waitstatus_to_exitcode(status) == 0
