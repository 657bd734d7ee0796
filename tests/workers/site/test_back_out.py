"""A site moves in, goes back to its old tracker and comes again, as docs/moving.md says: nothing is lost and nothing
counts twice. The old tracker is a model of UNIT3D's, which reads peers with their counters at its start."""

import asyncio
from dataclasses import dataclass
from functools import partial

import pytest

from loadtest.databases import Site
from tests.commands import Command
from tests.store.harness import Clock, Store, info_hash, peer_id
from tests.workers.site.harness import announce, passkey, syncing
from tests.workers.site.test_commands import configure
from tracker.workers.site import importing

PeerKey = tuple[int, int, str]


@dataclass
class Peer:
    uploaded: int
    downloaded: int
    active: bool
    seeds: bool
    updated_at: int


class OldTracker:
    """Credits what counters have grown since the peer's last row; all of them if it has none."""

    def __init__(self, site: Site, clock: Clock) -> None:
        self.site, self.clock = site, clock
        columns = "user_id, torrent_id, HEX(peer_id), uploaded, downloaded, active, seeder, UNIX_TIMESTAMP(updated_at)"
        self.peers: dict[PeerKey, Peer] = {}
        for user, torrent, peer, *numbers in site.sql(f"SELECT {columns} FROM peers"):
            up, down, active, seeds, at = map(int, numbers)
            self.peers[int(user), int(torrent), peer] = Peer(up, down, bool(active), bool(seeds), at)

    def swarm(self, torrent: int = 1) -> tuple[int, int]:
        active = [peer.seeds for (_, of, _), peer in self.peers.items() if of == torrent and peer.active]
        return sum(active), len(active) - sum(active)

    def announce(
        self, user: int, event: str = "u", torrent: int = 1, up: int = 0, down: int = 0, left: int = 0
    ) -> None:
        key, now, active = (user, torrent, peer_id(user).hex().upper()), int(self.clock.now), event != "x"
        old = self.peers.get(key) or Peer(0, 0, False, False, now)
        more = max(0, up - old.uploaded), max(0, down - old.downloaded)
        seconds = now - old.updated_at if old.active and old.seeds and not left else 0
        self.peers[key] = Peer(up, down, active, not left, now)
        seeders, leechers = self.swarm(torrent)
        at, done = f"FROM_UNIXTIME({now})", f"FROM_UNIXTIME({now})" if event == "c" else "NULL"
        moved = f"{more[0]}, {more[0]}, {up}, {more[1]}, {more[1]}, {down}"
        self.site.sql(
            f"UPDATE users SET uploaded = uploaded + {more[0]}, downloaded = downloaded + {more[1]} WHERE id = {user}",
            f"UPDATE torrents SET seeders = {seeders}, leechers = {leechers},"
            f" times_completed = times_completed + {int(event == 'c')} WHERE id = {torrent}",
            "INSERT INTO history (user_id, torrent_id, uploaded, actual_uploaded, client_uploaded, downloaded,"
            " actual_downloaded, client_downloaded, seeder, active, seedtime, created_at, updated_at, completed_at)"
            f" VALUES ({user}, {torrent}, {moved}, {not left}, {active}, {seconds}, {at}, {at}, {done})"
            " ON DUPLICATE KEY UPDATE uploaded = uploaded + VALUES(uploaded), downloaded = downloaded +"
            " VALUES(downloaded), actual_uploaded = actual_uploaded + VALUES(actual_uploaded), actual_downloaded ="
            " actual_downloaded + VALUES(actual_downloaded), client_uploaded = VALUES(client_uploaded),"
            " client_downloaded = VALUES(client_downloaded), seeder = VALUES(seeder), active = VALUES(active),"
            " seedtime = seedtime + VALUES(seedtime), updated_at = VALUES(updated_at),"
            " completed_at = COALESCE(completed_at, VALUES(completed_at))",
            "INSERT INTO peers (user_id, torrent_id, peer_id, ip, port, agent, uploaded, downloaded, `left`, seeder,"
            f" active, created_at, updated_at) VALUES ({user}, {torrent}, 0x{key[2]}, 0x0B000007, 6881, 'old', {up},"
            f" {down}, {left}, {not left}, {active}, {at}, {at}) ON DUPLICATE KEY UPDATE uploaded = VALUES(uploaded),"
            " downloaded = VALUES(downloaded), `left` = VALUES(`left`), seeder = VALUES(seeder), active ="
            " VALUES(active), updated_at = VALUES(updated_at)",
        )


