"""Serves the dashboard on a port: alone, or in the background of a worker."""

import logging
import os
import socket
import threading
from pathlib import Path
from typing import Any, Final, Self

from tickwork._kernel.fork import reset_after_fork
from tickwork.app import Tickwork
from tickwork.dashboard import asgi
from tickwork.dashboard.access import AccessToken, Role, is_loopback, parse_tokens
from tickwork.errors import ExtraMissing, InvalidOption

TOKEN_VARIABLE: Final = "TICKWORK_UI_TOKEN"  # noqa: S105  # the name of a variable
FILE_VARIABLE: Final = "TICKWORK_UI_TOKEN_FILE"
NO_TOKEN: Final = (
    f"No token is configured: only this machine may connect, as an administrator. "
    f"Set {TOKEN_VARIABLE} to change that."
)
STOP_SECONDS: Final = 3
RETRY_SECONDS: Final = 5.0
"""How long a worker waits until it tries again to serve the dashboard."""

_log: Final = logging.getLogger("tickwork.dashboard")


def read_tokens(file: Path | None = None) -> list[AccessToken]:
    """Read the tokens that the environment and a file have.

    Raises:
        InvalidOption: A token is too short, or the file cannot be read.
    """
    tokens = []
    if os.environ.get(TOKEN_VARIABLE):
        secret = os.environ[TOKEN_VARIABLE]
        tokens.append(AccessToken(name="admin", secret=secret, role=Role.ADMIN))
    if file is None and os.environ.get(FILE_VARIABLE):
        file = Path(os.environ[FILE_VARIABLE])
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidOption(
                "the token file", str(file), f"must be a text file that can be read: {error}"
            ) from error
        tokens += parse_tokens(text)
    return tokens


class DashboardServer:
    """Serves the dashboard: :meth:`run` until a signal, or in a thread while a block runs.

    In a thread, its errors do not reach the program: it logs them, and starts again.
    """

    def __init__(
        self,
        app: Tickwork,
        host: str,
        port: int,
        *,
        tokens: list[AccessToken],
        option: str,
        is_read_only: bool = False,
        root_path: str = "",
    ) -> None:
        """Prepare it. ``option`` is the name of the option that has the address.

        Raises:
            ExtraMissing: The extra ``dashboard`` is not installed.
            InvalidOption: The address is not one of this machine, and there is no token.
        """
        if not tokens and not is_loopback(host):
            raise InvalidOption(
                option,
                host or f":{port}",
                "must be an address of this machine while no token is configured",
                fix=f"Set {TOKEN_VARIABLE}, or pass a file of tokens, or listen on 127.0.0.1.",
            )
        try:
            import uvicorn  # noqa: PLC0415  # needs the extra
        except ImportError as error:
            raise ExtraMissing("uvicorn", extra="dashboard") from error
        self._uvicorn: Any = uvicorn
        self._site = asgi(app, tokens=tokens, read_only=is_read_only)
        self._host, self._port = host, port
        self._option = option
        self._root_path = root_path
        self.has_tokens = bool(tokens)
        self._listener: socket.socket | None = None
        self._server: Any = None
        self._is_stopped = threading.Event()
        self._thread: threading.Thread | None = None
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Leave the port to the parent: a process that a handler forked does not listen."""
        listener, self._listener = self._listener, None
        self._thread = None
        if listener is not None:
            listener.close()

    def listen(self) -> str:
        """Open the port, and return the URL of the dashboard.

        Raises:
            InvalidOption: The address is in use, or not one of this machine.
        """
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            self._listener = socket.create_server((self._host, self._port), family=family)
        except OSError as error:
            raise InvalidOption(
                self._option,
                f"{self._host}:{self._port}",
                f"must be a free address of this machine ({error.strerror or error})",
                fix="Select another one: port 0 is any free one.",
            ) from error
        # Connections inherit it. Otherwise the second part of an answer waits 40 ms for the
        # client to acknowledge the first: asyncio does not set it for a socket of this kind.
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host = f"[{self._host}]" if ":" in self._host else self._host or "localhost"
        return f"http://{host}:{self._listener.getsockname()[1]}{self._root_path}/"

    def run(self) -> None:
        """Answer requests until a signal, or until the block ends. Call :meth:`listen` first."""
        assert self._listener is not None, "It does not listen."
        config = self._uvicorn.Config(
            self._site,
            root_path=self._root_path,
            log_level="warning",
            # The program has configured its log: the server must not do it again.
            log_config=None if self._thread is not None else self._uvicorn.config.LOGGING_CONFIG,
            # A proxy's header must not make a remote client a local one.
            proxy_headers=self.has_tokens,
            server_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        self._server = self._uvicorn.Server(config)
        if self._is_stopped.is_set():
            return
        self._server.run(sockets=[self._listener])

    # ------------------------------------------------------------ in the background

    def __enter__(self) -> Self:
        self._thread = threading.Thread(
            target=self._keep_serving, name="tickwork-dashboard", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(STOP_SECONDS + 2)

    def _keep_serving(self) -> None:
        is_reported = False
        # It ends when the block does.
        while not self._is_stopped.is_set():
            try:
                _log.info("Dashboard: %s", self.listen())
                is_reported = False
                self.run()
            except InvalidOption as error:
                if not is_reported:
                    _log.warning("The dashboard is not served yet: %s", error.what)
                is_reported = True
            except (Exception, SystemExit):  # noqa: BLE001  # a worker goes on without it
                _log.exception("The dashboard failed; starting it again.")
            finally:
                listener, self._listener = self._listener, None
                if listener is not None:
                    listener.close()
            self._is_stopped.wait(RETRY_SECONDS)
