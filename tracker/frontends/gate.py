"""Who is let in: everybody, as long as those inside are served; in a rush nobody for a moment, so that they are.

Refusing costs nearly as much as answering, because most of either is the connection. So when too many requests wait for
the store, new connections stay in the listeners' queues, where they cost nothing, and what does not fit there is refused by
the system. Whoever got in is then answered soon, however many more would come.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from tracker.listeners import Listener

MANY_WAITING, FEW_WAITING = 256, 64
"""Requests that wait: from how many on nobody is let in, and down to how many until somebody is again."""
_LONGEST_SECONDS, _LET_IN = 0.25, 128
"""After which so many are let in however many wait: else those inside could keep everybody else out by asking without end."""
_AGAIN_SECONDS = 1.0
"""Between two attempts to open."""
_GLANCE_SECONDS, _QUIET_SECONDS = 0.002, 60.0

log = structlog.get_logger()


class Gate:
    """``waiting`` tells how many requests wait. Open from ``open`` to ``close``, but for rushes, which ``run`` sees to."""

    def __init__(
        self, listeners: Sequence[Listener], enter: Callable[[], asyncio.Protocol], waiting: Callable[[], int]
    ) -> None:
        self._listeners = listeners
        self._enter = enter
        self._waiting = waiting
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
            with suppress(OSError):  # mostly: nobody is left
                while True:
                    came.append(listener.socket.accept()[0])
            listener.close()
        loop = asyncio.get_running_loop()
        for sock in came:
            sock.setblocking(False)
            with suppress(OSError):  # gone already
                await loop.connect_accepted_socket(self._enter, sock)

    def entered(self) -> None:
        """Somebody came in: the moment to look whether that was enough."""
        if self._waiting() >= MANY_WAITING and self._servers:
            if self._owed:
                self._owed -= 1
                return
            self.close()
            self._crowded.set()

    async def run(self) -> None:
        """Until cancelled: opens again when a rush is over, or for those who have waited long."""
        loop = asyncio.get_running_loop()
        while True:
            await self._crowded.wait()
            self._crowded.clear()
            began = loop.time()
            self._tell(began)
            while self._waiting() > FEW_WAITING and loop.time() - began < _LONGEST_SECONDS:
                await asyncio.sleep(_GLANCE_SECONDS)
            self._owed = _LET_IN if self._waiting() > FEW_WAITING else 0
            while not await self._opened():
                pass

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
            log.warning("more connections than can be served: some have to wait", waiting=self._waiting())
