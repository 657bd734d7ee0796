"""Pictures of every page of the dashboard in four looks, for review: ``python -m loadtest.screenshots FOLDER``; with
``--docs`` those of README.md and docs/ instead, into docs/pictures.

A tracker of its own runs in a temporary folder, with made-up data on every page and 90 days of history.
"""

import argparse
import asyncio
import json
import math
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Page, sync_playwright

from loadtest import trackers
from loadtest.geoip_databases import make_city, record
from loadtest.trackers import RunningTracker
from tracker.admin.pages.rendering import NAVIGATION
from tracker.bittorrent import Address, Digits, Endpoint, InfoHash, PeerId
from tracker.store.access.audit import AuditEntry, ChangedObject
from tracker.store.client.connection import Connection, connect
from tracker.store.stats.client_software import MIN_ADDRESSES
from tracker.store.stats.metric_names import place_names
from tracker.store.stats.refusal_samples import RefusedAnnounce
from tracker.store.stats.slices import PRECISIONS, RETAINED, Distribution, start_of
from tracker.store.stats.unique_users import UniqueUserEvent
from tracker.store.store import Store, StoreOptions
from tracker.store.swarms.codec import PeerUpdate
from tracker.store.swarms.rules import SwarmRules
from tracker.store.work.records import Claim, NewItem, Project
from tracker.system.event_loop import running

LOOKS = {
    f"{scheme}-{width}": {"color_scheme": scheme, "viewport": {"width": size[0], "height": size[1]}}
    for scheme in ("light", "dark")
    for width, size in (("wide", (1920, 1080)), ("narrow", (390, 844)))
}
DOCS = Path(__file__).parents[1] / "docs/pictures"
PICTURES = {
    "overview": "/?range=24h",
    "history": "/history?range=24h",
    "world": "/world",
    "torrent": f"/torrents/{'01' * 20}",
    "user": "/users/1",
    "work": "/work/archive",
}
"""The pictures of docs/ and their pages."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TORRENTS = 60
USERS = 30
DAY = 86_400
CLIENTS = ("-qB5020-", "-qB4650-", "-TR4060-", "-DE2130-", "-LT2080-", "-UT3550-", "-BI2300-")
PLACES = (
    ("Germany", "Berlin", "10115", "DE"),
    ("France", "Paris", "75001", "FR"),
    ("United States", "Springfield", "62701", "US"),
    ("Brazil", "Recife", "50010", "BR"),
    ("Japan", "Osaka", "530-0001", "JP"),
    ("Malta", "Valletta", "VLT", "MT"),
)
RATES = {
    "announces": 55.0,
    "announces.udp": 23.0,
    "announces.udp.v4": 16.0,
    "announces.udp.v6": 7.0,
    "announces.started": 1.6,
    "announces.completed": 0.2,
    "announces.v4": 41.0,
    "announces.v6": 14.0,
    "announces.stopped": 0.9,
    "scrapes": 6.0,
    "scrapes.v4": 6.0,
    "refused.announces": 1.4,
    "failures.unknown torrent": 0.9,
    "failures.client denied": 0.4,
    "failures.unknown passkey": 0.1,
    "joins": 2.2,
    "joins.v4": 1.5,
    "joins.v6": 0.7,
    "joins.udp.v4": 0.6,
    "joins.udp.v6": 0.3,
    "unique.new": 0.3,
    "reaps": 1.1,
    "bytes.up": 12e6,
    "bytes.up.v4": 9e6,
    "bytes.up.v6": 3e6,
    "bytes.up.udp.v4": 4e6,
    "bytes.up.udp.v6": 1e6,
    "bytes.down": 10.5e6,
    "bytes.down.v4": 8e6,
    "bytes.down.v6": 2.5e6,
    "bytes.down.udp.v4": 3.5e6,
    "bytes.down.udp.v6": 0.8e6,
}
"""Events per second of the counters with a history."""
SIZES = {
    "seeders": 5200.0,
    "seeders.v4": 4100.0,
    "seeders.v6": 1500.0,
    "seeders.http": 3000.0,
    "seeders.udp": 2200.0,
    "leechers": 1400.0,
    "leechers.v4": 1200.0,
    "leechers.v6": 300.0,
    "leechers.http": 900.0,
    "leechers.udp": 500.0,
    "torrents": 900.0,
    "users": 310.0,
    "announce_seconds": 0.004,
}
FOLLOWED = (
    "/",
    "/?range=24h",
    "/history?range=90d",
    "/history?range=7d&by=protocol",
    "/history?range=24h&by=family",
    "/history/traffic?range=24h",
    "/failures?reason=unknown%20torrent",
    "/clients/program?name=qBittorrent",
    "/world/countries",
    "/world/countries/place?name=Germany",
    "/torrents/add",
    "/torrents/denied",
    f"/torrents/{'01' * 20}",
    "/torrents/none",
    "/users/1",
    "/users/owing",
    "/jobs/1",
    "/work/archive",
    "/work/archive/items",
    "/work/archive/claims",
    "/work/archive/blocked",
    "/work/archive/settings",
)
"""Pages that the menu does not name."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="where the pictures go, one folder per look")
    parser.add_argument("--docs", action="store_true", help="the pictures of README.md and docs/")
    parser.add_argument("--look", choices=LOOKS, action="append", help="only this look; may be repeated")
    parser.add_argument("--page", default="", help="only pages whose path matches this regular expression")
    given = parser.parse_args()
    if given.docs == bool(given.folder):
        parser.error("give a folder or --docs")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"none of {', '.join(BROWSERS)} is in PATH", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        tracker = _start(Path(folder))
        try:
            asyncio.run(_fill(Path(folder) / "data" / "valkey.sock"))
            token = json.loads(trackers.run(Path(folder), "token", "create", "reviewer", "--json").stdout)["token"]
            _announce(tracker)
            if given.docs:
                for scheme in ("light", "dark"):
                    named = {DOCS / f"{name}-{scheme}.png": path for name, path in PICTURES.items()}
                    if scheme == "dark":
                        named = {file: path for file, path in named.items() if path == PICTURES["overview"]}
                    look = {"color_scheme": scheme, "viewport": {"width": 1600, "height": 900}}
                    _take(browser, tracker, token, named, look)
                return 0
            paths = [path for path in pages() if re.search(given.page, path)]
            for name in given.look or LOOKS:
                named = {given.folder / name / f"{_name_of(path)}.png": path for path in paths}
                _take(browser, tracker, token, named, LOOKS[name], full_page=True)
        finally:
            tracker.end()
    return 0


