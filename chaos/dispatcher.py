"""Dispatches runs of all jobs of the application, and records each answer in its journal.

The journal has a line before each dispatch and one with its result. A dispatcher that is killed in
between leaves a dispatch with an unknown result: the checker accepts both.
"""

import os
import random
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Final

from chaos import application
from chaos.databases import connect, with_placeholders
from tickwork.errors import OutcomeUnknown

KEYS: Final = 4
ACCOUNTS: Final = 6
PAUSE: Final = (0.01, 0.12)
RANKED: Final = 15
"""Runs of each of four priorities: so many that some wait longer than the checker tolerates."""
LIMITED: Final = 8
"""Runs of a limit of two or three: several workers try to claim them at the same moment."""
METERED: Final = 10
"""Runs of a rate of three a second: more than that, and few enough to finish."""
BACKLOG_MAX: Final = 120
POLL_EVERY: Final = 0.5
POLLS_MAX: Final = 20
LIMITS: Final = ("job:narrow", "queue:lane")
EDITS: Final = (
    ("limit_keys", "[1]"),
    ("limit_keys", "[null]"),
    ("limit_keys", '["one", "one"]'),
    ("limit_keys", "no JSON"),
    ("args", "no JSON"),
    ("args", "[1]"),
    ("schedule", "none"),
    ("attempts_max", -1),
    ("token", 2**31 - 1),
)
"""Columns of a run, and values that tickwork itself would never write."""


