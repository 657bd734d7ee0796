"""A tracker process posts its changes to a site, and goes on after it was killed."""

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from loadtest.trackers import RunningTracker
from tests.e2e.conftest import StartTracker
from tests.waiting import eventually
from tests.workers.test_webhooks import SECRET, serving


async def join(tracker: RunningTracker, numbers: Iterator[int], count: int) -> list[str]:
    """So many peers join. Returns their peer ids in hexadecimal digits."""
    ids = [b"-TR4000-%012d" % next(numbers) for _ in range(count)]
    for peer_id in ids:
        port = str(7000 + int(peer_id[8:]))
        await asyncio.to_thread(tracker.announce, peer_id=peer_id.decode(), port=port)
    return [peer_id.hex() for peer_id in ids]


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_killed_tracker_goes_on_where_it_was(start_tracker: StartTracker) -> None:
    numbers = itertools.count()
    async with serving() as receiver:

        async def start() -> RunningTracker:
            return await asyncio.to_thread(
                start_tracker,
                TRACKER_CHANGES__MAX_ENTRIES="1000",
                TRACKER_CHANGES__WEBHOOK_URLS=receiver.url,
                TRACKER_CHANGES__WEBHOOK_SECRET=SECRET,
                TRACKER_LIMITS__ENABLED="false",
            )

        wanted: list[str] = []

        def peers() -> list[str]:
            return list(dict.fromkeys(change["peer_id"] for change in receiver.accepted))

        def are_delivered() -> bool:
            return peers() == wanted

        tracker = await start()
        wanted += await join(tracker, numbers, 3)
        await eventually(are_delivered)  # a new URL starts with the next change
        for _ in range(2):
            receiver.status = 503
            wanted += await join(tracker, numbers, 5)
            await asyncio.to_thread(tracker.kill)
            receiver.status = 200
            tracker = await start()
            wanted += await join(tracker, numbers, 2)
            await eventually(are_delivered, seconds=120)
        assert not any(receiver.gaps)
        assert SECRET not in tracker.log and "hunter2" not in tracker.log
