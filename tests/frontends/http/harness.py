"""What the front end's tests share: a tracker that records, a client that speaks raw bytes, both loops."""

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import bencodepy
import pytest
import uvloop

from tracker.bittorrent import Address, Announce, AnnounceReply, Scrape, ScrapeFile, ScrapeReply
from tracker.errors import ClientError
from tracker.frontends.http import serve_http
from tracker.settings import AnnounceSettings, HttpSettings
from tracker.wire.compact import format_address

INFO_HASH = bytes(range(20))
PEER_ID = b"-XX0001-" + bytes(range(244, 256))
QUERY = "info_hash={}&peer_id={}&port=6881&uploaded=0&downloaded=0&left=1".format(
    "".join(f"%{byte:02x}" for byte in INFO_HASH), "".join(f"%{byte:02X}" for byte in PEER_ID)
)
ANNOUNCE = f"/announce?{QUERY}"
PATIENCE = 5.0
door_is_ajar = True
"""False where aiohttp is to answer everything (conftest.py has every test done both ways)."""

_LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def on_loops(*names: str) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Run a coroutine test on the loops named (all when none is)."""

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        def run(*args: Any, new_loop: Callable[[], asyncio.AbstractEventLoop], **fixtures: Any) -> None:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(test(*args, **fixtures))

        functools.update_wrapper(run, test)
        signature = inspect.signature(test)
        extra = inspect.Parameter("new_loop", inspect.Parameter.KEYWORD_ONLY)
        run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), extra])  # type: ignore[attr-defined]
        del run.__wrapped__  # type: ignore[attr-defined]  # else pytest takes it for a coroutine
        chosen = names or tuple(_LOOPS)
        mark = pytest.mark.parametrize("new_loop", [_LOOPS[name] for name in chosen], ids=chosen)
        marked: Callable[..., None] = mark(run)
        return marked

    return decorate


Reply = TypeVar("Reply")


def _outcome(task: "asyncio.Task[Reply]") -> Reply | ClientError:
    if task.cancelled():
        return ClientError("the test is over")
    error = task.exception()
    return error if isinstance(error, ClientError) else task.result()


class RecordingTracker:
    """Says yes to everything and remembers it; ``error`` is raised instead, ``gate`` holds answers back."""

    def __init__(self) -> None:
        self.announces: list[tuple[Announce, str | None, Address]] = []
        self.scrapes: list[tuple[Scrape, str | None, Address]] = []
        self.labels: list[str] = []
        self.kinds: list[str] = []
        self.error: Exception | None = None
        self.asks_first = False
        self.gate = asyncio.Event()
        self.gate.set()

    def submit(
        self,
        announce: Announce,
        passkey: str | None,
        address: Address,
        answer: Callable[[AnnounceReply | ClientError], None],
    ) -> bool:
        if self.asks_first:
            return False
        if self.error is not None and not isinstance(self.error, ClientError):
            raise self.error
        asked = asyncio.get_running_loop().create_task(self.announce(announce, passkey, address))
        asked.add_done_callback(lambda task: answer(_outcome(task)))
        return True

    def submit_scrape(
        self,
        scrape: Scrape,
        passkey: str | None,
        address: Address,
        answer: Callable[[ScrapeReply | ClientError], None],
    ) -> bool:
        if not scrape.info_hashes:
            return False
        if self.error is not None and not isinstance(self.error, ClientError):
            raise self.error
        asked = asyncio.get_running_loop().create_task(self.scrape(scrape, passkey, address))
        asked.add_done_callback(lambda task: answer(_outcome(task)))
        return True

    async def announce(self, announce: Announce, passkey: str | None, address: Address) -> AnnounceReply:
        self.announces.append((announce, passkey, address))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return AnnounceReply(1800, 900, seeders=announce.port, leechers=0, completions=0)

    async def scrape(self, scrape: Scrape, passkey: str | None, address: Address) -> ScrapeReply:
        self.scrapes.append((scrape, passkey, address))
        if self.error is not None:
            raise self.error
        return ScrapeReply({info_hash: ScrapeFile(seeders=1) for info_hash in scrape.info_hashes})

    def refused(self, label: str, kind: str = "other", number: int = 1) -> None:
        self.labels += [label] * number
        self.kinds += [kind] * number

    @property
    def address(self) -> str:
        """The address the last announce was credited to, as text."""
        return format_address(self.announces[-1][2])


@dataclass(frozen=True)
class Response:
    status_line: str
    headers: dict[str, str]
    body: bytes

    @property
    def reply(self) -> dict[bytes, Any]:
        """The bencoded answer; every one is a plain-text 200 of known length."""
        assert self.status_line.endswith(" 200 OK")
        assert self.headers["content-type"] == "text/plain"
        assert "transfer-encoding" not in self.headers
        decoded: dict[bytes, Any] = bencodepy.decode(self.body)
        return decoded

    @property
    def failure(self) -> str:
        reply = self.reply
        assert set(reply) >= {b"failure reason", b"retry in", b"interval"}
        text: bytes = reply[b"failure reason"]
        return text.decode()


class Client:
    """One connection, spoken to in bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def half_close(self) -> None:
        with suppress(OSError):  # the other side may have cut the connection off already
            self.writer.write_eof()

    async def receive(self) -> Response:
        """The next answer."""
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("ascii")
            status_line, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await self.reader.readexactly(int(headers["content-length"]))
        return Response(status_line, headers, body)

    async def is_closed(self) -> bool:
        """Whether the tracker closes the connection without another byte."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def get(self, target: str, *header_lines: str) -> Response:
        self.send(request(target, *header_lines))
        return await self.receive()


def request(target: str, *header_lines: str, method: str = "GET", version: str = "HTTP/1.1") -> bytes:
    lines = [f"{method} {target} {version}", "Host: tracker.test", *header_lines, "", ""]
    return "\r\n".join(lines).encode("latin-1")


@contextlib.asynccontextmanager
async def connect(address: str) -> AsyncIterator[Client]:
    """A client of the tracker at ``address``, which is written as the tracker writes it."""
    if address.startswith("unix:"):
        reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
    else:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def serving(
    tracker: RecordingTracker, announce: AnnounceSettings | None = None, **http: Any
) -> AsyncIterator[str]:
    """A front end on a free loopback port (or on ``listen``); gives its first address."""
    settings = HttpSettings(**{"listen": ("127.0.0.1:0",), **http})
    made = announce or AnnounceSettings()
    async with serve_http(tracker, settings, made, max_scrape=400, door=door_is_ajar) as addresses:
        yield addresses[0]


@contextlib.asynccontextmanager
async def talking(
    tracker: RecordingTracker, announce: AnnounceSettings | None = None, **http: Any
) -> AsyncIterator[Client]:
    """A front end and one client of it."""
    async with serving(tracker, announce, **http) as address, connect(address) as client:
        yield client
