"""Sites of their own, with a mapping file: on PostgreSQL, with other types of columns, and with very many columns."""

from dataclasses import replace

import pytest
from sqlalchemy import event

from loadtest.databases import Site, site_on
from loadtest.site_tables import OWN_MAPPING
from tests.store.harness import Store, info_hash, peer_id, running, update
from tests.workers.site.conftest import RULES
from tests.workers.site.harness import announce, passkey, register, syncing
from tests.workers.site.test_comparing import compared
from tracker.store.schema.keys import Keys
from tracker.workers.site.mapping import read_mapping
from tracker.workers.site.writer import open_writers

COLUMNS, ROWS = 150, 500


async def test_the_tables_of_a_mapping_file_are_kept(store: Store, own: Site) -> None:
    await register(store, [7, 8])
    own.sql(
        *(f"INSERT INTO members VALUES ({user}, 'u{user}', '{passkey(user)}', 5000)" for user in (7, 8)),
        f"INSERT INTO releases VALUES (1, 't', '{info_hash(1).hex()}')",
    )
    async with syncing(store, own, read_mapping("own", OWN_MAPPING)) as sync:
        await announce(store, 7, "s", left=0)
        await announce(store, 8, "s")
        await store.pass_time(600)
        await announce(store, 7, up=300, left=0)
        await announce(store, 8, "c", down=1000, left=0)
        await sync.round()
        await sync.round()
        own.sql("UPDATE downloads SET note = 'kept', up = 1 WHERE member = 7")
        assert (await compared(sync))["downloads"].named == ["downloads 7 1: up 300, at the site 1"]
        await announce(store, 8, "x", down=1000, left=0)
        await sync.full_pass()
        await sync.round()
        assert not any(each.differences for each in (await compared(sync)).values())

    assert own.sql("SELECT member, up, down FROM members ORDER BY member") == [
        ["7", "5300", "0"],
        ["8", "5000", "1000"],
    ]
    assert own.sql("SELECT seeders, leechers, snatched FROM releases") == [["1", "0", "1"]]
    now = int(store.clock.now)
    assert own.sql("SELECT up, down, seconds, seeding, extract(epoch FROM finished)::bigint, note FROM downloads") == [
        ["300", "0", "600", "t", "", "kept"],
        ["0", "1000", "0", "f", str(now), "none"],
    ]
    assert own.sql("SELECT peer_id, address, port, active FROM clients ORDER BY member") == [
        [peer_id(7).hex(), "11.0.0.7", "6881", "t"],
        [peer_id(8).hex(), "11.0.0.8", "6881", "f"],
    ]


FURTHER_MAPPING = """
[[table]]
rows = "torrents"
name = "releases"
key = { release = "torrent_id" }
set = { seeders = "seeders", name = "=seen" }

[[table]]
rows = "history"
name = "downloads"
key = { member = "user_id", release = "torrent_id" }
insert = true
balance = { table = "releases", key = "release", column = "balance" }
least = { exempt = "immune" }
set = { up = "uploaded", down = "downloaded", seconds = "seed_time", seeding = "seeding", active = "active" }
once = { changed = 0 }

[[table]]
rows = "history"
name = "marks"
key = { member = "user_id", release = "torrent_id" }
unique = false
insert = true
set = { up = "uploaded" }

[[table]]
rows = "unregistered"
name = "tried"
key = { member = "user_id", hash = "info_hash" }
insert = true
set = { at = "first_announce" }
"""


async def test_everything_that_a_mapping_may_say(redis_url: str, prefix: str, own: Site) -> None:
    own.sql(
        "ALTER TABLE releases ADD balance BIGINT NOT NULL DEFAULT 5",
        "ALTER TABLE downloads ADD exempt BOOLEAN NOT NULL DEFAULT true",
        "CREATE TABLE marks (member BIGINT NOT NULL, release BIGINT NOT NULL, up BIGINT NOT NULL)",
        "CREATE TABLE tried (member BIGINT, hash BYTEA, at TIMESTAMP, UNIQUE (member, hash))",
        f"INSERT INTO releases VALUES (1, 't', '{info_hash(1).hex()}')",
    )
    async with running(Store(redis_url, Keys(prefix), replace(RULES, open=False))) as store:
        await register(store, [7])
        await store.users.edit("7", {"hnr_exempt": "1"})
        async with syncing(store, own, read_mapping("own", FURTHER_MAPPING), zone="Asia/Shanghai") as sync:
            for up, down in ((0, 0), (300, 100), (900, 200)):
                await announce(store, 7, "u" if up else "s", up=up, down=down)
                await store.refused(update(7, "s", 9, passkey=passkey(7)))
                await store.pass_time(60)
                await store.changes.record_updates()
                await sync.round()
                assert own.sql("SELECT exempt FROM downloads") == [["t" if up < 900 else "f"]]
                await store.users.edit("7", {"hnr_exempt": str(int(not up))})
            assert not any(each.differences for each in (await compared(sync)).values())
    assert own.sql("SELECT name, seeders, balance FROM releases") == [["seen", "0", str(5 + 900 - 200)]]
    assert own.sql("SELECT up FROM marks") == [["900"]]
    local = "extract(epoch FROM at AT TIME ZONE 'Asia/Shanghai')::bigint"
    began = str(int(store.clock.now) - 180)
    assert own.sql(f"SELECT encode(hash, 'hex'), {local} FROM tried") == [[info_hash(9).hex(), began]]


@pytest.mark.parametrize("server", ["mariadb", "postgresql"])
async def test_no_statement_has_more_values_than_the_database_takes(
    store: Store, request: pytest.FixtureRequest, server: str
) -> None:
    """Of a mapping with many columns: the more there are, the fewer rows has a batch."""
    counts: list[int] = []

    def note(connection: object, cursor: object, statement: str, values: object, context: object, many: bool) -> None:
        counts.append(len(values) if isinstance(values, tuple) and not many else 0)

    names = [f"n{number}" for number in range(COLUMNS)]
    columns = ", ".join(f"{name} BIGINT NOT NULL DEFAULT 0" for name in names)
    values = ", ".join(f'{name} = "seeders"' for name in names)
    mapping = f'[[table]]\nrows = "torrents"\nname = "wide"\nkey = {{ id = "torrent_id" }}\nset = {{ {values} }}'
    with site_on(request.getfixturevalue(server), [f"CREATE TABLE wide (id BIGINT PRIMARY KEY, {columns})"]) as site:
        site.sql(f"INSERT INTO wide (id) VALUES {', '.join(f'({number})' for number in range(1, ROWS + 1))}")
        async with syncing(store, site, read_mapping("wide", mapping)) as sync:
            (writer,) = await open_writers(sync.database, read_mapping("wide", mapping))
            event.listen(sync.database.engine.sync_engine, "before_cursor_execute", note)
            rows = [{"torrent_id": number, "seeders": 3} for number in range(1, ROWS + 1)]
            assert (await writer.write(rows)).rows == ROWS
        assert site.number(f"SELECT SUM({names[0]} + {names[-1]}) FROM wide") == 6 * ROWS
    assert max(counts) <= 32_767
