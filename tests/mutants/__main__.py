"""Changes one place of the source at a time, and runs the tests that should notice.

    make test-mutants                       100 places, with a random seed
    make test-mutants COUNT=20 SEED=7       the same 20 places each time
    make test-mutants FILES=_domain         only files below src/tickwork/_domain

Nothing is changed here: each job has a copy of the files. It prints the mutants that no test
noticed. Those that change nothing that matters are in `accepted.toml`, with the reason.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path, PurePosixPath
from queue import SimpleQueue
from typing import Final, NamedTuple

from mutants.mutations import Mutation, find_mutations
from mutants.selection import PACKAGE, Stage, list_sources, stages_of

ROOT: Final = Path(__file__).resolve().parents[2]
ACCEPTED: Final = Path(__file__).with_name("accepted.toml")
SECONDS_MAX: Final = 300.0
"""Seconds of tests for one mutant. One that nothing has noticed by then counts as a survivor."""

TEST_SECONDS: Final = 60
"""Seconds of one test: a mutant may make it wait for ever."""

NO_TESTS: Final = 5  # the exit code of pytest
CANNOT_START: Final = "(the tests cannot start)"
OUT_OF_TIME: Final = "(out of time)"
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) tests/(.*?)(?: - |$)", re.MULTILINE)


class Mutant(NamedTuple):
    source: PurePosixPath
    mutation: Mutation
    line: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: {self.before}  →  {self.after}"


class Verdict(NamedTuple):
    """The test that noticed a mutant; empty if none did."""

    mutant: Mutant
    test: str
    seconds: float
    reason: str = ""  # why it may survive

    @property
    def is_survivor(self) -> bool:
        return self.test in {"", OUT_OF_TIME} and not self.reason


class Accepted:
    """Survivors that may be, with the reason of each: by their text, because lines move."""

    def __init__(self, text: str) -> None:
        self.reasons: dict[tuple[str, str, str], str] = {
            (each["file"], each["before"], each["after"]): each["reason"]
            for each in tomllib.loads(text).get("mutant", [])
        }

    def reason_of(self, mutant: Mutant) -> str:
        name = str(mutant.source.relative_to(PACKAGE))
        return self.reasons.get((name, mutant.before, mutant.after), "")


def select_mutants(root: Path, *, files: str, number: int, seed: int) -> tuple[list[Mutant], int]:
    """Choose some of all mutants, and count them all."""
    found: list[Mutant] = []
    for source in list_sources(root):
        if source.relative_to(PACKAGE).is_relative_to(files):
            text = (root / source).read_bytes()
            found += (
                Mutant(source, each, each.line(text), *each.describe(text))
                for each in find_mutations(text, source.suffix)
            )
    return random.Random(seed).sample(found, min(number, len(found))), len(found)


class Workspace:
    """A copy of the files, in which one place at a time is changed."""

    _ticks = count(1)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, check=True, text=True,
        ).stdout  # fmt: skip
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def judge(self, mutant: Mutant, deadline: float) -> str:
        """Run tests until one fails; return its name, nothing, or that the time was not enough."""
        file = self.folder / mutant.source
        original = file.read_bytes()
        try:
            self._write(file, mutant.mutation.apply(original))
            left = stages_of(mutant.source, self.folder)
            while left and time.monotonic() < deadline:
                stage = left.pop(0)
                failed = self._run(stage, deadline)
                if not failed:
                    continue
                self._write(file, original)
                alone = stage if failed == CANNOT_START else Stage((failed,), stage.markers)
                if not self._run(alone, deadline + TEST_SECONDS):
                    return failed
                if failed == CANNOT_START:
                    raise RuntimeError(f"The tests cannot start without a mutant, too: {stage}")
                # It fails without the mutant, too: go on without it.
                self._write(file, mutant.mutation.apply(original))
                left.insert(0, stage._replace(without=(*stage.without, failed)))
        finally:
            self._write(file, original)
        return OUT_OF_TIME if time.monotonic() >= deadline else ""

    def _write(self, file: Path, text: bytes) -> None:
        file.write_bytes(text)
        # Python takes a compiled module for that of a source with the same second and length.
        moment = 10 * next(self._ticks)
        os.utime(file, (moment, moment))

    def _run(self, stage: Stage, deadline: float) -> str:
        """Run tests; return the name of the first one that failed, below ``tests``."""
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "--tb=no"),
            *("-p", "no:cacheprovider", "-p", "no:randomly", f"--timeout={TEST_SECONDS}"),
            *("--basetemp", str(self.folder / ".pytest-files")),
            *(f"--deselect=tests/{each}" for each in stage.without),
            *("-m", stage.markers, *(f"tests/{path}" for path in stage.paths)),
        ]
        output, code = run_in_group(
            command, self.folder, self._environment(), deadline - time.monotonic()
        )
        if code is None:
            return ""  # judge() sees that the time is over
        if code in {0, NO_TESTS}:
            return ""
        match = _FAILED.search(output)
        return match[1] if match else CANNOT_START

    def _environment(self) -> Mapping[str, str]:
        paths = [str(self.folder / "src"), str(self.folder / "conformance" / "src")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "CI": "1"}


def run_in_group(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
) -> tuple[str, int | None]:
    """Run a program, and end its children with it. The code is None if it took too long."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as program:
        try:
            output, _ = program.communicate(timeout=max(seconds, 1.0))
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            output, _ = program.communicate()
            return output, None
    return output, program.returncode


