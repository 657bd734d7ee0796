"""The benchmark: `python -m bench.run --help`. What the figures mean is in bench/README.md."""

import argparse
import contextlib
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bencodepy
import redis
import uvloop

from bench import memory, processes
from bench.loader import BenchError, send_all
from bench.measure import HEADERS, Figures, Load, Target, check, measure
from bench.population import Workload, announce_target, make_workload

DECODED_ANSWERS = 1000
SHARE_WITH_PEERS = 0.5
CONSTANTS = {"aiohttp constant": processes.constant_aiohttp, "nginx constant": processes.constant_nginx}


def main() -> None:
    options = parse_options()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            report = run(options, Path(directory))
    except BenchError as error:
        sys.exit("\n".join([f"benchmark void: {error}", *getattr(error, "__notes__", [])]))
    print(json.dumps(report, indent=2) if options.json else render(report))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="timed runs of each kind; the median counts (3)")
    parser.add_argument("--seconds", type=int, default=10, help="length of a timed run (10)")
    parser.add_argument("--peers", type=int, default=200_000, help="active peers (200,000)")
    parser.add_argument("--torrents", type=int, default=10_000, help="torrents they are spread over (10,000)")
    parser.add_argument("--requests", type=int, help="requests before wrk begins again (as many as peers)")
    parser.add_argument("--connections", type=int, default=64, help="wrk's connections (64)")
    parser.add_argument("--mode", choices=list(HEADERS), action="append", help="only this way of connecting")
    parser.add_argument("--only", choices=["tracker", "memory", "constants"], help="leave the rest out")
    parser.add_argument(
        "--no-aof", action="store_true", help="a store without append-only file, started here"
    )
    parser.add_argument("--json", action="store_true", help="print JSON: the medians and every run")
    return parser.parse_args()


