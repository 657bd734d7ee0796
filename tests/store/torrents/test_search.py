"""Searching torrents by name and by info hash, and how they enter the lists (rows T3, T20)."""

import asyncio
from typing import Any

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import Store, info_hash, timeout_key, update
from tracker.bittorrent import InfoHash
from tracker.errors import ClientError
from tracker.names import NAME_CHARACTERS, fold, fold_name
from tracker.store.torrents import search, torrents
from tracker.store.torrents.search import Search

WEEK = 604_800


async def names(store: Store, text: str, count: int = 100) -> list[str]:
    """The names of all results, page by page."""
    return [torrent.name for torrent in await everything(store, text, count)]


async def everything(store: Store, text: str, count: int = 100) -> list[Any]:
    found: list[Any] = []
    cursor = ""
    while True:
        cursor, page = await store.torrents.search(text, count, cursor)
        assert len(page) <= count
        found += page
        if not cursor:
            return found


async def register(store: Store, *all_names: str) -> None:
    for number, name in enumerate(all_names, 1):
        await store.torrents.add(info_hash(number), {"name": name})


async def sweep(store: Store) -> None:
    _, ids = await store.reaping.page(0, 1000)
    await store.reaping.sweep(ids, "", 200)


def hashed(start: str, number: int = 0) -> InfoHash:
    """An info hash that begins with the given hex digits."""
    return InfoHash(bytes.fromhex(start.ljust(32, "7") + f"{number:08x}"))


# Names


async def test_a_part_of_a_name_finds_it_in_any_case(store: Store) -> None:
    await register(store, "Debian 12 netinst", "Große Ärzte", "ubuntu 24.04", "ДЕБИАН", "Ｄｅｂｉａｎ wide")
    assert await names(store, "DEBIAN") == ["Debian 12 netinst", "Ｄｅｂｉａｎ wide"]
    assert await names(store, "12 NET") == ["Debian 12 netinst"]
    assert await names(store, "GROSSE ä") == ["Große Ärzte"]
    assert await names(store, "дебиан") == ["ДЕБИАН"]
    assert await names(store, "fedora") == []


async def test_pattern_characters_match_literally(store: Store) -> None:
    await register(store, "100% [tested] a*b ?.%d", "plain")
    for text in ("100%", "[tested]", "a*b", "?", "%d", "."):
        assert await names(store, text) == ["100% [tested] a*b ?.%d"], text
    assert await names(store, "[a-z]") == []


async def test_names_are_sorted_and_an_empty_text_finds_all(store: Store) -> None:
    await register(store, "b", "C", "a", "", "ab")
    await store.torrents.add(info_hash(99))
    assert await names(store, "") == ["a", "ab", "b", "C"]
    assert await names(store, "", count=1) == ["a", "ab", "b", "C"]


async def test_separators_within_names_are_one_space(store: Store) -> None:
    await register(store, "  two \t\r\n words\u3000here ")
    assert len(await names(store, "two words here")) == 1
    assert len(await names(store, "two\nwords")) == 1
    assert fold_name("\t\n ") == "" and fold("a\tb") == "a b"


async def test_a_changed_name_is_found_and_the_old_one_is_not(store: Store) -> None:
    await register(store, "before")
    await store.torrents.edit(info_hash(1), {"name": "After"})
    assert (await names(store, "before"), await names(store, "after")) == ([], ["After"])
    await store.torrents.add(info_hash(1), {"name": "again"})
    assert (await names(store, "after"), await names(store, "again")) == ([], ["again"])
    await store.torrents.edit(info_hash(1), {"multi_up": "2"})
    assert await names(store, "again") == ["again"]
    await store.torrents.edit(info_hash(1), {"name": ""})
    assert await names(store, "") == []
    assert "listed" not in await store.torrent(info_hash(1))
    await check_invariants(store.redis, store.keys)


async def test_a_long_name_is_found_by_its_first_255_characters(store: Store) -> None:
    await register(store, "ß" * 300 + "needle", "x" * (NAME_CHARACTERS - 6) + "needle")
    assert await names(store, "needle") == ["x" * 249 + "needle"]
    assert len(await names(store, "s" * 255)) == 1
    await sweep(store)
    assert len(await names(store, "s" * 255)) == 1


async def test_a_removed_torrent_is_not_found(store: Store) -> None:
    await register(store, "one", "two")
    await store.torrents.remove(info_hash(1))
    assert await names(store, "") == ["two"]
    assert await everything(store, info_hash(1).hex()[:39]) == await everything(store, info_hash(2).hex()[:39])
    await check_invariants(store.redis, store.keys)