async def test_nothing_is_lost_on_the_way_back_and_forth(
    tracker: Command, store: Store, unit3d: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, unit3d)
    monkeypatch.setenv("TRACKER_USERS__PRIVATE", "required")
    monkeypatch.setattr(importing, "_PEERS_PAGE", 1)  # peers of several pages
    unit3d.sql(
        *(
            f"INSERT INTO users (id, username, passkey) VALUES ({user}, 'u{user}', '{passkey(user)}')"
            for user in (7, 8, 9)
        ),
        f"INSERT INTO torrents (id, name, info_hash, size) VALUES (1, 't', 0x{info_hash(1).hex()}, 1000)",
    )

    def totals() -> list[list[str]]:
        return unit3d.sql("SELECT id, uploaded, downloaded FROM users ORDER BY id")

    async def command(*words: str, code: int = 0) -> str:
        return str((await asyncio.to_thread(partial(tracker, "sync", *words, code=code))).stdout)

    async def moved_in() -> None:
        """Totals are the same; peers come back with their next announce."""
        await command("import", "--again")
        assert "users: 3 rows, 0 differences" in await command("check", code=1)

    old = OldTracker(unit3d, store.clock)
    old.announce(7, "s", up=1000)
    await command("import")
    old.announce(7, up=1500)
    await store.pass_time(60)
    await moved_in()
    async with syncing(store, unit3d) as sync:
        await announce(store, 7, up=1600, left=0)
        await announce(store, 8, "s")
        await announce(store, 9, "s", left=0)
        await store.pass_time(1800)
        await announce(store, 7, up=3500, left=0)
        await announce(store, 8, "c", down=1000, left=0)
        await announce(store, 9, "x", up=40, left=0)
        unit3d.sql("UPDATE users SET uploaded = uploaded + 5 WHERE id = 8")
        await store.changes.record_updates()
        await sync.round()
    assert totals() == [["7", "3500", "0"], ["8", "5", "1000"], ["9", "40", "0"]]
    assert (await command("check")).count(" 0 differences") == 5

    store.clock.now += 600
    old = OldTracker(unit3d, store.clock)
    assert old.swarm() == (2, 0)
    old.announce(7, up=4000)
    old.announce(8, "x", up=300, down=1000)
    old.announce(9, "s", up=90)
    assert totals() == [["7", "4000", "0"], ["8", "305", "1000"], ["9", "90", "0"]]
    assert unit3d.sql("SELECT user_id, actual_uploaded, actual_downloaded, seedtime FROM history ORDER BY user_id") == [
        ["7", "4000", "0", "2400"],
        ["8", "300", "1000", "600"],
        ["9", "90", "0", "1800"],
    ]

    await store.pass_time(600)
    await moved_in()
    async with syncing(store, unit3d) as sync:
        await announce(store, 7, up=4100, left=0)
        await announce(store, 8, "s", up=0, left=0)
        await announce(store, 9, up=95, left=0)
        await store.pass_time(600)
        await announce(store, 7, up=4200, left=0)
        await announce(store, 9, up=100, left=0)
        await store.changes.record_updates()
        await sync.round()
    assert totals() == [["7", "4200", "0"], ["8", "305", "1000"], ["9", "100", "0"]]
    assert (await command("check")).count(" 0 differences") == 5
