"""A transport in memory: passes a client's bytes to a protocol and stores the replies."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

_QUIET_TURNS = 8
"""Turns of the event loop without a change after which a protocol is idle. A reply takes a few turns."""
_MAX_TURNS = 5000


class MemoryTransport(asyncio.Transport):
    """The server's end. ``peer`` is the client's address."""

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
        """Passes the chunks, then the end of the stream. Returns when replies and ``progress`` no longer change."""
        for chunk in chunks:
            if self.closed or not self._reading:
                break
            self._receiver.data_received(chunk)
            if b"\n" in chunk:  # only a newline can end a request
                await self._until_idle(progress)
        await self._until_idle(progress)
        if not self.closed and not self._receiver.eof_received():
            self.close()
        await self._until_idle(progress)

    @property
    def _receiver(self) -> asyncio.Protocol:
        assert isinstance(self._protocol, asyncio.Protocol)
        return self._protocol

    async def _until_idle(self, progress: Callable[[], object]) -> None:
        before, quiet = None, 0
        for _ in range(_MAX_TURNS):
            await asyncio.sleep(0)
            now = (len(self.sent), self.closed, progress())
            quiet = quiet + 1 if now == before else 0
            before = now
            if quiet >= _QUIET_TURNS:
                return
        raise AssertionError("the protocol does not become idle")

    def write(self, data: Any) -> None:
        if not self.closed:
            self.sent += data

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.call_soon(self._receiver.connection_lost, None)

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

    def get_protocol(self) -> asyncio.BaseProtocol | None:  # type: ignore[override]  # None before open()
        return self._protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0
