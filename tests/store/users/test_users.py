"""Users: passkeys, permissions, deletion (row T22)."""

import asyncio

import pytest
from redis.exceptions import ResponseError

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, START, Store, update
from tracker.errors import ClientError
from tracker.store.users.fields import User

NEW = "c" * 20


async def test_a_new_user_has_an_id_and_a_passkey(store: Store) -> None:
    user = await store.users.add()
    assert (user.user_id, user.enabled, user.can_leech, len(user.passkey)) == ("1", True, True, 40)
    assert await store.users.find("1") == await store.users.find(user.passkey) == user
    assert await store.users.add("7", ALICE, can_leech=False) == User("7", ALICE, True, False)
    assert [u.user_id for u in await store.users.page(0)] == ["1", "7"]


async def test_a_generated_passkey_has_160_random_bits(store: Store) -> None:
    """Each bit is 0 in some passkeys and 1 in others, wherever passkeys are generated: new user, new passkey,
    import."""
    made = [(await store.users.add()).passkey for _ in range(40)]
    made += [(await store.users.rotate(passkey)).passkey for passkey in made]
    accounts = store.user_import
    for number in range(1000, 1040):
        await accounts.save([{"user_id": str(number)}])
        found = await store.users.find(str(number))
        assert found is not None
        made.append(found.passkey)
    for some in (made[:40], made[40:80], made[80:]):
        numbers = [int(passkey, 16) for passkey in some]
        assert len(set(numbers)) == 40
        assert all(0 < sum(number >> bit & 1 for number in numbers) < 40 for bit in range(160))


@pytest.mark.parametrize("passkey", ["short", "x" * 65, "with space" * 2, "ä" * 20, "colon:" * 4, "newline" * 3 + "\n"])
async def test_passkeys_are_checked(store: Store, passkey: str) -> None:
    await store.users.add("7", ALICE)
    before = await store.dump()
    with pytest.raises(ClientError, match="16 to 64"):
        await store.users.add(passkey=passkey)
    with pytest.raises(ClientError, match="16 to 64"):
        await store.users.rotate(ALICE, passkey)
    assert await store.dump() == before


@pytest.mark.parametrize("user_id", ["0", "-1", "01", "x", "1" * 16, "1.5", "١"])
async def test_user_ids_are_numbers(store: Store, user_id: str) -> None:
    with pytest.raises(ClientError, match="positive number"):
        await store.users.add(user_id)


async def test_a_taken_id_or_passkey_is_refused_and_changes_nothing(store: Store) -> None:
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    before = await store.dump()
    with pytest.raises(ClientError, match="id exists"):
        await store.users.add("7", NEW)
    with pytest.raises(ClientError, match="passkey is taken"):
        await store.users.add("9", ALICE)
    for taken in (BOB, ALICE):
        with pytest.raises(ClientError, match="passkey is taken"):
            await store.users.rotate(ALICE, taken)
    assert await store.dump() == before


