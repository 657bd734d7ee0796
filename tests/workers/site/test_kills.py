"""A site is moved in and lives: the tracker, its store, the sync and the site's database are killed in turn while users
announce and the site's shop adds to the same totals. In the end every row is as the clients say. Slow: whole
processes."""

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from loadtest import trackers
from loadtest.clients.members import Member, Members, OnTorrent
from loadtest.databases import Database, Site, site_on
from loadtest.servers import Server
from loadtest.site_tables import UNIT3D
from tests.store.harness import info_hash
from tests.waiting import eventually, until
from tests.workers.site.harness import passkey

pytestmark = [pytest.mark.long, pytest.mark.serial]
USERS, TORRENTS, TORRENTS_EACH = 2000, 5000, 15
ANNOUNCES, RATE = 15_000, 300
KILLS, PURCHASE = 8, 7


def torrent_of(user: int, place: int) -> int:
    """The torrents of a user; from ``TORRENTS_EACH`` on those that are new to the user."""
    return (user * 7 + place * 331) % TORRENTS + 1


class World:
    """All processes."""

    def __init__(self, directory: Path, store: Server, site: Site, shards: int) -> None:
        self.directory, self.store, self.site = directory, store, site
        self.settings = {
            **trackers.ANY_PORTS,
            **trackers.PATIENCE,
            "TRACKER_REDIS__URL": store.url,
            "TRACKER_REDIS__SHARDS": str(shards),
            "TRACKER_USERS__PRIVATE": "required",
            "TRACKER_TORRENTS__MODE": "registered",
            "TRACKER_CHANGES__MAX_ENTRIES": "100000",
            "TRACKER_CHANGES__UPDATES_SECONDS": "1",
            "TRACKER_SITE__DATABASE": site.url,
            "TRACKER_SITE__SYNC_IN_TRACKER": "false",
            "TRACKER_SITE__SYNC_SECONDS": "1",
        }
        self.context: dict[str, Any] = {"cwd": directory, "env": trackers.environment(self.settings)}
        self.port = 0

    def import_in_two_parts(self) -> str:
        """Killed once the first torrents are there; what the second import says."""
        position = "SELECT COUNT(*) FROM tracker_sync WHERE source = 'import:torrents' AND position > ''"
        begun = subprocess.Popen(self.words("sync", "import"), **self.context, stdout=subprocess.DEVNULL)
        until(lambda: bool(self.site.sql("SHOW TABLES LIKE 'tracker_sync'") and self.site.number(position)), 300)
        begun.kill()
        begun.wait()
        return self.command("sync", "import")

    def command(self, *words: str) -> str:
        """To its end, for longer than ``trackers.run`` waits."""
        done = subprocess.run(self.words(*words), **self.context, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "tracker", *words]

    def start_tracker(self) -> None:
        self.tracker = trackers.start(self.directory, **self.settings)
        self.port = int(self.tracker.url.rpartition(":")[2])

    def start_sync(self) -> None:
        with (self.directory / "sync.log").open("a", encoding="utf-8") as log:
            self.sync = subprocess.Popen(self.words("sync", "run"), **self.context, stdout=log, stderr=log)

    def kill_tracker(self) -> None:
        self.tracker.kill()
        self.start_tracker()

    def kill_sync(self) -> None:
        self.sync.kill()
        self.sync.wait()
        self.start_sync()

    def kill_store(self) -> None:
        self.store.kill()
        self.store.start(seconds=60)

    def kill_database(self) -> None:
        self.site.server.kill()
        self.site.server.start()

    def end(self) -> None:
        self.tracker.kill()
        self.sync.kill()
        self.sync.wait()


