"""The active peers of a user: found in the swarms of all shards, within bounds."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.store.harness import ALICE, BOB, Store, endpoint, update
from tests.store.sharding.harness import SHARDS, hash_in, one_and_several
from tracker.store.users import peers as user_peers

HASHES = [hash_in(number % SHARDS, number) for number in range(6)]


@pytest.fixture(params=[0, 3], ids=["any number of peers", "three peers"])
async def both(request: pytest.FixtureRequest, redis_url: str, prefix: str) -> AsyncIterator[Any]:
    """Accounts list the ids of their peers only where the number of these is limited."""
    rules = {"accounts": "required", "peer_memory": 3600, "max_peers": request.param}
    async with one_and_several(redis_url, prefix, **rules) as stores:
        yield stores


async def join(store: Store, passkey: str, *peers: tuple[int, int]) -> None:
    """(number of the peer, place of the torrent in HASHES)."""
    for peer, place in peers:
        await store.announce(update(peer, "s", info_hash=HASHES[place], passkey=passkey, endpoint=endpoint(peer)))


async def prepare(store: Store) -> None:
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    await join(store, BOB, *((100 + place, place) for place in range(6)))
    await join(store, ALICE, (1, 0), (2, 0), (3, 1), (4, 2), (5, 5))
    await store.announce(update(4, "x", info_hash=HASHES[2], passkey=ALICE, endpoint=endpoint(4)))


async def test_the_peers_of_a_user_are_found(both: tuple[Store, Store]) -> None:
    for store in both:
        await prepare(store)
        found = await store.user_peers.of("7")
        ids = {each.info_hash: each.torrent_id for each in await store.torrents.get_all(HASHES)}
        assert found.complete
        assert {(torrent_id, peer.endpoints) for torrent_id, peer in found.peers} == {
            (ids[HASHES[place]], (endpoint(peer),)) for peer, place in ((1, 0), (2, 0), (3, 1), (5, 5))
        }
        assert len((await store.user_peers.of("8")).peers) == 6
        assert await store.user_peers.of("9") == ([], True)


async def test_the_search_is_bounded(both: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    for store in both:
        await prepare(store)
    monkeypatch.setattr(user_peers, "MAX_TORRENTS", 1)
    for store in both:
        found = await store.user_peers.of("8")
        assert len(found.peers) == 1 and not found.complete
    monkeypatch.setattr(user_peers, "MAX_TORRENTS", 50)
    monkeypatch.setattr(user_peers, "MAX_PEERS", 2)
    for store in both:
        found = await store.user_peers.of("8")
        assert len(found.peers) == 2 and not found.complete


async def test_a_key_of_a_wrong_type_hides_one_torrent_only(both: tuple[Store, Store]) -> None:
    for store in both:
        await prepare(store)
        torrent = await store.torrents.get(HASHES[0])
        assert torrent is not None
        key = store.shard(HASHES[0]).keys.user_torrent("7", torrent.torrent_id)
        await store.redis.delete(key)
        await store.redis.set(key, "x")
        assert len((await store.user_peers.of("7")).peers) == 2
