"""Joins whose reply was lost count once (rows B8 and T20)."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from loadtest import trackers
from loadtest.servers import Server
from tests import commands
from tests.store.client.proxy import Proxy
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, START, Store, endpoint, info_hash, one_shard, peer_id, update
from tests.waiting import in_background, until
from tracker.bittorrent import Address, InfoHash, PeerId
from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection, connect
from tracker.store.swarms.announce_counts import AnnounceCounts
from tracker.store.swarms.codec import PeerUpdate, pack, pack_join_query
from tracker.store.swarms.reaping import Reaping
from tracker.store.swarms.swarms import AllSwarms
from tracker.store.swarms.unanswered import Unanswered

Join = tuple[InfoHash, PeerId, Address]
Lossy = tuple[AllSwarms, Proxy, "asyncio.Queue[Join]"]


def join_of(peer: int, torrent: int = 1) -> Join:
    return info_hash(torrent), peer_id(peer), Address(endpoint(peer)[:-2])


@asynccontextmanager
async def lossy(store: Store, server: Server) -> AsyncIterator[Lossy]:
    """Swarms that can lose replies, and the joins that they report late."""
    async with Proxy(server) as proxy:
        connection = Connection(connect(proxy.url, connect_timeout=1, timeout=1))
        late: asyncio.Queue[Join] = asyncio.Queue()
        shards = one_shard(connection, store.keys.prefix)
        reapings = {shard: Reaping(shard, shards, store.rules, store.clock) for shard in shards}
        swarms = AllSwarms(shards, reapings, store.rules, AnnounceCounts(shards), store.clock, store.user_copies.bring)
        try:
            async with in_background(swarms.run(lambda *join: late.put_nowait(join)), connection.watch()):
                yield swarms, proxy, late
        finally:
            await connection.close()


async def lose(swarms: AllSwarms, proxy: Proxy, *updates: PeerUpdate) -> None:
    """The store applies these announces in one call; the reply never arrives."""
    proxy.swallow_answers()
    results = await asyncio.gather(*map(swarms.announce, updates), return_exceptions=True)
    assert all(isinstance(result, StoreUnavailable) for result in results), results


async def warm(swarms: AllSwarms) -> None:
    """Loads the script, so that the next reply is an announce's."""
    await swarms.announce(update(99, "s", torrent=9))


async def next_late(late: "asyncio.Queue[Join]") -> Join:
    async with asyncio.timeout(20):
        return await late.get()


async def test_a_join_whose_reply_was_lost_is_reported_once(store: Store, any_server: Server) -> None:
    """Whether or not its client returns before that. Updates and stops are no joins."""
    async with lossy(store, any_server) as (swarms, proxy, late):
        await warm(swarms)
        for peer in (3, 4):
            await swarms.announce(update(peer, "s"))
        store.clock.now += 1800
        await lose(swarms, proxy, update(3), update(1, "s"), update(4, "x"), update(2, "s"))
        assert (await store.announce(update(1, "s"))).outcome == "update"
        assert {await next_late(late), await next_late(late)} == {join_of(1), join_of(2)}
        store.clock.now += 1
        await lose(swarms, proxy, update(1), update(5, "s"))
        assert await next_late(late) == join_of(5)
        assert late.empty()


async def test_an_announce_that_was_never_applied_is_no_join(store: Store, any_server: Server) -> None:
    """A refused announce, and one whose call never reached the store: its retry is the join."""
    async with lossy(store, any_server) as (swarms, proxy, late):
        await warm(swarms)
        await store.torrents.deny(info_hash(1), "no")
        for torrent in (2, 3):  # a new torrent's announces are sent again once it is registered
            await store.torrents.add(info_hash(torrent))
        await lose(swarms, proxy, update(1, "s"), update(1, "s", torrent=2))
        assert await next_late(late) == join_of(1, torrent=2)
        swarms.of(info_hash(3))._unanswered.add([pack(update(7, "s", torrent=3))], START)
        store.clock.now += 60
        assert (await store.announce(update(7, "s", torrent=3))).outcome == "join"
        await lose(swarms, proxy, update(8, "s", torrent=3))
        assert await next_late(late) == join_of(8, torrent=3)
        assert late.empty()


async def test_a_remembered_peer_that_joins_again_is_reported(make_store: MakeStore, any_server: Server) -> None:
    """Its first announce was long ago; the time of its last join is kept too."""
    store = await make_store(accounts="required", peer_memory=3600)
    await store.users.add("7", ALICE)
    async with lossy(store, any_server) as (swarms, proxy, late):
        for event in ("s", "x"):
            await swarms.announce(update(1, event, passkey=ALICE))
        store.clock.now += 60
        await lose(swarms, proxy, update(1, "s", passkey=ALICE))
        assert await next_late(late) == join_of(1)
        store.clock.now += 60
        await lose(swarms, proxy, update(1, passkey=ALICE), update(2, "s", passkey=ALICE))
        assert await next_late(late) == join_of(2)
        assert late.empty()


async def test_a_join_query_changes_nothing(store: Store) -> None:
    """Neither after an applied announce nor for an unknown torrent."""
    await store.announce(update(1, "s"))
    before = await store.dump()
    queries = [pack_join_query(pack(update(peer, "s", torrent=peer)), START) for peer in (1, 2)]
    await store.swarms.of(info_hash(1))._query(queries)
    assert await store.dump() == before


async def test_the_number_of_remembered_joins_is_bounded() -> None:
    asked: list[list[bytes]] = []
    done = asyncio.Event()

    async def ask(queries: list[bytes]) -> list[Any]:
        asked.append(queries)
        done.set()
        return [[1, b"unknown torrent", b""] for _ in queries]

    lost = Unanswered(ask, _at_once, max_remembered=3)
    lost.add([pack(update(peer, "s")) for peer in range(10)], START)
    task = asyncio.Task(lost.run(lambda *_: None))
    async with asyncio.timeout(20):
        await done.wait()
    task.cancel()
    assert asked == [[pack_join_query(pack(update(peer, "s")), START) for peer in (7, 8, 9)]]


async def _at_once() -> None:
    return


def test_a_join_counts_when_the_store_was_suspended(start_server: Callable[..., Server], tmp_path: Path) -> None:
    """As unique user, as new user and as join: with and without a retry of the client."""
    server = start_server()
    settings = {"TRACKER_REDIS__URL": server.url, "TRACKER_REDIS__TIMEOUT_SECONDS": "1"}
    tracker = trackers.start(tmp_path, **settings)
    try:
        tracker.announce(info_hash="%02" * 20)  # loads the script
        torrent = "01" * 20
        assert commands.run(tmp_path, "torrent", "add", torrent, **settings).returncode == 0
        with server.client() as client:
            os.kill(server.pid, signal.SIGSTOP)
            try:
                assert b"failure reason" in tracker.announce()
            finally:
                os.kill(server.pid, signal.SIGCONT)
            until(lambda: client.hget(f"t:t:{torrent}", "new") == b"1")
            assert client.get(f"t:torrents.{torrent}.users") == b"1"
            until(lambda: client.hvals("t:count:86400:joins") == [b"2"])
            assert b"peers" in tracker.announce()
            assert client.hvals("t:count:86400:joins") == [b"2"]
            tracker.end()
            assert client.hget(f"t:t:{torrent}", "announces") == b"2"
    finally:
        tracker.end()
