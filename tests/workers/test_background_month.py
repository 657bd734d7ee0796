"""33 days of a tracker's background work, hour by hour on the test's clock, compared with a model.

Users are counted repeatedly, a month ends, and slices expire.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from loadtest.servers import Server
from tests.store.harness import START, Clock, Store, info_hash, running
from tests.store.stats.metrics import metrics
from tests.workers.cleaning import known, with_slices
from tests.workers.user_counting import LONDON, PARIS, address
from tracker.bittorrent import Address, InfoHash
from tracker.geoip import Place
from tracker.settings.background import UniqueSettings
from tracker.store.schema.keys import Keys
from tracker.store.stats.metric_names import place_names, user_name
from tracker.store.stats.slices import PRECISIONS, RETAINED, oldest_retained, start_of
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.join_counts import UniqueUserCounter
from tracker.workers.samples import clean_counters

HOUR, DAY = 3600, 86_400
FIRST = START - START % DAY
"""The 15th of a month with 31 days, 00:00 UTC."""
DAYS = 33
MONTHS = ("2027-01", "2027-02")
TURN = FIRST + 17 * DAY
AGAIN = 30 * DAY
DAILY = 7
"""An address seen every hour, alone in torrent 4."""


@dataclass
class Model:
    """The model of unique users: an address counts in a metric unless it did in the last 30 days."""

    markers: dict[tuple[str, str], int] = field(default_factory=dict)
    totals: "Counter[str]" = field(default_factory=Counter)
    months: "Counter[tuple[str, str]]" = field(default_factory=Counter)
    new: int = 0
    counted_again: "Counter[int]" = field(default_factory=Counter)
    """By how many days after the time before."""

    def see(self, torrent: InfoHash, seen: Address, now: int) -> None:
        user = user_name(seen, UniqueSettings().ipv6_prefix)
        place = place_of(seen)
        for metric in metrics(torrent, place_names(place.country_name, place.city, place.postcode)):
            before = self.markers.get((metric, user))
            if before is not None and now - before < AGAIN:
                continue
            self.markers[metric, user] = now
            self.totals[metric] += 1
            self.months[metric, MONTHS[now >= TURN]] += 1
            self.new += metric == f"torrents.{torrent.hex()}.users"
            if before is not None:
                self.counted_again[(now - before) // DAY] += 1


def place_of(seen: Address) -> Place:
    return PARIS if seen[-1] % 2 else LONDON


def events_until(end: int) -> Iterator[int]:
    """The seconds of an hour at which counters are incremented.

    On the last two days they are denser towards the end, so that every precision is full then.
    """
    at = end - HOUR
    while at < end:
        yield at
        left = FIRST + DAYS * DAY - at
        at += 1 if left <= 130 else 5 if left <= 700 else 60 if left <= 7500 else 300 if left <= 31 * HOUR else HOUR


def joins(hour: int, rng: random.Random) -> list[tuple[int, int]]:
    """(torrent, address): the hourly one, regular ones, some once in eight days, and a new one."""
    seen = [(4, DAILY), (1, DAILY), (rng.randrange(1, 4), rng.randrange(20, 40)), (2, 10_000 + hour)]
    if hour % (8 * 24) == 5:
        seen += [(3, number) for number in range(50, 60)]
    return seen


async def test_33_days_of_counting_agree_with_the_model(valkey: Server, prefix: str) -> None:
    """B8: totals, both months and the times of markers equal the model's. No address counts twice in 30 days.

    C3: at most 120 expired slices of each length and the current one; no counter without slices is in the index. C1,
    C2: the remaining slices have the right counts.
    """
    rng, model, events = random.Random(11), Model(), Counter[int]()
    async with running(Store(valkey.url, Keys(prefix), SwarmRules(), Clock(FIRST))) as store:
        for torrent in (1, 2, 3, 4):
            await store.torrents.add(info_hash(torrent))
        counter = UniqueUserCounter(store, UniqueSettings(), lookup=place_of, refresh=lambda: None)
        store.counters.count("once")
        fullest: Counter[int] = Counter()
        for hour in range(DAYS * 24):
            # The first address returns one second before 30 days are over.
            now = FIRST + hour * HOUR + (30 if hour == 0 else 29 if hour == 30 * 24 else rng.randrange(60))
            store.clock.now = now
            for torrent, number in joins(hour, rng):
                counter.add(info_hash(torrent), address(number))
                model.see(info_hash(torrent), address(number), now)
            await counter.flush()
            store.clock.now = FIRST + (hour + 1) * HOUR
            for at in events_until(int(store.clock.now)):
                store.counters.count("events", at=at)
                store.counters.observe("seconds", 1.5, at=at)
                events[at] += 1
            await store.counters.flush()
            if hour % 6 == 5:  # as if the runs between were missed
                await clean_counters(store.counters, store.clock())
            if hour % 120 == DAYS * 24 % 120 - 1:
                fullest |= await slices_stored(store)
        await check_users(store, model)
        await check_slices(store, events, model.new)
    assert fullest.pop(DAY) == DAYS and fullest.pop(DAY // 3) == 3 * DAYS
    assert min(fullest.values()) >= RETAINED - 1


async def slices_stored(store: Store) -> Counter[int]:
    """The maximum number of slices of a counter or distribution, by precision."""
    stored: Counter[int] = Counter()
    for precision in PRECISIONS:
        for key in (store.keys.counter(precision, "events"), store.keys.distribution(precision, "seconds")):
            stored[precision] = max(stored[precision], await store.redis.hlen(key))
        assert stored[precision] <= RETAINED + 1
    assert await known(store) == await with_slices(store)
    return stored


async def check_users(store: Store, model: Model) -> None:
    alone = f"torrents.{info_hash(4).hex()}.users"
    assert model.totals[alone] == 2
    assert min(at for (metric, _), at in model.markers.items() if metric == alone) >= FIRST + 30 + AGAIN + 60
    assert set(model.counted_again) >= {30, 32} and min(model.counted_again) == 30
    for metric, users in model.totals.items():
        by_month = [model.months[metric, month] for month in MONTHS]
        assert await store.unique_users.users_of(metric) == users == sum(by_month)
        assert [await store.unique_users.users_of(metric, month) for month in MONTHS] == by_month
    for period in ("all", *MONTHS):
        of_torrents = {
            info_hash(torrent).hex(): model.totals[metric] if period == "all" else model.months[metric, period]
            for torrent in (1, 2, 3, 4)
            for metric in [f"torrents.{info_hash(torrent).hex()}.users"]
        }
        assert dict(await store.unique_users.top("torrents", period)) == of_torrents
    names = list(model.markers)
    stored = await store.redis.mget([f"{store.keys.prefix}{metric}.{user}" for metric, user in names])
    assert [int(at) for at in stored] == [model.markers[name] for name in names]


async def check_slices(store: Store, events: "Counter[int]", new_users: int) -> None:
    for precision in PRECISIONS:
        since = oldest_retained(store.clock.now, precision)
        expected: Counter[int] = Counter()
        for at, number in events.items():
            if start_of(at, precision) >= since:
                expected[start_of(at, precision)] += number
        assert await store.counters.series("events", precision) == sorted(expected.items())
        _, total = await store.counters.distribution("seconds", precision)
        assert total is not None and (total.count, total.mean) == (sum(expected.values()), 1.5)
    assert sum(number for _, number in await store.counters.series("unique.new", DAY)) == new_users
    once = {entry for entry in await known(store) if entry.endswith(":once")}
    assert once == {f"{DAY // 3}:once", f"{DAY}:once"}  # 120 of the others are less than 33 days
