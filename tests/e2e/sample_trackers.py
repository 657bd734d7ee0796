"""Trackers with data on every page of the dashboard: torrents, peers of several countries, jobs, users, refusals.

Names that other people choose are long and without spaces.
"""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from loadtest import trackers
from loadtest.geoip_databases import make_city, record
from loadtest.trackers import RunningTracker
from tests.e2e.conftest import StartTracker
from tests.e2e.requests import announce_path, get
from tests.store.dht.harness import status
from tests.store.harness import Clock, Store
from tests.waiting import until
from tracker.admin.pages.rendering import NAVIGATION
from tracker.bittorrent import InfoHash
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.store.work.records import Claim

LONG = "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch" * 2
"""A long word, as a name in a database or a .torrent file."""
NETWORKS = {
    "192.0.2.0/24": record("GB", "WLS", LONG, "LL61"),
    "198.51.100.0/24": record("US", "IL", "Springfield", "62701"),
    "203.0.113.0/24": record("VC", "01", "Kingstown", "VC0100"),
}
_MENU = tuple(link.href for links in NAVIGATION.values() for link in links)
NAMED, DENIED, DISABLED = (digit * 40 for digit in "123")
_TABS = ("", "/items", "/items?list=done&item=none", "/claims", "/blocked", "/settings")
PUBLIC_PATHS = (
    *_MENU,
    *(f"/torrents/{info_hash}" for info_hash in (NAMED, DENIED, DISABLED)),
    "/torrents/0",
    f"/torrents/{NAMED}/peers",
    *(f"/world/{board}" for board in ("countries", "cities", "postcodes", "torrents")),
    "/torrents/add",
    "/torrents/denied",
    "/torrents?q=nothing",
    "/torrents?state=disabled",
    "/torrents?page=9",
    "/nowhere",
    "/jobs/1",
    "/clients?period=2020-01",
    "/clients/program?name=qBittorrent",
    "/failures?reason=denied",
    "/history?range=90d",
    "/history?range=7d&by=protocol",
    "/history/traffic?range=2h&by=family",
    "/world/countries/place?name=United_Kingdom",
    "/audit?since=soon",
    *(f"/work/archive{tab}" for tab in _TABS),
    "/work/seeds/policy",
)
PRIVATE_PATHS = (
    "/",
    "/torrents",
    "/torrents/add",
    f"/torrents/{'01' * 20}",
    "/users",
    "/users?state=disabled",
    "/users?q=nobody",
    "/users/1",
    "/users/1?set=incomplete",
    "/users/1?set=hnr",
    "/users/2",
    "/users/3",
    "/users/owing",
    "/users/pending",
    "/users/groups",
    "/users/groups?edit=20",
    "/users?id=9",
)


@dataclass
class SampleTracker:
    """A tracker with a token of scope full, and the paths of its pages."""

    tracker: RunningTracker
    token: str
    paths: tuple[str, ...]

    def call_api(self, method: str, path: str, body: object = None) -> Any:
        """Calls the API and returns its reply. The call must succeed."""
        connection = HTTPConnection(self.tracker.admin_url.removeprefix("http://"), timeout=trackers.SECONDS)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, f"/api/v1{path}", text, headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        assert answer.status < 300, data
        return json.loads(data) if data else None


def sample_of(tracker: RunningTracker, paths: tuple[str, ...]) -> SampleTracker:
    made = trackers.run(tracker.log_file.parent, "token", "create", "operator", "--json")
    return SampleTracker(tracker, json.loads(made.stdout)["token"], paths)


def public_tracker(start_tracker: StartTracker, tmp_path: Path) -> SampleTracker:
    """Open mode, with peers from three countries."""
    tracker = start_tracker(
        TRACKER_GEOIP__DATABASE=str(make_city(tmp_path / "city.mmdb", NETWORKS)),
        TRACKER_HTTP__TRUSTED_PROXIES="127.0.0.0/8",
    )
    sample = sample_of(tracker, PUBLIC_PATHS)
    named, denied, disabled = NAMED, DENIED, DISABLED
    sample.call_api("POST", "/torrents", {"info_hash": named, "name": LONG})
    sample.call_api("POST", "/torrents", {"info_hash": denied, "private": True})
    sample.call_api("PUT", f"/denials/{denied}", {"reason": LONG})
    sample.call_api("POST", "/torrents", {"info_hash": disabled, "enabled": False, "reason": LONG})
    sample.call_api("PUT", "/clients/-TR40", {"name": LONG[:100]})
    sample.call_api("POST", "/tokens", {"name": "grafana", "role": "read"})
    for number, network in enumerate(NETWORKS):
        for digit in "12":
            asked = announce_path(
                info_hash=bytes.fromhex(digit * 40), peer_id=b"-qB5020-%012d" % number, left=number % 2 * 1000
            )
            get(tracker.url, asked, headers={"X-Forwarded-For": network.replace(".0/24", ".7")})
    until(lambda: len(sample.call_api("GET", "/uniques/countries")["items"]) == len(NETWORKS))
    sample.call_api("POST", "/sweep")
    sample.call_api("POST", "/reprocess", {})
    _distribute_work(sample)
    return sample