async def test_a_removed_torrent_with_peers_is_found_until_it_is_forgotten(store: Store) -> None:
    await register(store, "one")
    await store.announce(update(1, "s"))
    await store.torrents.remove(info_hash(1))
    (torrent,) = await everything(store, "one")
    assert not torrent.registered
    await store.announce(update(1, "x"))
    await store.redis.delete(store.keys.info_hash(info_hash(1)))
    store.clock.now += WEEK
    await sweep(store)
    assert await everything(store, "one") == []
    assert await store.torrents.count() == 0
    assert not await store.redis.exists(f"{store.keys.prefix}i:name", store.keys.info_hashes())


# Names written by a site


async def test_a_name_written_by_a_site_is_found_after_a_sweep(store: Store) -> None:
    await register(store, "Old Name", "", "third")
    key = store.keys.torrent
    await store.redis.hset(key(info_hash(1)), "name", "NEW Ünïcode")
    await store.redis.hset(key(info_hash(2)), "name", b"\xff broken \xc3")
    await store.redis.hdel(key(info_hash(3)), "name")
    await sweep(store)
    assert await names(store, "new ün") == ["NEW Ünïcode"]
    assert await names(store, "broken") == ["\ufffd broken \ufffd"]
    assert await names(store, "old") == await names(store, "third") == []
    await check_invariants(store.redis, store.keys)


async def test_a_huge_name_written_by_a_site_is_cut(store: Store) -> None:
    await register(store, "x")
    await store.redis.hset(store.keys.torrent(info_hash(1)), "name", "€" * 100_000)
    await sweep(store)
    (entry,) = await store.redis.zrange(f"{store.keys.prefix}i:name", 0, -1)
    assert len(entry.decode()) == NAME_CHARACTERS + 41
    assert len(await everything(store, "€€")) == 1


async def test_a_sweep_writes_no_correct_entry_again(store: Store) -> None:
    """Names with letters beyond ASCII are checked again, and nothing is written."""
    await register(store, "ÄÖÜ", "plain", "")
    before = await store.dump()
    await sweep(store)
    assert await store.dump() == before


async def test_a_sweep_adds_lists_to_an_older_store(store: Store) -> None:
    await register(store, "One", "Two", "")
    await store.torrents.deny(info_hash(2), "no")
    redis, keys = store.redis, store.keys
    whole = await store.dump()
    await redis.delete(f"{keys.prefix}i:name", keys.info_hashes(), keys.denied())
    for number in (1, 2):
        await redis.hdel(keys.torrent(info_hash(number)), "listed")
    await sweep(store)
    assert await names(store, "o") == ["One", "Two"]
    assert [denial.reason for denial in await store.torrents.denials()] == ["no"]
    assert (await store.dump()).keys() == whole.keys()
    await check_invariants(redis, keys)


async def test_lists_of_the_wrong_type_refuse_no_peer_and_no_torrent(make_store: MakeStore) -> None:
    store = await make_store()
    for key in (f"{store.keys.prefix}i:name", store.keys.info_hashes()):
        await store.redis.set(key, "another program's")
    await store.announce(update(1, "s"))
    await store.torrents.add(info_hash(2), {"name": "n"})
    await store.redis.delete(timeout_key(store.keys, 1, update(1).peer_id))
    _, ids = await store.reaping.page(0, 100)
    assert (await store.reaping.sweep(ids, "", 200)).reaped == 1
    assert await store.torrents.remove(info_hash(2))
    assert await store.torrents.get(info_hash(2)) is None


async def test_a_name_changed_while_it_was_folded_is_kept(store: Store) -> None:
    await register(store, "first")
    await store.redis.hset(store.keys.torrent(info_hash(1)), "name", "second")
    stale: list[str | bytes | int | float] = [int(store.clock.now), info_hash(1).hex(), "1", "first", "first"]
    await store.scripts.index(stale)
    await store.torrents.edit(info_hash(1), {"name": "third"})
    await store.scripts.index(stale)
    assert await names(store, "third") == ["third"] and await names(store, "first") == []


# Info hashes


async def test_the_beginning_of_an_info_hash_finds_its_torrent(store: Store) -> None:
    for number, start in enumerate(("abcdef", "abcdee", "abc0", "b")):
        await store.torrents.add(hashed(start), {"name": f"n{number}"})
    for text, found in {
        "abcdef": ["n0"],
        "ABCDE": ["n1", "n0"],
        " abcd ": ["n1", "n0"],
        hashed("abc0").hex(): ["n2"],
        hashed("b").hex()[:39]: ["n3"],
        "abce": [],
        "f" * 40: [],
        "f" * 41: [],
    }.items():
        assert await names(store, text) == found, text


