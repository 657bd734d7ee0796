"""The lists of users and torrents among 100,000 of each: the time of a page, and the store's CPU time for it.

A real tracker serves pages of the API and of the dashboard. Each is read in some rounds, and the fastest counts, as
other programs disturb the machine. Announces wait for a script call of the store, so each must be short. The calls of a
page do the same work, so the time of one is that of the page divided by their number.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import redis

from loadtest import trackers
from loadtest.bench.batches import send, torrent_row, user_row
from loadtest.bench.sections import Section
from loadtest.servers import Server, start_valkey

GOAL_PAGE, GOAL_CALL = 50.0, 5.0
"""Milliseconds of the store's CPU time."""
ROUNDS = 9
USERS = {
    "by id": "",
    "by id, from the middle": "cursor=f{middle}",
    "by ratio, from the middle": "sort=ratio&order=desc&cursor=f{middle}",
    "by name, from the middle": "sort=name&cursor=f{middle}",
    "disabled ones": "enabled=false",
    "disabled ones by ratio": "enabled=false&sort=ratio",
    "enabled ones": "enabled=true",
    "blocked ones": "can_leech=false",
    "blocked ones by ratio": "can_leech=false&sort=ratio&cursor=f5000",
    "blocked and disabled ones": "can_leech=false&enabled=false&sort=uploaded",
    "search by name": "q=user+4242",
    "search with many matches": "q=user",
    "search without any match": "q=nobody",
    "search and filter": "q=9&enabled=false",
}
TORRENTS = {
    "by seeders": "",
    "by snatches, from the middle": "sort=snatches&cursor=f{middle}",
    "by score, ascending": "sort=score&order=asc",
    "by name, from the middle": "sort=name&cursor=f{middle}",
    "by size, from the middle": "sort=size&cursor=f{middle}",
    "by addition, from the middle": "sort=added&cursor=f{middle}",
    "by last activity": "sort=last_activity&order=asc",
    "disabled ones by size": "enabled=false&sort=size",
    "private ones by size": "private=true&sort=size&cursor=f5000",
    "private ones by name": "private=true&sort=name",
    "private and disabled ones": "private=true&enabled=false",
    "without seeders, by seeders": "seeded=false",
    "without seeders, by last activity": "seeded=false&sort=last_activity",
    "with seeders": "seeded=true",
    "public ones by name": "private=false&sort=name",
    "search and filter": "q=4242&private=true",
    "search by name": "q=number+4242",
    "search with many matches": "q=torrent",
    "search without any match": "q=nothing",
    "search by info hash": "q=00000000000000000000",
}
DASHBOARD = {
    "users": "/users",
    "users by ratio": "/users?sort=ratio&order=desc&page={page}",
    "disabled users": "/users?state=disabled",
    "blocked users by ratio": "/users?state=blocked&sort=ratio&page=50",
    "search for users": "/users?q=4242",
    "torrents": "/torrents",
    "torrents by snatches": "/torrents?sort=snatches&page={page}",
    "search for torrents": "/torrents?q=4242",
    "torrents by size": "/torrents?sort=size&page={page}",
    "disabled torrents": "/torrents?state=disabled&sort=added",
    "torrents without seeders": "/torrents?seeders=none&sort=last_activity&order=asc&size=100",
    "public torrents by name": "/torrents?private=no&sort=name",
    "one user": "/users/1",
}


def main() -> None:
    options = parse_options()
    with tempfile.TemporaryDirectory(prefix="lists-") as directory:
        section = measure(Path(directory), options.rows)
    print(section.as_markdown())
    sys.exit(0 if all(finding.reached is not False for finding in section.findings) else 1)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="users, and torrents (100,000)")
    return parser.parse_args()


def measure(directory: Path, rows: int) -> Section:
    server = start_valkey(directory, "--appendonly", "no", "--notify-keyspace-events", "Ex")
    settings = {
        "TRACKER_REDIS__URL": server.url,
        "TRACKER_USERS__PRIVATE": "required",
        "TRACKER_TORRENTS__MODE": "registered",
    }
    try:
        tracker = trackers.start(directory, **settings)
        try:
            made = trackers.run(directory, "token", "create", "bench", "--json", **settings)
            made.check_returncode()
            with server.client() as client:
                return asyncio.run(run(tracker, json.loads(made.stdout)["token"], server, client, rows))
        finally:
            tracker.end()
    finally:
        server.stop()


async def run(tracker: trackers.RunningTracker, token: str, server: Server, store: "redis.Redis", rows: int) -> Section:
    section = Section(f"Lists of {rows:,} users and {rows:,} torrents")
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(tracker.admin_url, headers=headers) as session:
        await send(session, "users", listed_user, rows, "added")
        await send(session, "torrents", listed_torrent, rows, "added")
        for name, path in pages(rows):
            seconds, spent, scripts = await read(session, server, store, path)
            section.find(name, seconds * 1000, "ms")
            section.find(f"{name}: store", spent * 1000, "ms", GOAL_PAGE)
            if scripts:
                section.find(f"{name}: a call of {scripts}", spent * 1000 / scripts, "ms", GOAL_CALL)
    return section


def listed_user(number: int) -> dict[str, Any]:
    """One of 7 may not download: many, but few enough to be sorted for each page."""
    return {**user_row(number), "can_leech": number % 7 != 0}


def listed_torrent(number: int) -> dict[str, Any]:
    """One of 7 is private, and one of 200 disabled."""
    return {**torrent_row(number), "private": number % 7 == 0, "enabled": number % 200 != 0}


def pages(rows: int) -> Iterator[tuple[str, str]]:
    """Each page to read: what it is, and its path."""
    for what, lists in (("users", USERS), ("torrents", TORRENTS)):
        for name, query in lists.items():
            yield f"{what} {name}", f"/api/v1/{what}?{query.format(middle=rows // 2)}"
    for name, path in DASHBOARD.items():
        yield f"dashboard, {name}", path.format(page=rows // 100)


async def read(
    session: aiohttp.ClientSession, server: Server, store: "redis.Redis", path: str
) -> tuple[float, float, int]:
    """Seconds of a page and seconds of the store's CPU time, each in its fastest round; script calls of the page."""
    times: list[float] = []
    spent: list[float] = []
    scripts: list[int] = []
    for _ in range(ROUNDS):
        before, called = cpu_seconds(server), script_calls(store)
        began = time.perf_counter()
        async with session.get(path) as response:
            await response.read()
            assert response.status == 200, (path, response.status)
        times.append(time.perf_counter() - began)
        spent.append(cpu_seconds(server) - before)
        scripts.append(script_calls(store) - called)
    return min(times), min(spent), min(scripts)


def cpu_seconds(server: Server) -> float:
    """CPU time so far of the store's main thread, which runs commands and scripts."""
    ran, *_ = Path(f"/proc/{server.pid}/schedstat").read_text().split()
    return int(ran) / 1e9


def script_calls(store: "redis.Redis") -> int:
    return int(store.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))


if __name__ == "__main__":
    main()
