"""A small HTTP client that sends many requests quickly and checks every answer."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

CONNECTIONS = 64
PIPELINED = 16
"""Requests that a connection sends at once."""
_HEADERS = "HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\n\r\n"
_CLOSING = _HEADERS.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")


class BenchError(Exception):
    """The run is void: its result would be misleading."""


@dataclass(slots=True)
class Batch:
    """Unsent requests, shared by the connections."""

    targets: Sequence[str]
    next: int = 0

    def take(self, maximum: int) -> Sequence[str]:
        start, self.next = self.next, self.next + maximum
        return self.targets[start : self.next]


async def send_all(
    port: int, targets: Sequence[str], check: Callable[[bytes], None] | None = None, *, at_once: int = PIPELINED
) -> None:
    """Sends every request, over CONNECTIONS connections; ``check`` sees the body of each answer.

    ``at_once`` is how many requests a connection sends before it reads their answers: the tracker answers more than one
    by way of aiohttp. With 0 each request has its own connection, which every server supports. Raises BenchError for
    the first answer that is not a 200, or contains ``failure reason``.
    """
    waiting = Batch(targets)
    send = partial(_connection, at_once=at_once) if at_once else _connections
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(send(port, waiting, check or (lambda body: None)))
    except* BenchError as errors:
        raise errors.exceptions[0] from None


async def _connection(port: int, waiting: Batch, check: Callable[[bytes], None], at_once: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while targets := waiting.take(at_once):
            writer.write("".join(f"GET {target} {_HEADERS}" for target in targets).encode())
            for target in targets:
                check(await _read_answer(reader, target))
    finally:
        writer.close()


async def _connections(port: int, waiting: Batch, check: Callable[[bytes], None]) -> None:
    while targets := waiting.take(1):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"GET {targets[0]} {_CLOSING}".encode())
            check(await _read_answer(reader, targets[0]))
        finally:
            writer.close()


async def _read_answer(reader: asyncio.StreamReader, target: str) -> bytes:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        body = await reader.readexactly(length)
    except (ValueError, OSError, asyncio.IncompleteReadError) as error:
        raise BenchError(f"no answer to {target}: {error!r}") from error
    if not head.startswith(b"http/1.1 200") or b"14:failure reason" in body:
        raise BenchError(f"refused: {target}\n  {head.splitlines()[0].decode()}\n  {body[:300]!r}")
    return body
