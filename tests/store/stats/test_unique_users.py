"""Unique users in a real store: what counts, when it counts again, what is kept, and how it is removed (B8 to B15)."""

import asyncio
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError

from loadtest.servers import Server
from tests.store.conftest import MakeStore
from tests.store.harness import START, Store, info_hash, running, update
from tests.store.stats.metrics import metrics
from tracker.bittorrent import InfoHash
from tracker.store.schema.keys import BOARDS, Keys
from tracker.store.stats import unique_users as module
from tracker.store.stats.metric_names import NOWHERE, PlaceNames, metric_of, place_names
from tracker.store.stats.slices import month_of, month_start
from tracker.store.stats.unique_users import MAX_BATCH, UniqueRules, UniqueUserEvent, UniqueUsers
from tracker.store.swarms.rules import SwarmRules

DAYS = 86_400
KEEP = 30 * DAYS
LONDON = place_names("United Kingdom", "London", "SW1A")
PARIS = place_names("France", "Paris", "75001")
MONTH = month_of(START)
IH = info_hash(1)
SEVEN = list(metrics(IH, LONDON))
MODES = ["exact", "hashed", "hyperloglog"]
MARKING = MODES[:2]


def event(user: str = "192.0.2.1", torrent: int = 1, place: PlaceNames = LONDON) -> UniqueUserEvent:
    return UniqueUserEvent(info_hash(torrent), user, place)


def unique_users(store: Store, mode: Any = "exact", **rules: Any) -> UniqueUsers:
    return UniqueUsers(store.shards, UniqueRules(mode=mode, secret=b"s" * 32, **rules))


async def register(store: Store, *torrents: int) -> None:
    for torrent in torrents:
        await store.torrents.add(info_hash(torrent))


async def figures(store: Store, month: str | None = MONTH) -> list[tuple[int, int]]:
    """(total, month) of the seven metrics."""
    counted = store.unique_users
    return [(await counted.users_of(metric), await counted.users_of(metric, month)) for metric in SEVEN]


async def markers(store: Store) -> list[str]:
    """The markers of counted users."""
    scan = store.redis.scan_iter(f"{store.keys.prefix}*.users.*", 1000)
    return [key.decode() async for key in scan if not re.search(rb"\.users\.[0-9]{4}-[0-9]{2}$", key)]


@pytest.fixture
async def known(store: Store) -> Store:
    """Torrents 1 and 2 exist."""
    await register(store, 1, 2)
    return store


@pytest.mark.parametrize("mode", MODES)
async def test_a_user_counts_once_in_each_metric(known: Store, mode: str) -> None:
    """B8, B15: total and month, and `new` of the torrent."""
    counted = unique_users(known, mode)
    assert await counted.count([event()], START) == 1
    assert await figures(known) == [(1, 1)] * 7
    later = START + (DAYS if mode == "hyperloglog" else KEEP - 1)  # estimates: within the month
    assert await counted.count([event()], later) == 0
    assert [total for total, _ in await figures(known)] == [1] * 7
    assert (await known.torrent(IH))["new"] == "1"


