"""Whom the default limits leave alone: crowds behind one address, seedboxes, restless and dual-stack clients. Each with its numbers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.desk import Desk, open_desk
from tests.store.harness import info_hash
from tracker.bittorrent import AnnounceReply
from tracker.settings import Settings

HOST, HOST6 = "11.7.7.7", "2a00:1:2:3::7"


@pytest.fixture
async def desk(redis_url: str, prefix: str) -> AsyncIterator[Desk]:
    async with open_desk(redis_url, prefix, Settings()) as desk:
        yield desk


async def untouched(desk: Desk, *announces: Any) -> list[AnnounceReply]:
    """All of them are answered as usual, and a second later nobody is over a limit."""
    replies = []
    for start in range(0, len(announces), 64):
        replies += await asyncio.gather(*announces[start : start + 64])
    assert all(reply.interval_seconds < 3600 for reply in replies)
    await desk.share_limits()
    assert not desk.limits.strict
    return replies


async def test_hundreds_of_peers_behind_one_address_in_one_torrent(desk: Desk) -> None:
    """400 that start, finish and stop within a minute, as in a lecture; and 400 that stay, each at its interval."""
    for event, left in (("started", 9), ("completed", 0), ("stopped", 0)):
        several = [desk.announce(n, event, address=HOST, bytes_left=left, port=1000 + n) for n in range(300)]
        await untouched(desk, *several)
    desk.store.clock.now += 60
    desk.limits.begin_window()
    for _ in range(3):
        await untouched(desk, *(desk.announce(n, address=HOST, port=1000 + n) for n in range(400)))
        await desk.store.pass_time(1800)
        desk.limits.begin_window()


async def test_a_seedbox_that_starts_a_thousand_torrents_at_once(desk: Desk) -> None:
    """And is restarted within the same minute, with new peer ids, as some clients have them in each torrent."""
    for start in (0, 1000):
        for event in ("started", "stopped"):
            await untouched(
                desk,
                *(
                    desk.announce(start + n, event, address=HOST, info_hash=info_hash(n), bytes_left=0)
                    for n in range(1000)
                ),
            )


async def test_restless_clients(desk: Desk) -> None:
    """Five rounds of started, completed, stopped; and somebody who presses the button every three seconds for a minute."""
    for _ in range(5):
        for event in ("started", "completed", "stopped"):
            await untouched(desk, desk.announce(1, event, address=HOST, bytes_left=0))
    await untouched(desk, desk.announce(2, "started", address=HOST))
    for _ in range(19):
        desk.store.clock.now += 3
        await untouched(desk, desk.announce(2, address=HOST))


async def test_dual_stack_clients_announce_twice_at_a_time(desk: Desk) -> None:
    """200 in one household's /64 that announce over both families at once, hour after hour."""
    for _ in range(4):
        for address in (HOST, HOST6):
            several = [
                desk.announce(n, address=address, port=1000 + n, key=b"key %d" % n) for n in range(200)
            ]
            await untouched(desk, *several)
        await desk.store.pass_time(1800)
        desk.limits.begin_window()


async def test_clients_that_come_again_at_once_after_an_outage(desk: Desk) -> None:
    """1,000 torrents of one client, and 300 clients of one address: each tries three times within seconds."""
    for _ in range(3):
        await untouched(desk, *(desk.announce(1, address=HOST, info_hash=info_hash(n)) for n in range(1000)))
        await untouched(desk, *(desk.announce(n, address="11.8.8.8", port=1000 + n) for n in range(300)))
        desk.store.clock.now += 5
