"""A crowd that goes silent at once: `python -m bench.mass_expiry --help`.

A million peers join through the store's own API, with timeouts that all end within one minute, while others announce over HTTP,
at their own pace, to the `tracker serve` that has to reap the crowd. It and its store share one core, the append-only file is on.
The exit status is 1 when the crowd is not gone a minute after the last timeout, when an announce in a hundred took longer than
100 ms from the moment it was due, when one was not answered, or when one of those that announced is gone.
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
import uvloop

from bench import memory, processes
from bench.loader import BenchError, send_all
from bench.population import Peer, announce_target, make_peers
from bench.preload import preload
from bench.targets import embedded_socket

WITHIN_SECONDS = 60
"""So close together the timeouts end, and so long after the last everybody has to be gone."""
MOST_MILLISECONDS = 100.0
_JOINS_PER_SECOND = 2500
"""So many join at least, or the first are due before the last are there, and the run is void."""
_CALM_SECONDS = 4
"""How long nothing but announces happens, before the first timeout ends."""
_POLL_SECONDS, _GIVE_UP_SECONDS = 0.25, 300


@dataclass(frozen=True, slots=True)
class Outcome:
    lag: float
    """Seconds from the last timeout until nobody of the crowd was left."""
    most_behind: int
    """Peers whose timeout had ended, at most at a time."""
    left: int
    """Peers by the tracker's counts in the end."""
    cpu: dict[str, float]
    """CPU µs by part for each peer of the crowd, without what the announces alone had cost before."""
    load: dict[str, Any]


def main() -> None:
    options = parse_options()
    try:
        with tempfile.TemporaryDirectory(prefix="drill-") as directory:
            outcome = drill(options, Path(directory))
    except BenchError as error:
        sys.exit("\n".join([f"drill void: {error}", *getattr(error, "__notes__", [])]))
    sys.exit(0 if report(options, outcome) else 1)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=int, default=1_000_000, help="peers that go silent (1,000,000)")
    parser.add_argument("--live", type=int, default=5_000, help="peers that go on announcing (5,000)")
    parser.add_argument("--rate", type=float, default=500, help="announces of these in a second (500)")
    parser.add_argument(
        "--within", type=float, default=WITHIN_SECONDS, help="seconds in which the timeouts end (60)"
    )
    return parser.parse_args()


def report(options: argparse.Namespace, outcome: Outcome) -> bool:
    """Prints what was found; whether it is as promised."""
    load = outcome.load
    lost = load["refused"] + load["reset"] + load["unanswered"] + load["unsent"]
    milliseconds = load["answered_ms"]
    print(f"{options.peers:,} peers expired within {options.within:g} s; {options.rate:g} announces a second")
    print(
        f"the last was gone {outcome.lag:.1f} s after its timeout; at most {outcome.most_behind:,} were due"
    )
    print(", ".join(f"{name} {value:.1f} ms" for name, value in milliseconds.items()), end="")
    print(f" of {load['sent']:,} announces, {lost} not answered; ", end="")
    print(
        f"sent late by the load itself: p99 {load['late_ms']['p99']:.1f} ms, worst {load['late_ms']['worst']:.1f}"
    )
    print(f"{outcome.left:,} peers left of {options.live:,} that announced")
    print(
        "CPU µs for each that expired: " + ", ".join(f"{part} {us:.0f}" for part, us in outcome.cpu.items())
    )
    in_time = outcome.lag <= WITHIN_SECONDS and milliseconds["p99"] <= MOST_MILLISECONDS
    return in_time and not lost and outcome.left == options.live


