"""Who is let in: everybody, as fast as those inside are served; whoever would wait too long for that is turned away.

The loop takes one connection from a listener's queue at each of its turns, so in a rush the queue grows while those inside are
served. Left alone it would fill, and the system would drop whoever comes then, without a word: their systems try again after
1, 3 and 7 s, and most of those answered at all would be answered late. So from some length on the queue is cut: those who have waited longest
are closed, unheard. That is the cheapest refusal there is, and the client knows at once. Telling it when to come back would
cost three times as much, because most of an answer is the connection; that is for those inside (``Busy``).
"""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import structlog

from tracker.listeners import Listener

CROWDED, CUT = 1 / 2, 3 / 8
"""A queue is too long that is fuller than this, and so full when it has been cut: shares of what the system lets it hold."""
TURNED_AWAY = "turned away"
"""What those count as who are closed."""
_GLANCE_SECONDS, _QUIET_SECONDS = 0.002, 60.0
_PAUSES = 2
"""How many times as long as a cut those inside are served after it: however many come, turning them away takes no more than a third
of the time. Whoever is not even turned away is the system's to drop."""

log = structlog.get_logger()


class Gate:
    """Open from ``open`` to ``close``. ``turned_away`` hears how many were; whom ``spared`` says yes to, by the other end's
    address as a socket gives it, is let in always, for which ``run`` has to run."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        enter: Callable[[], asyncio.Protocol],
        turned_away: Callable[[int], None],
        spared: Callable[[Any], bool],
    ) -> None:
        self._listeners = listeners
        self._enter = enter
        self._turned_away = turned_away
        self._spared = spared
        self._favoured: asyncio.Queue[socket.socket] = asyncio.Queue()
        self._servers: list[asyncio.Server] = []
        self._look_at = self._quiet_until = 0.0

    async def open(self) -> None:
        servers: list[asyncio.Server] = []
        try:
            for listener in self._listeners:
                servers.append(await listener.accept(self._enter))
        except BaseException:  # stopped between two listeners: nobody else knows of the first
            for server in servers:
                server.close()
            raise
        self._servers = servers

    def close(self) -> None:
        for server in self._servers:
            server.close()
        self._servers = []

    async def shut(self) -> None:
        """Closes for good. Who has connected by now is let in; whoever comes later is refused by the system, at once.

        Without this those in the listeners' queues would be cut off in the middle of their requests.
        """
        self.close()
        for listener in self._listeners:
            for sock, _ in _arrived(listener):
                self._favoured.put_nowait(sock)
            listener.close()
        while not self._favoured.empty():
            await self._let_in(self._favoured.get_nowait())

    async def run(self) -> None:
        """Until cancelled: lets those in who are spared."""
        while True:
            await self._let_in(await self._favoured.get())

    async def _let_in(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        with suppress(OSError):  # gone already
            await asyncio.get_running_loop().connect_accepted_socket(self._enter, sock)

    def entered(self) -> None:
        """Somebody came in: the moment to look how many more there are."""
        now = time.monotonic()
        if now < self._look_at or not self._servers:
            return
        for listener in self._listeners:
            length, most = listener.queue
            if length > CROWDED * most:
                self._cut(listener, length, int(CUT * most))
        ended = time.monotonic()
        self._look_at = ended + _GLANCE_SECONDS + _PAUSES * (ended - now)

    def _cut(self, listener: Listener, length: int, left: int) -> None:
        """Down to what is to be left of it. Other processes may be cutting the same queue, so it is asked for at each step; who comes
        meanwhile is no reason to go on."""
        closed = 0
        for sock, address in islice(_arrived(listener), length - left):
            if self._spared(address):
                self._favoured.put_nowait(sock)
            else:
                sock.close()
                closed += 1
            if listener.queue[0] <= left:
                break
        if closed:
            self._turned_away(closed)
            self._tell()

    def _tell(self) -> None:
        """There may be hundreds of cuts in a second of overload, or one in a day."""
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET_SECONDS
            log.warning("more connections than can be served: some are turned away")


def _arrived(listener: Listener) -> Iterator[tuple[socket.socket, Any]]:
    """Who has connected by now, and from where; nobody any more when there is no file descriptor for them."""
    with suppress(OSError):
        while True:
            yield listener.socket.accept()
