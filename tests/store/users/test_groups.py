"""Groups of users: rules that apply from the next announce of all users of a group."""

from typing import Any

import pytest

from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, START, Store, info_hash, update
from tracker.errors import ClientError
from tracker.store.schema.multipliers import Multiplier
from tracker.store.swarms.codec import JoinedWithMultipliers, PeerUpdate, WithoutSlot
from tracker.store.users.rules import MAX_GROUPS, Group


def alice(peer: int = 1, event: str = "u", torrent: int = 1, **changes: Any) -> PeerUpdate:
    return update(peer, event, torrent, passkey=ALICE, **changes)


async def credited(store: Store, peer: int) -> tuple[int, int]:
    """What 1000 bytes each way add to the totals of user 7."""
    before = await store.users.find("7")
    await store.announce(alice(peer, "s"))
    store.clock.now += 10
    await store.announce(alice(peer, uploaded=1000, downloaded=1000))
    after = await store.users.find("7")
    return after.uploaded - before.uploaded, after.downloaded - before.downloaded


async def test_a_group_is_saved_changed_and_deleted(private: Store) -> None:
    groups = private.groups
    assert await groups.all() == []
    assert await groups.save(20, {"name": "vip", "download_multiplier": "0", "may_announce": True})
    assert await groups.save(3, {"name": "banned", "may_announce": "0"})
    assert not await groups.save(20, {"max_downloads": 8, "hnr_exempt": True})
    free = (Multiplier(0.0),)
    assert await groups.all() == [
        Group(3, "banned", may_announce=False),
        Group(20, "vip", max_downloads=8, download_multiplier=free, hnr_exempt=True),
    ]
    await groups.save(20, {"max_downloads": -1, "name": ""})
    assert await groups.get(20) == Group(20, download_multiplier=free, hnr_exempt=True)
    await groups.save(20, {"name": "plain"}, replace=True)
    assert await groups.get(20) == Group(20, "plain")
    assert await groups.delete(20) and not await groups.delete(20)
    assert await groups.delete(3) and await groups.all() == []


@pytest.mark.parametrize("fields", [{"color": "1"}, {"max_downloads": "many"}, {"upload_multiplier": "-1"}])
async def test_an_invalid_field_changes_nothing(private: Store, fields: dict[str, str]) -> None:
    with pytest.raises(ClientError):
        await private.groups.save(1, fields)
    assert await private.groups.all() == []


async def test_the_number_of_groups_is_limited(private: Store) -> None:
    for group_id in range(1, MAX_GROUPS + 1):
        await private.groups.save(group_id, {})
    with pytest.raises(ClientError, match="at most"):
        await private.groups.save(MAX_GROUPS + 1, {})
    assert not await private.groups.save(1, {"name": "known"})


async def test_multipliers_of_the_group_stand_beside_the_others(private: Store) -> None:
    """The best counts; a change applies from the next announce, and so does another group of the user."""
    await private.torrents.add(info_hash(1), {"multi_dn": "0.75"})
    await private.users.edit(ALICE, {"group": 5, "upload_multiplier": "2"})
    assert await credited(private, 1) == (2000, 750)
    await private.groups.save(5, {"upload_multiplier": "3", "download_multiplier": "0.5"})
    assert await credited(private, 2) == (3000, 500)
    joined = await private.announce(alice(9, "s"))
    assert isinstance(joined, JoinedWithMultipliers)
    assert (joined.upload_multiplier, joined.download_multiplier) == ("3", "0.5")
    await private.groups.save(5, {"upload_multiplier": "1.5", "download_multiplier": f"0 {START + 60}, 0.9"})
    assert await credited(private, 3) == (2000, 0)
    private.clock.now = START + 60
    assert await credited(private, 4) == (2000, 750)
    await private.torrents.edit(info_hash(1), {"multi_up": "0", "multi_dn": "0"})
    assert await credited(private, 5) == (0, 0), "the torrent is neutral"
    await private.torrents.edit(info_hash(1), {"multi_up": "1", "multi_dn": "1"})
    await private.groups.save(6, {"upload_multiplier": "9"})
    await private.users.edit(ALICE, {"group": 6})
    assert await credited(private, 6) == (9000, 1000)
    await private.groups.delete(6)
    assert await credited(private, 7) == (2000, 1000)


