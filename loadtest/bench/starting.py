"""Time from the start of the process to the first answered announce."""

import asyncio
import contextlib
import http.client
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import redis

from loadtest.bench import memory, processes
from loadtest.bench.loader import BenchError
from loadtest.bench.population import announce_target, make_peers
from loadtest.bench.preload import preload
from loadtest.bench.sections import Section
from loadtest.bench.tables import spread
from loadtest.bench.targets import embedded_socket
from loadtest.servers import free_port

_POLL_SECONDS, _GIVE_UP_SECONDS = 0.005, 60.0
_TIMEOUT_SECONDS = 86_400.0
_PEER = replace(make_peers(1, 1, seed=7)[0], port=1023)
"""It has an endpoint of its own: other peers have ports from 1024 on."""


def measure_starts(directory: Path, runs: int, peers: int, torrents: int) -> Section:
    section = Section("Start to the first answer")
    empty = []
    for n in range(runs):
        with _started(directory, f"empty{n}") as seconds:
            empty.append(seconds)
    section.find("empty data directory", statistics.median(empty), f"s ({spread(empty, '.2f')})", 1.5)
    with _started(directory, "full"):
        path = embedded_socket(directory / "full-data")
        asyncio.run(preload(f"unix://{path}", make_peers(peers, torrents), _TIMEOUT_SECONDS))
    full = []
    for _ in range(runs):
        with _started(directory, "full") as seconds:
            full.append(seconds)
            with redis.Redis(unix_socket_path=str(embedded_socket(directory / "full-data"))) as store:
                found = memory.active_peers(store, peers + 1)
            if found != peers + 1:
                raise BenchError(f"{found} peers after a restart, {peers + 1} before")
    name = f"{peers:,} peers in {torrents:,} torrents on disk, stopped gracefully"
    section.find(name, statistics.median(full), f"s ({spread(full, '.2f')})", 5)
    return section


@contextlib.contextmanager
def _started(directory: Path, name: str) -> Iterator[float]:
    """`tracker serve` with its private store on all cores; yields the seconds until it answered an announce."""
    port = free_port()
    settings = processes.tracker_settings(directory, name, port)
    began = time.perf_counter()
    with processes.running(name, processes.SERVE, directory, **settings) as pid:
        processes.place([pid], processes.cores())
        while not _answers(port):
            if time.perf_counter() - began > _GIVE_UP_SECONDS:
                raise BenchError(f"the tracker did not start within {_GIVE_UP_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
        yield time.perf_counter() - began


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", announce_target(_PEER, "started"))
        return b"14:failure reason" not in connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
