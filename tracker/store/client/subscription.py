"""What is published, as it comes in: a line of its own on which the store speaks unasked.

When a crowd goes silent at once, an event comes for each peer of it, tens of thousands a second. redis-py takes some 50 µs for
a message and this a twentieth of that, so that hearing of peers costs less than reaping them. When nobody takes
what was heard it stops reading, and the messages wait in the store, which has a limit for them (redis.conf).
"""

import asyncio
from collections import deque
from typing import Any, Self, cast

import hiredis
from redis.asyncio import Redis
from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse

from tracker.store.line import open_stream

MOST_WAITING = 5_000
"""Messages heard that nobody has taken yet; what is read at one time comes on top."""
_NOTHING = object()

Message = tuple[bytes, bytes]
"""(channel, payload)"""


class Subscription(asyncio.Protocol):
    """An open one; iterating gives messages for ever. Raises redis.exceptions.RedisError once the line is broken."""

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._stream = stream  # it would close the transport when nobody had it any more
        self._transport = transport = cast(asyncio.Transport, stream.transport)
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=DefaultParser.parse_error, notEnoughData=_NOTHING
        )
        self._heard: deque[Message] = deque()
        self._news = asyncio.Event()
        self._confirmations = 0
        self._error: Exception | None = None
        self.paused = False
        """Whether it has stopped reading, because nobody takes what it has."""
        transport.set_protocol(self)

    @property
    def waiting(self) -> int:
        """Messages heard that nobody has taken yet."""
        return len(self._heard)

    async def subscribe(self, *command: str) -> None:
        """SUBSCRIBE or PSUBSCRIBE with what to listen to; returns when the store has confirmed all of it."""
        wanted = self._confirmations + len(command) - 1
        self._transport.write(hiredis.pack_command(command))  # type: ignore[arg-type]  # takes any number of them
        while self._confirmations < wanted:
            await self._wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while not self._heard:
            await self._wait()
        message = self._heard.popleft()
        if self.paused and not self._heard:
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
        if len(self._heard) > MOST_WAITING and not self.paused:
            self.paused = True
            self._transport.pause_reading()
        self._news.set()

    def _take(self, said: Any) -> None:
        if isinstance(said, Exception):
            self._end(said)
        elif said[0] == b"pmessage":
            self._heard.append((said[2], said[3]))
        elif said[0] == b"message":
            self._heard.append((said[1], said[2]))
        else:
            self._confirmations += 1

    def connection_lost(self, exc: BaseException | None) -> None:
        self._end(RedisConnectionError("the store closed the line"))

    def _end(self, error: Exception) -> None:
        self._error = self._error or error
        self._transport.abort()
        self._news.set()

    def close(self) -> None:
        self._end(RedisConnectionError("the subscription was closed"))


async def open_subscription(client: Redis) -> Subscription:
    """To where ``client`` connects to, with nothing subscribed to yet; raises as its commands do."""
    return Subscription(await open_stream(client))
