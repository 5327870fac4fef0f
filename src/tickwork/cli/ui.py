"""The command that serves the dashboard and the REST API: ``ui``."""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from tickwork.cli.commands import CommandContext, command
from tickwork.cli.parameters import number_option
from tickwork.cli.render import DIM, GOOD, WARN, TextLine

PORT: Final = 8737


@command(
    examples="""
tickwork ui
tickwork ui --port 9000 --read-only
TICKWORK_UI_TOKEN=$(cat /run/secrets/ui) tickwork ui --host 0.0.0.0
tickwork ui --host 0.0.0.0 --token-file /etc/tickwork/tokens --root-path /jobs
""",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@number_option(
    "--port", type=click.IntRange(0, 65_535), default=PORT, help="Port; 0: any free one."
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Tokens: a name, a role (reader, operator, admin) and a secret in each line.",
)
@click.option("--read-only", is_flag=True, help="Refuse every action.")
@click.option("--root-path", default="", help="Path under which a proxy serves it: /jobs.")
def ui_command(
    ctx: CommandContext,
    *,
    host: str,
    port: int,
    token_file: Path | None,
    read_only: bool,
    root_path: str,
) -> None:
    """Serve the dashboard and the REST API.

    Without a token it answers only requests from this machine. The variable TICKWORK_UI_TOKEN
    sets the token of an administrator; --token-file, or TICKWORK_UI_TOKEN_FILE, has tokens for
    several people.
    """
    # By name: the dashboard is a package of the same layer, and needs the extra.
    module: Any = import_module("tickwork.dashboard.server")
    server = module.DashboardServer(
        ctx.app,
        host,
        port,
        tokens=module.read_tokens(token_file),
        option="--host and --port",
        is_read_only=read_only,
        root_path=root_path,
    )
    lines = [TextLine(f"Dashboard: {server.listen()}", GOOD)]
    if not server.has_tokens:
        lines.append(TextLine(module.NO_TOKEN, WARN))
    lines.append(TextLine("Stop it with Ctrl-C.", DIM))
    ctx.out.write(lines)
    server.run()
