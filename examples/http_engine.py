"""An engine of one's own: another process executes the runs, and gets messages about them by HTTP.

The engine starts that process, and only carries messages. The process accepts each run in the
database, extends its lease, and writes its outcome; so a message may be lost, or sent twice.

    http = EngineRegistration(HttpEngine, "handovers", is_remote=True)
    app = Tickwork(url, engines={"http": http})
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from queue import SimpleQueue
from typing import Any
from urllib.request import Request, urlopen

from tickwork.contracts import AppLocation, EngineSetup, Handover, RemoteEngine, encode_message
from tickwork.errors import EngineUnavailable, TickworkError


class HttpTransport:
    """Sends messages to the process, and starts it when there is none."""

    name = "http"
    runs_max = 10  # of short runs, in one message

    def __init__(self, location: AppLocation) -> None:
        self._location = location
        self._process: subprocess.Popen[str] | None = None
        self._address = ""

    def submit(self, messages: Sequence[Sequence[Handover]]) -> None:
        """Return when the process has all messages."""
        try:
            if self._process is None or self._process.poll() is not None:
                self._start()
            for message in messages:
                body = json.dumps(encode_message(message)).encode()
                urlopen(Request(self._address, body), timeout=5).close()  # noqa: S310  # our own
        except (OSError, ValueError) as error:
            raise EngineUnavailable("http", self._address, reason=str(error)) from error

    def cancel(self, handover: Handover) -> None:
        """Do nothing: the process cannot accept a run that was canceled."""

    def close(self) -> None:
        """Let the process execute what it has, and end."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate(timeout=60)

    def _start(self) -> None:
        path = f"{self._location.module}:{self._location.attribute}"
        self._process = subprocess.Popen(  # noqa: S603  # this file
            [sys.executable, __file__, path],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(self._location.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._address = f"http://127.0.0.1:{int(self._process.stdout.readline())}"


class HttpEngine(RemoteEngine):
    """What a worker of tickwork does with runs of jobs with ``engine="http"``."""

    def __init__(self, setup: EngineSetup) -> None:
        super().__init__(setup, HttpTransport(setup.app_location()))


def serve(path: str) -> None:
    """Execute messages, one after the other, until the program that started this one ends."""
    module, _, attribute = path.partition(":")
    app = getattr(import_module(module), attribute)
    messages: SimpleQueue[Any] = SimpleQueue()

    class Inbox(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            messages.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(202)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    def end_with_parent() -> None:
        sys.stdin.read()
        messages.put(None)

    server = HTTPServer(("127.0.0.1", 0), Inbox)
    for target in (server.serve_forever, end_with_parent):
        threading.Thread(target=target, daemon=True).start()
    print(server.server_port, flush=True)
    while (message := messages.get()) is not None:
        with suppress(TickworkError):  # the worker sends it again later
            app.execute_handovers(message)
    app.close()


if __name__ == "__main__":
    serve(sys.argv[1])
