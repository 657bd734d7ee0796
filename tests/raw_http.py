"""HTTP spoken in bytes: what no client library would send, and what came back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import bencodepy

PATIENCE = 20.0


@dataclass(frozen=True)
class Response:
    status_line: str
    headers: dict[str, str]
    body: bytes

    @property
    def status(self) -> int:
        return int(self.status_line.split()[1])

    @property
    def reply(self) -> dict[bytes, Any]:
        """A tracker's bencoded reply; every one is a plain-text 200 of known length."""
        assert self.status_line.endswith(" 200 OK")
        assert self.headers["content-type"] == "text/plain"
        assert "transfer-encoding" not in self.headers
        decoded: dict[bytes, Any] = bencodepy.decode(self.body)
        return decoded

    @property
    def failure(self) -> str:
        reply = self.reply
        assert set(reply) >= {b"failure reason", b"retry in", b"interval"}
        text: bytes = reply[b"failure reason"]
        return text.decode()


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def half_close(self) -> None:
        with contextlib.suppress(OSError):  # the server may have closed the connection already
            self.writer.write_eof()

    async def flushed(self) -> None:
        """Waits until what was sent has been taken, or the server has closed the connection."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                await self.writer.drain()

    async def receive(self, *, head: bool = False) -> Response:
        """The next response, of known length; ``head`` says that it has no body."""
        async with asyncio.timeout(PATIENCE):
            text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status_line, *lines = text.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            length = 0 if head else int(headers.get("content-length", 0))
            body = await self.reader.readexactly(length)
        return Response(status_line, headers, body)

    async def get(self, target: str, *header_lines: str) -> Response:
        self.send(request(target, *header_lines))
        return await self.receive()

    async def is_closed(self) -> bool:
        """Whether the server closes the connection without another byte."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


def request(target: str, *header_lines: str, method: str = "GET", version: str = "HTTP/1.1") -> bytes:
    lines = [f"{method} {target} {version}", "Host: tracker.test", *header_lines, "", ""]
    return "\r\n".join(lines).encode("latin-1")


@contextlib.asynccontextmanager
async def connect(address: str) -> AsyncIterator[Client]:
    """A connection to ``host:port`` or ``unix:/path``, as a tracker writes its addresses."""
    if address.startswith("unix:"):
        reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
    else:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def ask(address: str, text: str) -> Response:
    """The response to one request, on a connection of its own; lines of ``text`` end as HTTP's do."""
    async with connect(address) as client:
        client.send(text.strip().replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n")
        return await client.receive()
