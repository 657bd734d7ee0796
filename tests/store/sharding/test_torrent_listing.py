"""Lists of torrents: order, filters and search over one shard and over several, and how much one page may take."""

from collections.abc import Callable
from typing import Any

import pytest

from loadtest.servers import Server
from tests.store.harness import Store, endpoint, running, update
from tests.store.sharding.harness import SHARDS, hash_in
from tracker.bittorrent import InfoHash
from tracker.errors import ClientError
from tracker.store.schema.keys import Keys
from tracker.store.sharding import listing
from tracker.store.swarms.rules import SwarmRules
from tracker.store.torrents import listing as torrent_listing
from tracker.store.torrents.listing import ORDERS, Order, TorrentFilter

HASHES = [hash_in(number % SHARDS, number) for number in range(12)]
FIELDS: list[dict[str, str]] = [
    {"name": "Zoë", "size": "10", "private": "1"},
    {"name": "adam", "size": "30", "enabled": "0", "reason": "no"},
    {"name": "Eve 2", "private": "1", "enabled": "0"},
    {},
    *({"name": f"name {number}", "size": str(number)} for number in range(4, 11)),
    {"name": "name 11", "size": "11", "enabled": "pending"},
]


async def fill(store: Store) -> None:
    """Torrents 4 and 5 have seeders, 6 a leecher; 7 had a peer."""
    for number, (info_hash, fields) in enumerate(zip(HASHES, FIELDS, strict=True)):
        store.clock.now += 1
        await store.torrents.add(info_hash, {"snatches": str(number % 3), **fields})
    for number, left in ((4, 0), (4, 0), (5, 0), (6, 1), (7, 0)):
        peer = update(number, "s", info_hash=HASHES[number], bytes_left=left, endpoint=endpoint(number))
        await store.announce(peer)
    await store.announce(update(7, "x", info_hash=HASHES[7], endpoint=endpoint(7)))
    await store.torrent_listing.rank()


@pytest.fixture
async def filled(both: tuple[Store, Store]) -> tuple[Store, Store]:
    for store in both:
        await fill(store)
        store.clock.now -= len(HASHES)  # both share it
    return both


async def numbers(store: Store, count: int = 100, **wanted: Any) -> list[int]:
    """The numbers of the torrents of all pages."""
    cursor, found = "", list[InfoHash]()
    while True:
        page = await store.torrent_listing.filtered(TorrentFilter(**wanted), cursor, count)
        assert len(page.rows) <= count
        found += [torrent.info_hash for torrent in page.rows]
        if not (cursor := page.cursor):
            return [HASHES.index(each) for each in found]


SORTED: dict[Order, list[int]] = {
    "name": [1, 2, 10, 11, 4, 5, 6, 7, 8, 9, 0],
    "size": [4, 5, 6, 7, 8, 9, 0, 10, 11, 1],
    "added": list(range(12)),
}


@pytest.mark.parametrize("count", [1, 3, 100])
@pytest.mark.parametrize("order", SORTED)
async def test_torrents_are_sorted(filled: tuple[Store, Store], order: Order, count: int) -> None:
    for store in filled:
        for descending in (False, True):
            wanted, found = TorrentFilter(order, descending), list[int]()
            for offset in range(0, 13, count):
                page = await store.torrent_listing.page(wanted, offset, count)
                found += [HASHES.index(torrent.info_hash) for torrent in page.rows]
                assert (page.total, page.first) == (len(SORTED[order]), offset)
            expected = SORTED[order][::-1] if descending else SORTED[order]
            if order == "size":  # 0 and 10 have the same size: their ids decide
                found, expected = ([number % 10 for number in each] for each in (found, expected))
            assert found == expected


async def test_last_activity_orders_torrents_without_peers_before_those_with_peers(filled: tuple[Store, Store]) -> None:
    for store in filled:
        page = await store.torrent_listing.page(TorrentFilter("last_activity", descending=False))
        found = [HASHES.index(torrent.info_hash) for torrent in page.rows]
        assert found.index(7) == 8 and set(found[9:]) == {4, 5, 6}
        assert page.rows[8].empty_since and not page.rows[9].empty_since


FILTERS: list[tuple[dict[str, Any], set[int]]] = [
    ({"enabled": False}, {1, 2}),
    ({"enabled": "pending"}, {11}),
    ({"enabled": True}, {0, *range(3, 11)}),
    ({"enabled": True, "seeded": False}, {0, 3, *range(6, 11)}),
    ({"enabled": "pending", "private": True}, set()),
    ({"name": "name", "enabled": "pending"}, {11}),
    ({"private": True}, {0, 2}),
    ({"private": True, "enabled": False}, {2}),
    ({"private": False}, {1, *range(3, 12)}),
    ({"seeded": True}, {4, 5}),
    ({"seeded": False, "private": True}, {0, 2}),
    ({"seeded": True, "enabled": False}, set()),
    ({"name": "NAME"}, set(range(4, 12))),
    ({"name": "name", "seeded": True}, {4, 5}),
    ({"name": "nobody"}, set()),
]


