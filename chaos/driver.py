"""Starts everybody, throws the faults of a plan at them, and lets it all come to rest."""

import contextlib
import heapq
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chaos import plan, workload
from chaos.databases import Database, ServerDatabase, SqliteDatabase, connect, made
from chaos.journal import Journal
from servers import workspace

ROOT: Final = Path(__file__).resolve().parent.parent
WORKERS: Final = 3
DISPATCHERS: Final = 2
REST_SECONDS: Final = 45.0
"""How long everything may take to come to an end, once nothing is thrown any more."""

STOP_SECONDS: Final = 30.0
LOOK_EVERY: Final = 0.02
HOUR: Final = 3600
INSTALL: Final = "import sys; from tickwork import Tickwork; Tickwork(sys.argv[1]).install()"


@dataclass(slots=True)
class Actor:
    """A place in the crew: whoever is killed in it is followed by another."""

    name: str  # "worker-1"
    way: int
    version: int = 1
    generation: int = 0
    process: subprocess.Popen[bytes] | None = None
    is_frozen: bool = False
    is_told: bool = False  # it shall end, or has been ended: nobody wonders when it does
    is_followed: bool = False  # once it has, another comes
    clock: Path | None = None

    @property
    def is_up(self) -> bool:
        return self.process is not None and not self.is_frozen and not self.is_told