def pages() -> list[str]:
    """The paths of all pages, those of the menu first."""
    menu = [link.href for links in NAVIGATION.values() for link in links]
    return list(dict.fromkeys((*menu, *FOLLOWED, "/sign-in")))


def _start(folder: Path) -> RunningTracker:
    networks = {
        f"11.{number}.0.0/16": record(code, "1", city, postcode)
        for number, (_, city, postcode, code) in enumerate(PLACES)
    }
    return trackers.start(
        folder,
        TRACKER_GEOIP__DATABASE=str(make_city(folder / "city.mmdb", networks)),
        TRACKER_HTTP__TRUSTED_PROXIES="127.0.0.0/8",
        TRACKER_USERS__PRIVATE="optional",
        TRACKER_CLIENTS__DENY_LIST="true",
    )


async def _fill(socket: Path) -> None:
    now, chance = time.time(), random.Random(1)
    connection = Connection(connect(f"unix://{socket}", connect_timeout=10, timeout=10))
    rules = SwarmRules(accounts="optional", hnr_min_bytes=2**20, hnr_threshold=DAY)
    store = Store(connection, "t:", StoreOptions(rules=rules))
    try:
        async with running(store.swarms.run):
            await _fill_history(store, now, chance)
            await _fill_torrents(store, now, chance)
            await _fill_users(store, now, chance)
            await _fill_work(store)
            await _fill_lists(store, now, chance)
    finally:
        await connection.close()


