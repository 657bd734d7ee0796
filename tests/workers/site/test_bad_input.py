"""Tables and rows that do not fit, and databases that cannot be used: a line says what to do, and a round goes on with
the rest."""

import asyncio

import pytest
import structlog
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from loadtest.databases import Database, Site
from tests.store.harness import Store, peer_id, update
from tests.store.jobs.harness import Metrics
from tests.workers.site.harness import announce, members, passkey, register, syncing
from tracker.errors import StartupError
from tracker.workers.site.database import SiteDatabase, SiteError, site_error
from tracker.workers.site.mapping import load_mapping
from tracker.workers.site.rows import Named
from tracker.workers.site.sync import SiteSync


async def problem_of(store: Store, url: str) -> str:
    async with SiteDatabase(url) as database:
        sync = SiteSync(store, database, load_mapping("unit3d"))
        with pytest.raises(SiteError) as caught:
            await sync.adopt()
        return str(caught.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("ALTER TABLE history DROP COLUMN seedtime", "column history.seedtime is missing: remove it from the mapping"),
        (
            "ALTER TABLE torrents DROP COLUMN balance",
            "column torrents.balance is missing: remove balance from the mapping",
        ),
        ("DROP TABLE peers", "table peers is missing: name it as the site does"),
        ("ALTER TABLE users MODIFY uploaded INT UNSIGNED", "column users.uploaded is too small"),
        ("ALTER TABLE peers MODIFY peer_id BINARY(8)", "column peers.peer_id is too small: peer_id needs 20 bytes"),
        ("ALTER TABLE torrents MODIFY seeders VARCHAR(9)", "column torrents.seeders has the type VARCHAR"),
        ("ALTER TABLE history DROP PRIMARY KEY", "table history has no unique key on (user_id, torrent_id): add one"),
        ("ALTER TABLE history ENGINE=MyISAM", "table history has no transactions: ALTER TABLE history ENGINE=InnoDB"),
    ],
)
async def test_tables_that_do_not_fit_are_named(store: Store, unit3d: Site, change: str, problem: str) -> None:
    unit3d.sql(change)
    assert problem in await problem_of(store, unit3d.url)


async def test_an_account_with_too_few_rights_is_told_so(store: Store, unit3d: Site, mariadb: Database) -> None:
    user = f"sync_{unit3d.name}"
    unit3d.sql(
        f"CREATE USER {user}@localhost IDENTIFIED BY 'hunter2'", f"GRANT SELECT ON {unit3d.name}.* TO {user}@localhost"
    )
    url = mariadb.url(unit3d.name, user, "hunter2")
    found = await problem_of(store, url)
    assert "the account has too few rights" in found
    assert "CREATE TABLE tracker_sync" in found
    assert "hunter2" not in found

    unit3d.sql(
        *(
            f"GRANT SELECT, INSERT, UPDATE ON {unit3d.name}.{name} TO {user}@localhost"
            for name in ("users", "torrents")
        ),
        f"GRANT CREATE, SELECT, INSERT, UPDATE ON {unit3d.name}.tracker_sync TO {user}@localhost",
    )
    async with syncing(store, Site(mariadb, unit3d.name), url=url) as sync:
        await members(store, unit3d, [7])
        await announce(store, 7, "s", left=0)
        with pytest.raises(SiteError, match="the account has too few rights"):
            await sync.round()
    unit3d.sql(f"DROP USER {user}@localhost")


async def test_a_database_that_is_unavailable_or_read_only_is_tried_again(
    store: Store, unit3d: Site, mariadb: Database
) -> None:
    assert "the site's database is unavailable" in await problem_of(
        store, "mysql://root:hunter2@localhost/site?unix_socket=/nonexistent/s"
    )
    user = f"ro_{unit3d.name}"
    unit3d.sql(
        f"CREATE USER {user}@localhost IDENTIFIED BY 'hunter2'", f"GRANT ALL ON {unit3d.name}.* TO {user}@localhost"
    )
    await members(store, unit3d, [7])
    metrics = Metrics()
    async with syncing(store, unit3d, metrics=metrics, url=mariadb.url(unit3d.name, user, "hunter2")) as sync:
        await announce(store, 7, "s", left=0)
        unit3d.sql("SET GLOBAL read_only = 1")
        try:
            assert not await sync.step()
        finally:
            unit3d.sql("SET GLOBAL read_only = 0")
        assert "read-only" in sync.state.error
        assert "name the primary" in sync.state.error
        assert metrics.counts["site_sync.errors"] == 1
        await sync.step()
        assert not sync.state.error
    assert unit3d.number("SELECT seeders FROM torrents") == 1
    unit3d.sql(f"DROP USER {user}@localhost")


async def test_deadlocks_are_tried_again(unit3d: Site) -> None:
    unit3d.sql("CREATE TABLE numbers (id INT PRIMARY KEY, n INT)", "INSERT INTO numbers VALUES (1, 0), (2, 0)")
    async with SiteDatabase(unit3d.url) as database:
        first, second = asyncio.Event(), asyncio.Event()

        async def add(
            connection: AsyncConnection, ids: tuple[int, int], own: asyncio.Event, other: asyncio.Event
        ) -> None:
            for id in ids:
                await connection.execute(text("UPDATE numbers SET n = n + 1 WHERE id = :id"), {"id": id})
                own.set()
                await other.wait()

        await asyncio.gather(
            database.transaction(lambda connection: add(connection, (1, 2), first, second)),
            database.transaction(lambda connection: add(connection, (2, 1), second, first)),
        )
    assert unit3d.sql("SELECT n FROM numbers") == [["2"], ["2"]]