class Dispatcher:
    """Performs one action after the other, drawn from a seed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._count = 0
        self._canceled: list[Any] = []
        # Each dispatcher pauses something else, so that one does not resume what another paused.
        is_first = os.environ["CHAOS_WHO"].startswith("dispatcher-0")
        self._pausable = {"job": "narrow"} if is_first else {"queue": "lane"}

    def run(self) -> None:
        """Run until the driver ends the process."""
        actions = [self.one] * 30 + [self.transaction] * 10
        actions += [self.cancel, self.cancel, self.register, self.burst]
        actions += [self.pause, self.change_limit, self.edit]
        polled_at = 0.0
        with suppress(Exception):
            self._resume()  # a dispatcher that was killed may have left it paused
        while True:
            if time.monotonic() - polled_at > POLL_EVERY:
                self._wait_for_backlog()
                polled_at = time.monotonic()
            with suppress(Exception):  # it is in the journal
                self._chance.choice(actions)()
            time.sleep(self._chance.uniform(*PAUSE))

    def _wait_for_backlog(self) -> None:
        """Add nothing while many runs are waiting: new ones would not start in time."""
        with suppress(Exception), closing(connect(application.URL)) as connection:
            cursor = connection.cursor()
            for _ in range(POLLS_MAX):
                cursor.execute("SELECT count(*) FROM tickwork_run")
                [(count,)] = cursor.fetchall()
                connection.rollback()
                if count < BACKLOG_MAX:
                    return
                time.sleep(POLL_EVERY)

    # ------------------------------------------------------------ actions

    def one(self) -> None:
        """Dispatch any job, with random options."""
        job, args = self._draw_job()
        draft = job
        if self._chance.random() < 0.3:
            draft = draft.delay(round(self._chance.uniform(0.1, 1.5), 3))
        if self._chance.random() < 0.3:
            draft = draft.priority(self._chance.choice([10, 50, 100, 150]))
        uid = self._uid()
        application.journal.write("try", uid=uid, job=job.definition.name)
        with _journal_errors(uid):
            run = draft.dispatch(uid=uid, **args)
            application.journal.write("dispatched", uid=uid, run=str(run.id), is_new=run.is_new)

    def burst(self) -> None:
        """Dispatch many runs that differ in priority only, and more than limits let start."""
        for priority in self._chance.sample(range(101, 109), 4):
            self._many(application.ranked, priority, RANKED)
        self._many(application.metered, 100, METERED)
        self._many(application.narrow, 100, LIMITED)
        self._many(application.lane_a, 100, LIMITED)

    def _many(self, job: Any, priority: int, count: int) -> None:
        uids = [self._uid() for _ in range(count)]
        for uid in uids:
            application.journal.write("try", uid=uid, job=job.definition.name)
        with _journal_errors(*uids):
            runs = job.priority(priority).dispatch_many({"uid": uid} for uid in uids)
            for uid, run in zip(uids, runs, strict=True):
                application.journal.write("dispatched", uid=uid, run=str(run.id), is_new=True)

    def transaction(self) -> None:
        """Write an order and dispatch its run in one transaction; commit it or roll it back."""
        uid, is_kept = self._uid(), self._chance.random() < 0.6
        job, args = self._draw_job()
        application.journal.write("try", uid=uid, job=job.definition.name, is_transaction=True)
        with _journal_errors(uid), closing(connect(application.URL)) as connection:
            cursor = connection.cursor()
            cursor.execute(
                with_placeholders("INSERT INTO chaos_order (uid) VALUES (?)", application.URL),
                (uid,),
            )
            run = job.using(connection).dispatch(uid=uid, **args)
            application.journal.write("added", uid=uid, run=str(run.id), is_new=run.is_new)
            time.sleep(self._chance.choice([0, 0, 0.02, 0.1]))
            if is_kept:
                application.journal.write("commit", uid=uid)
                connection.commit()
                application.journal.write("committed", uid=uid, run=str(run.id), is_new=run.is_new)
            else:
                connection.rollback()
                application.journal.write(
                    "rolled back", uid=uid, run=str(run.id), is_new=run.is_new
                )

    def cancel(self) -> None:
        """Dispatch slow runs, and cancel them."""
        for _ in range(2):
            uid = self._uid()
            job = self._chance.choice([application.slow, application.coroutine])
            draft = job.delay(0.5) if self._chance.random() < 0.5 else job
            application.journal.write("try", uid=uid, job=job.definition.name)
            with _journal_errors(uid):
                run = draft.dispatch(uid=uid, seconds=3.0)
                application.journal.write("dispatched", uid=uid, run=str(run.id), is_new=True)
                self._canceled.append(run)
        time.sleep(self._chance.uniform(0, 0.7))
        while self._canceled:
            run = self._canceled.pop()
            application.journal.write("cancel", run=str(run.id))
            is_canceled = run.cancel("the caller changed its mind")
            application.journal.write("cancel answered", run=str(run.id), answer=is_canceled)

    def register(self) -> None:
        """Register a tenant's schedule again and again: there is one."""
        application.app.schedules.register(
            "acme", "tenants", application.START, 2.0, application.tenants, overlap="allow"
        )

    def pause(self) -> None:
        """Pause a job or a queue for a moment."""
        application.app.pause(**self._pausable, note="chaos")
        application.journal.write("paused", **self._pausable)
        time.sleep(self._chance.uniform(0.5, 1.5))
        self._resume()

    def _resume(self) -> None:
        application.journal.write("resuming", **self._pausable)
        application.app.resume(**self._pausable)

    def change_limit(self) -> None:
        """Lower a limit, or reset it."""
        name = self._chance.choice(LIMITS)
        if self._chance.random() < 0.5:
            application.app.limits.change(name, 1)
        else:
            application.app.limits.reset(name)

    def edit(self) -> None:
        """Dispatch a run, and edit its row as another program might."""
        run = application.edited.delay(0.5).dispatch(uid=self._uid())
        column, value = self._chance.choice(EDITS)
        application.journal.write("edit", run=str(run.id), column=column, value=value)
        with closing(connect(application.URL)) as connection:
            text = f"UPDATE tickwork_run SET {column} = ? WHERE id = ? AND status = 'pending'"
            connection.cursor().execute(
                with_placeholders(text, application.URL), (value, str(run.id))
            )
            connection.commit()

    # ------------------------------------------------------------ details

    def _draw_job(self) -> tuple[Any, dict[str, Any]]:
        chance = self._chance
        choices: list[tuple[Any, dict[str, Any]]] = [
            (application.plain, {"seconds": round(chance.choice([0, 0, 0, 0.05, 0.3]), 3)}),
            (application.slow, {"seconds": round(chance.uniform(0.3, 3.0), 2)}),
            *[(application.slow, {"seconds": round(chance.uniform(3.0, 6.0), 2)})] * 4,
            (application.coroutine, {"seconds": round(chance.uniform(0.1, 4.0), 2)}),
            (application.loop_stopper, {"seconds": round(chance.uniform(0.1, 1.0), 2)}),
            (application.isolated, {"seconds": round(chance.uniform(0.0, 1.0), 2)}),
            (application.flaky, {"fail_first": chance.randrange(6)}),
            (application.snoozer, {"times": chance.randrange(4)}),
            (application.fragile, {"seconds": 1.5}),
            (application.narrow, {}),
            (application.narrow, {}),
            (application.lane_a, {}),
            (application.lane_b, {}),
            (application.account, {"account": chance.randrange(ACCOUNTS)}),
            (application.account, {"account": chance.randrange(ACCOUNTS)}),
            (application.metered, {}),
            (application.metered, {}),
            (application.single, {"key": chance.randrange(KEYS)}),
            (application.single, {"key": chance.randrange(KEYS)}),
            (application.windowed, {"key": chance.randrange(KEYS)}),
            (application.charge, {"roll_back_first": chance.randrange(3)}),
            (application.charge, {"roll_back_first": 0}),
        ]
        return chance.choice(choices)

    def _uid(self) -> str:
        self._count += 1
        return f"{os.environ['CHAOS_WHO']}:{self._count}"


@contextmanager
def _journal_errors(*uids: str) -> Iterator[None]:
    """Record an error, and whether the dispatch may have succeeded all the same."""
    try:
        yield
    except BaseException as error:
        for uid in uids:
            application.journal.write(
                "refused",
                uid=uid,
                error=type(error).__name__,
                message=str(error)[:300],
                is_unknown=isinstance(error, OutcomeUnknown),
            )
        raise


if __name__ == "__main__":
    Dispatcher(random.Random(f"dispatcher {os.environ['CHAOS_SEED']}")).run()
