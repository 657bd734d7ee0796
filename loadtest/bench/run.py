"""The benchmark: `python -m loadtest.bench.run --help`. docs/performance.md explains the results."""

import argparse
import asyncio
import contextlib
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from loadtest.bench import machine, memory, page, processes, tables
from loadtest.bench.loader import BenchError, send_all
from loadtest.bench.measure import Load, Measurements, check, measure
from loadtest.bench.population import Workload, announce_target, make_workload
from loadtest.bench.targets import FIRST, KINDS, MODES, YARDSTICK, Kind, Target, find
from loadtest.bench.verify import verify

QUICK = {"runs": 1, "seconds": 2, "peers": 20_000, "torrents": 1_000}
_GROUPS = ("tracker", "constants", "others")


def main() -> None:
    options = parse_options()
    try:
        if not find("wrk"):
            raise BenchError("wrk, the load generator, is missing: apt install wrk")
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            report = run(options, Path(directory))
        block = tables.benchmark(report, YARDSTICK)
        if options.write:
            page.write("bench", block)
    except BenchError as error:
        sys.exit("\n".join([f"benchmark void: {error}", *getattr(error, "__notes__", [])]))
    print(json.dumps(report, indent=2) if options.json else block)


def parse_options(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each kind; the median counts (5)")
    parser.add_argument("--seconds", type=int, default=6, help="length of a timed run (6)")
    parser.add_argument("--peers", type=int, default=200_000, help="active peers (200,000)")
    parser.add_argument("--torrents", type=int, default=10_000, help="torrents they are spread over (10,000)")
    parser.add_argument("--requests", type=int, help="requests in wrk's cycle (as many as peers)")
    parser.add_argument("--connections", type=int, default=64, help="wrk's connections (64)")
    parser.add_argument("--mode", choices=MODES, action="append", help="only this connection mode")
    parser.add_argument(
        "--only",
        action="append",
        metavar="WORD",
        help=f"only the kinds of this group ({', '.join(_GROUPS)}) or with this in their name",
    )
    parser.add_argument("--quick", action="store_true", help="quick check: short runs, few peers")
    parser.add_argument(
        "--write", action=argparse.BooleanOptionalAction, help="write docs/performance.md (when nothing is left out)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON with every single run")
    options = parser.parse_args(words)
    if options.quick:
        vars(options).update(QUICK)
    if options.write is None:
        options.write = not (options.quick or options.only or options.mode)
    options.requests = options.requests or options.peers
    options.mode = tuple(options.mode or MODES)
    return options


def run(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Start all servers, then measure them in turn, so that a slow minute of the machine affects each."""
    workload = make_workload(options.peers, options.torrents, options.requests)
    targets_file = directory / "targets.txt"
    targets_file.write_text("\n".join(workload.targets))
    load = Load(targets_file, options.connections, options.seconds)
    kinds, remarks = _kinds_here(options.only)
    with contextlib.ExitStack() as stack:
        targets = [
            stack.enter_context(_started(kind, directory / str(n), options.torrents)) for n, kind in enumerate(kinds)
        ]
        trackers = [target for target in targets if target.is_tracker]
        say(f"announcing {len(workload.present):,} peers to {len(trackers)} trackers")
        figures = _preload(trackers, workload)
        answers = {target.name: verify(target, workload.targets) for target in targets if target.is_tracker}
        runs = _measure_in_turn(targets, options.mode, load, options.runs)
    remarks += [f"{t.name}: closes each connection after its answer." for t in targets if t.modes != MODES]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "command": shlex.join(["python", "-m", "loadtest.bench.run", *sys.argv[1:]]),
        "setting": vars(options),
        "machine": machine.machine(),
        "versions": machine.versions(),
        "memory": figures,
        "answers": {name: asdict(found) | {"mean_peers": found.mean_peers} for name, found in answers.items()},
        "remarks": remarks,
        "runs": runs,
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _kinds_here(only: Sequence[str] | None) -> tuple[list[Kind], list[str]]:
    """The kinds to measure, and a remark for each that is left out because a program is missing."""
    chosen = [k for k in KINDS if not only or any(word == k.group or word in k.name for word in only)]
    if not chosen:
        raise BenchError(f"nothing is called {only}: {', '.join(kind.name for kind in KINDS)}")
    remarks = [f"{kind.name}: left out ({missing})." for kind in chosen if (missing := kind.missing())]
    for remark in remarks:
        say(remark)
    return [kind for kind in chosen if not kind.missing()], remarks


@contextlib.contextmanager
def _started(kind: Kind, directory: Path, torrents: int) -> Iterator[Target]:
    directory.mkdir()
    with kind.start(directory, torrents) as target:
        yield target


def _preload(targets: Sequence[Target], workload: Workload) -> dict[str, Any]:
    """Announces all peers to each tracker over HTTP; returns the memory they take in the first."""
    stores = {target.name: target.store for target in targets if target.store is not None}
    time.sleep(2)  # until scripts are loaded and first flushes done
    empty = {name: memory.used(store) for name, store in stores.items()}
    # All processes on all cores: nothing is timed yet.
    for target in targets:
        processes.place(target.pids, processes.cores())
    uvloop.run(_announce_all(targets, workload))
    for target in targets:
        if not target.spread:
            processes.place(target.pids, {processes.cores()[processes.SERVER_CORE]})
    costs = {name: memory.per_peer(store, empty[name], len(workload.present)) for name, store in stores.items()}
    if FIRST.name not in costs:
        return {}
    by_key = memory.by_key_kind(stores[FIRST.name], len(workload.present))
    return {"bytes_per_peer": costs[FIRST.name], "by_key": by_key}


async def _announce_all(targets: Sequence[Target], workload: Workload) -> None:
    # One peer wanted, because others take none for a request for as many as they like.
    requests = [announce_target(peer, "started", peers_wanted=1) for peer in workload.present]
    try:
        async with asyncio.TaskGroup() as tasks:
            for target in targets:
                tasks.create_task(send_all(target.port, requests, at_once=target.at_once))
    except* BenchError as errors:
        raise errors.exceptions[0] from None


def _measure_in_turn(
    targets: Sequence[Target], modes: Sequence[str], load: Load, runs: int
) -> dict[str, dict[str, list[Measurements]]]:
    results: dict[str, dict[str, list[Measurements]]] = {mode: {} for mode in modes}
    for n in range(runs):
        say(f"run {n + 1} of {runs}")
        for mode, by_name in results.items():
            for target in targets:
                if mode in target.modes:
                    if n == 0:
                        check(target, mode, load)
                    by_name.setdefault(target.name, []).append(measure(target, mode, load))
    return results


if __name__ == "__main__":
    main()
