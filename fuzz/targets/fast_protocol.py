"""Bytes on the port: the door and aiohttp's parser behind it see the same requests as aiohttp alone, and answer the same.

So nobody can have one of them take for part of a request what the other takes for the next one. The first byte says in what
pieces the rest arrives, and whether from a trusted proxy.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_network
from typing import Any, NamedTuple

from fuzz import vectors
from fuzz.wires import Wire
from tracker.bittorrent import Address, Announce, AnnounceReply, Scrape, ScrapeFile, ScrapeReply
from tracker.errors import ClientError
from tracker.frontends import connection
from tracker.frontends.crowd import Crowd
from tracker.frontends.door import Door
from tracker.frontends.doors import Doors
from tracker.frontends.front import FrontEnd
from tracker.settings import AnnounceSettings, HttpSettings

LONGEST = 1500
_PROXY, STRANGER = "10.0.0.1", "11.0.0.1"
_BY_PROXY, _PIECES = 1, 6
_SETTINGS = HttpSettings(trusted_proxies=(ip_network("10.0.0.0/8"),), access_log=False)


class Verdict(NamedTuple):
    """What became of some bytes."""

    asked: list[Any]
    refused: list[str]
    answers: bytes
    closed: bool


class Recorder:
    """Answers everything, and remembers it."""

    waiting = 0

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.labels: list[str] = []

    def refused(self, label: str, kind: str = "other", number: int = 1) -> None:
        self.labels += [f"{kind}: {label}"] * number

    def submit(
        self,
        announce: Announce,
        passkey: str | None,
        address: Address,
        answer: Callable[[AnnounceReply | ClientError], None],
    ) -> bool:
        asyncio.get_running_loop().call_soon(answer, self._announced(announce, passkey, address))
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
        asyncio.get_running_loop().call_soon(answer, self._scraped(scrape, passkey, address))
        return True

    async def announce(self, announce: Announce, passkey: str | None, address: Address) -> AnnounceReply:
        return self._announced(announce, passkey, address)

    async def scrape(self, scrape: Scrape, passkey: str | None, address: Address) -> ScrapeReply:
        return self._scraped(scrape, passkey, address)

    def _announced(self, *asked: Any) -> AnnounceReply:
        self.asked.append(asked)
        return AnnounceReply(1800, 900, seeders=len(self.asked), leechers=0, completions=0)

    def _scraped(self, scrape: Scrape, *asked: Any) -> ScrapeReply:
        self.asked.append((scrape, *asked))
        return ScrapeReply(dict.fromkeys(scrape.info_hashes, ScrapeFile(seeders=len(self.asked))))


def check(data: bytes) -> None:
    mode, sent = data[0] if data else 0, data[1:]
    chunks = _pieces(sent, (mode & _PIECES) >> 1)
    peer = _PROXY if mode & _BY_PROXY else STRANGER
    with_door, without = (
        _loop.run_until_complete(verdict(chunks, peer, ajar=ajar)) for ajar in (True, False)
    )
    assert with_door == without or only_gave_up_later(with_door, without), f"{with_door}\n{without}"


def only_gave_up_later(with_door: Verdict, without: Verdict) -> bool:
    """Of a head that is wrong and then cut off, aiohttp tells so at once, and the door waits for a rest that never comes."""
    told, label = without.answers.removeprefix(with_door.answers), without.refused[-1:]
    return (
        without
        == Verdict(with_door.asked, with_door.refused + label, with_door.answers + told, with_door.closed)
        and label[0].startswith("other: ")
        and told.count(b"HTTP/1.") == 1
    )


def _pieces(sent: bytes, way: int) -> Sequence[bytes]:
    """Whole; byte by byte; in two at the first empty line; in pieces of 7."""
    if way == 0:
        return [sent] if sent else []
    if way == 2:
        at = sent.find(b"\r\n\r\n") + 4
        return [part for part in (sent[:at], sent[at:]) if part]
    size = 7 if way == 3 else 1
    return [sent[at : at + size] for at in range(0, len(sent), size)]


async def verdict(chunks: Sequence[bytes], peer: str, *, ajar: bool) -> Verdict:
    tracker, loop = Recorder(), asyncio.get_running_loop()
    front = FrontEnd(tracker, _SETTINGS, AnnounceSettings(), max_scrape=5)
    server = connection.Server(front.handle, front.rules, Crowd(_SETTINGS, tracker.refused), access_log=None)
    server._kwargs["lingering_time"] = 0  # bodies that never come would be waited for
    wire = Wire(loop, peer)
    wire.open(Door(Doors(front, server, ajar=ajar)))
    await wire.receive(chunks, lambda: (len(tracker.asked), len(tracker.labels)))
    seen = Verdict(tracker.asked, tracker.labels, bytes(wire.sent), wire.closed)
    wire.abort()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await server.shutdown(0)
    return seen


def _complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    raise SystemExit(f"unhandled: {context}")


def _open_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_complain)
    return loop


_loop = _open_loop()


def seeds() -> Iterable[bytes]:
    heads = vectors.heads()
    plain = heads[0].partition(b"\r\n")[0]
    for mode in range(8):
        first = bytes((mode,))
        yield first + heads[mode % len(heads)] + heads[-1]
        for lines in (
            b"",
            b"Content-Length: 0\r\n",
            b"Content-Length: 5\r\n",
            b"Transfer-Encoding: chunked\r\n",
        ):
            yield (
                first + plain + b"\r\nHost: t\r\n" + lines + b"\r\n0\r\n\r\n" + plain + b"\r\nHost: t\r\n\r\n"
            )
        yield (
            first
            + plain
            + b"\r\nHost: t\r\nConnection: close\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.1.1.1\r\n\r\n"
        )
        yield (
            first
            + plain.replace(b"1.1", b"1.0")
            + b"\r\nConnection: keep-alive\r\n\r\nGET /health HTTP/1.0\r\n\r\n"
        )
        yield first + b"GET /scrape?info_hash=aaaaaaaaaaaaaaaaaaaa HTTP/1.1\nHost: t\n folded\n\n" + plain
