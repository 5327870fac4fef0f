"""Dispatches whatever the shop has, and writes down what was answered: one actor of many.

Before each try the journal says what is meant to happen, afterwards what came of it. Whoever is
killed in between leaves a try of which nobody knows, and the checker takes both for an answer.
"""

import os
import random
import time
from contextlib import closing, suppress
from typing import Any, Final

from chaos import shop
from chaos.databases import connect, placed
from tickwork.errors import OutcomeUnknown

KEYS: Final = 4
ACCOUNTS: Final = 6
PAUSE: Final = (0.01, 0.12)
RANKED: Final = 15
"""Runs of each of four priorities: more than can start for longer than is judged as chance."""
METERED: Final = 10
"""Runs of a rate of three a second: more than that, and few enough to come to an end."""
BACKLOG_MAX: Final = 120
LOOK_EVERY: Final = 0.5
PATIENCE: Final = 20


class Dispatcher:
    """Does one thing after the other, drawn from a seed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._count = 0
        self._canceled: list[Any] = []

    def forever(self) -> None:
        """Ends when its process is ended."""
        ways = [self.one] * 30 + [self.transaction] * 10
        ways += [self.cancel, self.cancel, self.register, self.burst]
        looked_at = 0.0
        while True:
            if time.monotonic() - looked_at > LOOK_EVERY:
                self._wait_for_others()
                looked_at = time.monotonic()
            with suppress(Exception):  # it is in the journal
                self._chance.choice(ways)()
            time.sleep(self._chance.uniform(*PAUSE))

    def _wait_for_others(self) -> None:
        """Add nothing while much is waiting: a backlog would hide what is tried behind it."""
        with suppress(Exception), closing(connect(shop.URL)) as connection:
            cursor = connection.cursor()
            for _ in range(PATIENCE):
                cursor.execute("SELECT count(*) FROM tickwork_run")
                [(count,)] = cursor.fetchall()
                connection.rollback()
                if count < BACKLOG_MAX:
                    return
                time.sleep(LOOK_EVERY)

    # ------------------------------------------------------------ what it does

    def one(self) -> None:
        """Any job, with whatever can be said before a dispatch."""
        job, args = self._drawn()
        draft = job
        if self._chance.random() < 0.3:
            draft = draft.delay(round(self._chance.uniform(0.1, 1.5), 3))
        if self._chance.random() < 0.3:
            draft = draft.priority(self._chance.choice([10, 50, 100, 150]))
        uid = self._uid()
        shop.journal.write("try", uid=uid, job=job.definition.name)
        with self._told(uid):
            run = draft.dispatch(uid=uid, **args)
            shop.journal.write("dispatched", uid=uid, run=str(run.id), is_new=run.is_new)

    def burst(self) -> None:
        """Many that differ in their priority alone, and many of a rate: more than can start."""
        for priority in self._chance.sample(range(101, 109), 4):
            self._many(shop.ranked, priority, RANKED)
        self._many(shop.metered, 100, METERED)

    def _many(self, job: Any, priority: int, count: int) -> None:
        uids = [self._uid() for _ in range(count)]
        for uid in uids:
            shop.journal.write("try", uid=uid, job=job.definition.name)
        with self._told(*uids):
            runs = job.priority(priority).dispatch_many({"uid": uid} for uid in uids)
            for uid, run in zip(uids, runs, strict=True):
                shop.journal.write("dispatched", uid=uid, run=str(run.id), is_new=True)

    def transaction(self) -> None:
        """An order and its run in one transaction, which is committed or not."""
        uid, is_kept = self._uid(), self._chance.random() < 0.6
        job, args = self._drawn()
        shop.journal.write("try", uid=uid, job=job.definition.name, is_transaction=True)
        with self._told(uid), closing(connect(shop.URL)) as connection:
            cursor = connection.cursor()
            cursor.execute(placed("INSERT INTO chaos_order (uid) VALUES (?)", shop.URL), (uid,))
            run = job.using(connection).dispatch(uid=uid, **args)
            shop.journal.write("added", uid=uid, run=str(run.id), is_new=run.is_new)
            time.sleep(self._chance.choice([0, 0, 0.02, 0.1]))
            if is_kept:
                shop.journal.write("commit", uid=uid)
                connection.commit()
                shop.journal.write("committed", uid=uid, run=str(run.id), is_new=run.is_new)
            else:
                connection.rollback()
                shop.journal.write("rolled back", uid=uid, run=str(run.id), is_new=run.is_new)

    def cancel(self) -> None:
        """A few that take their time, and shall not."""
        for _ in range(2):
            uid = self._uid()
            job = self._chance.choice([shop.slow, shop.dream])
            draft = job.delay(0.5) if self._chance.random() < 0.5 else job
            shop.journal.write("try", uid=uid, job=job.definition.name)
            with self._told(uid):
                run = draft.dispatch(uid=uid, seconds=3.0)
                shop.journal.write("dispatched", uid=uid, run=str(run.id), is_new=True)
                self._canceled.append(run)
        time.sleep(self._chance.uniform(0, 0.7))
        while self._canceled:
            run = self._canceled.pop()
            shop.journal.write("cancel", run=str(run.id))
            is_canceled = run.cancel("somebody changed his mind")
            shop.journal.write("cancel answered", run=str(run.id), answer=is_canceled)

    def register(self) -> None:
        """A tenant's schedule, said again and again: it is there once."""
        shop.app.schedules.register(
            "acme", "tenants", shop.START, 2.0, shop.tenants, overlap="allow"
        )

    # ------------------------------------------------------------ how

    def _drawn(self) -> tuple[Any, dict[str, Any]]:
        chance = self._chance
        makers: list[tuple[Any, dict[str, Any]]] = [
            (shop.plain, {"seconds": round(chance.choice([0, 0, 0, 0.05, 0.3]), 3)}),
            (shop.slow, {"seconds": round(chance.uniform(0.3, 3.0), 2)}),
            (shop.slow, {"seconds": round(chance.uniform(3.0, 6.0), 2)}),
            (shop.dream, {"seconds": round(chance.uniform(0.1, 1.5), 2)}),
            (shop.flaky, {"fail_first": chance.randrange(6)}),
            (shop.snoozer, {"times": chance.randrange(4)}),
            (shop.fragile, {"seconds": 1.5}),
            (shop.narrow, {}),
            (shop.narrow, {}),
            (shop.lane_a, {}),
            (shop.lane_b, {}),
            (shop.account, {"account": chance.randrange(ACCOUNTS)}),
            (shop.account, {"account": chance.randrange(ACCOUNTS)}),
            (shop.metered, {}),
            (shop.metered, {}),
            (shop.single, {"key": chance.randrange(KEYS)}),
            (shop.single, {"key": chance.randrange(KEYS)}),
            (shop.windowed, {"key": chance.randrange(KEYS)}),
            (shop.charge, {"roll_back_first": chance.randrange(3)}),
            (shop.charge, {"roll_back_first": 0}),
        ]
        return chance.choice(makers)

    def _uid(self) -> str:
        self._count += 1
        return f"{os.environ['CHAOS_WHO']}:{self._count}"

    def _told(self, *uids: str) -> "_Told":
        return _Told(uids)


class _Told:
    """Writes down what went wrong, and whether it may have gone right all the same."""

    def __init__(self, uids: tuple[str, ...]) -> None:
        self._uids = uids

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is None:
            return
        for uid in self._uids:
            shop.journal.write(
                "refused",
                uid=uid,
                error=type(error).__name__,
                message=str(error)[:300],
                is_unknown=isinstance(error, OutcomeUnknown),
            )


if __name__ == "__main__":
    Dispatcher(random.Random(f"dispatcher {os.environ['CHAOS_SEED']}")).forever()
