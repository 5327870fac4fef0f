"""A TCP proxy on the loopback that injects the faults of a network."""

import contextlib
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from servers.private import HOST, free_port

CHUNK_BYTES = 65_536
QUEUE_BYTES_MAX = 1_048_576  # per direction; beyond it the sender has to wait, as on a network
SEEN_BYTES_MAX = 65_536  # of what a client sent, for predicates that look across chunks
ANSWER_SECONDS_MAX = 10.0
ANSWER_QUIET_SECONDS = 0.03
ORDER_SECONDS_MAX = 15.0

Predicate = Callable[[bytes], bool]


class TcpProxy:
    """Forwards connections to a server until a test injects a fault.

    A fault has taken effect when its method returns. One thread does all the work, and ends with
    ``close``; a predicate is called in that thread, and must neither block nor use the proxy.
    """

    def __init__(self, target_host: str, target_port: int) -> None:
        self.target = (target_host, target_port)
        self.port = free_port()
        # Seconds of delay in each direction: a round trip takes twice that.
        self.delay = 0.0
        self._links: list[_Link] = []
        self._trap: _Trap | None = None
        self._is_stalled = False
        self._is_closing = False
        self._is_closed = False
        self._orders: deque[tuple[Callable[[], None], threading.Event]] = deque()
        self._listener = self._bound_socket()
        self._listener.listen(128)
        self._is_listening = True
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ faults

    def cut(self, *, reset: bool = False) -> None:
        """Close all connections and refuse new ones.

        Clients see the end of the stream, as when a server goes; with ``reset`` they see
        "connection reset", as when a router or a machine does.
        """

        def order() -> None:
            self._stop_listening()
            self._close_links(reset=reset)

        self._do(order)

    def stall(self) -> None:
        """Accept connections and forward nothing on any of them: no error, no answer."""

        def order() -> None:
            self._is_stalled = True

        self._do(order)

    def heal(self) -> None:
        """Forward again, without delay. What ``stall`` has queued is delivered."""

        def order() -> None:
            self._is_stalled = False
            self._trap = None
            self.delay = 0.0
            self._start_listening()

        self._do(order)

    def cut_after(
        self, sent: Predicate | bytes, *, answer: Predicate | bytes | None = None
    ) -> threading.Event:
        """Lose the answer to the next matching request, after the server has done the work.

        When what a client has sent since this call matches ``sent``, it is forwarded, the
        server's answer is awaited and swallowed, and that one connection is closed. Other
        connections and new ones are served. The event is set when it has happened.

        ``answer`` says which answer to wait for, where requests are pipelined and the first
        bytes from the server may belong to an earlier one. By default any will do.
        """
        trap = _Trap(sent=_predicate(sent), answer=_predicate(answer or (lambda _: True)))

        def order() -> None:
            self._trap = trap
            for link in self._links:
                link.seen_from_client = b""

        self._do(order)
        return trap.sprung

    @property
    def connections(self) -> int:
        """How many connections are open through the proxy now."""
        counts: list[int] = []
        self._do(lambda: counts.append(len(self._links)))
        return counts[0]

    def close(self) -> None:
        """Close everything, and wait for the thread to end. May be called again."""
        if self._is_closed:
            return
        self._is_closed = True

        def order() -> None:
            self._is_closing = True

        with contextlib.suppress(ProxyDied):
            self._do(order)
        self._thread.join(ORDER_SECONDS_MAX)
        self._wake_sender.close()
        self._wake_receiver.close()
        assert not self._thread.is_alive(), self._thread

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ the thread

    def _do(self, order: Callable[[], None]) -> None:
        """Run this in the proxy's thread, so that no lock is needed."""
        done = threading.Event()
        self._orders.append((order, done))
        self._wake_sender.send(b"!")
        give_up_at = time.monotonic() + ORDER_SECONDS_MAX
        while not done.wait(0.1):
            if not self._thread.is_alive() or time.monotonic() > give_up_at:
                raise ProxyDied("The proxy's thread has ended, or hangs.")

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._one_round()
        finally:
            self._close_links(reset=False)
            self._listener.close()

    def _one_round(self) -> None:
        events_by_socket = self._poll()
        if self._wake_receiver in events_by_socket:
            self._wake_receiver.recv(CHUNK_BYTES)
        if self._listener in events_by_socket:
            self._accept()
        for link in self._links:
            for side in (link.client, link.server):
                # A link that an earlier side closed is skipped: its sockets are gone.
                if not link.is_closed and events_by_socket.get(side, 0) & ~select.POLLOUT:
                    self._receive(link, side)
        now = time.monotonic()
        for link in self._links:
            if not self._is_stalled and not link.is_closed:
                link.deliver(now)
            if link.trap is not None and not link.is_closed:
                self._spring_if_answered(link, link.trap, now)
        self._links = [link for link in self._links if not link.is_closed]
        # Last, when the list of links is consistent.
        while self._orders:
            order, done = self._orders.popleft()
            order()
            done.set()

    def _poll(self) -> dict[socket.socket, int]:
        """Wait for sockets that are ready, and return them. The list is short: it is rebuilt."""
        poller = select.poll()
        sockets_by_number = {}

        def register(sock: socket.socket, events: int) -> None:
            if events:
                poller.register(sock, events)
                sockets_by_number[sock.fileno()] = sock

        register(self._wake_receiver, select.POLLIN)
        if self._is_listening:
            register(self._listener, select.POLLIN)
        due_ats = []
        now = time.monotonic()
        for link in self._links:
            if link.trap is not None:
                due_ats.append(link.trap.give_up_at)
                if link.trap.quiet_at is not None:
                    due_ats.append(link.trap.quiet_at)
            if self._is_stalled:
                continue  # a socket whose peer has gone would report so again and again
            for stream in (link.to_server, link.to_client):
                register(stream.source, link.events_of(stream.source, now))
                if stream.chunks and stream.chunks[0].due_at > now:
                    due_ats.append(stream.chunks[0].due_at)
        timeout = max(0.0, min(due_ats) - time.monotonic()) if due_ats else None
        # Rounded up: a timeout that ends a little early would spin until it is due.
        ready = poller.poll(None if timeout is None else timeout * 1000 + 1)
        return {sockets_by_number[number]: events for number, events in ready}

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # it has already gone
        try:
            server = socket.create_connection(self.target, timeout=5)
        except OSError:
            client.close()
            return
        self._links.append(_Link(client, server))

    def _receive(self, link: "_Link", side: socket.socket) -> None:
        try:
            data = side.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            link.close(reset=True)
            return
        now = time.monotonic()
        if side is link.server and link.trap is not None:
            link.trap.note_answer(data, now)
            return
        stream = link.to_server if side is link.client else link.to_client
        stream.add(data, due_at=now + self.delay)
        if side is link.client and self._trap is not None:
            link.seen_from_client = (link.seen_from_client + data)[-SEEN_BYTES_MAX:]
            if self._trap.sent(link.seen_from_client):
                link.trap, self._trap = self._trap, None
                link.trap.give_up_at = now + self.delay + ANSWER_SECONDS_MAX

    def _spring_if_answered(self, link: "_Link", trap: "_Trap", now: float) -> None:
        is_answered = trap.quiet_at is not None and now >= trap.quiet_at
        if is_answered or now >= trap.give_up_at:
            link.close(reset=False)

    def _close_links(self, *, reset: bool) -> None:
        for link in self._links:
            link.close(reset=reset)
        self._links = []

    def _bound_socket(self) -> socket.socket:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind((HOST, self.port))
        return sock

    def _stop_listening(self) -> None:
        if self._is_listening:
            self._listener.close()
            # Bound without listening: connections are refused, and the port stays ours.
            self._listener = self._bound_socket()
            self._is_listening = False

    def _start_listening(self) -> None:
        if not self._is_listening:
            self._listener.listen(128)
            self._is_listening = True


