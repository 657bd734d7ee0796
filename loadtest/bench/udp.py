"""Announces over UDP: cost beside HTTP, latency, loss, floods, and other trackers: `python -m loadtest.bench.udp`.

Tracker and store share one core, the load has another. All announces are regular ones of peers in the swarms.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from loadtest.bench import processes
from loadtest.bench.latency import prepared
from loadtest.bench.loader import BenchError
from loadtest.bench.measure import Load, check, measure
from loadtest.bench.sections import Section
from loadtest.bench.targets import KINDS, MODES, Kind, Target, find, npm_tracker, opentracker, tracker
from loadtest.bench.udp_load import FLOODS, FORGED

DEFAULT_BUFFER, LARGE_BUFFER = 212_992, 4 * 1024 * 1024
OVERLOAD_RATE, FLOOD_RATES = 30_000.0, (20_000.0, 90_000.0)
"""Packets per second: more than is served, and for the cost of packets that prove no address, which falls where one
turn of the event loop reads many."""
FLOOD_CORE, HONEST = 0.5, 0.3
"""The share of a core that a flood costs the tracker, and the share of the most that honest clients send meanwhile."""
FORGED_RATE = 30_000.0
_RESULT_SECONDS = 60


def main() -> None:
    options = parse_options()
    try:
        if not find("wrk"):
            raise BenchError("wrk, the load generator over HTTP, is missing: apt install wrk")
        for section in run(options):
            print(section.as_markdown(), end="\n\n", flush=True)
    except BenchError as error:
        sys.exit("\n".join([f"benchmark void: {error}", *getattr(error, "__notes__", [])]))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, help="length of a timed run (10)")
    parser.add_argument("--peers", type=int, default=20_000)
    parser.add_argument("--torrents", type=int, default=1_000)
    return parser.parse_args()


def run(options: argparse.Namespace) -> Iterator[Section]:
    costs, most = Section("UDP beside HTTP: CPU time of tracker and store per announce"), 0.0
    for words, buffer in (("default buffer", DEFAULT_BUFFER), ("4 MiB", LARGE_BUFFER)):
        with served(options, buffer) as (target, targets):
            if not most:
                most = find_costs(costs, options, target, targets)
                yield costs
                yield latency(options, target, most)
            yield loss(options, target, most, words, 1e-4 if buffer == DEFAULT_BUFFER else 0)
            if buffer == LARGE_BUFFER:
                yield floods(options, target, most)
    yield others(options)


@contextmanager
def served(options: argparse.Namespace, buffer: int) -> Iterator[tuple[Target, Path]]:
    """A tracker with all peers in its swarms, and the file of its regular announces over HTTP."""
    variables = {"TRACKER_UDP__RECEIVE_BUFFER_BYTES": str(buffer)}
    kind = Kind("udp", "tracker", partial(tracker, name="udp", file=False, workers=1, more=variables))
    with tempfile.TemporaryDirectory(prefix="udp-") as name:
        directory = Path(name)
        with prepared(directory, options.peers, options.torrents, kind) as (target, targets):
            lines = targets.read_text().splitlines()
            regular = [each for each in lines if each.startswith("/announce") and "&event=" not in each]
            targets.write_text("\n".join(regular))
            yield target, targets


def find_costs(section: Section, options: argparse.Namespace, target: Target, targets: Path) -> float:
    """Fills the section; returns the announces that are served per second over UDP at most."""
    http, load = {}, Load(targets, 64, options.seconds)
    for mode in MODES:
        check(target, mode, load)
        http[mode] = measure(target, mode, load)["total_us"]
        section.find(f"HTTP, {mode}", http[mode], "us")
    found = announces(options, target, OVERLOAD_RATE)
    most: float = found["answered_in_time"] / options.seconds
    section.find("UDP: announces per second at most", most, "")
    found = announces(options, target, most * 0.95)
    section.find("UDP, at 95 % of that", found["cpu_us"], "us")
    section.find("UDP / HTTP keep-alive", found["cpu_us"] / http["keep-alive"], "", 1)
    section.find("UDP / HTTP, own connection", found["cpu_us"] / http["close"], "", 0.6)
    return most


def latency(options: argparse.Namespace, target: Target, most: float) -> Section:
    section, found = Section("Latency over UDP at 70 % of the most"), announces(options, target, most * 0.7)
    section.find("p50", found["answered_ms"]["p50"], "ms")
    section.find("p99", found["answered_ms"]["p99"], "ms", 10)
    section.find("send delay of the load generator, p99", found["late_ms"]["p99"], "ms")
    section.find("not answered", found["sent"] - found["answered"], f"of {found['sent']:,}")
    return section


def loss(options: argparse.Namespace, target: Target, most: float, words: str, goal: float) -> Section:
    section, found = Section(f"Loss at 50 % of the most, {words}"), announces(options, target, most * 0.5)
    lost = found["sent"] - found["answered"]
    section.find(f"not answered, of {found['sent']:,}", lost, "", goal * found["sent"])
    return section


def floods(options: argparse.Namespace, target: Target, most: float) -> Section:
    """The cost of packets that prove no address, and honest clients during floods that cost half a core."""
    section = Section("Packets that prove no address")
    for kind in FLOODS:
        costs = {rate: packet_cost(options, target, kind, rate) for rate in FLOOD_RATES}
        for rate, each in costs.items():
            words = f"{kind}: CPU time per packet at {rate:,.0f} a second"
            section.find(words, each * 1e6, "us", 7 if kind == "garbage" else None)
        flood_rate = FLOOD_CORE / costs[FLOOD_RATES[0]]
        flood = load_command(options, target, flood_rate, "--flood", kind)
        found = announces(options, target, most * HONEST)
        flooded = result(flood)
        words = f"{kind}, {flooded['sent'] / options.seconds:,.0f} packets a second"
        share = 100 * found["answered"] / found["sent"]
        section.find(f"{words}: honest announces answered", share, "%", 80, more=True)
        used = (flooded["cpu_seconds"] + found["cpu_seconds"]) / options.seconds
        section.find(f"{words}: CPU time of both generators, their starts included", used, "s per s")
    flood = load_command(options, target, FORGED_RATE, "--flood", FORGED)
    found = result(load_command(options, target, 1, "--new-clients"))
    rate = result(flood)["sent"] / options.seconds
    words = f"forged, {rate:,.0f} connects a second: new clients with a connection id"
    section.find(words, found["connected"], f"of {found['of']}", found["of"], more=True)
    return section


def packet_cost(options: argparse.Namespace, target: Target, kind: str, rate: float) -> float:
    """CPU seconds of the target per packet."""
    before = cpu(target)
    sent: int = result(load_command(options, target, rate, "--flood", kind))["sent"]
    return (cpu(target) - before) / sent


def others(options: argparse.Namespace) -> Section:
    """Trackers that are installed, on the same core with the same announces, which join in a first run."""
    section = Section("Other trackers over UDP")
    missing = {kind.name: kind.missing() for kind in KINDS}
    for name, start in (("opentracker", opentracker), ("bittorrent-tracker (npm)", partial(npm_tracker, udp=True))):
        if missing[name]:
            section.remarks.append(f"{name} is not installed: {missing[name]}")
            continue
        with tempfile.TemporaryDirectory(prefix="udp-") as folder:
            with start(Path(folder), options.torrents, name=name) as target:
                announces(options, target, max(2000, options.peers / options.seconds))
                found = announces(options, target, OVERLOAD_RATE)
        section.find(f"{name}: announces per second at most", found["answered_in_time"] / options.seconds, "")
        section.find(f"{name}: CPU time per announce", found["cpu_us"], "us")
        section.find(f"{name}: bytes of an answer", found["answer_bytes"], "")
    return section


def announces(options: argparse.Namespace, target: Target, rate: float) -> dict[str, Any]:
    """Results of an open-loop run; ``cpu_us`` is the CPU time of the target per answer."""
    before = cpu(target)
    found = result(load_command(options, target, rate))
    if not found["answered"]:
        raise BenchError(f"{target.name} answered none of {found['sent']} announces over UDP")
    return found | {"cpu_us": (cpu(target) - before) / found["answered"] * 1e6}


def cpu(target: Target) -> float:
    return sum(part.user + part.kernel for part in processes.cpu_by_part(target.pids).values())


def load_command(options: argparse.Namespace, target: Target, rate: float, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "loadtest.bench.udp_load", "--port", str(target.port), "--rate", str(rate)]
    command += ["--peers", str(options.peers), "--torrents", str(options.torrents)]
    with processes.pinned(processes.LOAD_CORE):
        return subprocess.Popen(
            [*command, "--seconds", str(options.seconds), *more], cwd=processes.ROOT, stdout=subprocess.PIPE, text=True
        )


def result(run: "subprocess.Popen[str]") -> dict[str, Any]:
    try:
        output, _ = run.communicate(timeout=_RESULT_SECONDS)
        found: dict[str, Any] = json.loads(output.splitlines()[-1])
    except (ValueError, IndexError, subprocess.TimeoutExpired):
        run.kill()
        raise BenchError(f"the UDP load ended with {run.wait()}") from None
    return found


if __name__ == "__main__":
    main()
