"""The tracker, its store, the sync and the site's database are killed in turn while users announce and the site's shop
adds to the same totals: nothing is lost or counted twice. Slow: whole processes."""

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from loadtest import trackers
from loadtest.servers import Server
from tests.databases import Database, Site, site_on
from tests.store.harness import info_hash
from tests.waiting import until
from tests.workers.site.harness import passkey
from tests.workers.site.tables import UNIT3D

pytestmark = [pytest.mark.long, pytest.mark.serial]
USERS, TORRENTS, ROUNDS = 200, 50, 12


class World:
    """All processes. ``totals``: what each user's row at the site must have in the end."""

    def __init__(self, directory: Path, store: Server, site: Site) -> None:
        self.directory, self.store, self.site = directory, store, site
        self.settings = {
            **trackers.ANY_PORTS,
            **trackers.PATIENCE,
            "TRACKER_REDIS__URL": store.url,
            "TRACKER_USERS__PRIVATE": "required",
            "TRACKER_TORRENTS__MODE": "registered",
            "TRACKER_CHANGES__MAX_ENTRIES": "100000",
            "TRACKER_CHANGES__UPDATES_SECONDS": "1",
            "TRACKER_SITE__DATABASE": site.url,
            "TRACKER_SITE__SYNC_IN_TRACKER": "false",
            "TRACKER_SITE__SYNC_SECONDS": "0.5",
        }
        self.chance = random.Random(7)
        self.totals = {user: 1000 * user for user in range(1, USERS + 1)}
        self.sent = dict.fromkeys(self.totals, 0)

    def fill(self) -> None:
        self.site.sql(
            "INSERT INTO users (id, username, passkey, uploaded) VALUES "
            + ", ".join(f"({user}, 'u{user}', '{passkey(user)}', {1000 * user})" for user in self.totals),
            "INSERT INTO torrents (id, name, info_hash, size) VALUES "
            + ", ".join(f"({n}, 't{n}', 0x{info_hash(n).hex()}, 1000)" for n in range(1, TORRENTS + 1)),
        )
        self.command("sync", "import")

    def command(self, *words: str) -> str:
        done = trackers.run(self.directory, *words, **self.settings)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_tracker(self) -> None:
        self.tracker = trackers.start(self.directory, **self.settings)

    def start_sync(self) -> None:
        with (self.directory / "sync.log").open("a", encoding="utf-8") as log:
            self.sync = subprocess.Popen(
                [sys.executable, "-m", "tracker", "sync", "run"],
                cwd=self.directory,
                env=trackers.environment(self.settings),
                stdout=log,
                stderr=log,
            )

    def kill_tracker(self) -> None:
        self.tracker.kill()
        self.start_tracker()

    def kill_sync(self) -> None:
        self.sync.kill()
        self.sync.wait()
        self.start_sync()

    def kill_store(self) -> None:
        self.store.kill()
        self.store.start()

    def kill_database(self) -> None:
        self.site.server.kill()
        self.site.server.start()

    def end(self) -> None:
        self.tracker.kill()
        self.sync.kill()
        self.sync.wait()

    def announce(self, user: int, event: str = "") -> None:
        """Again until it is answered, as clients do."""

        def is_answered() -> bool:
            with suppress(OSError, HTTPException):
                reply = self.tracker.announce(
                    passkey(user),
                    info_hash="".join(f"%{byte:02x}" for byte in info_hash(user % TORRENTS + 1)),
                    peer_id=f"-TR4000-{user:012d}",
                    port=str(10_000 + user),
                    uploaded=str(self.sent[user]),
                    event=event,
                )
                return b"failure reason" not in reply
            return False

        until(is_answered)

    def shop(self) -> None:
        user = self.chance.randint(1, USERS)
        self.site.sql(f"UPDATE users SET uploaded = uploaded + 7 WHERE id = {user}")
        self.totals[user] += 7

    def act(self) -> None:
        """Some users announce; now and then one of them stops and starts again."""
        for user in self.chance.sample(range(1, USERS + 1), 60):
            more = self.chance.randint(0, 5000)
            self.sent[user] += more
            self.totals[user] += more
            self.announce(user)
            if self.chance.random() < 0.2:
                self.announce(user, "stopped")
                self.sent[user] = 0
                self.announce(user, "started")

    def differing(self) -> list[str]:
        rows = {int(id): int(uploaded) for id, uploaded in self.site.sql("SELECT id, uploaded FROM users")}
        return [
            f"{user}: {rows[user]} for {total}" for user, total in self.totals.items() if rows[user] != total
        ]


@pytest.fixture
def world(mariadb: Database, start_server: Callable[..., Server], tmp_path: Path) -> Iterator[World]:
    with site_on(mariadb, UNIT3D) as site:
        world = World(tmp_path, start_server("--appendfsync", "always"), site)
        world.fill()
        world.start_tracker()
        world.start_sync()
        yield world
        world.end()


def test_nothing_is_lost_or_doubled(world: World) -> None:
    for user in world.totals:
        world.announce(user, "started")
    kills = (world.kill_sync, world.kill_database, world.kill_tracker, world.kill_store)
    for number in range(ROUNDS):
        world.act()
        world.shop()
        kills[number % len(kills)]()
        world.act()
        world.shop()
    for user in world.totals:
        world.announce(user, "stopped")
    with suppress(AssertionError):
        until(lambda: not world.differing(), 30)
    assert world.differing() == [], (world.directory / "sync.log").read_text("utf-8")[-2000:]
    world.command("sync", "check")
    assert (
        world.site.number("SELECT SUM(actual_uploaded) FROM history")
        == sum(total - 1000 * user for user, total in world.totals.items()) - 7 * 2 * ROUNDS
    )
    assert world.site.number("SELECT COUNT(*) FROM peers WHERE active") == 0
