"""``python -m chaos.checker FOLDER``: judge once more what a run of chaos left behind."""

import sys
from pathlib import Path

from chaos.checker import judge

if __name__ == "__main__":
    verdict = judge(Path(sys.argv[1]))
    sys.stdout.write(verdict.told() + "\n")
    sys.exit(1 if verdict.violations else 0)