class Model:
    """What the site's tables must hold in the end."""

    def __init__(self, port: Callable[[], int]) -> None:
        chance = random.Random(7)
        self.totals = {user: [chance.randrange(10**13), chance.randrange(10**12)] for user in range(1, USERS + 1)}
        self.snatches = {torrent: chance.randrange(1000) for torrent in range(1, TORRENTS + 1)}
        self.imported: dict[tuple[int, int], tuple[int, int, int, int, int, bool]] = {}
        """Credited and real bytes up and down, seed time, and whether it is complete, by user and torrent."""
        for user in self.totals:
            for place in range(TORRENTS_EACH):
                numbers = [chance.randrange(10**11) for _ in range(4)]
                self.imported[user, torrent_of(user, place)] = (
                    *numbers,
                    chance.randrange(10**8),
                    chance.random() < 0.5,
                )  # type: ignore[assignment]
        self.clients: dict[tuple[int, int], Member] = {}
        for user in self.totals:
            for place in (0, TORRENTS_EACH) if user % 2 else (0,):
                self._add(user, torrent_of(user, place), chance)
        self.members = Members(list(self.clients.values()), port)

    def _add(self, user: int, torrent: int, chance: random.Random) -> None:
        number = len(self.clients)
        known = self.imported.get((user, torrent))
        is_complete = known is not None and known[-1]
        self.clients[user, torrent] = Member(
            passkey(user),
            info_hash(torrent),
            b"-TR4000-%012d" % number,
            f"127.{20 + number // 250}.0.{1 + number % 250}",
            10_000 + number,
            0 if is_complete or chance.random() < 0.3 else chance.randrange(1, 400_000),
            OnTorrent(free=torrent % 10 == 0, double=torrent % 10 == 1, completed=is_complete),
        )

    def fill(self, site: Site) -> None:
        users = (f"({user}, 'u{user}', '{passkey(user)}', {up}, {down})" for user, (up, down) in self.totals.items())
        torrents = (
            f"({number}, 't{number}', 0x{info_hash(number).hex()}, 1000, {snatches},"
            f" {100 * (number % 10 == 0)}, {int(number % 10 == 1)})"
            for number, snatches in self.snatches.items()
        )
        history = (
            f"({user}, {torrent}, {up}, {down}, {real_up}, {real_down}, {seconds}, '2020-01-01', '2021-01-01',"
            f" {'NULL' if not complete else repr('2020-02-02')})"
            for (user, torrent), (up, down, real_up, real_down, seconds, complete) in self.imported.items()
        )
        site.sql(
            f"INSERT INTO users (id, username, passkey, uploaded, downloaded) VALUES {', '.join(users)}",
            "INSERT INTO torrents (id, name, info_hash, size, times_completed, free, doubleup) VALUES "
            + ", ".join(torrents),
            "INSERT INTO history (user_id, torrent_id, uploaded, downloaded, actual_uploaded, actual_downloaded,"
            f" seedtime, created_at, updated_at, completed_at) VALUES {', '.join(history)}",
        )

    def differing(self, site: Site) -> list[str]:
        """A line for each row that is not as it must be."""
        return [*self._users(site), *self._torrents(site), *self._history(site), *self._peers(site)]

    def _users(self, site: Site) -> Iterator[str]:
        expected = {user: list(totals) for user, totals in self.totals.items()}
        for (user, _), client in self.clients.items():
            for place, credited in enumerate(client.history.credited):
                expected[user][place] += credited
        for id, *totals in site.sql("SELECT id, uploaded, downloaded FROM users"):
            if (wanted := expected.pop(int(id))) != list(map(int, totals)):
                yield f"user {id}: {totals}, not {wanted}"
        yield from (f"user {user} is missing" for user in expected)

    def _torrents(self, site: Site) -> Iterator[str]:
        expected = {torrent: [0, 0, snatches, 0] for torrent, snatches in self.snatches.items()}
        for (_, torrent), client in self.clients.items():
            counts = expected[torrent]
            counts[0] += client.seeds
            counts[1] += client.running and not client.seeds
            counts[2] += client.completions
            counts[3] += client.history.uploaded - client.history.downloaded
        for id, *texts in site.sql("SELECT id, seeders, leechers, times_completed, balance FROM torrents"):
            if (wanted := expected.pop(int(id))) != list(map(int, texts)):
                yield f"torrent {id}: {texts}, not {wanted}"
        yield from (f"torrent {torrent} is missing" for torrent in expected)

    def _history(self, site: Site) -> Iterator[str]:
        left = self.imported.keys() | self.clients.keys()
        rows = site.sql(
            "SELECT user_id, torrent_id, uploaded, downloaded, actual_uploaded, actual_downloaded, seeder, active,"
            " completed_at IS NOT NULL, client_uploaded, client_downloaded, seedtime FROM history"
        )
        for user, torrent, *texts, seed_time in rows:
            key = int(user), int(torrent)
            left.discard(key)
            *numbers, seconds, complete = self.imported.get(key, (0, 0, 0, 0, 0, False))
            least = most = float(seconds)
            counters = 0, 0
            seeds = running = False
            if client := self.clients.get(key):
                moved = *client.history.credited, client.history.uploaded, client.history.downloaded
                numbers = [held + more for held, more in zip(numbers, moved, strict=True)]
                counters = client.uploaded, client.downloaded
                seeds, running, complete = client.seeds, client.running, client.history.completed
                least, most = (seconds + more for more in client.seed_time())
            wanted = [*numbers, int(seeds), int(running), int(complete), *counters]
            if wanted != list(map(int, texts)):
                yield f"history {key}: {texts}, not {wanted}"
            if not least <= int(seed_time) <= most:
                yield f"history {key}: {seed_time} s, not {least:.1f} to {most:.1f}"
        yield from (f"history {key} is missing" for key in left)

    def _peers(self, site: Site) -> Iterator[str]:
        left = set(self.clients)
        rows = site.sql(
            "SELECT user_id, torrent_id, HEX(peer_id), INET6_NTOA(ip), port, uploaded, downloaded, `left`, seeder,"
            " active FROM peers"
        )
        for user, torrent, *texts in rows:
            key = int(user), int(torrent)
            client = self.clients[key]
            left.discard(key)
            counters = client.uploaded, client.downloaded, client.left
            flags = int(not client.left), int(client.running)
            wanted = [client.peer_id.hex().upper(), client.address, *map(str, (client.port, *counters, *flags))]
            if texts != wanted:
                yield f"peer {key}: {texts}, not {wanted}"
        yield from (f"peer {key} is missing" for key in left)