async def test_a_group_applies_to_regular_announces_and_to_its_own_users_only(private: Store) -> None:
    """Both users announce in one call, so what was read for one must not serve the other."""
    await private.groups.save(5, {"upload_multiplier": "3"})
    await private.users.edit(ALICE, {"group": 5})
    await private.announce_together(alice(1, "s", bytes_left=0), update(2, "s", passkey=BOB, bytes_left=0))
    private.clock.now += 1800
    both = (alice(1, uploaded=10, bytes_left=0), update(2, passkey=BOB, uploaded=10, bytes_left=0))
    await private.announce_together(*both)
    assert [(await private.users.find(who)).uploaded for who in ("7", "8")] == [30, 10]


async def test_a_group_that_may_not_announce_is_refused(private: Store) -> None:
    """Also regular announces; a peer may still stop, and the sweep removes the others."""
    await private.users.edit(ALICE, {"group": 5})
    for peer in (1, 2):
        await private.announce(alice(peer, "s", bytes_left=0))
    await private.groups.save(5, {"may_announce": False})
    private.clock.now += 100
    assert await private.refused(alice(1, bytes_left=0)) == "group may not announce"
    assert await private.refused(alice(3, "s")) == "group may not announce"
    assert (await private.announce(alice(1, "x"))).outcome == "leave"
    assert (await private.reaping.sweep(["1"], "", 100)).done == 1
    assert (await private.torrent(info_hash(1)))["seeders"] == "0"
    await private.groups.save(5, {"may_announce": True})
    assert (await private.announce(alice(3, "s"))).outcome == "join"


async def test_a_group_that_may_not_download_seeds(private: Store) -> None:
    """Its downloads are refused from the next announce on."""
    await private.users.edit(ALICE, {"group": 5})
    await private.announce(alice(1, "s"))
    await private.announce(alice(2, "s", bytes_left=0))
    await private.groups.save(5, {"can_leech": False})
    private.clock.now += 1800
    for sent in (0, 10):
        assert await private.refused(alice(1, uploaded=sent)) == "may not leech"
        assert (await private.announce(alice(2, bytes_left=0, uploaded=sent))).outcome == "update"
    assert await private.refused(alice(3, "s")) == "may not leech"
    assert (await private.announce(alice(1, "x"))).outcome == "leave"


async def test_a_group_spares_its_users_hit_and_runs(make_store: MakeStore) -> None:
    store = await make_store(accounts="required", hnr_min_bytes=10, hnr_threshold=3600, peer_memory=3600)
    await store.users.add("7", ALICE, group=5)
    for torrent, exempt in ((1, True), (2, False)):
        await store.groups.save(5, {"hnr_exempt": exempt})
        await store.announce(alice(torrent, "s", torrent, bytes_left=1000))
        store.clock.now += 10
        await store.announce(alice(torrent, "u", torrent, downloaded=1000, bytes_left=0))
        await store.announce(alice(torrent, "x", torrent, downloaded=1000, bytes_left=0))
    assert await store.torrents_of("7", "hnr") == ["2"]


@pytest.mark.parametrize(("own", "of_group", "allowed"), [("", "1", 1), ("3", "1", 3), ("", "0", 4), ("", "-1", 2)])
async def test_slots_of_the_user_come_before_those_of_the_group(
    make_store: MakeStore, own: str, of_group: str, allowed: int
) -> None:
    store = await make_store(accounts="required", max_downloads=2)
    await store.users.add("7", ALICE, group=5, max_downloads=own)
    await store.groups.save(5, {"max_downloads": of_group})
    for torrent in range(1, allowed + 1):
        await store.announce(alice(1, "s", torrent))
    if allowed < 4:
        assert await store.refused(alice(1, "s", allowed + 1)) == "too many downloads"


