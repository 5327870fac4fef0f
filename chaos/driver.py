"""Starts the actors, injects the faults of a plan, and waits until all runs are finished."""

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
from chaos.databases import (
    Database,
    PostgresDatabase,
    ServerDatabase,
    SqliteDatabase,
    connect,
    create_database,
)
from chaos.journal import Journal
from servers import workspace
from servers.private import children_of

ROOT: Final = Path(__file__).resolve().parent.parent
WORKERS: Final = 3
DISPATCHERS: Final = 2
SETTLE_SECONDS: Final = 45.0
"""How long no run may finish after the last fault, while there are others."""
SETTLE_SECONDS_MAX: Final = 300.0

STOP_SECONDS: Final = 30.0
POLL_EVERY: Final = 0.02
HOUR: Final = 3600
STEPS_FORWARD: Final = (20, 60, 300)
STEPS_BACK: Final = (20, 60, HOUR)
"""Seconds. All are multiples of 20, so that the checker knows by which time a row was written."""

INSTALL: Final = "import sys; from tickwork import Tickwork; Tickwork(sys.argv[1]).install()"


@dataclass(slots=True)
class Actor:
    """One worker or dispatcher: a process that is replaced when it ends."""

    name: str  # "worker-1"
    proxy: int
    version: int = 1
    generation: int = 0
    process: subprocess.Popen[bytes] | None = None
    is_frozen: bool = False
    is_ending: bool = False  # the driver has sent SIGTERM or SIGKILL
    is_replaced: bool = False  # another process follows when it has ended
    clock: Path | None = None
    processes: int = 1  # of a worker; with more than one, there is a supervisor

    @property
    def children(self) -> list[int]:
        """The worker processes of a supervisor."""
        if self.process is None or self.processes == 1:
            return []
        return list(children_of(self.process.pid))

    @property
    def is_up(self) -> bool:
        return self.process is not None and not self.is_frozen and not self.is_ending


