"""Converts a crontab: one schedule for each line with a command."""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Final

from tickwork._domain.schedules.zones import Zone
from tickwork._migration.definitions import (
    ConvertedSchedule,
    Entry,
    ImportedSchedules,
    MethodCall,
    NotConvertible,
    UnconvertedEntry,
    converted_or_not,
    to_module,
    zone_calls,
)
from tickwork.errors import TickworkError

IMPORTS: Final = ("import os", "import subprocess")
HELPER: Final = '''\
@app.job
def run_command(
    command: str,
    stdin: str = "",
    shell: str = "/bin/sh",
    user: str | None = None,
    environment: dict[str, str] | None = None,
) -> None:
    """Run a command as cron does. An exit status other than 0 is a failed attempt."""
    home = os.path.expanduser(f"~{user or ''}")
    env = {**os.environ, "HOME": home, "SHELL": shell, **(environment or {})}
    subprocess.run(
        [shell, "-c", command],
        input=stdin,
        text=True,
        check=True,
        user=user,
        env=env,
        cwd=env["HOME"],
    )
'''
VARIABLE: Final = re.compile(r"\s*(?:([A-Za-z_]\w*)|\"([^\"]+)\"|'([^']+)')\s*=\s*(.*?)\s*$")
MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
    "@every_minute": "* * * * *",
}
# Programs that start another one: a schedule is named after that one.
WRAPPERS: Final = {"sudo", "nice", "ionice", "env", "exec", "time", "nohup", "test", "["}
MAIL: Final = "MAILTO"
ZONES: Final = "CRON_TZ"


def read_crontab(
    text: str, *, source: str, zone: str, now: datetime, has_user_column: bool = False
) -> ImportedSchedules:
    """Convert a crontab. ``zone`` is the time zone of lines above the first ``CRON_TZ``."""
    return to_module(
        _entries(text, zone=zone, now=now, has_user_column=has_user_column),
        source=f"crontab {source}",
        imports=IMPORTS,
        helper=HELPER,
    )


def _entries(text: str, *, zone: str, now: datetime, has_user_column: bool) -> Iterator[Entry]:
    environment: dict[str, str] = {}
    names: Counter[str] = Counter({"run_command": 1})  # the name of the job
    comments: list[str] = []
    zone_fault = ""
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip(" \t\r")
        if not line:
            comments.clear()
            continue
        if line.startswith("#"):
            comments.append(line.lstrip("# "))
            continue
        if match := VARIABLE.fullmatch(line):
            name, value = match[1] or match[2] or match[3], _unquoted(match[4])
            if name == ZONES:
                zone, zone_fault = _checked_zone(value, zone)
            elif name == MAIL:
                if value:
                    yield UnconvertedEntry(name=MAIL, source=line, reason=_MAIL_REASON)
            else:
                environment[name] = value
            continue
        yield _line_entry(
            line,
            place=f"line {number}",
            notes=[note for note in comments if note],
            zone=zone,
            zone_fault=zone_fault,
            environment=dict(environment),
            has_user_column=has_user_column,
            names=names,
            now=now,
        )
        comments.clear()


_MAIL_REASON: Final = (
    "tickwork sends no mail. Subscribe to the event RunFailed, or list failures: "
    "tickwork runs --status failed_permanent."
)


def _line_entry(
    line: str,
    *,
    place: str,
    notes: list[str],
    zone: str,
    zone_fault: str,
    environment: dict[str, str],
    has_user_column: bool,
    names: Counter[str],
    now: datetime,
) -> Entry:
    def convert() -> ConvertedSchedule:
        if zone_fault:
            raise NotConvertible(zone_fault)
        expr, rest = _split_time(line.removeprefix("-"))
        user = None
        if has_user_column:
            user, _, rest = rest.partition(" ")
            rest = rest.strip()
        if not rest:
            missing = "user and command" if has_user_column else "command"
            raise NotConvertible(f"The line has no {missing}.")
        command, stdin = _split_command(rest)
        variables = dict(environment)
        arguments: dict[str, Any] = {
            "command": command,
            "stdin": stdin,
            "shell": variables.pop("SHELL", None),
            "user": user,
            "environment": variables,
        }
        return ConvertedSchedule(
            name=_unique_name(command, names),
            handler="run_command",
            timing=[MethodCall("cron", (expr,)), *zone_calls(zone)],
            # cron starts a command also while the last one runs, and skips what it missed.
            options=[
                MethodCall("args", (), {name: each for name, each in arguments.items() if each}),
                MethodCall("overlap", ("allow",)),
                MethodCall("misfire", ("skip",)),
            ],
            notes=[*notes, line],
        )

    return converted_or_not(place, line, convert, now=now)


def _split_time(line: str) -> tuple[str, str]:
    """Split a line into its cron expression and the rest."""
    if line.startswith("@"):
        macro, _, rest = re.sub(r"\s+", " ", line, count=1).partition(" ")
        if macro.lower() == "@reboot":
            raise NotConvertible(
                "@reboot is no time. To do something when a worker starts, use app.on_worker_start."
            )
        if macro.lower() not in MACROS:
            raise NotConvertible(f"There is no macro {macro}.")
        return MACROS[macro.lower()], rest.strip()
    parts = line.split(None, 5)
    if len(parts) < 5:
        raise NotConvertible("The line has fewer than five fields of time.")
    if any("~" in part for part in parts[:5]):
        raise NotConvertible(
            "~ is a random value, chosen when cron starts. H in a cron expression is a value "
            "that depends on the name of the schedule."
        )
    return " ".join(parts[:5]), parts[5].strip() if len(parts) > 5 else ""


def _split_command(text: str) -> tuple[str, str]:
    r"""Split a command from its input: ``%`` begins the input and ends its lines.

    >>> _split_command(r"mail -s 50\% ann%Hello%Bye")
    ('mail -s 50% ann', 'Hello\nBye\n')
    """
    parts = [part.replace(r"\%", "%") for part in re.split(r"(?<!\\)%", text)]
    return parts[0].strip(), "".join(f"{part}\n" for part in parts[1:])


def _unquoted(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_quoted else value


def _checked_zone(value: str, before: str) -> tuple[str, str]:
    try:
        return Zone.named(value).name, ""
    except TickworkError as error:
        return before, f"CRON_TZ: {' '.join(str(error).split())}"


def _unique_name(command: str, names: Counter[str]) -> str:
    """Name a schedule after the program that its command starts."""
    first = "command"
    for part in re.split(r"&&|\|\||[;|]", command):
        words = [word for word in part.split() if "=" not in word]
        while words and (words[0] in WRAPPERS or words[0].startswith("-")):
            words.pop(0)
        if words and words[0] not in {"cd", "."}:
            stem = PurePosixPath(words[0].strip("\"'(){}")).stem
            first = re.sub(r"[^\w.-]+", "-", stem).strip("-.") or first
            break
    names[first] += 1
    return first[:100] if names[first] == 1 else f"{first[:100]}-{names[first]}"
