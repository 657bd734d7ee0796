"""What a node of the DHT keeps for its next start."""

import pytest

from tests.store.harness import START, Store
from tracker.store.dht.nodes import LIFETIME_SECONDS, MAX_NODES, NodeFigures, SavedNode, is_name

FIGURES = NodeFigures(hashes=3, peers=7, started=START, last_answer=START + 5)
SAVED = SavedNode(
    ids={4: b"a" * 20, 6: b"b" * 20},
    externals={4: "192.0.2.1"},
    nodes={4: b"x" * 26 * 3, 6: b"y" * 38 * 2},
)


async def test_what_is_saved_is_loaded(store: Store) -> None:
    await store.dht_nodes.save("host.example", SAVED, FIGURES, START + 9)
    assert await store.dht_nodes.load("host.example") == SAVED
    assert await store.dht_nodes.load("other") == SavedNode()
    fields = await store.redis.hgetall(store.keys.dht_node("host.example"))
    assert fields == {
        b"id4": (b"a" * 20).hex().encode(),
        b"id6": (b"b" * 20).hex().encode(),
        b"external4": b"192.0.2.1",
        b"nodes4": b"3",
        b"nodes6": b"2",
        b"hashes": b"3",
        b"peers": b"7",
        b"started": b"%d" % START,
        b"saved": b"%d" % (START + 9),
        b"last_answer": b"%d" % (START + 5),
    }
    assert await store.redis.smembers(store.keys.dht_nodes()) == {b"host.example"}
    assert await store.dht_nodes.names() == ["host.example"]
    assert (await store.dht_nodes.figures("host.example"))["peers"] == "7"
    assert await store.dht_nodes.figures("other") == {}
    for key in (store.keys.dht_node("host.example"), store.keys.dht_table("host.example", 4)):
        assert 0 < await store.redis.ttl(key) <= LIFETIME_SECONDS


async def test_saving_again_replaces_all_but_nodes_where_none_are_known(store: Store) -> None:
    """Nobody answers a node that was cut off when it started, or that ends at once."""
    await store.dht_nodes.save("host", SAVED, FIGURES, START)
    again = SavedNode(ids={4: b"c" * 20}, nodes={4: b"z" * 26})
    await store.dht_nodes.save("host", again, NodeFigures(0, 0, START), START)
    found = await store.dht_nodes.load("host")
    assert (found.ids, found.externals) == ({4: b"c" * 20}, {})
    assert found.nodes == {4: b"z" * 26, 6: SAVED.nodes[6]}
    assert (await store.dht_nodes.figures("host"))["nodes6"] == "0"


async def test_damaged_and_foreign_values_are_left_out(store: Store) -> None:
    await store.dht_nodes.save("host", SAVED, FIGURES, START)
    await store.redis.hset(store.keys.dht_node("host"), "id4", "z" * 40)
    await store.redis.hset(store.keys.dht_node("host"), "external4", b"\xff")
    await store.redis.append(store.keys.dht_table("host", 4), "x")
    await store.redis.delete(store.keys.dht_table("host", 6))
    await store.redis.rpush(store.keys.dht_table("host", 6), "foreign")
    assert await store.dht_nodes.load("host") == SavedNode(ids={6: b"b" * 20})
    await store.redis.delete(store.keys.dht_node("host"))
    await store.redis.set(store.keys.dht_node("host"), "foreign")
    assert await store.dht_nodes.load("host") == SavedNode()


async def test_no_more_nodes_than_useful_are_saved(store: Store) -> None:
    many = SavedNode(nodes={4: b"x" * 26 * (MAX_NODES + 5)})
    await store.dht_nodes.save("host", many, FIGURES, START)
    assert len((await store.dht_nodes.load("host")).nodes[4]) == 26 * MAX_NODES


@pytest.mark.parametrize(
    ("name", "valid"), [("host-1.example", True), ("", False), ("a:b", False), ("ü", False)]
)
def test_names_are_those_of_hosts(name: str, valid: bool) -> None:
    assert is_name(name) == valid