@pytest.mark.parametrize("mode", MARKING)
async def test_an_address_counts_again_after_30_days_by_the_stored_time(known: Store, mode: str) -> None:
    """B8: an event in between does not restart them. The store's own clock does not matter."""
    counted = unique_users(known, mode)
    await counted.count([event()], START)
    for later in (1, KEEP // 2, KEEP - 1):
        assert await counted.count([event()], START + later) == 0
    for key in await markers(known):
        assert await known.redis.get(key) == str(START).encode()
    assert await counted.count([event()], START + KEEP) == 1
    assert [total for total, _ in await figures(known)] == [2] * 7
    assert await counted.count([event()], START + KEEP + 1) == 0


async def test_markers_hold_the_time_and_expire(known: Store) -> None:
    """B8: as the key table states; one for each metric."""
    await known.unique_users.count([event()], START)
    expected = {f"{known.keys.prefix}{metric}.192.0.2.1" for metric in SEVEN}
    assert set(await markers(known)) == expected
    for key in expected:
        assert await known.redis.get(key) == str(START).encode()
        assert KEEP - 60 < await known.redis.ttl(key) <= KEEP


async def test_a_clock_step_back_counts_nothing_twice_and_excludes_no_user(known: Store) -> None:
    """B8: the marker is in the future; it expires by itself."""
    await known.unique_users.count([event()], START)
    assert await known.unique_users.count([event()], START - 40 * DAYS) == 0
    assert [total for total, _ in await figures(known)] == [1] * 7
    marker = f"{known.keys.prefix}countries.United_Kingdom.users.192.0.2.1"
    assert 0 < await known.redis.ttl(marker) <= KEEP


@pytest.mark.parametrize("mode", MODES)
async def test_the_month_turns_at_midnight_utc(known: Store, mode: str) -> None:
    """B8."""
    counted = unique_users(known, mode)
    turn = int(month_start(START, 1).timestamp())
    assert datetime.fromtimestamp(turn, UTC).strftime("%d %H:%M:%S") == "01 00:00:00"
    await counted.count([event("192.0.2.1")], turn - 1)
    await counted.count([event("192.0.2.2")], turn)
    await counted.count([event("192.0.2.3")], turn)
    assert await figures(known, MONTH) == [(3, 1)] * 7
    assert await figures(known, month_of(turn)) == [(3, 2)] * 7


async def test_an_address_seen_daily_counts_every_30_days(known: Store) -> None:
    """B8: over 75 days of a fake clock it counts on the first, 31st and 61st."""
    counts = []
    for day in range(75):
        if await known.unique_users.count([event("198.51.100.9")], START + day * DAYS):
            counts.append(day)
    assert counts == [0, 30, 60]
    months = {month_of(START + day * DAYS) for day in range(75)}
    by_month = {month: await known.unique_users.users_of(SEVEN[0], month) for month in months}
    assert sum(by_month.values()) == 3 == await known.unique_users.users_of(SEVEN[0])
    assert by_month[MONTH] == 1


@pytest.mark.parametrize("mode", MODES)
async def test_months_and_their_leaderboards_live_13_months_beyond_their_end(known: Store, mode: str) -> None:
    """B13: those of all time stay."""
    await unique_users(known, mode).count([event()], START)
    until = int(month_start(START, 14).timestamp())
    assert datetime.fromtimestamp(until, UTC) == datetime(2028, 3, 1, tzinfo=UTC)  # January 2027 is the month
    keys = known.keys
    for key in [keys.unique_month(metric, MONTH) for metric in SEVEN]:
        assert await known.redis.expiretime(key) == until, key
    for scope in BOARDS:
        assert await known.redis.expiretime(keys.unique_index(scope, MONTH)) == until
        assert await known.redis.ttl(keys.unique_index(scope, "all")) == -1
    for metric in SEVEN:
        assert await known.redis.ttl(keys.unique(metric)) == -1
        if mode == "hyperloglog":
            assert await known.redis.expiretime(f"{keys.prefix}hll:{metric}.{MONTH}") == until
            assert await known.redis.ttl(f"{keys.prefix}hll:{metric}") == -1


@pytest.mark.parametrize("mode", MODES)
async def test_a_hundred_concurrent_events_of_a_user_count_once(
    make_store: MakeStore, any_server: Server, prefix: str, mode: str
) -> None:
    """B9: from ten connections."""
    store = await make_store()
    await register(store, 1)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(10):
            tasks.create_task(_sight_ten_times(any_server.url, prefix, mode))
    assert await figures(store) == [(1, 1)] * 7
    assert (await store.torrent(IH))["new"] == "1"


async def _sight_ten_times(url: str, prefix: str, mode: str) -> None:
    async with running(Store(url, Keys(prefix), SwarmRules())) as other:
        counted = unique_users(other, mode)
        await asyncio.gather(*(counted.count([event()], START) for _ in range(10)))


@pytest.mark.parametrize("mode", MODES)
async def test_a_batch_adds_up_and_may_be_sent_again(known: Store, mode: str) -> None:
    """B9: repeats within the batch count once; a user counts in each torrent."""
    counted = unique_users(known, mode)
    batch = [event(f"192.0.2.{n % 20}", 1 + n % 2, LONDON if n % 20 < 5 else PARIS) for n in range(MAX_BATCH)]
    batch.append(event("192.0.2.0", 2))
    batch = batch[1:]
    assert await counted.count(batch, START) == 21
    assert await counted.count(batch, START + 5) == 0
    expected = {"countries.United_Kingdom.users": 5, "countries.France.users": 15, f"torrents.{IH.hex()}.users": 10}
    expected |= {f"torrents.{IH.hex()}.countries.France.users": 7, f"torrents.{info_hash(2).hex()}.users": 11}
    for metric, users in expected.items():
        assert (await counted.users_of(metric), await counted.users_of(metric, MONTH)) == (users, users), metric
    assert (await known.torrent(IH))["new"] == "10"


async def test_more_than_a_batch_is_refused(known: Store) -> None:
    assert await known.unique_users.count([], START) == 0
    with pytest.raises(ValueError, match="64"):
        await known.unique_users.count([event()] * 65, START)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("place", "counted"),
    [
        (NOWHERE, 0),
        (PlaceNames("United_Kingdom"), 1),
        (PlaceNames("United_Kingdom", "London"), 2),
        (PlaceNames("United_Kingdom", "", "N1"), 2),
    ],
)
async def test_an_unknown_part_of_a_place_leaves_the_rest(
    known: Store, mode: str, place: PlaceNames, counted: int
) -> None:
    """B10."""
    users = unique_users(known, mode)
    assert await users.count([event(place=place)], START) == 1
    for metric in metrics(IH, place):
        assert await users.users_of(metric) == 1
    assert len(await users.places(IH)) == counted


