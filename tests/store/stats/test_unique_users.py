"""Unique users in a real store: what counts, when it counts again, what is kept, and how it goes (B8 to B15)."""

import asyncio
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError

from tests.servers import Server
from tests.store.conftest import MakeStore
from tests.store.harness import START, Store, info_hash, running, update
from tracker.bittorrent import InfoHash
from tracker.store.keys import Keys
from tracker.store.metrics import NOWHERE, PlaceNames, metrics, place_names
from tracker.store.months import month_of, month_start
from tracker.store.swarms import SwarmRules
from tracker.store.uniques import BOARDS, MAX_BATCH, Sighting, UniqueRules, Uniques

DAYS = 86_400
KEEP = 30 * DAYS
LONDON = place_names("GB", "ENG", "London", "SW1A")
PARIS = place_names("FR", "IDF", "Paris", "75001")
MONTH = month_of(START)
IH = info_hash(1)
SEVEN = list(metrics(IH, LONDON))
MODES = ["exact", "hashed", "hyperloglog"]
MARKING = MODES[:2]


def sighting(user: str = "192.0.2.1", torrent: int = 1, place: PlaceNames = LONDON) -> Sighting:
    return Sighting(info_hash(torrent), user, place)


def uniques(store: Store, mode: Any = "exact", **rules: Any) -> Uniques:
    return Uniques(
        store.connection, store.scripts, store.keys, UniqueRules(mode=mode, secret=b"s" * 32, **rules)
    )


async def register(store: Store, *torrents: int) -> None:
    for torrent in torrents:
        await store.torrents.add(info_hash(torrent))


async def figures(store: Store, month: str | None = MONTH) -> list[tuple[int, int]]:
    """(total, month) of the seven metrics."""
    counted = store.uniques
    return [(await counted.figure(metric), await counted.figure(metric, month)) for metric in SEVEN]


async def markers(store: Store) -> list[str]:
    """The keys that remember who was counted."""
    scan = store.redis.scan_iter(f"{store.keys.prefix}*.users.*", 1000)
    return [key.decode() async for key in scan if not re.search(rb"\.users\.[0-9]{4}-[0-9]{2}$", key)]


@pytest.fixture
async def known(store: Store) -> Store:
    """Torrents 1 and 2 exist."""
    await register(store, 1, 2)
    return store


@pytest.mark.parametrize("mode", MODES)
async def test_a_first_sighting_counts_in_each_metric_and_a_second_in_none(known: Store, mode: str) -> None:
    """B8, B15: total and month, and `new` of the torrent."""
    counted = uniques(known, mode)
    assert await counted.sight([sighting()], START) == 1
    assert await figures(known) == [(1, 1)] * 7
    later = START + (DAYS if mode == "hyperloglog" else KEEP - 1)  # estimates: within the month
    assert await counted.sight([sighting()], later) == 0
    assert [total for total, _ in await figures(known)] == [1] * 7
    assert (await known.torrent(IH))["new"] == "1"


