"""Which announces of `completed` count as a snatch (row T7): those of leechers, once a day for a peer of a public
torrent."""

from typing import Any

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, Store, endpoint, info_hash, update

DAY = 86400


async def complete(store: Store, peer: int, **changes: Any) -> int:
    """A leecher joins, downloads and sends `completed`; returns the number of completions afterwards."""
    await store.announce(update(peer, "s", **changes))
    store.clock.now += 10
    done = update(peer, "c", bytes_left=0, downloaded=1000, **changes)
    return (await store.announce(done)).completions


@pytest.mark.parametrize("passkey", ["", ALICE])
@pytest.mark.parametrize("first", ["s", "c"])
async def test_a_seeder_that_sends_completed_at_each_start_is_no_snatch(
    store: Store, private: Store, passkey: str, first: str
) -> None:
    """WebTorrent's client does, with `downloaded` as large as the torrent."""
    one = private if passkey else store
    for start in range(3):
        said: dict[str, Any] = {"bytes_left": 0, "passkey": passkey, "peer_id": update(10 + start).peer_id}
        for event in (first, "c"):
            reply = await one.announce(update(1, event, downloaded=1000 * (event == "c"), **said))
            assert reply.completions == 0
        await one.announce(update(1, "x", **{**said, "bytes_left": 16384}))
    assert await one.redis.zscore(one.keys.index("snatches"), "1") == 0


@pytest.mark.parametrize("passkey", ["", ALICE])
async def test_a_leecher_that_has_all_counts_once_without_completed_too(
    store: Store, private: Store, passkey: str
) -> None:
    """The announce of the completion may have been lost."""
    one = private if passkey else store
    await one.announce(update(1, "s", passkey=passkey))
    for event in ("u", "u", "c", "c"):
        done = update(1, event, bytes_left=0, downloaded=1000, passkey=passkey)
        assert (await one.announce(done)).completions == 1
    if passkey:
        assert (await one.users.find("7")).snatches == 1
        assert int(await one.redis.hget(one.keys.user_torrent("7", "1"), "completed_at")) == int(one.clock.now)


@pytest.mark.parametrize("passkey", ["", ALICE])
async def test_a_leecher_that_stops_with_all_counts(store: Store, private: Store, passkey: str) -> None:
    one = private if passkey else store
    await one.announce(update(1, "s", passkey=passkey))
    assert (await one.announce(update(1, "x", bytes_left=0, passkey=passkey))).outcome == "leave"
    assert (await one.torrent(info_hash(1)))["snatches"] == "1"
    assert await check_invariants(one.redis, one.keys) == 0
    await one.announce(update(1, "s", bytes_left=0, passkey=passkey))
    assert (await one.announce(update(1, "c", bytes_left=0, passkey=passkey))).completions == 1


@pytest.mark.parametrize(("left", "completions"), [(500, 1), (0, 0)])
async def test_a_user_who_comes_back_with_all_counts(private: Store, left: int, completions: int) -> None:
    """Unless the peer had all when it left."""
    await private.announce(update(1, "s", passkey=ALICE, bytes_left=left))
    await private.announce(update(1, "x", passkey=ALICE, bytes_left=left))
    back = update(1, "s", passkey=ALICE, bytes_left=0)
    assert (await private.announce(back)).completions == completions


async def test_a_leecher_with_unknown_bytes_left_counts(store: Store) -> None:
    await store.announce(update(1, "s", bytes_left=None))
    assert (await store.announce(update(1, "c", bytes_left=0))).completions == 1


@pytest.mark.parametrize("ending", ["stopped", "timed out and stopped"])
async def test_a_seeder_that_stops_without_its_left_has_all_when_it_comes_back(private: Store, ending: str) -> None:
    await private.announce(update(1, "s", passkey=ALICE, bytes_left=0))
    if ending != "stopped":
        assert await private.silence(update(1)) == 1
    await private.announce(update(1, "x", passkey=ALICE, bytes_left=None, uploaded=10))
    assert (await private.announce(update(1, "u", passkey=ALICE, bytes_left=0, uploaded=10))).completions == 0


@pytest.mark.parametrize("same", ["peer id", "endpoint", "both"])
@pytest.mark.parametrize("ending", ["stop", "reap"])
async def test_a_peer_that_completes_twice_within_a_day_is_one_snatch(store: Store, same: str, ending: str) -> None:
    """Public mode forgets a peer that leaves. It is recognised by its endpoint or by its peer ID."""
    assert await complete(store, 1) == 1
    if ending == "stop":
        await store.announce(update(1, "x", bytes_left=0))
    else:
        assert await store.silence(update(1)) == 1
    others: dict[str, dict[str, Any]] = {
        "peer id": {"endpoint": endpoint(2)},
        "endpoint": {"peer_id": update(2).peer_id},
        "both": {},
    }
    other = others[same]
    assert await complete(store, 1, **other) == 1
    await store.announce(update(1, "x", bytes_left=0, **other))
    store.clock.now += DAY
    assert await complete(store, 1, **other) == 2


