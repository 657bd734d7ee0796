"""Registered torrents: adding, editing, removing, denying, listing (rows T2, T3, T20, B6)."""

import asyncio

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import START, Store, endpoint, info_hash, peer_id, update
from tracker.errors import ClientError
from tracker.store.torrents.torrents import TORRENTS_A_CALL, Point, Torrent

WEEK = 604_800


async def test_a_new_torrent_gets_an_id_and_a_place_in_the_rankings(store: Store) -> None:
    assert await store.torrents.add(info_hash(1), {"name": "größer", "private": "1"}) == ("1", True)
    torrent = await found(store, 1)
    assert (torrent.torrent_id, torrent.name, torrent.private, torrent.enabled) == ("1", "größer", True, True)
    assert torrent.registered and torrent.denied is None
    assert await store.redis.get(store.keys.torrent_id(1)) == info_hash(1).hex().encode()
    assert await store.torrents.top("seeders", 9) == [torrent]
    await check_invariants(store.redis, store.keys)


COUNTS = {"announces": "0", "leechers": "0", "seeders": "0", "snatches": "0"}


async def test_a_torrent_has_all_four_counts_from_its_registration(make_store: MakeStore) -> None:
    """It is registered by the API, the command line, or its first announce in open mode. If a site writes only the id,
    the first announce adds the counts."""
    store = await make_store()
    await store.torrents.add(info_hash(1))
    assert (await store.torrent(info_hash(1))).items() >= COUNTS.items()
    for torrent in (2, 3):
        if torrent == 3:
            await store.redis.set(store.keys.info_hash(info_hash(3)), "77")
        await store.announce(update(1, "s", torrent))
        first = await store.torrent(info_hash(torrent))
        assert COUNTS.keys() <= first.keys()
        assert (first["leechers"], first["seeders"], first["snatches"]) == ("1", "0", "0")


async def test_a_torrent_says_when_it_was_registered(make_store: MakeStore) -> None:
    """It stays with a new id. What a site wrote counts from its first announce; a second registration counts anew."""
    store = await make_store()
    await store.torrents.add(info_hash(1))
    await store.announce(update(1, "s", 2))
    await store.redis.set(store.keys.info_hash(info_hash(3)), "77")
    store.clock.now += 10.5
    await store.announce(update(1, "s", 3))
    await store.redis.set(store.keys.info_hash(info_hash(1)), "99")
    await store.torrents.add(info_hash(1))
    assert [(await found(store, n)).added for n in (1, 2, 3)] == [START, START, START + 10]
    store.clock.now += 10
    await store.torrents.remove(info_hash(2))
    assert (await store.torrents.add(info_hash(2)))[1]
    assert (await found(store, 2)).added == START + 20


async def test_counts_are_kept_when_the_id_changes(make_store: MakeStore) -> None:
    store = await make_store()
    await store.announce(update(1, "s"))
    await store.announce(update(1, "c", bytes_left=0))
    await store.announce(update(1, "x", bytes_left=0))
    before = await store.torrent(info_hash(1))
    await store.redis.set(store.keys.info_hash(info_hash(1)), "99")
    await store.torrents.add(info_hash(1))
    after = await store.torrent(info_hash(1))
    assert after["tid"] == "99"
    assert {name: after[name] for name in COUNTS} == {name: before[name] for name in COUNTS}
    assert after["snatches"] == "1"


async def test_a_known_torrent_keeps_its_id_and_its_counts(store: Store) -> None:
    """B6: adding it again sets the given fields only."""
    await store.torrents.add(info_hash(1), {"name": "one", "multi_up": "2"})
    await store.announce(update(1, "s"))
    await store.announce(update(1, "c", bytes_left=0, downloaded=1000))
    await store.announce(update(2, "s"))
    await store.announce_counts.flush()
    assert await store.torrents.add(info_hash(1), {"name": "two"}) == ("1", False)
    torrent = await found(store, 1)
    assert (torrent.seeders, torrent.leechers, torrent.completions, torrent.announces) == (1, 1, 1, 3)
    assert (torrent.name, torrent.fields["multi_up"]) == ("two", "2")
    assert await check_invariants(store.redis, store.keys) == 2