@pytest.mark.parametrize("mode", MODES)
async def test_a_torrent_forgotten_meanwhile_leaves_no_orphaned_keys(known: Store, mode: str) -> None:
    """The places of the world count all the same."""
    await known.torrents.remove(info_hash(2))
    users = unique_users(known, mode)
    assert await users.count([event(torrent=2), event("192.0.2.9")], START) == 1
    assert await users.users_of("countries.United_Kingdom.users") == 2
    assert not [key async for key in known.redis.scan_iter(f"*{info_hash(2).hex()}*", 1000)]


@pytest.mark.parametrize("mode", MODES)
async def test_names_of_any_script_are_kept_apart(known: Store, mode: str) -> None:
    """B11: through the store and back."""
    users = unique_users(known, mode)
    cities = ["St. Gallen", "St_ Gallen", "東京", "São Paulo", "x" * 90, "x" * 100, "é" * 90]
    for number, city in enumerate(cities):
        place = place_names("XX", city, "")
        await users.count([event(f"192.0.2.{number}", place=place)], START)
    ranked = await users.top("cities")
    assert {entry.name for entry in ranked} == {f"XX/{place_names('XX', city, '').city}" for city in cities}
    assert {entry.users for entry in ranked} == {1}


@pytest.mark.parametrize("mode", MODES)
async def test_leaderboards_rank_places(known: Store, mode: str) -> None:
    """B13: of all time and by month; the places of a torrent."""
    users = unique_users(known, mode)
    later = START + 31 * DAYS
    await users.count([event(f"192.0.2.{n}", 1, PARIS) for n in range(3)], START)
    await users.count([event("192.0.2.7", 2), event("192.0.2.8", 2)], START)
    await users.count([event(f"192.0.2.{n}", 2) for n in range(10, 13)], later)
    assert await users.top("countries") == [("United_Kingdom", 5), ("France", 3)]
    assert await users.top("countries", MONTH) == [("France", 3), ("United_Kingdom", 2)]
    assert await users.top("countries", month_of(later)) == [("United_Kingdom", 3)]
    assert await users.top("torrents") == [(info_hash(2).hex(), 5), (IH.hex(), 3)]
    assert await users.top("torrents", MONTH, 1, 1) == [(info_hash(2).hex(), 2)]
    assert await users.top("cities", "all", 1) == [("United_Kingdom/London", 5)]
    assert await users.top("postcodes", MONTH) == [("France/75001", 3), ("United_Kingdom/SW1A", 2)]
    assert await users.top("countries", "2020-01") == []
    assert set(await users.places(IH)) == {
        ("countries", ("France", 3)),
        ("cities", ("France/Paris", 3)),
        ("postcodes", ("France/75001", 3)),
    }
    assert len(await users.places(IH, 1, 1)) == 1


