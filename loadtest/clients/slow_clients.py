"""Slow and rude clients, each kind by the thousand, beside honest ones at a steady rate: `python -m drills.rude`.

Honest announces each have a connection of their own, as most clients', from many addresses, and are due by a schedule: a latency is
counted from then. Exit status 1 when the slowest hundredth of them takes longer than the goal, one is not answered, memory
grows beyond its bound, or something is not released afterwards.
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

from bench import page
from bench.percentiles import percentile
from bench.processes import ROOT
from bench.tables import table
from drills.report import PAGE
from drills.rudeness import KINDS, announce
from tests import trackers
from tracker.descriptors import raise_limit

BLOCK = "rude"
HONEST_A_SECOND = 100
GOAL_SECONDS = 0.100
_PATIENCE_SECONDS = 10.0
_READY_SECONDS = 120.0
_RELEASED_SECONDS = 30.0
"""Longer than a head may take, and than aiohttp's side takes to notice that a client is gone."""
_MOST_MEGABYTES = 256
"""What the tracker's process may hold more than before, with 10,000 connections."""
_SPARE_DESCRIPTORS = 16
_HEAD = (
    *(
        "clients",
        "what they do",
        "most connections",
        "announces",
        "unanswered",
        "p50, ms",
        "p99, ms",
        "slowest, ms",
    ),
    *("memory before → most → after, MB", ""),
)


@dataclass(slots=True)
class Found:
    """What came of one kind; latencies in seconds, memory in MB."""

    name: str
    latencies: list[float] = field(default_factory=list)
    unanswered: int = 0
    before: float = 0.0
    most: float = 0.0
    after: float = 0.0
    connections: int = 0
    left: int = 0
    """Descriptors more than before, at the end."""

    @property
    def passed(self) -> bool:
        quick = percentile(sorted(self.latencies) or [_PATIENCE_SECONDS], 0.99) < GOAL_SECONDS
        bounded = self.most - self.before < _MOST_MEGABYTES and self.left <= _SPARE_DESCRIPTORS
        return quick and bounded and not self.unanswered

    def row(self) -> tuple[str, ...]:
        ordered = sorted(self.latencies)
        times = [
            f"{1000 * percentile(ordered or [_PATIENCE_SECONDS], share):.1f}" for share in (0.5, 0.99, 1.0)
        ]
        memory = " → ".join(f"{figure:.0f}" for figure in (self.before, self.most, self.after))
        what = KINDS[self.name].what if self.name in KINDS else "none: honest ones alone"
        verdict = "passed" if self.passed else "failed"
        figures = (f"{self.connections:,}", f"{len(ordered):,}", f"{self.unanswered:,}")
        return self.name, what, *figures, *times, memory, verdict


class Honest:
    """Announces at a steady rate, each on a connection of its own."""

    def __init__(self, port: int, found: Found) -> None:
        self._port = port
        self._found = found

    async def run(self, seconds: float) -> None:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(int(seconds * HONEST_A_SECOND)):
                due = began + number / HONEST_A_SECOND
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                group.create_task(self._one(number, due))

    async def _one(self, number: int, due: float) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self._port, local_addr=(f"127.77.0.{1 + number % 200}", 0)
                )
                try:
                    writer.write(announce() + b" HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
                    answer = await reader.read()
                finally:
                    writer.transport.abort()
        except OSError:  # a time-out is one, too
            answer = b""
        if b"5:peers" in answer:
            self._found.latencies.append(time.monotonic() - due)
        else:
            self._found.unanswered += 1


async def _hold(name: str, seconds: float, directory: Path) -> Found:
    found = Found(name)
    tracker = await asyncio.to_thread(trackers.start, directory)
    try:
        pid, port = tracker.process.pid, int(tracker.url.rpartition(":")[2])
        await Honest(port, Found("warm-up")).run(2.0)
        found.before, open_before = _megabytes(pid), _descriptors(pid)
        async with _watched(pid, found, open_before), _rude(name, port):
            await Honest(port, found).run(seconds)
        until = time.monotonic() + _RELEASED_SECONDS
        while _descriptors(pid) > open_before and time.monotonic() < until:
            await asyncio.sleep(0.2)
        found.left, found.after = _descriptors(pid) - open_before, _megabytes(pid)
    finally:
        tracker.end()
    return found


@asynccontextmanager
async def _rude(name: str, port: int) -> AsyncIterator[None]:
    if name not in KINDS:
        yield
        return
    words = [sys.executable, "-m", "drills.rudeness", name, str(port)]
    mob = await asyncio.to_thread(subprocess.Popen, words, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert mob.stdout is not None
        async with asyncio.timeout(_READY_SECONDS):
            await asyncio.to_thread(mob.stdout.readline)
        yield
        mob.terminate()
        told = (await asyncio.to_thread(mob.stdout.read)).decode().strip()
        print(f"  {told}", file=sys.stderr)
    finally:
        mob.kill()
        mob.wait()


@asynccontextmanager
async def _watched(pid: int, found: Found, open_before: int) -> AsyncIterator[None]:
    async def watch() -> None:
        while True:
            found.most = max(found.most, _megabytes(pid))
            found.connections = max(found.connections, _descriptors(pid) - open_before)
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
    parser = argparse.ArgumentParser(prog="python -m drills.rude", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to hold (all): {', '.join(KINDS)}")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="how long each is rude at full strength (20)"
    )
    parser.add_argument("--write", action="store_true", help="put the table into docs/trust.md")
    asked = parser.parse_args()
    raise_limit()
    held = []
    for name in asked.names or ["nobody", *KINDS]:
        with tempfile.TemporaryDirectory(prefix="rude-") as directory:
            held.append(asyncio.run(_hold(name, asked.seconds, Path(directory))))
        print(", ".join(held[-1].row()), file=sys.stderr, flush=True)
    text = table(_HEAD, (found.row() for found in held))
    print(text)
    if asked.write:
        page.write(BLOCK, text, PAGE)
    sys.exit(0 if all(found.passed for found in held) else 1)


if __name__ == "__main__":
    main()