@pytest.mark.parametrize("mode", MARKING)
async def test_an_address_counts_again_after_30_days_by_the_stored_time(known: Store, mode: str) -> None:
    """B8: seeing it in between does not begin them anew. The store's own clock plays no part."""
    counted = uniques(known, mode)
    await counted.sight([sighting()], START)
    for later in (1, KEEP // 2, KEEP - 1):
        assert await counted.sight([sighting()], START + later) == 0
    for key in await markers(known):
        assert await known.redis.get(key) == str(START).encode()
    assert await counted.sight([sighting()], START + KEEP) == 1
    assert [total for total, _ in await figures(known)] == [2] * 7
    assert await counted.sight([sighting()], START + KEEP + 1) == 0


async def test_markers_hold_the_time_and_end_by_themselves(known: Store) -> None:
    """B8: as the key table says; one for each metric."""
    await known.uniques.sight([sighting()], START)
    expected = {known.keys.unique_seen(metric, "192.0.2.1") for metric in SEVEN}
    assert set(await markers(known)) == expected
    for key in expected:
        assert await known.redis.get(key) == str(START).encode()
        assert KEEP - 60 < await known.redis.ttl(key) <= KEEP


async def test_a_clock_that_went_back_counts_nothing_twice_and_locks_nobody_out(known: Store) -> None:
    """B8: the marker is from the future; it ends by its own expiry."""
    await known.uniques.sight([sighting()], START)
    assert await known.uniques.sight([sighting()], START - 40 * DAYS) == 0
    assert [total for total, _ in await figures(known)] == [1] * 7
    marker = known.keys.unique_seen("countries.GB.users", "192.0.2.1")
    assert 0 < await known.redis.ttl(marker) <= KEEP


@pytest.mark.parametrize("mode", MODES)
async def test_the_month_turns_at_midnight_utc(known: Store, mode: str) -> None:
    """B8."""
    counted = uniques(known, mode)
    turn = int(month_start(START, 1).timestamp())
    assert datetime.fromtimestamp(turn, UTC).strftime("%d %H:%M:%S") == "01 00:00:00"
    await counted.sight([sighting("192.0.2.1")], turn - 1)
    await counted.sight([sighting("192.0.2.2")], turn)
    await counted.sight([sighting("192.0.2.3")], turn)
    assert await figures(known, MONTH) == [(3, 1)] * 7
    assert await figures(known, month_of(turn)) == [(3, 2)] * 7


async def test_a_month_of_days(known: Store) -> None:
    """B8: a fake clock goes through 75 days: an address seen daily counts on the first, 31st and 61st."""
    counts = []
    for day in range(75):
        if await known.uniques.sight([sighting("198.51.100.9")], START + day * DAYS):
            counts.append(day)
    assert counts == [0, 30, 60]
    months = {month_of(START + day * DAYS) for day in range(75)}
    by_month = {month: await known.uniques.figure(SEVEN[0], month) for month in months}
    assert sum(by_month.values()) == 3 == await known.uniques.figure(SEVEN[0])
    assert by_month[MONTH] == 1


@pytest.mark.parametrize("mode", MODES)
async def test_months_and_their_boards_live_13_months_beyond_their_end(known: Store, mode: str) -> None:
    """B13: and what is of all time stays."""
    await uniques(known, mode).sight([sighting()], START)
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
            assert await known.redis.expiretime(keys.estimate_month(metric, MONTH)) == until
            assert await known.redis.ttl(keys.estimate(metric)) == -1


@pytest.mark.parametrize("mode", MODES)
async def test_a_hundred_at_the_same_time_count_once(
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
        counted = uniques(other, mode)
        await asyncio.gather(*(counted.sight([sighting()], START) for _ in range(10)))


@pytest.mark.parametrize("mode", MODES)
async def test_a_batch_adds_up_and_may_be_sent_again(known: Store, mode: str) -> None:
    """B9: repeats within the batch count once; one user counts in each torrent."""
    counted = uniques(known, mode)
    batch = [
        sighting(f"192.0.2.{n % 20}", 1 + n % 2, LONDON if n % 20 < 5 else PARIS) for n in range(MAX_BATCH)
    ]
    batch.append(sighting("192.0.2.0", 2))
    batch = batch[1:]
    assert await counted.sight(batch, START) == 21
    assert await counted.sight(batch, START + 5) == 0
    expected = {"countries.GB.users": 5, "countries.FR.users": 15, f"torrents.{IH.hex()}.users": 10}
    expected |= {f"torrents.{IH.hex()}.countries.FR.users": 7, f"torrents.{info_hash(2).hex()}.users": 11}
    for metric, users in expected.items():
        assert (await counted.figure(metric), await counted.figure(metric, MONTH)) == (users, users), metric
    assert (await known.torrent(IH))["new"] == "10"


async def test_more_than_a_batch_is_refused(known: Store) -> None:
    assert await known.uniques.sight([], START) == 0
    with pytest.raises(ValueError, match="64"):
        await known.uniques.sight([sighting()] * 65, START)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("place", "counted"),
    [
        (NOWHERE, 0),
        (PlaceNames("GB"), 1),
        (PlaceNames("GB", "GB/ENG/London"), 2),
        (PlaceNames("GB", "", "GB/N1"), 2),
    ],
)
async def test_what_is_not_known_of_a_place_leaves_the_rest(
    known: Store, mode: str, place: PlaceNames, counted: int
) -> None:
    """B10."""
    users = uniques(known, mode)
    assert await users.sight([sighting(place=place)], START) == 1
    for metric in metrics(IH, place):
        assert await users.figure(metric) == 1
    assert len(await users.places(IH)) == counted


@pytest.mark.parametrize("mode", MODES)
async def test_a_torrent_that_was_forgotten_meanwhile_leaves_no_orphans(known: Store, mode: str) -> None:
    """The places of the world count all the same."""
    await known.torrents.remove(info_hash(2))
    users = uniques(known, mode)
    assert await users.sight([sighting(torrent=2), sighting("192.0.2.9")], START) == 1
    assert await users.figure("countries.GB.users") == 2
    assert not [key async for key in known.redis.scan_iter(f"*{info_hash(2).hex()}*", 1000)]


@pytest.mark.parametrize("mode", MODES)
async def test_names_of_any_script_are_kept_apart(known: Store, mode: str) -> None:
    """B11: through the store and back."""
    users = uniques(known, mode)
    cities = ["St. Gallen", "St_ Gallen", "東京", "São Paulo", "x" * 90, "x" * 100, "é" * 90]
    for number, city in enumerate(cities):
        place = place_names("XX", "", city, "")
        await users.sight([sighting(f"192.0.2.{number}", place=place)], START)
    ranked = await users.top("cities")
    assert {standing.name for standing in ranked} == {place_names("XX", "", city, "").city for city in cities}
    assert {standing.users for standing in ranked} == {1}


@pytest.mark.parametrize("mode", MODES)
async def test_leaderboards(known: Store, mode: str) -> None:
    """B13: of all time and by month; the places of a torrent."""
    users = uniques(known, mode)
    later = START + 31 * DAYS
    await users.sight([sighting(f"192.0.2.{n}", 1, PARIS) for n in range(3)], START)
    await users.sight([sighting("192.0.2.7", 2), sighting("192.0.2.8", 2)], START)
    await users.sight([sighting(f"192.0.2.{n}", 2) for n in range(10, 13)], later)
    assert await users.top("countries") == [("GB", 5), ("FR", 3)]
    assert await users.top("countries", MONTH) == [("FR", 3), ("GB", 2)]
    assert await users.top("countries", month_of(later)) == [("GB", 3)]
    assert await users.top("torrents") == [(info_hash(2).hex(), 5), (IH.hex(), 3)]
    assert await users.top("torrents", MONTH, 1, 1) == [(info_hash(2).hex(), 2)]
    assert await users.top("cities", "all", 1) == [("GB/ENG/London", 5)]
    assert await users.top("postcodes", MONTH) == [("FR/75001", 3), ("GB/SW1A", 2)]
    assert await users.top("countries", "2020-01") == []
    assert set(await users.places(IH)) == {
        ("countries", ("FR", 3)),
        ("cities", ("FR/IDF/Paris", 3)),
        ("postcodes", ("FR/75001", 3)),
    }
    assert len(await users.places(IH, 1, 1)) == 1


@pytest.mark.parametrize("mode", MODES)
async def test_boards_equal_figures(known: Store, mode: str) -> None:
    """B13: whatever came in which batches."""
    users = uniques(known, mode)
    places = [place_names(f"C{n}", "", f"City {n}", f"P{n}") for n in range(4)]
    for n in range(12):
        batch = [sighting(f"10.{n}.{k % 9}.1", 1 + k % 2, places[k % 4]) for k in range(30)]
        await users.sight(batch, START + n * 7 * DAYS)
    for scope in BOARDS:
        for month in (None, MONTH, month_of(START + 40 * DAYS)):
            for name, count in await users.top(scope, month or "all"):
                assert count == await users.figure(f"{scope}.{name}.users", month)
    for scope, (name, count) in await users.places(IH, 100):
        assert count == await users.figure(f"torrents.{IH.hex()}.{scope}.{name}.users")


async def test_what_is_no_number_of_users_reads_as_one_all_the_same(known: Store) -> None:
    """A site may have written it; the places beside it are ranked."""
    foreign = {"GB": 3, b"\xff": "inf", "FR": "-inf", "DE": "-2", "US": 1.9}
    await known.redis.zadd(known.keys.unique_index("countries", "all"), foreign)
    assert await known.uniques.top("countries") == [
        ("\ufffd", 2**53),
        ("GB", 3),
        ("US", 1),
        ("DE", 0),
        ("FR", 0),
    ]
    await known.redis.set(known.keys.unique("countries.GB.users"), "9" * 5000)
    assert await known.uniques.figure("countries.GB.users") == 0


@pytest.mark.parametrize("mode", ["hashed", "hyperloglog"])
async def test_no_address_is_stored(known: Store, mode: str) -> None:
    """B15: neither in a key nor in a value."""
    users = uniques(known, mode)
    await users.sight([sighting("198.51.100.77"), sighting("2001:db8:1:2::/64")], START)
    for key, dumped in (await known.dump()).items():
        for trace in (b"198.51.100.77", b"2001:db8"):
            assert trace not in key and trace not in dumped
    hashed = [key for key in await markers(known) if len(key.rpartition(".")[2]) == 32]
    assert len(hashed) == (14 if mode == "hashed" else 0)


async def test_a_hash_needs_the_secret(known: Store) -> None:
    """B15: another secret makes another hash, the same one the same. One that an operator wrote may be long."""
    for secret in (b"a" * 32, b"b" * 32, b"a" * 32, b"c" * 100):
        rules = UniqueRules("hashed", secret)
        await Uniques(known.connection, known.scripts, known.keys, rules).sight([sighting()], START)
    assert await known.uniques.figure("countries.GB.users") == 3


async def test_an_estimate_is_close_and_small(known: Store) -> None:
    """B15: a few kilobytes whatever the number; the standard error is 0.81 %, and this is within five of them."""
    users = uniques(known, "hyperloglog")
    number = 64 * 150
    for first in range(0, number, 64):
        await users.sight(
            [sighting(f"u{n}", place=PlaceNames("GB")) for n in range(first, first + 64)], START
        )
    for metric in ("countries.GB.users", f"torrents.{IH.hex()}.users"):
        for month in (None, MONTH):
            assert abs(await users.figure(metric, month) - number) < number * 0.041
    assert int((await known.torrent(IH))["new"]) == await users.figure(f"torrents.{IH.hex()}.users", MONTH)
    assert await known.redis.memory_usage(known.keys.estimate("countries.GB.users")) < 16_384
    assert await users.figure("countries.GB.users") == await known.redis.pfcount(
        known.keys.estimate("countries.GB.users")
    )


async def test_an_estimate_of_a_month_counts_who_was_there_before(known: Store) -> None:
    """B15: months are of different addresses; the total of different ones ever."""
    users = uniques(known, "hyperloglog")
    later = START + 31 * DAYS
    await users.sight([sighting()], START)
    assert await users.sight([sighting()], later) == 1
    assert await figures(known, month_of(later)) == [(1, 1)] * 7
    assert (await known.torrent(IH))["new"] == "2"


@pytest.mark.parametrize("mode", MODES)
async def test_changing_the_mode_keeps_the_figures(known: Store, mode: str) -> None:
    for other in MODES:
        if other != mode:
            await uniques(known, other).sight([sighting()], START)
    before = await known.uniques.figure(SEVEN[0])
    await uniques(known, mode).sight([sighting("192.0.2.200")], START)
    assert await known.uniques.figure(SEVEN[0]) == before + 1


# What goes to StatHat


async def outbox(store: Store) -> dict[str, int]:
    row = await store.redis.hgetall(store.keys.outbox_minute(START - START % 60))
    return {name.decode(): int(count) for name, count in row.items()}


@pytest.mark.parametrize("mode", MODES)
async def test_each_increment_of_a_country_is_exported(known: Store, mode: str) -> None:
    """B12: those of torrents only when they are wanted, none when nobody wants any."""
    await uniques(known, mode).sight([sighting("192.0.2.1")], START)
    assert await outbox(known) == {}
    users = uniques(known, mode, outbox_most=100)
    batch = [sighting("192.0.2.2"), sighting("192.0.2.3"), sighting("192.0.2.4", place=PARIS)]
    await users.sight(batch, START)
    await users.sight([*batch, sighting("192.0.2.5")], START)
    assert await outbox(known) == {"countries.GB.users": 3, "countries.FR.users": 1}
    await uniques(known, mode, outbox_most=100, export_torrents=True).sight([sighting("192.0.2.6")], START)
    sent = await outbox(known)
    assert sent.pop("countries.GB.users") == 4 and sent.pop("countries.FR.users") == 1
    assert sent == {metric: 1 for metric in SEVEN if metric.startswith("torrents.")}


async def test_an_outbox_that_is_full_drops_and_counts(known: Store) -> None:
    """B12."""
    users = uniques(known, outbox_most=1)
    await users.sight([sighting(), sighting("192.0.2.2", place=PARIS)], START)
    assert len(await outbox(known)) == 1
    assert await known.redis.get(known.keys.stat("outbox_dropped")) == b"1"
    assert await users.figure("countries.FR.users") == 1


# Faults


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrong", ["total", "month"])
async def test_a_key_of_the_wrong_type_fails_its_metric_alone(known: Store, mode: str, wrong: str) -> None:
    """B9: and leaves no marker without its counts: when the key is mended, the address counts."""
    metric = "cities.GB/ENG/London.users"
    key = known.keys.unique(metric) if wrong == "total" else known.keys.unique_month(metric, MONTH)
    await known.redis.hset(key, "some", "body's")
    users = uniques(known, mode)
    assert await users.sight([sighting(), sighting("192.0.2.2", 2, PARIS)], START) == 2
    others = [name for name in SEVEN if name != metric]
    assert [await users.figure(name) for name in others] == [1] * 6
    assert not [key for key in await markers(known) if f":{metric}." in key]
    if mode != "hyperloglog":
        await known.redis.delete(key)
        await users.sight([sighting()], START)
        assert (await users.figure(metric), await users.figure(metric, MONTH)) == (1, 1)
        assert await users.figure(SEVEN[0]) == 1


@pytest.mark.parametrize("mode", MODES)
async def test_a_board_of_the_wrong_type_costs_no_count(known: Store, mode: str) -> None:
    await known.redis.set(known.keys.unique_index("countries", "all"), "x")
    await known.redis.set(known.keys.torrent_places(IH), "x")
    await known.redis.set(known.keys.outbox_minute(START - START % 60), "x")
    assert await uniques(known, mode, outbox_most=10).sight([sighting()], START) == 1
    assert await figures(known) == [(1, 1)] * 7
    assert await known.uniques.top("cities") == [("GB/ENG/London", 1)]


async def test_a_marker_of_another_type_is_taken_over(known: Store) -> None:
    marker = known.keys.unique_seen(SEVEN[0], "192.0.2.1")
    await known.redis.hset(marker, "some", "body's")
    await known.uniques.sight([sighting()], START)
    assert await known.redis.get(marker) == str(START).encode()
    assert await known.uniques.figure(SEVEN[0]) == 1


@pytest.mark.parametrize("mode", MODES)
async def test_a_full_store_counts_nothing_and_says_so(start_server: Any, prefix: str, mode: str) -> None:
    """B9: all or none."""
    server = start_server("--appendonly", "no")
    async with running(Store(server.url, Keys(prefix), SwarmRules())) as store:
        await register(store, 1)
        before = await store.dump()
        await store.redis.config_set("maxmemory", 1)
        with pytest.raises(OutOfMemoryError):
            await uniques(store, mode).sight([sighting()], START)
        assert await store.dump() == before


# Going away


def of_torrent(store: Store, torrent: InfoHash) -> Any:
    return store.redis.scan_iter(f"{store.keys.prefix}*{torrent.hex()}*", 1000)


async def crowd(users: Uniques, places: int, months: int = 1) -> None:
    """Torrent 1 is seen in so many countries, cities and postcodes each."""
    for month in range(months):
        for n in range(places):
            place = place_names(f"C{n}", "", f"City {n}", f"P{n}")
            await users.sight([sighting(f"10.{month}.{n}.1", place=place)], START - month * 31 * DAYS)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("places", [0, 1, 8, 25, 40])
async def test_a_removed_torrent_takes_its_unique_users_along(store: Store, mode: str, places: int) -> None:
    """All but the markers, which run out: also when there is more than one call may delete."""
    await register(store, 1, 2)
    users = uniques(store, mode)
    await crowd(users, places, months=2 if places == 8 else 1)
    await users.sight([sighting("10.9.9.9", 2)], START)
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
async def test_all_months_of_a_forgotten_torrent_go(store: Store, now: datetime) -> None:
    """The 13 kept, this one and the next (another tracker's clock may be ahead), whatever the calendar."""
    await register(store, 1)
    month = now.replace(day=1)
    kept = [month_start(month.timestamp(), later) for later in range(-13, 2)]
    for begin in kept:
        await store.redis.set(store.keys.unique_month(SEVEN[0], f"{begin:%Y-%m}"), "1")
        await store.redis.zadd(
            store.keys.unique_index("torrents", f"{begin:%Y-%m}"), {IH.hex(): 1, "other": 1}
        )
    await store.redis.set(store.keys.unique(SEVEN[0]), "14")
    store.clock.now = now.timestamp()
    await store.torrents.remove(IH)
    assert [key async for key in of_torrent(store, IH)] == []
    for begin in kept:
        assert await store.redis.zcard(store.keys.unique_index("torrents", f"{begin:%Y-%m}")) == 1


async def test_a_torrent_that_is_added_while_it_is_removed_stays(store: Store) -> None:
    await register(store, 1)
    await crowd(uniques(store), 30)
    argv: tuple[str, int] = (IH.hex(), int(store.clock()))
    assert await store.scripts.remove([*argv, 0]) == 3
    await register(store, 1)
    assert await store.scripts.remove([*argv, 1]) == 1
    assert await store.torrents.get(IH) is not None


@pytest.mark.parametrize("mode", MODES)
async def test_the_sweep_forgets_unique_users_too(store: Store, mode: str) -> None:
    """T3: a torrent seen in many places takes several calls, each with a bounded part of the work."""
    await store.announce(update(1, "s"))
    await store.announce(update(1, "x"))
    await crowd(uniques(store, mode), 40)
    await store.pass_time(store.rules.forget_after)
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
    assert await uniques(store, mode).top("torrents") == []


async def test_a_torrent_that_is_joined_while_it_is_being_forgotten_stays(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.announce(update(1, "x"))
    await crowd(uniques(store), 30)
    await store.pass_time(store.rules.forget_after)
    step = await store.reaping.sweep(["1"], "", 200)
    assert step.position and not step.done
    for peer in range(1, 30):
        await store.announce(update(peer, "s"))
    for budget in (200, 10):  # small enough to be counted at once, and too large for that
        again = await store.reaping.sweep(["1"], step.position, budget)
        assert (again.forgotten, again.repairs) == (0, 0)
    assert await store.torrents.get(IH) is not None


@pytest.mark.parametrize("mode", MODES)
async def test_flush_removes_statistics_and_keeps_torrents(store: Store, mode: str) -> None:
    """B14: what is left is exactly what was there before anybody was counted, but for `new`."""
    await store.announce(update(1, "s"))
    await store.torrents.deny(info_hash(9), "no")
    await store.users.add("7", "p" * 20)
    before = await store.dump()
    users = uniques(store, mode)
    for n in range(30):
        await users.sight([sighting(f"10.0.{n}.{k}", place=LONDON) for k in range(10)], START + n * 20 * DAYS)
    grown = len(await store.dump())
    progress = [removed async for removed in users.flush()]
    assert progress[-1] == grown - len(before)
    assert progress == sorted(progress)
    await store.redis.hdel(store.keys.torrent(IH), "new")
    assert await store.dump() == before
    assert await users.sight([sighting()], START) == 1
    assert await figures(store) == [(1, 1)] * 7
