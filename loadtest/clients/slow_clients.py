"""Slow clients, thousands of each kind, beside normal ones at a steady rate: `python -m loadtest.clients.slow_clients`.

Normal announces come from many addresses, each on its own connection, by a schedule. Latency counts from the scheduled
time. Exit status 1 if their 99th percentile exceeds the goal, one is unanswered, memory exceeds its limit, or
descriptors are not released afterwards.
"""

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loadtest import trackers
from loadtest.bench import page
from loadtest.bench.percentiles import percentile
from loadtest.bench.processes import ROOT
from loadtest.bench.tables import table
from loadtest.chaos.report import PAGE
from loadtest.clients.client_kinds import KINDS, announce
from tracker.system.resources import raise_limit

BLOCK = "slow-clients"
NORMAL_ANNOUNCES_PER_SECOND = 100
GOAL_SECONDS = 0.100
_TIMEOUT_SECONDS = 10.0
_READY_SECONDS = 120.0
_RELEASED_SECONDS = 30.0
"""Longer than the time for a head, and than aiohttp needs to notice a closed connection."""
_MAX_GROWTH_MEGABYTES = 256
"""Maximum growth of the tracker's process, with 10,000 connections."""
_SPARE_DESCRIPTORS = 16
_HEAD = (
    *("clients", "what they do", "max connections", "announces", "unanswered", "p50, ms", "p99, ms", "slowest, ms"),
    *("memory before → peak → after, MB", ""),
)


@dataclass(slots=True)
class Outcome:
    """The result of one kind; latencies in seconds, memory in MB."""

    name: str
    latencies: list[float] = field(default_factory=list)
    unanswered: int = 0
    before: float = 0.0
    peak: float = 0.0
    after: float = 0.0
    connections: int = 0
    left: int = 0
    """Additional descriptors at the end."""

    @property
    def passed(self) -> bool:
        quick = percentile(sorted(self.latencies) or [_TIMEOUT_SECONDS], 0.99) < GOAL_SECONDS
        bounded = self.peak - self.before < _MAX_GROWTH_MEGABYTES and self.left <= _SPARE_DESCRIPTORS
        return quick and bounded and not self.unanswered

    def row(self) -> tuple[str, ...]:
        ordered = sorted(self.latencies)
        times = [f"{1000 * percentile(ordered or [_TIMEOUT_SECONDS], share):.1f}" for share in (0.5, 0.99, 1.0)]
        memory = " → ".join(f"{value:.0f}" for value in (self.before, self.peak, self.after))
        description = KINDS[self.name].description if self.name in KINDS else "none: only normal clients"
        outcome = "passed" if self.passed else "failed"
        counts = (f"{self.connections:,}", f"{len(ordered):,}", f"{self.unanswered:,}")
        return self.name, description, *counts, *times, memory, outcome


class NormalClients:
    """Announces at a steady rate, each on its own connection."""

    def __init__(self, port: int, outcome: Outcome) -> None:
        self._port = port
        self._outcome = outcome

    async def run(self, seconds: float) -> None:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(int(seconds * NORMAL_ANNOUNCES_PER_SECOND)):
                due = began + number / NORMAL_ANNOUNCES_PER_SECOND
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                group.create_task(self._one(number, due))

    async def _one(self, number: int, due: float) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self._port, local_addr=(f"127.77.0.{1 + number % 200}", 0)
                )
                try:
                    writer.write(announce() + b" HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
                    answer = await reader.read()
                finally:
                    writer.transport.abort()
        except OSError:  # includes TimeoutError
            answer = b""
        if b"5:peers" in answer:
            self._outcome.latencies.append(time.monotonic() - due)
        else:
            self._outcome.unanswered += 1


async def _run(name: str, seconds: float, directory: Path) -> Outcome:
    outcome = Outcome(name)
    tracker = await asyncio.to_thread(trackers.start, directory)
    try:
        pid, port = tracker.process.pid, int(tracker.url.rpartition(":")[2])
        await NormalClients(port, Outcome("warm-up")).run(2.0)
        outcome.before, open_before = _megabytes(pid), _descriptors(pid)
        async with _watched(pid, outcome, open_before), _slow_clients(name, port):
            await NormalClients(port, outcome).run(seconds)
        until = time.monotonic() + _RELEASED_SECONDS
        while _descriptors(pid) > open_before and time.monotonic() < until:
            await asyncio.sleep(0.2)
        outcome.left, outcome.after = _descriptors(pid) - open_before, _megabytes(pid)
    finally:
        tracker.end()
    return outcome


@asynccontextmanager
async def _slow_clients(name: str, port: int) -> AsyncIterator[None]:
    if name not in KINDS:
        yield
        return
    words = [sys.executable, "-m", "loadtest.clients.client_kinds", name, str(port)]
    clients = await asyncio.to_thread(subprocess.Popen, words, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert clients.stdout is not None
        async with asyncio.timeout(_READY_SECONDS):
            await asyncio.to_thread(clients.stdout.readline)
        yield
        clients.terminate()
        summary = (await asyncio.to_thread(clients.stdout.read)).decode().strip()
        print(f"  {summary}", file=sys.stderr)
    finally:
        clients.kill()
        clients.wait()


@asynccontextmanager
async def _watched(pid: int, outcome: Outcome, open_before: int) -> AsyncIterator[None]:
    async def watch() -> None:
        while True:
            outcome.peak = max(outcome.peak, _megabytes(pid))
            outcome.connections = max(outcome.connections, _descriptors(pid) - open_before)
            await asyncio.sleep(0.5)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch())
        try:
            yield
        finally:
            task.cancel()


def _megabytes(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def _descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m loadtest.clients.slow_clients", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"kinds to run (all): {', '.join(KINDS)}")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration at full strength (20)")
    parser.add_argument("--write", action="store_true", help="write the table into docs/trust.md")
    options = parser.parse_args()
    raise_limit()
    outcomes = []
    for name in options.names or ["no attacker", *KINDS]:
        with tempfile.TemporaryDirectory(prefix="slow-") as directory:
            outcomes.append(asyncio.run(_run(name, options.seconds, Path(directory))))
        print(", ".join(outcomes[-1].row()), file=sys.stderr, flush=True)
    text = table(_HEAD, (outcome.row() for outcome in outcomes))
    print(text)
    if options.write:
        page.write(BLOCK, text, PAGE)
    sys.exit(0 if all(outcome.passed for outcome in outcomes) else 1)


if __name__ == "__main__":
    main()
