"""CPU share of the background process, beside two web processes."""

import time
from pathlib import Path

from loadtest.bench.latency import prepared
from loadtest.bench.measure import Load, check, measure
from loadtest.bench.processes import cpu_of
from loadtest.bench.sections import Section
from loadtest.bench.targets import KINDS

RATE = 10_000
"""Announces per second for which the share is computed."""
MAX_PERCENT = 5


def measure_background(directory: Path, seconds: int, peers: int, torrents: int) -> Section:
    """With two web processes, the background process answers no requests.

    Its cost follows from the number of peers and requests. Measurements without requests and at the maximum rate
    give its share at any rate.
    """
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
    section.find(f"at {RATE:,} requests/s, extrapolated from these", 100 * at_goal, "% of a core", MAX_PERCENT)
    return section
