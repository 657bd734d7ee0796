"""Moving a site in from its database, and what `tracker sync check` says afterwards."""

import json

import pytest
from redis import Redis

from loadtest.databases import Site
from tests.commands import Command
from tests.store.harness import Store, info_hash, peer_id, update
from tests.workers.site.harness import members, passkey
from tests.workers.site.test_commands import configure
from tracker.workers.site import importing
from tracker.workers.site.database import SiteDatabase
from tracker.workers.site.mapping import PRESETS, load_mapping, read_mapping
from tracker.workers.site.sync import SiteSync


def fill(site: Site) -> None:
    """Three users and torrents with what they have on them, and all that UNIT3D has of rules."""
    site.sql(
        "INSERT INTO `groups` (id, slug, name, download_slots, is_freeleech, is_immune) VALUES"
        " (1, 'banned', 'Banned', NULL, 0, 0), (3, 'user', 'User', 5, 0, 0), (4, 'vip', 'VIP', NULL, 1, 1)",
        "INSERT INTO users (id, username, passkey, group_id, uploaded, downloaded, can_download, is_donor) VALUES"
        f" (7, 'seven', '{passkey(7)}', 3, 5000000000000, 70, 1, 0),"
        f" (8, 'eight', '{passkey(8)}', 4, 80, 8, 0, 1), (9, 'nine', '{passkey(9)}', 1, 0, 0, 1, 0)",
        *(
            "INSERT INTO torrents (id, name, info_hash, size, free, doubleup, status, times_completed) VALUES"
            f" ({number}, 't{number}', 0x{info_hash(number).hex()}, 734003200, {free}, {double}, {status}, {number})"
            for number, free, double, status in ((12, 33, 0, 1), (500, 100, 1, 1), (501, 0, 0, 0))
        ),
        "INSERT INTO history (user_id, torrent_id, uploaded, actual_uploaded, downloaded, actual_downloaded, seedtime,"
        " created_at, updated_at, completed_at) VALUES"
        " (7, 12, 2000, 1000, 5, 10, 3600000, '2020-01-01', '2021-01-01', '2020-02-02'),"
        " (8, 500, 1, 1, 0, 99, 0, '2020-01-01', '2021-01-01', NULL),"
        " (8, 999, 1, 1, 0, 99, 0, '2020-01-01', '2021-01-01', NULL)",
        "INSERT INTO freeleech_tokens (user_id, torrent_id) VALUES (7, 500), (7, 998)",
        "INSERT INTO personal_freeleeches (user_id) VALUES (7)",
        "INSERT INTO featured_torrents (user_id, torrent_id) VALUES (7, 501)",
        "INSERT INTO blacklist_clients (name, peer_id_prefix) VALUES ('BitComet', '-BC')",
    )


def test_a_site_is_moved_in_and_nothing_differs(
    tracker: Command, unit3d: Site, keys: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, unit3d)
    fill(unit3d)
    unknown = [
        *(f"{row}: unknown torrent: register it first, with this id" for row in ("history 8 999", "tokens 2")),
        "2 rows could not be imported",
    ]
    checked_only = tracker("sync", "import", "--dry-run", code=1)
    assert checked_only.stderr.splitlines() == [f"error: {line}" for line in unknown]
    assert checked_only.stdout.splitlines()[1] == "users: 3 of 3"
    assert not list(keys.scan_iter(f"{prefix}user:*"))

    done = tracker("sync", "import", code=1)
    assert done.stderr.splitlines() == [f"error: {line}" for line in unknown]
    assert done.stdout.splitlines() == [
        "groups: 3 of 3",
        "users: 3 of 3",
        "torrents: 3 of 3",
        "history: 2 of 3",
        "tokens: 1 of 2",
        "denied clients: 1 of 1",
        "peers: 0 of 0",
    ]

    checked = [json.loads(line) for line in tracker("sync", "check", "--json").stdout.splitlines()]
    assert [(each["table"], each["rows"]) for each in checked] == [
        ("users", 3),
        ("torrents", 3),
        ("history", 2),
        ("peers", 0),
        ("unregistered_info_hashes", 0),
    ]
    assert not any(each["missing"] + each["differing"] + each["stale"] for each in checked)
    assert checked[0]["uploaded_ours"] == checked[0]["uploaded_site"] == 5_000_000_000_080

    user = json.loads(tracker("user", "show", "7", "--json").stdout)
    assert (user["uploaded"], user["group"], user["download_multiplier"]) == (5_000_000_000_000, 3, "0 personal")
    assert json.loads(tracker("user", "show", "8", "--json").stdout)["can_leech"] is False
    shown = [
        json.loads(tracker("torrent", "show", info_hash(number).hex(), "--json").stdout) for number in (12, 500, 501)
    ]
    assert [each["torrent_id"] for each in shown] == ["12", "500", "501"]
    assert [each["download_multiplier"] for each in shown] == ["0.67", "0", "0 featured"]
    assert [each["upload_multiplier"] for each in shown] == ["1", "2", "2 featured"]
    assert "-BC" in tracker("client", "denied").stdout