@pytest.mark.parametrize("mode", MODES)
async def test_leaderboards_equal_the_counts(known: Store, mode: str) -> None:
    """B13: in any order of batches."""
    users = unique_users(known, mode)
    places = [place_names(f"C{n}", f"City {n}", f"P{n}") for n in range(4)]
    for n in range(12):
        batch = [event(f"10.{n}.{k % 9}.1", 1 + k % 2, places[k % 4]) for k in range(30)]
        await users.count(batch, START + n * 7 * DAYS)
    for board in BOARDS:
        for month in (None, MONTH, month_of(START + 40 * DAYS)):
            for name, count in await users.top(board, month or "all"):
                assert count == await users.users_of(metric_of(board, name), month)
    for scope, (name, count) in await users.places(IH, 100):
        assert count == await users.users_of(f"torrents.{IH.hex()}.{metric_of(scope, name)}")


async def test_an_invalid_number_of_users_reads_as_one(known: Store) -> None:
    """A site may have written it; the places beside it are ranked."""
    foreign = {"GB": 3, b"\xff": "inf", "FR": "-inf", "DE": "-2", "US": 1.9}
    await known.redis.zadd(known.keys.unique_index("countries", "all"), foreign)
    assert await known.unique_users.top("countries") == [("\ufffd", 2**53), ("GB", 3), ("US", 1), ("DE", 0), ("FR", 0)]
    await known.redis.set(known.keys.unique("countries.United_Kingdom.users"), "9" * 5000)
    assert await known.unique_users.users_of("countries.United_Kingdom.users") == 0


@pytest.mark.parametrize("mode", ["hashed", "hyperloglog"])
async def test_no_address_is_stored(known: Store, mode: str) -> None:
    """B15: neither in a key nor in a value."""
    users = unique_users(known, mode)
    await users.count([event("198.51.100.77"), event("2001:db8:1:2::/64")], START)
    for key, dumped in (await known.dump()).items():
        for trace in (b"198.51.100.77", b"2001:db8"):
            assert trace not in key and trace not in dumped
    hashed = [key for key in await markers(known) if len(key.rpartition(".")[2]) == 32]
    assert len(hashed) == (14 if mode == "hashed" else 0)


async def test_a_hash_needs_the_secret(known: Store) -> None:
    """B15: another secret gives another hash, the same secret the same hash. An operator's secret may be long."""
    for secret in (b"a" * 32, b"b" * 32, b"a" * 32, b"c" * 100):
        rules = UniqueRules("hashed", secret)
        await UniqueUsers(known.shards, rules).count([event()], START)
    assert await known.unique_users.users_of("countries.United_Kingdom.users") == 3


async def test_an_estimate_is_close_and_small(known: Store) -> None:
    """B15: a few kilobytes for any number. The standard error is 0.81 %; the estimate is within five of them."""
    users = unique_users(known, "hyperloglog")
    number = 64 * 150
    for first in range(0, number, 64):
        await users.count([event(f"u{n}", place=PlaceNames("United_Kingdom")) for n in range(first, first + 64)], START)
    for metric in ("countries.United_Kingdom.users", f"torrents.{IH.hex()}.users"):
        for month in (None, MONTH):
            assert abs(await users.users_of(metric, month) - number) < number * 0.041
    assert int((await known.torrent(IH))["new"]) == await users.users_of(f"torrents.{IH.hex()}.users", MONTH)
    assert await known.redis.memory_usage(f"{known.keys.prefix}hll:countries.United_Kingdom.users") < 16_384
    assert await users.users_of("countries.United_Kingdom.users") == await known.redis.pfcount(
        f"{known.keys.prefix}hll:countries.United_Kingdom.users"
    )


async def test_an_estimate_of_a_month_includes_earlier_users(known: Store) -> None:
    """B15: a month counts its different addresses; the total counts all different addresses."""
    users = unique_users(known, "hyperloglog")
    later = START + 31 * DAYS
    await users.count([event()], START)
    assert await users.count([event()], later) == 1
    assert await figures(known, month_of(later)) == [(1, 1)] * 7
    assert (await known.torrent(IH))["new"] == "2"