@dataclass
class Driver:
    """One run of chaos."""

    database: Database
    folder: Path
    seed: int
    source: Path
    thrown: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.journal = Journal(self.folder / "driver.log", "driver")
        self.workers = [
            Actor(f"worker-{number}", number, 1 + number % 2) for number in range(WORKERS)
        ]
        self.dispatchers = [
            Actor(f"dispatcher-{number}", WORKERS + number, 1 + number % 2)
            for number in range(DISPATCHERS)
        ]
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._visitors: list[subprocess.Popen[bytes]] = []
        self._stack = contextlib.ExitStack()
        self._busy: set[str] = set()  # what a fault has in its hands
        self._is_healing = self._is_closing = False

    # ------------------------------------------------------------ the whole

    def run(self, seconds: float) -> None:
        """Throw faults for so long, then wait for the end of everything."""
        faults = plan.drawn(self.seed, seconds, self.database.faults)
        self.journal.write("began", seed=self.seed, seconds=seconds, kind=self.database.kind)
        self._install()
        (self.folder / "manifest.json").write_text(json.dumps(workload.manifest()))
        try:
            for actor in (*self.workers, *self.dispatchers):
                self._start(actor)
            begun = time.monotonic()
            for fault in faults:
                self._at(begun + fault.at, lambda fault=fault: self._throw(fault))  # type: ignore[misc]
            self._until(lambda: time.monotonic() - begun >= seconds, limit=seconds + HOUR)
            self._heal()
            self._rest()
        finally:
            self._end()
        self.journal.write("ended", thrown=dict(self.thrown))

    def _install(self) -> None:
        command = [sys.executable, "-c", INSTALL, self.database.url()]
        subprocess.run(command, check=True, env=self._env("installer", None), cwd=ROOT)
        self.database.prepare()

    def _heal(self) -> None:
        """Nothing is in anybody's way any more, and nobody adds anything."""
        self._is_healing = True
        # What was begun is ended now, whenever that was meant to be.
        while self._later:
            heapq.heappop(self._later)[2]()
        self._stack.close()
        for actor in self.dispatchers:
            self._kill(actor)
        self._until(lambda: all(actor.is_up for actor in self.workers), limit=STOP_SECONDS)
        for version in {1, 2} - {actor.version for actor in self.workers}:
            actor = self.workers[0]
            self._kill(actor)
            actor.version = version
            self._start(actor)
        self.journal.write("healed")

    def _rest(self) -> None:
        closer = self._visit("closer", "-m", "chaos.closing")
        self._until(lambda: closer.poll() is not None, limit=REST_SECONDS)
        if self._until(lambda: self._count_unfinished() == 0, limit=REST_SECONDS, every=0.3):
            self.journal.write("rested")
        else:
            self.journal.write("not rested", unfinished=self._count_unfinished())
        self._is_closing = True
        for actor in self.workers:
            self._send(actor, signal.SIGTERM)
        self._until(lambda: not any(a.process for a in self.workers), limit=STOP_SECONDS)

    def _end(self) -> None:
        self._stack.close()
        for actor in (*self.workers, *self.dispatchers):
            if actor.process is not None:
                self.journal.write("ended by force", actor=actor.name, pid=actor.process.pid)
                self._kill(actor)
        for process in self._visitors:
            process.kill()
            process.wait()

    def _count_unfinished(self) -> int:
        with contextlib.suppress(Exception), contextlib.closing(connect(self.database.url())) as c:
            cursor = c.cursor()
            cursor.execute("SELECT count(*) FROM tickwork_run")
            return int(cursor.fetchone()[0])
        return -1

    # ------------------------------------------------------------ time

    def _at(self, moment: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._later, (moment, next(self._numbers), act))

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._at(time.monotonic() + seconds, act)

    def _until(self, check: Callable[[], bool], *, limit: float, every: float = LOOK_EVERY) -> bool:
        deadline = time.monotonic() + limit
        # It ends at the deadline.
        while not check():
            while self._later and self._later[0][0] <= time.monotonic():
                heapq.heappop(self._later)[2]()
            self._look()
            if time.monotonic() >= deadline:
                return False
            time.sleep(every)
        return True

    def _look(self) -> None:
        """Notice who has ended. A worker that did so by itself is told of, and replaced."""
        for actor in (*self.workers, *self.dispatchers):
            process = actor.process
            if process is None or process.poll() is None:
                continue
            self._gone(actor, process)
            if actor.is_followed or not (actor.is_told or self._is_closing):
                self._after(0.3, lambda actor=actor: self._start(actor))  # type: ignore[misc]

    # ------------------------------------------------------------ actors

    def _start(self, actor: Actor) -> None:
        if actor.process is not None:
            return
        actor.generation += 1
        actor.is_frozen = actor.is_told = actor.is_followed = False
        who = f"{actor.name}.{actor.generation}"
        if actor.name.startswith("worker"):
            actor.clock = self.folder / f"{who}.clock"
            actor.clock.write_text("0", encoding="ascii")
            words = ["-m", "tickwork", "-a", "chaos.shop:app", "work", "--threads", "6"]
            words += ["--drain", "1s"]
        else:
            words = ["-m", "chaos.dispatching"]
        actor.process = self._spawned(who, words, actor)
        self.journal.write(
            "started", actor=actor.name, child=actor.process.pid, version=actor.version
        )

    def _spawned(self, who: str, words: list[str], actor: Actor | None) -> subprocess.Popen[bytes]:
        with (self.folder / f"{who}.out").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, *words],
                env=self._env(who, actor),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        workspace.current().watch(process, end_by=signal.SIGKILL)
        return process

    def _env(self, who: str, actor: Actor | None) -> dict[str, str]:
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.source), str(ROOT)]),
            "CHAOS_WHO": who,
            "CHAOS_SEED": f"{self.seed} {who}",
            "CHAOS_JOURNAL": str(self.folder / f"{who}.log"),
            "CHAOS_URL": self.database.url(None if actor is None else actor.way),
        }
        if actor is not None:
            env["CHAOS_VERSION"] = str(actor.version)
            if actor.clock is not None:
                env["CHAOS_CLOCK"] = str(actor.clock)
        return env

    def _visit(self, who: str, *words: str) -> subprocess.Popen[bytes]:
        """Somebody who comes, does one thing, and leaves."""
        who = f"{who}-{len(self._visitors)}"
        process = self._spawned(who, list(words), None)
        self._visitors.append(process)
        self.journal.write("started", actor=who, child=process.pid, version=1)
        return process

    def _send(self, actor: Actor, number: signal.Signals) -> None:
        if actor.process is None:
            return
        actor.is_told = actor.is_told or number in {signal.SIGTERM, signal.SIGKILL}
        self.journal.write("signal", actor=actor.name, child=actor.process.pid, number=number.name)
        actor.process.send_signal(number)

    def _kill(self, actor: Actor) -> None:
        if actor.process is None:
            return
        self._send(actor, signal.SIGKILL)
        actor.process.wait(10)
        self._gone(actor, actor.process)

    def _gone(self, actor: Actor, process: subprocess.Popen[bytes]) -> None:
        self.journal.write(
            "exited",
            actor=actor.name,
            child=process.pid,
            code=process.returncode,
            is_told=actor.is_told,
        )
        workspace.current().forget(process)
        actor.process = None

    # ------------------------------------------------------------ faults

    def _throw(self, fault: plan.Fault) -> None:
        """Throw it, if there is somebody to be hit."""
        if self._is_healing:
            return
        act: Callable[[plan.Fault], bool] = getattr(self, f"_throw_{fault.name}")
        if act(fault):
            self.thrown[fault.name] += 1

    def _noted(self, fault: plan.Fault, target: str, undo: Callable[[], None]) -> bool:
        """It has begun, and will end."""
        self.journal.write("fault", name=fault.name, target=target, seconds=fault.seconds)

        def end() -> None:
            undo()
            self.journal.write("fault ended", name=fault.name, target=target)

        self._after(fault.seconds, end)
        return True

    def _chosen(self, actors: list[Actor], fault: plan.Fault) -> Actor | None:
        up = [actor for actor in actors if actor.is_up]
        return up[fault.target % len(up)] if up else None

    def _throw_kill_worker(self, fault: plan.Fault) -> bool:
        return self._killed(self._chosen(self.workers, fault), fault)

    def _throw_kill_dispatcher(self, fault: plan.Fault) -> bool:
        return self._killed(self._chosen(self.dispatchers, fault), fault)

    def _killed(self, actor: Actor | None, fault: plan.Fault) -> bool:
        if actor is None:
            return False
        self._kill(actor)
        return self._noted(fault, actor.name, lambda: self._start(actor))

    def _throw_freeze_worker(self, fault: plan.Fault) -> bool:
        return self._frozen(self._chosen(self.workers, fault), fault)

    def _throw_freeze_dispatcher(self, fault: plan.Fault) -> bool:
        return self._frozen(self._chosen(self.dispatchers, fault), fault)

    def _frozen(self, actor: Actor | None, fault: plan.Fault) -> bool:
        if actor is None:
            return False
        self._send(actor, signal.SIGSTOP)
        actor.is_frozen = True

        def thaw() -> None:
            self._send(actor, signal.SIGCONT)
            actor.is_frozen = False

        return self._noted(fault, actor.name, thaw)

    def _throw_stop_worker(self, fault: plan.Fault) -> bool:
        return self._replaced(fault, is_other=False)

    def _throw_deploy(self, fault: plan.Fault) -> bool:
        return self._replaced(fault, is_other=True)

    def _replaced(self, fault: plan.Fault, *, is_other: bool) -> bool:
        """Asked to end, and followed by another once it has."""
        actor = self._chosen(self.workers, fault)
        if actor is None:
            return False
        self._send(actor, signal.SIGTERM)
        actor.is_followed = True
        if is_other:
            actor.version = 3 - actor.version
        return self._noted(fault, actor.name, lambda: None)

    def _throw_collect(self, fault: plan.Fault) -> bool:
        self._visit("collect", "-m", "tickwork", "-a", "chaos.shop:app", "collect", "--for", "2")
        return self._noted(fault, "collect", lambda: None)

    def _throw_upgrade(self, fault: plan.Fault) -> bool:
        self._visit("upgrade", "-m", "chaos.upgrading")
        return self._noted(fault, "schema", lambda: None)

    def _throw_jump_clock(self, fault: plan.Fault) -> bool:
        actor = self._chosen(self.workers, fault)
        if actor is None or actor.clock is None:
            return False
        clock, seconds = actor.clock, HOUR if fault.target % 2 else -HOUR
        clock.write_text(str(seconds), encoding="ascii")
        return self._noted(fault, actor.name, lambda: _write(clock, "0"))

    # ------------------------------------------------------------ faults of servers

    def _throw_restart_server(self, fault: plan.Fault) -> bool:
        return self._server_away(fault, "stop")

    def _throw_crash_server(self, fault: plan.Fault) -> bool:
        return self._server_away(fault, "crash")

    def _server_away(self, fault: plan.Fault, how: str) -> bool:
        assert isinstance(self.database, ServerDatabase), self.database
        server = self.database.server
        if not self._taken("server"):
            return False
        getattr(server, how)()

        def back() -> None:
            server.start()
            self._busy.discard("server")

        return self._noted(fault, "server", back)

    def _throw_cut(self, fault: plan.Fault) -> bool:
        is_reset = bool(fault.target % 2)
        return self._on_a_way(fault, lambda proxy: proxy.cut(reset=is_reset))

    def _throw_delay(self, fault: plan.Fault) -> bool:
        def delay(proxy: Any) -> None:
            proxy.delay = 0.02 + fault.target / 10_000

        return self._on_a_way(fault, delay)

    def _throw_stall(self, fault: plan.Fault) -> bool:
        return self._on_a_way(fault, lambda proxy: proxy.stall())

    def _throw_lose_answer(self, fault: plan.Fault) -> bool:
        # Every second time to a dispatcher, whose commits are fewer.
        ways = range(WORKERS, WORKERS + DISPATCHERS) if fault.target % 2 else range(WORKERS)
        return self._on_a_way(fault, lambda proxy: proxy.cut_after(b"COMMIT"), ways=ways)

    def _on_a_way(
        self,
        fault: plan.Fault,
        harm: Callable[[Any], object],
        *,
        ways: Sequence[int] = range(WORKERS + DISPATCHERS),
    ) -> bool:
        assert isinstance(self.database, ServerDatabase), self.database
        number = ways[fault.target // 2 % len(ways)]
        name = f"way-{number}"
        if not self._taken(name):
            return False
        proxy = self.database.proxies[number]
        harm(proxy)

        def heal() -> None:
            proxy.heal()
            self._busy.discard(name)

        return self._noted(fault, name, heal)

    # ------------------------------------------------------------ faults of SQLite

    def _throw_fill_disk(self, fault: plan.Fault) -> bool:
        assert isinstance(self.database, SqliteDatabase), self.database
        return self._within(fault, self.database.filled_up())

    def _throw_hog(self, fault: plan.Fault) -> bool:
        assert isinstance(self.database, SqliteDatabase), self.database
        return self._within(fault, self.database.hogged())

    def _within(self, fault: plan.Fault, block: contextlib.AbstractContextManager[None]) -> bool:
        if not self._taken("disk"):
            return False
        stack = self._stack.enter_context(contextlib.ExitStack())
        stack.enter_context(block)

        def leave() -> None:
            stack.close()
            self._busy.discard("disk")

        return self._noted(fault, "disk", leave)

    def _taken(self, name: str) -> bool:
        if name in self._busy:
            return False
        self._busy.add(name)
        return True


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")


@contextlib.contextmanager
def beaten(
    kind: str, folder: Path, *, seconds: float, seed: int, source: Path | None = None
) -> Iterator[tuple[str, Counter[str]]]:
    """A database after a run of chaos: its URL, and the faults that were thrown."""
    with made(kind, folder, ways=WORKERS + DISPATCHERS) as database:
        driver = Driver(database, folder, seed, source or ROOT / "src")
        driver.run(seconds)
        yield database.url(), driver.thrown
