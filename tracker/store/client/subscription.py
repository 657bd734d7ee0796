"""A dedicated connection for published messages.

When many peers time out at once, tens of thousands of events arrive in a second. redis-py takes some 50 µs for a
message, and this a twentieth of that, so receiving events costs less than reaping the peers. When messages are not
consumed, it stops reading, and they wait in the store, which limits them (redis.conf).
"""

import asyncio
from collections import deque
from typing import Any, Self, cast

import hiredis
from redis.asyncio import Redis
from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse

from tracker.store.client.pipe import open_stream

MAX_WAITING = 5_000
"""Messages that wait to be consumed, beside those of the last read."""
_NOTHING = object()

Message = tuple[bytes, bytes]
"""(channel, payload)"""


class Subscription(asyncio.Protocol):
    """An open subscription; iterating yields messages. Raises redis.exceptions.RedisError once the connection is
    broken."""

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._stream = stream  # keeps the transport open: its finalizer would close it
        self._transport = transport = cast(asyncio.Transport, stream.transport)
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=DefaultParser.parse_error, notEnoughData=_NOTHING
        )
        self._messages: deque[Message] = deque()
        self._news = asyncio.Event()
        self._confirmations = 0
        self._error: Exception | None = None
        self.paused = False
        """Whether it has stopped reading, because messages are not consumed."""
        transport.set_protocol(self)

    @property
    def waiting(self) -> int:
        """Messages that wait to be consumed."""
        return len(self._messages)

    async def subscribe(self, *command: str) -> None:
        """Sends SUBSCRIBE or PSUBSCRIBE; returns when the store has confirmed every channel or pattern."""
        wanted = self._confirmations + len(command) - 1
        self._transport.write(hiredis.pack_command(command))  # type: ignore[arg-type]  # takes any number of them
        while self._confirmations < wanted:
            await self._wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while not self._messages:
            await self._wait()
        message = self._messages.popleft()
        if self.paused and not self._messages:
            self.paused = False
            self._transport.resume_reading()
        return message

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._news.clear()
        await self._news.wait()

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.feed(data)
        try:
            while (said := reader.gets()) is not _NOTHING:
                self._take(said)
        except (InvalidResponse, IndexError, TypeError) as error:
            self._end(InvalidResponse(f"no message: {error}"))
        if len(self._messages) > MAX_WAITING and not self.paused:
            self.paused = True
            self._transport.pause_reading()
        self._news.set()

    def _take(self, said: Any) -> None:
        if isinstance(said, Exception):
            self._end(said)
        elif said[0] == b"pmessage":
            self._messages.append((said[2], said[3]))
        elif said[0] == b"message":
            self._messages.append((said[1], said[2]))
        else:
            self._confirmations += 1

    def connection_lost(self, exc: BaseException | None) -> None:
        self._end(RedisConnectionError("the store closed the connection"))

    def _end(self, error: Exception) -> None:
        self._error = self._error or error
        self._transport.abort()
        self._news.set()

    def close(self) -> None:
        self._end(RedisConnectionError("the subscription was closed"))


async def open_subscription(client: Redis) -> Subscription:
    """A new connection to the server of ``client``, without channels; raises what its commands raise."""
    return Subscription(await open_stream(client))
