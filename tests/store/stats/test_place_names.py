"""Unique users of earlier versions get the current names of places: once, completely, even after an interruption."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.store.harness import START, Store, info_hash
from tracker.errors import StoreUnavailable
from tracker.geoip import COUNTRY_NAMES
from tracker.store.stats.metric_names import place_names
from tracker.store.stats.months import month_of, month_start
from tracker.store.stats.place_names import PlaceNameMigration
from tracker.store.stats.unique_users import UniqueRules, UniqueUserEvent, UniqueUsers

IH = info_hash(1)
MONTH = month_of(START)
UNTIL = int(month_start(START, 14).timestamp())
MARKED = START + 5
OLD = {  # as earlier versions counted: users of all time and of the month
    "countries.GB": (7, 3),
    "countries.US": (5, 5),
    "cities.GB/ENG/London": (6, 3),
    "cities.US/IL/Springfield": (2, 2),
    "cities.US/MA/Springfield": (3, 3),
    "cities.SG/Singapore": (1, 1),
    "postcodes.GB/SW1A": (4, 2),
}
NEW = {
    "countries.United_Kingdom": (7, 3),
    "countries.United_States": (5, 5),
    "countries.United_Kingdom.cities.London": (6, 3),
    "countries.United_States.cities.Springfield": (5, 5),
    "countries.Singapore.cities.Singapore": (1, 1),
    "countries.United_Kingdom.postcodes.SW1A": (4, 2),
}
BOARDS = {
    "countries": {"United_Kingdom", "United_States"},
    "cities": {"United_Kingdom/London", "United_States/Springfield", "Singapore/Singapore"},
    "postcodes": {"United_Kingdom/SW1A"},
}


async def count_as_before(store: Store) -> None:
    """The keys of the earlier version: in all modes, with markers of one address in each place."""
    prefix, redis = store.keys.prefix, store.redis
    torrent = f"torrents.{IH.hex()}"
    await store.torrents.add(IH)
    await redis.set(f"{prefix}{torrent}.users", 12)
    for name, (total, month) in OLD.items():
        scope, _, place = name.partition(".")
        for head, board, entry in (("", f"{scope}:", place), (f"{torrent}.", torrent, name)):
            metric = f"{prefix}{head}{name}.users"
            await redis.set(metric, total)
            await redis.set(f"{metric}.{MONTH}", month, exat=UNTIL)
            await redis.set(f"{metric}.192.0.2.1", MARKED, ex=86_400)
            await redis.set(f"{metric}.2001:db8::/64", MARKED + len(name), ex=86_400)
            await redis.pfadd(f"{prefix}hll:{head}{name}.users", "a", name)
            await redis.pfadd(f"{prefix}hll:{head}{name}.users.{MONTH}", name)
            await redis.expireat(f"{prefix}hll:{head}{name}.users.{MONTH}", UNTIL)
            boards = {f"{board}all": total, f"{board}{MONTH}": month} if not head else {board: total}
            for period, score in boards.items():
                await redis.zadd(f"{prefix}i:unique:{period}", {entry: score})
                if period.endswith(MONTH):
                    await redis.expireat(f"{prefix}i:unique:{period}", UNTIL)


async def contents(store: Store) -> dict[str, Any]:
    """Each key with its value and whether it expires."""
    found: dict[str, Any] = {}
    for raw in await store.dump():
        key = raw.decode().removeprefix(store.keys.prefix)
        kind: Any = await store.redis.type(raw)
        if key.startswith("hll:"):
            value: Any = await store.redis.pfcount(raw)
        elif kind == b"zset":
            value = dict(await store.redis.zrange(raw, 0, -1, withscores=True))
        else:
            value = await store.redis.get(raw) if kind == b"string" else kind
        found[key] = value, await store.redis.ttl(raw) > 0
    return found


def migration_of(store: Store, connection: Any = None) -> PlaceNameMigration:
    return PlaceNameMigration(connection or store.connection, store.scripts, store.keys, COUNTRY_NAMES)


async def rename(store: Store) -> int:
    return await migration_of(store).run()


@pytest.fixture
async def before(store: Store) -> Store:
    await count_as_before(store)
    return store


async def test_counts_months_and_leaderboards_get_the_new_names(before: Store) -> None:
    assert await migration_of(before).needed()
    assert await rename(before) == 0
    assert not await migration_of(before).needed()
    for head in ("", f"torrents.{IH.hex()}."):
        for name, figures in NEW.items():
            metric = f"{head}{name}.users"
            month = await before.unique_users.users_of(metric, MONTH)
            assert (await before.unique_users.users_of(metric), month) == figures, metric
            assert await before.redis.expiretime(before.keys.unique_month(metric, MONTH)) == UNTIL
            assert await before.redis.expiretime(f"{before.keys.prefix}hll:{metric}.{MONTH}") == UNTIL
            assert await before.redis.ttl(before.keys.unique(metric)) == -1
    for scope, names in BOARDS.items():
        for period, which in (("all", 0), (MONTH, 1)):
            ranked = dict(await before.unique_users.top(scope, period))
            assert ranked.keys() == names
            for name, users in ranked.items():
                country, _, below = name.partition("/")
                key = f"countries.{country}.{scope}.{below}" if below else f"countries.{country}"
                assert users == NEW[key][which]
        assert await before.redis.expiretime(before.keys.unique_index(scope, MONTH)) == UNTIL
    places = {
        f"{scope}.{place.name}": place.users for scope, place in await before.unique_users.places(IH, 99)
    }
    assert places == {
        "countries.United_Kingdom": 7,
        "countries.United_States": 5,
        "cities.United_Kingdom/London": 6,
        "cities.United_States/Springfield": 5,
        "cities.Singapore/Singapore": 1,
        "postcodes.United_Kingdom/SW1A": 4,
    }
    assert await before.unique_users.users_of(f"torrents.{IH.hex()}.users") == 12
    springfield = f"{before.keys.prefix}hll:countries.United_States.cities.Springfield.users"
    assert await before.redis.pfcount(springfield) == 3  # "a" was seen in both


async def test_nothing_is_left_under_an_earlier_name(before: Store) -> None:
    await rename(before)
    for key, (value, _) in (await contents(before)).items():
        entries = {name.decode() for name in value} if isinstance(value, dict) else set()
        assert not key.removeprefix("hll:").startswith(("cities.", "postcodes."))
        for text in {key, *entries}:
            assert "GB" not in text and "US" not in text and "SG" not in text


@pytest.mark.parametrize("mode", ["exact", "hyperloglog"])
async def test_users_counted_before_are_not_counted_again(before: Store, mode: Any) -> None:
    """Markers keep their time and their expiry; of two the later one stays."""
    await rename(before)
    metric = "countries.United_States.cities.Springfield.users"
    marker = f"{before.keys.prefix}{metric}.2001:db8::/64"
    assert await before.redis.get(marker) == str(MARKED + len("cities.US/MA/Springfield")).encode()
    assert 0 < await before.redis.ttl(marker) <= 86_400
    users = UniqueUsers(before.shards, UniqueRules(mode=mode))
    place = place_names("United Kingdom", "London", "SW1A")
    await users.count([UniqueUserEvent(IH, "192.0.2.1" if mode == "exact" else "a", place)], MARKED)
    assert await before.unique_users.users_of("countries.United_Kingdom.cities.London.users") == 6
    await users.count([UniqueUserEvent(IH, "192.0.2.77", place)], MARKED)
    assert await before.unique_users.users_of("countries.United_Kingdom.cities.London.users") == 7
    assert (await before.unique_users.top("cities"))[0] == ("United_Kingdom/London", 7)


class Failing:
    """A connection that the store closes after a number of commands."""

    def __init__(self, store: Store, commands: int) -> None:
        self.left = commands
        self._connection = store.connection

    def spend(self) -> None:
        if self.left == 0:
            raise StoreUnavailable("gone")
        self.left -= 1

    async def command(self, *args: Any) -> Any:
        self.spend()
        return await self._connection.command(*args)


@pytest.mark.long
async def test_an_interruption_loses_and_doubles_nothing(before: Store) -> None:
    """Each call of the store in turn is the last of the first run; a second run gives the same result."""
    await rename(before)
    whole = await contents(before)
    cuts = 0
    while True:
        await before.redis.delete(*(await before.dump()))
        await count_as_before(before)
        failing: Any = Failing(before, cuts)
        scripts: Any = SimpleNamespace(rename_unique=partial(_call, before, failing))
        try:
            await PlaceNameMigration(failing, scripts, before.keys, COUNTRY_NAMES, max_batch=3).run()
        except StoreUnavailable:
            await before.redis.delete(before.keys.unique_renaming())  # the lease ends
            if await migration_of(before).needed():  # otherwise everything except the lease was done
                await rename(before)
            assert await contents(before) == whole, cuts
            cuts += 1
            continue
        break
    assert cuts > 20


async def _call(store: Store, failing: Failing, argv: Any) -> Any:
    failing.spend()
    return await store.scripts.rename_unique(argv)


async def test_counts_under_both_names_are_added_up(before: Store) -> None:
    """An earlier version may have counted once more beside this one."""
    await rename(before)
    after = await contents(before)
    await before.redis.set(f"{before.keys.prefix}countries.GB.users", 2)
    await before.redis.zadd(before.keys.unique_index("countries", "all"), {"GB": 2})
    assert await migration_of(before).needed()
    await rename(before)
    changed = {key: value for key, value in (await contents(before)).items() if after[key] != value}
    assert changed == {
        "countries.United_Kingdom.users": (b"9", False),
        "i:unique:countries:all": ({b"United_Kingdom": 9.0, b"United_States": 5.0}, False),
    }


async def test_keys_of_another_type_are_left_and_counted(before: Store) -> None:
    """Keys beside them are not affected."""
    prefix = before.keys.prefix
    await before.redis.delete(f"{prefix}countries.GB.users", f"{prefix}cities.SG/Singapore.users")
    await before.redis.hset(f"{prefix}countries.GB.users", "some", "body's")
    await before.redis.set(f"{prefix}cities.SG/Singapore.users", "many")
    await before.redis.set(f"{prefix}hll:countries.US.users", "none")
    assert await rename(before) == 3
    assert await before.redis.get(f"{prefix}cities.SG/Singapore.users") == b"many"
    assert await before.unique_users.users_of("countries.United_States.users") == 5
    assert dict(await before.unique_users.top("cities"))["Singapore/Singapore"] == 1
    assert not await migration_of(before).needed()


async def test_one_process_renames_at_a_time(before: Store) -> None:
    one, other = migration_of(before), migration_of(before)
    assert await one.claim()
    assert not await other.claim()
    assert 0 < await before.redis.ttl(before.keys.unique_renaming()) <= 15
    await rename(before)
    assert not await other.needed()


async def test_names_that_no_version_writes_stay(store: Store) -> None:
    for name in (
        "countries.France.users",
        "countries.XX.users",
        "cities.London.users",
        "cities.GB/a b/c.users",
        "countries.gb.users",
        "torrents.xyz.cities.GB/London.users",
        f"torrents.{IH.hex()}.users.2026-11",
    ):
        assert migration_of(store).rename(name) is None, name


async def test_a_long_name_is_cut_as_current_names_are(store: Store) -> None:
    """A name that was cut before keeps its hash, which is not reversible."""
    long = f"cities.GB/ENG/{'x' * 90}%-{'0' * 32}.users"
    found = migration_of(store).rename(long)
    assert found is not None
    assert found.new.startswith("countries.United_Kingdom.cities.xxx") and len(found.new) < 130


async def test_older_torrents_get_all_their_columns(store: Store) -> None:
    """Earlier versions wrote a column when it first exceeded 0."""
    await store.torrents.add(IH, {"name": "one"})
    key = store.keys.torrent(IH)
    await store.redis.hdel(key, "announces", "snatches", "leechers")
    await store.redis.hset(key, "seeders", "3")
    await store.redis.hset(store.keys.torrent(info_hash(2)), "name", "not registered")
    await rename(store)
    figures = {"announces": "0", "leechers": "0", "seeders": "3", "snatches": "0"}
    assert (await store.torrent(IH)).items() >= figures.items()
    assert await store.torrent(info_hash(2)) == {"name": "not registered"}