def _predicate(wanted: Predicate | bytes) -> Predicate:
    return (lambda data: wanted in data) if isinstance(wanted, bytes) else wanted


class ProxyDied(Exception):  # noqa: N818  it states what happened
    """The thread of the proxy has ended. Its traceback has the cause."""


@dataclass(slots=True)
class _Chunk:
    data: bytes  # empty at the end of the stream
    due_at: float


@dataclass(slots=True)
class _Stream:
    """The data under way in one direction."""

    source: socket.socket
    sink: socket.socket
    chunks: deque[_Chunk] = field(default_factory=deque)
    queued_bytes: int = 0
    has_ended: bool = False
    is_sink_full: bool = False

    def add(self, data: bytes, *, due_at: float) -> None:
        self.chunks.append(_Chunk(data, due_at))
        self.queued_bytes += len(data)
        self.has_ended = not data


@dataclass(slots=True)
class _Trap:
    """What ``cut_after`` waits for: first a request, then its answer."""

    sent: Predicate
    answer: Predicate
    sprung: threading.Event = field(default_factory=threading.Event)
    answered: bytes = b""
    quiet_at: float | None = None
    give_up_at: float = float("inf")

    def note_answer(self, data: bytes, now: float) -> None:
        self.answered = (self.answered + data)[-SEEN_BYTES_MAX:]
        if not data:
            self.give_up_at = now  # the server has gone: no answer will come
        elif self.answer(self.answered):
            # An answer may come in several pieces.
            self.quiet_at = now + ANSWER_QUIET_SECONDS


class _Link:
    """One client's connection and the connection to the server that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        for side in (client, server):
            side.setblocking(False)
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client = client
        self.server = server
        self.to_server = _Stream(client, server)
        self.to_client = _Stream(server, client)
        self.seen_from_client = b""
        self.trap: _Trap | None = None
        self.is_closed = False

    def events_of(self, side: socket.socket, now: float) -> int:
        """The events to poll for on this side: readable, writable, or neither."""
        incoming, outgoing = self.to_server, self.to_client
        if side is self.server:
            incoming, outgoing = outgoing, incoming
        wants_to_read = not incoming.has_ended and incoming.queued_bytes < QUEUE_BYTES_MAX
        wants_to_write = (
            outgoing.is_sink_full and bool(outgoing.chunks) and outgoing.chunks[0].due_at <= now
        )
        return select.POLLIN * wants_to_read | select.POLLOUT * wants_to_write

    def deliver(self, now: float) -> None:
        for stream in (self.to_server, self.to_client):
            stream.is_sink_full = False
            while stream.chunks and stream.chunks[0].due_at <= now:
                chunk = stream.chunks[0]
                if not chunk.data:
                    self.close(reset=False)
                    return
                try:
                    sent = stream.sink.send(chunk.data)
                except BlockingIOError:
                    stream.is_sink_full = True
                    break
                except OSError:
                    self.close(reset=True)
                    return
                stream.queued_bytes -= sent
                chunk.data = chunk.data[sent:]
                if not chunk.data:
                    stream.chunks.popleft()

    def close(self, *, reset: bool) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        for side in (self.client, self.server):
            if reset:
                with contextlib.suppress(OSError):
                    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            side.close()
        if self.trap is not None:
            self.trap.sprung.set()
