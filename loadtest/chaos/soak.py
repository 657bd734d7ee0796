"""Soak test: several processes under a steady load with churn, for half an hour. `make soak`.

Memory, descriptors, tasks and log size are sampled every few seconds. The slope of the second half, by least squares,
is the growth per hour. Exit status 1 if a value exceeds its goal.
"""

import argparse
import asyncio
import json
import re
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path

from loadtest import trackers
from loadtest.bench import page
from loadtest.bench.processes import cores, cpu_by_part
from loadtest.bench.sections import Section
from loadtest.chaos.environment import Environment, TrackerProcess
from loadtest.chaos.report import PAGE
from loadtest.clients.load import Load, Pace
from loadtest.servers import free_port
from tracker.system.resources import raise_limit

BLOCK = "soak"
INTERVAL_SECONDS = 8
SPARE_DESCRIPTORS = 100
SAMPLE_SECONDS = 5.0
_MB = 2.0**20
_PEERS_A_TORRENT = 50

STORE, DATA = "resident memory, store", "memory of the store's data"
KEPT_BY_ALLOCATOR_MB = 60.0
"""Limit of the store's memory beyond its data (docs/sizing.md). It grows up to that limit, so its slope has no goal."""

Sample = Mapping[str, float]

GOALS: Mapping[str, tuple[str, float, float]] = {
    "resident memory": ("MB", 4.0, 0.05),
    DATA: ("MB", 8.0, 0.0),
    "file descriptors": ("", 20.0, 0.05),
    "asyncio tasks": ("", 20.0, 0.0),
    "log": ("kB", 60.0, 0.0),
}
"""Maximum growth per hour, by prefix of the name: (unit, absolute, share of the mean); the larger one applies."""


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the least-squares line through the points (x, y)."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def check_trends(samples: Sequence[tuple[float, Sample]], section: Section) -> None:
    """Adds a finding for each value; ``samples`` are (seconds since the start, sample)."""
    later = [(when, sample) for when, sample in samples if when >= samples[-1][0] / 2]
    for name in samples[-1][1]:
        points = [(when / 3600, sample[name]) for when, sample in later if name in sample]
        unit, maximum, share = next(goal for start, goal in GOALS.items() if name.startswith(start))
        mean = sum(y for _, y in points) / len(points)
        label = f"{name}: {mean:,.4g} {unit}".rstrip() + ", growth per hour"
        section.find(label, slope(points), unit, None if name == STORE else max(maximum, share * mean))
    last = samples[-1][1]
    if STORE in last:
        section.find(
            "memory of the store beyond its data, at the end", last[STORE] - last[DATA], "MB", KEPT_BY_ALLOCATOR_MB
        )


class Sampler:
    """Samples all processes of a tracker."""

    def __init__(self, environment: Environment, admin_port: int) -> None:
        self._environment = environment
        self._port = admin_port
        made = trackers.run(
            environment.tracker.directory,
            *("token", "create", "soak", "--read-only", "--json"),
            TRACKER_DATA__DIRECTORY=str(environment.data),
        )
        self._token = json.loads(made.stdout)["token"]

    def sample(self) -> dict[str, float]:
        sample: dict[str, float] = {}
        for name, pid in _processes(self._environment.tracker):
            status = Path(f"/proc/{pid}/status").read_text()
            resident = re.search(r"VmRSS:\s+(\d+) kB", status)
            sample[f"resident memory, {name}"] = int(resident[1]) / 1024 if resident else 0.0
            sample[f"file descriptors, {name}"] = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        with self._environment.store() as store:
            sample[DATA] = store.info("memory")["used_memory"] / _MB
        sample["asyncio tasks, all processes"] = self._tasks()
        sample["log"] = (self._environment.tracker.directory / "log").stat().st_size / 1000
        return sample

    def _tasks(self) -> float:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self._token}"})
            found = re.search(r"^tracker_asyncio_tasks (\S+)", connection.getresponse().read().decode(), re.M)
        finally:
            connection.close()
        assert found, "no metric tracker_asyncio_tasks"
        return float(found[1])