@pytest.mark.parametrize("few", [listing.MAX_FEW, 0])
@pytest.mark.parametrize(("wanted", "found"), FILTERS)
async def test_torrents_are_filtered_and_searched(
    filled: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any], found: set[int], few: int
) -> None:
    """The same with and without the indexes of a filter, in each order, and for pages of any size."""
    monkeypatch.setattr(listing, "MAX_FEW", few)
    monkeypatch.setattr(listing, "MAX_MATCHES", few)
    monkeypatch.setattr(listing, "MATCHES_A_CALL", 2)
    for order in ORDERS:
        for descending in (False, True):
            lists = [
                await numbers(store, count, order=order, descending=descending, **wanted)
                for store in filled
                for count in (2, 100)
            ]
            assert len({frozenset(each) for each in lists}) == 1
            assert all(len(each) == len(set(each)) for each in lists)
            listed = SORTED.get("name" if "name" in wanted else order, list(range(12)))
            assert set(lists[0]) == found & set(listed)
            if order in ("name", "added") or "name" in wanted:
                backwards = descending and "name" not in wanted
                expected = [number for number in listed if number in found]
                assert lists == 4 * [expected[::-1] if backwards else expected]


async def test_the_number_and_the_place_are_known_where_an_index_tells(
    filled: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all filters by one property; for others if few fit."""
    few: list[tuple[TorrentFilter, int | None, int | None]] = [
        (TorrentFilter("added", enabled=False), 2, 1),
        (TorrentFilter("size", enabled=False), 1, 1),
        (TorrentFilter("name", private=True), 2, 1),
        (TorrentFilter("leechers", private=True, enabled=False), 1, 1),
        (TorrentFilter("seeders", seeded=False), 10, 1),
        (TorrentFilter("seeders", seeded=True), 2, 1),
        (TorrentFilter("snatches", enabled=True), 9, None),
        (TorrentFilter("size", enabled="pending"), 1, 1),
        (TorrentFilter("snatches", private=False), 10, None),
        (TorrentFilter("size", private=False), None, None),
        (TorrentFilter("added", private=False, enabled=True), None, None),
    ]
    many: list[tuple[TorrentFilter, int | None, int | None]] = [
        (TorrentFilter("added", enabled=False), 2, 1),
        (TorrentFilter("seeders", seeded=False), 10, 1),
        (TorrentFilter("leechers", enabled=False), 2, None),
        (TorrentFilter("size", enabled=False), None, None),
        (TorrentFilter("leechers", private=True, enabled=False), None, None),
    ]
    for most, expected in ((1000, few), (0, many)):
        monkeypatch.setattr(listing, "MAX_MATCHES", most)
        for store in filled:
            for wanted, total, first in expected:
                page = await store.torrent_listing.filtered(wanted, "f1", 100)
                assert (page.total, page.first) == (total, first), wanted
                if total is not None and first is not None:
                    assert (len(page.rows), page.cursor) == (total - 1, ""), wanted


@pytest.mark.parametrize(
    "wanted", [{"enabled": False, "order": "snatches"}, {"enabled": False, "order": "name", "descending": False}]
)
async def test_a_list_goes_on_although_too_many_fit_meanwhile(
    filled: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any]
) -> None:
    monkeypatch.setattr(listing, "MAX_FEW", 2)
    monkeypatch.setattr(listing, "MAX_MATCHES", 2)
    monkeypatch.setattr(listing, "MATCHES_A_CALL", 2)
    for store in filled:
        asked = TorrentFilter(**wanted)
        first = await store.torrent_listing.filtered(asked, "", 1)
        await store.torrents.edit(HASHES[9], {"enabled": "0"})
        second = await store.torrent_listing.filtered(asked, first.cursor, 100)
        listed = [HASHES.index(each.info_hash) for each in (*first.rows, *second.rows)]
        assert set(listed) >= {1, 2} and len(listed) == len(set(listed)) and second.total == 3
        assert (await store.torrent_listing.filtered(asked, "", 1)).cursor.startswith("w")


async def test_a_page_that_looks_at_too_many_torrents_ends_early(
    filled: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torrent_listing, "TORRENTS_A_CALL", 2)
    monkeypatch.setattr(torrent_listing, "TORRENTS_A_PAGE", 4)
    monkeypatch.setattr(listing, "MAX_MATCHES", 0)
    one, several = filled
    page = await one.torrent_listing.filtered(TorrentFilter("added", descending=False, seeded=True))
    assert (page.rows, page.cursor) == ([], "w4")
    for store in (one, several):
        assert await numbers(store, order="added", descending=False, seeded=True) == [4, 5]


@pytest.mark.parametrize("cursor", ["x", "w", "w1.", "f", "w1.2.3", "w9999999999999", "f-1"])
async def test_an_invalid_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(ClientError):
        await store.torrent_listing.filtered(TorrentFilter(enabled=True), cursor)


async def test_changes_of_programs_are_listed_at_once(store: Store) -> None:
    info_hash = HASHES[0]
    await store.torrent_listing.rank()
    await store.torrents.add(info_hash, {"private": "1"})
    assert await numbers(store, private=True) == [0]
    await store.torrents.edit(info_hash, {"private": "0", "enabled": "0", "size": "5"})
    assert (await numbers(store, private=True), await numbers(store, enabled=False)) == ([], [0])
    assert await store.torrent_listing.count("size") == 1
    await store.torrents.edit(info_hash, {"size": ""})
    assert await store.torrent_listing.count("size") == 0
    await store.torrents.remove(info_hash)
    assert [await store.torrent_listing.count(order) for order in ORDERS] == [0] * len(ORDERS)
    assert await numbers(store, enabled=False) == []


async def test_incomplete_indexes_are_completed_in_one_round(
    both: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade: rounds are small otherwise."""
    monkeypatch.setattr(torrent_listing, "RANKED_A_CALL", 10)
    for store in both:
        for number in range(200):
            await store.torrents.add(hash_in(number % SHARDS, number))

        async def ranked(store: Store = store, *, all_of_them: bool = False) -> int:
            for shard in store.shards:
                await shard.connection.command("DEL", shard.keys.torrent_list("added"))
            await store.torrent_listing.rank(20, all_of_them=all_of_them)
            return await store.torrent_listing.count("added")

        assert not await store.torrent_listing.is_complete()
        assert await ranked() == 200 and await store.torrent_listing.is_complete()
        if len(store.shards) == 1:  # the scan of a set as small as that of a shard here is not divided
            assert 20 <= await ranked() < 200
        assert await ranked(all_of_them=True) == 200
        await store.redis.delete(store.shard(HASHES[1]).keys.indexed())
        assert not await store.torrent_listing.is_complete()


async def test_a_ranking_of_all_torrents_pauses_and_goes_on_where_the_store_was_full(
    start_server: Callable[..., Server], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torrent_listing, "RANKED_A_CALL", 10)
    server = start_server("--appendonly", "no")
    async with running(Store(server.url, Keys(prefix), SwarmRules())) as store:
        for number in range(200):
            await store.torrents.add(hash_in(number % SHARDS, number))
        pauses: list[float] = []

        async def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 5:
                await store.redis.config_set("maxmemory", 1)

        assert not await store.torrent_listing.rank(pause=pause)
        assert len(pauses) == 5 and min(pauses) > 0 and not await store.torrent_listing.is_complete()
        await store.redis.config_set("maxmemory", 0)
        await store.redis.delete(store.keys.torrent_list("added"))
        assert await store.torrent_listing.rank(pause=pause) and await store.torrent_listing.is_complete()
        assert 0 < await store.torrent_listing.count("added") < 200


async def test_properties_are_read_from_the_rows_until_the_indexes_are_complete(filled: tuple[Store, Store]) -> None:
    """As after an upgrade: the total is unknown then. One shard is enough for that."""
    for store in filled:
        keys = store.shard(HASHES[1]).keys
        lists = [keys.torrent_list("private"), keys.torrent_list("disabled"), keys.indexed()]
        await store.redis.delete(*lists)
        for wanted, found in FILTERS:
            assert set(await numbers(store, 2, **wanted)) == found
            assert (await store.torrent_listing.filtered(TorrentFilter(**wanted))).total is None
        await store.torrent_listing.rank()
        assert (await store.torrent_listing.filtered(TorrentFilter(enabled=False))).total == 2


async def test_what_a_site_writes_is_listed_by_rounds(store: Store) -> None:
    """A key of a wrong type stops no round."""
    for info_hash in HASHES[:3]:
        await store.torrents.add(info_hash, {"private": "1"})
    keys = store.shard(HASHES[0]).keys
    await store.redis.hset(keys.torrent(HASHES[0]), mapping={"private": "0", "size": "7", "added": "x"})
    broken = store.shard(HASHES[1]).keys
    await store.redis.delete(broken.torrent(HASHES[1]))
    await store.redis.set(broken.torrent(HASHES[1]), "x")
    await store.redis.set(keys.torrent_list("active"), "x")
    await store.torrent_listing.rank()
    assert await store.torrent_listing.count("size") == 1
    assert await store.torrent_listing.count("added") == 3
    assert 0 not in await numbers(store, private=True, order="seeders")
