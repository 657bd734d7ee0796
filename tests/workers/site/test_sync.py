"""The sync writes a site's tables: on a real MariaDB, from announces to a real store."""

import asyncio

from sqlalchemy import event

from tests.databases import Site
from tests.store.harness import Store, endpoint, peer_id
from tests.workers.site.harness import announce, members, syncing
from tracker.workers.site.database import SiteError
from tracker.workers.site.sync import SiteSync


async def test_announces_arrive_in_the_tables_of_the_site(store: Store, unit3d: Site) -> None:
    await members(store, unit3d, [7, 8])
    unit3d.sql("UPDATE users SET uploaded = 5000, seedbonus = 12 WHERE id = 7")
    async with syncing(store, unit3d) as sync:
        await announce(store, 7, "s", left=0)
        await announce(store, 8, "s")
        await store.pass_time(600)
        await announce(store, 7, up=300, left=0)
        await announce(store, 8, "c", down=1000, left=0)
        assert not await sync.round()

    assert unit3d.sql("SELECT uploaded, downloaded, seedbonus FROM users WHERE id = 7") == [
        ["5300", "0", "12.00"]
    ]
    assert unit3d.sql("SELECT downloaded FROM users WHERE id = 8") == [["1000"]]
    assert unit3d.sql("SELECT seeders, leechers, times_completed FROM torrents") == [["2", "0", "1"]]
    history = "SELECT actual_uploaded, actual_downloaded, seeder, active, seedtime, completed_at IS NULL FROM history"
    assert unit3d.sql(f"{history} ORDER BY user_id") == [
        ["300", "0", "1", "1", "600", "1"],
        ["0", "1000", "1", "1", "0", "0"],
    ]
    peers = unit3d.sql(
        "SELECT HEX(peer_id), HEX(ip), port, uploaded, `left`, active, seeder, UNIX_TIMESTAMP(updated_at), agent "
        "FROM peers WHERE user_id = 7"
    )
    address = endpoint(7)[:4].hex().upper()
    assert peers == [
        [
            peer_id(7).hex().upper(),
            address,
            "6881",
            "300",
            "0",
            "1",
            "1",
            str(int(store.clock.now)),
            "Xtorrent 0.0.0.1",
        ]
    ]


class Cut(OSError):
    pass


async def cut_round(sync: SiteSync, after: int) -> bool:
    """A round whose process dies before the statement or commit number ``after``. False if it ends before."""
    left = after

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Cut

    engine = sync.database.engine.sync_engine
    names = ("before_cursor_execute", "commit")
    for name in names:
        event.listen(engine, name, count)
    try:
        await sync.round()
        return False
    except SiteError:
        return True
    finally:
        for name in names:
            event.remove(engine, name, count)


async def test_a_round_that_ends_at_any_point_adds_nothing_twice_and_loses_nothing(
    store: Store, unit3d: Site
) -> None:
    """While the site's shop adds to the same rows."""
    await members(store, unit3d, [7])
    total, after, was_cut = 0, 0, True
    async with syncing(store, unit3d) as sync:
        await sync.round()
        while was_cut:
            await announce(store, 7, "s", left=0)
            await store.pass_time(60)
            await announce(store, 7, "x", up=1000, left=0)
            total += 1000
            was_cut = await cut_round(sync, after)
            unit3d.sql("UPDATE users SET uploaded = uploaded + 7")
            after += 1
            await sync.round()
            assert unit3d.number("SELECT uploaded FROM users WHERE id = 7") == total + 7 * after, after
            assert unit3d.number("SELECT actual_uploaded FROM history") == total
    assert after > 10


async def test_two_processes_that_write_the_same_rows_add_them_once(store: Store, unit3d: Site) -> None:
    await members(store, unit3d, range(1, 41))
    async with syncing(store, unit3d) as first, syncing(store, unit3d) as second:
        for user in range(1, 41):
            await announce(store, user, "s", left=0)
        await store.pass_time(60)
        for user in range(1, 41):
            await announce(store, user, up=100 * user, left=0)
        await asyncio.gather(first.round(), second.round())
    assert unit3d.number("SELECT COUNT(*) FROM users WHERE uploaded = 100 * id") == 40


async def test_regular_announces_arrive_with_what_they_were_credited(store: Store, unit3d: Site) -> None:
    await members(store, unit3d, [7])
    await store.users.edit("7", {"upload_multiplier": "2"})
    async with syncing(store, unit3d) as sync:
        await announce(store, 7, "s", left=0)
        await sync.round()
        await store.pass_time(600)
        await announce(store, 7, up=300, left=0)
        await store.changes.record_updates()
        await sync.round()
    assert unit3d.sql("SELECT uploaded, actual_uploaded, seedtime, agent FROM history") == [
        ["600", "300", "600", "Xtorrent 0.0.0.1"]
    ]
    assert unit3d.number("SELECT uploaded FROM users WHERE id = 7") == 600
    assert unit3d.number("SELECT uploaded FROM peers") == 300
