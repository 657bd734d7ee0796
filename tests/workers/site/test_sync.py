"""The sync writes a site's tables: on a real MariaDB, from announces to a real store."""

import asyncio
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event

from loadtest.databases import Site
from loadtest.servers import ROOT
from tests.store.harness import Store, endpoint, info_hash, peer_id, running, update
from tests.workers.site.conftest import RULES
from tests.workers.site.harness import announce, members, passkey, syncing
from tests.workers.site.test_comparing import compared
from tracker.store.schema.keys import Keys
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

    assert unit3d.sql("SELECT uploaded, downloaded, seedbonus FROM users WHERE id = 7") == [["5300", "0", "12.00"]]
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
        [peer_id(7).hex().upper(), address, "6881", "300", "0", "1", "1", str(int(store.clock.now)), "Xtorrent 0.0.0.1"]
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


async def test_a_round_that_ends_at_any_point_adds_nothing_twice_and_loses_nothing(store: Store, unit3d: Site) -> None:
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


async def test_history_has_what_the_client_says_and_torrents_their_balance(store: Store, unit3d: Site) -> None:
    """``immune`` is only lowered, and only by announces. The site may change the balance at the same time."""
    await members(store, unit3d, [7, 8], [1, 2])
    unit3d.sql("UPDATE torrents SET balance = -5")
    await store.groups.save(4, {"hnr_exempt": "1"})
    await store.users.edit("7", {"group": "4"})
    history = "SELECT user_id, client_uploaded, client_downloaded, immune, agent FROM history ORDER BY user_id"
    async with syncing(store, unit3d) as sync:
        for user in (7, 8):
            await announce(store, user, "s")
        await store.pass_time(60)
        await announce(store, 7, "c", up=300, down=1000, left=0)
        await announce(store, 8, "x", up=70)
        await sync.round()
        assert unit3d.sql(history) == [
            ["7", "300", "1000", "1", "Xtorrent 0.0.0.1"],
            ["8", "70", "0", "0", "Xtorrent 0.0.0.1"],
        ]
        unit3d.sql("UPDATE torrents SET balance = balance + 1")
        await store.users.edit("7", {"group": "-1"})
        await store.users.edit("8", {"hnr_exempt": "1"})
        await sync.full_pass()
        assert [row[1:4] for row in unit3d.sql(history)] == [["300", "1000", "1"], ["70", "0", "0"]]

        await store.pass_time(60)
        await announce(store, 7, "s", left=0)
        await announce(store, 8, "s")
        await store.pass_time(60)
        await announce(store, 7, "x", up=2000, left=0)
        await sync.round()
    assert [row[1:4] for row in unit3d.sql(history)] == [["2000", "0", "0"], ["0", "0", "0"]]
    assert unit3d.sql("SELECT balance FROM torrents ORDER BY id") == [[str(2300 - 1000 + 70 - 4)], ["-4"]]


async def test_a_user_is_shown_what_is_not_registered(redis_url: str, prefix: str, unit3d: Site) -> None:
    """What the site removes does not come back with the next announce."""
    rows = "SELECT user_id, HEX(info_hash), UNIX_TIMESTAMP(created_at) FROM unregistered_info_hashes"
    async with running(Store(redis_url, Keys(prefix), replace(RULES, open=False))) as store:
        await members(store, unit3d, [7])
        async with syncing(store, unit3d) as sync:
            await announce(store, 7, "s")
            await store.refused(update(7, "s", 9, passkey=passkey(7)))
            tried = [["7", info_hash(9).hex().upper(), str(int(store.clock.now))]]
            await sync.round()
            assert unit3d.sql(rows) == tried
            unit3d.sql("DELETE FROM unregistered_info_hashes")
            await store.pass_time(60)
            await announce(store, 7, "c", left=0)
            await sync.round()
            assert unit3d.sql(rows) == []
            await sync.full_pass()
    assert unit3d.sql(rows) == tried


async def test_peers_have_whether_they_accept_connections(store: Store, unit3d: Site) -> None:
    """As the prober found: of a peer with two addresses one is enough."""
    await members(store, unit3d, [7, 8, 9])
    await store.connect_checks.note(endpoint(7, v6=True), "7", True)
    for user, connectable in ((7, False), (8, False)):
        await store.connect_checks.note(endpoint(user), str(user), connectable)
    async with syncing(store, unit3d) as sync:
        for user in (7, 8, 9):
            await announce(store, user, "s")
        await store.announce(update(7, endpoint=endpoint(7, v6=True), passkey=passkey(7)))
        await sync.round()
        assert unit3d.sql("SELECT user_id, connectable FROM peers") == [["7", "1"], ["8", "0"], ["9", "0"]]
        await store.connect_checks.note(endpoint(9), "9", True)
        await announce(store, 9, "x")
        await announce(store, 9, "s")
        await sync.round()
    assert unit3d.sql("SELECT user_id FROM peers WHERE connectable") == [["7"], ["9"]]


