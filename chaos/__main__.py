"""``python -m chaos --db postgres --seconds 60 --seed 7``: inject faults, then check."""

import argparse
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from chaos.checker import judge
from chaos.databases import KINDS
from chaos.driver import run_chaos


def main() -> int:
    """Return 1 if the checker found a violation; print the seed and the run's timeline."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--db", default="sqlite", choices=KINDS)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--source", type=Path, help="the code to test, instead of src")
    parser.add_argument("--keep", action="store_true", help="keep journals and tables")
    options = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{options.db}-{seed}-", dir="/tmp"))
    print_line(f"chaos on {options.db} for {options.seconds:.0f} s, seed {seed}, in {folder}")
    with run_chaos(
        options.db, folder, seconds=options.seconds, seed=seed, source=options.source
    ) as (
        url,
        injected,
    ):
        verdict = judge(folder, url)
    print_line(f"faults injected: {sum(injected.values())}")
    for name, count in sorted(injected.items()):
        print_line(f"  {name:18} {count}")
    print_line(verdict.render())
    if not verdict.counts["runs"]:
        print_line(f"No run was added, so nothing was checked. Read the *.out files in {folder}")
        return 1
    if verdict.violations:
        print_line(
            f"To repeat: make chaos DB={options.db} SECONDS={options.seconds:.0f} SEED={seed}"
        )
        print_line(f"Journals and tables: {folder}")
        return 1
    if not options.keep:
        shutil.rmtree(folder)
    return 0


def print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
