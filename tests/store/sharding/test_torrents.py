"""Torrents of several shards: routing, merged lists, and totals that equal those of one shard."""

import random
import re
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from loadtest.invariants import check_invariants
from tests.store.harness import Store, endpoint, update
from tests.store.sharding.harness import SHARDS, hash_in
from tracker.errors import ClientError
from tracker.store.schema.keys import MAX_SHARDS, main_prefix_of, shard_prefixes
from tracker.store.swarms.rules import SwarmRules
from tracker.store.torrents import search

ROOT, SLOTS = Path(__file__).parents[3], 16384
HASHES = [hash_in(number % SHARDS, number) for number in range(20)]


def test_prefixes_of_one_shard_and_of_several() -> None:
    assert (main_prefix_of("t:", 1), shard_prefixes("t:", 1)) == ("t:", ("t:",))
    assert main_prefix_of("t:", 4) == "t:{main}:"
    assert shard_prefixes("t:", 4) == ("t:{00adue}:", "t:{01bgro}:", "t:{02bmuk}:", "t:{03anra}:")
    assert shard_prefixes("x:", MAX_SHARDS)[255] == "x:{255bmec}:"


@pytest.mark.parametrize("shards", [2, 4, 8, 16, 32, 64, 128, 256])
def test_nodes_with_equal_ranges_have_equally_many_shards(shards: int) -> None:
    """One more at most, with 2 to 64 nodes, whose ranges are those of `redis-cli --cluster create`."""
    slots = [key_slot(each.encode()) for each in shard_prefixes("t:", shards)]
    for nodes in range(2, 65):
        ends = [0, *(round(SLOTS * node / nodes) for node in range(1, nodes)), SLOTS]
        held = [sum(first <= slot < end for slot in slots) for first, end in pairwise(ends)]
        assert sum(held) == shards
        assert max(held) - min(held) <= 1, nodes


def test_the_documents_list_the_prefixes_of_16_shards() -> None:
    """An operator reads them there, and scripts of a site need them."""
    text = (ROOT / "docs" / "redis.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"t:\{\d\d[a-z]{4}\}:(?=\s)", text[: text.index("redis-cli -c GET")]))[
        -16:
    ] == shard_prefixes("t:", 16)


async def announce_randomly(stores: tuple[Store, Store], rounds: int = 300) -> None:
    """The same announces to all stores: peers join, change, complete and leave."""
    source = random.Random(19)
    for _ in range(rounds):
        peer, left = source.randrange(40), source.choice([0, 1, 1000])
        event = source.choice("sssuucx")
        info_hash = source.choice(HASHES)
        for store in stores:
            await store.announce(update(peer, event, info_hash=info_hash, bytes_left=left, endpoint=endpoint(peer)))


async def counts_of(store: Store) -> dict[str, Any]:
    totals = await store.counters.totals()
    found = {each.info_hash: each for each in await store.torrents.get_all(HASHES)}
    return {
        "torrents": await store.torrents.count(),
        "scored": await store.scores.count(),
        "sums": (totals["seeders"], totals["leechers"]),
        "rows": {
            info_hash: (each.seeders, each.leechers, each.completions, each.announces)
            for info_hash, each in found.items()
        },
        "scrape": await store.swarms.scrape(HASHES),
        "full": await store.swarms.scrape_all(),
    }


async def test_totals_of_four_shards_equal_those_of_one(both: tuple[Store, Store]) -> None:
    await announce_randomly(both)
    one, several = both
    assert await counts_of(several) == await counts_of(one)
    active = [await check_invariants(several.redis, shard.keys) for shard in several.shards]
    assert sum(active) == await check_invariants(one.redis, one.keys)
    assert all(active)


@pytest.mark.parametrize("ranking", ["seeders", "leechers", "snatches", "score"])
@pytest.mark.parametrize("ascending", [False, True])
async def test_rankings_are_merged(both: tuple[Store, Store], ranking: str, ascending: bool) -> None:
    await announce_randomly(both, 100)
    ranked = []
    for store in both:
        found = [await store.torrents.top(ranking, 6, offset, ascending=ascending) for offset in (0, 6, 12, 18, 24)]
        torrents = [torrent for page in found for torrent in page]
        assert len({torrent.info_hash for torrent in torrents}) == await store.torrents.count()
        ranked.append([getattr(torrent, "completions" if ranking == "snatches" else ranking) for torrent in torrents])
    assert ranked[0] == ranked[1]


