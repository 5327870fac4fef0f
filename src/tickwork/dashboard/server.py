"""Serves the dashboard on a port: alone, or in the background of a worker."""

import logging
import socket
import threading
from collections.abc import Sequence
from typing import Any, Final, Self

from tickwork._kernel.fork import reset_after_fork
from tickwork.app.tickwork import Tickwork
from tickwork.dashboard import asgi
from tickwork.dashboard.access import AccessToken, LinkToken
from tickwork.dashboard.authentication import identify_loopback
from tickwork.dashboard.configured_tokens import TOKEN_VARIABLE, ConfiguredTokens
from tickwork.dashboard.host_header import is_loopback
from tickwork.errors import ExtraMissing, InvalidOption

LINK_MADE: Final = (
    "No token is configured. This link signs in as an administrator until the worker stops: %s"
)
STOP_SECONDS: Final = 3
RETRY_SECONDS: Final = 5.0
"""How long a worker waits until it tries again to serve the dashboard."""

_log: Final = logging.getLogger("tickwork.dashboard")


class DashboardServer:
    """Serves the dashboard: :meth:`run` until a signal, or in a thread while a block runs.

    Without tokens it makes one, and :meth:`listen` returns a link that has it.

    In a thread, its errors do not reach the program: it logs them, and starts again.
    """

    def __init__(
        self,
        app: Tickwork,
        host: str,
        port: int,
        *,
        tokens: Sequence[AccessToken] | ConfiguredTokens,
        option: str,
        is_open: bool = False,
        is_read_only: bool = False,
        root_path: str = "",
        proxies: Sequence[str] = (),
    ) -> None:
        """Prepare it. ``option`` is the name of the option that has the address.

        With ``is_open``, this machine needs no token. ``proxies`` are the addresses of those whose
        headers X-Forwarded-For and X-Forwarded-Proto are believed.

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

            from tickwork.dashboard.connections import (  # noqa: PLC0415
                BACKLOG,
                BoundedConnection,
            )
        except ImportError as error:
            raise ExtraMissing("uvicorn", extra="dashboard") from error
        self._uvicorn: Any = uvicorn
        self._protocol, self._backlog = BoundedConnection, BACKLOG
        self._link: LinkToken | None = None
        if not tokens and not is_open:
            self._link = LinkToken.make()
            tokens = [self._link]
        identify = identify_loopback if is_open else None
        self._site = asgi(app, tokens=tokens, identify=identify, read_only=is_read_only)
        self._host, self._port = host, port
        self._option = option
        self._root_path = root_path
        self._proxies = proxies
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

    @property
    def has_link(self) -> bool:
        """Whether it made a token, which the link has."""
        return self._link is not None

    def listen(self) -> str:
        """Open the port, and return the URL of the dashboard, or a link that signs in.

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
        url = f"http://{host}:{self._listener.getsockname()[1]}{self._root_path}/"
        return url if self._link is None else f"{url}login?token={self._link.secret}"

    def run(self) -> None:
        """Answer requests until a signal, or until the block ends. Call :meth:`listen` first."""
        assert self._listener is not None, "It does not listen."
        config = self._uvicorn.Config(
            self._site,
            root_path=self._root_path,
            log_level="warning",
            # The program has configured its log: the server must not do it again.
            log_config=None if self._thread is not None else self._uvicorn.config.LOGGING_CONFIG,
            # One parser, whatever is installed: h11 refuses a request with several Host headers.
            http=self._protocol,
            backlog=self._backlog,
            # Clients behind other proxies could choose their address.
            proxy_headers=bool(self._proxies),
            forwarded_allow_ips=",".join(self._proxies),
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
                if self.has_link:
                    _log.warning(LINK_MADE, self.listen())
                else:
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
