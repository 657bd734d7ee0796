"""Thousands of slow clients in their own process: ``python -m loadtest.clients.client_kinds NAME PORT``.

A connection that the tracker closes is reopened after a moment. Prints ``ready`` when all have been opened once.
SIGTERM ends the process, which prints a line of JSON: the numbers of opened, open and failed connections.
"""

import asyncio
import contextlib
import json
import random
import signal
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import uvloop

from tracker.system.resources import raise_limit

_OPENED_A_SECOND = 500
_AGAIN_SECONDS = 1.0
_HEADERS = b" HTTP/1.1\r\nHost: t\r\nUser-Agent: slow\r\n"
_RESET = struct.pack("ii", 1, 0)

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


def announce() -> bytes:
    """The request target of a new peer, in one of a hundred torrents."""
    info_hash, peer_id = f"{random.randrange(100):020}", f"-RU0001-{random.randrange(10**12):012}"
    return f"GET /announce?info_hash={info_hash}&peer_id={peer_id}&port=6881&uploaded=0&downloaded=0&left=1".encode()


async def half_open(reader: Reader, writer: Writer) -> None:
    """half of a request, then nothing"""
    writer.write(announce() + _HEADERS)
    await reader.read()


async def idle(reader: Reader, writer: Writer) -> None:
    """one announce, then an idle connection"""
    writer.write(announce() + _HEADERS + b"\r\n")
    await reader.read()


async def drip(reader: Reader, writer: Writer) -> None:
    """one byte a second"""
    for byte in announce() + _HEADERS + b"\r\n":
        writer.write(bytes((byte,)))
        await asyncio.sleep(1.0)


async def reset(reader: Reader, writer: Writer) -> None:
    """an announce, and a reset before, during or after its answer"""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.write(announce() + _HEADERS + b"\r\n")
    await asyncio.sleep(random.random() * 0.01)
    writer.transport.abort()


async def pipeline(reader: Reader, writer: Writer) -> None:
    """10,000 announces at once, then reads the answers"""
    for _ in range(10):
        writer.write(b"".join(announce() + _HEADERS + b"\r\n" for _ in range(1000)))
    while await reader.read(65536):
        pass


async def unread(reader: Reader, writer: Writer) -> None:
    """a scrape of 50 torrents every second, without reading answers"""
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    scrape = b"&".join(b"info_hash=%020d" % number for number in range(50))
    while True:
        writer.write(b"GET /scrape?" + scrape + _HEADERS + b"\r\n")
        await writer.drain()
        await asyncio.sleep(1.0)


async def unread_pipeline(reader: Reader, writer: Writer) -> None:
    """scrapes of 50 torrents without pause, without reading answers"""
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    scrape = b"&".join(b"info_hash=%020d" % number for number in range(50))
    while True:
        writer.write(20 * (b"GET /scrape?" + scrape + _HEADERS + b"\r\n"))
        await writer.drain()


async def endless(reader: Reader, writer: Writer) -> None:
    """two header lines a second, endlessly"""
    writer.write(announce() + _HEADERS)
    while not reader.at_eof():
        writer.write(b"X-%d: y\r\n" % random.randrange(1000))
        await writer.drain()
        await asyncio.sleep(0.5)


async def large(reader: Reader, writer: Writer) -> None:
    """an incomplete head of nearly 40 kB, the maximum"""
    # Half of it in one line and half in several, because lines have a limit too.
    lines = b"".join(b"X-%d: %b\r\n" % (number, b"y" * 7000) for number in range(4))
    writer.write(announce() + b"&x=" + b"z" * 10_000 + _HEADERS + lines)
    await reader.read()


@dataclass(frozen=True, slots=True)
class Kind:
    """``sources``: how many addresses share the connections."""

    behave: Callable[[Reader, Writer], Awaitable[None]]
    connections: int
    sources: int
    again_seconds: float = _AGAIN_SECONDS

    @property
    def description(self) -> str:
        origin = "one address" if self.sources == 1 else f"{self.sources} addresses"
        return f"{self.connections:,} connections from {origin}: {self.behave.__doc__}"


KINDS = {
    "half-open": Kind(half_open, 5000, 5),
    "idle": Kind(idle, 10_000, 10),
    "idle-alone": Kind(idle, 5000, 1),
    "drip": Kind(drip, 1000, 5),
    "resets": Kind(reset, 200, 5, 0.5),
    "pipelines": Kind(pipeline, 5, 5),
    "unread": Kind(unread, 300, 5),
    "unread-pipelines": Kind(unread_pipeline, 400, 1),
    "endless": Kind(endless, 1000, 5),
    "large": Kind(large, 2000, 5),
}


@dataclass(slots=True)
class SlowClients:
    """All connections of one kind to ``port``."""

    kind: Kind
    port: int
    opened: int = 0
    open: int = 0
    unopened: int = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self.kind.connections):
                group.create_task(self._one(number))

    async def _one(self, number: int) -> None:
        await asyncio.sleep(number / _OPENED_A_SECOND)
        source = f"127.66.0.{1 + number % self.kind.sources}"
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))
            except OSError:
                self.unopened += 1
            else:
                await self._behave(reader, writer)
            await asyncio.sleep(self.kind.again_seconds)

    async def _behave(self, reader: Reader, writer: Writer) -> None:
        self.opened += 1
        self.open += 1
        if self.opened == self.kind.connections:
            print("ready", flush=True)
        try:
            # uvloop raises RuntimeError where something is written after the server has closed the connection.
            with contextlib.suppress(OSError, RuntimeError):
                await self.kind.behave(reader, writer)
        finally:
            self.open -= 1
            writer.transport.abort()


async def _run(clients: SlowClients) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(clients.run())
        await stop.wait()
        print(json.dumps({"opened": clients.opened, "open": clients.open, "unopened": clients.unopened}), flush=True)
        task.cancel()


def main() -> None:
    name, port = sys.argv[1:]
    raise_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(SlowClients(KINDS[name], int(port))))


if __name__ == "__main__":
    main()