async def test_what_a_site_adds_in_redis_is_counted_beside_announces(store: Store, unit3d: Site) -> None:
    """To the fields that keys.md names for it."""
    row = next(line for line in (ROOT / "docs/keys.md").read_text().splitlines() if line.startswith("| `t:u:<uid>` |"))
    fields = re.findall(
        r"\w+",
        row.partition("totals of a user.")[2].partition(" (credited bytes; with one shard a site may `HINCRBY`")[0],
    )
    assert fields == ["uploaded", "downloaded"]
    await members(store, unit3d, [7])
    await announce(store, 7, "s")
    async with syncing(store, unit3d) as sync:
        for number in range(1, 21):
            await store.pass_time(60)
            added = (
                store.redis.hincrby(store.keys.user("7"), name, by) for name, by in zip(fields, (7, -3), strict=True)
            )
            await asyncio.gather(announce(store, 7, up=1000 * number, down=100 * number), *added)
        await announce(store, 7, "x", up=20_000, down=2000)
        await sync.round()
        assert not any(each.differences for each in (await compared(sync)).values())
    totals = {"uploaded": 20_000 + 20 * 7, "downloaded": 2000 - 20 * 3}
    (user,) = await store.site_rows.users(["7"])
    assert {name: user[name] for name in fields} == totals
    assert unit3d.sql("SELECT uploaded, downloaded FROM users") == [[str(each) for each in totals.values()]]


async def test_a_peer_that_came_and_went_between_two_rounds_has_a_row(store: Store, unit3d: Site) -> None:
    await members(store, unit3d, [7])
    async with syncing(store, unit3d) as sync:
        for event in ("s", "x"):
            await announce(store, 7, event, left=0)
        await sync.round()
    assert unit3d.sql("SELECT INET6_NTOA(ip), port, active, agent FROM peers") == [
        ["11.0.0.7", "6881", "0", "Xtorrent 0.0.0.1"]
    ]


async def test_a_table_that_a_site_need_not_have_is_left_out(store: Store, unit3d: Site) -> None:
    unit3d.sql("DROP TABLE unregistered_info_hashes")
    await members(store, unit3d, [7])
    async with syncing(store, unit3d) as sync:
        await announce(store, 7, "s")
        await sync.round()
    assert unit3d.number("SELECT leechers FROM torrents") == 1


async def test_several_shards_are_one_site(redis_url: str, prefix: str, unit3d: Site) -> None:
    """Limits that are kept in each shard, such as those of unregistered torrents, are read from all."""
    torrents = range(1, 9)
    async with running(Store(redis_url, Keys(prefix), replace(RULES, open=False), shards=4)) as store:
        await members(store, unit3d, [7, 8], torrents)
        async with syncing(store, unit3d) as sync:
            for torrent in torrents:
                for user in (7, 8):
                    await announce(store, user, "s", torrent, left=0)
                await store.refused(update(7, "s", 100 + torrent, passkey=passkey(7)))
            await store.pass_time(60)
            for torrent in torrents:
                await announce(store, 7, "u", torrent, up=100 * torrent, left=0)
                await announce(store, 8, "x", torrent, up=torrent, left=0)
            await store.changes.record_updates()
            for _ in range(3):
                store.clock.now += 1
                await sync.round()
            comparison = sync.comparison(repair=False)
            assert [rows async for rows in comparison.run()]
            assert not [text for each in comparison.tables.values() for text in each.named]
    assert unit3d.sql("SELECT uploaded FROM users") == [[str(100 * sum(torrents))], [str(sum(torrents))]]
    assert unit3d.number("SELECT SUM(seeders) FROM torrents") == len(torrents)
    assert unit3d.number("SELECT COUNT(*) FROM history WHERE seedtime = 60") == 2 * len(torrents)
    assert unit3d.number("SELECT COUNT(*) FROM peers WHERE active") == len(torrents)
    assert unit3d.number("SELECT COUNT(*) FROM unregistered_info_hashes") == len(torrents)


async def test_a_shop_in_php_adds_to_the_same_totals_meanwhile(store: Store, unit3d: Site) -> None:
    if not (php := shutil.which("php")):
        pytest.skip("no php on this system")
    users, purchases = 20, 400
    await members(store, unit3d, range(1, users + 1))
    unit3d.sql(f"UPDATE users SET seedbonus = {purchases}")
    client = unit3d.server.client(unit3d.name)
    command = [php, str(Path(__file__).with_name("shop.php")), str(purchases), str(users), "7", *client, "--unbuffered"]
    rounds = 0
    async with syncing(store, unit3d) as sync:
        for user in range(1, users + 1):
            await announce(store, user, "s", left=0)
        shop = await asyncio.create_subprocess_exec(*command)
        while shop.returncode is None or rounds < 3:
            rounds += 1
            await store.pass_time(60)
            for user in range(1, users + 1):
                await announce(store, user, up=1000 * rounds + user * (rounds % 2), left=0)
            await store.changes.record_updates()
            await sync.round()
            assert shop.returncode in (None, 0)
    moved = {user: 1000 * rounds + user * (rounds % 2) for user in range(1, users + 1)}
    bought = 7 * purchases // users
    assert unit3d.sql("SELECT id, uploaded, seedbonus FROM users") == [
        [str(user), str(moved[user] + bought), f"{purchases - purchases // users}.00"] for user in moved
    ]
