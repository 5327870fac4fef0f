"""``manage.py tickwork``: the command line of tickwork for this project."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from tickwork.integrations.django.application import PROGRAM, app


class Command(BaseCommand):
    """Passes its arguments on, as they are."""

    help = "Run a worker, and inspect and control jobs: manage.py tickwork --help"
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command line; it also ends the process."""
        app.cli()(argv[2:], prog_name=PROGRAM)

    def add_arguments(self, parser: CommandParser) -> None:
        """For ``call_command("tickwork", "status")``."""
        parser.add_argument("arguments", nargs="*")

    def handle(self, *_: Any, arguments: list[str], **__: Any) -> None:
        """Run the command line, and return."""
        code = app.cli().main(arguments, prog_name=PROGRAM, standalone_mode=False)
        if code:
            sys.exit(code)