async def test_concurrent_additions_give_one_id(store: Store) -> None:
    added = await asyncio.gather(*(store.torrents.add(info_hash(1)) for _ in range(20)))
    assert {torrent_id for torrent_id, _ in added} == {"1"}
    assert sum(new for _, new in added) == 1
    assert await store.torrents.add(info_hash(2)) == ("2", True)


async def test_adding_a_self_registered_torrent_keeps_it(make_store: MakeStore) -> None:
    """It loses the flag ``auto``, so the sweep does not remove it."""
    store = await make_store()
    await store.announce(update(1, "s"))
    await store.announce(update(1, "x"))
    assert (await store.torrent(info_hash(1)))["auto"] == "1"
    assert await store.torrents.add(info_hash(1)) == ("1", False)
    store.clock.now += 2 * WEEK
    assert (await store.reaping.sweep(["1"], "", 200)).forgotten == 0
    assert (await found(store, 1)).registered


async def test_adding_does_not_disturb_a_swarm_whose_id_a_site_changed(make_store: MakeStore) -> None:
    """Peers keep the id they joined with until they leave."""
    store = await make_store(open=False)
    await store.redis.set(store.keys.info_hash(info_hash(1)), "5")
    await store.announce(update(1, "s"))
    await store.redis.set(store.keys.info_hash(info_hash(1)), "6")
    assert await store.torrents.add(info_hash(1)) == ("6", False)
    assert (await store.torrent(info_hash(1)))["tid"] == "5"
    assert await check_invariants(store.redis, store.keys) == 1
    await store.announce(update(1, "x"))
    assert await store.torrents.add(info_hash(1)) == ("6", False)
    assert (await store.torrent(info_hash(1)))["tid"] == "6"
    await check_invariants(store.redis, store.keys)


async def test_a_torrent_added_again_while_it_has_peers_keeps_its_id(store: Store) -> None:
    await store.torrents.add(info_hash(1))
    await store.announce(update(1, "s"))
    await store.torrents.remove(info_hash(1))
    assert await store.torrents.add(info_hash(1)) == ("1", True)
    assert await check_invariants(store.redis, store.keys) == 1


async def test_an_invalid_id_is_reported(store: Store) -> None:
    await store.redis.set(store.keys.info_hash(info_hash(1)), "abc")
    before = await store.dump()
    with pytest.raises(ClientError, match="remove it first"):
        await store.torrents.add(info_hash(1))
    assert await store.dump() == before
    assert await store.torrents.remove(info_hash(1))
    assert await store.torrents.add(info_hash(1)) == ("1", True)


@pytest.mark.parametrize(
    "fields",
    [
        {"seeders": "5"},
        {"auto": "1"},
        {"enabled": "yes"},
        {"private": ""},
        {"multi_up": "-1"},
        {"multi_up": "nan"},
        {"multi_up": "1e3"},
        {"multi_up": "1001"},
        {"multi_up": "1_0"},
        {"multi_up": "١"},  # a digit to Python, but not to Lua
        {"multi_dn": "2", "tid": "9"},
        {"size": "-1"},
        {"size": "1.5"},
        {"size": "٢"},
        {"size": str(2**53)},
        {"labels": "Films"},
        {"labels": "a/b"},
        {"labels": "x" * 33},
        {"labels": " ".join(f"l{n}" for n in range(21))},
    ],
)
async def test_fields_are_checked_before_any_write(store: Store, fields: dict[str, str]) -> None:
    await store.torrents.add(info_hash(1))
    before = await store.dump()
    with pytest.raises(ClientError):
        await store.torrents.edit(info_hash(1), fields)
    with pytest.raises(ClientError):
        await store.torrents.add(info_hash(2), fields)
    assert await store.dump() == before


async def test_an_edit_keeps_the_other_fields(store: Store) -> None:
    await store.torrents.add(info_hash(1), {"name": "n", "multi_dn": "0"})
    await store.torrents.edit(info_hash(1), {"enabled": "0", "reason": "x" * 5000})
    torrent = await found(store, 1)
    assert (torrent.name, torrent.fields["multi_dn"], torrent.enabled) == ("n", "0", False)
    assert torrent.reason == "x" * 1000
    await store.torrents.edit(info_hash(1), {})
    with pytest.raises(ClientError, match="unknown torrent"):
        await store.torrents.edit(info_hash(2), {"name": "n"})


