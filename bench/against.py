"""This checkout against an earlier commit of it, in one run: `python -m bench.against COMMIT`.

Both trackers serve the same swarms on the same core, one after the other in turn, so that a slow minute of the machine
hits each; what is compared is CPU time per request of tracker and store. Regular announces only, unless told otherwise:
joins and the rest have prices of their own (bench.background).
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import redis
import uvloop

from bench import processes
from bench.loader import BenchError, send_all
from bench.measure import HEADERS, Figures, Load, Target, check, measure
from bench.population import Workload, announce_target, make_workload
from tests.geoip_databases import LONDON, make_city

EVERYTHING = {"TRACKER_STATSD__ADDRESS": "127.0.0.1:9", "TRACKER_SCORING__INTERVAL_SECONDS": "60"}
"""What is off by default; the figures go to a port where nobody listens."""


def main() -> None:
    options = parse_options()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            runs = run(options, Path(directory))
    except BenchError as error:
        sys.exit("\n".join([f"benchmark void: {error}", *getattr(error, "__notes__", [])]))
    for name, figures in runs.items():
        print(f"{name}: {_shown(figures)}")
    print(f"ratio of the medians: {_total(runs['now']) / _total(runs[options.commit]):.3f}")
    pairs = [n["total_us"] / t["total_us"] for n, t in zip(*reversed(runs.values()), strict=True)]
    print(f"ratio run by run: {', '.join(f'{ratio:.3f}' for ratio in pairs)}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="what to compare with, as git names it")
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each (5)")
    parser.add_argument("--seconds", type=int, default=6, help="length of a timed run (6)")
    parser.add_argument("--peers", type=int, default=50_000, help="active peers (50,000)")
    parser.add_argument("--torrents", type=int, default=2_500, help="torrents they are spread over (2,500)")
    parser.add_argument("--connections", type=int, default=64, help="wrk's connections (64)")
    parser.add_argument("--mode", choices=list(HEADERS), default="keep-alive", help="way of connecting")
    parser.add_argument("--all-kinds", action="store_true", help="joins, stops and scrapes as well")
    return parser.parse_args()


def run(options: argparse.Namespace, directory: Path) -> dict[str, list[Figures]]:
    workload = make_workload(options.peers, options.torrents, options.peers)
    if not options.all_kinds:
        regular = [t for t in workload.targets if "&event=" not in t and t.startswith("/announce")]
        workload = replace(workload, targets=regular)
    targets_file = directory / "targets.txt"
    targets_file.write_text("\n".join(workload.targets))
    load = Load(targets_file, options.connections, options.seconds)
    with contextlib.ExitStack() as stack:
        before = stack.enter_context(_checkout(options.commit, directory / "before"))
        database = make_city(directory / "places.mmdb", {"127.0.0.0/8": LONDON})
        everything = EVERYTHING | {"TRACKER_GEOIP__DATABASE": str(database)}
        targets = [
            stack.enter_context(_tracker(options.commit, directory / "a", workload, PYTHONPATH=str(before))),
            stack.enter_context(_tracker("now", directory / "b", workload, **everything)),
        ]
        for target in targets:
            check(target, options.mode, load)
        runs: dict[str, list[Figures]] = {target.name: [] for target in targets}
        for _ in range(options.runs):
            for target in targets:
                runs[target.name].append(measure(target, options.mode, load))
        return runs


@contextlib.contextmanager
def _checkout(commit: str, directory: Path) -> Iterator[Path]:
    git = ["git", "-C", str(processes.ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(directory), commit], check=True)
    try:
        yield directory
    finally:
        subprocess.run([*git, "remove", "--force", str(directory)], check=True)


@contextlib.contextmanager
def _tracker(name: str, directory: Path, workload: Workload, **variables: str) -> Iterator[Target]:
    """A tracker on a store without append-only file, whose rewrites would fall into some runs and not into others."""
    directory.mkdir()
    with (
        processes.store(directory) as (store_pid, path),
        processes.tracker(directory, TRACKER_REDIS__URL=f"unix://{path}", **variables) as (pid, port),
    ):
        with processes.pinned(processes.LOAD_CORE):
            requests = [announce_target(peer, "started", peers_wanted=0) for peer in workload.present]
            uvloop.run(send_all(port, requests))
        yield Target(name, port, [pid, store_pid], redis.Redis(unix_socket_path=str(path)))


def _total(figures: list[Figures]) -> float:
    return statistics.median(run["total_us"] for run in figures)


def _shown(figures: list[Figures]) -> str:
    server, store = (statistics.median(run[name] for run in figures) for name in ("server_us", "store_us"))
    return f"{_total(figures):.1f} CPU µs per request = server {server:.1f} + store {store:.1f}"


if __name__ == "__main__":
    main()