async def test_info_hashes_with_equal_scores_are_told_apart(store: Store) -> None:
    """Clients may register such hashes: they differ in their last digits."""
    for number in range(30):
        await store.announce(update(1, "s", info_hash=hashed("abcd", number)))
    (one,) = await everything(store, hashed("abcd", 17).hex()[:39] + "1")
    assert one.info_hash == hashed("abcd", 17)
    sixteen = await everything(store, hashed("abcd", 16).hex()[:39], count=3)
    assert {t.info_hash for t in sixteen} == {hashed("abcd", n) for n in range(16, 30)}
    assert len(await everything(store, "abcd", count=7)) == 30
    await check_invariants(store.redis, store.keys)


@pytest.mark.parametrize("edge", ["0" * 40, "f" * 40])
async def test_the_first_and_the_last_info_hash_are_found(store: Store, edge: str) -> None:
    await store.torrents.add(InfoHash(bytes.fromhex(edge)))
    for length in (1, 12, 13, 14, 39, 40):
        assert [t.info_hash.hex() for t in await everything(store, edge[:length])] == [edge]


async def test_a_torrent_found_by_name_and_hash_comes_once_and_hashes_come_first(store: Store) -> None:
    await store.torrents.add(hashed("beef"), {"name": "Beef"})
    await store.torrents.add(hashed("1"), {"name": "more BEEF"})
    await store.torrents.add(hashed("beef1"))
    assert [t.name for t in await everything(store, "beef")] == ["", "Beef", "more BEEF"]
    assert [t.name for t in await everything(store, "beef", count=1)] == ["", "Beef", "more BEEF"]
    assert [t.name for t in await everything(store, "be")] == ["more BEEF", "", "Beef"]
    assert [t.name for t in await everything(store, "be", count=1)] == ["more BEEF", "", "Beef"]


async def test_a_whole_info_hash_finds_a_torrent_that_is_in_no_list(store: Store) -> None:
    """Registered by a site and not announced yet, or only denied."""
    await store.redis.set(store.keys.info_hash(info_hash(5)), "5")
    await store.torrents.deny(info_hash(6), "no")
    assert [t.torrent_id for t in await everything(store, info_hash(5).hex())] == ["5"]
    assert [t.denied for t in await everything(store, info_hash(6).hex())] == ["no"]


@pytest.mark.parametrize("cursor", ["x", "h", "h-1", "n1n", "n" + "9" * 13, "h0", "\u0661", "n\u0661"])
async def test_an_invalid_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(ClientError):
        await store.torrents.search("no hash", 10, cursor)


async def test_a_cursor_beyond_the_end_returns_nothing(store: Store) -> None:
    await register(store, "one")
    assert await store.torrents.search("one", 10, "0-n500") == ("", [])
    assert await store.torrents.search("abcd", 10, "0-h500") == ("", [])
    assert await store.torrents.search("abcd", 0) == ("0-", [])


# Large lists


async def test_a_page_checks_a_bounded_number_of_names_and_continues(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "NAMES_A_CALL", 3)
    monkeypatch.setattr(search, "NAMES_A_PAGE", 9)
    await register(store, *(f"name {number:02}" for number in range(25)))
    await store.torrents.edit(info_hash(25), {"name": "the last"})

    def search_for(text: str) -> Search:
        return Search(store.shards[0], text)

    assert await search_for("last").page(5, "") == ("n9", [])
    assert await search_for("last").page(5, "n9") == ("n18", [])
    assert await search_for("last").page(5, "n18") == ("", [info_hash(25)])
    cursor, found = await search_for("name").page(4, "")
    while cursor:
        cursor, more = await search_for("name").page(4, cursor)
        found += more
    assert found == [info_hash(number) for number in range(1, 25)]


async def test_names_may_change_during_a_search(store: Store) -> None:
    await register(store, *(f"name {number:02}" for number in range(40)))
    cursor, first = await store.torrents.search("name", 10)
    await asyncio.gather(*(store.torrents.remove(info_hash(number)) for number in range(20, 30)))
    rest: list[Any] = []
    while cursor:
        cursor, page = await store.torrents.search("name", 10, cursor)
        rest += page
    assert len(first) + len(rest) == 30


async def test_concurrent_searches_are_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search through all names occupies the store and delays announces."""
    await store.torrents.add(info_hash(1), {"name": "one"})
    found_by, running, max_running = search.search_shards, 0, 0

    async def counted(*args: Any) -> tuple[str, list[InfoHash]]:
        nonlocal running, max_running
        running += 1
        max_running = max(max_running, running)
        try:
            return await found_by(*args)
        finally:
            running -= 1

    monkeypatch.setattr(torrents, "search_shards", counted)
    answers = await asyncio.gather(*(store.torrents.search("one", 10) for _ in range(20)))
    assert all(len(found) == 1 for _, found in answers)
    assert max_running == torrents.SEARCHES_AT_ONCE
