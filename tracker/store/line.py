"""A line of its own to the store, for a caller that asks often and for much at a time.

redis-py makes the connection, with all that belongs to it (address, TLS, password, database). Then the transport is given
to a protocol that does only what is left: a command goes out in one write, and hiredis reads the answer as it comes in.
Through redis-py's own layers and streams a call cost this process as much as a dozen of the announces in it.
"""

import asyncio
from collections import deque
from typing import Any, cast

import hiredis
from redis.asyncio import Redis
from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse

_NOTHING = object()


class Line(asyncio.Protocol):
    """An open line. Answers come in the order of the questions; a line that broke stays broken."""

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._stream = stream  # it would close the transport when nobody had it any more
        self._transport = transport = cast(asyncio.Transport, stream.transport)
        self._asked: deque[asyncio.Future[Any]] = deque()
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=DefaultParser.parse_error, notEnoughData=_NOTHING
        )
        self._broken = transport.is_closing()
        transport.set_protocol(self)

    @property
    def broken(self) -> bool:
        return self._broken

    def ask(self, *command: str | bytes | int | float) -> "asyncio.Future[Any]":
        """Sends a command; the future has its answer, or raises redis.exceptions.RedisError."""
        future = asyncio.get_running_loop().create_future()
        if self._broken:
            future.set_exception(RedisConnectionError("the line is broken"))
        else:
            self._asked.append(future)
            self._transport.write(hiredis.pack_command(command))  # type: ignore[arg-type]  # takes any number of them
        return future

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.feed(data)
        try:
            while (answer := reader.gets()) is not _NOTHING:
                self._answered(answer)
        except (InvalidResponse, IndexError):  # nonsense, or an answer nobody asked for
            self.close()

    def _answered(self, answer: Any) -> None:
        future = self._asked.popleft()
        if future.done():  # whoever asked has given up
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._broken = True
        asked, self._asked = self._asked, deque()
        for future in asked:
            if not future.done():
                future.set_exception(RedisConnectionError("the store closed the line"))

    def close(self) -> None:
        """At once: what is on its way is lost."""
        self._broken = True
        self._transport.abort()


async def open_line(client: Redis) -> Line:
    """A new line to where ``client`` connects to; raises as its commands do."""
    return Line(await open_stream(client))


async def open_stream(client: Redis) -> asyncio.StreamWriter:
    """A connection that redis-py has made, and does not know any more."""
    connection: Any = client.connection_pool.make_connection()  # type: ignore[no-untyped-call]  # redis-py's
    await connection.connect()
    stream, connection._writer, connection._reader = connection._writer, None, None
    return cast(asyncio.StreamWriter, stream)
