"""``python -m chaos.checker FOLDER``: check once more what a run left behind."""

import sys
from pathlib import Path

from chaos.checker import judge

if __name__ == "__main__":
    verdict = judge(Path(sys.argv[1]))
    sys.stdout.write(verdict.render() + "\n")
    sys.exit(1 if verdict.violations else 0)
