"""Rows a second of `POST /users/batch` and `POST /torrents/batch`.

A real tracker with its private store gets the rows from one program on one connection, 1,000 a call, then the same rows
again. On a busy machine the CPU time says more: it is that of the tracker and its store. At last the rows come a third
time beside announces, which show how long one waits.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from loadtest import trackers
from loadtest.bench.percentiles import percentile
from loadtest.bench.processes import cpu_by_part
from loadtest.bench.sections import Section

ROWS_A_CALL = 1000
GOAL_ROWS, GOAL_CPU = 10_000.0, 100.0
"""Rows a second, and microseconds of CPU time for a row."""


def main() -> None:
    options = parse_options()
    with tempfile.TemporaryDirectory(prefix="batches-") as directory:
        section = measure(Path(directory), options.rows)
    print(section.as_markdown())
    sys.exit(0 if all(finding.reached is not False for finding in section.findings) else 1)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="users, and torrents (100,000)")
    return parser.parse_args()


def measure(directory: Path, rows: int) -> Section:
    settings = {"TRACKER_USERS__PRIVATE": "required", "TRACKER_TORRENTS__MODE": "registered"}
    tracker = trackers.start(directory, **settings)
    try:
        made = trackers.run(directory, "token", "create", "bench", "--json", **settings)
        made.check_returncode()
        return asyncio.run(run(tracker, json.loads(made.stdout)["token"], rows))
    finally:
        tracker.end()


async def run(tracker: trackers.RunningTracker, token: str, rows: int) -> Section:
    section = Section(f"Batches of {ROWS_A_CALL:,} rows: {rows:,} users, {rows:,} torrents")
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(tracker.admin_url, headers=headers) as session:
        for what, row in (("users", user_row), ("torrents", torrent_row)):
            for again in (False, True):
                before = cpu_seconds(tracker)
                rate = await send(session, what, row, rows, "known" if again else "added")
                spent = cpu_seconds(tracker) - before
                name = f"{what}, again" if again else what
                section.find(name, rate, "rows/s", GOAL_ROWS, more=True)
                section.find(f"CPU time ({name})", 1e6 * spent / rows, "µs a row", GOAL_CPU)
            waits: list[float] = []
            async with asyncio.TaskGroup() as tasks:
                probe = tasks.create_task(announce_often(tracker, waits))
                await send(session, what, row, rows, "known")
                probe.cancel()
            section.find(f"an announce beside {what}, p99", percentile(sorted(waits), 0.99) * 1000, "ms")
    return section


def cpu_seconds(tracker: trackers.RunningTracker) -> float:
    """CPU time so far of the tracker and its private store."""
    return sum(cpu.user + cpu.kernel for cpu in cpu_by_part([tracker.process.pid]).values())


def user_row(number: int) -> dict[str, Any]:
    return {
        "user_id": str(number),
        "passkey": f"{number:032x}",
        "name": f"user {number}",
        "enabled": number % 1000 != 0,
        "uploaded": number * 7919 % 10**12,
        "downloaded": number * 104_729 % 10**12,
        "snatches": number % 500,
    }


def torrent_row(number: int) -> dict[str, Any]:
    return {
        "info_hash": f"{number:040x}",
        "name": f"a torrent with the number {number}",
        "private": True,
        "size": number * 65_537,
        "download_multiplier": number % 2,
        "snatches": number % 500,
    }


async def send(
    session: aiohttp.ClientSession, what: str, row: Callable[[int], dict[str, Any]], rows: int, outcome: str
) -> float:
    """Rows a second. Bodies are made beforehand."""
    bodies = [
        json.dumps({what: [row(number) for number in range(first, first + ROWS_A_CALL)]}).encode()
        for first in range(1, rows + 1, ROWS_A_CALL)
    ]
    began = time.perf_counter()
    for body in bodies:
        async with session.post(
            f"/api/v1/{what}/batch", data=body, headers={"Content-Type": "application/json"}
        ) as response:
            found = await response.json()
            assert response.status == 200 and found[outcome] == ROWS_A_CALL, found
    return len(bodies) * ROWS_A_CALL / (time.perf_counter() - began)


async def announce_often(tracker: trackers.RunningTracker, waits: list[float]) -> None:
    query = "info_hash=" + "%01" * 20 + "&peer_id=-TR4000-abcdefghijkl&port=6881&left=0&uploaded=0&downloaded=0"
    async with aiohttp.ClientSession(tracker.url) as session:
        while True:
            began = time.perf_counter()
            async with session.get(f"/{'f' * 40}/announce?{query}") as response:
                await response.read()
            waits.append(time.perf_counter() - began)
            await asyncio.sleep(0.005)


if __name__ == "__main__":
    main()
