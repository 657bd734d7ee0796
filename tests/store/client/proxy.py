"""A connection between a tracker and its store that can lose data."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

from loadtest.servers import Server


class Proxy:
    """Passes bytes both ways on loopback TCP. Clients connect to ``url`` instead of the server's."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._swallowing = False
        self._freeze_after = b""
        self.frozen = asyncio.Event()
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._listener.sockets[0].getsockname()[1]
        self.url = f"redis://127.0.0.1:{port}/0"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self.thaw()
        self.cut()

    def swallow_answers(self) -> None:
        """Discards the next reply and closes every connection."""
        self._swallowing = True

    def freeze_after(self, mark: bytes) -> None:
        """After the next reply that contains ``mark``, no reply passes on any connection until ``thaw``."""
        self._freeze_after = mark

    def thaw(self) -> None:
        self._thawed.set()

    def lead_to(self, server: Server) -> None:
        """Closes every connection. The next ones lead to another server."""
        self._server = server
        self.cut()

    def cut(self) -> None:
        """Closes every connection."""
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        far_reader, far_writer = await asyncio.open_unix_connection(self._server.socket_path)
        self._writers |= {writer, far_writer}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._copy(reader, far_writer, answers=False))
            tasks.create_task(self._copy(far_reader, writer, answers=True))
        self._writers -= {writer, far_writer}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if answers and self._swallowing:
                    self._swallowing = False
                    self.cut()
                    break
                if answers:
                    await self._thawed.wait()
                writer.write(data)
                if answers and self._freeze_after and self._freeze_after in data:
                    self._freeze_after = b""
                    self._thawed.clear()
                    self.frozen.set()
                await writer.drain()
        writer.close()
