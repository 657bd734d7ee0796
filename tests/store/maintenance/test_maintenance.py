"""The tables of maintenance, ``wipe_statistics`` and ``reindex`` (row T24); test_cleanup.py tests ``cleanup``."""

import re
from importlib import resources
from pathlib import Path

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import Store, info_hash, update
from tests.store.schema.test_keys import everything, rows_of
from tracker.store.client.scripts import announce_library
from tracker.store.maintenance.maintenance import OTHER_LIBRARIES, Finding, Maintenance
from tracker.store.schema.table import KEYS, row_of
from tracker.store.schema.table.cleanup import CHECKS, STATISTICS


async def cleanup(store: Store, *, dry_run: bool = True) -> dict[str, Finding]:
    return {finding.kind: finding for finding in await store.maintenance.cleanup(dry_run)}


def in_pages(store: Store, page: int) -> Maintenance:
    """The maintenance of a store, with so many keys in one SCAN."""
    return Maintenance(store, page)


async def reindex(store: Store) -> dict[str, int]:
    return {finding.kind: finding.count for finding in await store.maintenance.reindex()}


async def lively(make_store: MakeStore) -> Store:
    """A store with a key for nearly every row of the key table."""
    store = await make_store(accounts="required", peer_memory=3600, hnr_min_bytes=10, hnr_threshold=1000)
    await everything(store)
    # It reaps a peer by deleting its timeout, and writes a sample into the outbox: both leave stale keys.
    await cleanup(store, dry_run=False)
    return store


def name_of(store: Store, key: bytes) -> str:
    return key.decode("latin-1").removeprefix(store.keys.prefix)


# The table


def test_the_checks_name_rows_of_the_key_table() -> None:
    rows = {row.pattern: row for row in KEYS}
    assert set(CHECKS) | STATISTICS <= set(rows)
    for pattern, check in CHECKS.items():
        assert " " not in check.pattern or rows[pattern].type in ("SET", "ZSET"), pattern


async def test_every_key_finds_its_row(make_store: MakeStore) -> None:
    store = await lively(make_store)
    for key in await store.dump():
        name = name_of(store, key)
        row = row_of(name)
        assert row is not None and [row.pattern] == rows_of(f"t:{name}"), name
    for name in (
        "i:custom",
        "x",
        "",
        "user:short",
        "torrent_id:07",
        "p:1:2",
        "cities.users",
        "t:" + "0" * 39,
        "stats:visits",
        "admin:token:mine",
    ):
        assert row_of(name) is None, name


def test_every_global_counter_has_a_row() -> None:
    """Other keys with such names belong to a site, and are neither cleaned up nor wiped."""
    scripts = (path.read_text() for path in Path(str(resources.files("tracker.store") / "lua")).rglob("*.lua"))
    text = "\n".join(scripts)
    counted = set(re.findall(r"stats:([a-z_]+)", text)) - {"failures"}
    (table,) = re.findall(r"local TOTALS = \{(.*?)\}", text, re.DOTALL)
    counted |= set(re.findall(r"= '([a-z_]+)'", table))
    counted |= {"seeders", "leechers"}  # their names are built from the name of the ranking
    assert {"requests", "credit_cut"} < counted
    for counter in counted:
        row = row_of(f"stats:{counter}")
        assert row is not None and row.pattern == "t:stats:<counter>" and counter in row.holds, counter


# Statistics


@pytest.mark.parametrize("uniques", [False, True])
async def test_a_wipe_keeps_torrents_users_and_swarms(make_store: MakeStore, uniques: bool) -> None:
    store = await lively(make_store)
    before = await store.dump()
    removed = [number async for number in store.maintenance.wipe_statistics(uniques)]
    after = await store.dump()
    assert removed == sorted(removed) and removed[-1] == len(before) - len(after)
    gone = {row.pattern for key in before.keys() - after.keys() if (row := row_of(name_of(store, key)))}
    ours = {pattern for pattern in gone if not pattern.startswith(("t:<metric>", "t:hll:", "t:i:unique:", "t:unique:"))}
    assert ours == STATISTICS
    assert (gone != ours) == uniques
    assert {key: after[key] for key in after} == {key: before[key] for key in after}
    for figure in ("seeders", "leechers"):
        assert store.keys.stat(figure).encode() in after
    await check_invariants(store.redis, store.keys)


async def test_counters_restart_after_a_wipe(store: Store) -> None:
    store.counters.count("requests")
    await store.counters.flush()
    assert [number async for number in store.maintenance.wipe_statistics()]
    store.counters.count("requests")
    await store.counters.flush()
    assert int(await store.redis.get(store.keys.stat("requests"))) == 1
    assert await cleanup(store) == {}


