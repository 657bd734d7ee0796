"""Requests as bytes: what no client library would send."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

PATIENCE = 20.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Wire:
    """One connection, spoken to in bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def flushed(self) -> None:
        """What was sent has been taken, or the other end is gone."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                await self._writer.drain()

    async def receive(self, *, head: bool = False) -> Answer:
        """The next answer, of known length; ``head`` says that it has no body."""
        async with asyncio.timeout(PATIENCE):
            lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
            length = 0 if head else int(headers.get("content-length", 0))
            body = await self._reader.readexactly(length)
        return Answer(int(lines[0].split()[1]), headers, body)

    async def is_closed(self) -> bool:
        """Whether the connection is closed without another byte."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True


@contextlib.asynccontextmanager
async def wire(address: str) -> AsyncIterator[Wire]:
    """A connection to ``host:port`` or ``unix:/path``."""
    if address.startswith("unix:"):
        reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
    else:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def ask(address: str, text: str) -> Answer:
    """One request on a connection of its own; lines end as HTTP's do."""
    async with wire(address) as line:
        line.send(text.strip().replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n")
        return await line.receive()