async def test_a_torrent_has_a_size_and_labels(store: Store) -> None:
    await store.torrents.add(info_hash(1), {"size": str(2**53 - 1), "labels": "films, 4k  films x_1.0-b"})
    torrent = await found(store, 1)
    assert (torrent.size, torrent.labels) == (2**53 - 1, ("films", "4k", "x_1.0-b"))
    await store.torrents.edit(info_hash(1), {"size": "0"})
    assert ((await found(store, 1)).size, (await found(store, 1)).labels) == (0, torrent.labels)
    await store.torrents.edit(info_hash(1), {"size": "", "labels": ""})
    assert ((await found(store, 1)).size, (await found(store, 1)).labels) == (None, ())


@pytest.mark.parametrize("size", ["", "x", "-1", "1e3", "9" * 17, str(2**53), "9" * 5000, "٣"])
async def test_an_invalid_size_of_a_site_is_unknown(store: Store, size: str) -> None:
    await store.torrents.add(info_hash(1))
    await store.redis.hset(store.keys.torrent(info_hash(1)), "size", size)
    assert (await found(store, 1)).size is None


@pytest.mark.parametrize(
    ("written", "labels"),
    [
        ("Films,4K", ("films", "4k")),
        ("a/b <b> ok \x00", ("ok",)),
        ("x" * 33 + " y", ("y",)),
        pytest.param(" ".join(f"l{n}" for n in range(100_000)), tuple(f"l{n}" for n in range(20)), id="many labels"),
    ],
)
async def test_invalid_labels_of_a_site_are_left_out(store: Store, written: str, labels: tuple[str, ...]) -> None:
    await store.torrents.add(info_hash(1))
    await store.redis.hset(store.keys.torrent(info_hash(1)), "labels", written)
    assert (await found(store, 1)).labels == labels


async def test_removing_an_empty_torrent_leaves_no_key(store: Store) -> None:
    await store.announce(update(7, "s", torrent=7))
    before = (await store.dump()).keys()
    await store.torrents.add(info_hash(1), {"name": "n"})
    await store.announce(update(1, "s"))
    await store.announce(update(1, "x"))
    assert await store.torrents.remove(info_hash(1))
    left = {key.decode().removeprefix(store.keys.prefix) for key in (await store.dump()).keys() - before}
    assert all(key.startswith("due:") for key in left), left  # the list of its timeout expires by itself
    assert not await store.torrents.remove(info_hash(1))
    assert await store.torrents.get(info_hash(1)) is None
    await check_invariants(store.redis, store.keys)


async def test_a_removed_torrent_is_deleted_some_time_after_its_last_peer(make_store: MakeStore) -> None:
    """Registered mode: its peers are refused and removed, and the sweep removes the rest."""
    store = await make_store(open=False, forget_after=WEEK)
    await store.torrents.add(info_hash(2))
    before = (await store.dump()).keys()
    await store.torrents.add(info_hash(1))
    for number in (1, 2):
        await store.announce(update(number, "s"))
    assert await store.torrents.remove(info_hash(1))
    assert await store.refused(update(1)) == "unknown torrent"
    assert await check_invariants(store.redis, store.keys) == 2
    assert not (await found(store, 1)).registered
    assert await store.reaping.remove([f"torrent:{info_hash(1).hex()}"]) == 2
    assert (await store.reaping.sweep(["2"], "", 200)).forgotten == 0
    store.clock.now += WEEK
    step = await store.reaping.sweep(["1", "2"], "", 200)
    assert (step.forgotten, step.repairs) == (1, 0)
    left = {key.decode().removeprefix(store.keys.prefix) for key in (await store.dump()).keys() - before}
    assert all(key.startswith(("due:", "stats:")) for key in left), left
    assert await store.torrents.get(info_hash(1)) is None


