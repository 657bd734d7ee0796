"""The soak: a tracker of several processes at a steady load, with churn, for half an hour: does anything grow? `make soak`.

Everything that could is looked at every few seconds, and a line is laid through the second half by least squares. Its slope per
hour is what the tracker would grow by; exit status 1 when one is above its goal.
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

from bench import page
from bench.processes import cores, cpu_by_part, free_port
from bench.sections import Section
from drills.fleet import Fleet, Pace
from drills.report import PAGE
from drills.scene import Post, Scene
from tests import trackers
from tracker.descriptors import raise_limit

BLOCK = "soak"
INTERVAL_SECONDS = 8
SPARE_DESCRIPTORS = 100
SAMPLE_SECONDS = 5.0
_MB = 2.0**20
_PEERS_A_TORRENT = 50

STORE, DATA = "resident memory, store", "memory of the store's data"
KEPT_BY_ALLOCATOR_MB = 60.0
"""What the store may keep beyond its data, which has an end (docs/sizing.md). Until then it grows, so no slope is judged."""

Sample = Mapping[str, float]

GOALS: Mapping[str, tuple[str, float, float]] = {
    "resident memory": ("MB", 4.0, 0.05),
    DATA: ("MB", 8.0, 0.0),
    "file descriptors": ("", 20.0, 0.05),
    "asyncio tasks": ("", 20.0, 0.0),
    "log": ("kB", 60.0, 0.0),
}
"""What may grow by how much in an hour, by how the name begins: (unit, so much, or this share of its mean if that is more)."""


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the line through (x, y) that is nearest to them by least squares."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def judge(samples: Sequence[tuple[float, Sample]], section: Section) -> None:
    """Adds a finding for each figure; ``samples`` are (seconds since the start, figures)."""
    later = [(when, figures) for when, figures in samples if when >= samples[-1][0] / 2]
    for name in samples[-1][1]:
        points = [(when / 3600, figures[name]) for when, figures in later if name in figures]
        unit, most, share = next(goal for start, goal in GOALS.items() if name.startswith(start))
        mean = sum(y for _, y in points) / len(points)
        told = f"{name}: {mean:,.4g} {unit}".rstrip() + ", and an hour adds"
        section.find(told, slope(points), unit, None if name == STORE else max(most, share * mean))
    last = samples[-1][1]
    if STORE in last:
        section.find(
            "what the store keeps beyond its data, at the end",
            last[STORE] - last[DATA],
            "MB",
            KEPT_BY_ALLOCATOR_MB,
        )


class Watch:
    """Reads all figures of a tracker of several processes."""

    def __init__(self, scene: Scene, admin_port: int) -> None:
        self._scene = scene
        self._port = admin_port
        made = trackers.run(
            scene.post.directory,
            *("token", "create", "soak", "--read-only", "--json"),
            TRACKER_DATA__DIRECTORY=str(scene.data),
        )
        self._token = json.loads(made.stdout)["token"]

    def look(self) -> dict[str, float]:
        figures: dict[str, float] = {}
        for name, pid in _processes(self._scene.post):
            status = Path(f"/proc/{pid}/status").read_text()
            resident = re.search(r"VmRSS:\s+(\d+) kB", status)
            figures[f"resident memory, {name}"] = int(resident[1]) / 1024 if resident else 0.0
            figures[f"file descriptors, {name}"] = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        with self._scene.store() as store:
            figures[DATA] = store.info("memory")["used_memory"] / _MB
        figures["asyncio tasks, all processes"] = self._tasks()
        figures["log"] = (self._scene.post.directory / "log").stat().st_size / 1000
        return figures

    def _tasks(self) -> float:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self._token}"})
            found = re.search(r"^tracker_asyncio_tasks (\S+)", connection.getresponse().read().decode(), re.M)
        finally:
            connection.close()
        assert found, "no figure of tasks"
        return float(found[1])


def _cpu_seconds(scene: Scene) -> float:
    return sum(part.user + part.kernel for part in cpu_by_part([scene.post.pid]).values())


def _processes(post: Post) -> list[tuple[str, int]]:
    web = [(f"web process {n}", pid) for n, pid in enumerate(post.children("tracker.web_process"), 1)]
    return [("background", post.pid), *web, ("store", post.children("valkey-server")[0])]


async def soak(scene: Scene, rate: float, minutes: float) -> Section:
    admin = free_port()
    scene.add_tracker(
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
            f"{peers:,} clients keep a connection each: {descriptors:,} open files are too few (ulimit -n)"
        )
    pace = Pace(peers, max(1, peers // _PEERS_A_TORRENT), INTERVAL_SECONDS)
    fleet = Fleet(pace, [scene.post.port], remember=False)
    watch = Watch(scene, admin)
    samples: list[tuple[float, Sample]] = []
    began, before, tracker_before, fleet_before = (
        time.monotonic(),
        Counter(fleet.answers),
        _cpu_seconds(scene),
        time.process_time(),
    )
    async with fleet.sailing():
        while (now := time.monotonic() - began) < 60 * minutes:
            samples.append((now, await asyncio.to_thread(watch.look)))
            if len(samples) % 12 == 1:
                print(
                    f"{now / 60:5.1f} min  {json.dumps(samples[-1][1])}  {dict(fleet.answers)}",
                    file=sys.stderr,
                    flush=True,
                )
            await asyncio.sleep(SAMPLE_SECONDS)
        took, answers = time.monotonic() - began, fleet.answers - before
        tracker, clients = _cpu_seconds(scene) - tracker_before, time.process_time() - fleet_before
    section = Section("Soak")
    section.remarks.append(
        f"`python -m drills.soak --minutes {minutes:g} --rate {rate:g}`: {took / 60:.0f} minutes, two web processes and their private store, "
        f"{answers.total() / took:,.0f} announces a second by {peers:,} clients; two fifths of them leave after a few announces, more than "
        f"a third of those without a word, and come back as somebody else. The tracker and its store used {100 * tracker / took:.0f}% of a core, "
        f"the clients {100 * clients / took:.0f}%, of {len(cores())} that both share. Slopes are of the second half, by least squares."
    )
    if answers["missed"]:
        section.remarks.append(
            f"This side stood still for a while, and missed {answers['missed']:,} answers."
        )
    unanswered = answers.total() - answers["answered"] - answers["missed"]
    section.find("announces that were not answered", unanswered, "", answers.total() / 1000)
    judge(samples, section)
    return section


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m drills.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (30)")
    parser.add_argument("--rate", type=float, default=1000.0, help="announces a second (1,000)")
    parser.add_argument("--write", action="store_true", help="put the table into docs/trust.md")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        scene = Scene(Path(directory))
        try:
            section = asyncio.run(soak(scene, asked.rate, asked.minutes))
        finally:
            scene.strike_down()
    print(section.as_markdown())
    if asked.write:
        page.write(BLOCK, section.as_markdown(), PAGE)
    sys.exit(0 if all(finding.reached is not False for finding in section.findings) else 1)


if __name__ == "__main__":
    main()
