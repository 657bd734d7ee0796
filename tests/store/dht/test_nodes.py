"""What a node of the DHT keeps for its next start, and says about itself."""

import pytest

from tests.store.dht.harness import STATUS, status
from tests.store.harness import START, Store
from tracker.store.dht.nodes import LIFETIME_SECONDS, MAX_NODES, SavedNode, is_name

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
    assert await store.dht_nodes.load(STATUS.name) == SavedNode(
        ids={4: b"c" * 20}, nodes={4: b"z" * 26, 6: TABLES[6]}
    )
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


@pytest.mark.parametrize(
    ("name", "valid"), [("host-1.example", True), ("", False), ("a:b", False), ("ü", False)]
)
def test_names_are_those_of_hosts(name: str, valid: bool) -> None:
    assert is_name(name) == valid