async def test_a_torrent_lives_in_the_shard_of_its_first_byte(store: Store) -> None:
    for info_hash in HASHES[:4]:
        torrent_id, new = await store.torrents.add(info_hash, {"name": "some name"})
        assert new and int(torrent_id) % MAX_SHARDS == info_hash[0] % SHARDS
        (shard,) = [
            shard
            for shard in store.shards
            if await store.redis.exists(shard.keys.info_hash(info_hash), shard.keys.torrent(info_hash))
        ]
        assert shard is store.shard(info_hash) is store.shards[info_hash[0] % SHARDS]
    assert not [key async for key in store.redis.scan_iter(f"{store.keys.prefix}*")]


async def test_calls_for_one_torrent_reach_its_shard(store: Store) -> None:
    info_hash = hash_in(2)
    torrent_id, _ = await store.torrents.add(info_hash)
    await store.torrents.edit(info_hash, {"name": "Name"})
    await store.announce(update(1, "s", info_hash=info_hash))
    torrent = await store.torrents.get(info_hash)
    assert torrent is not None and (torrent.name, torrent.leechers) == ("Name", 1)
    assert await store.torrents.by_ids(["5", torrent_id]) == [torrent]
    assert len((await store.torrents.peers(torrent))[1]) == 1
    await store.torrents.deny(info_hash, "why")
    assert [denial.info_hash for denial in await store.torrents.denials()] == [info_hash]
    assert await store.torrents.denial_count() == 1
    assert await store.torrents.allow(info_hash)
    assert await store.torrents.remove(info_hash)
    assert await store.torrents.unregistered([hash_in(1), info_hash]) == [hash_in(1), info_hash]


async def test_an_id_that_a_site_gave_is_found_in_any_shard(store: Store) -> None:
    """Its remainder names another shard, or none."""
    info_hash, shard = hash_in(3), store.shards[3]
    await store.redis.set(shard.keys.info_hash(info_hash), 257)
    await store.announce(update(1, "s", info_hash=info_hash))
    (torrent,) = await store.torrents.by_ids(["257"])
    assert torrent.info_hash == info_hash
    assert await store.scores.of(["257", "1"]) == [1.0, None]
    assert await store.torrents.add(info_hash, reset_score=True) == ("257", False)


async def test_many_torrents_are_added_in_the_order_asked(store: Store) -> None:
    wanted = [(info_hash, {"name": f"name {n}"}) for n, info_hash in enumerate(HASHES)]
    wanted.insert(3, (HASHES[0], {"enabled": "maybe"}))
    outcomes = await store.torrents.add_many(wanted)
    assert [isinstance(each, ClientError) for each in outcomes] == [n == 3 for n in range(21)]
    assert [torrent.name for torrent in await store.torrents.get_all(HASHES[::-1])] == [
        f"name {n}" for n in reversed(range(20))
    ]
    assert await store.torrents.registered([*HASHES, hash_in(0, 99)]) == set(HASHES)


async def test_a_walk_visits_the_torrents_of_all_shards(store: Store) -> None:
    await store.torrents.add_many([(info_hash, {}) for info_hash in HASHES])
    found, cursor = [], 0
    while True:
        cursor, page = await store.torrents.page(cursor, 2)
        found += [torrent.info_hash for torrent in page]
        if not cursor:
            break
    assert sorted(found) == sorted(HASHES)


async def test_a_search_goes_through_all_shards(store: Store) -> None:
    await store.torrents.add_many(
        [(info_hash, {"name": f"{'odd' if n % 2 else 'even'} {n}"}) for n, info_hash in enumerate(HASHES)]
    )
    found, cursor, pages = [], "", 0
    while True:
        cursor, page = await store.torrents.search("odd", 3, cursor)
        found += [torrent.name for torrent in page]
        pages += 1
        if not cursor:
            break
        assert len(page) == 3
    assert sorted(found) == sorted(f"odd {n}" for n in range(1, 20, 2))
    (named,) = (await store.torrents.search(HASHES[7].hex()))[1]
    assert named.info_hash == HASHES[7]
    for invalid in ("9-n0", "n0", "0-x", "-"):
        with pytest.raises(ClientError):
            await store.torrents.search("odd", 3, invalid)


