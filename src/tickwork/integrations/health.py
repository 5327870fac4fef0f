"""A small HTTP server beside a worker, for probes and scrapes.

``/healthz`` fails if a new process is needed, ``/readyz`` while the worker takes no runs or its
database does not answer or cannot store outcomes, and ``/metrics`` are those of
:mod:`tickwork.integrations.prometheus`.
"""

import socket
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple, Self

from tickwork._domain.health import WorkerState
from tickwork._kernel.fork import reset_after_fork
from tickwork._kernel.loggers import get_logger
from tickwork.app.tickwork import Tickwork
from tickwork.errors import ExtraMissing, InvalidOption, StoreError

__all__ = ["HealthServer"]

CONNECTIONS_MAX: Final = 16
"""Connections at a time. More are closed at once."""
READ_SECONDS: Final = 5.0
CONNECTION_SECONDS: Final = 15.0
"""How long a client may take to send a part of its request, and to do everything."""
BACKLOG: Final = 16
RETRY_SECONDS: Final = 1.0
"""Seconds until the server answers again after an error of its own."""
TEXT: Final = "text/plain; charset=utf-8"

_log: Final = get_logger("tickwork.health")


class Response(NamedTuple):
    """An HTTP response."""

    status: HTTPStatus
    body: bytes
    type: str = TEXT


class HealthServer:
    """Answers probes and scrapes while the block runs, in threads of its own.

    It accepts GET and HEAD, and a few connections at a time. A request that needs the database is
    refused while an earlier one still waits for it.
    Port 0 is any free port; ``address`` has the one that was chosen.
    """

    def __init__(self, app: Tickwork, host: str = "", port: int = 8080) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._guard = threading.Lock()
        self._server: _BoundedServer | None = None
        self._reading = {path: threading.Lock() for path in ("/readyz", "/metrics")}
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Leave the port to the parent: a process that a handler forked does not listen."""
        server, self._server = self._server, None
        if server is not None:
            server.socket.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        assert self._server is not None, "It was not started."
        host, port, *_ = self._server.server_address
        return str(host), int(port)

    def start(self) -> None:
        """Listen, and answer in the background.

        Raises:
            InvalidOption: The address is in use, or not one of this machine.
        """
        with suppress(ImportError):  # counts from now on, not from the first scrape
            self._load_metrics().instrument(self._app)
        kind = _Ipv6Server if ":" in self._host else _BoundedServer
        try:
            self._server = kind((self._host, self._port), self._make_handler())
        except OSError as error:
            raise InvalidOption(
                "http",
                f"{self._host}:{self._port}",
                f"must be a free address of this machine: {error.strerror or error}",
            ) from error
        threading.Thread(
            target=self._serve, args=(self._server,), name="tickwork-health", daemon=True
        ).start()
        _log.info("Health checks at http://%s:%d/healthz.", self._host or "*", self.address[1])

    def stop(self) -> None:
        """Close the port."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def _serve(self, server: "_BoundedServer") -> None:
        # It ends when the server is stopped.
        while self._server is server:
            try:
                server.serve_forever()
            except Exception:  # noqa: BLE001  # without answers, a healthy worker is replaced
                _log.exception("Answering health checks failed; retrying.")
                time.sleep(RETRY_SECONDS)

    def answer(self, path: str) -> Response:
        """Answer a request for this path."""
        match path.partition("?")[0]:
            case "/healthz":
                return self._check_worker()
            case "/readyz":
                return self._once("/readyz", self._check_ready)
            case "/metrics":
                return self._once("/metrics", self._scrape)
            case _:
                return _text(HTTPStatus.NOT_FOUND, "Paths: /healthz, /readyz, /metrics.")

    def _check_worker(self) -> Response:
        state = self._app.worker_state
        is_bad = state is WorkerState.STUCK
        # A new process would not help: it would lose the outcomes that this one keeps.
        text = self._with_unwritten(state)
        return _text(HTTPStatus.SERVICE_UNAVAILABLE if is_bad else HTTPStatus.OK, text)

    def _check_ready(self) -> Response:
        state = self._app.worker_state
        if state is not WorkerState.RUNNING:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, state)
        try:
            self._app.schema_version()
        except StoreError as error:
            # A probe has no token, and the text of the error may name hosts and users.
            _log.debug("Not ready: %s", error.what)
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, "The database does not answer.")
        unwritten = self._app.unwritten_outcomes
        if unwritten is not None and unwritten.is_store_ill:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, unwritten.summary)
        return _text(HTTPStatus.OK, self._with_unwritten("ready"))

    def _with_unwritten(self, text: str) -> str:
        unwritten = self._app.unwritten_outcomes
        return text if unwritten is None else f"{text}\n{unwritten.summary}"

    def _scrape(self) -> Response:
        try:
            module = self._load_metrics()
        except ExtraMissing as error:
            return _text(HTTPStatus.NOT_IMPLEMENTED, str(error))
        return Response(HTTPStatus.OK, module.render(self._app), module.CONTENT_TYPE)

    def _load_metrics(self) -> Any:
        from tickwork.integrations import prometheus  # noqa: PLC0415  # only if it is installed

        return prometheus

    def _once(self, path: str, make: Any) -> Response:
        """Refuse a second request while the first one waits for the database."""
        lock = self._reading[path]
        if not lock.acquire(timeout=1.0):
            text = "The database has not answered the request before this one."
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, text)
        try:
            made: Response = make()
            return made
        finally:
            lock.release()

    def _make_handler(self) -> "type[_Handler]":
        return type("_BoundHandler", (_Handler,), {"owner": self})


class _BoundedServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = BACKLOG

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._places = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._opened: dict[Any, float] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._opened[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._release(request)  # no thread could be started
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._release(request)

    def _release(self, request: Any) -> None:
        self._opened.pop(request, None)
        self._places.release()

    def service_actions(self) -> None:
        """Close connections that take too long. It is called twice a second."""
        now = time.monotonic()
        for request, since in list(self._opened.items()):
            if now - since > CONNECTION_SECONDS:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        _log.debug("A request of %s failed.", client_address, exc_info=True)


class _Ipv6Server(_BoundedServer):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    owner: HealthServer
    timeout = READ_SECONDS
    server_version = "tickwork"
    sys_version = ""

    def do_GET(self) -> None:  # a name of the standard library
        self._send(self.owner.answer(self.path))

    def do_HEAD(self) -> None:  # as above
        self._send(self.owner.answer(self.path), has_body=False)

    def _refuse(self) -> None:
        self._send(_text(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD."), allow="GET, HEAD")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def _send(self, response: Response, *, has_body: bool = True, allow: str = "") -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.type)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Cache-Control", "no-store")
        if allow:
            self.send_header("Allow", allow)
        self.end_headers()
        if has_body:
            self.wfile.write(response.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as above
        _log.debug(format, *args)


def _text(status: HTTPStatus, text: str) -> Response:
    return Response(status, f"{text}\n".encode())