def judge_all(
    mutants: Sequence[Mutant], accepted: Accepted, *, jobs: int, seconds: float
) -> Iterator[Verdict]:
    """Judge all mutants, ``jobs`` at a time, in their order."""
    with tempfile.TemporaryDirectory(prefix="tickwork-mutants-") as folder:
        free: SimpleQueue[Workspace] = SimpleQueue()
        for number in range(jobs):
            free.put(Workspace(Path(folder, str(number))))

        def judge(mutant: Mutant) -> Verdict:
            workspace, begun = free.get(), time.monotonic()
            try:
                test = workspace.judge(mutant, begun + seconds)
            finally:
                free.put(workspace)
            reason = "" if test not in {"", OUT_OF_TIME} else accepted.reason_of(mutant)
            return Verdict(mutant, test, time.monotonic() - begun, reason)

        with ThreadPoolExecutor(jobs) as threads:
            yield from threads.map(judge, mutants)


def summarize(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The survivors, and how many there are."""
    survivors = [each for each in verdicts if each.is_survivor]
    accepted = [each for each in verdicts if each.reason]
    if accepted:
        yield "\nAccepted survivors:"
        yield from (f"  {each.mutant}\n      {each.reason}" for each in accepted)
    if survivors:
        yield "\nNo test noticed:"
        yield from (f"  {each.mutant} {each.test}".rstrip() for each in survivors)
    judged = len(verdicts) - len(accepted)
    share = 100 * (judged - len(survivors)) / judged if judged else 100
    yield (
        f"\n{len(verdicts)} mutants: {judged - len(survivors)} noticed, {len(survivors)} not, "
        f"{len(accepted)} accepted. {share:.0f} % of those that are not accepted were noticed."
    )


def _print(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)  # noqa: T201  # the program's output


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many mutants")
    parser.add_argument("--seed", type=int, default=None, help="which ones; default: random")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--files", default="", help="only files below this path of src/tickwork")
    parser.add_argument("--seconds", type=float, default=SECONDS_MAX, help="for one mutant")
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    given = parser.parse_args()
    seed = random.randrange(10_000) if given.seed is None else given.seed
    mutants, total = select_mutants(ROOT, files=given.files, number=given.count, seed=seed)
    _print(f"Seed {seed}: {len(mutants)} of {total:,} mutants.")
    if given.list:
        _print(*map(str, mutants))
        return 0
    accepted = Accepted(ACCEPTED.read_text(encoding="utf-8"))
    verdicts = []
    for verdict in judge_all(mutants, accepted, jobs=given.jobs, seconds=given.seconds):
        verdicts.append(verdict)
        what = f"NOT NOTICED {verdict.test}" if verdict.is_survivor else verdict.test or "accepted"
        _print(f"{verdict.seconds:5.0f} s  {verdict.mutant}\n         {what}")
    _print(*summarize(verdicts))
    return int(any(each.is_survivor for each in verdicts))


if __name__ == "__main__":
    sys.exit(main())
