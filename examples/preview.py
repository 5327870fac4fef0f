"""What `make demo` shows today: rules that say when, and what they mean.

There is no worker yet; when there is one, this demo starts it.
"""

from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from tickwork import schedules
from tickwork.schedules import Cron, Schedule

SPRING = datetime(2026, 3, 27, 12, tzinfo=UTC)

RULES: list[Schedule] = [
    schedules.every_five_minutes().hours(range(9, 18)).weekdays(),
    Cron.parse("0 9 1,15 * MON", tz="America/New_York"),
    schedules.daily_at("02:30").timezone("Europe/Berlin"),
    schedules.cron("*/30 1-3 * * *").timezone("Europe/Berlin"),
    schedules.pattern(minutes=0, hours=6, wday="1-5", year="2026-2027"),
    schedules.every(minutes=45, starting=SPRING),
    schedules.monthly(starting=datetime(2026, 1, 31, 18, tzinfo=UTC)),
    schedules.hourly().between("22:00", "02:00").except_on("2026-03-28"),
]


def main() -> None:
    """Print each rule in plain English, with its next instants."""
    console = Console()
    table = Table(title=f"What is due after {SPRING:%Y-%m-%d %H:%M} UTC", show_lines=True)
    table.add_column("rule", ratio=1)
    table.add_column("next three, in the rule's own zone", no_wrap=True)
    for rule in RULES:
        instants = rule.preview(3, after=SPRING)
        table.add_row(rule.describe(), "\n".join(f"{t:%a %Y-%m-%d %H:%M %Z}" for t in instants))
    console.print(table)
    console.print(
        "On 29 March 2026 Berlin's clocks jump from 02:00 to 03:00. The job at a fixed time "
        "(02:30) runs once, right after the gap; the one with a star skips times that do not exist."
    )
    console.print("The worker is not built yet: this is the part of tickwork that decides when.")


if __name__ == "__main__":
    main()
