"""What to do about a problem, on pages: links and buttons in place of commands."""

import re
from typing import Final, NamedTuple
from urllib.parse import urlencode

from tickwork.dashboard.presentation import path_part

_COMMAND: Final = re.compile(
    r"(?:[,:;]?\s*)`?(?:python manage\.py )?\btickwork (?P<name>[a-z]+)(?P<rest>(?: [^\s`.;]+)*)`?"
    r"(?P<tail> shows? (?:why|details)\.)?"
)
_OPTION: Final = re.compile(r"--([a-z-]+) (\S+)")


class AdviceStep(NamedTuple):
    """A link, or a button if ``action`` names the act that its form carries out."""

    label: str
    path: str
    action: str = ""


class Advice(NamedTuple):
    """A sentence, and the steps that it recommends."""

    text: str
    steps: list[AdviceStep]


def advise(text: str) -> Advice:
    """Read the commands in an advice for the command line.

    >>> advise("Start one: tickwork work")
    Advice(text='Start one.', steps=[AdviceStep(label='Workers', path='/workers', action='')])
    """
    steps: list[AdviceStep] = []

    def replace(found: re.Match[str]) -> str:
        step = _step_of(found["name"], found["rest"].split())
        if step is not None:
            steps.append(step)
        return ". "

    shown = _COMMAND.sub(replace, text).replace("`", "")
    shown = re.sub(r"\s*\.(?:\s*\.)+", ".", shown).strip()
    return Advice("" if not shown.strip(" .") else shown.removeprefix(".").strip(), steps)


def _step_of(command: str, words: list[str]) -> AdviceStep | None:
    options = dict(_OPTION.findall(" ".join(words)))
    match command:
        case "retry" if words:
            return AdviceStep("Retry", f"/runs/{path_part(words[0])}/retry", "run.retry")
        case "resume" if options:
            kind, name = next(iter(options.items()))
            path = f"/{kind}s/{path_part(name)}/resume"
            return AdviceStep(f"Resume the {kind} {name}", path, f"{kind}.resume")
        case "dispatch" if words:
            return AdviceStep(f"Dispatch {words[0]}", f"/dispatch?{urlencode({'job': words[0]})}")
        case "runs":
            return AdviceStep("Show these runs", f"/runs?{urlencode(options)}")
        case "work":
            return AdviceStep("Workers", "/workers")
        case "doctor" | "status":
            return AdviceStep("Alerts", "/alerts")
        case _:
            return None
