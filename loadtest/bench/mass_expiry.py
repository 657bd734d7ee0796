"""Many peers that stop announcing at once: `python -m loadtest.bench.mass_expiry --help`.

A million peers join through the store's own API, with timeouts that all end within one minute. Other peers announce
over HTTP at a steady rate to the `tracker serve` that reaps them. Tracker and store share one core, with the
append-only file on. Exit status 1 if peers remain a minute after the last timeout, if the 99th percentile of latency
exceeds 100 ms, if an announce was not answered, or if an announcing peer is gone.
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

from loadtest.bench import memory, processes
from loadtest.bench.loader import BenchError, send_all
from loadtest.bench.population import Peer, announce_target, make_peers
from loadtest.bench.preload import preload
from loadtest.bench.targets import embedded_socket

WITHIN_SECONDS = 60
"""The timeouts end within this time, and all peers must be gone this long after the last."""
MAX_MILLISECONDS = 100.0
_JOINS_PER_SECOND = 2500
"""Minimum rate of joins. At a lower rate the first are due before the last have joined, and the run is void."""
_CALM_SECONDS = 4
"""Time with announces only, before the first timeout ends."""
_POLL_SECONDS, _GIVE_UP_SECONDS = 0.25, 300


@dataclass(frozen=True, slots=True)
class Outcome:
    lag: float
    """Seconds from the last timeout until all silent peers were removed."""
    max_behind: int
    """Maximum number of timed-out peers at a time."""
    left: int
    """Peers by the tracker's counts at the end."""
    cpu: dict[str, float]
    """CPU µs by part per silent peer, without the cost of the announces."""
    load: dict[str, Any]


def main() -> None:
    options = parse_options()
    try:
        with tempfile.TemporaryDirectory(prefix="experiment-") as directory:
            outcome = experiment(options, Path(directory))
    except BenchError as error:
        sys.exit("\n".join([f"experiment void: {error}", *getattr(error, "__notes__", [])]))
    sys.exit(0 if report(options, outcome) else 1)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=1_000_000, help="peers that go silent (1,000,000)")
    parser.add_argument("--live", type=int, default=5_000, help="peers that go on announcing (5,000)")
    parser.add_argument("--rate", type=float, default=500, help="announces of these in a second (500)")
    parser.add_argument("--within", type=float, default=WITHIN_SECONDS, help="seconds in which the timeouts end (60)")
    return parser.parse_args()


def report(options: argparse.Namespace, outcome: Outcome) -> bool:
    """Prints the result; returns whether all goals were reached."""
    load = outcome.load
    lost = load["refused"] + load["reset"] + load["unanswered"] + load["unsent"]
    milliseconds = load["answered_ms"]
    print(f"{options.peers:,} peers expired within {options.within:g} s; {options.rate:g} announces a second")
    print(f"the last was gone {outcome.lag:.1f} s after its timeout; at most {outcome.max_behind:,} were due")
    print(", ".join(f"{name} {value:.1f} ms" for name, value in milliseconds.items()), end="")
    print(f" of {load['sent']:,} announces, {lost} not answered; ", end="")
    print(
        f"send delay of the load generator: p99 {load['late_ms']['p99']:.1f} ms, worst {load['late_ms']['worst']:.1f}"
    )
    print(f"{outcome.left:,} peers left of {options.live:,} that announced")
    print("CPU µs for each that expired: " + ", ".join(f"{part} {us:.0f}" for part, us in outcome.cpu.items()))
    in_time = outcome.lag <= WITHIN_SECONDS and milliseconds["p99"] <= MAX_MILLISECONDS
    return in_time and not lost and outcome.left == options.live


def experiment(options: argparse.Namespace, directory: Path) -> Outcome:
    torrents = max(1, options.peers // 20)
    peers = make_peers(options.peers + options.live, torrents)
    live, expiring = peers[: options.live], peers[options.live :]
    with processes.tracker(directory, TRACKER_TORRENTS__MAX_TORRENTS=str(torrents * 2)) as (pid, port):
        path = embedded_socket(directory / "tracker-data")
        joins = [announce_target(peer, "started", peers_wanted=0) for peer in live]
        uvloop.run(send_all(port, joins))
        begin = time.time() + len(expiring) / _JOINS_PER_SECOND + 5
        _log(f"{len(expiring):,} peers join, to expire from {begin - time.time():.0f} s from now on")
        with processes.pinned(processes.LOAD_CORE):
            asyncio.run(_preload(path, expiring, begin, options.within))
        with redis.Redis(unix_socket_path=str(path)) as store:
            found = memory.active_peers(store, len(peers))
            if found != len(peers) or time.time() > begin:
                raise BenchError(f"{found:,} of {len(peers):,} peers had joined when the first expired")
            time.sleep(max(0.0, begin - time.time() - _CALM_SECONDS - 1))
            with _announcing(directory, live, port, options) as load:
                calm = _cost_of_a_second(pid, begin)
                return _watch(store, pid, begin + options.within, options, load, calm)


async def _preload(path: Path, expiring: Sequence[Peer], begin: float, within: float) -> None:
    due = (begin + within * n / len(expiring) for n in range(len(expiring)))

    def timeout() -> float:
        if time.time() > begin:
            raise BenchError("the first peers timed out before the last had joined: this machine is too slow")
        return next(due) - time.time()

    await preload(f"unix://{path}", expiring, timeout)


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _announcing(
    directory: Path, live: Sequence[Peer], port: int, options: argparse.Namespace
) -> Iterator["subprocess.Popen[str]"]:
    """An open loop of announces, for as long as expiry may take."""
    (targets := directory / "targets").write_text("\n".join(announce_target(peer) for peer in live))
    seconds = str(_CALM_SECONDS + 1 + options.within + WITHIN_SECONDS)
    command = [sys.executable, "-m", "loadtest.bench.open_loop", "--port", str(port), "--targets", str(targets)]
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
    """CPU seconds by part per second of announces."""
    time.sleep(1)  # the load generator is starting
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
    output, _ = load.communicate(timeout=_GIVE_UP_SECONDS)
    result = json.loads(output.splitlines()[-1])
    return Outcome(max(0.0, now - last), behind, memory.active_peers(store, options.live), cpu, result)


if __name__ == "__main__":
    main()
