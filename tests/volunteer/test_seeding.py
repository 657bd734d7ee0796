"""W27: `tracker work seed` with a real tracker, a real client and a real swarm, from the claim to the drop."""

import contextlib
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from copy import copy
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

from loadtest import trackers
from loadtest.servers import free_port
from loadtest.trackers import RunningTracker
from tests.e2e.peers import PAYLOAD, SeederProcess, Share
from tests.store.harness import Clock, Store, running
from tests.volunteer.programs import LABEL, PASSWORD, PROGRAMS, Program, program
from tests.waiting import eventually
from tracker.bittorrent import InfoHash
from tracker.core.work import is_needed
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.store.work.records import NewItem, Project
from tracker.volunteer.clients import NewTorrent
from tracker.volunteer.clients.qbittorrent import QBittorrent
from tracker.volunteer.clients.transmission import Transmission
from tracker.volunteer.work_api import Identity, WorkApi
from tracker.workers.work import VERIFY_EVERY_SECONDS, WorkVerification

pytestmark = pytest.mark.slow
SIZE = 600_000
SPACE = 2 * SIZE
OTHER_PASSKEY, PASSKEY = "f" * 40, "c" * 40
SEEDERS = 40
LIBTORRENT = "&".join(
    (
        "listen_interfaces=127.0.0.1:0",
        "ssrf_mitigation=false",
        "min_announce_interval=1",
        "enable_dht=false",
        "enable_lsd=false",
        "enable_upnp=false",
        "enable_natpmp=false",
        "allow_multiple_connections_per_ip=true",
    )
)


class WallClock(Clock):
    """The tracker's process uses the real time, so this one does."""

    def __call__(self) -> float:
        return time.time()


class Site:
    """A tracker with the project ``seeds``, a site with .torrent files, and their store."""

    def __init__(self, tracker: RunningTracker, store: Store, user_id: str) -> None:
        self.tracker = tracker
        self.store = store
        self.user_id = user_id
        found = re.search(r"^ +work +(http://[^/\s]+)/", tracker.banner, re.MULTILINE)
        assert found, tracker.banner
        self.url = f"{found[1]}/seeds"

    async def offer(self, share: Share, size: int, place: float) -> None:
        await self.store.torrents.add(InfoHash(share.info_hash), {"name": "payload", "size": str(size)})
        await self.store.work.items.add("seeds", [NewItem(share.info_hash.hex(), place=place)])

    async def claims(self) -> list[str]:
        return [claim.item for claim in await self.store.work.claims.of_claimant("seeds", self.user_id)]

    async def mine(self) -> dict[str, Any]:
        async with WorkApi.open(self.url, Identity(PASSKEY)) as api:
            return dict((await api.mine()).items)

    async def seed_seconds(self, share: Share) -> int:
        torrent = await self.store.torrents.get(InfoHash(share.info_hash))
        assert torrent is not None
        account = (await self.store.users.on_torrents(self.user_id, [torrent.torrent_id]))[0]
        return int(account.get("seed_time", "0"))

    async def verify(self, share: Share) -> None:
        """Waits until the claim is verified. The tracker's own job looks once a minute; this one does not wait."""
        work = self.store.work
        ahead = copy(self.store)
        ahead.clock = lambda: time.time() + 2 * VERIFY_EVERY_SECONDS  # type: ignore[assignment]  # its time passes
        job = WorkVerification(ahead)

        async def is_done() -> bool:
            await job.handle()
            return share.info_hash.hex() not in await self.claims()

        await eventually(is_done)
        done = await work.claims.finished("seeds", self.user_id, [share.info_hash.hex()])
        assert done == [share.info_hash.hex()]

    async def has_enough_seeders(self, share: Share) -> None:
        """Writes a history of many seeders."""
        torrent = await self.store.torrents.get(InfoHash(share.info_hash))
        assert torrent is not None
        now = int(time.time())
        points = [f"{now - 3600 * hour} {SEEDERS} 5 7 1.5" for hour in range(60, 0, -1)]
        await self.store.redis.rpush(self.store.keys.history(torrent.torrent_id), *points)


