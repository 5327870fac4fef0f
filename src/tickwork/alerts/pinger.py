"""Pings a URL when runs of a job start, succeed and fail, as Healthchecks and others expect it."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final

from tickwork._kernel.loggers import get_logger
from tickwork.alerts.connection import check_allow
from tickwork.alerts.http import check_url, request
from tickwork.events import Event, RunFailed, RunStarted, RunSucceeded

WAITING_MAX: Final = 100
"""Pings that wait to be sent. Further ones are dropped: a worker must not wait for a server."""

TRIES: Final = 3
_log: Final = get_logger("tickwork.alerts")


class Pinger:
    """Sends ``URL/start``, ``URL`` and ``URL/fail``, in a thread of its own."""

    def __init__(
        self,
        url: str,
        *,
        job: str,
        allow: Sequence[str] = (),
        send: Callable[[str], None] | None = None,
    ) -> None:
        check_allow(allow)
        self._url = check_url(url).rstrip("/")
        self._job = job
        self._send = send or (lambda url: request(url, None, allow=allow))
        self._waiting: queue.Queue[str] = queue.Queue(WAITING_MAX)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def on_event(self, event: Event) -> None:
        """Ping, if the event is about a run of the job."""
        match event:
            case RunStarted(job=job, attempt=attempt) if attempt == 1:
                end = "/start"
            case RunSucceeded(job=job):
                end = ""
            case RunFailed(job=job):
                end = "/fail"
            case _:
                return
        if job != self._job:
            return
        try:
            self._waiting.put_nowait(self._url + end)
        except queue.Full:
            _log.warning("A ping of the job %r was dropped: its server is too slow.", self._job)
        self._start()

    def flush(self) -> None:
        """Wait until all pings were sent or have failed."""
        with self._starting:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="tickwork-ping", daemon=True)
                thread.start()  # when it cannot, the next event tries again
                self._thread = thread

    def _run(self) -> None:
        while True:  # ends when no ping waits
            try:
                url = self._waiting.get_nowait()
            except queue.Empty:
                with self._starting:
                    if self._waiting.empty():
                        self._thread = None
                        return
                continue
            self._ping(url)

    def _ping(self, url: str) -> None:
        for left in reversed(range(TRIES)):
            try:
                self._send(url)
            except Exception as error:  # noqa: BLE001  # whatever a server or a network does
                if not left:
                    _log.warning("A ping of the job %r failed: %s", self._job, error)
            else:
                return
