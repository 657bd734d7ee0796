"""A store on a cluster of three primaries: slots that move, nodes that fail, and a map that is out of date."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count

import pytest
from pydantic import SecretStr
from redis.crc import key_slot

from loadtest.cluster import Cluster as Servers
from loadtest.cluster import Node, cluster
from loadtest.servers import OPENSSL, SYSTEM_REDIS
from tests.store.fakes import answering
from tests.store.harness import update
from tests.waiting import eventually, until
from tracker.errors import StartupError, StoreUnavailable
from tracker.runtime.store import build_store, open_connection
from tracker.settings.model import RedisSettings, Settings
from tracker.store.client.cluster import Cluster, slot_of
from tracker.store.client.connection import Connection, connect
from tracker.store.client.url import Address, url_at
from tracker.store.schema.keys import shard_prefixes
from tracker.store.store import Store
from tracker.system.event_loop import running

PATIENCE_SECONDS = 60.0
TIMEOUT = 8.0


@pytest.fixture(scope="module")
def group() -> Iterator[Servers]:
    """Nodes that no test stops. Each test has a slot of its own."""
    with cluster() as group:
        yield group


def redis_settings(url: str, prefix: str, **changes: object) -> RedisSettings:
    values = {"url": SecretStr(url), "prefix": prefix, "connect_timeout_seconds": TIMEOUT, **changes}
    return RedisSettings.model_validate(values)


@asynccontextmanager
async def store_at(url: str, prefix: str, timeout: float = TIMEOUT, **changes: object) -> AsyncIterator[Store]:
    """A store as a tracker opens it."""
    redis = redis_settings(url, prefix, **changes)
    async with open_connection(url, redis, timeout) as (connection, _):
        store = build_store(connection, Settings(redis=redis))
        async with running(connection.watch, connection.topology.follow, store.swarms.run):
            yield store


@asynccontextmanager
async def connected(prefix: str, *urls: str) -> AsyncIterator[Connection]:
    """A connection that knows these nodes and has read no map; its watch does not run."""
    addresses = [address_in(url) for url in urls]
    nodes = Cluster(
        lambda address: connect(
            url_at("redis://127.0.0.1:1/0", address), connect_timeout=TIMEOUT, timeout=TIMEOUT, address=address
        ),
        addresses,
    )
    try:
        yield nodes.of(prefix)
    finally:
        await nodes.close()


def address_in(url: str) -> Address:
    host, _, port = url.removeprefix("redis://").removesuffix("/0").rpartition(":")
    return host, int(port)


async def announced(store: Store, peer: int) -> int:
    """Announces until it succeeds; returns how often the store was unavailable. Any other failure fails the test."""
    refused = -1

    async def is_answered() -> bool:
        nonlocal refused
        refused += 1
        await store.swarms.announce(update(peer, "s"))
        return True

    await eventually(is_answered, PATIENCE_SECONDS, ignored=(StoreUnavailable,))
    return refused


async def leechers(store: Store) -> int:
    info_hash = update(1).info_hash
    counts = await store.swarms.scrape([info_hash])
    assert isinstance(counts, dict)
    return counts[info_hash].leechers


def others(group: Servers, prefix: str) -> list[Node]:
    serving = group.primary(prefix)
    return [node for node in group.nodes if node is not serving]


@pytest.mark.parametrize(
    ("prefix", "tag"),
    [("t:{07}:", "07"), ("{a}:", "a"), ("{a}{b}:", "a"), ("t:{{a}:", "{a"), ("t:", ""), ("t:{}:", ""), ("t:}a{:", "")],
)
def test_the_hash_tag_decides_the_slot(prefix: str, tag: str) -> None:
    assert slot_of(prefix) == (key_slot(tag.encode()) if tag else None)


async def test_the_node_that_serves_the_slot_is_found_from_any_other(group: Servers) -> None:
    prefix = "t:{any}:"
    serving = group.primary(prefix)
    for node in group.nodes:
        async with store_at(node.tcp_url, prefix) as store:
            assert await announced(store, group.nodes.index(node) + 1) == 0
            assert store.connection.master == f"127.0.0.1:{serving.port}"
            assert {port for _, port in store.connection.topology.nodes} == {each.port for each in group.nodes}
    assert serving.ask("EXISTS", f"{prefix}stats:leechers")


async def test_moved_is_followed_by_each_kind_of_call(group: Servers) -> None:
    """Nothing was executed by the node that answers MOVED, so the call is repeated, and no caller notices."""
    prefix = "t:{kinds}:"
    unavailable = others(group, prefix)[0]
    increment = ("INCR", f"{prefix}n")
    for call in (
        lambda connection: connection.command(*increment),
        lambda connection: connection.direct(*increment),
        lambda connection: connection.pipeline(increment, ("GET", f"{prefix}n")),
    ):
        async with connected(prefix, unavailable.tcp_url) as connection:
            await call(connection)  # type: ignore[no-untyped-call]  # a lambda
            assert connection.master == f"127.0.0.1:{group.primary(prefix).port}"
    assert group.primary(prefix).ask("GET", f"{prefix}n") == b"3"


async def test_a_command_without_a_key_reaches_the_node_of_its_prefix_at_once(group: Servers) -> None:
    """No node answers MOVED to SCAN, INFO or CONFIG: another one would answer for itself."""
    prefixes = shard_prefixes("t:", 8)
    places = [group.primary(prefix) for prefix in prefixes]
    assert len({node.port for node in places}) == 3
    for prefix, node in zip(prefixes, places, strict=True):
        node.ask("SET", f"{prefix}unasked", "")
    redis = redis_settings(group.url, "t:", shards=8)
    async with open_connection(group.url, redis, TIMEOUT) as (connection, _):
        for prefix in prefixes:
            _, found = await connection.topology.of(prefix).command("SCAN", 0, "MATCH", f"{prefix}*", "COUNT", 10_000)
            assert f"{prefix}unasked".encode() in found


async def test_announces_follow_a_moved_slot(group: Servers) -> None:
    prefix = "t:{moves}:"
    target = others(group, prefix)[0]
    async with store_at(group.url, prefix) as store:
        await announced(store, 1)
        await asyncio.to_thread(group.move, prefix, target)
        assert await announced(store, 2) == 0
        assert store.connection.master == f"127.0.0.1:{target.port}"
        assert await leechers(store) == 2


async def test_expiry_events_come_from_the_node_that_serves_the_slot(group: Servers) -> None:
    """The subscription ends with the move, because the other node sends no more events of the slot."""
    prefix = "t:{events}:"
    target = others(group, prefix)[0]
    async with store_at(group.url, prefix) as store:
        connection, channel = store.connection, store.connection.keyspace_channel(prefix)
        with pytest.raises(StoreUnavailable):  # noqa: PT012  # what breaks is the listening
            async with connection.subscription(patterns=[f"{channel}*"]) as messages:
                await asyncio.to_thread(group.move, prefix, target)
                await connection.command("SET", f"{prefix}a", "")
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await anext(messages)
        async with connection.subscription(patterns=[f"{channel}*"]) as messages:
            await connection.command("SET", f"{prefix}b", "", "PX", 1)
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await anext(messages) == (f"{channel}b".encode(), b"expired")


async def test_a_slot_that_moves_key_by_key_is_unavailable_and_nothing_is_torn(group: Servers) -> None:
    """Its node answers ASK: whether the undeclared keys of a script have moved cannot be known."""
    prefix = "t:{asks}:"
    target = others(group, prefix)[0]
    loop, refusals = asyncio.get_running_loop(), 0
    async with store_at(group.url, prefix) as store:
        for peer in range(1, 100):  # more keys than one step moves
            await announced(store, peer)

        def between() -> None:
            nonlocal refusals
            with pytest.raises(StoreUnavailable):
                asyncio.run_coroutine_threadsafe(store.swarms.announce(update(100, "s")), loop).result()
            assert store.connection.unavailable
            refusals += 1

        await asyncio.to_thread(group.move_key_by_key, prefix, target, between)
        assert refusals > 1
        await announced(store, 100)
        assert await leechers(store) == 100
        assert store.connection.master == f"127.0.0.1:{target.port}"


async def test_prefixes_on_one_node_share_its_pipe(group: Servers) -> None:
    async with store_at(group.url, "t:{h}:") as store:
        prefixes = shard_prefixes("t:", 16)
        connections = [store.connection.topology.of(prefix) for prefix in prefixes]
        for connection, prefix in zip(connections, prefixes, strict=True):
            await connection.direct("GET", f"{prefix}k")
        assert len({connection.master for connection in connections}) == 3
        pipes = {connection.server.announces.socket for connection in connections}
        assert len(pipes) == 3
        assert all(pipe is not None and pipe.gathers for pipe in pipes)
        assert store.connection.topology.of(prefixes[0]) is connections[0]


async def test_a_lost_node_is_lost_for_its_prefixes_only() -> None:
    """For all of them, also those that sent nothing; the others are served meanwhile."""
    with cluster() as group:
        lost = group.primary("t:{h}:")
        async with store_at(others(group, "t:{h}:")[0].tcp_url, "t:{h}:") as store:
            home = store.connection
            connections = {each: home.topology.of(each) for each in shard_prefixes("t:", 16)}
            at_lost = {each for each in connections if group.primary(each) is lost}
            assert 0 < len(at_lost) < 16
            for prefix, connection in connections.items():
                await connection.direct("SET", f"{prefix}k", "1")
            lost.kill()
            with pytest.raises(StoreUnavailable):
                await home.command("GET", "t:{h}:k")
            assert {each for each in connections if connections[each].unavailable} == at_lost
            for prefix in connections.keys() - at_lost:
                assert await connections[prefix].direct("GET", f"{prefix}k") == b"1"
            lost.start()
            async with asyncio.timeout(PATIENCE_SECONDS):
                for connection in (home, *connections.values()):
                    await connection.until_available()
            for prefix, connection in connections.items():
                await eventually(
                    partial(connection.direct, "SET", f"{prefix}k", "2"),
                    PATIENCE_SECONDS,
                    ignored=(StoreUnavailable,),  # a node that has restarted answers CLUSTERDOWN for a while
                )


@pytest.mark.long
@pytest.mark.parametrize("kind", ["at once", "key by key"])
async def test_no_torrent_is_torn_by_a_migration_under_announces(group: Servers, kind: str) -> None:
    """Each join that was answered is in the swarm, and each that was refused is there once or not at all."""
    prefix = f"t:{{torn-{kind.replace(' ', '-')}}}:"
    targets = others(group, prefix)
    torrents, answered, stop = 50, set(), asyncio.Event()
    async with store_at(group.url, prefix) as store:

        async def join(first: int) -> None:
            for peer in count(first, 4):
                if stop.is_set():
                    return
                torrent = peer % torrents + 1
                with suppress(StoreUnavailable):
                    await store.swarms.announce(update(peer, "s", torrent))
                    answered.add((torrent, peer))
                await asyncio.sleep(0)  # a refusal need not wait for anything, and others must go on

        async with asyncio.TaskGroup() as tasks:
            for first in range(4):
                tasks.create_task(join(first + 1))
            await eventually(lambda: len(answered) > 1000, PATIENCE_SECONDS)
            move = group.move if kind == "at once" else group.move_key_by_key
            await asyncio.to_thread(move, prefix, targets[0])
            await asyncio.to_thread(move, prefix, targets[1])
            done = len(answered)
            await eventually(lambda: len(answered) > done + 100, PATIENCE_SECONDS)
            stop.set()
        hashes = [update(1, torrent=torrent).info_hash for torrent in range(1, torrents + 1)]
        counts = await store.swarms.scrape(hashes)
        assert isinstance(counts, dict)
        for torrent, info_hash in enumerate(hashes, 1):
            members = set(await store.connection.command("SMEMBERS", store.keys.swarm_peers(info_hash)))
            assert counts[info_hash].leechers == len(members)
            joined = {update(peer).peer_id.hex().encode() for each, peer in answered if each == torrent}
            assert joined <= members
        assert store.connection.master == f"127.0.0.1:{targets[1].port}"


class TestMap:
    """Simulated nodes with a map of their own."""

    PREFIX = "t:{map}:"

    async def test_the_map_of_most_nodes_counts(self, group: Servers) -> None:
        """One that was cut off may still name a node that was replaced."""
        serving, old = group.primary(self.PREFIX), others(group, self.PREFIX)[0]
        stale, true = slots(old.port), slots(serving.port)
        async with answering(stale) as one, answering(true) as two, answering(true) as three:
            async with connected(self.PREFIX, one, two, three) as connection:
                await connection.topology.find()
                assert connection.master == f"127.0.0.1:{serving.port}"

    async def test_an_endpoint_without_host_is_the_node_that_was_asked(self) -> None:
        for unknown in (b"$-1\r\n", b"$0\r\n\r\n", b"$1\r\n?\r\n"):
            async with answering(slots(7000, unknown)) as url, connected(self.PREFIX, url) as connection:
                await connection.topology.find()
                assert connection.master == "127.0.0.1:7000"

    async def test_nodes_that_left_are_forgotten(self, group: Servers) -> None:
        async with answering(slots(group.nodes[0].port)) as url:
            async with connected(self.PREFIX, url, "redis://127.0.0.1:1/0") as connection:
                await connection.topology.find()
                assert connection.topology.nodes == (("127.0.0.1", group.nodes[0].port),)

    async def test_without_an_answer_nothing_changes(self) -> None:
        async with connected(self.PREFIX, "redis://127.0.0.1:1/0") as connection:
            with pytest.raises(StoreUnavailable):
                await connection.topology.find()
            assert connection.master == "127.0.0.1:1"

    async def test_nodes_that_send_each_other_the_call_are_asked_no_more_than_twice(self) -> None:
        moved: dict[bytes, bytes] = {}
        async with answering(moved) as url, connected(self.PREFIX, url) as connection:
            moved[b"GET"] = b"-MOVED %d 127.0.0.1:%d\r\n" % (key_slot(b"map"), address_in(url)[1])
            for call in (
                connection.command("GET", "k"),
                connection.direct("GET", "k"),
                connection.pipeline(("GET", "k")),
            ):
                with pytest.raises(StoreUnavailable):
                    await call


def slots(port: int, host: bytes = b"$9\r\n127.0.0.1\r\n") -> dict[bytes, bytes]:
    """A node's replies: one node serves all slots."""
    return {b"CLUSTER SLOTS": b"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n%b:%d\r\n$2\r\nid\r\n" % (host, port)}