def user_who_is_not_needed(info_hash: str) -> str:
    """A user id that the tracker lets go today and tomorrow: it draws by user, torrent and day."""
    days = (time.time(), time.time() + 86_400)
    return next(
        name
        for name in map(str, range(10, 1_000_000))
        if not any(is_needed(SEEDERS, 3, name, info_hash, day) for day in days)
    )


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """The folder of a web server with .torrent files, and its URL."""
    folder = tmp_path / "site"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
async def site(
    redis_url: str, prefix: str, tmp_path: Path, files: tuple[Path, str]
) -> AsyncIterator[Callable[[str], Any]]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(info_hash: str) -> Site:
            (tmp_path / "tracker").mkdir()
            tracker = trackers.start(
                tmp_path / "tracker",
                TRACKER_REDIS__URL=redis_url,
                TRACKER_REDIS__PREFIX=prefix,
                TRACKER_USERS__PRIVATE="required",
                TRACKER_TORRENTS__MODE="registered",
                TRACKER_ANNOUNCE__INTERVAL_SECONDS="3",
                TRACKER_ANNOUNCE__INTERVAL_JITTER="0",
                TRACKER_REAPER__INTERVAL_SECONDS="600",
                TRACKER_WORK__LISTEN="127.0.0.1:0",
                TRACKER_WORK__TORRENT_URL=files[1] + "/{info_hash}.torrent",
            )
            stack.callback(tracker.kill)
            store = Store(redis_url, Keys(prefix), SwarmRules(), WallClock())
            await stack.enter_async_context(running(store))
            user_id = user_who_is_not_needed(info_hash)
            await store.users.add("7", OTHER_PASSKEY)
            await store.users.add(user_id, PASSKEY)
            await store.work.projects.create(
                Project(
                    "seeds",
                    kind="seeding",
                    verify="announce",
                    seed_hours=0,
                    keep_done_days=30,
                    start_budget=5,
                    order="weakest",
                )
            )
            return Site(tracker, store, user_id)

        yield start


