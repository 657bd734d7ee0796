"""Pages and reads of the API with 64 shards on a cluster of three, and with one store: the time of each."""

import asyncio
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp

from loadtest import trackers
from loadtest.bench.batches import send, torrent_row, user_row
from loadtest.bench.cluster_sides import Stores, one_store, sharded
from loadtest.bench.lists import DASHBOARD, TORRENTS, USERS
from loadtest.bench.sections import Section

SHARDS = 64
GOAL_MILLISECONDS = 5.0
NAMED = 10
"""Those that take longest with shards, beside one store, are in the table."""
BUSY = 200
"""Torrents that user 1 seeds."""
API = {
    "changes": "changes",
    "dht": "dht",
    "lookups in the DHT": "dht/lookups",
    "denials": "denials",
    "history of peers": "history/peers",
    "scores": "scores",
    "scores, from the middle": "scores?cursor={middle}",
    "lag of scores": "scores/lag",
    "statistics": "statistics",
    "a torrent": "torrents/{torrent}",
    "history of a torrent": "torrents/{torrent}/history",
    "peers of a torrent": "torrents/{torrent}/peers",
    "users of a torrent": "torrents/{torrent}/uniques",
    "torrents by unique users": "uniques/torrents",
    "a user": "users/1",
    "torrents of a user": "users/1/torrents/active",
    "tokens of a user": "users/1/freeleech",
    "hit-and-runs": "hit-and-runs",
    "pending hit-and-runs": "hit-and-runs/pending",
    "projects": "work/projects",
}
PAGES = {
    "audit log": "/audit",
    "clients": "/clients",
    "deny list": "/torrents/denied",
    "DHT": "/dht",
    "history": "/history",
    "history of peers": "/history/peers",
    "hit-and-runs": "/users/owing",
    "jobs": "/jobs",
    "overview": "/",
    "pending hit-and-runs": "/users/pending",
    "a torrent": "/torrents/{torrent}",
    "a user": "/users/1",
    "work": "/work",
    "world": "/world",
    "world, torrents": "/world/torrents",
}


def measure_pages(directory: Path, *, rows: int, rounds: int) -> Section:
    """The fastest of some rounds counts, as other programs disturb the machine."""
    section = Section(f"Pages and reads of the API, {rows:,} users and {rows:,} torrents")
    with ExitStack() as stack:
        times = [
            asyncio.run(_read_all(*_start(stack, stores, directory), rows, rounds))
            for stores in (stack.enter_context(one_store(directory)), stack.enter_context(sharded(SHARDS)))
        ]
    one, several = times
    more = {name: several[name] - one[name] for name in one}
    slowest = sorted(more, key=more.__getitem__, reverse=True)
    for name in slowest[:NAMED]:
        section.find(f"{name}: one store", one[name], "ms")
        section.find(f"{name}: {SHARDS} shards", several[name], "ms")
    median = statistics.median(more.values())
    section.find(f"{SHARDS} shards take longer: half of {len(more)} pages and reads, at most", median, "ms")
    section.find(f"{SHARDS} shards take longer: {slowest[0]}", more[slowest[0]], "ms", GOAL_MILLISECONDS)
    return section


def _start(stack: ExitStack, stores: Stores, directory: Path) -> tuple[trackers.RunningTracker, str]:
    """A tracker, and a token for its API."""
    (place := directory / stores.name.replace(" ", "-")).mkdir()
    settings = {
        **stores.settings,
        "TRACKER_USERS__PRIVATE": "required",
        "TRACKER_TORRENTS__MODE": "registered",
        "TRACKER_CHANGES__MAX_ENTRIES": "10000",
    }
    tracker = trackers.start(place, **settings)
    stack.callback(tracker.end)
    made = trackers.run(place, "token", "create", "bench", "--json", **settings)
    made.check_returncode()
    return tracker, json.loads(made.stdout)["token"]


async def _read_all(tracker: trackers.RunningTracker, token: str, rows: int, rounds: int) -> dict[str, float]:
    """Milliseconds by name."""
    headers = {"Authorization": f"Bearer {token}"}
    found = {}
    async with aiohttp.ClientSession(tracker.admin_url, headers=headers) as session:
        await send(session, "users", user_row, rows, "added")
        await send(session, "torrents", _torrent_row, rows, "added")
        for number in range(1, BUSY + 1):
            _seed(tracker, number)
        for name, path in _paths(rows):
            found[name] = min([await _read(session, path) for _ in range(rounds)])
    return found


def _torrent_row(number: int) -> dict[str, Any]:
    """With info hashes of all shards."""
    return {**torrent_row(number), "info_hash": f"{number % 256:02x}{number:038x}"}


def _seed(tracker: trackers.RunningTracker, number: int) -> None:
    digits = _torrent_row(number)["info_hash"]
    info_hash = "".join(f"%{digits[place : place + 2]}" for place in range(0, len(digits), 2))
    reply = tracker.announce(user_row(1)["passkey"], info_hash=info_hash)
    assert b"failure reason" not in reply, reply


async def _read(session: aiohttp.ClientSession, path: str) -> float:
    began = time.perf_counter()
    async with session.get(path) as response:
        await response.read()
        assert response.status == 200, (path, response.status)
    return 1000 * (time.perf_counter() - began)


def _paths(rows: int) -> Iterator[tuple[str, str]]:
    for what, lists in (("users", USERS), ("torrents", TORRENTS)):
        for name, query in lists.items():
            yield f"{what} {name}", f"/api/v1/{what}?{query.format(middle=rows // 2)}"
    for name, path in DASHBOARD.items():
        yield f"dashboard, {name}", path.format(page=rows // 100)
    values = {"torrent": _torrent_row(1)["info_hash"], "middle": rows // 2}
    for name, path in API.items():
        yield name, f"/api/v1/{path.format(**values)}"
    for name, path in PAGES.items():
        yield f"dashboard, {name}", path.format(**values)
    yield "metrics", "/metrics"
