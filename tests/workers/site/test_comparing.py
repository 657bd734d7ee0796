"""Comparing all rows of both sides, and repairing those of the site."""

from loadtest.databases import Site
from tests.store.harness import Store
from tests.workers.site.harness import announce, members, syncing
from tracker.workers.site.rows import Compared, Comparison
from tracker.workers.site.sync import SiteSync

DAY_SECONDS = 86_400


async def compared(sync: SiteSync) -> dict[str, Compared]:
    await sync.open()
    comparison: Comparison = sync.comparison(repair=False)
    async for _ in comparison.run():
        pass
    return {each.table: each for each in comparison.tables.values()}


async def some_peers(store: Store, site: Site, sync: SiteSync) -> None:
    await members(store, site, [1, 2, 3])
    for user in (1, 2, 3):
        await announce(store, user, "s", left=0)
    await store.pass_time(60)
    for user in (1, 2, 3):
        await announce(store, user, up=100 * user, left=0)
    await sync.round()


async def test_nothing_differs_after_a_round(store: Store, unit3d: Site) -> None:
    async with syncing(store, unit3d) as sync:
        await some_peers(store, unit3d, sync)
        unit3d.sql("UPDATE users SET uploaded = uploaded + 5 WHERE id = 1")
        tables = await compared(sync)
    assert {name: (each.rows, each.differences) for name, each in tables.items()} == {
        "users": (3, 0),
        "torrents": (1, 0),
        "history": (3, 0),
        "peers": (3, 0),
        "unregistered_info_hashes": (0, 0),
    }
    assert tables["users"].sums["uploaded"] == [600, 605]
    assert tables["history"].sums["actual_uploaded"] == [600, 600]


async def test_differing_rows_are_named_and_a_full_pass_repairs_them(store: Store, unit3d: Site) -> None:
    async with syncing(store, unit3d) as sync:
        await some_peers(store, unit3d, sync)
        unit3d.sql(
            "UPDATE history SET seedtime = 7 WHERE user_id = 1",
            "UPDATE torrents SET seeders = 9",
            "DELETE FROM peers WHERE user_id = 2",
            "INSERT INTO peers (user_id, torrent_id, peer_id, ip, port, agent, uploaded, downloaded, `left`, seeder)"
            " VALUES (3, 1, REPEAT('x', 20), 'abcd', 1, 'old', 0, 0, 0, 1)",
            "DELETE FROM tracker_sync WHERE source = 'users:3'",
            "UPDATE users SET uploaded = 0 WHERE id = 3",
        )
        tables = await compared(sync)
        assert tables["history"].named == ["history 1 1: seedtime 60, at the site 7"]
        assert tables["torrents"].named == ["torrents 1: seeders 3, at the site 9"]
        assert tables["users"].named == ["users 3: uploaded: 300 not added yet"]
        assert (tables["peers"].missing, tables["peers"].stale) == (1, 1)

        await sync.full_pass()
        tables = await compared(sync)
    assert not any(each.differences for each in tables.values())
    assert unit3d.number("SELECT uploaded FROM users WHERE id = 3") == 300
    assert unit3d.sql("SELECT active, seeder FROM peers WHERE agent = 'old'") == [["0", "0"]]
    assert unit3d.number("SELECT COUNT(*) FROM peers WHERE active") == 3


async def test_all_rows_are_compared_when_the_feed_lost_changes(store: Store, unit3d: Site) -> None:
    async with syncing(store, unit3d) as sync:
        await some_peers(store, unit3d, sync)
        await store.pass_time(60)
        for user in (1, 2):
            await announce(store, user, "x", up=1000, left=0)
        await store.changes.delete()
        await announce(store, 3, "x", up=1000, left=0)
        await sync.round()
        assert not any(each.differences for each in (await compared(sync)).values())
    assert unit3d.number("SELECT SUM(uploaded) FROM users") == 3000
    assert unit3d.number("SELECT COUNT(*) FROM peers WHERE active") == 0


async def test_all_rows_are_compared_once_a_day(store: Store, unit3d: Site) -> None:
    async with syncing(store, unit3d) as sync:
        await some_peers(store, unit3d, sync)
        store.clock.now += (DAY_SECONDS - store.clock.now) % DAY_SECONDS + 5 * 3600
        await sync.step()
        assert sync.state.compared_at == int(store.clock.now)
        unit3d.sql("UPDATE history SET seedtime = 7")
        store.clock.now += 3600
        await sync.step()
        assert unit3d.number("SELECT SUM(seedtime) FROM history") == 21
        store.clock.now += DAY_SECONDS
        await sync.step()
    assert (sync.state.repaired, unit3d.number("SELECT SUM(seedtime) FROM history")) == (3, 180)
