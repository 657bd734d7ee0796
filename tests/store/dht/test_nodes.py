"""What a node of the DHT keeps for its next start, and says about itself."""

import pytest

from tests.store.dht.harness import STATUS, status
from tests.store.harness import START, Store, info_hash
from tracker.bittorrent import InfoHash
from tracker.store.dht.nodes import (
    HASHES_SECONDS,
    LIFETIME_SECONDS,
    MAX_HASHES,
    MAX_NODES,
    AnnouncedHash,
    SavedNode,
    is_name,
)

TABLES = {4: b"x" * 26 * 3, 6: b"y" * 38 * 2}


async def test_what_is_saved_is_loaded(store: Store) -> None:
    await store.dht_nodes.save_status(STATUS)
    await store.dht_nodes.save_tables(STATUS.name, TABLES)
    saved = SavedNode(ids=dict(STATUS.ids), externals=dict(STATUS.externals), nodes=TABLES)
    assert await store.dht_nodes.load(STATUS.name) == saved
    assert await store.dht_nodes.load("other") == SavedNode()
    assert await store.redis.smembers(store.keys.dht_nodes()) == {STATUS.name.encode()}
    assert await store.dht_nodes.names() == [STATUS.name]
    for key in (store.keys.dht_node(STATUS.name), store.keys.dht_table(STATUS.name, 4)):
        assert 0 < await store.redis.ttl(key) <= LIFETIME_SECONDS


async def test_the_status_of_each_node_is_shown(store: Store) -> None:
    assert await store.dht_nodes.statuses() == []
    other = status(name="another", mode="all")
    for each in (STATUS, other):
        await store.dht_nodes.save_status(each)
    await store.dht_nodes.save_tables("no-status", TABLES)
    assert await store.dht_nodes.statuses() == [other, STATUS]
    assert await store.dht_nodes.status(STATUS.name) == STATUS
    assert await store.dht_nodes.status("no-status") is None


async def test_saving_again_replaces_all_but_nodes_where_none_are_known(store: Store) -> None:
    """No node answers one that was cut off when it started, or that ends at once."""
    await store.dht_nodes.save_status(STATUS)
    await store.dht_nodes.save_tables(STATUS.name, TABLES)
    later = status(ids={4: b"c" * 20}, externals={}, buckets={4: {}}, last_answer=None, saved=START + 5)
    await store.dht_nodes.save_status(later)
    await store.dht_nodes.save_tables(STATUS.name, {4: b"z" * 26})
    assert await store.dht_nodes.load(STATUS.name) == SavedNode(ids={4: b"c" * 20}, nodes={4: b"z" * 26, 6: TABLES[6]})
    assert await store.dht_nodes.status(STATUS.name) == later


async def test_damaged_and_foreign_values_are_left_out(store: Store) -> None:
    name = STATUS.name
    await store.dht_nodes.save_status(STATUS)
    await store.dht_nodes.save_tables(name, TABLES)
    await store.redis.hset(store.keys.dht_node(name), "id4", "z" * 40)
    await store.redis.hset(store.keys.dht_node(name), "external4", b"\xff")
    await store.redis.append(store.keys.dht_table(name, 4), "x")
    await store.redis.delete(store.keys.dht_table(name, 6))
    await store.redis.rpush(store.keys.dht_table(name, 6), "foreign")
    assert await store.dht_nodes.load(name) == SavedNode(ids={6: b"b" * 20})
    await store.redis.delete(store.keys.dht_node(name))
    await store.redis.set(store.keys.dht_node(name), "foreign")
    assert await store.dht_nodes.load(name) == SavedNode()
    assert await store.dht_nodes.statuses() == []
    await store.dht_nodes.save_status(STATUS)
    assert await store.dht_nodes.statuses() == [STATUS]


async def test_no_more_nodes_than_useful_are_saved(store: Store) -> None:
    await store.dht_nodes.save_tables("host", {4: b"x" * 26 * (MAX_NODES + 5)})
    assert len((await store.dht_nodes.load("host")).nodes[4]) == 26 * MAX_NODES


async def test_announced_hashes_are_listed_by_peers_or_distance(store: Store) -> None:
    """Of all nodes; a hash that two know counts once, as the one with most peers."""

    def row(number: int, peers: int) -> AnnouncedHash:
        return AnnouncedHash(info_hash(number), peers // 2, peers, START + number)

    nodes = store.dht_nodes
    assert await nodes.hashes(None, 0, 9) == (0, [])
    for name in ("host", "other", "damaged", "foreign"):
        await nodes.save_tables(name, {})
    await nodes.save_hashes("host", [row(1, 5), row(2, 7), row(3, 70_000)])
    await nodes.save_hashes("other", [row(2, 6), row(4, 1)])
    await store.redis.set(store.keys.dht_hashes("damaged"), b"x" * 29)
    await store.redis.rpush(store.keys.dht_hashes("foreign"), "x")
    most = AnnouncedHash(info_hash(3), 35_000, 65_535, START + 3)
    assert await nodes.hashes(None, 0, 9) == (4, [most, row(2, 7), row(1, 5), row(4, 1)])
    assert await nodes.hashes(None, 1, 2) == (4, [row(2, 7), row(1, 5)])
    nearest = sorted([most, row(2, 7), row(1, 5), row(4, 1)], key=lambda each: distance(each.info_hash))
    assert await nodes.hashes(info_hash(4), 0, 3) == (4, nearest[:3])
    assert nearest[0] == row(4, 1)
    assert 0 < await store.redis.ttl(store.keys.dht_hashes("host")) <= HASHES_SECONDS
    await nodes.save_hashes("host", [])
    assert await nodes.hashes(None, 0, 9) == (2, [row(2, 6), row(4, 1)])


async def test_no_more_hashes_than_a_node_keeps_are_saved(store: Store) -> None:
    await store.dht_nodes.save_tables("host", {})
    rows = [AnnouncedHash(info_hash(number), 0, 1, START) for number in range(MAX_HASHES + 3)]
    await store.dht_nodes.save_hashes("host", rows)
    assert (await store.dht_nodes.hashes(None, 0, 1))[0] == MAX_HASHES


def distance(found: InfoHash) -> int:
    """From torrent 4."""
    return int.from_bytes(found, "big") ^ int.from_bytes(info_hash(4), "big")


@pytest.mark.parametrize(("name", "valid"), [("host-1.example", True), ("", False), ("a:b", False), ("ü", False)])
def test_names_are_those_of_hosts(name: str, valid: bool) -> None:
    assert is_name(name) == valid
