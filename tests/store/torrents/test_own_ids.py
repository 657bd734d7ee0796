"""Ids of torrents that a site gives: unique, in any order, and below those of later torrents."""

from collections.abc import AsyncIterator

import pytest

from tests.store.harness import ALICE, Store, update
from tests.store.sharding.harness import hash_in, one_and_several
from tracker.errors import ClientError
from tracker.store.torrents.torrents import ID_TAKEN

HASHES = [hash_in(number % 4, number) for number in range(8)]


@pytest.fixture(params=["one", "several"])
async def store(redis_url: str, prefix: str, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """One or four shards."""
    async with one_and_several(redis_url, prefix, accounts="required", max_changes=100) as stores:
        yield stores[request.param == "several"]


async def test_a_site_gives_ids_in_any_order(store: Store) -> None:
    rows = [(HASHES[0], {"torrent_id": "5000"}), (HASHES[1], {"torrent_id": "7"}), (HASHES[2], {})]
    added = await store.torrents.add_many(rows)
    assert added[:2] == [("5000", True), ("7", True)]
    later = [added[2], *[await store.torrents.add(each) for each in HASHES[3:7]]]
    ids = [int(each[0]) for each in later if isinstance(each, tuple)]
    assert len(set(ids)) == 5 and min(ids) > 5000
    assert await store.torrents.add(HASHES[7], {"torrent_id": "6"}) == ("6", True)
    found = await store.torrents.by_ids(["6", "5000", "7"])
    assert [each.info_hash for each in found] == [HASHES[7], HASHES[0], HASHES[1]]
    assert [each.torrent_id for each in await store.torrents.get_all(HASHES[:2])] == ["5000", "7"]


async def test_the_feed_and_users_speak_it(store: Store) -> None:
    await store.users.add("7", ALICE)
    await store.torrents.add(HASHES[1], {"torrent_id": "4711"})
    await store.announce(update(1, "s", info_hash=HASHES[1], passkey=ALICE))
    assert await store.torrents_of("7", "active") == ["4711"]
    assert [each.torrent_id for each in await store.changes.newest(10)] == ["4711"]


async def test_an_id_belongs_to_one_torrent(store: Store) -> None:
    rows = [(HASHES[0], {"torrent_id": "7"}), (HASHES[1], {"torrent_id": "7"}), (HASHES[4], {"torrent_id": "7"})]
    first, *others = await store.torrents.add_many(rows)
    assert first == ("7", True)
    assert [str(each) for each in others] == [ID_TAKEN] * 2
    assert await store.torrents.add(HASHES[0], {"torrent_id": "7", "name": "again"}) == ("7", False)
    for info_hash in (HASHES[1], HASHES[4]):
        with pytest.raises(ClientError, match="another torrent has"):
            await store.torrents.add(info_hash, {"torrent_id": "7"})
    with pytest.raises(ClientError, match="registered with another torrent id"):
        await store.torrents.add(HASHES[0], {"torrent_id": "8"})
    assert await store.torrents.get(HASHES[1]) is None


@pytest.mark.parametrize("torrent_id", ["0", "07", "-1", "x", "1" * 15, "1.0"])
async def test_an_invalid_id_registers_nothing(store: Store, torrent_id: str) -> None:
    with pytest.raises(ClientError, match="a torrent id is a number"):
        await store.torrents.add(HASHES[0], {"torrent_id": torrent_id})
    assert await store.torrents.get(HASHES[0]) is None
    assert (await store.torrents.add(HASHES[0]))[1]


async def test_a_torrent_that_was_removed_may_come_back_with_its_id(store: Store) -> None:
    await store.torrents.add(HASHES[0], {"torrent_id": "7"})
    await store.torrents.remove(HASHES[0])
    assert await store.torrents.add(HASHES[0], {"torrent_id": "7"}) == ("7", True)
