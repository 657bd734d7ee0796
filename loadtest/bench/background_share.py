"""How much of a core the process takes that does the background work, beside two that answer."""

import time
from pathlib import Path

from bench.latency import prepared
from bench.measure import Load, check, measure
from bench.processes import cpu_of
from bench.sections import Section
from bench.targets import KINDS

RATE = 10_000
"""Announces a second at which its share is wanted."""
MOST_PERCENT = 5


def measure_background(directory: Path, seconds: int, peers: int, torrents: int) -> Section:
    """The tracker's first process answers nobody where there are two web processes. What it takes follows from the peers there are and
    from the requests there were: so from a time without requests and one with as many as can be, its share at any rate."""
    kind = next(kind for kind in KINDS if "2 workers" in kind.name)
    section = Section(f"The background process, {peers:,} peers in {torrents:,} torrents, two web processes")
    with prepared(directory, peers, torrents, kind) as (target, targets):
        began, before = time.monotonic(), cpu_of(target.pids[0])
        time.sleep(seconds)
        at_rest = (cpu_of(target.pids[0]) - before) / (time.monotonic() - began)
        load = Load(targets, 64, seconds)
        check(target, "keep-alive", load)
        began, before = time.monotonic(), cpu_of(target.pids[0])
        requests = measure(target, "keep-alive", load)["requests"]
        passed = time.monotonic() - began
        busy, rate = (cpu_of(target.pids[0]) - before) / passed, requests / passed
    section.find("at rest", 100 * at_rest, "% of a core")
    section.find(f"at {rate:,.0f} requests/s", 100 * busy, "% of a core")
    at_goal = at_rest + max(0.0, busy - at_rest) / rate * RATE
    section.find(f"at {RATE:,} requests/s, reckoned from these", 100 * at_goal, "% of a core", MOST_PERCENT)
    return section