def _cpu_seconds(environment: Environment) -> float:
    return sum(part.user + part.kernel for part in cpu_by_part([environment.tracker.pid]).values())


def _processes(tracker: TrackerProcess) -> list[tuple[str, int]]:
    web = [(f"web process {n}", pid) for n, pid in enumerate(tracker.children("tracker.app.web_process"), 1)]
    return [("background", tracker.pid), *web, ("store", tracker.children("valkey-server")[0])]


async def soak(environment: Environment, rate: float, minutes: float) -> Section:
    admin = free_port()
    environment.add_tracker(
        TRACKER_HTTP__WORKERS="2",
        TRACKER_ADMIN__LISTEN=f"127.0.0.1:{admin}",
        TRACKER_ANNOUNCE__INTERVAL_SECONDS=str(INTERVAL_SECONDS),
        TRACKER_REAPER__INTERVAL_SECONDS=str(2 * INTERVAL_SECONDS),
    )
    peers = int(rate * INTERVAL_SECONDS * 0.9)
    raise_limit()
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if peers + SPARE_DESCRIPTORS > descriptors:
        raise SystemExit(
            f"{peers:,} clients need a connection each: {descriptors:,} open files are too few (ulimit -n)"
        )
    pace = Pace(peers, max(1, peers // _PEERS_A_TORRENT), INTERVAL_SECONDS)
    load = Load(pace, [environment.tracker.port], remember=False)
    sampler = Sampler(environment, admin)
    samples: list[tuple[float, Sample]] = []
    began, before, tracker_before, load_before = (
        time.monotonic(),
        Counter(load.answers),
        _cpu_seconds(environment),
        time.process_time(),
    )
    async with load.running():
        while (now := time.monotonic() - began) < 60 * minutes:
            samples.append((now, await asyncio.to_thread(sampler.sample)))
            if len(samples) % 12 == 1:
                print(
                    f"{now / 60:5.1f} min  {json.dumps(samples[-1][1])}  {dict(load.answers)}",
                    file=sys.stderr,
                    flush=True,
                )
            await asyncio.sleep(SAMPLE_SECONDS)
        took, answers = time.monotonic() - began, load.answers - before
        tracker, clients = _cpu_seconds(environment) - tracker_before, time.process_time() - load_before
    section = Section("Soak")
    section.remarks.append(
        f"`python -m loadtest.chaos.soak --minutes {minutes:g} --rate {rate:g}`: {took / 60:.0f} minutes, two web "
        f"processes and their private store, {answers.total() / took:,.0f} announces a second by {peers:,} clients. "
        f"40% of them leave after a few announces, more than a third of those without `stopped`, and return as a new "
        f"peer. The tracker and its store used {100 * tracker / took:.0f}% of a core, the clients "
        f"{100 * clients / took:.0f}%, of {len(cores())} that both share. "
        "Slopes are of the second half, by least squares."
    )
    if answers["missed"]:
        section.remarks.append(f"The load generator was stalled for a while, and missed {answers['missed']:,} answers.")
    unanswered = answers.total() - answers["answered"] - answers["missed"]
    section.find("announces that were not answered", unanswered, "", answers.total() / 1000)
    check_trends(samples, section)
    return section


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m loadtest.chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="duration (30)")
    parser.add_argument("--rate", type=float, default=1000.0, help="announces a second (1,000)")
    parser.add_argument("--write", action="store_true", help="write the table into docs/trust.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        environment = Environment(Path(directory))
        try:
            section = asyncio.run(soak(environment, options.rate, options.minutes))
        finally:
            environment.kill_all()
    print(section.as_markdown())
    if options.write:
        page.write(BLOCK, section.as_markdown(), PAGE)
    sys.exit(0 if all(finding.reached is not False for finding in section.findings) else 1)


if __name__ == "__main__":
    main()
