"""Accepts connections. Sheds load: when the accept queue is more than half full, the oldest waiting ones are closed.

If the queue filled up, the system would drop new connections without a reply. Clients' TCP stacks retry them after 1, 3
and 7 s, so most answers would be late. A connection that is closed before its request is read is the cheapest refusal,
and the client knows at once. An answer with a retry time (``Busy``) would cost three times as much.

On Linux the kernel holds back a TCP connection until its request is there, for at most a second
(``TCP_DEFER_ACCEPT``), and connections are accepted here, many in one turn of the event loop. One that brings a single
plain request needs no transport of the loop (direct_transport.py). Elsewhere, and on unix sockets, the loop accepts.
"""

import asyncio
import errno
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import islice
from socket import MSG_DONTWAIT, SocketType
from typing import Any

from tracker.frontends.http.direct_transport import DirectTransport
from tracker.system.listeners import Listener
from tracker.system.logger import Logger

MAX_FILL, SHED_FILL = 1 / 2, 3 / 8
"""A queue that is fuller than the first is reduced to the second: shares of the size that the system allows."""
MAX_ACCEPTED = 64
"""Connections that one listener accepts in one turn of the event loop."""
_READ_BYTES = 8192
"""A plain request is no longer (fast_protocol.py)."""
_MAX_READ_BYTES = 65536
"""This is more than a connection's buffer holds when it is accepted (server.py)."""
_REST_SECONDS = 1.0
"""How long nothing is accepted when file descriptors or memory run out."""
_HELD_BACK_SECONDS, _HELD_BACK_PAUSE = 1.5, 0.1
"""How long a stop waits for connections that the system holds back, and how often it checks for them. They arrive
within a second."""
_NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
CHECK_SECONDS = 0.002
"""How often the queues are checked."""
PAUSE_FACTOR = 2
"""The pause after shedding, in units of its duration, so that it takes no more than a third of the time. The system
drops connections that arrive meanwhile if the queue is full."""
_LOG_SECONDS = 60.0

Connect = Callable[[bytes], asyncio.Protocol]

log = Logger(__name__)


