"""The shortest time between two credited announces of a user's peer (row T34)."""

from typing import Any

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, Store, endpoint, text, timeout_key, update
from tests.store.sharding.harness import hash_in
from tests.store.swarms.test_clock_steps import TRACKER, Machine
from tracker.store.swarms.codec import PeerUpdate

NUMBERS_OF_SHARDS = (1, 4)
TORRENT = hash_in(2, 1)
SHORTEST = 300
KEY = b"8 bytes!"


@pytest.fixture
async def slow(make_store: MakeStore) -> Store:
    """An announce within 5 minutes of the last one is not credited. Bob has a peer in the swarm."""
    store = await make_store(accounts="optional", peer_memory=3600, min_credit_interval=SHORTEST)
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    await store.torrents.add(TORRENT)
    await store.announce(said(11, "s", passkey=BOB))
    await store.announce(said(1, "s", key=KEY))
    return store


def said(peer: int = 1, event: str = "u", **values: Any) -> PeerUpdate:
    return update(peer, event, **{"info_hash": TORRENT, "passkey": ALICE, **values})


async def credited(store: Store) -> tuple[int, int]:
    row = text(await store.redis.hgetall(store.shard(TORRENT).keys.user("7")))
    return int(row.get("uploaded", 0)), int(row.get("downloaded", 0))


@pytest.mark.parametrize("seconds", [0, 1, SHORTEST - 1])
async def test_an_announce_that_comes_sooner_keeps_the_peer_and_does_nothing_else(slow: Store, seconds: int) -> None:
    """T34: also when it comes again and again."""
    tid = (await slow.torrent(TORRENT))["tid"]
    keys = slow.shard(TORRENT).keys
    timeout = timeout_key(keys, tid, said().peer_id)
    await slow.redis.pexpire(timeout, 5000)
    slow.clock.now += seconds
    before = await slow.dump()
    for _ in range(3):
        reply = await slow.announce(said(uploaded=10, downloaded=20, bytes_left=980))
        assert (reply.outcome, reply.seeders, reply.leechers, reply.peers) == ("early", 0, 2, b"")
    assert {k: v for k, v in (await slow.dump()).items() if b"ptimeout" not in k} == {
        k: v for k, v in before.items() if b"ptimeout" not in k
    }
    assert await slow.redis.pttl(timeout) > 2_600_000


async def test_a_timeout_that_is_lost_begins_again(slow: Store) -> None:
    tid = (await slow.torrent(TORRENT))["tid"]
    keys = slow.shard(TORRENT).keys
    await slow.redis.delete(timeout_key(keys, tid, said().peer_id))
    await slow.announce(said())
    assert await slow.redis.pttl(timeout_key(keys, tid, said().peer_id)) > 2_600_000
    assert await check_invariants(slow.redis, keys) == 2


async def test_its_bytes_count_with_the_next_one(slow: Store) -> None:
    for _ in range(4):
        slow.clock.now += SHORTEST - 100
        await slow.announce(said(uploaded=10, downloaded=20))
        slow.clock.now += 100
        reply = await slow.announce(said(uploaded=100, downloaded=200))
        assert (reply.outcome, reply.peers) == ("update", endpoint(11))
    assert await credited(slow) == (100, 200)


@pytest.mark.parametrize("event", ["s", "c", "p"])
async def test_events_are_applied_at_once(slow: Store, event: str) -> None:
    slow.clock.now += 10
    reply = await slow.announce(said(1, event, downloaded=20, bytes_left=0 if event == "c" else 980))
    assert (reply.outcome, reply.peers) == ("update", endpoint(11))
    assert (await credited(slow))[1] == 20
    assert (reply.seeders, reply.completions) == ((1, 1) if event == "c" else (0, 0))


async def test_a_stop_is_applied_and_credited_at_once(slow: Store) -> None:
    slow.clock.now += 10
    assert (await slow.announce(said(1, "x", uploaded=10, downloaded=20))).outcome == "leave"
    assert await credited(slow) == (10, 20)
    assert (await slow.announce(said())).outcome == "join"


@pytest.mark.parametrize(
    "changes",
    [
        {"bytes_left": 0},
        {"endpoint": endpoint(1, port=7000)},
        {"endpoint": endpoint(2)},
        {"endpoint": endpoint(1, v6=True)},
    ],
    ids=["complete", "port", "address", "family"],
)
async def test_a_change_of_role_or_endpoint_is_applied_at_once(slow: Store, changes: dict[str, Any]) -> None:
    slow.clock.now += 10
    reply = await slow.announce(said(downloaded=20, key=KEY, **changes))
    assert (reply.outcome, reply.peers) == ("update", endpoint(11))
    assert (await credited(slow))[1] == 20
    reply = await slow.announce(said(11, "s", passkey=BOB, form=1))
    assert (reply.seeders, len(reply.peers + reply.peers6) > 0) == (int("bytes_left" in changes), True)


async def test_a_peer_that_goes_on_after_a_pause_is_told_peers_at_once(slow: Store) -> None:
    slow.clock.now += SHORTEST
    await slow.announce(said(1, "p"))
    slow.clock.now += 10
    reply = await slow.announce(said())
    assert (reply.outcome, reply.peers) == ("update", endpoint(11))


async def test_anonymous_peers_are_not_concerned(slow: Store) -> None:
    await slow.announce(said(2, "s", passkey=""))
    slow.clock.now += 10
    (reply,), totals = await slow.announce_together(said(2, passkey="", uploaded=10))
    assert (reply.outcome, len(reply.peers), totals[:2]) == ("update", 12, (10, 0))


async def test_of_the_users_peers_each_has_a_time_of_its_own(slow: Store) -> None:
    slow.clock.now += SHORTEST - 10
    await slow.announce(said(2, "s"))
    slow.clock.now += 10
    assert (await slow.announce(said(2, uploaded=1000))).outcome == "early"
    assert (await slow.announce(said(1, uploaded=10))).outcome == "update"
    assert await credited(slow) == (10, 0)


@pytest.mark.parametrize("step", [-3600, 3600])
async def test_a_step_of_the_clock_delays_no_announce(slow: Store, step: int) -> None:
    machine = Machine(slow)
    await machine.heartbeat()
    await machine.step(TRACKER, step)
    await machine.heartbeat()
    for _ in range(2):
        await machine.pass_time(SHORTEST)
        assert (await slow.announce(said())).outcome == "update"
        assert (await slow.announce(said())).outcome == "early"