def run(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Start all servers, then measure them in turn, so that a slow minute of the machine hits each."""
    modes = options.mode or list(HEADERS)
    workload = make_workload(options.peers, options.torrents, options.requests or options.peers)
    targets_file = directory / "targets.txt"
    targets_file.write_text("\n".join(workload.targets))
    load = Load(targets_file, options.connections, options.seconds)
    report = _setting(options, workload)
    with contextlib.ExitStack() as stack:
        targets = []
        if options.only != "constants":
            target = stack.enter_context(_tracker(directory, no_aof=options.no_aof))
            targets.append(target)
            report["memory"] = _preload(target, workload)
        if options.only in (None, "constants"):
            targets += [stack.enter_context(_constant(name, directory)) for name in _constants_here()]
        if options.only != "memory":
            runs = _measure_in_turn(targets, modes, load, workload, options.runs)
            report |= {"median": {name: _median(figures) for name, figures in runs.items()}, "runs": runs}
    return report


@contextlib.contextmanager
def _tracker(directory: Path, *, no_aof: bool) -> Iterator[Target]:
    with contextlib.ExitStack() as stack:
        if no_aof:
            store_pid, path = stack.enter_context(processes.store(directory))
            url = {"TRACKER_REDIS__URL": f"unix://{path}"}
            pid, port = stack.enter_context(processes.tracker(directory, **url))
            pids = [pid, store_pid]
        else:
            pid, port = stack.enter_context(processes.tracker(directory))
            pids, path = [pid], _embedded_socket(directory)
        yield Target("tracker", port, pids, redis.Redis(unix_socket_path=str(path)))


def _embedded_socket(directory: Path) -> Path:
    for path in directory.rglob("*"):
        if path.is_socket():
            return path
    raise BenchError("the embedded store has no unix socket below the data directory")


@contextlib.contextmanager
def _constant(name: str, directory: Path) -> Iterator[Target]:
    with CONSTANTS[name](directory) as (pid, port):
        yield Target(name, port, [pid])


def _constants_here() -> list[str]:
    return [name for name in CONSTANTS if "nginx" not in name or processes.find_nginx()]


def _preload(target: Target, workload: Workload) -> dict[str, Any]:
    """Announce everybody, over HTTP as all else; returns what they cost in memory."""
    assert target.store is not None
    time.sleep(1)  # the figures of an empty tracker settle: scripts loaded, first flushes done
    empty, began = memory.used(target.store), time.monotonic()
    requests = [announce_target(peer, "started", peers_wanted=0) for peer in workload.present]
    with processes.pinned(processes.LOAD_CORE):
        uvloop.run(send_all(target.port, requests))
    took = time.monotonic() - began
    peers = len(workload.present)
    return {
        "bytes_per_peer": memory.per_peer(target.store, empty, peers),
        "empty_bytes": empty,
        "preload_seconds": took,
        "bytes_per_peer_by_key": memory.by_key_kind(target.store, peers),
    }


def _measure_in_turn(
    targets: list[Target], modes: list[str], load: Load, workload: Workload, runs: int
) -> dict[str, list[Figures]]:
    results: dict[str, list[Figures]] = {}
    for target in targets:
        _decode_some(target, workload)
    for n in range(runs):
        for mode in modes:
            for target in targets:
                if n == 0:
                    check(target, mode, load)
                results.setdefault(f"{target.name}, {mode}", []).append(measure(target, mode, load))
    return results


def _decode_some(target: Target, workload: Workload) -> None:
    """Raises BenchError unless real answers are bencode, and most announces get peers."""
    # Only regular announces and scrapes: they leave the swarms as they are.
    requests = [request for request in workload.targets if "&event=" not in request][:DECODED_ANSWERS]
    with_peers = announces = 0

    def decode(body: bytes) -> None:
        nonlocal with_peers, announces
        answer = bencodepy.decode(body)
        if b"interval" in answer:
            announces += 1
            with_peers += len(answer[b"peers"]) > 0 and len(answer[b"peers"]) % 6 == 0
        elif b"files" not in answer:
            raise BenchError(f"neither an announce's answer nor a scrape's: {body[:300]!r}")

    uvloop.run(send_all(target.port, requests, decode))
    if with_peers < announces * SHARE_WITH_PEERS or not announces:
        raise BenchError(f"{target.name}: {with_peers} of {announces} announces got peers")


def _median(runs: list[Figures]) -> Figures:
    medians = {name: statistics.median(figures[name] for figures in runs) for name in runs[0]}
    totals = [figures["total_us"] for figures in runs]
    return medians | {"total_us_min": min(totals), "total_us_max": max(totals)}


def _setting(options: argparse.Namespace, workload: Workload) -> dict[str, Any]:
    chosen = {name: value for name, value in vars(options).items() if name != "json"}
    names = [
        line.partition(":")[2]
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    machine = {
        "processor": names[0].strip() if names else platform.machine(),
        "cores": len(names),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    return {"setting": chosen | {"round": len(workload.targets)}, "machine": machine}


def render(report: dict[str, Any]) -> str:
    machine, lines = report["machine"], []
    lines.append(
        f"{machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}"
    )
    lines.append(
        ", ".join(f"{name} {value}" for name, value in report["setting"].items() if value is not None)
    )
    if "memory" in report:
        lines += _render_memory(report["memory"])
    medians: dict[str, Figures] = report.get("median", {})
    for name, figures in medians.items():
        lines += _render_run(name, figures)
    for name, figures in medians.items():
        mode = name.rpartition(", ")[2]
        for constant in CONSTANTS:
            if name.startswith("tracker") and (other := medians.get(f"{constant}, {mode}")):
                lines.append(f"{mode}: {figures['total_us'] / other['total_us']:.2f} times {constant}")
    return "\n".join(lines)


def _render_memory(figures: dict[str, Any]) -> list[str]:
    lines = [
        f"\nstore: {figures['bytes_per_peer']:.0f} bytes of used_memory per active IPv4 peer, of them about"
    ]
    kinds = [item for item in figures["bytes_per_peer_by_key"].items() if item[1] >= 0.5]
    return lines + [f"  {cost:6.1f}  {kind}" for kind, cost in kinds]


def _render_run(name: str, f: Figures) -> list[str]:
    def part(which: str) -> str:
        return (
            f"{f[f'{which}_us']:.1f} (user {f[f'{which}_user_us']:.1f}, kernel {f[f'{which}_kernel_us']:.1f})"
        )

    total = f"{f['total_us']:.1f} ({f['total_us_min']:.1f} to {f['total_us_max']:.1f})"
    slowest = f"p99 {f['p99_ms']:.2f}, p99.9 {f['p999_ms']:.2f}, worst {f['max_ms']:.2f}"
    trouble = f"{f['socket_errors']:.0f} socket errors, {f['timeouts']:.0f} timeouts"
    lines = [
        f"\n{name}: {f['requests_per_s']:,.0f} requests/s",
        f"  CPU µs per request: {total} = server {part('server')} + store {part('store')}",
        f"  latency ms: p50 {f['p50_ms']:.2f}, p90 {f['p90_ms']:.2f}, {slowest}",
        f"  {f['answer_bytes']:.0f} bytes an answer, {trouble}",
    ]
    if "script_us" in f:
        calls = f"{f['requests_per_script_call']:.1f} requests per script call"
        lines.append(f"  {calls}, {f['script_us']:.1f} µs of script each")
    return lines


if __name__ == "__main__":
    main()