def test_an_import_that_is_repeated_keeps_totals_unless_told_otherwise(
    tracker: Command, unit3d: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, unit3d)
    fill(unit3d)
    tracker("sync", "import", code=1)
    unit3d.sql("UPDATE users SET uploaded = uploaded + 1 WHERE id = 8")
    tracker("sync", "import", code=1)
    assert json.loads(tracker("user", "show", "8", "--json").stdout)["uploaded"] == 80
    tracker("sync", "import", "--again", code=1)
    assert json.loads(tracker("user", "show", "8", "--json").stdout)["uploaded"] == 81
    tracker("sync", "check")


def test_a_passkey_that_two_users_have_is_named(
    tracker: Command, unit3d: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, unit3d)
    fill(unit3d)
    unit3d.sql("ALTER TABLE users DROP INDEX passkey", f"UPDATE users SET passkey = '{passkey(7)}' WHERE id = 9")
    done = tracker("sync", "import", code=1)
    assert done.stderr.splitlines()[0] == (
        "error: users 9: this passkey belongs to another user: give one of them a new one"
    )
    assert done.stdout.splitlines()[1] == "users: 2 of 3"


async def test_an_interrupted_import_goes_on_where_it_was(store: Store, unit3d: Site) -> None:
    """More rows than one part has; the totals of users who were imported stay as they are."""
    users = range(1, 2501)
    unit3d.sql(
        "INSERT INTO users (id, username, passkey, uploaded) VALUES "
        + ", ".join(f"({user}, 'u{user}', '{passkey(user)}', {user})" for user in users)
    )

    async def imported(parts: int | None) -> list[int]:
        """The rows so far after each part."""
        async with SiteDatabase(unit3d.url) as database:
            sync = SiteSync(store, database, load_mapping("unit3d"))
            await sync.database.make_sync_table()
            found: list[int] = []
            async for part in (await sync.importing(again=False, dry_run=False)).run():
                if part.kind == "users":
                    found.append(part.rows)
                    if len(found) == parts:
                        break
            return found

    assert await imported(2) == [0, 1000]
    unit3d.sql("UPDATE users SET uploaded = uploaded + 1")
    assert await imported(None) == [0, 1000, 1500, 1500]
    totals = [(await store.site_rows.users([str(user)]))[0]["uploaded"] for user in (1, 1000, 1001, 2500)]
    assert totals == [1, 1000, 1002, 2501]


