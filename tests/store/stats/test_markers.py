"""Peers take precedence over statistics: a nearly full store gets no markers, and refused joins delete markers."""

from collections.abc import AsyncIterator, Callable

import pytest

from loadtest.invariants import check_invariants
from loadtest.servers import Server
from tests.store.harness import START, Store, info_hash, running, update
from tracker.store.schema.keys import Keys
from tracker.store.stats.markers import Markers
from tracker.store.stats.memory_usage import read_usage
from tracker.store.stats.metric_names import place_names
from tracker.store.stats.slices import month_of
from tracker.store.stats.unique_users import UniqueUserEvent, UniqueUsers
from tracker.store.swarms.codec import Refused
from tracker.store.swarms.rules import SwarmRules

LONDON = place_names("United Kingdom", "London", "SW1A")
METRIC = "countries.United_Kingdom.users"


@pytest.fixture
async def own(start_server: Callable[..., Server]) -> AsyncIterator[Store]:
    """A server for this test alone, with one torrent."""
    server = start_server("--appendonly", "no")
    async with running(Store(server.url, Keys("t:"), SwarmRules())) as store:
        await store.torrents.add(info_hash(1))
        yield store


async def limit(store: Store, share: float) -> None:
    """A maxmemory of which the given share is used."""
    used = (await read_usage(store.connection)).used
    await store.redis.config_set("maxmemory", int(used / share))


def unique_users(store: Store) -> UniqueUsers:
    return UniqueUsers(store.shards)


def events_of(first: int, number: int) -> list[UniqueUserEvent]:
    """Invented addresses."""
    return [UniqueUserEvent(info_hash(1), f"10.0.{n // 250}.{n % 250}", LONDON) for n in range(first, first + number)]


async def markers(store: Store) -> int:
    return len([key async for key in store.redis.scan_iter("t:*.users.*.*.*.*", 1000)])


async def test_above_four_fifths_no_new_user_is_counted_and_nothing_is_written(own: Store) -> None:
    users = unique_users(own)
    await users.count(events_of(0, 10), START)
    assert await markers(own) == 70
    before = await own.dump()
    await limit(own, 0.85)
    users = unique_users(own)
    assert await users.count([*events_of(0, 4), *events_of(50, 6)], START + 5) == 0
    assert users.skipped == 6  # users counted before are not affected
    assert await own.dump() == before
    await limit(own, 0.7)
    users = unique_users(own)
    assert await users.count(events_of(50, 6), START + 6) == 6
    assert users.skipped == 0


async def test_a_flood_of_addresses_leaves_room_for_joins(own: Store) -> None:
    """Markers of invented addresses once filled the store, and every join was refused until they expired."""
    await own.announce(update(100, "s"))  # the server keeps the announce script from now on
    await limit(own, 0.5)
    users = unique_users(own)
    for first in range(0, 8000, 64):
        users._memory[own.shards.main]._read_at = None  # a second has passed
        await users.count(events_of(first, 64), START)
    usage = await read_usage(own.connection)
    assert users.skipped > 1000 and 0.75 < usage.share < 0.9
    for number in range(100):
        assert (await own.announce(update(number, "s"))).outcome == "join"
    assert await check_invariants(own.redis, own.keys) == 101


async def full_of_markers(store: Store) -> None:
    """As an earlier version left it: joins are refused."""
    users = unique_users(store)
    for first in range(0, 4000, 64):
        await users.count(events_of(first, 64), START)
    await limit(store, 1.02)
    assert isinstance(await store.swarms.announce(update(1, "s")), Refused)


async def test_deleting_markers_makes_room_and_flags_the_counts(own: Store) -> None:
    """Markers are deleted in small steps, no more than needed. Counts stay, and are flagged as too high."""
    await full_of_markers(own)
    figure, before = await own.unique_users.users_of(METRIC), await markers(own)
    pages = [so_far async for so_far in Markers(own.shards, own.clock).make_room()]
    assert pages == sorted(pages) and 0 < pages[-1] < before
    assert await markers(own) == before - pages[-1]
    assert (await read_usage(own.connection)).share < 0.8
    assert (await own.announce(update(1, "s"))).outcome == "join"
    assert await own.unique_users.users_of(METRIC) == figure
    assert await own.unique_users.users_of(METRIC, month_of(START)) == figure
    for period in ("all", month_of(own.clock.now), month_of(own.clock.now + 30 * 86_400)):
        assert await own.unique_users.may_exceed(period) == pages[-1]
    assert await own.unique_users.may_exceed("2020-01") == 0
    assert await own.unique_users.top("countries") == [("United_Kingdom", figure)]
    assert await check_invariants(own.redis, own.keys) == 1


@pytest.mark.serial
async def test_no_call_occupies_the_store_longer_than_a_slice(own: Store) -> None:
    """Announces run between the calls. The slow log lists commands that took longer than a millisecond; on a busy
    machine there may be a few."""
    await full_of_markers(own)
    await own.redis.config_set("slowlog-log-slower-than", 1000)
    await own.redis.execute_command("SLOWLOG", "RESET")
    calls = len([_ async for _ in Markers(own.shards, own.clock).make_room()])
    slow = await own.redis.execute_command("SLOWLOG", "LEN")
    assert calls > 10 and slow <= calls // 5


async def test_nothing_is_deleted_while_there_is_room(own: Store) -> None:
    await unique_users(own).count(events_of(0, 10), START)
    make = Markers(own.shards, own.clock)
    assert [page async for page in make.make_room()] == []
    await limit(own, 0.7)
    assert [page async for page in make.make_room()] == []
    assert await markers(own) == 70


async def test_only_markers_are_deleted(own: Store) -> None:
    """Other keys with similar names stay: counts, months, HyperLogLogs, and keys of other programs."""
    await unique_users(own).count(events_of(0, 10), START)
    await own.redis.set("t:cities.users.of.nothing", "1")
    await own.redis.set("x:countries.France.users.192.0.2.1", "1")
    await own.redis.pfadd("t:hll:countries.France.users.2026-11", "a")
    kept = {key for key in await own.dump() if not key.count(b".") > 4 or b".users.20" in key}
    await own.redis.set("t:filler", "x" * 20_000_000)
    await limit(own, 0.99)
    pages = [page async for page in Markers(own.shards, own.clock).make_room()]
    assert pages[-1] == 70 and await markers(own) == 0
    left = set(await own.dump())
    assert kept <= left
    assert await own.redis.exists("x:countries.France.users.192.0.2.1", "t:cities.users.of.nothing") == 2


async def test_refused_joins_are_counted(own: Store) -> None:
    make = Markers(own.shards, own.clock)
    assert await make.refused_joins() == 0
    own.counters.count("failures.store full", by=3)
    await own.counters.flush()
    assert await make.refused_joins() == 3


async def test_a_flush_forgets_what_was_marked(own: Store) -> None:
    await own.redis.hset(own.keys.unique_forgotten(), "all", "5")
    async for _ in own.unique_users.flush():
        pass
    assert await own.unique_users.may_exceed() == 0
