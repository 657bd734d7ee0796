"""How the cost of an announce grows with the number of peers and the size of a swarm; and memory per peer."""

import asyncio
import contextlib
import multiprocessing
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import redis

from loadtest.bench import memory, processes
from loadtest.bench.measure import Load, check, measure
from loadtest.bench.population import make_workload
from loadtest.bench.preload import preload
from loadtest.bench.sections import Section
from loadtest.bench.tables import spread
from loadtest.bench.targets import Target

MODE = "keep-alive"
_REQUESTS = 200_000
_TIMEOUT_SECONDS = 86_400.0
"""Of the preloaded peers, so that none leaves during the run."""
GOAL_TIMES, GOAL_BYTES = 1.25, 660


@dataclass(frozen=True, slots=True)
class Size:
    peers: int
    torrents: int

    @property
    def name(self) -> str:
        return f"{self.peers:,} peers in {self.torrents:,} torrent{'s' * (self.torrents > 1)}"

    @property
    def requests(self) -> int:
        """Requests of a round. 4 % are of churning peers, which must be few among all peers."""
        return min(_REQUESTS, 10 * self.peers)


PAIRS: tuple[tuple[Size, Size], ...] = (
    (Size(20_000, 1_000), Size(2_000_000, 100_000)),
    (Size(1_000, 1), Size(1_000_000, 1)),
    (Size(1_000_000, 1_000), Size(1_000_000, 1)),  # same memory: only the size of the swarm differs
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A tracker with its own store, and its load."""

    size: Size
    target: Target
    load: Load
    bytes_per_peer: float


def measure_growth(directory: Path, runs: int, seconds: int, pairs: Sequence[tuple[Size, Size]] = PAIRS) -> Section:
    """Measures all sizes in turn, so that a slow minute affects each."""
    section = Section("Cost by size")
    with contextlib.ExitStack() as stack:
        sizes = list(dict.fromkeys(size for pair in pairs for size in pair))
        prepared = _prepare(stack, directory, sizes, seconds)
        costs: dict[Size, list[float]] = {size: [] for size in sizes}
        stores: dict[Size, list[float]] = {size: [] for size in sizes}
        for each in prepared:
            processes.wait_until_idle(each.target.pids)
        for each in prepared:
            check(each.target, MODE, each.load)
        for _ in range(runs):
            for each in prepared:
                measured = measure(each.target, MODE, each.load)
                costs[each.size].append(measured["total_us"])
                stores[each.size].append(measured["store_us"])
    for size in sizes:
        unit = f"µs ({spread(costs[size])}), {statistics.median(stores[size]):.1f} of them the store"
        section.find(f"{size.name}: CPU per request", statistics.median(costs[size]), unit)
    for small, large in pairs:
        times = statistics.median(costs[large]) / statistics.median(costs[small])
        section.find(f"{large.name}, to {small.name}", times, "times", GOAL_TIMES)
    largest = max(prepared, key=lambda each: each.size.torrents)
    section.find(f"used_memory per IPv4 peer, {largest.size.name}", largest.bytes_per_peer, "bytes", GOAL_BYTES)
    return section


def _prepare(stack: contextlib.ExitStack, directory: Path, sizes: Sequence[Size], seconds: int) -> list[Prepared]:
    stores = []
    for n, size in enumerate(sizes):
        (home := directory / f"size{n}").mkdir()
        pid, path = stack.enter_context(processes.store(home))
        client = stack.enter_context(_client(path))
        # Started before the peers join: the sweep after a start would take minutes.
        tracker, port = stack.enter_context(processes.tracker(home, TRACKER_REDIS__URL=f"unix://{path}"))
        target = Target(size.name, port, [tracker, pid], client)
        processes.place(target.pids, processes.cores())  # nothing is timed yet
        stores.append((size, home, path, target, client, memory.used(client)))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(processes.cores()), mp_context=context) as pool:
        filling = [pool.submit(fill, f"unix://{path}", size, home / "targets") for size, home, path, *_ in stores]
        for each in filling:
            each.result()
    prepared = []
    for size, home, _, target, client, empty in stores:
        bytes_per_peer = memory.per_peer(client, empty, size.peers)
        processes.place(target.pids, {processes.cores()[processes.SERVER_CORE]})
        prepared.append(Prepared(size, target, Load(home / "targets", 64, seconds), bytes_per_peer))
    return prepared


def fill(url: str, size: Size, targets: Path) -> None:
    """Preloads the peers of ``size`` into a store, and writes the requests of its round."""
    workload = make_workload(size.peers, size.torrents, size.requests)
    targets.write_text("\n".join(workload.targets))
    asyncio.run(preload(url, workload.present, _TIMEOUT_SECONDS))


@contextlib.contextmanager
def _client(path: Path) -> Iterator["redis.Redis"]:
    with redis.Redis(unix_socket_path=str(path), socket_timeout=60) as client:
        yield client