async def test_an_import_that_ends_among_the_peers_goes_on_there(
    store: Store, unit3d: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the user who came last are read again; a complete import begins anew."""
    monkeypatch.setattr(importing, "_PEERS_PAGE", 4)
    users = range(1, 11)
    await members(store, unit3d, users)
    unit3d.sql(
        *(
            "INSERT INTO peers (user_id, torrent_id, peer_id, ip, port, agent, uploaded, downloaded, `left`, seeder,"
            " updated_at)"
            f" VALUES ({user}, 1, 0x{peer_id(user).hex()}, 0x01020304, 1, '', {user}, 0, 0, 1,"
            f" FROM_UNIXTIME({int(store.clock.now)}))"
            for user in users
        )
    )

    async def imported(rows: int) -> list[tuple[str, int]]:
        """The parts until so many peers are read."""
        found: list[tuple[str, int]] = []
        async with SiteDatabase(unit3d.url) as database:
            sync = SiteSync(store, database, load_mapping("unit3d"))
            await sync.database.make_sync_table()
            async for part in (await sync.importing(again=False, dry_run=False)).run():
                found.append((part.kind, part.rows))
                if found[-1] == ("peers", rows):
                    break
        return found

    assert (await imported(4))[-2:] == [("peers", 0), ("peers", 4)]
    assert await imported(-1) == [("peers", number) for number in (0, 4, 7, 7)]
    assert ("users", len(users)) in await imported(4)
    remembered = [(await store.peer(update(user)))["uploaded"] for user in users]
    assert remembered == [str(user) for user in users]


async def test_a_key_of_peers_may_begin_with_their_ids(
    store: Store, unit3d: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then all peers are read again after an interruption."""
    monkeypatch.setattr(importing, "_PEERS_PAGE", 1)
    text = (PRESETS / "unit3d.toml").read_text("utf-8")
    key = 'key = { user_id = "user_id", torrent_id = "torrent_id", peer_id = "peer_id" }'
    assert key in text
    mapping = read_mapping(
        "own", text.replace(key, 'key = { peer_id = "peer_id", user_id = "user_id", torrent_id = "torrent_id" }')
    )
    await members(store, unit3d, (7, 8))
    unit3d.sql(
        *(
            "INSERT INTO peers (user_id, torrent_id, peer_id, ip, port, agent, uploaded, downloaded, `left`, seeder)"
            f" VALUES ({user}, 1, 0x{peer_id(user).hex()}, 0x01020304, 1, '', 0, 0, 1, 0)"
            for user in (7, 8)
        )
    )

    async def imported(rows: int) -> list[int]:
        async with SiteDatabase(unit3d.url) as database:
            sync = SiteSync(store, database, mapping)
            await sync.database.make_sync_table()
            found: list[int] = []
            async for part in (await sync.importing(again=False, dry_run=False)).run():
                found += [part.rows] * (part.kind == "peers")
                if found[-1:] == [rows]:
                    break
        return found

    assert await imported(1) == [0, 1]
    assert await imported(-1) == [0, 1, 2, 2]


async def test_after_an_import_was_interrupted_another_one_reads_all(store: Store, unit3d: Site) -> None:
    """Neither what an earlier import has finished is left out, nor what one without ``again`` has read."""
    await members(store, unit3d, range(1, 3))

    async def imported(*, again: bool, until: str = "") -> list[str]:
        """The kinds that were read; ends after one of ``until``."""
        found: list[str] = []
        async with SiteDatabase(unit3d.url) as database:
            sync = SiteSync(store, database, load_mapping("unit3d"))
            await sync.database.make_sync_table()
            async for part in (await sync.importing(again=again, dry_run=False)).run():
                if part.kind not in found:
                    found.append(part.kind)
                if part.kind == until and part.rows:
                    break
        return found

    every = await imported(again=False)
    assert every[:3] == ["groups", "users", "torrents"] and every[-1] == "peers"
    assert await imported(again=True, until="users") == every[:2]
    assert await imported(again=True) == every[1:]
    assert await imported(again=False, until="torrents") == every[:3]
    assert await imported(again=True) == every


@pytest.mark.parametrize(("at", "counter"), [("'0000-00-00 00:00:00'", "5"), ("NULL", "NULL")])
async def test_a_peer_without_a_time_or_counters_is_imported(store: Store, unit3d: Site, at: str, counter: str) -> None:
    """MySQL's date of zeros is in many old tables."""
    await members(store, unit3d, [7])
    unit3d.sql(
        "ALTER TABLE peers MODIFY updated_at DATETIME NULL, MODIFY uploaded BIGINT NULL, MODIFY downloaded BIGINT NULL",
        "SET SESSION sql_mode = ''; INSERT INTO peers (user_id, torrent_id, peer_id, ip, port, agent, uploaded,"
        " downloaded, `left`, seeder, updated_at)"
        f" VALUES (7, 1, 0x{peer_id(7).hex()}, 0x01020304, 1, '', {counter}, {counter}, 1, 0, {at})",
    )
    async with SiteDatabase(unit3d.url) as database:
        sync = SiteSync(store, database, load_mapping("unit3d"))
        await sync.database.make_sync_table()
        parts = [(part.kind, part.rows) async for part in (await sync.importing(again=False, dry_run=False)).run()]
    assert parts[-1] == ("peers", 1)
