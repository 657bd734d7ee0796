"""The presets of Gazelle and NexusPHP, on tables as these programs make them."""

import json
from pathlib import Path

import pytest

from loadtest.databases import Database, site_on
from loadtest.site_tables import GAZELLE, NEXUSPHP
from tests.commands import Command
from tests.store.harness import Store, endpoint, info_hash, peer_id, update
from tests.workers.site.harness import announce, passkey, register, syncing
from tests.workers.site.test_commands import configure
from tests.workers.site.test_comparing import compared
from tracker.errors import StartupError
from tracker.workers.site.mapping import PRESETS, load_mapping, read_mapping

HASH = info_hash(1).hex()


async def download(store: Store) -> None:
    await announce(store, 7, "s")
    await store.pass_time(600)
    await announce(store, 7, "c", up=300, down=1000, left=0)


async def test_gazelle(store: Store, mariadb: Database) -> None:
    await register(store, [7])
    with site_on(mariadb, GAZELLE) as site:
        site.sql(
            f"INSERT INTO users_main (ID, Username, torrent_pass, Uploaded) VALUES (7, 'u', '{passkey(7)}', 5000)",
            f"INSERT INTO torrents (ID, info_hash, Size) VALUES (1, 0x{HASH}, 1000)",
        )
        async with syncing(store, site, load_mapping("gazelle")) as sync:
            await download(store)
            await sync.round()
            await sync.full_pass()
            await announce(store, 7, "x", up=300, down=1000, left=0)
            await sync.round()
            assert not any(each.differences for each in (await compared(sync)).values())
        now = str(int(store.clock.now))
        assert site.sql("SELECT Uploaded, Downloaded FROM users_main") == [["5300", "1000"]]
        assert site.sql("SELECT Seeders, Leechers, Snatched FROM torrents") == [["0", "0", "1"]]
        assert site.sql("SELECT uid, fid, tstamp FROM xbt_snatched") == [["7", "1", now]]
        assert site.sql("SELECT HEX(peer_id), active, uploaded, remaining, ip, mtime FROM xbt_files_users") == [
            [peer_id(7).hex().upper(), "0", "300", "0", "11.0.0.7", now]
        ]


async def test_gazelle_has_the_balance_of_a_torrent_and_when_it_was_seeded_last(
    store: Store, mariadb: Database
) -> None:
    """As Ocelot counts it: what a client moves between two announces, whatever is credited. It may come back with
    counters that begin anew, and the site may change the column at the same time."""
    await register(store, [7, 8])
    with site_on(mariadb, GAZELLE) as site:
        site.sql(
            f"INSERT INTO users_main (ID, Username, torrent_pass) VALUES (7, 'u', '{passkey(7)}')",
            "INSERT INTO torrents (ID, info_hash, Size, balance, last_action)"
            f" VALUES (1, 0x{HASH}, 1000, 5, '2020-01-01')",
        )
        async with syncing(store, site, load_mapping("gazelle")) as sync:

            async def rounds(*announces: tuple[int, str, int, int]) -> int:
                for user, event, up, down in announces:
                    await announce(store, user, event, up=up, down=down, left=1000 - down)
                    await store.changes.record_updates()
                    await sync.round()
                    await store.pass_time(600)
                await sync.full_pass()
                return site.number("SELECT balance FROM torrents")

            assert await rounds((7, "s", 50, 0)) == 5
            assert site.sql("SELECT last_action FROM torrents") == [["2020-01-01 00:00:00"]]
            assert await rounds((7, "u", 250, 400)) == 5 + 200 - 400
            assert site.sql("SELECT last_action FROM torrents") == [["2020-01-01 00:00:00"]]
            assert await rounds((7, "c", 250, 1000), (7, "x", 350, 1000)) == 5 + 300 - 1000
            seeded = int(store.clock.now) - 1200
            assert site.number("SELECT UNIX_TIMESTAMP(last_action) FROM torrents") == seeded
            assert await rounds((8, "s", 10, 0), (7, "s", 0, 1000), (7, "u", 70, 1000)) == 5 + 370 - 1000
            site.sql("UPDATE torrents SET balance = balance + 1")
            assert await rounds((8, "x", 10, 1000)) == 6 + 370 - 2000