def _distribute_work(sample: SampleTracker) -> None:
    """A project with items, a claim, a finished claim and blocks; and one that seeds."""
    sample.call_api("POST", "/work/projects", {"name": "archive", "title": LONG, "item_type": LONG[:100]})
    sample.call_api("POST", "/work/projects", {"name": "seeds", "kind": "seeding"})
    items = [LONG, *(f"item {number}" for number in range(60))]
    sample.call_api("POST", "/work/projects/archive/items", {"items": items})
    for who in ("volunteer-with-the-longest-name", "192.0.2.99"):
        sample.call_api("POST", "/work/projects/archive/blocked", {"who": who[:30]})
    sample.call_api("POST", "/work/blocked", {"who": "2001:db8:1234:5678::/64"})
    _run(sample, _fill_store)


def _run(sample: SampleTracker, fill: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
    """Runs ``fill`` on the tracker's store, in a thread of its own: the browser's loop runs in this one."""
    socket = sample.tracker.log_file.parent / "data" / "valkey.sock"

    async def connected() -> None:
        store = Store(f"unix://{socket}", Keys("t:"), SwarmRules(), Clock(time.time()))
        try:
            await fill(store)
        finally:
            await store.connection.close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(connected())).result()


async def _fill_store(store: Store) -> None:
    """What the API cannot do: claims, and a node of the DHT."""
    await store.work.claims.claim("archive", "volunteer_1", address="2001:db8::1")
    claim = await store.work.claims.claim("archive", "volunteer_1", address="2001:db8::1")
    assert isinstance(claim, Claim)
    await store.work.claims.done("archive", "volunteer_1", claim.item, reported={LONG[:64]: 2**50})
    await store.work.leaderboard.update("archive")
    now = int(time.time())
    node = status(name=LONG[:64], started=now, saved=now, last_answer=now, dropped={LONG: 2**50})
    await store.dht_nodes.save_status(node)
    named = InfoHash(b"\x11" * 20)
    await store.torrents.edit(named, {"private": "0"})
    assert await store.dht_torrents.save_result(named, (2**50, 2**50), now, all_torrents=False)


def private_tracker(start_tracker: StartTracker) -> SampleTracker:
    """Private mode. User 1 is live on a torrent, has left another, and has a hit-and-run and a freeleech token; user 2
    may only seed, user 3 is disabled."""
    tracker = start_tracker(
        "private",
        TRACKER_USERS__PRIVATE="required",
        TRACKER_USERS__HNR_MIN_BYTES="100",
        TRACKER_USERS__HNR_GRACE_SECONDS="7200",
        TRACKER_CHANGES__MAX_ENTRIES="1000",
    )
    sample = sample_of(tracker, PRIVATE_PATHS)
    passkey = sample.call_api("POST", "/users", {"user_id": "1", "name": LONG[:60]})["passkey"]
    sample.call_api("POST", "/users", {"user_id": "2", "can_leech": False, "download_multiplier": 0})
    sample.call_api("POST", "/users", {"user_id": "3", "group": 20})
    sample.call_api("PUT", "/groups/20", {"name": LONG[:60], "download_multiplier": 0, "hnr_exempt": True})
    sample.call_api("PATCH", "/users/3", {"enabled": False, "reason": LONG})
    get(tracker.url, announce_path(passkey, left=1000))
    other = {"info_hash": b"\x02" * 20, "left": 1000}
    get(tracker.url, announce_path(passkey, **other))
    get(tracker.url, announce_path(passkey, **other, downloaded=5000, event="stopped"))
    get(tracker.url, announce_path("0" * 32))
    until = int(time.time()) + 86_400
    sample.call_api("PUT", f"/users/1/freeleech/{'01' * 20}", {"until": until})
    _run(sample, _add_hit_and_run)
    return sample


async def _add_hit_and_run(store: Store) -> None:
    await store.redis.sadd(store.keys.user_set(1, "hnr"), "2")
    await store.users.reindex_hit_and_runs()