async def test_ids_and_passkeys_are_unique_under_concurrency(store: Store) -> None:
    await store.users.add("5", ALICE)
    users = await asyncio.gather(*(store.users.add() for _ in range(20)))
    assert sorted(int(user.user_id) for user in users) == list(range(6, 26))
    one_id = await asyncio.gather(*(store.users.add("99") for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(result, User) for result in one_id) == 1
    one_key = await asyncio.gather(*(store.users.add(passkey=NEW) for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(result, User) for result in one_key) == 1
    assert len(await store.users.page(0, 999)) == 1 + 20 + 1 + 1


async def test_ids_of_a_sites_users_are_skipped(private: Store) -> None:
    """A site writes users too; an ID whose totals exist is in use."""
    await private.redis.hset(private.keys.passkey(NEW), mapping={"user_id": "1"})
    await private.announce(update(1, "s", passkey=NEW))
    assert (await private.users.add()).user_id == "9"
    with pytest.raises(ClientError, match="id exists"):
        await private.users.add("1")
    await private.redis.hset(private.keys.user(50), mapping={"uploaded": "123"})  # existing totals
    user = await private.users.add("50")
    assert (await private.users.find("50")).uploaded == 123
    assert user.user_id == "50"


async def test_a_partial_update_leaves_the_other_fields(private: Store) -> None:
    """T22."""
    await private.redis.hset(private.keys.passkey(ALICE), "note", "kept")
    await private.users.edit(ALICE, {"can_leech": False})
    assert await private.users.find("7") == User("7", ALICE, True, False)
    await private.users.edit(ALICE, {"enabled": False})
    assert await private.users.find("7") == User("7", ALICE, False, False)
    await private.users.edit(ALICE, {"enabled": True, "can_leech": True})
    await private.users.edit(ALICE, {})
    assert await private.users.find("7") == User("7", ALICE, True, True)
    assert await private.redis.hget(private.keys.passkey(ALICE), "note") == b"kept"


async def test_updates_of_unknown_users_and_empty_updates_are_refused(private: Store) -> None:
    before = await private.dump()
    with pytest.raises(ClientError, match="no such field"):
        await private.users.edit(ALICE, {"enabled": False, "user_id": True})
    for attempt in (private.users.edit(NEW, {"enabled": False}), private.users.rotate(NEW), private.users.delete(NEW)):
        with pytest.raises(ClientError, match="no such user"):
            await attempt
    with pytest.raises(ClientError, match="no such user"):
        await private.users.find("12345")
    assert await private.dump() == before


async def test_changes_apply_from_the_next_announce(private: Store) -> None:
    await private.announce(update(1, "s", passkey=ALICE))
    await private.users.edit(ALICE, {"can_leech": False})
    assert await private.refused(update(1, passkey=ALICE)) == "may not leech"
    await private.users.edit(ALICE, {"enabled": False})
    assert await private.refused(update(1, passkey=ALICE)) == "user disabled"
    await private.users.edit(ALICE, {"enabled": True, "can_leech": True})
    assert (await private.announce(update(1, passkey=ALICE))).outcome == "update"


async def test_a_new_passkey_invalidates_the_old_at_once(private: Store) -> None:
    """T22: the user keeps peers, permissions and totals."""
    await private.announce(update(1, "s", passkey=ALICE))
    await private.users.edit(ALICE, {"can_leech": False})
    await private.announce_counts.flush()
    user = await private.users.rotate(ALICE, NEW)
    assert user == User("7", NEW, True, False, announces=1)
    assert await private.refused(update(1, bytes_left=0, passkey=ALICE)) == "unknown passkey"
    assert (await private.announce(update(1, bytes_left=0, passkey=NEW))).outcome == "update"
    assert await private.users.get(ALICE) is None
    await private.announce_counts.flush()
    assert await private.users.find("7") == User("7", NEW, True, False, announces=2, snatches=1)
    assert [u.passkey for u in await private.users.page(0)] == [NEW, BOB]
    assert len((await private.users.rotate(NEW)).passkey) == 40


async def test_deleting_a_user_leaves_no_key(private: Store) -> None:
    """T22: whatever sets hold its torrents."""
    await private.announce(update(9, "s", torrent=9, passkey=BOB))
    before = await named(private, "7", ALICE)
    for torrent in range(1, 6):
        await private.announce(update(1, "s", torrent=torrent, passkey=ALICE))
    private.clock.now += 100
    await private.announce(update(1, torrent=1, downloaded=5000, passkey=ALICE))
    await private.announce(update(1, "x", torrent=1, downloaded=5000, passkey=ALICE))
    await private.announce(update(1, "c", torrent=2, bytes_left=0, downloaded=1, passkey=ALICE))
    for torrent in range(2, 6):
        await private.announce(update(1, "x", torrent=torrent, passkey=ALICE))
    assert await private.torrents_of("7", "hnr") == ["2"]
    assert len(await named(private, "7", ALICE)) > len(before)
    await private.users.delete("7")
    assert await named(private, "7", ALICE) == set()
    assert [u.user_id for u in await private.users.page(0)] == ["8"]
    assert await private.redis.zcard(private.keys.users()) == 1
    await check_invariants(private.redis, private.keys)


@pytest.mark.parametrize("reborn", [False, True])
async def test_peers_of_a_deleted_user_are_removed_without_a_trace(private: Store, reborn: bool) -> None:
    """Reaping their remains must not recreate the user's keys, even if another user has the ID by then."""
    for number in (1, 2):
        await private.announce(update(number, "s", passkey=ALICE))
    private.clock.now += 100
    await private.announce(update(1, downloaded=5000, passkey=ALICE))
    await private.users.delete(ALICE)
    assert await named(private, "7", ALICE) == set()
    assert await private.refused(update(1, "x", passkey=ALICE)) == "unknown passkey"
    if reborn:
        await private.users.add("7", NEW)
    before = await named(private, "7", NEW)
    for number in (1, 2):
        assert await private.silence(update(number)) == 0
    assert await named(private, "7", NEW) == before
    assert await check_invariants(private.redis, private.keys) == 0


async def test_an_interrupted_deletion_can_be_repeated(private: Store) -> None:
    await private.announce(update(1, "s", passkey=ALICE))
    await private.redis.delete(private.keys.passkey(ALICE))
    await private.users.delete("7")
    assert await named(private, "7", ALICE) == set()
    with pytest.raises(ClientError, match="no such user"):
        await private.users.delete("7")


async def test_deleting_a_user_with_many_torrents(private: Store) -> None:
    ids = [str(n) for n in range(1, 2001)]
    await private.redis.sadd(private.keys.user_set(7, "complete"), *ids)
    for torrent_id in ids:
        await private.redis.hset(private.keys.user_torrent(7, torrent_id), "uploaded", "1")
    assert await private.torrents_of("7", "complete") == ids
    await private.users.delete("7")
    assert await named(private, "7", ALICE) == set()


async def test_users_are_listed_in_pages(store: Store) -> None:
    for number in range(1, 26):
        await store.users.add(str(number))
    pages = [await store.users.page(offset, 10) for offset in (0, 10, 20, 30)]
    assert [[int(user.user_id) for user in page] for page in pages] == [
        list(range(1, 11)),
        list(range(11, 21)),
        list(range(21, 26)),
        [],
    ]


async def test_every_change_is_published(store: Store) -> None:
    """T23."""
    async with store.connection.subscription(channels=[store.keys.channel("users")]) as messages:
        await store.users.add("7", ALICE)
        await store.users.edit(ALICE, {"enabled": False})
        await store.users.rotate(ALICE, NEW)
        await store.users.delete("7")
        assert [(await anext(messages))[1].decode() for _ in range(4)] == ["7"] * 4


async def test_totals_of_a_disabled_user_stay(make_store: MakeStore) -> None:
    store = await make_store(accounts="required")
    await store.users.add("7", ALICE)
    await store.announce(update(1, "s", passkey=ALICE))
    store.clock.now = START + 10
    await store.announce(update(1, uploaded=500, passkey=ALICE))
    await store.users.edit(ALICE, {"enabled": False})
    assert (await store.users.find("7")).uploaded == 500
    assert await store.redis.sismember(store.keys.user_set(7, "active"), "1")


async def named(store: Store, user_id: str, passkey: str) -> set[bytes]:
    """Every key of a user, from a scan of all keys."""
    beginnings = (f"{store.keys.prefix}u:{user_id}", f"{store.keys.prefix}user:{passkey}")
    return {key for key in await store.dump() if key.decode().startswith(beginnings)}


async def test_a_key_of_a_wrong_type_is_no_conflict(store: Store) -> None:
    await store.redis.set(store.keys.users(), "another program's")
    with pytest.raises(ResponseError, match="wrong type"):
        await store.users.add()
