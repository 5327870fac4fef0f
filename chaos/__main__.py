"""``python -m chaos --db postgres --seconds 60 --seed 7``: beat it, and judge what is left."""

import argparse
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from chaos.checker import judge
from chaos.driver import beaten


def main() -> int:
    """Run it; 1 when a promise was broken, with the seed and the story."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--db", default="sqlite", choices=["sqlite", "postgres", "mariadb"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--source", type=Path, help="the code to beat, instead of src")
    parser.add_argument("--keep", action="store_true", help="keep journals and tables")
    given = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{given.db}-{seed}-", dir="/tmp"))
    say(f"chaos on {given.db} for {given.seconds:.0f} s, seed {seed}, in {folder}")
    with beaten(given.db, folder, seconds=given.seconds, seed=seed, source=given.source) as (
        url,
        thrown,
    ):
        verdict = judge(folder, url)
    say(f"faults thrown: {sum(thrown.values())}")
    for name, count in sorted(thrown.items()):
        say(f"  {name:18} {count}")
    say(verdict.told())
    if verdict.violations:
        say(f"Again: make chaos DB={given.db} SECONDS={given.seconds:.0f} SEED={seed}")
        say(f"Journals and tables: {folder}")
        return 1
    if not given.keep:
        shutil.rmtree(folder)
    return 0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