async def test_counters_that_count_during_a_wipe_are_cleaned_later(store: Store) -> None:
    """A counter that lost its entry in the list of counters would never be cleaned again."""

    async def count() -> None:
        for number in range(10):
            store.counters.count(f"c{number}")
            store.counters.observe(f"d{number}", 1.0)
        await store.counters.flush()

    await count()
    async for _ in in_pages(store, 1).wipe_statistics():
        await count()
    await count()
    assert await cleanup(store) == {}


# Reindex


async def test_reindex_lists_what_a_site_registered(make_store: MakeStore) -> None:
    store = await make_store(open=False)
    redis, keys = store.redis, store.keys
    await redis.set(keys.info_hash(info_hash(1)), "500")
    await redis.hset(keys.torrent(info_hash(1)), "name", "By The Site")
    await redis.set(keys.info_hash(info_hash(2)), "no id")
    await redis.set(keys.deny(info_hash(3)), "no")
    assert await store.torrents.count() == 0
    found = await reindex(store)
    assert found == {
        "torrents that were in no ranking": 1,
        "torrents that were not listed": 1,
        "denials that were not listed": 1,
    }
    assert [torrent.name for torrent in await store.torrents.top("score", 9)] == ["By The Site"]
    assert [torrent.torrent_id for torrent in (await store.torrents.search("the site"))[1]] == ["500"]
    assert [denial.reason for denial in await store.torrents.denials()] == ["no"]
    assert await reindex(store) == {}
    await store.announce(update(1, "s"))
    assert await check_invariants(redis, keys) == 1
    assert await cleanup(store) == {}


async def test_reindex_rebuilds_deleted_rankings(store: Store) -> None:
    await store.torrents.add(info_hash(1), {"name": "empty"})
    await store.announce(update(1, "s", 2))
    await store.announce(update(2, "s", 2, bytes_left=0))
    whole = await store.dump()
    keys = store.keys
    await store.redis.delete(
        *(keys.index(figure) for figure in ("seeders", "leechers", "snatches")),
        f"{keys.prefix}i:name",
        keys.info_hashes(),
    )
    assert (await reindex(store))["torrents that were in no ranking"] == 2
    after = await store.dump()
    assert {key for key in whole if whole[key] != after.get(key)} <= {keys.torrent(info_hash(2)).encode()}
    await check_invariants(store.redis, keys)


async def test_reindex_changes_nothing_when_a_ranking_is_of_a_wrong_type(make_store: MakeStore) -> None:
    store = await make_store(open=False)
    await store.redis.set(store.keys.info_hash(info_hash(1)), "500")
    await store.redis.set(store.keys.index("leechers"), "another program's")
    before = await store.dump()
    assert await reindex(store) == {}
    assert await store.dump() == before
    await store.redis.delete(store.keys.index("leechers"))
    assert (await reindex(store))["torrents that were in no ranking"] == 1
    await check_invariants(store.redis, store.keys)


async def test_an_id_that_a_site_assigned_twice_changes_no_swarm(make_store: MakeStore) -> None:
    store = await make_store(open=False)
    await store.torrents.add(info_hash(1))
    await store.announce(update(1, "s"))
    await store.redis.set(store.keys.info_hash(info_hash(2)), "1")
    before = await store.dump()
    await reindex(store)
    assert await store.dump() == before
    assert await check_invariants(store.redis, store.keys) == 1


async def test_reindex_rebuilds_the_index_of_hit_and_runs(private: Store) -> None:
    await private.torrents.add(info_hash(1))
    await private.redis.sadd(private.keys.user_set(7, "hnr"), "1")
    await reindex(private)
    assert await private.users.hit_and_runs() == [("7", 1)]


async def test_libraries_of_other_versions_are_deleted_and_the_own_one_stays(store: Store) -> None:
    await store.announce(update(1, "s"))
    other = "#!lua name=swarmkeeper_other\nredis.register_function('other', function() return 1 end)"
    await store.redis.execute_command("FUNCTION", "LOAD", "REPLACE", other)
    try:
        (found,) = await store.maintenance.cleanup_libraries()
        assert (found.kind, found.changed) == (OTHER_LIBRARIES, 0) and "swarmkeeper_other" in found.examples
        (found,) = await store.maintenance.cleanup_libraries(dry_run=False)
        assert found.changed == found.count
        assert not await store.maintenance.cleanup_libraries()
    finally:
        libraries = await store.redis.execute_command("FUNCTION", "LIST", "LIBRARYNAME", "swarmkeeper_*")
    assert announce_library().name.encode() in [row[1] for row in libraries]
    assert (await store.announce(update(1))).outcome in ("update", "early")
