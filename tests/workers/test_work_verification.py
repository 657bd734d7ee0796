"""libtorrent seeds a claimed torrent, and the job verifies it (row W23). The test moves the clock of the tracker."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

import libtorrent as lt

from loadtest.servers import free_port
from tests.core.harness import TrackerHarness, open_tracker
from tests.e2e.peers import Peer, Share
from tests.store.harness import ALICE, BOB, Store
from tests.store.work.harness import check_work, claim_of, claimed, project, text
from tests.store.work.volunteers import INTERVAL, wait
from tests.waiting import eventually
from tracker.bittorrent import InfoHash
from tracker.frontends.http.server import serve_http
from tracker.settings.model import LiveSettings, Settings
from tracker.store.work.records import NewItem

pytestmark = pytest.mark.slow
Announced = Callable[[], Awaitable[None]]


@asynccontextmanager
async def tracking(url: str, prefix: str, listen: str) -> AsyncIterator[TrackerHarness]:
    """A private tracker with users 7 and 8, without a server for announces."""
    settings = Settings.model_validate({"users": {"private": "required"}, "http": {"listen": [listen]}})
    async with open_tracker(url, prefix, settings) as tracker:
        await tracker.store.pass_time(0)
        await tracker.store.users.add("7", ALICE)
        await tracker.store.users.add("8", BOB)
        yield tracker


def serving(tracker: TrackerHarness, listen: str) -> AbstractAsyncContextManager[tuple[str, ...]]:
    settings = Settings.model_validate({"users": {"private": "required"}, "http": {"listen": [listen]}})
    return serve_http(tracker.decisions, LiveSettings(settings))


async def claimed_share(store: Store, folder: Path) -> Share:
    """A torrent in a project that asks for two hours; user 7 has claimed it."""
    share = await asyncio.to_thread(Share.make, folder, private=True, size=300_000)
    info_hash = InfoHash(share.info_hash)
    await store.torrents.add(info_hash)
    await project(store, kind="seeding", verify="announce", keep_done_days=1, seed_hours=2)
    await store.work.items.add("proj", [NewItem(info_hash.hex())])
    await claimed(store, "7")
    return share


@asynccontextmanager
async def seeding(store: Store, torrent: Path, folder: Path, user: str = "7") -> AsyncIterator[Announced]:
    """libtorrent seeds until the block ends. The function that it yields announces, and waits for the reply."""

    async def announces() -> int:
        await store.announce_counts.flush()
        return (await store.users.find(user)).announces

    async def announce() -> None:
        before = await announces()
        peer.handle.force_reannounce(0, -1, lt.reannounce_flags_t.ignore_min_interval)
        await eventually(lambda: _more(before))

    async def _more(before: int) -> bool:
        return await announces() > before

    before = await announces()
    peer = await asyncio.to_thread(Peer, torrent, folder)
    try:
        await eventually(lambda: _more(before))
        yield announce
    finally:
        await asyncio.to_thread(peer.__exit__, None, None, None)


async def seeded(store: Store, announce: Announced, intervals: int) -> None:
    for _ in range(intervals):
        await wait(store, INTERVAL)
        await announce()
    await wait(store, 60)


async def logged(store: Store) -> list[dict[str, str]]:
    return [text(row) for _, row in await store.redis.xrange(store.keys.work_log("proj"))]


async def test_libtorrent_is_verified_over_a_restart_and_an_outage(redis_url: str, prefix: str, tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    async with tracking(redis_url, prefix, listen) as tracker, AsyncExitStack() as restarted:
        store = tracker.store
        share = await claimed_share(store, tmp_path / "source")
        torrent = share.torrent(f"http://{listen}/{ALICE}/announce")
        async with serving(tracker, listen):
            async with seeding(store, torrent, share.folder) as announce:
                await seeded(store, announce, 1)
            await wait(store, INTERVAL)
            assert await logged(store) == []
            announce = await restarted.enter_async_context(seeding(store, torrent, share.folder))
            await seeded(store, announce, 1)
        store.clock.now += 100_000  # the tracker is down
        async with serving(tracker, listen):
            await announce()
            await seeded(store, announce, 1)
            assert await logged(store) == []
            await seeded(store, announce, 1)
            await restarted.aclose()
        [entry] = await logged(store)
        assert (entry["by"], entry["late"]) == ("7", "0")
        assert int(entry["seconds"]) >= 7200
        assert (await check_work(store)).done == 1


@pytest.mark.long
async def test_libtorrent_of_another_user_or_without_a_passkey_is_not_counted(
    redis_url: str, prefix: str, tmp_path: Path
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    async with tracking(redis_url, prefix, listen) as tracker:
        store = tracker.store
        share = await claimed_share(store, tmp_path / "source")
        async with serving(tracker, listen):
            anonymous = share.torrent(f"http://{listen}/announce")
            peer = await asyncio.to_thread(Peer, anonymous, share.folder)
            await asyncio.to_thread(peer.until, "tracker_error")
            other = share.torrent(f"http://{listen}/{BOB}/announce")
            async with seeding(store, other, share.folder, "8") as announce:
                await seeded(store, announce, 6)
            await asyncio.to_thread(peer.__exit__, None, None, None)
        assert await logged(store) == []
        claim = await claim_of(store, "proj", "7", share.info_hash.hex())
        assert claim is not None and claim.state == "claimed"