async def test_a_denial_applies_at_once_and_can_be_removed(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.torrents.deny(info_hash(1), "taken down: " + "x" * 5000)
    await store.torrents.deny(info_hash(2), "")
    assert await store.refused(update(1)) == await store.refused(update(1, torrent=2)) == "denied"
    assert (await found(store, 1)).denied == ("taken down: " + "x" * 5000)[:1000]
    denied = await found(store, 2)
    assert (denied.denied, denied.registered, denied.torrent_id) == ("", False, "")
    assert await store.torrents.allow(info_hash(1))
    assert not await store.torrents.allow(info_hash(1))
    assert (await store.announce(update(1))).outcome == "update"


async def test_every_change_is_published(store: Store) -> None:
    """T23."""
    async with store.connection.subscription(channels=[store.keys.channel("torrents")]) as messages:
        await store.torrents.add(info_hash(1))
        await store.torrents.edit(info_hash(1), {"name": "n"})
        await store.torrents.deny(info_hash(1), "no")
        await store.torrents.allow(info_hash(1))
        await store.torrents.remove(info_hash(1))
        for _ in range(5):
            assert (await anext(messages))[1] == info_hash(1).hex().encode()


async def test_pages_hold_every_torrent_without_the_keys_command(store: Store) -> None:
    """T20: 2,000 torrents, read in pages of about 300."""
    await store.torrents.add_many([(info_hash(n), {}) for n in range(2000)])
    await store.redis.config_resetstat()
    seen: set[bytes] = set()
    cursor, pages = 0, 0
    while True:
        cursor, torrents = await store.torrents.page(cursor, 300)
        seen |= {torrent.info_hash for torrent in torrents}
        pages += 1
        if not cursor:
            break
    assert seen == {info_hash(n) for n in range(2000)}
    assert 4 <= pages <= 10
    stats = await store.redis.info("commandstats")
    assert "cmdstat_keys" not in stats and "cmdstat_scan" not in stats
    assert stats["cmdstat_zscan"]["calls"] == pages


async def test_rankings_are_sorted(store: Store) -> None:
    for torrent in (1, 2, 3):
        for number in range(torrent):
            await store.announce(update(10 * torrent + number, "s", torrent=torrent, bytes_left=0))
    top = await store.torrents.top("seeders", 2)
    assert [(t.torrent_id, t.seeders) for t in top] == [("3", 3), ("2", 2)]
    assert [t.torrent_id for t in await store.torrents.top("seeders", 2, offset=2)] == ["1"]
    assert await store.torrents.top("seeders", 2, offset=3) == []


async def test_peers_are_listed_with_every_endpoint(store: Store) -> None:
    v6 = endpoint(1, v6=True)
    await store.announce(update(1, "s", key=b"k" * 8, bytes_left=0))
    await store.announce(update(1, key=b"k" * 8, bytes_left=0, endpoint=v6))
    await store.announce(update(2, "p", endpoint=endpoint(2, v6=True)))
    await store.announce(update(3, "s", bytes_left=None))
    cursor, peers = await store.torrents.peers(await found(store, 1))
    assert cursor == 0
    by_id = {peer.peer_id: peer for peer in peers}
    assert by_id.keys() == {peer_id(n) for n in (1, 2, 3)}
    assert by_id[peer_id(1)].endpoints == (endpoint(1), v6) and by_id[peer_id(1)].seeding
    assert by_id[peer_id(2)].endpoints == (endpoint(2, v6=True),) and not by_id[peer_id(2)].seeding
    assert by_id[peer_id(3)].fields["first_announce"] == str(START)
    assert not by_id[peer_id(3)].fields.keys() & {"key", "endpoints"}


async def test_peers_are_listed_in_pages(store: Store) -> None:
    for number in range(300):
        await store.announce(update(number, "s"))
    torrent, seen, cursor = await found(store, 1), set(), 0
    while True:
        cursor, peers = await store.torrents.peers(torrent, cursor, 50)
        assert len(peers) < 200
        seen |= {peer.peer_id for peer in peers}
        if not cursor:
            break
    assert seen == {peer_id(n) for n in range(300)}
    assert await store.torrents.peers(Torrent(info_hash(9), "9", True)) == (0, [])


async def found(store: Store, number: int) -> Torrent:
    torrent = await store.torrents.get(info_hash(number))
    assert torrent is not None
    return torrent


# Lists


async def test_a_ranking_is_read_from_either_end(store: Store) -> None:
    for number, peers in ((1, 2), (2, 0), (3, 1)):
        await store.torrents.add(info_hash(number))
        for peer in range(peers):
            await store.announce(update(peer, "s", number))
    most = [torrent.leechers for torrent in await store.torrents.top("leechers", 9)]
    least = [torrent.leechers for torrent in await store.torrents.top("leechers", 9, ascending=True)]
    assert (most, least) == ([2, 1, 0], [0, 1, 2])
    assert [t.leechers for t in await store.torrents.top("leechers", 1, 1, ascending=True)] == [1]
    assert await store.torrents.count() == 3
    with pytest.raises(ClientError):
        await store.torrents.top("processed", 9)


async def test_denials_are_listed_newest_first(store: Store) -> None:
    for number in (1, 2, 3):
        await store.torrents.deny(info_hash(number), f"reason {number}")
        store.clock.now += 10
    await store.torrents.deny(info_hash(1), "another reason")
    denials = await store.torrents.denials()
    assert [(d.info_hash, d.reason, d.since) for d in denials] == [
        (info_hash(3), "reason 3", START + 20),
        (info_hash(2), "reason 2", START + 10),
        (info_hash(1), "another reason", START),
    ]
    assert await store.torrents.denials(1, 1) == denials[1:2]
    assert await store.torrents.denial_count() == 3
    assert await store.torrents.allow(info_hash(2))
    assert not await store.torrents.allow(info_hash(2))
    assert await store.torrents.denials() == [denials[0], denials[2]]
    assert await store.torrents.denial_count() == 2


async def test_a_denial_written_by_a_site_applies_at_once_and_is_listed_after_a_sweep(store: Store) -> None:
    """T3. A denial that the site deletes is removed from the list when the list is read."""
    await store.announce(update(1, "s"))
    await store.redis.set(store.keys.deny(info_hash(1)), "the site's reason")
    assert await store.refused(update(2, "s")) == "denied"
    assert await store.torrents.denials() == []
    await store.reaping.sweep(["1"], "", 200)
    assert [denial.reason for denial in await store.torrents.denials()] == ["the site's reason"]
    await store.redis.delete(store.keys.deny(info_hash(1)))
    assert await store.torrents.denials() == []
    assert await store.torrents.denial_count() == 0
    await store.announce(update(2, "s"))


async def test_an_invalid_denial_is_not_listed(store: Store) -> None:
    await store.redis.zadd(store.keys.denied(), {b"\xff:nonsense": 1, "0" * 39: 2})
    await store.torrents.deny(info_hash(1), "")
    assert [denial.info_hash for denial in await store.torrents.denials()] == [info_hash(1)]


async def test_torrents_with_invalid_fields_are_shown_as_far_as_possible(store: Store) -> None:
    for number in (1, 2, 3):
        await store.torrents.add(info_hash(number))
    redis, keys = store.redis, store.keys
    await redis.hset(keys.torrent(info_hash(1)), mapping={"seeders": "9" * 5000, "leechers": "²", b"\xff": b"\xff"})
    await redis.set(keys.torrent_id(2), "no info hash")
    await redis.delete(keys.torrent(info_hash(3)))
    await redis.set(keys.torrent(info_hash(3)), "no hash")
    shown = await store.torrents.top("snatches", 9)
    assert {torrent.info_hash for torrent in shown} == {info_hash(1), info_hash(3)}
    assert {(torrent.seeders, torrent.leechers) for torrent in shown} == {(0, 0)}


# History


async def test_a_history_is_read_oldest_first_without_invalid_points(store: Store) -> None:
    await store.torrents.add(info_hash(1))
    torrent = await found(store, 1)
    assert await store.torrents.history(torrent) == []
    entries = [f"{START} 1 2 3 1.2", "", "x", "1 2 3 4", "1 2 3 4 nan", "9" * 5000, f"{START + 60} 0 0 3 0"]
    await store.redis.rpush(store.keys.history(1), *entries)
    assert await store.torrents.history(torrent) == [Point(START, 1, 2, 3, 1.2), Point(START + 60, 0, 0, 3, 0.0)]


@pytest.mark.parametrize(("again", "most"), [(False, 21), (True, 9)])
async def test_a_torrent_of_a_batch_takes_few_commands(store: Store, again: bool, most: int) -> None:
    """A batch of 1,000 is to take at most 100 ms of the tracker's and the store's time."""
    batch = [
        (info_hash(n), {"name": f"torrent {n}", "private": "1", "size": str(n), "snatches": "5"})
        for n in range(1, TORRENTS_A_CALL + 1)
    ]
    for _ in range(1 + again):
        await store.redis.config_resetstat()
        await store.torrents.add_many(batch)
    assert await store.torrents.count() == len(batch)
    stats = await store.redis.info("commandstats")
    taken = sum(row["calls"] for row in stats.values())
    assert len(batch) * 5 < taken < len(batch) * most