async def _fill_history(store: Store, now: float, chance: random.Random) -> None:
    """Slices of all precisions, with days, nights and growth."""

    def course(start: int) -> float:
        daily = 1 + 0.45 * math.sin(2 * math.pi * (start % DAY) / DAY)
        growth = 1 - 0.4 * min(1.0, (now - start) / (120 * DAY))
        return daily * growth * chance.uniform(0.9, 1.1)

    command = store.connection.command
    for precision in PRECISIONS:
        newest = start_of(now, precision)
        # Short slices go on while the pictures are taken.
        starts = [newest - age * precision for age in range(-100 if precision <= 5 else 0, RETAINED)]
        for name, rate in RATES.items():
            flat: list[int | str] = []
            for start in starts:
                flat += (start, round(rate * course(start) * min(precision, abs(now - start) or 1)))
            await command("HSET", store.keys.counter(precision, name), *flat)
            await command("ZADD", store.keys.known_counters(), 0, f"{precision}:{name}")
        for name, size in SIZES.items():
            flat = []
            for start in starts:
                value = size * course(start)
                flat += (start, Distribution(9, value, 0.0, value * 0.7, value * 1.9).encode())
            await command("HSET", store.keys.distribution(precision, name), *flat)
    for reason, total in (("unknown torrent", 93_512), ("client denied", 20_417), ("unknown passkey", 1_204)):
        await command("HSET", store.keys.failures(), reason, total)


