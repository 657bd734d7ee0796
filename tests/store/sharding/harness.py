"""A store with several shards beside one with a single shard, for the same calls."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from redis.asyncio.cluster import RedisCluster

from loadtest.cluster import Cluster as Nodes
from tests.store.harness import Clock, Store, running
from tracker.bittorrent import InfoHash
from tracker.store.client.cluster import Cluster
from tracker.store.client.connection import connect
from tracker.store.client.url import url_at
from tracker.store.schema.keys import Keys, main_prefix_of
from tracker.store.swarms.rules import SwarmRules

SHARDS = 4


def hash_in(shard: int, number: int = 0) -> InfoHash:
    """An info hash that belongs to a shard of four."""
    return InfoHash(bytes([shard + SHARDS * (number % 8)]) + number.to_bytes(19, "big"))


class ClusterStore(Store):
    """On a real cluster. ``redis`` is a client to all nodes, which finds the one of each key."""

    def __init__(self, url: str, keys: Keys, rules: SwarmRules, client: RedisCluster, shards: int) -> None:
        node = client.get_nodes()[0]
        nodes = Cluster(
            lambda address: connect(url_at(url, address), connect_timeout=20, timeout=20, address=address),
            [(str(node.host), int(node.port))],
        )
        connection = nodes.of(main_prefix_of(keys.prefix, shards))
        super().__init__(url, keys, rules, shards=shards, connection=connection)
        self._client = client

    @property
    def redis(self) -> Any:
        return self._client


@asynccontextmanager
async def on_cluster(url: str, keys: Keys, rules: SwarmRules, shards: int = SHARDS) -> AsyncIterator[Store]:
    client = await RedisCluster.from_url(url.removesuffix("/0")).initialize()
    try:
        async with running(ClusterStore(url, keys, rules, client, shards)) as store:
            yield store
    finally:
        await client.aclose()


def apart(url: str, keys: Keys, rules: SwarmRules) -> Store:
    """Four shards on one server. As on a cluster, each prefix has its own connection, which can be unavailable."""
    server = connect(url, connect_timeout=20, timeout=20)
    nodes = Cluster(lambda address: server, [("", 0)])
    return Store(url, keys, rules, shards=SHARDS, connection=nodes.of(main_prefix_of(keys.prefix, SHARDS)))


def on_several(nodes: Nodes | None, url: str, keys: Keys, rules: SwarmRules) -> AbstractAsyncContextManager[Store]:
    """Four shards on a cluster, or without one on the server at ``url``."""
    if nodes is not None:
        return on_cluster(nodes.url, keys, rules)
    return running(Store(url, keys, rules, shards=SHARDS))


@asynccontextmanager
async def one_and_several(url: str, prefix: str, **rules: Any) -> AsyncIterator[tuple[Store, Store]]:
    """A store with one shard and one with four, with the same clock and rules."""
    clock, given = Clock(), SwarmRules(**rules)
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(running(Store(url, Keys(f"{prefix}one:"), given, clock)))
        several = await stack.enter_async_context(running(Store(url, Keys(f"{prefix}several:"), given, clock, SHARDS)))
        yield one, several