@pytest.mark.parametrize("mode", MODES)
async def test_changing_the_mode_keeps_the_counts(known: Store, mode: str) -> None:
    for other in MODES:
        if other != mode:
            await unique_users(known, other).count([event()], START)
    before = await known.unique_users.users_of(SEVEN[0])
    await unique_users(known, mode).count([event("192.0.2.200")], START)
    assert await known.unique_users.users_of(SEVEN[0]) == before + 1


# Export to StatHat


async def outbox(store: Store) -> dict[str, int]:
    row = await store.redis.hgetall(f"{store.keys.prefix}outbox:{START - START % 60}")
    return {name.decode(): int(count) for name, count in row.items()}


@pytest.mark.parametrize("mode", MODES)
async def test_each_first_count_of_a_place_is_exported(known: Store, mode: str) -> None:
    """B12: those of torrents only on request, cities and postcodes unless disabled, none without a receiver."""
    await unique_users(known, mode).count([event("192.0.2.1")], START)
    assert await outbox(known) == {}
    users = unique_users(known, mode, max_outbox=100)
    batch = [event("192.0.2.2"), event("192.0.2.3"), event("192.0.2.4", place=PARIS)]
    await users.count(batch, START)
    await users.count([*batch, event("192.0.2.5")], START)
    britain, france = "countries.United_Kingdom", "countries.France"
    assert await outbox(known) == {
        f"{britain}.users": 3,
        f"{britain}.cities.London.users": 3,
        f"{britain}.postcodes.SW1A.users": 3,
        f"{france}.users": 1,
        f"{france}.cities.Paris.users": 1,
        f"{france}.postcodes.75001.users": 1,
    }
    before = await outbox(known)
    countries = unique_users(known, mode, max_outbox=100, export_torrents=True, export_places=False)
    await countries.count([event("192.0.2.6")], START)
    sent = await outbox(known)
    assert sent.pop(f"{britain}.users") == 4
    torrents = {name: sent.pop(name) for name in SEVEN if name.startswith("torrents.")}
    assert set(torrents.values()) == {1}
    assert sent == {name: count for name, count in before.items() if name != f"{britain}.users"}


async def test_a_full_outbox_drops_and_records_the_number(known: Store) -> None:
    """B12."""
    users = unique_users(known, max_outbox=1)
    await users.count([event(), event("192.0.2.2", place=PARIS)], START)
    assert len(await outbox(known)) == 1
    assert await known.redis.get(known.keys.stat("outbox_dropped")) == b"5"
    assert await users.users_of("countries.France.users") == 1


# Faults


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrong", ["total", "month"])
async def test_a_key_of_the_wrong_type_fails_its_metric_alone(known: Store, mode: str, wrong: str) -> None:
    """B9: it leaves no marker without its counts. When the key is repaired, the address counts."""
    metric = "countries.United_Kingdom.cities.London.users"
    key = known.keys.unique(metric) if wrong == "total" else known.keys.unique_month(metric, MONTH)
    await known.redis.hset(key, "some", "body's")
    users = unique_users(known, mode)
    assert await users.count([event(), event("192.0.2.2", 2, PARIS)], START) == 2
    others = [name for name in SEVEN if name != metric]
    assert [await users.users_of(name) for name in others] == [1] * 6
    assert not [key for key in await markers(known) if f":{metric}." in key]
    if mode != "hyperloglog":
        await known.redis.delete(key)
        await users.count([event()], START)
        assert (await users.users_of(metric), await users.users_of(metric, MONTH)) == (1, 1)
        assert await users.users_of(SEVEN[0]) == 1


@pytest.mark.parametrize("mode", MODES)
async def test_a_leaderboard_of_the_wrong_type_loses_no_count(known: Store, mode: str) -> None:
    await known.redis.set(known.keys.unique_index("countries", "all"), "x")
    await known.redis.set(known.keys.torrent_places(IH), "x")
    await known.redis.set(f"{known.keys.prefix}outbox:{START - START % 60}", "x")
    assert await unique_users(known, mode, max_outbox=10).count([event()], START) == 1
    assert await figures(known) == [(1, 1)] * 7
    assert await known.unique_users.top("cities") == [("United_Kingdom/London", 1)]


