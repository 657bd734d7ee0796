"""CPU time of an announce by part: `python -m loadtest.bench.profile --help`.

The total is measured as in the benchmark, without profilers (/proc). Then, under the same load, perf samples both
processes by CPU time: kernel functions and the functions of the store. perf cannot see Python functions. py-spy can,
but samples by wall clock and suspends the process, so only the shares of the tracker's own time are taken from it.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import redis
import uvloop

from loadtest.bench import machine, page, processes, samples, tables
from loadtest.bench.loader import BenchError, send_all
from loadtest.bench.measure import Load, Measurements, check, measure
from loadtest.bench.population import announce_target, make_workload
from loadtest.bench.symbols import Symbols
from loadtest.bench.targets import FIRST, MODES, Target, find
from tracker.valkey.server import server_binary

PERF_RATE, SPY_RATE = 2000, 200
_MIN_US = 0.05


def main() -> None:
    options = parse_options()
    try:
        tools = _tools()
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            block = profile(options, Path(directory), tools)
        if options.write:
            page.write("profile", block)
    except BenchError as error:
        sys.exit("\n".join([f"profile void: {error}", *getattr(error, "__notes__", [])]))
    print(block)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=10, help="length of each sampling (10)")
    parser.add_argument("--peers", type=int, default=200_000, help="active peers (200,000)")
    parser.add_argument("--torrents", type=int, default=10_000, help="torrents they are spread over (10,000)")
    parser.add_argument("--mode", choices=MODES, action="append", help="only this connection mode")
    parser.add_argument("--quick", action="store_true", help="quick check: few peers, short runs")
    parser.add_argument(
        "--write", action=argparse.BooleanOptionalAction, help="write docs/performance.md (when nothing is left out)"
    )
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.peers, options.torrents = 4, 20_000, 1_000
    if options.write is None:
        options.write = not (options.quick or options.mode)
    return options


def _tools() -> dict[str, str]:
    beside = shutil.which("py-spy", path=str(Path(sys.executable).parent))
    found = {"wrk": find("wrk"), "perf": find("perf"), "py-spy": beside or find("py-spy")}
    missing = [name for name, path in found.items() if not path]
    if missing:
        raise BenchError(f"missing: {', '.join(missing)} (apt install wrk linux-perf; pip install py-spy)")
    return {name: path for name, path in found.items() if path}


def profile(options: argparse.Namespace, directory: Path, tools: Mapping[str, str]) -> str:
    workload = make_workload(options.peers, options.torrents, options.peers)
    (targets := directory / "targets").write_text("\n".join(workload.targets))
    parts = [_setting()]
    with FIRST.start(directory, options.torrents) as target:
        processes.place(target.pids, processes.cores())
        joins = [announce_target(peer, "started", peers_wanted=1) for peer in workload.present]
        uvloop.run(send_all(target.port, joins))
        processes.place(target.pids, {processes.cores()[processes.SERVER_CORE]})
        for mode in options.mode or MODES:
            load = Load(targets, 64, options.seconds)
            check(target, mode, load)
            before = _commands(target.store)
            measured = measure(target, mode, load)
            commands = _per_request(before, _commands(target.store), measured["requests"])
            found = _sampled(target, mode, load, tools, directory)
            parts.append(f"### {tables.MODES[mode]}\n\n{_render(measured, *found, commands)}")
    return "\n\n".join(parts)


def _sampled(
    target: Target, mode: str, load: Load, tools: Mapping[str, str], directory: Path
) -> tuple[Counter[str], Counter[str], Counter[str], Counter[str]]:
    """Samples by group: the tracker's own, the kernel's for it, the store's own, the kernel's for that."""
    data, stacks = directory / "perf.data", directory / "stacks"
    pids = ",".join(map(str, target.pids))
    record = [tools["perf"], "record", "-F", str(PERF_RATE), "-g", "-o", str(data), "-p", pids]
    _under_load(target, mode, load, [*record, "--", "sleep", str(load.seconds)])
    spy = [tools["py-spy"], "record", "--native", "--rate", str(SPY_RATE), "--format", "raw"]
    spy += ["--duration", str(load.seconds), "--output", str(stacks), "--pid", str(target.pids[0])]
    _under_load(target, mode, load, spy)
    text = _run([tools["perf"], "script", "-i", str(data), "-F", "pid,ip,sym,dso"])
    resolve: Callable[[int], str] = Symbols(server_binary()).at_offset
    tracker_kernel: Counter[str] = Counter()
    store: Counter[str] = Counter()
    store_kernel: Counter[str] = Counter()
    for sample in samples.read_perf(text):
        in_store = sample.pid == target.pids[1]
        if sample.in_kernel:
            (store_kernel if in_store else tracker_kernel)[samples.kernel_group(sample)] += 1
        elif in_store:
            store[samples.store_group(sample, resolve)] += 1
    return samples.tracker_groups(stacks.read_text().splitlines()), tracker_kernel, store, store_kernel


def _under_load(target: Target, mode: str, load: Load, command: list[str]) -> None:
    """Runs the sampler; the load starts before it and ends after it."""
    longer = Load(load.targets_file, load.connections, load.seconds + 3)
    loading = threading.Thread(target=check, args=(target, mode, longer, longer.seconds))
    loading.start()
    try:
        time.sleep(1)
        with processes.pinned(processes.LOAD_CORE):
            _run(command)
    finally:
        loading.join()


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise BenchError(f"{Path(command[0]).name} failed:\n{done.stderr[-1000:]}")
    return done.stdout


def _commands(store: "redis.Redis | None") -> Mapping[str, Any]:
    assert store is not None
    statistics: Mapping[str, Any] = store.info("commandstats")
    return statistics


def _per_request(
    before: Mapping[str, Any], after: Mapping[str, Any], requests: float
) -> dict[str, tuple[float, float]]:
    """Calls and microseconds per request, by command; the most expensive first."""
    found = {}
    for name, row in after.items():
        earlier = before.get(name, {"calls": 0, "usec": 0})
        calls, spent = row["calls"] - earlier["calls"], row["usec"] - earlier["usec"]
        if spent / requests >= _MIN_US:
            found[name.removeprefix("cmdstat_").upper()] = (calls / requests, spent / requests)
    return dict(sorted(found.items(), key=lambda item: -item[1][1]))


def _render(
    measured: Measurements,
    tracker: Counter[str],
    tracker_kernel: Counter[str],
    store: Counter[str],
    store_kernel: Counter[str],
    commands: Mapping[str, tuple[float, float]],
) -> str:
    parts = []
    for name, own, kernel in (("server", tracker, tracker_kernel), ("store", store, store_kernel)):
        groups = samples.scaled(own, measured[f"{name}_user_us"])
        groups |= samples.scaled(kernel, measured[f"{name}_kernel_us"])
        rows = [(group, f"{cost:.2f}") for group, cost in groups.items() if cost >= _MIN_US]
        title = "tracker" if name == "server" else name
        head = (f"{title}: {measured[f'{name}_us']:.1f} µs", "µs per request")
        parts.append(tables.table(head, rows))
    counted = [(f"`{name}`", f"{calls:.2f}", f"{cost:.2f}") for name, (calls, cost) in commands.items()]
    head_counted = ("store: commands, by its own statistics", "calls per request", "µs per request")
    parts.append(tables.table(head_counted, counted))
    return "\n\n".join(parts)


def _setting() -> str:
    return tables.setting(
        {
            "date": datetime.now(UTC).date().isoformat(),
            "command": shlex.join(["python", "-m", "loadtest.bench.profile", *sys.argv[1:]]),
            "machine": machine.machine(),
            "versions": machine.versions(),
        }
    )


if __name__ == "__main__":
    main()