@pytest.fixture(params=[1, 4])
def world(
    mariadb: Database, start_server: Callable[..., Server], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[World]:
    with site_on(mariadb, UNIT3D) as site:
        world = World(tmp_path, start_server("--appendfsync", "always"), site, request.param)
        yield world
        world.end()
        world.kill_database()  # the thread that started it ends with this test, and with it the server


async def buy_and_kill(world: World, model: Model) -> None:
    """Kills each program in turn, at equal distances; users buy upload in between."""
    kills = (world.kill_sync, world.kill_database, world.kill_tracker, world.kill_store)
    for number in range(KILLS):
        await eventually(lambda: model.members.answered > (number + 1) * ANNOUNCES / (KILLS + 2), 300)  # noqa: B023
        for user in range(number + 1, USERS, 400):
            await asyncio.to_thread(
                world.site.sql, f"UPDATE users SET uploaded = uploaded + {PURCHASE} WHERE id = {user}"
            )
            model.totals[user][0] += PURCHASE
        await asyncio.to_thread(kills[number % len(kills)])


async def test_every_row_is_right_after_kills_of_all_programs(world: World) -> None:
    model = Model(lambda: world.port)
    model.fill(world.site)
    imported = await asyncio.to_thread(world.import_in_two_parts)
    assert "users:" not in imported, "these were imported before"
    assert f"history: {len(model.imported)} of {len(model.imported)}" in imported
    world.start_tracker()
    world.start_sync()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(model.members.run(ANNOUNCES, RATE))
        tasks.create_task(buy_and_kill(world, model))
    await model.members.stop(model.members.members[::2])
    with suppress(AssertionError):
        until(lambda: not model.differing(world.site), 40, 1)
    found = model.differing(world.site)
    assert not found, (len(found), found[:4], found[-4:], (world.directory / "sync.log").read_text("utf-8")[-2000:])
    assert world.command("sync", "check").count(" 0 differences") == 5
