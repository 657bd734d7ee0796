"""Bytes on the HTTP port: the fast protocol with aiohttp behind it sees the same requests as aiohttp alone.

The replies are the same too. So request smuggling between the two parsers is impossible. The first byte selects in what
pieces the rest arrives, whether from a trusted proxy, and whether the tracker has accounts.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_network
from typing import Any, NamedTuple

from fuzz import vectors
from fuzz.memory_transport import MemoryTransport
from tracker.bittorrent import Address, Announce, AnnounceReply, Scrape, ScrapeFile, ScrapeReply
from tracker.core.announce import Tracker
from tracker.frontends.http import aiohttp_protocol
from tracker.frontends.http.connection_table import ConnectionTable
from tracker.frontends.http.fast_protocol import FastHttpProtocol, FastHttpServer
from tracker.frontends.http.handler import HttpHandler
from tracker.refusals import Refusal
from tracker.settings.model import LiveSettings, Settings
from tracker.settings.public import HttpSettings, TorrentSettings, UserSettings

MAX_LENGTH = 1500
_PROXY, STRANGER = "10.0.0.1", "11.0.0.1"
_BY_PROXY, _PIECES, _ACCOUNTS = 1, 6, 8
_SETTINGS = HttpSettings(trusted_proxies=(ip_network("10.0.0.0/8"),), access_log=False)
_PUBLIC = Settings(http=_SETTINGS, torrents=TorrentSettings(max_scrape=5))
_PRIVATE = _PUBLIC.model_copy(update={"users": UserSettings(private="required")})


class Outcome(NamedTuple):
    """What the server made of some bytes."""

    requests: list[Any]
    refusals: list[str]
    replies: bytes
    closed: bool


class Recorder(Tracker):
    """A tracker that answers and records every request."""

    waiting = 0

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.refusals: list[str] = []

    def refused(self, label: str, kind: str = "other", number: int = 1) -> None:
        self.refusals += [f"{kind}: {label}"] * number

    def submit(
        self,
        announce: Announce,
        passkey: str | None,
        address: Address,
        reply: Callable[[AnnounceReply | Refusal], None],
    ) -> bool:
        asyncio.get_running_loop().call_soon(reply, self._announced(announce, passkey, address))
        return True

    def submit_scrape(
        self, scrape: Scrape, passkey: str | None, address: Address, reply: Callable[[ScrapeReply | Refusal], None]
    ) -> bool:
        if not scrape.info_hashes:
            return False
        asyncio.get_running_loop().call_soon(reply, self._scraped(scrape, passkey, address))
        return True

    async def announce(self, announce: Announce, passkey: str | None, address: Address) -> AnnounceReply:
        return self._announced(announce, passkey, address)

    async def scrape(self, scrape: Scrape, passkey: str | None, address: Address) -> ScrapeReply:
        return self._scraped(scrape, passkey, address)

    def _announced(self, *origin: Any) -> AnnounceReply:
        self.requests.append(origin)
        return AnnounceReply(1800, 900, seeders=len(self.requests), leechers=0, completions=0)

    def _scraped(self, scrape: Scrape, *origin: Any) -> ScrapeReply:
        self.requests.append((scrape, *origin))
        return ScrapeReply(dict.fromkeys(scrape.info_hashes, ScrapeFile(seeders=len(self.requests))))


def check(data: bytes) -> None:
    mode, sent = data[0] if data else 0, data[1:]
    chunks = _pieces(sent, (mode & _PIECES) >> 1)
    peer = _PROXY if mode & _BY_PROXY else STRANGER
    settings = _PRIVATE if mode & _ACCOUNTS else _PUBLIC
    fast, slow = (_loop.run_until_complete(outcome(chunks, peer, settings, fast_path=on)) for on in (True, False))
    assert fast == slow or only_refuses_earlier(fast, slow), f"{fast}\n{slow}"


def only_refuses_earlier(fast: Outcome, slow: Outcome) -> bool:
    """An invalid head that ends early: aiohttp refuses it at once, the fast protocol waits for the rest."""
    reply, label = slow.replies.removeprefix(fast.replies), slow.refusals[-1:]
    return (
        slow == Outcome(fast.requests, fast.refusals + label, fast.replies + reply, fast.closed)
        and label[0].startswith("other: ")
        and reply.count(b"HTTP/1.") == 1
    )


def _pieces(sent: bytes, mode: int) -> Sequence[bytes]:
    """Mode 0: one piece; 1: single bytes; 2: split at the first empty line; 3: pieces of 7 bytes."""
    if mode == 0:
        return [sent] if sent else []
    if mode == 2:
        at = sent.find(b"\r\n\r\n") + 4
        return [part for part in (sent[:at], sent[at:]) if part]
    size = 7 if mode == 3 else 1
    return [sent[at : at + size] for at in range(0, len(sent), size)]


async def outcome(chunks: Sequence[bytes], peer: str, settings: Settings = _PUBLIC, *, fast_path: bool) -> Outcome:
    tracker, loop = Recorder(), asyncio.get_running_loop()
    handler = HttpHandler(tracker, LiveSettings(settings))
    server = aiohttp_protocol.Server(handler, ConnectionTable(_SETTINGS, tracker.refused), access_log=None)
    server._kwargs["lingering_time"] = 0  # do not wait for the rest of a body
    transport = MemoryTransport(loop, peer)
    transport.open(FastHttpProtocol(FastHttpServer(handler, server, fast_path=fast_path)))
    await transport.receive(chunks, lambda: (len(tracker.requests), len(tracker.refusals)))
    result = Outcome(tracker.requests, tracker.refusals, bytes(transport.sent), transport.closed)
    transport.abort()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await server.shutdown(0)
    return result


def _exit(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    raise SystemExit(f"unhandled: {context}")


def _open_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_exit)
    return loop


_loop = _open_loop()


def seeds() -> Iterable[bytes]:
    heads = vectors.heads()
    plain = heads[0].partition(b"\r\n")[0]
    lines, query = b"\r\nHost: t\r\n\r\n", plain.partition(b"?")[2]
    forms = b"/announce/k? /announce?passkey=k& /k/announce?passkey=k& /scrape/k? /announce?passkey=k?"
    for form in (forms + b" /announce.php?passkey=k? /k/announce.php? /announce/announce.php?").split():
        yield bytes((_ACCOUNTS,)) + b"GET " + form + query + lines + plain + lines
    for mode in range(8):
        first = bytes((mode,))
        yield first + heads[mode % len(heads)] + heads[-1]
        for lines in (b"", b"Content-Length: 0\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"):
            yield (first + plain + b"\r\nHost: t\r\n" + lines + b"\r\n0\r\n\r\n" + plain + b"\r\nHost: t\r\n\r\n")
        yield (
            first
            + plain
            + b"\r\nHost: t\r\nConnection: close\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.1.1.1\r\n\r\n"
        )
        yield (
            first + plain.replace(b"1.1", b"1.0") + b"\r\nConnection: keep-alive\r\n\r\nGET /health HTTP/1.0\r\n\r\n"
        )
        yield first + b"GET /scrape?info_hash=aaaaaaaaaaaaaaaaaaaa HTTP/1.1\nHost: t\n folded\n\n" + plain