async def test_a_prefix_without_hash_tag_is_refused_in_one_line(group: Servers) -> None:
    with pytest.raises(StartupError) as refused:
        async with store_at(group.url, "t:"):
            pass
    text = "is part of a cluster: TRACKER_REDIS__PREFIX needs a hash tag, as in t:{t}:"
    assert str(refused.value) == f"the store at {group.url} {text}"


async def test_database_0_is_the_only_one() -> None:
    """Most servers refuse the others themselves. Valkey 9 can have several."""
    with cluster(primaries=1, options=("--appendonly", "no", "--cluster-databases", "2")) as group:
        with pytest.raises(StartupError, match="only database 0 of a cluster can be used"):
            async with store_at(group.url.removesuffix("0") + "1", "t:{t}:"):
                pass


async def test_a_socket_is_refused(group: Servers) -> None:
    with pytest.raises(StartupError, match="name a node by redis:// or rediss://"):
        async with store_at(group.nodes[0].url, "t:{t}:"):
            pass


async def test_a_slot_that_no_node_serves_is_refused() -> None:
    with cluster(primaries=1) as group:
        group.nodes[0].ask("CLUSTER", "DELSLOTS", str(slot_of("t:{t}:")))
        with pytest.raises(StartupError, match="the node does not serve the slot"):
            async with store_at(group.url, "t:{t}:"):
                pass