async def _fill_torrents(store: Store, now: float, chance: random.Random) -> None:
    for number in range(1, TORRENTS + 1):
        name = f"{chance.choice(('Debian', 'Open film', 'Field recordings', 'Maps of', 'Talks'))} {number}"
        size = chance.randrange(10**6, 10**11)
        await store.torrents.add(InfoHash(bytes([number]) * 20), {"name": name, "size": str(size)})
    await store.torrents.deny(InfoHash(b"\xee" * 20), "taken down by request")
    for number, (country, city, postcode, _) in enumerate(PLACES):
        place = place_names(country, city, postcode)
        events = [
            UniqueUserEvent(InfoHash(bytes([chance.randrange(1, 9)]) * 20), f"{number}.{user}", place)
            for user in range(60 // (number + 1))
        ]
        await store.unique_users.count(events, now)
    denied = [
        RefusedAnnounce(int(now) - 60 * age, InfoHash(bytes([age]) * 20), "aria2", str(age % 4 or ""))
        for age in range(9, 1, -1)
    ]
    await store.refusal_samples.add({"unknown torrent": denied, "client denied": denied[:3]})


async def _fill_users(store: Store, now: float, chance: random.Random) -> None:
    for number in range(1, USERS + 1):
        user = await store.users.add(
            str(number),
            name=f"volunteer {number}",
            uploaded=chance.randrange(10**13),
            downloaded=chance.randrange(10**12),
        )
        if number > 3:
            continue
        for torrent in range(1, 9):
            await store.swarms.announce(_update(torrent, number, user.passkey, "s"))
            if torrent % 2:
                await store.swarms.announce(_update(torrent, number, user.passkey, "x", downloaded=2**33))
    await store.user_listing.rank()


def _update(torrent: int, peer: int, passkey: str, event: str, downloaded: int = 0) -> PeerUpdate:
    return PeerUpdate(
        info_hash=InfoHash(bytes([torrent]) * 20),
        peer_id=PeerId(b"-qB5020-%012d" % peer),
        event=event.encode(),
        uploaded=Digits(b"0"),
        downloaded=Digits(b"%d" % downloaded),
        bytes_left=Digits(b"1000"),
        endpoint=Endpoint(bytes([11, 0, 0, peer, 0x1A, 0xE1])),
        peers_wanted=0,
        key=b"",
        passkey=passkey,
        timeout_seconds=2700.0,
        random=7,
        form=0,
        unbounded=False,
    )


async def _fill_work(store: Store) -> None:
    work = store.work
    await work.projects.create(Project("archive", title="Archive of old forums", item_type="forum"))
    await work.projects.create(Project("seeds", kind="seeding", keep_done_days=30))
    await work.items.add("archive", [NewItem(f"forum {number}") for number in range(80)])
    for number in range(24):
        who = f"volunteer_{number % 5}"
        claim = await work.claims.claim("archive", who, address=f"192.0.2.{number}", version="1.4")
        if isinstance(claim, Claim) and number % 4:
            await work.claims.done("archive", who, claim.item, reported={"archive.example": 2**30 + number})
    await work.leaderboard.update("archive")
    await work.blocks.block("192.0.2.99", "archive")
    await work.blocks.block("2001:db8:1234:5678::/64")


async def _fill_lists(store: Store, now: float, chance: random.Random) -> None:
    """Clients, jobs, tokens and the audit log."""
    joins = {(f"{name} {v}", ""): chance.randrange(20, 900) for name in ("qBittorrent", "Deluge") for v in "543"}
    joins |= {("Transmission 4.0.6", ""): 700, ("µTorrent 3.5.5", ""): 120, ("aria2", ""): 45}
    refused = {("aria2", "unknown torrent"): 512, ("Xunlei 1.2", "client denied"): 204, ("qBittorrent 3", "denied"): 9}
    seen = joins | refused
    addresses = [Address(bytes((192, 0, 2, host))) for host in range(MIN_ADDRESSES)]
    await store.client_software.add(1, seen, now, dict.fromkeys(seen, addresses))
    await store.allow_list.add(b"-TR40", "Transmission 4.0")
    await store.deny_list.add(b"-XL", "this client does not upload")
    await store.jobs.enqueue("process_torrent", {"torrent_id": "7"})
    for name in ("prometheus", "site"):
        await store.tokens.create(name, "read" if name == "prometheus" else "operate")
    for number in range(12):
        changed = (ChangedObject("user", str(number), {"enabled": "1"}, {"enabled": "0"}),)
        entry = AuditEntry("site", "a1", "operate", "api", "192.0.2.7", "user.edit", changed)
        await store.audit.add(entry)


def _announce(tracker: RunningTracker) -> None:
    """Peers over HTTP, so that live values are not 0."""
    for number in range(40):
        tracker.announce(
            info_hash=quote(bytes([1 + number % 7]) * 20, safe=""),
            peer_id=f"{CLIENTS[number % len(CLIENTS)]}{number:012}",
            left=str(number % 3 * 1000),
            port=str(6881 + number),
        )


def _name_of(path: str) -> str:
    return re.sub(r"[^0-9a-z]+", "-", path.lower()).strip("-") or "overview"


def _take(
    browser: str,
    tracker: RunningTracker,
    token: str,
    named: Mapping[Path, str],
    look: Mapping[str, object],
    *,
    full_page: bool = False,
) -> None:
    """``named``: the file of each path."""
    options = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=list(options))
        # Without bypass_csp, Playwright cannot wait for the charts.
        page = opened.new_context(bypass_csp=True, **look).new_page()  # type: ignore[arg-type]  # as above
        page.set_default_timeout(60_000)
        for signed_in in (False, True):
            if signed_in:
                page.goto(f"{tracker.admin_url}/sign-in")
                page.get_by_label("Token").fill(token)
                page.get_by_role("button", name="Sign in").click()
                page.get_by_role("heading", name="Overview", level=1).wait_for()
            for file, path in named.items():
                if (path == "/sign-in") is not signed_in:
                    _save(page, tracker, path, file, full_page=full_page)
        opened.close()


def _save(page: Page, tracker: RunningTracker, path: str, file: Path, *, full_page: bool) -> None:
    page.goto(tracker.admin_url + path)
    page.get_by_role("heading", level=1).wait_for()
    page.wait_for_function(
        "[...document.querySelectorAll('figure[data-chart] .plot')].every((plot) => plot.childElementCount)"
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=file, full_page=full_page)
    print(file, flush=True)


if __name__ == "__main__":
    sys.exit(main())