async def test_gazelle_has_what_was_downloaded_with_each_token(store: Store, mariadb: Database) -> None:
    await register(store, [7], [1, 2])
    with site_on(mariadb, GAZELLE) as site:
        site.sql("INSERT INTO users_freeleeches (UserID, TorrentID, Downloaded) VALUES (7, 1, 50), (7, 2, 0)")
        await store.freeleech.give("7", "1")
        async with syncing(store, site, load_mapping("gazelle")) as sync:
            for torrent in (1, 2):
                await announce(store, 7, "s", torrent)
            for down in (400, 1000):
                await store.pass_time(600)
                for torrent in (1, 2):
                    await announce(store, 7, torrent=torrent, down=down, left=1000 - down)
                await store.changes.record_updates()
                await sync.round()
                site.sql("UPDATE users_freeleeches SET Downloaded = Downloaded + 1")
            await sync.full_pass()
        assert site.sql("SELECT UserID, TorrentID, Downloaded FROM users_freeleeches") == [
            ["7", "1", "1052"],
            ["7", "2", "2"],
        ]


async def test_nexusphp(store: Store, mariadb: Database) -> None:
    """Its dates are local, the key of its snatches is an index only, and a torrent that moves is visible again."""
    await register(store, [7, 8])
    with site_on(mariadb, NEXUSPHP) as site:
        site.sql(
            f"INSERT INTO users (id, username, passkey, uploaded) VALUES (7, 'u', '{passkey(7)}', 5000),"
            f" (8, 'v', '{passkey(8)}', 0)",
            f"INSERT INTO torrents (id, info_hash, name, visible) VALUES (1, 0x{HASH}, 't', 'no')",
        )
        await store.connect_checks.note(endpoint(8, v6=True), "8", True)
        async with syncing(store, site, load_mapping("nexusphp"), zone="Asia/Shanghai") as sync:
            await store.announce(update(8, "s", endpoint=endpoint(8, v6=True), passkey=passkey(8), bytes_left=0))
            await download(store)
            await sync.round()
            assert not any(each.differences for each in (await compared(sync)).values())
            last_action = (
                "SELECT UNIX_TIMESTAMP(CONVERT_TZ(last_action, '+08:00', '+00:00')) FROM peers WHERE userid = 7"
            )
            for event in ("x", "s"):
                await store.pass_time(60)
                await announce(store, 7, event, up=300, down=1000, left=0)
                await sync.round()
                assert site.number(last_action) == (1 if event == "x" else int(store.clock.now))
            site.sql("UPDATE torrents SET visible = 'no'")
            assert not any(each.differences for each in (await compared(sync)).values())
        now = int(store.clock.now)
        assert site.sql("SELECT uploaded, downloaded FROM users WHERE id = 7") == [["5300", "1000"]]
        assert site.sql(
            "SELECT uploaded, downloaded, to_go, finished, seedtime, leechtime,"
            " UNIX_TIMESTAMP(CONVERT_TZ(completedat, '+08:00', '+00:00')) FROM snatched WHERE userid = 7"
        ) == [["300", "1000", "0", "yes", "60", "600", str(now - 120)]]
        assert site.sql("SELECT ip, ipv4, ipv6, port, seeder, connectable FROM peers ORDER BY userid") == [
            ["11.0.0.7", "11.0.0.7", "", "6881", "yes", "no"],
            ["2001:db8::8", "", "2001:db8::8", "6881", "yes", "yes"],
        ]


async def test_nexusphp_removes_a_peer_that_the_store_has_forgotten(store: Store, mariadb: Database) -> None:
    """With its next cleanup, by the time of its last action."""
    await register(store, [7])
    with site_on(mariadb, NEXUSPHP) as site:
        async with syncing(store, site, load_mapping("nexusphp"), zone="Asia/Shanghai") as sync:
            await announce(store, 7, "s", left=0)
            await sync.round()
            assert site.sql("SELECT seeder FROM peers") == [["yes"]]
            await announce(store, 7, "x", left=0)
            await store.redis.delete(store.keys.peer("1", peer_id(7)))
            await sync.round()
        assert site.sql("SELECT seeder, last_action FROM peers") == [["no", "1970-01-01 08:00:01"]]


async def test_constants_of_peers_that_left_may_replace_constants(store: Store, mariadb: Database) -> None:
    text = (PRESETS / "nexusphp.toml").read_text("utf-8")
    mapping = read_mapping(
        "own", text.replace('seeder = "seeding"', 'seeder = "=yes"').replace("gone = {", 'gone = { seeder = "=no",')
    )
    await register(store, [7])
    with site_on(mariadb, NEXUSPHP) as site:
        async with syncing(store, site, mapping) as sync:
            for event, seeder in (("s", "yes"), ("x", "no")):
                await announce(store, 7, event)
                await sync.round()
                assert site.sql("SELECT seeder FROM peers") == [[seeder]]