def drill(options: argparse.Namespace, directory: Path) -> Outcome:
    torrents = max(1, options.peers // 20)
    peers = make_peers(options.peers + options.live, torrents)
    live, crowd = peers[: options.live], peers[options.live :]
    with processes.tracker(directory, TRACKER_TORRENTS__MAX_TORRENTS=str(torrents * 2)) as (pid, port):
        path = embedded_socket(directory / "tracker-data")
        joins = [announce_target(peer, "started", peers_wanted=0) for peer in live]
        uvloop.run(send_all(port, joins))
        begin = time.time() + len(crowd) / _JOINS_PER_SECOND + 5
        _say(f"{len(crowd):,} peers join, to expire from {begin - time.time():.0f} s from now on")
        with processes.pinned(processes.LOAD_CORE):
            asyncio.run(_preload(path, crowd, begin, options.within))
        with redis.Redis(unix_socket_path=str(path)) as store:
            found = memory.active_peers(store, len(peers))
            if found != len(peers) or time.time() > begin:
                raise BenchError(f"{found:,} of {len(peers):,} peers had joined when the first expired")
            time.sleep(max(0.0, begin - time.time() - _CALM_SECONDS - 1))
            with _announcing(directory, live, port, options) as load:
                calm = _cost_of_a_second(pid, begin)
                return _watch(store, pid, begin + options.within, options, load, calm)


async def _preload(path: Path, crowd: Sequence[Peer], begin: float, within: float) -> None:
    due = (begin + within * n / len(crowd) for n in range(len(crowd)))

    def timeout() -> float:
        if time.time() > begin:
            raise BenchError(
                "the first of the crowd were due before the last had joined: this machine is too slow"
            )
        return next(due) - time.time()

    await preload(f"unix://{path}", crowd, timeout)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _announcing(
    directory: Path, live: Sequence[Peer], port: int, options: argparse.Namespace
) -> Iterator["subprocess.Popen[str]"]:
    """An open loop of announces, for as long as the crowd may take."""
    (targets := directory / "targets").write_text("\n".join(announce_target(peer) for peer in live))
    seconds = str(_CALM_SECONDS + 1 + options.within + WITHIN_SECONDS)
    command = [sys.executable, "-m", "bench.open_loop", "--port", str(port), "--targets", str(targets)]
    command += ["--mode", "keep-alive", "--rate", str(options.rate), "--seconds", seconds]
    with (
        processes.pinned(processes.LOAD_CORE),
        subprocess.Popen(command, cwd=processes.ROOT, stdout=subprocess.PIPE, text=True) as load,
    ):
        try:
            yield load
        finally:
            load.kill()


def _cost_of_a_second(pid: int, until: float) -> dict[str, float]:
    """CPU seconds by part for a second of announces."""
    time.sleep(1)  # it is starting
    before, began = _cpu_seconds(pid), time.time()
    time.sleep(max(0.0, until - began))
    return {part: (now - before[part]) / (time.time() - began) for part, now in _cpu_seconds(pid).items()}


def _cpu_seconds(pid: int) -> dict[str, float]:
    return {part: cpu.user + cpu.kernel for part, cpu in processes.cpu_by_part([pid]).items()}


def _watch(
    store: "redis.Redis",
    pid: int,
    last: float,
    options: argparse.Namespace,
    load: "subprocess.Popen[str]",
    calm: dict[str, float],
) -> Outcome:
    before, began = _cpu_seconds(pid), time.time()
    behind = 0
    while True:
        time.sleep(_POLL_SECONDS)
        now, left = time.time(), memory.counted_peers(store) - options.live
        alive = options.peers * min(1.0, max(0.0, (last - now) / options.within))
        behind = max(behind, int(left - alive))
        if left <= 0 or now > last + _GIVE_UP_SECONDS:
            break
    used = {part: cpu - before[part] - calm[part] * (now - began) for part, cpu in _cpu_seconds(pid).items()}
    cpu = {part: seconds / options.peers * 1e6 for part, seconds in used.items()}
    said, _ = load.communicate(timeout=_GIVE_UP_SECONDS)
    figures = json.loads(said.splitlines()[-1])
    return Outcome(max(0.0, now - last), behind, memory.active_peers(store, options.live), cpu, figures)


if __name__ == "__main__":
    main()
