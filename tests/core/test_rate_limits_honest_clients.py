"""The default limits do not touch many peers behind one address, seedboxes, early or dual-stack clients."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.core.harness import TrackerHarness, open_tracker
from tests.store.harness import info_hash
from tracker.bittorrent import AnnounceReply
from tracker.settings.model import Settings

HOST, HOST6 = "11.7.7.7", "2a00:1:2:3::7"


@pytest.fixture
async def tracker(redis_url: str, prefix: str) -> AsyncIterator[TrackerHarness]:
    async with open_tracker(redis_url, prefix, Settings()) as tracker:
        yield tracker


async def untouched(tracker: TrackerHarness, *announces: Any) -> list[AnnounceReply]:
    """All announces get usual replies, and a second later no source is over a limit."""
    replies = []
    for start in range(0, len(announces), 64):
        replies += await asyncio.gather(*announces[start : start + 64])
    assert all(reply.interval_seconds < 3600 for reply in replies)
    await tracker.share_limits()
    assert not tracker.limits.strict
    return replies


async def test_hundreds_of_peers_behind_one_address_are_not_limited(tracker: TrackerHarness) -> None:
    """300 peers start, complete and stop within a minute, as in a lecture; 400 stay and announce at their interval."""
    for event, left in (("started", 9), ("completed", 0), ("stopped", 0)):
        several = [tracker.announce(n, event, address=HOST, bytes_left=left, port=1000 + n) for n in range(300)]
        await untouched(tracker, *several)
    tracker.store.clock.now += 60
    tracker.limits.begin_window()
    for _ in range(3):
        await untouched(tracker, *(tracker.announce(n, address=HOST, port=1000 + n) for n in range(400)))
        await tracker.store.pass_time(1800)
        tracker.limits.begin_window()


async def test_a_seedbox_that_starts_a_thousand_torrents_is_not_limited(tracker: TrackerHarness) -> None:
    """It restarts within the same minute with new peer ids: some clients have one for each torrent."""
    for start in (0, 1000):
        for event in ("started", "stopped"):
            await untouched(
                tracker,
                *(
                    tracker.announce(start + n, event, address=HOST, info_hash=info_hash(n), bytes_left=0)
                    for n in range(1000)
                ),
            )


async def test_clients_that_announce_early_are_not_limited(tracker: TrackerHarness) -> None:
    """Five rounds of started, completed, stopped; and a manual announce every three seconds for a minute."""
    for _ in range(5):
        for event in ("started", "completed", "stopped"):
            await untouched(tracker, tracker.announce(1, event, address=HOST, bytes_left=0))
    await untouched(tracker, tracker.announce(2, "started", address=HOST))
    for _ in range(19):
        tracker.store.clock.now += 3
        await untouched(tracker, tracker.announce(2, address=HOST))


async def test_dual_stack_clients_are_not_limited(tracker: TrackerHarness) -> None:
    """200 clients in one /64 announce over both families at once, for several intervals."""
    for _ in range(4):
        for address in (HOST, HOST6):
            several = [tracker.announce(n, address=address, port=1000 + n, key=b"key %d" % n) for n in range(200)]
            await untouched(tracker, *several)
        await tracker.store.pass_time(1800)
        tracker.limits.begin_window()


async def test_clients_that_retry_after_an_outage_are_not_limited(tracker: TrackerHarness) -> None:
    """1,000 torrents of one client, and 300 clients of one address: each retries three times within seconds."""
    for _ in range(3):
        await untouched(tracker, *(tracker.announce(1, address=HOST, info_hash=info_hash(n)) for n in range(1000)))
        await untouched(tracker, *(tracker.announce(n, address="11.8.8.8", port=1000 + n) for n in range(300)))
        tracker.store.clock.now += 5
