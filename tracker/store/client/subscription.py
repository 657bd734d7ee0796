"""A dedicated connection for published messages, which all subscribers of a server share.

When many peers time out at once, tens of thousands of events arrive in a second. redis-py takes some 50 µs for a
message, and this a twentieth of that, so receiving events costs less than reaping the peers. When messages are not
consumed, it stops reading, and they wait in the store, which limits them (redis.conf).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self

import hiredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse

from tracker.store.client.pipe import NO_REPLY, Socket

MAX_WAITING = 5_000
"""Messages that wait to be consumed, beside those of the last read."""

Message = tuple[bytes, bytes]
"""(channel, payload)"""
Messages = AsyncIterator[Message]
_Name = tuple[bytes, bytes]
"""The kind of its messages, and a channel or pattern."""


class Subscriber:
    """The messages of some channels and patterns from ``start`` on; iterating yields them. Raises
    redis.exceptions.RedisError once it is closed or the connection is broken."""

    def __init__(self, subscription: "Subscription", channels: Sequence[str], patterns: Sequence[str]) -> None:
        self._subscription = subscription
        subscription.subscribers.add(self)
        self.names = [(b"message", name.encode()) for name in channels]
        self.names += [(b"pmessage", name.encode()) for name in patterns]
        self.messages: deque[Message] = deque()
        self.news = asyncio.Event()
        self.error = subscription.error

    async def start(self) -> None:
        """Returns when the store has confirmed every channel and pattern; raises ResponseError when it refuses one."""
        await self._subscription.subscribe(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while not self.messages:
            if self.error is not None:
                raise self.error
            self.news.clear()
            await self.news.wait()
        message = self.messages.popleft()
        self._subscription.note_consumed(1)
        return message

    def close(self) -> None:
        """Drops messages that wait."""
        self.end(RedisConnectionError("the subscription was closed"))
        self._subscription.leave(self)

    def end(self, error: Exception) -> None:
        """Raises ``error`` after the messages that have arrived."""
        self.error = self.error or error
        self.news.set()


class Subscription(Socket):
    """An open connection. It is closed when the last subscriber leaves, and stays ``broken`` then."""

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._by_name: dict[_Name, list[Subscriber]] = {}
        self._unconfirmed: deque[tuple[asyncio.Future[None], int]] = deque()
        """Of each command without a reply, and how many confirmations are missing."""
        self.subscribers: set[Subscriber] = set()
        self.error: Exception | None = None
        self.waiting = 0
        """Messages that wait to be consumed."""
        self.paused = False
        """Whether it has stopped reading, because messages are not consumed."""
        super().__init__(stream)

    async def subscribe(self, subscriber: Subscriber) -> None:
        if subscriber.error is not None:
            raise subscriber.error
        for name in subscriber.names:
            self._by_name.setdefault(name, []).append(subscriber)
        confirmations = self._send("SUBSCRIBE", subscriber.names)
        try:
            await asyncio.gather(*confirmations)
        finally:
            for future in confirmations:
                future.cancel()

    def leave(self, subscriber: Subscriber) -> None:
        """Its messages are dropped. The connection is closed if it was the last one."""
        self.subscribers.discard(subscriber)
        left = []
        for name in subscriber.names:
            others = self._by_name.get(name, [])
            if subscriber in others:
                others.remove(subscriber)
                if not others:
                    del self._by_name[name]
                    left.append(name)
        self.note_consumed(len(subscriber.messages))
        subscriber.messages.clear()
        if not self.subscribers:
            self.close()
        elif not self.broken:
            for confirmation in self._send("UNSUBSCRIBE", left):
                confirmation.cancel()  # no task waits for it

    def _send(self, command: str, names: Sequence[_Name]) -> list["asyncio.Future[None]"]:
        """A command for channels and one for patterns, where there are any. Each future gets its confirmation."""
        futures = []
        for kind, verb in ((b"message", command), (b"pmessage", f"P{command}")):
            chosen = [name for each, name in names if each == kind]
            if chosen:
                futures.append(future := self._loop.create_future())
                self._unconfirmed.append((future, len(chosen)))
                packed = hiredis.pack_command((verb, *chosen))  # type: ignore[arg-type]  # any number of arguments
                self._transport.write(packed)
        return futures

    def note_consumed(self, messages: int) -> None:
        self.waiting -= messages
        if self.paused and self.waiting <= MAX_WAITING // 2 and not self.broken:
            self.paused = False
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.feed(data)
        try:
            while (said := reader.gets()) is not NO_REPLY:
                self._take(said)
        except (InvalidResponse, IndexError, TypeError) as error:
            self._end(InvalidResponse(f"no message: {error}"))
        if self.waiting > MAX_WAITING and not self.paused and not self.broken:
            self.paused = True
            self._transport.pause_reading()

    def _take(self, said: Any) -> None:
        if isinstance(said, Exception):
            future, _ = self._unconfirmed.popleft()
            if not future.done():
                future.set_exception(said)
        elif said[0] == b"pmessage":
            self._deliver((b"pmessage", said[1]), (said[2], said[3]))
        elif said[0] == b"message":
            self._deliver((b"message", said[1]), (said[1], said[2]))
        else:
            future, missing = self._unconfirmed[0]
            if missing > 1:
                self._unconfirmed[0] = (future, missing - 1)
                return
            self._unconfirmed.popleft()
            if not future.done():
                future.set_result(None)

    def _deliver(self, name: _Name, message: Message) -> None:
        for subscriber in self._by_name.get(name, ()):
            subscriber.messages.append(message)
            subscriber.news.set()
            self.waiting += 1

    def connection_lost(self, exc: BaseException | None) -> None:
        self._end(RedisConnectionError("the store closed the connection"))

    def _end(self, error: Exception) -> None:
        self.error = error = self.error or error
        self.broken = True
        self._transport.abort()
        for subscriber in self.subscribers:
            subscriber.end(error)
        while self._unconfirmed:
            future, _ = self._unconfirmed.popleft()
            if not future.done():
                future.set_exception(error)

    def close(self) -> None:
        self._end(RedisConnectionError("the subscription was closed"))
