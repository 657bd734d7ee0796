"""Shards on a cluster of three: calls to several shards are grouped by node."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest
from pydantic import SecretStr

from loadtest.cluster import Cluster, cluster
from tests.store.harness import ALICE, BOB
from tests.waiting import eventually
from tracker.bittorrent import InfoHash
from tracker.errors import StoreUnavailable
from tracker.runtime.store import build_store, open_connection
from tracker.settings.model import RedisSettings, Settings
from tracker.store.changes.changes import FIRST
from tracker.store.sharding.shards import Shard
from tracker.store.store import Store
from tracker.store.torrents.listing import TorrentFilter
from tracker.system.event_loop import running

SHARDS = 64
TIMEOUT = 8.0
IDS = [str(number) for number in range(256, 264)]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(options=("--appendonly", "no", "--notify-keyspace-events", "Kx")) as nodes:
        yield nodes


@pytest.fixture
async def store(nodes: Cluster, prefix: str) -> AsyncIterator[Store]:
    """64 shards on three nodes, each of which has been asked."""
    redis = RedisSettings(url=SecretStr(nodes.url), prefix=prefix, shards=SHARDS)
    async with open_connection(nodes.url, redis, TIMEOUT) as (connection, _):
        store = build_store(connection, Settings(redis=redis))
        async with running(connection.watch, store.swarms.run):
            await store.shards.each(lambda shard: ("GET", shard.keys.heartbeat()))
            yield store


async def reads(nodes: Cluster, work: Callable[[], Awaitable[object]]) -> list[int]:
    """How often each node had to read from its sockets for ``work``."""

    def counts() -> list[int]:
        return [int(client.info("stats")["total_reads_processed"]) for client in clients]

    clients = [node.client() for node in nodes.nodes]
    before = counts()
    await work()
    after = counts()
    for client in clients:
        client.close()
    return [last - first - 1 for first, last in zip(before, after, strict=True)]  # 1: INFO


async def test_commands_of_all_shards_are_one_write_for_each_node(nodes: Cluster, store: Store) -> None:
    asked = await reads(nodes, lambda: store.shards.each(lambda shard: ("GET", shard.keys.heartbeat())))
    assert asked == [1, 1, 1]


UNSEEDED_PRIVATE = TorrentFilter(private=True, seeded=False)


def hash_of(number: int) -> InfoHash:
    return InfoHash(bytes([number]) + bytes(19))


READS: dict[str, tuple[int, Callable[[Store], Awaitable[object]]]] = {
    "figures of a user": (4, lambda store: store.users.get(ALICE)),  # three of them under the main prefix
    "sizes of a user's sets": (1, lambda store: store.users.set_sizes("7")),
    "a page of a user's torrents": (2, lambda store: store.users.torrents_page("7", "active")),
    "first torrents of a user": (1, lambda store: store.users.first_torrents("7", "active", 500)),
    "rows of users": (3, lambda store: store.site_rows.users(["7", "8", "9"])),
    "accounts of a user": (3, lambda store: store.users.on_torrents("7", IDS)),
    "peers of a user": (4, lambda store: store.user_peers.of("7")),
    "tokens of a user": (1, lambda store: store.freeleech.page("7")),
    "pending ones of a user": (3, lambda store: store.hit_and_runs.pending_of("7", IDS)),
    "newest changes": (1, lambda store: store.changes.newest(1000)),
    "changes": (3, lambda store: store.changes.after(FIRST, 100)),
    "totals": (2, lambda store: store.counters.totals()),
    "lag of scores": (1, lambda store: store.scores.lag()),
    "waiting values": (2, lambda store: store.outbox.waiting()),
    "denials": (2, lambda store: store.torrents.denials()),
    "torrents": (1, lambda store: store.torrents.get_all([hash_of(n) for n in range(128)])),
    "torrents by id": (2, lambda store: store.torrents.by_ids(IDS * 16)),
    "a ranking": (3, lambda store: store.torrents.top("seeders", 100)),
    "a search": (4, lambda store: store.torrents.search("nothing")),
    "a filtered list": (4, lambda store: store.torrent_listing.filtered(TorrentFilter(private=False))),
    "a list by two properties": (3, lambda store: store.torrent_listing.filtered(UNSEEDED_PRIVATE)),
    "months of unique users": (3, lambda store: store.unique_users.with_users(["2026-10", "2026-11"])),
}


@pytest.mark.parametrize("name", READS)
async def test_a_read_of_all_shards_takes_few_writes(nodes: Cluster, store: Store, name: str) -> None:
    """S10: of many shards no more than of few."""
    for user_id, passkey in (("7", ALICE), ("8", BOB), ("9", "c" * 20)):
        await store.users.add(user_id, passkey)
    added = [(hash_of(n), {"name": f"name {n}", "private": "0"}) for n in range(128)]
    await store.torrents.add_many(added)
    for info_hash, _ in added:
        await store.torrents.deny(info_hash, "spam")
    await store.torrent_listing.rank(all_of_them=True)
    max_writes, read = READS[name]
    await read(store)  # loads the scripts
    assert max(await reads(nodes, lambda: read(store))) <= max_writes


async def test_a_script_that_servers_have_lost_is_loaded_again(nodes: Cluster, store: Store) -> None:
    for node in nodes.nodes:
        node.ask("SCRIPT", "FLUSH")
    found = await store.shards.run(
        lambda shard: shard.scripts.count_before,
        {shard: ["i:seeders", 0, 0, shard.number] for shard in list(store.shards)[:7]},
    )
    assert found == dict.fromkeys(list(store.shards)[:7], 0)


async def test_calls_of_all_shards_share_writes(nodes: Cluster, store: Store) -> None:
    await store.shards.gather(lambda shard: store.reapings[shard].heartbeat())  # loads the script
    asked = await reads(nodes, lambda: store.shards.gather(lambda shard: store.reapings[shard].heartbeat()))
    assert asked == [2, 2, 2], "a heartbeat first asks whether the store takes writes"


async def test_a_command_for_a_shard_that_has_moved_is_repeated(nodes: Cluster, store: Store) -> None:
    """The others of its call are executed once."""
    moved = store.shards[5]
    target = next(node for node in nodes.nodes if node is not nodes.primary(moved.keys.prefix))
    nodes.move(moved.keys.prefix, target)
    found = await store.shards.each(lambda shard: ("INCR", f"{shard.keys.prefix}n"))
    assert found == dict.fromkeys(store.shards, 1)
    asked = await reads(nodes, lambda: store.shards.each(lambda shard: ("INCR", f"{shard.keys.prefix}n")))
    assert asked == [1, 1, 1]


async def test_subscribers_of_all_shards_share_a_socket_on_each_node(nodes: Cluster, store: Store) -> None:
    """Also after a slot has moved: its events come from the other node then."""
    listening: set[int] = set()
    expired: set[int] = set()

    async def listen(shard: Shard) -> None:
        channel = shard.connection.keyspace_channel(shard.keys.prefix)
        while True:
            with suppress(StoreUnavailable):
                async with shard.connection.subscription(patterns=[f"{channel}*"]) as messages:
                    listening.add(shard.number)
                    async for name, event in messages:
                        if event == b"expired":
                            assert name == f"{channel}soon".encode()
                            expired.add(shard.number)
            listening.discard(shard.number)

    async def expire_in_all() -> None:
        expired.clear()
        await store.shards.each(lambda shard: ("SET", f"{shard.keys.prefix}soon", "", "PX", 1))
        await eventually(lambda: len(expired) == SHARDS)

    async with running(*(partial(listen, shard) for shard in store.shards)):
        await eventually(lambda: len(listening) == SHARDS)
        await expire_in_all()
        moved = store.shards[6]
        target = next(node for node in nodes.nodes if node is not nodes.primary(moved.keys.prefix))
        await asyncio.to_thread(nodes.move, moved.keys.prefix, target)
        await moved.connection.command("GET", moved.keys.heartbeat())  # is answered by MOVED
        await eventually(lambda: len(listening) == SHARDS)
        await expire_in_all()
        for node in nodes.nodes:
            with node.client() as client:
                assert len(client.client_list("pubsub")) == 1