async def test_a_download_beyond_the_slots_may_be_answered_without_peers(make_store: MakeStore) -> None:
    store = await make_store(accounts="required", max_downloads=1, warn_beyond_downloads=True)
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    await store.announce(alice(1, "s", 1))
    await store.announce(update(2, "s", 2, passkey=BOB, bytes_left=0))
    before = await store.dump()
    reply = await store.announce(alice(1, "s", 2))
    assert isinstance(reply, WithoutSlot)
    assert (reply.seeders, reply.leechers, reply.peers) == (1, 0, b"")
    assert await store.dump() == before
    await store.announce(alice(1, "x", 1))
    joined = await store.announce(alice(1, "u", 2))
    assert (joined.outcome, len(joined.peers)) == ("join", 6)


async def test_peers_of_a_hidden_user_are_in_no_reply(private: Store) -> None:
    """They are counted, and come back; those of others stay."""
    await private.announce(alice(1, "s", bytes_left=0))
    await private.announce(update(2, "s", passkey=BOB, bytes_left=0))
    await private.users.add("9", "c" * 20)

    async def told(peer: int, event: str, **changes: Any) -> tuple[int, int]:
        reply = await private.announce(update(peer, event, passkey="c" * 20, **changes))
        return reply.seeders, len(reply.peers) // 6

    assert await told(3, "s") == (2, 2)
    await private.groups.save(5, {"name": "vip"})
    await private.users.edit(ALICE, {"visible": False})
    assert not (await private.users.find("7")).visible
    assert await told(4, "s") == (2, 1)
    private.clock.now += 1800
    assert await told(3, "u") == (2, 1)
    await private.users.edit(BOB, {"visible": "0"})
    assert await told(4, "u") == (2, 0)
    await private.users.edit(ALICE, {"visible": True})
    assert await told(3, "u") == (2, 1)
    await private.user_import.save([{"user_id": "8", "visible": "1"}])
    assert await told(4, "u") == (2, 2)
    assert await private.groups.all() == [Group(5, "vip")]
    await private.users.delete("8")
    await private.groups.delete(5)
    assert await private.redis.get(private.keys.groups()) == b""


@pytest.mark.parametrize(
    "text", ["x", "[]", "[1]", '"5"', '{"5":7}', '{"5":{"upload_multiplier":7,"may_announce":false}}', "{", "null"]
)
async def test_text_that_is_no_groups_fails_no_announce(private: Store, text: str) -> None:
    await private.users.edit(ALICE, {"group": 5})
    await private.redis.set(private.keys.groups(), text)
    assert await credited(private, 1) == (1000, 1000)
    assert [group.group_id for group in await private.groups.all()] in ([], [5])
    for group_id in (5, 6):
        await private.groups.save(group_id, {"name": "works"}, replace=True)
        assert await private.groups.get(group_id) == Group(group_id, "works")
    await private.users.edit(ALICE, {"visible": False})
    await private.groups.delete(5)


async def test_a_group_of_a_wrong_type_fails_no_announce(private: Store) -> None:
    await private.users.edit(ALICE, {"group": 5})
    await private.redis.hset(private.keys.groups(), "x", "1")
    assert await credited(private, 1) == (1000, 1000)


async def test_a_user_with_broken_keys_is_not_immune_and_hides_no_other(private: Store) -> None:
    """Rows for a site's tables: one that failed would stop the others."""
    await private.groups.save(3, {"hnr_exempt": True})
    await private.users.edit(ALICE, {"group": 3})
    for user_id, key in (("8", private.keys.passkey(BOB)), ("9", private.keys.user("9"))):
        await private.redis.delete(key)
        await private.redis.set(key, f"of {user_id}")
    rows = [{"user_id": number} for number in (7, 8, 9)]
    await private.site_rows.note_immune(rows)
    assert [row["immune"] for row in rows] == [True, False, False]