@contextlib.contextmanager
def seeding(site: Site, client: str, home: Path, *more: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The program, killed with -9 at the end of the block."""
    words = ["--url", site.url, "--client", client, "--space", str(SPACE), "--state", f"{home}/state.json"]
    environment = trackers.environment({"SWARMKEEPER_PASSKEY": PASSKEY, "SWARMKEEPER_CLIENT_PASSWORD": PASSWORD})
    with (home / "log").open("ab") as output:
        process = trackers.starter(
            [sys.executable, "-m", "tracker", "work", "seed", *words, "--every", "1", *more],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
async def test_a_volunteer_without_a_passkey_is_verified_by_its_address(
    redis_url: str, prefix: str, files: tuple[Path, str], tmp_path: Path
) -> None:
    """A public tracker. The program has libtorrent inside, which also announces."""
    share, port = Share.make(tmp_path / "wanted", size=SIZE), free_port()
    shutil.copy(share.torrent("http://other.example/x/announce"), files[0] / f"{share.info_hash.hex()}.torrent")
    (home := tmp_path / "home").mkdir()
    (home / "data").mkdir()
    shutil.copy(share.folder / PAYLOAD, home / "data" / PAYLOAD)
    (tmp_path / "tracker").mkdir()
    async with contextlib.AsyncExitStack() as stack:
        tracker = trackers.start(
            tmp_path / "tracker",
            TRACKER_REDIS__URL=redis_url,
            TRACKER_REDIS__PREFIX=prefix,
            TRACKER_ANNOUNCE__INTERVAL_SECONDS="3",
            TRACKER_WORK__LISTEN="127.0.0.1:0",
            TRACKER_WORK__TORRENT_URL=files[1] + "/{info_hash}.torrent",
        )
        stack.callback(tracker.kill)
        store = Store(redis_url, Keys(prefix), SwarmRules(), WallClock())
        await stack.enter_async_context(running(store))
        await store.work.projects.create(
            Project("seeds", kind="seeding", verify="address", seed_hours=0, keep_done_days=30)
        )
        site = Site(tracker, store, "ada_1")
        await site.offer(share, SIZE, 1)
        client = f"internal:{home}/data?{LIBTORRENT}".replace("127.0.0.1:0", f"127.0.0.1:{port}")
        with seeding(site, client, home, "--name", "ada_1", "--port", str(port)):
            await eventually(partial(has_claims, site, 1))
            await site.verify(share)
    text = (home / "log").read_text()
    assert "claimed" in text and "Traceback" not in text, text


def announce_again(client: Program, share: Share) -> None:
    """qBittorrent and Transmission announce every few minutes at most, whatever the tracker says."""
    if client.name == "internal":
        return
    opened = client.open(LABEL)
    if isinstance(opened, QBittorrent):
        opened._api.torrents_reannounce(torrent_hashes=share.info_hash.hex())
        opened.close()
    elif isinstance(opened, Transmission):
        opened._rpc.reannounce_torrent([share.info_hash.hex()])


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_volunteer_claims_downloads_seeds_and_drops(
    site: Callable[[str], Any], files: tuple[Path, str], tmp_path: Path, name: str
) -> None:
    """Of three torrents one is seeded, one is too large, and a person has added one to the client already."""
    wanted = Share.make(tmp_path / "wanted", private=True, size=SIZE)
    large = Share.make(tmp_path / "large", private=True, size=SIZE)
    owned = Share.make(tmp_path / "owned", private=True, size=SIZE - 1)
    running_site: Site = await site(wanted.info_hash.hex())
    for share in (wanted, large, owned):
        shutil.copy(share.torrent("http://other.example/x/announce"), files[0] / f"{share.info_hash.hex()}.torrent")
    await running_site.offer(large, SPACE + 1, 1)
    await running_site.offer(wanted, SIZE, 2)
    home = tmp_path / "home"
    home.mkdir()
    torrent = wanted.torrent(f"{running_site.tracker.url}/{OTHER_PASSKEY}/announce")
    with program(name, tmp_path / "client") as client:
        url = f"{client.url}?{LIBTORRENT}" if name == "internal" else client.url
        with SeederProcess(torrent, wanted.folder):
            with seeding(running_site, url, home):
                await eventually(partial(has_claims, running_site, 1))
            assert await running_site.claims() == [wanted.info_hash.hex()]
            with seeding(running_site, url, home):  # after a kill -9
                await eventually(lambda: _arrived(wanted, client.folder))
        if name != "internal":
            await _offer_what_a_person_has(running_site, client, owned)
        with seeding(running_site, url, home):
            await _seed_time_counts(running_site, client, wanted)
            if name != "internal":
                await eventually(partial(has_claims, running_site, 2))
            await running_site.verify(wanted)
            await running_site.has_enough_seeders(wanted)
            assert not (await running_site.mine())[wanted.info_hash.hex()].needed
        with seeding(running_site, url, home, "--auto-drop"):
            await eventually(lambda: "dropped" in (home / "log").read_text())
        left = client.open(LABEL)
        assert left.torrents({}) == []
        assert left.has(owned.info_hash.hex()) == (name != "internal")
        left.close()
        assert (client.folder / PAYLOAD).stat().st_size == SIZE, "data is kept"
        assert not set(await running_site.claims()) & {wanted.info_hash.hex(), large.info_hash.hex()}
    text = (home / "log").read_text() + running_site.tracker.log
    assert PASSKEY not in text and PASSWORD not in text and "Traceback" not in text, text


async def _offer_what_a_person_has(site: Site, client: Program, share: Share) -> None:
    person = client.open("mine")
    person.add(NewTorrent(share.info_hash.hex(), "mine", "http://127.0.0.1:9/announce"))
    person.close()
    await site.offer(share, SIZE - 1, 3)


def _arrived(share: Share, folder: Path) -> bool:
    copy = folder / PAYLOAD
    return copy.exists() and copy.read_bytes() == share.content


async def has_claims(site: Site, count: int) -> bool:
    return len(await site.claims()) == count


async def _seed_time_counts(site: Site, client: Program, share: Share) -> None:
    """Waits until the tracker counts seed time for the volunteer. The client announces every second."""
    last = time.monotonic()

    async def counts() -> bool:
        nonlocal last
        if time.monotonic() > last + 1:
            announce_again(client, share)
            last = time.monotonic()
        return await site.seed_seconds(share) > 0

    await eventually(counts)
