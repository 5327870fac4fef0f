"""The command that serves the dashboard and the REST API: ``ui``."""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from tickwork.cli.commands import CommandContext, command
from tickwork.cli.parameters import number_option
from tickwork.cli.render import DIM, GOOD, WARN, TextLine

PORT: Final = 8737
LINK: Final = (
    "The link signs you in as an administrator. It works until the dashboard stops: keep it secret."
)
OPEN: Final = (
    "No token is needed: every program and user of this machine is an administrator, and so is "
    "everyone who reaches this port through a proxy or a tunnel."
)


@command(
    examples="""
tickwork ui
tickwork ui --port 9000 --read-only
TICKWORK_UI_TOKEN=$(cat /run/secrets/ui) tickwork ui --host 0.0.0.0
tickwork ui --token-file /etc/tickwork/tokens --root-path /jobs --trusted-proxy 127.0.0.1
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
@click.option(
    "--no-token",
    is_flag=True,
    help="Make every program and user of this machine an administrator, and everyone whom a "
    "proxy on it serves.",
)
@click.option("--read-only", is_flag=True, help="Refuse every action.")
@click.option("--root-path", default="", help="Path under which a proxy serves it: /jobs.")
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Proxy whose X-Forwarded-For and X-Forwarded-Proto are believed: an address or a "
    "network. Repeatable.",
)
def ui_command(
    ctx: CommandContext,
    *,
    host: str,
    port: int,
    token_file: Path | None,
    no_token: bool,
    read_only: bool,
    root_path: str,
    proxies: tuple[str, ...],
) -> None:
    """Serve the dashboard and the REST API.

    It prints a link that signs in, with a token that is valid until it stops. The variable
    TICKWORK_UI_TOKEN sets the token of an administrator instead; --token-file, or
    TICKWORK_UI_TOKEN_FILE, has tokens for several people, and is read again when it changes.
    """
    # By name: the dashboard is a package of the same layer, and needs the extra.
    configured: Any = import_module("tickwork.dashboard.configured_tokens")
    tokens = configured.ConfiguredTokens(token_file)
    proxies = configured.read_proxies(proxies)
    if no_token and (tokens or proxies):
        other = "configured tokens" if tokens else "trusted proxies"
        raise click.UsageError(f"--no-token excludes {other}: leave out one of them.")
    module: Any = import_module("tickwork.dashboard.server")
    server = module.DashboardServer(
        ctx.app,
        host,
        port,
        tokens=tokens,
        option="--host and --port",
        is_open=no_token,
        is_read_only=read_only,
        root_path=root_path,
        proxies=proxies,
    )
    lines = [TextLine(f"Dashboard: {server.listen()}", GOOD)]
    if server.has_link:
        lines.append(TextLine(LINK, DIM))
    if no_token:
        lines.append(TextLine(OPEN, WARN))
    lines.append(TextLine("Stop it with Ctrl-C.", DIM))
    ctx.out.write(lines)
    server.run()