@pytest.mark.slow
async def test_announces_follow_a_failover() -> None:
    """Unavailable until the replica is promoted. Callbacks run there before any announce."""
    prefix = "t:{x}:"
    with cluster() as group:
        old = group.primary(prefix)
        new = group.start_replica(old)
        url = others(group, prefix)[0].tcp_url
        async with store_at(url, prefix, timeout=2.0) as store:
            await announced(store, 1)
            ran: list[str] = []

            async def on_reconnect() -> None:
                assert store.connection.unavailable
                ran.append(store.connection.master)
                await store.connection.command("SET", f"{prefix}back", "1")

            store.connection.on_reconnect(on_reconnect)
            await asyncio.to_thread(until_replicated, old)
            old.kill()
            assert await announced(store, 2) > 0
            assert ran == [f"127.0.0.1:{new.port}"]
            assert await leechers(store) == 2


def until_replicated(primary: Node) -> None:
    """Waits until its replica has what the primary has now. WAIT of a new client waits for nothing."""
    with primary.client() as client:
        offset = client.info("replication")["master_repl_offset"]
        until(lambda: client.info("replication").get("slave0", {}).get("offset", -1) >= offset, PATIENCE_SECONDS)


@pytest.mark.slow
async def test_a_planned_failover_loses_nothing() -> None:
    if SYSTEM_REDIS is None:
        pytest.skip("no redis-server on this system")
    prefix = "t:{x}:"
    with cluster(binary="redis") as group:
        new = group.start_replica(group.primary(prefix))
        async with store_at(group.url, prefix) as store:
            await announced(store, 1)
            await asyncio.to_thread(group.fail_over, new)
            await announced(store, 2)
            assert await leechers(store) == 2
            assert store.connection.master == f"127.0.0.1:{new.port}"


@pytest.mark.slow
async def test_tls_and_the_password_are_used_for_each_node() -> None:
    """The nodes announce their ports with TLS to a connection with TLS."""
    if SYSTEM_REDIS is None or OPENSSL is None:
        pytest.skip("no redis-server with TLS on this system")
    prefix = "t:{x}:"
    with cluster(binary="redis", tls=True) as group:
        for node in group.nodes:
            node.ask("ACL", "SETUSER", "me", "on", ">right", "~*", "&*", "+@all")
        url = others(group, prefix)[0].tls_url.replace("//", "//me:right@")
        async with store_at(url, prefix, tls_ca_file=group.ca_file) as store:
            await announced(store, 1)
            assert store.connection.master == f"127.0.0.1:{group.primary(prefix).tls_port}"
        with pytest.raises(StartupError):
            async with store_at(url.replace("right", "wrong"), prefix, tls_ca_file=group.ca_file):
                pass
