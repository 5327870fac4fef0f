"""The command that serves the dashboard and the REST API: ``ui``."""

import os
import socket
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from tickwork.cli.commands import CommandContext, command
from tickwork.cli.parameters import number_option
from tickwork.cli.render import DIM, GOOD, WARN, TextLine
from tickwork.errors import ExtraMissing, InvalidOption

TOKEN_VARIABLE: Final = "TICKWORK_UI_TOKEN"  # noqa: S105  # the name of a variable
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
@number_option("--port", type=click.IntRange(0, 65_535), default=PORT, help="Port; 0: any.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Tokens: a name, a role (reader, operator, admin) and a secret in each line.",
)
@click.option("--read-only", is_flag=True, help="Refuse every action.")
@click.option("--root-path", default="", help="Path before the proxy: /jobs.")
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
    sets the token of an administrator; --token-file has tokens for several people.
    """
    # By name: the dashboard is a package of the same layer, and needs the extra.
    dashboard: Any = import_module("tickwork.dashboard")
    access: Any = import_module("tickwork.dashboard.access")
    tokens = []
    if os.environ.get(TOKEN_VARIABLE):
        secret = os.environ[TOKEN_VARIABLE]
        tokens.append(dashboard.AccessToken(name="admin", secret=secret, role=dashboard.Role.ADMIN))
    if token_file is not None:
        tokens += access.parse_tokens(token_file.read_text(encoding="utf-8"))
    if not tokens and not access.is_loopback(host):
        raise InvalidOption(
            "--host",
            host,
            "must be an address of this machine while no token is configured",
            fix=f"Set {TOKEN_VARIABLE}, or pass --token-file.",
        )
    site = dashboard.asgi(ctx.app, tokens=tokens, read_only=read_only)
    try:
        uvicorn: Any = import_module("uvicorn")
    except ImportError as error:
        raise ExtraMissing("uvicorn", extra="dashboard") from error
    listener = _listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listener.getsockname()[1]}{root_path}/"
    lines = [TextLine(f"Dashboard: {address}", GOOD)]
    if not tokens:
        lines.append(
            TextLine(
                f"No token is configured: only this machine may connect, as an administrator. "
                f"Set {TOKEN_VARIABLE} to change that.",
                WARN,
            )
        )
    lines.append(TextLine("Stop it with Ctrl-C.", DIM))
    ctx.out.write(lines)
    config = uvicorn.Config(
        site,
        root_path=root_path,
        log_level="warning",
        # A proxy's header must not make a remote client a local one.
        proxy_headers=bool(tokens),
        server_header=False,
        timeout_graceful_shutdown=3,
    )
    uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InvalidOption(
            "--host and --port",
            f"{host} {port}",
            f"must be an address that is free ({error.strerror or error})",
            fix="Select another one: --port 0 takes any.",
        ) from error
