"""Who is let in: everybody, as long as those inside are served; in a rush nobody for a moment, so that they are.

Whoever is told anything costs a third of an announce: the connection, the request, the answer. So when too many requests
wait for the store, whoever comes is turned away unheard, which costs a tenth: the connection is closed at once, and the
client knows, where one left in the listener's queue would wait, and come by its system's clock after 1, 3 and 7 s. Whoever
got in is answered soon, however many more would come.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import structlog

from tracker.listeners import BACKLOG, Listener

RUSH, CALM = 0.5, 0.25
"""Of the places for requests that wait: how many taken begin a rush, and down to how many it lasts. From one to the other is work
for a tenth of a second, so that there are few rushes; and the other half is for those inside."""
TURNED_AWAY = "turned away"
"""What those count as who come in a rush."""
_LONGEST_SECONDS, _LET_IN = 1.0, 128
"""After which so many are let in however many wait: else those inside could keep everybody else out by asking without end."""
_AGAIN_SECONDS = 1.0
"""Between two attempts to open."""
_GLANCE_SECONDS, _QUIET_SECONDS = 0.002, 60.0

log = structlog.get_logger()


class Gate:
    """``load`` tells how many requests wait, as a share of how many may; ``turned_away`` hears how many were.

    Open from ``open`` to ``close``, but for rushes, which ``run`` sees to. Whom ``spared`` says yes to, by the other end's address
    as the socket gives it, is let in always.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        enter: Callable[[], asyncio.Protocol],
        load: Callable[[], float],
        turned_away: Callable[[int], None],
        spared: Callable[[Any], bool],
    ) -> None:
        self._listeners = listeners
        self._enter = enter
        self._load = load
        self._turned_away = turned_away
        self._spared = spared
        self._servers: list[asyncio.Server] = []
        self._crowded = asyncio.Event()
        self._owed = 0
        """How many are to be let in whatever happens."""
        self._quiet_until = 0.0

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
        came: list[socket.socket] = []
        for listener in self._listeners:
            came += [sock for sock, _ in _arrived(listener)]
            listener.close()
        for sock in came:
            await self._let_in(sock)

    async def _let_in(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        with suppress(OSError):  # gone already
            await asyncio.get_running_loop().connect_accepted_socket(self._enter, sock)

    def entered(self) -> None:
        """Somebody came in: the moment to look whether that was enough."""
        if self._load() >= RUSH and self._servers:
            if self._owed:
                self._owed -= 1
                return
            self.close()
            self._crowded.set()

    async def run(self) -> None:
        """Until cancelled: opens again when a rush is over, or has been long."""
        loop = asyncio.get_running_loop()
        while True:
            await self._crowded.wait()
            self._crowded.clear()
            began = loop.time()
            self._tell(began)
            while self._load() > CALM and loop.time() - began < _LONGEST_SECONDS:
                await self._turn_away()
                await asyncio.sleep(_GLANCE_SECONDS)
            self._owed = _LET_IN if self._load() > CALM else 0
            while not await self._opened():
                pass

    async def _turn_away(self) -> None:
        """Closes the connections that nobody has taken by now; another process on the same socket may have."""
        for listener in self._listeners:
            spared, others = [], 0
            for sock, address in islice(_arrived(listener), BACKLOG):
                if self._spared(address):
                    spared.append(sock)
                else:
                    sock.close()
                    others += 1
            if others:
                self._turned_away(others)
            for sock in spared:
                await self._let_in(sock)

    async def _opened(self) -> bool:
        try:
            await self.open()
        except OSError as error:  # in a rush there may be no file descriptor left for a moment
            log.warning("cannot let anybody in yet", error=type(error).__name__)
            await asyncio.sleep(_AGAIN_SECONDS)
            return False
        return True

    def _tell(self, now: float) -> None:
        """There may be hundreds of rushes in a second of overload, or one in a day."""
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET_SECONDS
            log.warning("more connections than can be served: some are turned away")


def _arrived(listener: Listener) -> Iterator[tuple[socket.socket, Any]]:
    """Who has connected by now, and from where; nobody any more when there is no file descriptor for them."""
    with suppress(OSError):
        while True:
            yield listener.socket.accept()
