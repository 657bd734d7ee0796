"""One round of the site sync with 10,000 changed peers: CPU time of its process, on a real MariaDB and a real store.

All peers announce; then one round writes users, torrents, history and peers of UNIT3D's tables. In the second round all
rows exist. Exit status 1 if a round takes more than the goal.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from loadtest.bench.sections import Section
from loadtest.databases import MARIADB, Database, Site, site_on
from loadtest.servers import start_valkey
from loadtest.site_tables import UNIT3D
from tracker.bittorrent import Digits, Endpoint, InfoHash, PeerId
from tracker.store.client.connection import Connection, connect
from tracker.store.store import Store, StoreOptions
from tracker.store.swarms.codec import PeerUpdate
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.site.database import SiteDatabase
from tracker.workers.site.mapping import load_mapping
from tracker.workers.site.sync import SiteSync

GOAL_SECONDS = 2.0
USERS, TORRENTS = 2000, 3000
RULES = SwarmRules(accounts="required", peer_memory=3600, max_changes=1_000_000, note_updates=True)
_AT_ONCE = 500


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def _passkey(user: int) -> str:
    return f"{user:032x}"


def _hash(torrent: int) -> InfoHash:
    return InfoHash(torrent.to_bytes(20, "big"))


def _announce(number: int, event: bytes, moved: int) -> PeerUpdate:
    """Of the client ``number``, each of which is alone on its user and torrent."""
    return PeerUpdate(
        info_hash=_hash(1 + (number * 7 + number // USERS * 331) % TORRENTS),
        peer_id=PeerId(b"-XX0001-%012d" % number),
        event=event,
        uploaded=Digits(b"%d" % moved),
        downloaded=Digits(b"0"),
        bytes_left=Digits(b"%d" % (number % 2 * 1000)),
        endpoint=Endpoint(b"\x0b" + number.to_bytes(3, "big") + b"\x1a\xe1"),
        peers_wanted=50,
        key=b"",
        passkey=_passkey(1 + number % USERS),
        timeout_seconds=2700.0,
        random=number,
        form=0,
        unbounded=False,
    )


async def _fill(store: Store, site: Site) -> None:
    users = [{"user_id": str(user), "passkey": _passkey(user)} for user in range(1, USERS + 1)]
    await store.user_import.save(users, replace_totals=True)
    torrents = range(1, TORRENTS + 1)
    await store.torrents.add_many([(_hash(torrent), {"torrent_id": str(torrent)}) for torrent in torrents])
    rows = ", ".join(f"({user}, 'u{user}', '{_passkey(user)}')" for user in range(1, USERS + 1))
    site.sql(f"INSERT INTO users (id, username, passkey) VALUES {rows}")  # noqa: S608 - our own numbers
    rows = ", ".join(f"({torrent}, 't', 0x{_hash(torrent).hex()})" for torrent in torrents)
    site.sql(f"INSERT INTO torrents (id, name, info_hash) VALUES {rows}")  # noqa: S608


async def measure(url: str, site: Site, peers: int) -> list[float]:
    """CPU seconds of this process in a round after joins, and in one after announces with bytes."""
    connection, clock, found = (Connection(connect(url, connect_timeout=30, timeout=30)), Clock(), list[float]())
    store = Store(connection, "t:", StoreOptions(rules=RULES), clock=clock)
    async with asyncio.TaskGroup() as tasks, SiteDatabase(site.url) as database:
        serving = tasks.create_task(store.swarms.run())
        await _fill(store, site)
        sync = SiteSync(store, database, load_mapping("unit3d"))
        await sync.adopt()
        for event, moved in ((b"s", 0), (b"u", 100_000)):
            for first in range(0, peers, _AT_ONCE):
                updates = [_announce(number, event, moved) for number in range(first, min(first + _AT_ONCE, peers))]
                await asyncio.gather(*map(store.swarms.announce, updates))
            await store.changes.record_updates()
            began = time.process_time()
            while await sync.round():
                pass
            found.append(time.process_time() - began)
            assert not sync.state.error
            clock.now += 600
        serving.cancel()
    await connection.close()
    assert site.number("SELECT COUNT(*) FROM history WHERE actual_uploaded = 100000") == peers
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=10_000, help="changed peers in a round (10,000)")
    options = parser.parse_args()
    if MARIADB is None:
        sys.exit("MariaDB is missing: apt install mariadb-server")
    with tempfile.TemporaryDirectory(prefix="sync-") as name:
        database = Database(Path(name) / "database")
        database.directory.mkdir()
        server = start_valkey(Path(name))
        try:
            with site_on(database.start(), UNIT3D) as site:
                joined, moved = asyncio.run(measure(server.url, site, options.peers))
        finally:
            server.kill()
            database.kill()
    section = Section("Site sync")
    goal = GOAL_SECONDS if options.peers <= 10_000 else None
    section.find(f"CPU of a round, {options.peers:,} peers that joined", joined, "s", goal)
    section.find(f"CPU of a round, {options.peers:,} peers that moved bytes", moved, "s", goal)
    print(section.as_markdown())
    sys.exit(0 if all(finding.reached is not False for finding in section.findings) else 1)


if __name__ == "__main__":
    main()