@dataclass(eq=False)
class AcceptQueue:
    """Accepts connections from ``open`` to ``close``; ``connect`` makes the protocol of one from its first bytes.
    ``run`` gives those that were accepted here a transport of the loop where they need one. ``is_single``: whether
    first bytes are a request that is answered without one; if None, the loop accepts all connections. ``on_shed`` is
    called with the number of closed connections; those for which ``is_exempt(peername)`` is true are never shed."""

    listeners: Sequence[Listener]
    connect: Connect
    on_shed: Callable[[int], None]
    is_exempt: Callable[[Any], bool]
    _: KW_ONLY
    is_single: Callable[[bytes], bool] | None = None
    _passed_on: asyncio.Queue[tuple[socket.socket, bytes]] = field(default_factory=asyncio.Queue)
    _servers: list[asyncio.Server] = field(default_factory=list)
    _accepting: list[Listener] = field(default_factory=list)
    """The listeners whose connections are accepted here."""
    _open: bool = False
    _check_at: float = 0.0
    _log_at: float = 0.0

    async def open(self) -> None:
        self._open = True
        try:
            for listener in self.listeners:
                if self.is_single is not None and listener.defer_accept():
                    self._accepting.append(listener)
                    self._read(listener)
                else:
                    self._servers.append(await listener.accept(self.on_accept))
        except BaseException:  # cancelled between two listeners
            self.close()
            raise

    def close(self) -> None:
        self._open = False
        for listener in self._accepting:
            asyncio.get_running_loop().remove_reader(listener.socket)
        for server in self._servers:
            server.close()
        self._servers, self._accepting = [], []

    async def stop_holding_back(self, seconds: float) -> None:
        """Accepts connections for ``seconds``, and until the system holds none back: closing their listener would reset
        them."""
        held = [listener for listener in self._accepting if listener.defer_accept(0)]
        until = time.monotonic() + _HELD_BACK_SECONDS
        await asyncio.sleep(seconds)
        while time.monotonic() < until and any(listener.holds_back for listener in held):
            await asyncio.sleep(_HELD_BACK_PAUSE)

    async def shut(self) -> None:
        """Closes for good. Accepts the waiting connections first: closing their listener would reset them."""
        self.close()
        for listener in self.listeners:
            for sock, _ in _waiting(listener):
                self._passed_on.put_nowait((sock, b""))
            listener.close()
        while not self._passed_on.empty():
            await self._connect_to_loop(*self._passed_on.get_nowait())

    async def run(self) -> None:
        """Gives connections a transport of the loop, until cancelled; then finishes those that it has begun with."""
        async with asyncio.TaskGroup() as tasks:
            with suppress(asyncio.CancelledError):
                while True:
                    tasks.create_task(self._connect_to_loop(*await self._passed_on.get()))

    async def _connect_to_loop(self, sock: socket.socket, received: bytes) -> None:
        sock.setblocking(False)
        with suppress(OSError):  # the client is gone
            await asyncio.get_running_loop().connect_accepted_socket(partial(self.connect, received), sock)

    def _read(self, listener: Listener) -> None:
        if self._open:
            sock = listener.socket
            kind = int(sock.family), int(sock.type), sock.proto
            asyncio.get_running_loop().add_reader(sock, self._accept, listener, kind)

    def _accept(self, listener: Listener, kind: tuple[int, int, int]) -> None:
        """Accepts waiting connections: some of them at most, so that others are served too."""
        self._shed_if_due()
        assert self.is_single is not None
        # accept() reads two enums and makes an object of Python's, which costs as much as receiving the request.
        accept: Callable[[], tuple[int, Any]] = listener.socket._accept  # type: ignore[attr-defined]
        for _ in range(MAX_ACCEPTED):
            try:
                fileno, peername = accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _NO_RESOURCES:
                    loop = asyncio.get_running_loop()
                    loop.remove_reader(listener.socket)
                    loop.call_later(_REST_SECONDS, self._read, listener)
                    self._log("file descriptors or memory ran out: accepting no connections for a moment")
                    return
                continue  # the client is gone
            sock = SocketType(*kind, fileno)
            received = _receive(sock, _READ_BYTES)
            if self.is_single(received):
                DirectTransport(sock, peername, received, self._pass_on).begin(self.connect(received))
            else:
                self._pass_on(sock, received)

    def _pass_on(self, sock: SocketType, received: bytes) -> None:
        """Gives a connection a transport of the loop. ``received`` has been read from it."""
        if len(received) == _READ_BYTES:  # so that the protocol gets at once what was there
            received += _receive(sock, _MAX_READ_BYTES)
        self._passed_on.put_nowait((socket.socket(fileno=sock.detach()), received))

    def on_accept(self) -> asyncio.Protocol:
        """The protocol of an accepted connection. Sheds load first, if it is time to check the queues."""
        self._shed_if_due()
        return self.connect(b"")

    def _shed_if_due(self) -> None:
        now = time.monotonic()
        if now >= self._check_at and self._open:
            for listener in self.listeners:
                length, size = listener.queue
                if length > MAX_FILL * size:
                    self._shed(listener, length, int(SHED_FILL * size))
            ended = time.monotonic()
            self._check_at = ended + CHECK_SECONDS + PAUSE_FACTOR * (ended - now)

    def _shed(self, listener: Listener, length: int, target: int) -> None:
        """Reduces a queue to ``target``. Reads its length at each step: other processes may shed it too."""
        closed = 0
        for sock, peername in islice(_waiting(listener), length - target):
            if self.is_exempt(peername):
                self._passed_on.put_nowait((sock, b""))
            else:
                sock.close()
                closed += 1
            if listener.queue[0] <= target:
                break
        if closed:
            self.on_shed(closed)
            self._log("overload: closing waiting connections")

    def _log(self, text: str) -> None:
        """Logs at most one line a minute."""
        now = time.monotonic()
        if now >= self._log_at:
            self._log_at = now + _LOG_SECONDS
            log.warning(text)


def _receive(sock: SocketType, size: int) -> bytes:
    """What is there; nothing where the client is gone."""
    try:
        return sock.recv(size, MSG_DONTWAIT)
    except OSError:
        return b""


def _waiting(listener: Listener) -> Iterator[tuple[socket.socket, Any]]:
    """The waiting connections with their peernames; ends early when file descriptors run out."""
    with suppress(OSError):
        while True:
            yield listener.socket.accept()
