"""One announce over HTTP as a client sees it: answered, refused with a time to come back, or not answered at all."""

import asyncio
import struct
from dataclasses import dataclass
from typing import Any, Literal

from bencodepy import DecodingError
from bencodepy import decode as bdecode

PATIENCE_SECONDS = 10.0
"""A client that has waited for so long has been left hanging."""

How = Literal["answered", "refused", "closed", "unreachable", "hung", "missed", "odd"]
"""``refused``: a failure with ``retry in``; ``closed``: the connection ended before the answer; ``missed``: it may have
come, but nobody looked; ``odd``: anything that a client does not understand."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. ``what`` is the failure reason, or what is odd about it."""

    how: How
    what: str = ""
    reply: "dict[bytes, Any] | None" = None


class Line:
    """A connection to one address, made when it is needed and kept when ``keep`` says so."""

    def __init__(self, source: str, *, keep: bool) -> None:
        self._source = source
        self._keep = keep
        self._open: tuple[int, asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, port: int, target: str) -> Answer:
        """Never raises for what the other side does."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await self._ask(port, target)
        except TimeoutError:
            self.close()
            return Answer("hung", f"no answer within {PATIENCE_SECONDS:g} s")

    async def _ask(self, port: int, target: str) -> Answer:
        for again in (False, True):
            kept = self._open is not None and self._open[0] == port
            try:
                reader, writer = await self._connected(port)
            except OSError as error:
                return Answer("unreachable", type(error).__name__)
            try:
                writer.write(self._request(target))
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                body = await reader.readexactly(length)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.close()
                nothing = not getattr(error, "partial", b"")
                if kept and nothing and not again:  # idle connections end; every client tries once more
                    continue
                return Answer("closed", type(error).__name__)
            except (ValueError, asyncio.LimitOverrunError):
                self.close()
                return Answer("odd", "not an HTTP answer with a length")
            if not self._keep or b"connection: close" in head.lower():
                self.close()
            return _read(head, body)
        raise AssertionError("unreachable")

    async def _connected(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._open is None or self._open[0] != port:
            self.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(self._source, 0))
            if not self._keep:  # thousands of ports that wait for nothing would be used up
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(1, 13, linger)  # SOL_SOCKET, SO_LINGER
            self._open = port, reader, writer
        return self._open[1], self._open[2]

    def _request(self, target: str) -> bytes:
        connection = "keep-alive" if self._keep else "close"
        return f"GET {target} HTTP/1.1\r\nHost: tracker\r\nConnection: {connection}\r\n\r\n".encode()

    def close(self) -> None:
        if self._open is not None:
            self._open[2].close()
            self._open = None


def _read(head: bytes, body: bytes) -> Answer:
    if not head.startswith(b"HTTP/1.1 200 "):
        return Answer("odd", head.split(b"\r\n")[0].decode("latin-1"))
    try:
        reply = bdecode(body)
    except DecodingError:
        return Answer("odd", f"not bencode: {body[:60]!r}")
    if not isinstance(reply, dict):
        return Answer("odd", "no dictionary")
    if b"failure reason" in reply:
        reason = reply[b"failure reason"].decode("utf-8", "replace")
        if b"retry in" not in reply:
            return Answer("odd", f"a failure without retry in: {reason}", reply)
        return Answer("refused", reason, reply)
    if b"interval" not in reply or b"peers" not in reply:
        return Answer("odd", "an answer without interval or peers", reply)
    return Answer("answered", "", reply)
