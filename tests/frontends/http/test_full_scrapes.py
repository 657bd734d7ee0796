"""A full scrape is encoded once for all clients, in parts, and written as fast as each client reads."""

import asyncio
import gc
from functools import cache

from tests.frontends.http.harness import RecordingTracker, on_loops, serving
from tests.raw_http import connect, request
from tracker.bittorrent import Address, InfoHash, Scrape, ScrapeFile, ScrapeReply
from tracker.frontends.http.aiohttp_protocol import Connection
from tracker.frontends.http.handler import HttpHandler
from tracker.settings.model import LiveSettings, Settings
from tracker.wire.http_reply import encode_scrape, encode_scrape_parts

MANY = 100_000


@cache
def long_reply() -> ScrapeReply:
    return ScrapeReply({InfoHash(b"%020d" % (n * 7919 % MANY)): ScrapeFile(n, 1, 2, 3) for n in range(MANY)})


class Everything(RecordingTracker):
    """Answers each full scrape with the same reply."""

    async def scrape(self, scrape: Scrape, passkey: str | None, address: Address) -> ScrapeReply:
        return await super().scrape(scrape, passkey, address) if scrape.info_hashes else long_reply()


async def test_a_full_scrape_is_encoded_once_and_in_parts() -> None:
    handler, turns = HttpHandler(Everything(), LiveSettings(Settings())), 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.Task(count_turns())
    bodies = await asyncio.gather(*(handler._encode_full(long_reply()) for _ in range(50)))
    counting.cancel()
    parts = len(list(encode_scrape_parts(long_reply())))
    assert len({id(body) for body in bodies}) == 1 and bodies[0] == encode_scrape(long_reply())
    assert parts <= turns < 3 * parts, "other tasks run between the parts"
    other = ScrapeReply()
    assert await handler._encode_full(other) == encode_scrape(other)


async def test_an_encoded_full_scrape_is_forgotten_with_its_reply() -> None:
    handler, reply = HttpHandler(Everything(), LiveSettings(Settings())), ScrapeReply()
    await handler._encode_full(reply)
    assert len(handler._full_scrapes) == 1
    del reply
    assert not handler._full_scrapes


@on_loops()
async def test_a_slow_client_buffers_only_a_part_of_a_full_scrape() -> None:
    body = encode_scrape(long_reply())
    assert len(body) > 8_000_000
    async with serving(Everything()) as address, connect(address) as slow, connect(address) as quick:
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        slow.send(request("/scrape?"))
        for _ in range(2):
            assert (await quick.get("/scrape?")).body == body
        connections = [thing for thing in gc.get_objects() if isinstance(thing, Connection)]
        transports = [one.transport for one in connections if one.transport is not None]
        assert len(transports) >= 1 and max(one.get_write_buffer_size() for one in transports) < 300_000
        slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert (await slow.receive()).body == body
