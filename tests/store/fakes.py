"""Fake servers on loopback, each with a URL for clients."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[str]:
    open_now: set[asyncio.StreamWriter] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()
        for writer in open_now:
            writer.close()


@asynccontextmanager
async def answering(answers: Mapping[bytes, bytes]) -> AsyncIterator[str]:
    """Speaks the protocol: replies to a command by its first two words, by its first word, or with OK."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            words = []
            for _ in range(int(head[1:])):
                length = int((await reader.readline())[1:])
                words.append((await reader.readexactly(length + 2))[:-2])
            writer.write(answers.get(b" ".join(words[:2])) or answers.get(words[0], b"+OK\r\n"))

    async with listening(serve) as url:
        yield url


@asynccontextmanager
async def http_server() -> AsyncIterator[str]:
    """A web server in the place of a store."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    async with listening(serve) as url:
        yield url


@asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """Accepts connections and sends nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(serve) as url:
        yield url
