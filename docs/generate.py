"""Writes the pages of docs/ that say what the code says: run it by `make docs`.

A test compares the pages with what this would write, so that they cannot go stale.
"""  # noqa: INP001  # a script, not a package

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tickwork import errors
from tickwork._domain.status import NEXT, PHASES, Phase, RunStatus
from tickwork.errors import Signal, TickworkError

FOLDER: Final = Path(__file__).parent
NOTE: Final = "<!-- Written by docs/generate.py. Change the code, then run `make docs`. -->"

MEANINGS: Final[Mapping[RunStatus, str]] = {
    RunStatus.PENDING: "waits for its due time, then for a worker",
    RunStatus.RUNNING: "claimed: a lease says by whom, and until when",
    RunStatus.FAILED: "failed, and will be tried again when due",
    RunStatus.COMPLETED: "done",
    RunStatus.SKIPPED: "a filter or a policy held it back; the reason is recorded",
    RunStatus.CANCELED: "somebody asked that it be stopped",
    RunStatus.FAILED_PERMANENT: "failed for the last time; `tickwork retry` makes a new run",
}

PHASE_MEANINGS: Final[Mapping[Phase, str]] = {
    Phase.WAITING: "it is not due yet",
    Phase.READY: "it is due, and nothing is in its way",
    Phase.BLOCKED: "it is due, but a limit that it needs is full",
    Phase.PARKED: "it is due, but its queue or job is paused, or no live worker knows it",
    Phase.RUNNING: "it is claimed",
}


def pages() -> dict[Path, str]:
    """Every generated page, by its path."""
    reference = FOLDER / "reference"
    return {
        reference / "errors.md": "\n".join(errors_page()),
        reference / "statuses.md": "\n".join(statuses_page()),
    }


def errors_page() -> Iterator[str]:
    """A section for each error, under its code, in the order of the tree."""
    drawing = inspect.cleandoc(errors.__doc__ or "").split("\n\n")
    yield from (NOTE, "", "# Errors", "")
    yield "Every error has a stable code. `error.what`, `error.why` and `error.fix` are the lines"
    yield "of its message; the facts in it are attributes too."
    yield from ("", "```text")
    yield "\n\n".join(inspect.cleandoc(part) for part in drawing if "──" in part)
    yield "```"
    for kind in _kinds():
        yield from ("", f"## {kind.code}", "", f"{_ancestry(kind)}", "", _markdown(kind))
        facts = [name for name in _facts(kind) if name not in {"what", "why", "fix"}]
        if facts:
            yield from ("", "Facts: " + ", ".join(f"`{fact}`" for fact in facts) + ".")
    yield ""


def statuses_page() -> Iterator[str]:
    """The table of statuses, its diagram, and the phases."""
    yield from (NOTE, "", "# Statuses of a run", "")
    yield "| status | meaning | may become |"
    yield "|---|---|---|"
    for status in RunStatus:
        targets = ", ".join(f"`{target}`" for target in RunStatus if target in NEXT[status])
        yield f"| `{status}` | {MEANINGS[status]} | {targets or 'nothing: it is final'} |"
    yield ""
    claimable = " or ".join(f"`{status}`" for status in RunStatus if status.can_execute)
    yield f"A worker may claim a run that is {claimable}."
    yield from ("", "```mermaid", "stateDiagram-v2", "    [*] --> pending")
    for status in RunStatus:
        for target in RunStatus:
            if status.can_transition_to(target):
                yield f"    {status} --> {target}"
        if status.is_final:
            yield f"    {status} --> [*]"
    yield from ("```", "", "## Phases", "")
    yield "An unfinished run also has a phase: where it waits."
    yield from ("", "| phase | meaning | statuses |", "|---|---|---|")
    for phase in Phase:
        statuses = ", ".join(f"`{status}`" for status in RunStatus if phase in PHASES[status])
        yield f"| `{phase}` | {PHASE_MEANINGS[phase]} | {statuses} |"
    yield ""


def _kinds() -> list[type[TickworkError | Signal]]:
    return [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, TickworkError | Signal)
    ]


def _ancestry(kind: type[Exception]) -> str:
    bases = " and ".join(
        f"[`{base.__name__}`](#{base.code})"
        if issubclass(base, TickworkError | Signal)
        else f"`{base.__name__}`"
        for base in kind.__bases__
    )
    return f"`{kind.__name__}`, a kind of {bases}."


def _facts(kind: type[Exception]) -> list[str]:
    """The attributes that the constructors set, from the base down."""
    return [
        fact
        for each in reversed(kind.__mro__)
        if "__init__" in vars(each) and each.__module__ == errors.__name__
        for fact in re.findall(
            r"self\.(\w+)(?:: [^=]+)? =", inspect.getsource(vars(each)["__init__"])
        )
    ]


def _markdown(kind: type[Exception]) -> str:
    return inspect.cleandoc(kind.__doc__ or "").replace("``", "`")


def main() -> None:
    """Write every page that has changed."""
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
