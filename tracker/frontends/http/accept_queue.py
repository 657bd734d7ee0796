"""Load shedding: when the accept queue is more than half full, the oldest waiting connections are closed.

The event loop accepts one connection of a listener in each of its turns, so in a rush the queue grows. If it filled up,
the system would drop new connections without a reply. Clients' TCP stacks retry the connection after 1, 3 and 7 s, so
most answers would be late. A connection that is closed before its request is read is the cheapest refusal, and the
client knows at once. An answer with a retry time would cost three times as much, so only accepted connections get one
(``Busy``).
"""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import structlog

from tracker.system.listeners import Listener

MAX_FILL, SHED_FILL = 1 / 2, 3 / 8
"""A queue that is fuller than the first is reduced to the second: shares of the size that the system allows."""
SHED = "turned away"
"""The label that counts connections closed by load shedding."""
CHECK_SECONDS = 0.002
"""How often the queues are checked."""
PAUSE_FACTOR = 2
"""The pause after shedding, in units of its duration, so that it takes no more than a third of the time. The system
drops connections that arrive meanwhile if the queue is full."""
_LOG_SECONDS = 60.0

log = structlog.get_logger()


class AcceptQueue:
    """Accepts connections from ``open`` to ``close``; ``connect`` makes their protocol.

    Connections for which ``is_exempt(peername)`` is true are never shed; ``run`` accepts them. ``on_shed`` is called
    with the number of closed connections.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        connect: Callable[[], asyncio.Protocol],
        on_shed: Callable[[int], None],
        is_exempt: Callable[[Any], bool],
        *,
        check_seconds: float = CHECK_SECONDS,
        pause_factor: float = PAUSE_FACTOR,
    ) -> None:
        self._listeners = listeners
        self._connect = connect
        self._on_shed = on_shed
        self._is_exempt = is_exempt
        self._check_seconds = check_seconds
        self._pause_factor = pause_factor
        self._exempt: asyncio.Queue[socket.socket] = asyncio.Queue()
        self._servers: list[asyncio.Server] = []
        self._check_at = self._log_at = 0.0

    async def open(self) -> None:
        servers: list[asyncio.Server] = []
        try:
            for listener in self._listeners:
                servers.append(await listener.accept(self.on_accept))
        except BaseException:  # cancelled between two listeners
            for server in servers:
                server.close()
            raise
        self._servers = servers

    def close(self) -> None:
        for server in self._servers:
            server.close()
        self._servers = []

    async def shut(self) -> None:
        """Closes for good. Accepts the waiting connections first: closing their listener would reset them."""
        self.close()
        for listener in self._listeners:
            for sock, _ in _waiting(listener):
                self._exempt.put_nowait(sock)
            listener.close()
        while not self._exempt.empty():
            await self._accept(self._exempt.get_nowait())

    async def run(self) -> None:
        """Accepts exempt connections, until cancelled."""
        while True:
            await self._accept(await self._exempt.get())

    async def _accept(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        with suppress(OSError):  # the client is gone
            await asyncio.get_running_loop().connect_accepted_socket(self.on_accept, sock)

    def on_accept(self) -> asyncio.Protocol:
        """The protocol of an accepted connection. Sheds load first, if it is time to check the queues."""
        now = time.monotonic()
        if now >= self._check_at and self._servers:
            for listener in self._listeners:
                length, size = listener.queue
                if length > MAX_FILL * size:
                    self._shed(listener, length, int(SHED_FILL * size))
            ended = time.monotonic()
            self._check_at = ended + self._check_seconds + self._pause_factor * (ended - now)
        return self._connect()

    def _shed(self, listener: Listener, length: int, target: int) -> None:
        """Reduces a queue to ``target``. Reads its length at each step: other processes may shed it too."""
        closed = 0
        for sock, peername in islice(_waiting(listener), length - target):
            if self._is_exempt(peername):
                self._exempt.put_nowait(sock)
            else:
                sock.close()
                closed += 1
            if listener.queue[0] <= target:
                break
        if closed:
            self._on_shed(closed)
            self._log()

    def _log(self) -> None:
        """At most one line a minute."""
        now = time.monotonic()
        if now >= self._log_at:
            self._log_at = now + _LOG_SECONDS
            log.warning("overload: closing waiting connections")


def _waiting(listener: Listener) -> Iterator[tuple[socket.socket, Any]]:
    """The waiting connections with their peernames; ends early when file descriptors run out."""
    with suppress(OSError):
        while True:
            yield listener.socket.accept()