@dataclass
class Driver:
    """One run of the fault injection."""

    database: Database
    folder: Path
    seed: int
    source: Path
    injected: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.journal = Journal(self.folder / "driver.log", "driver")
        self.workers = [
            Actor(f"worker-{number}", number, 1 + number % 2) for number in range(WORKERS)
        ]
        self.dispatchers = [
            Actor(f"dispatcher-{number}", WORKERS + number, 1 + number % 2)
            for number in range(DISPATCHERS)
        ]
        self.workers[-1].processes = 2
        self._clock: Path | None = None  # of the machine, which all processes on SQLite share
        self._clock_offset = 0
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._stack = contextlib.ExitStack()
        self._busy: set[str] = set()  # targets of the current faults
        self._is_healing = self._is_closing = False

    # ------------------------------------------------------------ the run

    def run(self, seconds: float) -> None:
        """Inject faults for so long, then wait until all runs are finished."""
        faults = plan.draw_faults(self.seed, seconds, self.database.faults)
        self.journal.write("began", seed=self.seed, seconds=seconds, kind=self.database.kind)
        if self.database.kind == "sqlite":
            self._clock = self.folder / "machine.clock"
            self._set_clock(0)
        self._install()
        (self.folder / "manifest.json").write_text(json.dumps(workload.manifest()))
        try:
            for actor in (*self.workers, *self.dispatchers):
                self._start(actor)
            begun = time.monotonic()
            for fault in faults:
                self._at(begun + fault.at, lambda fault=fault: self._inject(fault))  # type: ignore[misc]
            self._until(lambda: time.monotonic() - begun >= seconds, limit=seconds + HOUR)
            self._heal()
            self._settle()
        finally:
            self._kill_all()
        self.journal.write("ended", injected=dict(self.injected))

    def _install(self) -> None:
        command = [sys.executable, "-c", INSTALL, self.database.url()]
        subprocess.run(command, check=True, env=self._env("installer", None), cwd=ROOT)
        self.database.prepare()

    def _heal(self) -> None:
        """End all faults, and stop the dispatchers."""
        self._is_healing = True
        # Faults that are not over end now.
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

    def _settle(self) -> None:
        pauser = self._start_helper("pauser", "-m", "chaos.schedule_pauser")
        self._until(lambda: pauser.poll() is not None, limit=SETTLE_SECONDS)
        left = self._count_unfinished()
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while left and time.monotonic() < deadline:
            # On a busy machine the runs of a schedule, one after the other, take their time.
            self._until(lambda: self._count_unfinished() == 0, limit=SETTLE_SECONDS, every=0.3)
            before, left = left, self._count_unfinished()
            if before >= 0 and left >= before:
                break
        if left:
            self.journal.write("not settled", unfinished=left)
        else:
            self.journal.write("settled")
        self._is_closing = True
        for actor in self.workers:
            self._send(actor, signal.SIGTERM)
        self._until(lambda: not any(a.process for a in self.workers), limit=STOP_SECONDS)

    def _kill_all(self) -> None:
        self._stack.close()
        for actor in (*self.workers, *self.dispatchers):
            if actor.process is not None:
                self.journal.write("killed at the end", actor=actor.name, pid=actor.process.pid)
                self._kill(actor)
        for process in self._helpers:
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

    def _until(self, check: Callable[[], bool], *, limit: float, every: float = POLL_EVERY) -> bool:
        deadline = time.monotonic() + limit
        while not check():
            while self._later and self._later[0][0] <= time.monotonic():
                heapq.heappop(self._later)[2]()
            self._note_exits()
            if time.monotonic() >= deadline:
                return False
            time.sleep(every)
        return True

    def _note_exits(self) -> None:
        """Record which actors have ended. One that ended by itself is started again."""
        for actor in (*self.workers, *self.dispatchers):
            process = actor.process
            if process is None or process.poll() is None:
                continue
            self._note_exit(actor, process)
            if actor.is_replaced or not (actor.is_ending or self._is_closing):
                self._after(0.3, lambda actor=actor: self._start(actor))  # type: ignore[misc]

    # ------------------------------------------------------------ actors

    def _start(self, actor: Actor) -> None:
        if actor.process is not None:
            return
        actor.generation += 1
        actor.is_frozen = actor.is_ending = actor.is_replaced = False
        who = f"{actor.name}.{actor.generation}"
        if actor.name.startswith("worker"):
            if self._clock is None:
                actor.clock = self.folder / f"{who}.clock"
                actor.clock.write_text("0", encoding="ascii")
            arguments = ["-m", "tickwork", "-a", "chaos.application:app", "work", "--threads", "6"]
            arguments += ["--drain", "1s", "--processes", str(actor.processes)]
        else:
            arguments = ["-m", "chaos.dispatcher"]
        actor.process = self._spawn(who, arguments, actor)
        self.journal.write(
            "started", actor=actor.name, child=actor.process.pid, version=actor.version
        )

    def _spawn(
        self, who: str, arguments: list[str], actor: Actor | None
    ) -> subprocess.Popen[bytes]:
        with (self.folder / f"{who}.out").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, *arguments],
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
            "CHAOS_LOOP": str(self._loop_file(who if actor is None else actor.name)),
            "CHAOS_URL": self.database.url(None if actor is None else actor.proxy),
        }
        if actor is not None:
            env["CHAOS_VERSION"] = str(actor.version)
        clock = self._clock or (actor.clock if actor is not None else None)
        if clock is not None:
            env["CHAOS_CLOCK"] = str(clock)
        return env

    def _start_helper(self, who: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a process that does one thing and ends."""
        who = f"{who}-{len(self._helpers)}"
        process = self._spawn(who, list(arguments), None)
        self._helpers.append(process)
        self.journal.write("started", actor=who, child=process.pid, version=1)
        return process

    def _send(self, actor: Actor, number: signal.Signals) -> None:
        if actor.process is None:
            return
        actor.is_ending = actor.is_ending or number in {signal.SIGTERM, signal.SIGKILL}
        children = actor.children
        self._note_signal(actor, actor.process.pid, number)
        actor.process.send_signal(number)
        for pid in children:
            self._note_signal(actor, pid, number)
            if number is not signal.SIGTERM:  # which the supervisor passes on
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _note_signal(self, actor: Actor, pid: int, number: signal.Signals) -> None:
        self.journal.write("signal", actor=actor.name, child=pid, number=number.name)

    def _kill(self, actor: Actor) -> None:
        if actor.process is None:
            return
        self._send(actor, signal.SIGKILL)
        actor.process.wait(10)
        self._note_exit(actor, actor.process)

    def _note_exit(self, actor: Actor, process: subprocess.Popen[bytes]) -> None:
        self.journal.write(
            "exited",
            actor=actor.name,
            child=process.pid,
            code=process.returncode,
            is_ending=actor.is_ending,
        )
        workspace.current().forget(process)
        actor.process = None

    # ------------------------------------------------------------ faults

    def _inject(self, fault: plan.Fault) -> None:
        """Inject the fault, if there is a target."""
        if self._is_healing:
            return
        act: Callable[[plan.Fault], bool] = getattr(self, f"_inject_{fault.name}")
        if act(fault):
            self.injected[fault.name] += 1

    def _end_later(self, fault: plan.Fault, target: str, undo: Callable[[], None]) -> bool:
        """Record that the fault has begun, and plan its end."""
        self.journal.write("fault", name=fault.name, target=target, seconds=fault.seconds)

        def end() -> None:
            undo()
            self.journal.write("fault ended", name=fault.name, target=target)

        self._after(fault.seconds, end)
        return True

    def _choose(self, actors: list[Actor], fault: plan.Fault) -> Actor | None:
        up = [actor for actor in actors if actor.is_up]
        return up[fault.target % len(up)] if up else None

    def _inject_kill_worker(self, fault: plan.Fault) -> bool:
        return self._kill_for(self._choose(self.workers, fault), fault)

    def _inject_kill_child(self, fault: plan.Fault) -> bool:
        for actor in self.workers:
            children = actor.children if actor.is_up else []
            if children:
                pid = children[fault.target % len(children)]
                self._note_signal(actor, pid, signal.SIGKILL)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                return self._end_later(fault, actor.name, lambda: None)
        return False

    def _inject_kill_dispatcher(self, fault: plan.Fault) -> bool:
        return self._kill_for(self._choose(self.dispatchers, fault), fault)

    def _kill_for(self, actor: Actor | None, fault: plan.Fault) -> bool:
        if actor is None:
            return False
        self._kill(actor)
        return self._end_later(fault, actor.name, lambda: self._start(actor))

    def _inject_freeze_worker(self, fault: plan.Fault) -> bool:
        if sum(actor.is_up for actor in self.workers) < 2:
            return False  # another worker must be able to take its runs
        return self._freeze_for(self._choose(self.workers, fault), fault)

    def _inject_pause_worker(self, fault: plan.Fault) -> bool:
        return self._inject_freeze_worker(fault)

    def _inject_stop_loop(self, fault: plan.Fault) -> bool:
        """Have the next coroutine of a worker stop the event loop: once, or again and again."""
        actor = self._choose(self.workers, fault)
        if actor is None or not self._reserve(f"loop of {actor.name}"):
            return False
        request = self._loop_file(actor.name)
        new = request.with_suffix(".new")
        _write(new, "often" if fault.target % 2 else "once")
        new.rename(request)

        def end() -> None:
            request.unlink(missing_ok=True)
            self._busy.discard(f"loop of {actor.name}")

        return self._end_later(fault, actor.name, end)

    def _loop_file(self, name: str) -> Path:
        return self.folder / f"{name}.loop"

    def _inject_freeze_dispatcher(self, fault: plan.Fault) -> bool:
        return self._freeze_for(self._choose(self.dispatchers, fault), fault)

    def _freeze_for(self, actor: Actor | None, fault: plan.Fault) -> bool:
        if actor is None:
            return False
        self._send(actor, signal.SIGSTOP)
        actor.is_frozen = True

        def thaw() -> None:
            self._send(actor, signal.SIGCONT)
            actor.is_frozen = False

        return self._end_later(fault, actor.name, thaw)

    def _inject_stop_worker(self, fault: plan.Fault) -> bool:
        return self._replace(fault, is_other=False)

    def _inject_deploy(self, fault: plan.Fault) -> bool:
        return self._replace(fault, is_other=True)

    def _replace(self, fault: plan.Fault, *, is_other: bool) -> bool:
        """Ask a worker to end; another one follows when it has ended."""
        actor = self._choose(self.workers, fault)
        if actor is None:
            return False
        self._send(actor, signal.SIGTERM)
        actor.is_replaced = True
        if is_other:
            actor.version = 3 - actor.version
        return self._end_later(fault, actor.name, lambda: None)

    def _inject_collect(self, fault: plan.Fault) -> bool:
        self._start_helper(
            "collect", "-m", "tickwork", "-a", "chaos.application:app", "collect", "--for", "2"
        )
        return self._end_later(fault, "collect", lambda: None)

    def _inject_upgrade(self, fault: plan.Fault) -> bool:
        self._start_helper("upgrade", "-m", "chaos.schema_upgrade")
        return self._end_later(fault, "schema", lambda: None)

    def _inject_jump_clock(self, fault: plan.Fault) -> bool:
        actor = self._choose(self.workers, fault)
        if actor is None or actor.clock is None:
            return False
        clock, seconds = actor.clock, HOUR if fault.target % 2 else -HOUR
        clock.write_text(str(seconds), encoding="ascii")
        return self._end_later(fault, actor.name, lambda: _write(clock, "0"))

    # ------------------------------------------------------------ faults of servers

    def _inject_restart_server(self, fault: plan.Fault) -> bool:
        return self._take_server_down(fault, "stop")

    def _inject_crash_server(self, fault: plan.Fault) -> bool:
        return self._take_server_down(fault, "crash")

    def _take_server_down(self, fault: plan.Fault, how: str) -> bool:
        assert isinstance(self.database, ServerDatabase), self.database
        server = self.database.server
        if not self._reserve("server"):
            return False
        getattr(server, how)()

        def back() -> None:
            server.start()
            self._busy.discard("server")

        return self._end_later(fault, "server", back)

    def _inject_cut(self, fault: plan.Fault) -> bool:
        is_reset = bool(fault.target % 2)
        return self._harm_proxy(fault, lambda proxy: proxy.cut(reset=is_reset))

    def _inject_delay(self, fault: plan.Fault) -> bool:
        def delay(proxy: Any) -> None:
            proxy.delay = 0.02 + fault.target / 10_000

        return self._harm_proxy(fault, delay)

    def _inject_stall(self, fault: plan.Fault) -> bool:
        return self._harm_proxy(fault, lambda proxy: proxy.stall())

    def _inject_lose_answer(self, fault: plan.Fault) -> bool:
        # Half of them hit a dispatcher, because dispatchers commit less often.
        proxies = range(WORKERS, WORKERS + DISPATCHERS) if fault.target % 2 else range(WORKERS)
        return self._harm_proxy(fault, lambda proxy: proxy.cut_after(b"COMMIT"), proxies=proxies)

    def _harm_proxy(
        self,
        fault: plan.Fault,
        harm: Callable[[Any], object],
        *,
        proxies: Sequence[int] = range(WORKERS + DISPATCHERS),
    ) -> bool:
        assert isinstance(self.database, ServerDatabase), self.database
        number = proxies[fault.target // 2 % len(proxies)]
        name = f"proxy-{number}"
        if not self._reserve(name):
            return False
        proxy = self.database.proxies[number]
        harm(proxy)

        def heal() -> None:
            proxy.heal()
            self._busy.discard(name)

        return self._end_later(fault, name, heal)

    # ------------------------------------------------------------ faults of tables

    def _inject_revoke_rights(self, fault: plan.Fault) -> bool:
        """Revoke a right that the workers need. A server that is down could not grant it again."""
        assert isinstance(self.database, PostgresDatabase), self.database
        return self._enter(fault, self.database.right_revoked(fault.target), place="server")

    def _inject_hold_reader(self, fault: plan.Fault) -> bool:
        assert isinstance(self.database, PostgresDatabase), self.database
        held = self.database.transaction_held(has_number=False)
        return self._enter(fault, held, place="held reader")

    def _inject_hold_writer(self, fault: plan.Fault) -> bool:
        assert isinstance(self.database, PostgresDatabase), self.database
        held = self.database.transaction_held(has_number=True)
        return self._enter(fault, held, place="held writer")

    def _inject_fill_disk(self, fault: plan.Fault) -> bool:
        assert isinstance(self.database, PostgresDatabase | SqliteDatabase), self.database
        place = "disk" if isinstance(self.database, SqliteDatabase) else "server"
        return self._enter(fault, self.database.disk_full(), place=place)

    # ------------------------------------------------------------ faults of SQLite

    def _inject_step_clock(self, fault: plan.Fault) -> bool:
        """Set the clock of the machine forward, or back for a moment."""
        if not self._reserve("clock"):
            return False
        number = fault.target // 2
        if fault.target % 2:
            # It stays: when a clock is set back, schedules wait until they reach that time again.
            self._clock_offset += STEPS_FORWARD[number % len(STEPS_FORWARD)]
            self._set_clock(self._clock_offset)
        else:
            self._set_clock(self._clock_offset - STEPS_BACK[number % len(STEPS_BACK)])

        def end() -> None:
            self._set_clock(self._clock_offset)
            self._busy.discard("clock")

        return self._end_later(fault, "clock", end)

    def _set_clock(self, offset: int) -> None:
        assert self._clock is not None, self
        new = self._clock.with_suffix(".new")
        _write(new, str(offset))
        self.journal.write("clock", offset=offset)
        new.rename(self._clock)

    def _inject_hog(self, fault: plan.Fault) -> bool:
        assert isinstance(self.database, SqliteDatabase), self.database
        return self._enter(fault, self.database.write_lock_held(), place="disk")

    def _enter(
        self, fault: plan.Fault, block: contextlib.AbstractContextManager[None], *, place: str
    ) -> bool:
        if not self._reserve(place):
            return False
        stack = self._stack.enter_context(contextlib.ExitStack())
        stack.enter_context(block)

        def leave() -> None:
            stack.close()
            self._busy.discard(place)

        return self._end_later(fault, place, leave)

    def _reserve(self, name: str) -> bool:
        if name in self._busy:
            return False
        self._busy.add(name)
        return True


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")


@contextlib.contextmanager
def run_chaos(
    kind: str, folder: Path, *, seconds: float, seed: int, source: Path | None = None
) -> Iterator[tuple[str, Counter[str]]]:
    """Inject faults; yield the URL of the database afterwards, and the faults by kind."""
    with create_database(kind, folder, proxies=WORKERS + DISPATCHERS) as database:
        driver = Driver(database, folder, seed, source or ROOT / "src")
        driver.run(seconds)
        yield database.url(), driver.injected