async def test_a_marker_of_another_type_is_replaced(known: Store) -> None:
    marker = f"{known.keys.prefix}{SEVEN[0]}.192.0.2.1"
    await known.redis.hset(marker, "some", "body's")
    await known.unique_users.count([event()], START)
    assert await known.redis.get(marker) == str(START).encode()
    assert await known.unique_users.users_of(SEVEN[0]) == 1


@pytest.mark.parametrize("mode", MODES)
async def test_a_full_store_counts_nothing_and_reports_it(start_server: Any, prefix: str, mode: str) -> None:
    """B9: all or none. Peers take precedence over markers, so those events are given up; estimates may be retried."""
    server = start_server("--appendonly", "no")
    async with running(Store(server.url, Keys(prefix), SwarmRules())) as store:
        await register(store, 1)
        before = await store.dump()
        await store.redis.config_set("maxmemory", 1)
        users = unique_users(store, mode)
        if mode == "hyperloglog":
            with pytest.raises(OutOfMemoryError):
                await users.count([event()], START)
        else:
            assert await users.count([event()], START) == 0
        assert users.skipped == (0 if mode == "hyperloglog" else 1)
        assert await store.dump() == before


# Removal


def of_torrent(store: Store, torrent: InfoHash) -> Any:
    return store.redis.scan_iter(f"{store.keys.prefix}*{torrent.hex()}*", 1000)


async def count_many(users: UniqueUsers, places: int, months: int = 1) -> None:
    """Torrent 1 has users in that many countries, cities and postcodes each."""
    for month in range(months):
        for n in range(places):
            place = place_names(f"C{n}", f"City {n}", f"P{n}")
            await users.count([event(f"10.{month}.{n}.1", place=place)], START - month * 31 * DAYS)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("places", [0, 1, 8, 25, 40])
async def test_a_removed_torrent_loses_its_unique_users(store: Store, mode: str, places: int) -> None:
    """Except the markers, which expire. Also if one call may not delete everything."""
    await register(store, 1, 2)
    users = unique_users(store, mode)
    await count_many(users, places, months=2 if places == 8 else 1)
    await users.count([event("10.9.9.9", 2)], START)
    assert await store.torrents.remove(IH)
    left = {key.decode() async for key in of_torrent(store, IH)}
    assert left <= set(await markers(store))
    assert await users.top("torrents") == await users.top("torrents", MONTH) == [(info_hash(2).hex(), 1)]
    assert len(await users.top("countries", "all", 1000)) == places + 1
    assert not await store.torrents.remove(IH)


@pytest.mark.parametrize(
    "now",
    [
        datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2028, 2, 29, 12, tzinfo=UTC),
        datetime(2028, 12, 1, tzinfo=UTC),
        datetime(2100, 3, 1, tzinfo=UTC),
    ],
)
async def test_all_months_of_a_forgotten_torrent_are_removed(store: Store, now: datetime) -> None:
    """The 13 kept, this one and the next (another tracker's clock may be ahead), in any month of the calendar."""
    await register(store, 1)
    month = now.replace(day=1)
    kept = [month_start(month.timestamp(), later) for later in range(-13, 2)]
    for begin in kept:
        await store.redis.set(store.keys.unique_month(SEVEN[0], f"{begin:%Y-%m}"), "1")
        await store.redis.zadd(store.keys.unique_index("torrents", f"{begin:%Y-%m}"), {IH.hex(): 1, "other": 1})
    await store.redis.set(store.keys.unique(SEVEN[0]), "14")
    store.clock.now = now.timestamp()
    await store.torrents.remove(IH)
    assert [key async for key in of_torrent(store, IH)] == []
    for begin in kept:
        assert await store.redis.zcard(store.keys.unique_index("torrents", f"{begin:%Y-%m}")) == 1


async def test_a_torrent_added_during_its_removal_stays(store: Store) -> None:
    await register(store, 1)
    await count_many(unique_users(store), 30)
    argv: tuple[str, int] = (IH.hex(), int(store.clock()))
    assert await store.scripts.remove([*argv, 0]) == 3
    await register(store, 1)
    assert await store.scripts.remove([*argv, 1]) == 1
    assert await store.torrents.get(IH) is not None


