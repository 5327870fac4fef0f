"""A small HTTP server that records requests, and can refuse some."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    """The requests, in order, and how many more are refused."""

    url: str = ""
    refused: int = 0
    tried: int = 0
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def wait(self, count: int, seconds: float) -> list[Any]:
        """Wait for this many accepted requests, and return their JSON."""
        with self.arrived:
            self.arrived.wait_for(lambda: len(self.requests) >= count, seconds)
            return [json.loads(body) for _, _, body in self.requests]


@contextmanager
def web_server(*, refused: int = 0, redirect: tuple[int, str] | None = None) -> Iterator[Received]:
    received = Received(refused=refused)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with received.arrived:
                received.tried += 1
                is_refused = received.refused > 0
                if is_refused:
                    received.refused -= 1
                else:
                    received.requests.append((self.path, dict(self.headers), body))
                received.arrived.notify_all()
            status, location = redirect or (503 if is_refused else 200, "")
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = answer  # noqa: N815  # of the base class

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    received.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
