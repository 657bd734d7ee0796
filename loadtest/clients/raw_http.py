"""One announce over HTTP as a client sees it: answered, refused with a retry time, or not answered."""

import asyncio
import struct
from dataclasses import dataclass
from typing import Any, Literal

from bencodepy import DecodingError
from bencodepy import decode as bdecode

TIMEOUT_SECONDS = 10.0
"""How long a client waits for an answer."""

ResultKind = Literal["answered", "refused", "closed", "unreachable", "timed out", "missed", "invalid"]
"""``refused``: a failure with ``retry in``; ``closed``: the connection ended before the answer; ``missed``: the load
generator was stalled and may have missed it; ``invalid``: anything that a client cannot parse."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a request. ``detail`` is the failure reason, or why the answer is invalid."""

    kind: ResultKind
    detail: str = ""
    reply: "dict[bytes, Any] | None" = None


class Connection:
    """A connection from one address, opened when needed; kept open if ``keep``."""

    def __init__(self, source: str, *, keep: bool) -> None:
        self._source = source
        self._keep = keep
        self._open: tuple[int, asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, port: int, target: str) -> Answer:
        """Never raises because of the other side."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await self._get(port, target)
        except TimeoutError:
            self.close()
            return Answer("timed out", f"no answer within {TIMEOUT_SECONDS:g} s")

    async def _get(self, port: int, target: str) -> Answer:
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
                if kept and nothing and not again:  # servers close idle connections; clients retry once
                    continue
                return Answer("closed", type(error).__name__)
            except (ValueError, asyncio.LimitOverrunError):
                self.close()
                return Answer("invalid", "not an HTTP answer with a length")
            if not self._keep or b"connection: close" in head.lower():
                self.close()
            return _read(head, body)
        raise AssertionError("unreachable")

    async def _connected(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._open is None or self._open[0] != port:
            self.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(self._source, 0))
            if not self._keep:  # otherwise TIME_WAIT would use up the ports
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
        return Answer("invalid", head.split(b"\r\n")[0].decode("latin-1"))
    try:
        reply = bdecode(body)
    except DecodingError:
        return Answer("invalid", f"not bencode: {body[:60]!r}")
    if not isinstance(reply, dict):
        return Answer("invalid", "not a dictionary")
    if b"failure reason" in reply:
        reason = reply[b"failure reason"].decode("utf-8", "replace")
        if b"retry in" not in reply:
            return Answer("invalid", f"a failure without retry in: {reason}", reply)
        return Answer("refused", reason, reply)
    if b"interval" not in reply or b"peers" not in reply:
        return Answer("invalid", "an answer without interval or peers", reply)
    return Answer("answered", "", reply)