async def test_completions_of_other_peers_count(store: Store) -> None:
    """Neighbours behind one address have different ports."""
    for peer in range(1, 6):
        assert await complete(store, peer, endpoint=endpoint(1, port=7000 + peer)) == peer
    assert await complete(store, 1, torrent=2) == 1


async def test_the_last_64_completions_are_kept(store: Store) -> None:
    for peer in range(1, 66):
        assert await complete(store, peer) == peer
        await store.announce(update(peer, "x", bytes_left=0))
    held = await store.redis.hget(store.keys.torrent(info_hash(1)), "completions")
    assert len(held) == 64 * 28
    assert await complete(store, 2) == 65, "still kept"
    await store.announce(update(2, "x", bytes_left=0))
    assert await complete(store, 1) == 66, "the first of 65 is forgotten"
    store.clock.now += DAY
    await complete(store, 70)
    assert len(await store.redis.hget(store.keys.torrent(info_hash(1)), "completions")) == 28


@pytest.mark.parametrize("held", ["", "x", "z" * 28, "0" * 28, "f" * 5000, "\u00e9" * 100])
async def test_invalid_remembered_completions_stop_no_count(store: Store, held: str) -> None:
    await store.announce(update(9, "s"))
    await store.redis.hset(store.keys.torrent(info_hash(1)), "completions", held)
    assert await complete(store, 1) == 1
    assert await check_invariants(store.redis, store.keys) == 2


async def test_a_user_who_was_a_leecher_counts_under_another_peer_id(private: Store) -> None:
    await private.announce(update(1, "s", passkey=ALICE))
    await private.announce(update(1, "x", passkey=ALICE))
    await private.announce(update(2, "s", passkey=ALICE, bytes_left=0))
    assert (await private.announce(update(3, "c", passkey=BOB, bytes_left=0))).completions == 0
    assert (await private.announce(update(2, "c", passkey=ALICE, bytes_left=0))).completions == 1
    assert (await private.users.find("7")).snatches == 1
    assert (await private.users.find("8")).snatches == 0


async def test_a_leecher_of_a_former_tracker_counts(private: Store) -> None:
    """The site brought the user's incomplete download along."""
    await private.announce(update(1, "s", passkey=BOB))
    assert await private.user_history.save([{"user_id": "7", "torrent_id": "1", "downloaded": 5}]) == [True]
    done = update(2, "c", passkey=ALICE, bytes_left=0)
    assert (await private.announce(done)).completions == 1


async def complete_as(store: Store, user_id: int, torrent: int = 1) -> None:
    passkey = f"{user_id:020}"
    await store.redis.hset(store.keys.passkey(passkey), mapping={"user_id": user_id})
    await store.announce(update(user_id, "s", torrent, passkey=passkey))
    store.clock.now += 10
    await store.announce(update(user_id, "c", torrent, passkey=passkey, bytes_left=0, downloaded=1000))


async def completers(store: Store, torrent: int = 1) -> list[tuple[str, int]]:
    found = await store.torrents.get(info_hash(torrent))
    assert found is not None
    return await store.torrents.completers(found)


async def test_the_last_twenty_users_who_completed_a_torrent_are_known(private: Store) -> None:
    for number in range(101, 146):
        await complete_as(private, number)
        assert await private.redis.zcard(private.keys.completed(1)) < 40
    now = int(private.clock.now)
    assert await completers(private) == [(str(145 - n), now - 10 * n) for n in range(20)]
    await private.announce(update(145, "c", passkey=f"{145:020}", bytes_left=0))  # counts no second snatch
    assert (await completers(private))[0] == ("145", now)


async def test_completers_stay_few_where_others_complete_the_torrent_too(make_store: MakeStore) -> None:
    """Every second completion, and so each twentieth, is anonymous."""
    store = await make_store(accounts="optional", peer_memory=3600)
    for number in range(101, 180):
        await complete_as(store, number)
        await store.announce(update(1000 + number, "s"))
        await store.announce(update(1000 + number, "c", bytes_left=0))
        assert await store.redis.zcard(store.keys.completed(1)) <= 40
    assert [user for user, _ in await completers(store)] == [str(179 - n) for n in range(20)]


async def test_a_deleted_user_is_no_completer(private: Store) -> None:
    for number in (101, 102):
        await complete_as(private, number)
    await private.users.delete(f"{101:020}")
    assert [user for user, _ in await completers(private)] == ["102"]


async def test_a_public_torrent_notes_no_completer(store: Store) -> None:
    await complete(store, 1)
    assert await completers(store) == []
    assert not await store.redis.exists(store.keys.completed(1))


async def test_completers_are_removed_with_the_torrent(private: Store) -> None:
    await complete_as(private, 101)
    await private.announce(update(101, "x", passkey=f"{101:020}", bytes_left=0))
    await private.torrents.remove(info_hash(1))
    assert not await private.redis.exists(private.keys.completed(1))


async def test_completers_of_a_wrong_type_stop_no_count(private: Store) -> None:
    await private.redis.set(private.keys.completed(1), "x")
    await complete_as(private, 101)
    found = await private.torrents.get(info_hash(1))
    assert found is not None and found.completions == 1
