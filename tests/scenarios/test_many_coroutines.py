"""One worker runs ten thousand coroutines at once, and extends the lease of each."""

import asyncio
import time
from collections import Counter

import pytest

from scenarios.project import Project, Resources, figure
from tickwork import RunContext, Tickwork
from tickwork.errors import InvalidOption

COUNT = 10_000
BATCH = 1_000
LEASE_SECONDS = 9
BEATS = 2


def check_ten_thousand(url: str) -> None:
    app = Tickwork(url, install=True)
    store = app._services.store
    begun: Counter[str] = Counter()
    ended: list[str] = []
    beats: list[float] = []
    loops: list[asyncio.AbstractEventLoop] = []
    may_end = asyncio.Event()

    @app.job(lease=LEASE_SECONDS)
    async def waits(ctx: RunContext, n: int) -> None:
        begun[ctx.run_id] += 1
        loops[:] = [asyncio.get_running_loop()]
        await may_end.wait()
        ended.append(ctx.run_id)

    def until(check, seconds=120):
        deadline = time.monotonic() + seconds
        while not check():
            assert time.monotonic() < deadline, (len(begun), len(ended), len(beats))
            time.sleep(0.05)

    extend = store.extend_leases

    def count_beats(held, **options):
        beat = extend(held, **options)
        assert not beat.lost
        if len(held) == COUNT:
            beats.append(time.monotonic())
        return beat

    store.extend_leases = count_beats  # type: ignore[method-assign]
    with app.running(coroutines=COUNT):
        before = Resources()
        for first in range(0, COUNT, BATCH):
            waits.dispatch_many([{"n": n} for n in range(first, first + BATCH)])
        until(lambda: len(begun) == COUNT)
        until(lambda: len(beats) >= BEATS)
        assert not ended
        kilobytes = Resources().kilobytes - before.kilobytes
        released_at = time.monotonic()
        loops[0].call_soon_threadsafe(may_end.set)
        until(lambda: app.stats.attempts == COUNT)
        figure(
            f"{COUNT:,} coroutines: {kilobytes / COUNT:.1f} kB each, "
            f"ended and written in {time.monotonic() - released_at:.1f} s"
        )

    assert set(begun.values()) == {1}
    assert len(ended) == len(set(ended)) == COUNT
    assert not store.ready_pairs()
    app.close()


@pytest.mark.timeout(300)
def test_ten_thousand_coroutines_wait_across_two_heartbeats(project: Project):
    check_ten_thousand(project.url)


@pytest.mark.timeout(300)
def test_ten_thousand_coroutines_on_the_store_in_memory():
    check_ten_thousand("memory://")


@pytest.mark.parametrize("coroutines", [0, 10_001])
def test_the_limit_of_coroutines_is_their_own(coroutines):
    with pytest.raises(InvalidOption, match="must be between 1 and 10,000"):
        Tickwork("memory://").start(coroutines=coroutines)
    with pytest.raises(InvalidOption, match="must be between 1 and 1,000"):
        Tickwork("memory://").start(threads=1_001)
