"""Links between the halves of hybrid torrents, which may be in different shards."""

import asyncio

import pytest

from tests.store.harness import Store
from tests.store.sharding.harness import hash_in
from tracker.bittorrent import InfoHash
from tracker.errors import ClientError, Conflict

NUMBERS_OF_SHARDS = (1, 4)
A, B, C, D = (hash_in(shard, shard + 1) for shard in range(4))


@pytest.fixture
async def torrents(store: Store) -> Store:
    for each in (A, B, C):
        await store.torrents.add(each)
    return store


async def fields(store: Store, info_hash: InfoHash) -> tuple[str, str]:
    """(hybrid_of, hybrid)"""
    row = await store.torrent(info_hash)
    return row.get("hybrid_of", ""), row.get("hybrid", "")


async def test_both_halves_know_each_other(torrents: Store) -> None:
    for _ in range(2):
        await torrents.hybrids.link(B, A)
        assert (await fields(torrents, A), await fields(torrents, B)) == (("", B.hex()), (A.hex(), ""))
    found = {each.info_hash: each for each in await torrents.torrents.get_all([A, B])}
    assert (found[A].hybrid_of, found[A].hybrid) == ("", B.hex())
    assert (found[B].hybrid_of, found[B].hybrid) == (A.hex(), "")
    assert await torrents.hybrids.others([A, B, C, D]) == {A: B, B: A}
    assert await torrents.hybrids.counting([B, A, C, D, B]) == [A, A, C, D, A]


@pytest.mark.parametrize("which", [A, B])
async def test_a_link_ends_from_either_half(torrents: Store, which: InfoHash) -> None:
    await torrents.hybrids.link(B, A)
    await torrents.hybrids.unlink(which)
    assert await fields(torrents, A) == await fields(torrents, B) == ("", "")
    await torrents.hybrids.unlink(which)
    await torrents.hybrids.link(A, B)


@pytest.mark.parametrize(
    ("v2", "v1"), [(A, A), (A, B), (A, C), (B, C), (C, A), (C, B)], ids=lambda half: half.hex()[:2]
)
async def test_no_half_gets_another_half(torrents: Store, v2: InfoHash, v1: InfoHash) -> None:
    """No cycle, no chain, no torrent with two halves. What is refused changes nothing."""
    await torrents.hybrids.link(B, A)
    with pytest.raises(Conflict, match="half of"):
        await torrents.hybrids.link(v2, v1)
    assert (await fields(torrents, A), await fields(torrents, B)) == (("", B.hex()), (A.hex(), ""))
    assert await fields(torrents, C) == ("", "")


@pytest.mark.parametrize("which", ["v1", "v2"])
async def test_only_registered_torrents_are_linked(torrents: Store, which: str) -> None:
    v2, v1 = (A, D) if which == "v1" else (D, A)
    with pytest.raises(ClientError, match="not registered" if which == "v1" else "unknown torrent"):
        await torrents.hybrids.link(v2, v1)
    assert await fields(torrents, A) == await fields(torrents, D) == ("", "")


async def test_links_that_are_made_at_the_same_time_form_no_cycle(torrents: Store) -> None:
    pairs = [(A, B), (B, A), (B, C), (C, A), (A, C), (C, B)]
    await asyncio.gather(*(torrents.hybrids.link(*pair) for pair in pairs), return_exceptions=True)
    rows = {each: await fields(torrents, each) for each in (A, B, C)}
    halves = [each for each, (of, _) in rows.items() if of]
    assert len(halves) <= 1
    assert all(not rows[InfoHash(bytes.fromhex(rows[each][0]))][0] for each in halves)
    for each in (A, B, C):
        await torrents.hybrids.unlink(each)
    await torrents.hybrids.link(A, B)


async def test_a_link_that_only_one_half_knows_is_shared_with_no_shard(torrents: Store) -> None:
    """A site wrote it. The announces of that half follow it all the same."""
    await torrents.redis.hset(torrents.shard(B).keys.torrent(B), "hybrid_of", A.hex())
    assert await torrents.hybrids.others([A, B]) == {}
    assert await torrents.hybrids.counting([B]) == [A]
    await torrents.hybrids.link(B, A)
    assert await torrents.hybrids.others([A]) == {A: B}


async def test_nonsense_that_a_site_wrote_is_no_link_and_can_be_ended(torrents: Store) -> None:
    key = torrents.shard(B).keys.torrent(B)
    for text in ("x", "\xff" * 40, "AB" * 20):
        await torrents.redis.hset(key, "hybrid_of", text)
        found = await torrents.torrents.get(B)
        assert found is not None and found.hybrid_of == ""
        assert await torrents.hybrids.counting([B]) == [B]
        with pytest.raises(Conflict):
            await torrents.hybrids.link(B, A)
        await torrents.hybrids.unlink(B)
        assert await fields(torrents, B) == ("", "")


async def test_a_key_of_a_wrong_type_is_no_half(torrents: Store) -> None:
    key = torrents.shard(A).keys.torrent(A)
    await torrents.redis.delete(key)
    await torrents.redis.set(key, "x")
    assert await torrents.hybrids.others([A]) == {}
    assert await torrents.hybrids.counting([A]) == [A]
