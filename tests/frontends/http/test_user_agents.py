"""The User-Agent header of an announce is kept where a setting asks for it, on both protocols of the port."""

import pytest

from tests.frontends.http.harness import ANNOUNCE, RecordingTracker, on_loops, talking
from tracker.bittorrent import AnnounceWithAgent

AIOHTTP = "Content-Length: 0"
"""A header that makes aiohttp answer the request."""


@pytest.mark.parametrize("more", [(), (AIOHTTP,)], ids=["fast protocol", "aiohttp"])
@pytest.mark.parametrize(
    ("sent", "kept"), [("qBittorrent/5.0.2", b"qBittorrent/5.0.2"), ("x" * 80, b"x" * 64), ("a\tb", b"ab")]
)
@on_loops("asyncio")
async def test_up_to_64_characters_are_kept(sent: str, kept: bytes, more: tuple[str, ...]) -> None:
    tracker = RecordingTracker()
    async with talking(tracker, keep_user_agents=True) as client:
        for _ in range(2):  # the second head comes from a cache
            await client.get(ANNOUNCE, f"User-Agent: {sent}", *more)
        await client.get(ANNOUNCE, *more)
    first, second, without = (announce for announce, _, _ in tracker.announces)
    for announce in (first, second):
        assert isinstance(announce, AnnounceWithAgent) and announce.user_agent == kept
    assert not isinstance(without, AnnounceWithAgent)


@pytest.mark.parametrize("more", [(), (AIOHTTP,)], ids=["fast protocol", "aiohttp"])
@on_loops("asyncio")
async def test_none_is_kept_by_default(more: tuple[str, ...]) -> None:
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        await client.get(ANNOUNCE, "User-Agent: qBittorrent/5.0.2", *more)
    ((announce, _, _),) = tracker.announces
    assert not isinstance(announce, AnnounceWithAgent)
