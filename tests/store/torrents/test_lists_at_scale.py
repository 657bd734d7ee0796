"""Lists of 100,000 torrents: every store call is short (row T20)."""

import hashlib
from typing import Any

import pytest

from tests.store.conftest import MakeStore
from tests.store.harness import Store
from tracker.bittorrent import InfoHash
from tracker.names import fold_name
from tracker.store.torrents.search import NAMES_A_CALL
from tracker.store.torrents.torrents import RANKINGS

MANY = 100_000
SLOW_MICROSECONDS = 20_000
TRIES = 5
"""On a busy machine any call is slow sometimes. A call that does too much is slow in every try."""


def hashed(number: int) -> InfoHash:
    return InfoHash(hashlib.sha1(b"%d" % number, usedforsecurity=False).digest())


def name(number: int) -> str:
    return f"Release {number:06} of Something, 1080p" if number % 2 else ""


FILL = """
for i = 2, #ARGV, 4 do
  local P, tid, ih, name, folded = KEYS[1], ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  redis.call('SET', P .. 'info_hash:' .. ih, tid)
  redis.call('SET', P .. 'torrent_id:' .. tid, ih)
  redis.call('HSET', P .. 't:' .. ih, 'tid', tid)
  if name ~= '' then
    redis.call('HSET', P .. 't:' .. ih, 'name', name, 'listed', folded)
    redis.call('ZADD', P .. 'i:name', 0, folded .. '\\t' .. ih)
  end
  for _, index in ipairs({ 'seeders', 'leechers', 'snatches' }) do redis.call('ZADD', P .. 'i:' .. index, 0, tid) end
  redis.call('ZADD', P .. 'i:info_hash', string.format('%.0f', tonumber(string.sub(ih, 1, 13), 16)), tid)
  redis.call('ZADD', P .. 'i:score', 1, tid)
  redis.call('ZADD', P .. 'i:processed', ARGV[1], tid)
end
"""
"""Adds many torrents at a time, with the same keys as add.lua. The last test compares them by cleanup and reindex."""


async def fill(store: Store, many: int = MANY) -> None:
    """Half of the torrents have a name."""
    for first in range(0, many, 500):
        rows: list[str] = []
        for number in range(first, first + 500):
            rows += (str(number + 1), hashed(number).hex(), name(number), fold_name(name(number)))
        await store.redis.eval(FILL, 1, store.keys.prefix, int(store.clock.now), *rows)


async def calls(store: Store) -> dict[str, int]:
    """Calls of each command since the last reset."""
    stats: dict[str, Any] = await store.redis.info("commandstats")
    return {command.removeprefix("cmdstat_"): row["calls"] for command, row in stats.items()}


async def slow_calls(store: Store) -> list[Any]:
    return [entry["command"] for entry in await store.redis.slowlog_get(10)]


async def read_all_lists(store: Store) -> None:
    torrents = store.torrents
    for figure in RANKINGS:
        for ascending in (False, True):
            for offset in (0, MANY // 2, MANY - 100):
                assert len(await torrents.top(figure, 100, offset, ascending=ascending)) == 100
    assert len((await torrents.search("SOMETHING", 100))[1]) == 100
    assert [t.name for t in (await torrents.search("release 099999"))[1]] == [name(99_999)]
    assert await torrents.search("no such thing") == ("", [])
    assert {t.info_hash for t in (await torrents.search(hashed(5).hex()[:9]))[1]} == {hashed(5)}
    cursor, found = await torrents.search("a", 100, "0-h5000")
    assert cursor and len(found) == 100
    cursor, found = await torrents.search("", 100, "0-n49950")
    assert (cursor, len(found)) == ("", 50)
    assert await torrents.count() == MANY


@pytest.mark.long
@pytest.mark.serial
@pytest.mark.timeout(600)
async def test_no_call_is_slow_with_many_torrents(make_store: MakeStore) -> None:
    store = await make_store()
    await fill(store)
    await store.redis.config_set("slowlog-log-slower-than", SLOW_MICROSECONDS)
    slow: list[Any] = []
    for _ in range(TRIES):
        await store.redis.slowlog_reset()
        await read_all_lists(store)
        slow = await slow_calls(store)
        if not slow:
            break
    assert not slow

    await store.redis.config_resetstat()
    assert await store.torrents.search("no such thing") == ("", [])
    counted = await calls(store)
    assert counted["evalsha"] == counted["zrange"] == MANY // 2 // NAMES_A_CALL
    await store.redis.config_resetstat()
    await read_all_lists(store)
    counted = await calls(store)
    assert not counted.keys() & {"keys", "scan", "zscan", "sscan", "hscan", "smembers", "sort", "zrangebyscore"}


@pytest.mark.long
async def test_cleanup_and_reindex_find_nothing_in_a_large_store(make_store: MakeStore) -> None:
    store = await make_store()
    await fill(store, MANY // 5)
    await store.redis.config_resetstat()
    assert await store.maintenance.cleanup() == []
    counted = await calls(store)
    assert counted["scan"] >= 100 and "keys" not in counted and "unlink" not in counted
    assert await store.maintenance.reindex() == []