@pytest.mark.parametrize(("mapping", "tables"), [("gazelle", GAZELLE), ("nexusphp", NEXUSPHP)])
def test_a_site_is_moved_in(
    tracker: Command, mariadb: Database, monkeypatch: pytest.MonkeyPatch, mapping: str, tables: tuple[str, ...]
) -> None:
    with site_on(mariadb, tables) as site:
        configure(monkeypatch, site)
        monkeypatch.setenv("TRACKER_SITE__MAPPING", mapping)
        if mapping == "gazelle":
            site.sql(
                "INSERT INTO users_main (ID, Username, torrent_pass, Uploaded, Downloaded)"
                f" VALUES (7, 'u', '{passkey(7)}', 5000, 70)",
                f"INSERT INTO torrents (ID, info_hash, Size, FreeTorrent) VALUES (1, 0x{HASH}, 1000, '2')",
                "INSERT INTO xbt_files_users (uid, fid, peer_id, uploaded, timespent, active) VALUES"
                " (7, 1, REPEAT('a', 20), 5, 60, 0), (7, 1, REPEAT('b', 20), 6, 60, 0)",
                "INSERT INTO xbt_snatched (uid, fid, tstamp, IP) VALUES (7, 1, 1700000000, '')",
                "INSERT INTO users_freeleeches (UserID, TorrentID) VALUES (7, 1)",
                "INSERT INTO xbt_client_whitelist (peer_id, vstring) VALUES ('-TR', 'Transmission')",
            )
        else:
            site.sql(
                "INSERT INTO users (id, username, passkey, uploaded, downloaded)"
                f" VALUES (7, 'u', '{passkey(7)}', 5000, 70)",
                f"INSERT INTO torrents (id, info_hash, name, sp_state) VALUES (1, 0x{HASH}, 't', 4)",
                "UPDATE torrents SET promotion_time_type = 2, promotion_until = '2035-01-01 08:00:00'",
                "UPDATE users SET class = 10",
                "INSERT INTO snatched (torrentid, userid, uploaded, seedtime, finished, completedat, startdat,"
                " last_action) VALUES (1, 7, 11, 120, 'yes', '2020-01-01', '2020-01-01', '2020-01-02')",
            )
            monkeypatch.setenv("TRACKER_SITE__TIME_ZONE", "Asia/Shanghai")
        tracker("sync", "import")
        checked = tracker("sync", "check").stdout
    assert {line for line in checked.splitlines() if "differences" in line} >= {
        "users_main: 1 rows, 0 differences" if mapping == "gazelle" else "snatched: 1 rows, 0 differences",
        "torrents: 1 rows, 0 differences",
    }
    assert tracker("user", "torrents", "7", "complete").stdout.split()[-1]
    shown = json.loads(tracker("torrent", "show", HASH, "--json").stdout)
    until_2035 = 2_051_222_400
    names = ("download_multiplier", "upload_multiplier", "download_multiplier_until")
    rules = ("0", "0", None) if mapping == "gazelle" else ("0", "2", until_2035)
    assert tuple(shown[name] for name in names) == rules
    user = json.loads(tracker("user", "show", "7", "--json").stdout)
    assert user["download_multiplier"] == ("1" if mapping == "gazelle" else "0 vip")


def test_wrong_mapping_files_say_what_is_wrong(tmp_path: Path) -> None:
    assert {each.stem for each in PRESETS.glob("*.toml")} == {"unit3d", "gazelle", "nexusphp"}
    users = '[[table]]\nrows = "users"\nname = "y"\nkey = {id = "user_id"}'
    peers = '[[table]]\nrows = "peers"\nname = "y"\nkey = {u = "user_id", t = "torrent_id", p = "peer_id"}'
    for text, reason in {
        "": "table: Field required",
        "[[table]]": "table.0.rows: Field required",
        "table = 7": "table: Input should be",
        "x": "no valid TOML",
        '[[table]]\nrows = "x"\nname = "y"\nkey = {}': "table.0.rows: Input should be 'users', 'torrents', 'history'",
        '[[table]]\nrows = "users"\nname = "y"\nkey = {}': "a column for each of user_id",
        users: "no columns",
        f'{users}\nset = {{a = "b"}}': "unknown: b; known:",
        f'{users}\nadd = {{a = "user_id"}}': "can be added",
        f'{users}\nadd = {{a = "uploaded"}}\ngone = {{a = 1}}': "gone is",
        f'{peers}\nset = {{s = "seeding"}}\ngone = {{s = "no"}}': "gone has numbers, or texts after =",
        f'{users}\nbalance = {{table = "z"}}': "balance is of history or",
        "table = []\n[import.x]": "import: unknown: x",
    }.items():
        with pytest.raises(StartupError) as caught:
            read_mapping("m", text)
        assert reason in str(caught.value)
    with pytest.raises(StartupError, match="presets: gazelle, nexusphp, unit3d"):
        load_mapping(str(tmp_path / "nothing"))