async def all_pages(store: Store, text: str, count: int) -> list[list[str]]:
    """The names of each page of a search."""
    pages, cursor = list[list[str]](), ""
    while True:
        cursor, found = await store.torrents.search(text, count, cursor)
        pages.append([torrent.name for torrent in found])
        if not cursor:
            return pages


@pytest.mark.parametrize("at_once", [1, 30, 1000])
async def test_pages_of_a_search_are_full_however_many_names_are_searched_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(search, "NAMES_AT_ONCE", at_once)
    wanted = [
        (hash_in(number % 3 % SHARDS, number), {"name": f"{'odd' if number % 2 else 'even'} {number:02}"})
        for number in range(50)
    ]
    await store.torrents.add_many(wanted)
    for count in (1, 4, 25, 100):
        pages = await all_pages(store, "odd", count)
        assert sorted(name for page in pages for name in page) == [f"odd {n:02}" for n in range(1, 50, 2)]
        assert [len(page) for page in pages[:-1]] == [count] * (len(pages) - 1)
    assert await all_pages(store, "neither", 10) == [[]]


async def test_a_search_looks_at_a_bounded_number_of_names_for_a_page(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.torrents.add_many([(info_hash, {"name": f"name {n}"}) for n, info_hash in enumerate(HASHES)])
    monkeypatch.setattr(search, "NAMES_A_PAGE", 10)
    monkeypatch.setattr(search, "NAMES_AT_ONCE", 5)
    assert await all_pages(store, "neither", 10) == [[], []]  # five names in each shard
    pages = await all_pages(store, "name", 100)
    assert [len(page) for page in pages] == [10, 10]


async def test_a_denial_that_a_site_deleted_leaves_the_list(store: Store) -> None:
    for number, info_hash in enumerate(HASHES):
        store.clock.now += 1
        await store.torrents.deny(info_hash, f"reason {number}")
    await store.redis.delete(store.shard(HASHES[3]).keys.deny(HASHES[3]))
    found = await store.torrents.denials(15, 10)
    assert [denial.reason for denial in found] == ["reason 4", "reason 2", "reason 1", "reason 0"]
    assert await store.torrents.denial_count() == len(HASHES) - 1


@pytest.mark.parametrize(("since", "shown"), [("inf", 2**53), ("-inf", 0), ("1.5", 1)])
async def test_a_denial_with_an_odd_time_is_listed(store: Store, since: str, shown: int) -> None:
    await store.torrents.deny(HASHES[3], "spam")
    keys = store.shard(HASHES[3]).keys
    await store.redis.zadd(keys.denied(), {HASHES[3].hex(): since})
    assert [denial.since for denial in await store.torrents.denials()] == [shown]


def test_limits_over_all_torrents_are_divided() -> None:
    """S8. But no limit falls below that of one swarm or one peer, and no limit becomes 0, which means none."""
    rules = SwarmRules(
        max_torrents=3,
        new_per_address_hour=10_000,
        max_per_network_in_swarm=50,
        max_per_network=100,
        max_credit=10,
        max_user_credit=20,
        max_downloads=8,
        lists_at_once=300,
        lists_per_minute=60,
        lists_per_day=20_000,
    )
    few, many = rules.of_shard(4), rules.of_shard(256)
    assert (few.max_torrents, few.new_per_address_hour, few.max_downloads) == (1, 2500, 2)
    assert (few.max_per_network, few.max_user_credit) == (50, 10)
    assert (many.max_torrents, many.new_per_address_hour, many.max_downloads) == (1, 40, 1)
    assert (few.lists_at_once, few.lists_per_minute, few.lists_per_day) == (75, 15, 5000)
    assert (many.lists_at_once, many.lists_per_minute, many.lists_per_day) == (4, 1, 79)
    assert SwarmRules().of_shard(4).max_per_network == inf
    assert SwarmRules().of_shard(4).max_downloads == SwarmRules().of_shard(4).max_changes == 0
    assert SwarmRules().of_shard(4).lists_at_once == SwarmRules().of_shard(4).lists_per_day == 0


async def test_changed_rules_reach_the_shards(store: Store) -> None:
    store.use_rules(replace(store.rules.current, open=False))
    assert await store.refused(update(1, "s", info_hash=HASHES[5])) == "unknown torrent"