@pytest.mark.parametrize("mode", MODES)
async def test_the_sweep_forgets_unique_users_too(store: Store, mode: str) -> None:
    """T3: a torrent with users in many places takes several calls, each with a bounded part of the work."""
    await store.announce(update(1, "s"))
    await store.announce(update(1, "x"))
    await count_many(unique_users(store, mode), 40)
    await store.pass_time(store.rules.current.forget_after)
    position, forgotten, calls = "", 0, 0
    while calls < 20:
        calls += 1
        step = await store.reaping.sweep(["1"], position, 200)
        position, forgotten = step.position, forgotten + step.forgotten
        if step.done:
            break
        assert forgotten == 0 and await store.torrents.get(IH) is not None
    assert (forgotten, calls) == (1, 5)
    assert {key.decode() async for key in of_torrent(store, IH)} <= set(await markers(store))
    assert await unique_users(store, mode).top("torrents") == []


async def test_a_torrent_joined_while_it_is_being_forgotten_stays(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.announce(update(1, "x"))
    await count_many(unique_users(store), 30)
    await store.pass_time(store.rules.current.forget_after)
    step = await store.reaping.sweep(["1"], "", 200)
    assert step.position and not step.done
    for peer in range(1, 30):
        await store.announce(update(peer, "s"))
    for budget in (200, 10):  # small enough to be counted at once, and too large for it
        again = await store.reaping.sweep(["1"], step.position, budget)
        assert (again.forgotten, again.repairs) == (0, 0)
    assert await store.torrents.get(IH) is not None


@pytest.mark.parametrize("mode", MODES)
async def test_flush_removes_statistics_and_keeps_torrents(store: Store, mode: str) -> None:
    """B14: what remains is the state before the first count, except for `new`."""
    await store.announce(update(1, "s"))
    await store.torrents.deny(info_hash(9), "no")
    await store.users.add("7", "p" * 20)
    before = await store.dump()
    users = unique_users(store, mode)
    for n in range(30):
        await users.count([event(f"10.0.{n}.{k}", place=LONDON) for k in range(10)], START + n * 20 * DAYS)
    grown = len(await store.dump())
    progress = [removed async for removed in users.flush()]
    assert progress[-1] == grown - len(before)
    assert progress == sorted(progress)
    await store.redis.hdel(store.keys.torrent(IH), "new")
    assert await store.dump() == before
    assert await users.count([event()], START) == 1
    assert await figures(store) == [(1, 1)] * 7


async def test_a_new_scope_is_wiped_with_the_others(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BOARDS", (*BOARDS, "zones"))
    names = ("zones.North.users", "zones.North.users.2026-11", "i:unique:zones:all")
    await store.redis.mset({f"{store.keys.prefix}{name}": 1 for name in names})
    assert [removed async for removed in unique_users(store).flush()][-1] == len(names)
    assert await store.dump() == {}


async def test_torrents_of_a_place_are_found_among_those_with_the_most_users(store: Store) -> None:
    await register(store, 1, 2, 3)
    counted = unique_users(store)
    seen = [(1, PARIS, 2), (2, PARIS, 1), (2, LONDON, 3), (3, LONDON, 1)]
    events = [event(f"{torrent} {n}", torrent, place) for torrent, place, number in seen for n in range(number)]
    await counted.count(events, START)
    first, second = info_hash(1).hex(), info_hash(2).hex()
    assert await counted.torrents_at("countries", "France") == [(first, 2), (second, 1)]
    assert await counted.torrents_at("cities", "United_Kingdom/London") == [(second, 3), (info_hash(3).hex(), 1)]
    assert await counted.torrents_at("countries", "France", candidates=1) == [(second, 1)]
    await store.redis.set(store.keys.torrent_places(info_hash(2)), "another type")
    await store.redis.zadd(store.keys.unique_index("torrents", "all"), {"another program's": 99})
    assert await counted.torrents_at("cities", "United_Kingdom/London") == [(info_hash(3).hex(), 1)]
