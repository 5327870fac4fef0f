"""Known vulnerabilities of the pinned dependencies: ``make audit``, a part of ``make check``.

pip-audit asks the advisory database of PyPI about every line of ``constraints.txt``. It also ends
with "no known vulnerabilities" when the database knows none of the packages, as behind a mirror
that has no advisories. So this program counts the answers, and says what was not audited. With
TICKWORK_REQUIRE_AUDIT=1 that is an error.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
VARIABLE: Final = "TICKWORK_REQUIRE_AUDIT"
COMMAND: Final = (
    *("-m", "pip_audit", "--requirement", "constraints.txt", "--no-deps", "--disable-pip"),
    *("--format", "json", "--progress-spinner", "off", "--timeout", "10"),
)
SECONDS_MAX: Final = 300


class Answer(NamedTuple):
    """What is known of the packages: all of them, those without an answer, and what was found."""

    packages: int
    unknown: Sequence[str]
    found: Sequence[str]

    @property
    def code(self) -> int:
        return int(bool(self.found or (self.unknown and os.environ.get(VARIABLE))))

    def render(self) -> str:
        lines = [f"{len(self.found)} known vulnerabilities:", *self.found] if self.found else []
        audited = self.packages - len(self.unknown)
        if self.unknown:
            missing = f"{len(self.unknown)} of {self.packages} packages were NOT audited"
            few = ", ".join(self.unknown[:3])
            why = f"PyPI's advisory database has no answer about them here: {few}, …"
            lines.append(f"{missing}. {why}")
        if not lines:
            lines.append(f"{audited} packages audited: no known vulnerabilities.")
        return "\n".join(lines)


def read_answer(output: str) -> Answer | None:
    """Read what pip-audit printed; None if it could not ask."""
    try:
        packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError):
        return None
    unknown = [package["name"] for package in packages if "skip_reason" in package]
    found = [
        f"  {package['name']} {package['version']}: {fault['id']}, fixed in"
        f" {', '.join(fault['fix_versions']) or 'no release'}"
        for package in packages
        for fault in package.get("vulns", ())
    ]
    return Answer(len(packages), unknown, found)


def main() -> int:
    """Return 1 if a vulnerability is known, or if the audit is required and was not possible."""
    ended = subprocess.run(
        [sys.executable, *COMMAND],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    answer = read_answer(ended.stdout)
    if answer is None:
        last = ended.stderr.strip().splitlines()[-1:] or ["no message"]
        print_line(f"The dependencies were NOT audited: {last[0]}")
        return int(bool(os.environ.get(VARIABLE)))
    print_line(answer.render())
    return answer.code


def print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