async def test_a_locked_row_is_tried_again(store: Store, unit3d: Site) -> None:
    await members(store, unit3d, [7])
    unit3d.sql("SET GLOBAL innodb_lock_wait_timeout = 1")
    timed_out = asyncio.Event()
    try:
        async with SiteDatabase(unit3d.url) as other, syncing(store, unit3d) as sync:
            event.listen(sync.database.engine.sync_engine, "handle_error", lambda _: timed_out.set())
            await announce(store, 7, "s", left=0)
            async with asyncio.TaskGroup() as tasks, other.engine.begin() as connection:
                await connection.execute(text("UPDATE torrents SET name = 'renamed'"))
                tasks.create_task(sync.round())
                await timed_out.wait()
    finally:
        unit3d.sql("SET GLOBAL innodb_lock_wait_timeout = 2")
    assert unit3d.sql("SELECT name, seeders FROM torrents") == [["renamed", "1"]]


async def test_rows_that_the_site_deletes_are_made_again_and_users_are_named_once(store: Store, unit3d: Site) -> None:
    await members(store, unit3d, [7, 8])
    async with syncing(store, unit3d) as sync:
        for user in (7, 8):
            await announce(store, user, "s", left=0)
        await sync.round()
        with structlog.testing.capture_logs() as logs:
            for up in (100, 200):
                unit3d.sql("DELETE FROM users WHERE id = 8", "DELETE FROM history", "DELETE FROM peers")
                await store.pass_time(60)
                for user in (7, 8):
                    await announce(store, user, up=up, left=0)
                await store.changes.record_updates()
                await sync.round()
        assert [line["first"] for line in logs if "no row for users" in line["event"]] == ["users 8"]
        unit3d.sql(f"INSERT INTO users (id, username, passkey) VALUES (8, 'u8', '{passkey(8)}')")
        await sync.full_pass()
    assert unit3d.sql("SELECT uploaded FROM users") == [["200"], ["200"]]
    assert unit3d.sql("SELECT actual_uploaded FROM history") == [["200"], ["200"]]
    assert unit3d.number("SELECT COUNT(*) FROM peers WHERE active") == 2


async def test_rows_that_do_not_fit_are_named_and_the_others_are_written(store: Store, unit3d: Site) -> None:
    await members(store, unit3d, [7, 8])
    await register(store, [2**33])
    unit3d.sql("DELETE FROM users WHERE id = 8", "ALTER TABLE history ADD CHECK (user_id <> 8)")
    metrics = Metrics()
    async with syncing(store, unit3d, metrics=metrics) as sync:
        for user in (7, 8):
            await announce(store, user, "s", left=0)
        await store.announce(update(9, "s", passkey=passkey(2**33), bytes_left=0))
        named = Named()
        named.add((await store.changes.after("0", 1000)).changes)
        done = await sync.write(named)
    assert done.problems == [
        "users 8589934592: id holds at most 4294967295, not 8589934592",
        "history 8589934592 1: user_id holds at most 4294967295, not 8589934592",
        f"history 8 1: a row does not fit: CONSTRAINT `CONSTRAINT_1` failed for `{unit3d.name}`.`history`",
        f"peers 8589934592 1 {peer_id(9).hex()}: user_id holds at most 4294967295, not 8589934592",
    ]
    assert done.missing == ["users 8"]
    assert unit3d.sql("SELECT user_id FROM history") == [["7"]]
    assert unit3d.sql("SELECT user_id FROM peers ORDER BY user_id") == [["7"], ["8"]]


async def test_an_emptied_store_does_not_add_its_totals_again(store: Store, unit3d: Site) -> None:
    async with syncing(store, unit3d) as sync:
        await sync.round()
        unit3d.sql("UPDATE tracker_sync SET position = 'another' WHERE source = 'store'")
        again = SiteSync(store, sync.database, load_mapping("unit3d"))
        assert not await again.step()
    assert again.state.error.startswith("the site's database belongs to another store")


def test_a_text_of_the_database_keeps_its_words_without_values() -> None:
    text = "Can't connect to MySQL server on 'db.example' (it's 'down')"
    problem = str(site_error(OperationalError("", {}, Exception(2003, text))))
    assert problem == "the site's database is unavailable (Can't connect to MySQL server on … (it's …))"
    problem = str(site_error(ValueError("invalid input for $1: b'secret'")))
    assert "secret" not in problem


@pytest.mark.parametrize("url", ["mysql://me:secret@127.0.0.1:99999/x", "mysql://me:secret@127.0.0.1:x/x", "x"])
def test_a_url_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(StartupError, match="TRACKER_SITE__DATABASE is a URL") as caught:
        SiteDatabase(url)
    assert "me:secret" not in str(caught.value)
