"""A connection in memory: a transport that hands a protocol what a client sent, and keeps what it answers."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

_QUIET = 8
"""Turns of the loop after which nothing more will come: an answer takes a few."""
_MOST_TURNS = 5000


class Wire(asyncio.Transport):
    """The server's end. ``peer`` is the address of the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, peer: str) -> None:
        super().__init__({"peername": (peer, 4000)})
        self._loop = loop
        self._protocol: asyncio.BaseProtocol | None = None
        self._reading = True
        self.sent = bytearray()
        self.closed = False

    def open(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    async def receive(self, chunks: Iterable[bytes], progress: Callable[[], object]) -> None:
        """Hands over all that can be, then the end; returns when neither ``progress`` nor the answers go on."""
        for chunk in chunks:
            if self.closed or not self._reading:
                break
            self._there.data_received(chunk)
            if b"\n" in chunk:  # nothing else ends a request
                await self._rest(progress)
        await self._rest(progress)
        if not self.closed and not self._there.eof_received():
            self.close()
        await self._rest(progress)

    @property
    def _there(self) -> asyncio.Protocol:
        assert isinstance(self._protocol, asyncio.Protocol)
        return self._protocol

    async def _rest(self, progress: Callable[[], object]) -> None:
        before, quiet = None, 0
        for _ in range(_MOST_TURNS):
            await asyncio.sleep(0)
            now = (len(self.sent), self.closed, progress())
            quiet = quiet + 1 if now == before else 0
            before = now
            if quiet >= _QUIET:
                return
        raise AssertionError("it does not come to an end")

    def write(self, data: Any) -> None:
        if not self.closed:
            self.sent += data

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.call_soon(self._there.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def is_reading(self) -> bool:
        return self._reading

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol | None:  # type: ignore[override]  # there is none yet
        return self._protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0
