"""Torrents that a user announced and that are not registered: what is kept, in all shards, and for how long."""

from collections.abc import AsyncIterator

import pytest

from tests.store.harness import ALICE, BOB, Store, update
from tests.store.sharding.harness import SHARDS, hash_in, one_and_several
from tracker.bittorrent import InfoHash
from tracker.store.users.unregistered import KEPT_SECONDS, MAX_KEPT, Tried

HASHES = [hash_in(number % SHARDS, number) for number in range(6)]
AT_FIRST, LATER = "unknown torrent at first", "unknown torrent"


@pytest.fixture
async def both(redis_url: str, prefix: str) -> AsyncIterator[tuple[Store, Store]]:
    async with one_and_several(redis_url, prefix, accounts="required", open=False) as stores:
        for store in stores:
            await store.users.add("7", ALICE)
            await store.users.add("8", BOB)
        yield stores


async def tried(store: Store, *hashes: InfoHash, passkey: str = ALICE, event: str = "s") -> str:
    """The refusal of the last."""
    for info_hash in hashes:
        code = await store.refused(update(1, event, info_hash=info_hash, passkey=passkey))
    return code


async def keys_of(store: Store, user: int = 7) -> list[str]:
    keys = [shard.keys.user_unregistered(user) for shard in store.shards]
    return [key for key in keys if await store.redis.exists(key)]


async def test_a_users_unregistered_torrents_are_kept_in_the_shards_of_the_torrents(both: tuple[Store, Store]) -> None:
    for store in both:
        for info_hash in HASHES:
            store.clock.now += 1
            assert await tried(store, info_hash) == AT_FIRST
        now = int(store.clock.now)
        assert await store.unregistered.of("7") == [Tried(HASHES[5 - n], now - n) for n in range(6)]
        assert len(await keys_of(store)) == len(store.shards)
        assert await store.unregistered.of("8") == []


async def test_registered_ones_are_never_listed(both: tuple[Store, Store]) -> None:
    for store in both:
        await tried(store, *HASHES)
        await store.torrents.add(HASHES[2])
        assert HASHES[2] not in [each.info_hash for each in await store.unregistered.of("7")]
        await store.torrents.remove(HASHES[2])
        assert len(await store.unregistered.of("7")) == 5, "it was removed from the key"


async def test_the_oldest_makes_room(both: tuple[Store, Store]) -> None:
    for store in both:
        hashes = [hash_in(1, number) for number in range(MAX_KEPT + 3)]
        for info_hash in hashes:
            await tried(store, info_hash)
            store.clock.now += 1
        assert [each.info_hash for each in await store.unregistered.of("7")] == hashes[:2:-1]
        (key,) = await keys_of(store)
        assert await store.redis.zcard(key) == MAX_KEPT


async def test_they_are_kept_for_ninety_days(both: tuple[Store, Store]) -> None:
    for store in both:
        await tried(store, HASHES[0])
        (key,) = await keys_of(store)
        assert 0 < await store.redis.ttl(key) <= KEPT_SECONDS
        store.clock.now += KEPT_SECONDS
        assert await tried(store, HASHES[0]) == LATER
        store.clock.now += 1
        assert await store.unregistered.of("7") == []
        assert await tried(store, HASHES[4]) == AT_FIRST
        assert len(await store.unregistered.of("7")) == 1 == await store.redis.zcard((await keys_of(store))[0])
        assert await tried(store, HASHES[0]) == AT_FIRST


async def test_a_stop_is_not_kept_and_a_deleted_user_leaves_nothing(both: tuple[Store, Store]) -> None:
    for store in both:
        assert await tried(store, *HASHES, event="x") == LATER
        assert await keys_of(store) == []
        await tried(store, *HASHES)
        await store.users.delete("7")
        assert await keys_of(store) == []


async def test_nothing_is_written_where_it_cannot_be(both: tuple[Store, Store]) -> None:
    """A key of a wrong type, and invalid ids of users that a site wrote."""
    store, _ = both
    await store.redis.set(store.keys.user_unregistered(7), "text")
    assert await tried(store, HASHES[0]) == LATER
    for number, user in enumerate(("0", "1e3", "x:y", "9" * 16)):
        passkey = str(number) * 20
        await store.redis.hset(store.keys.passkey(passkey), "user_id", user)
        assert await tried(store, HASHES[0], passkey=passkey) == LATER
    assert [key async for key in store.redis.scan_iter(f"{store.keys.prefix}*unregistered")] == [
        store.keys.user_unregistered(7).encode()
    ]
