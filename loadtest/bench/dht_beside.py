"""Announces over HTTP with and without queries to the DHT node of the tracker, in one run: latency, and CPU time.

Rounds with and without queries take turns, so that a slow minute of the machine affects both. Tracker, node and store
share one core; both load generators share the other one. The limits of the node are raised.
"""

import argparse
import contextlib
import json
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from loadtest.bench import machine, page, processes, tables
from loadtest.bench.latency import generator, prepared, result
from loadtest.bench.loader import BenchError
from loadtest.bench.measure import Load, check
from loadtest.bench.population import info_hash_of
from loadtest.bench.sections import Section
from loadtest.bench.targets import Kind, Target, find, tracker
from loadtest.servers import free_port

ANSWER_GOAL_MICROSECONDS = 150.0
_WINDOW_SECONDS = 10
"""What the node remembers of a torrent."""
_RESULT_SECONDS = 60
_PEERS_OF_PAGE_SECONDS = 0.05
_END = "the end of the queries"


def main() -> None:
    options = parse_options()
    try:
        if not find("wrk"):
            raise BenchError("wrk, the load generator, is missing: apt install wrk")
        block = f"{setting()}\n\n{run(options).as_markdown()}"
        if options.write:
            page.write("dht", block)
    except BenchError as error:
        sys.exit("\n".join([f"benchmark void: {error}", *getattr(error, "__notes__", [])]))
    print(block)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds with queries, and as many without (3)")
    parser.add_argument("--seconds", type=int, default=20, help="length of a round (20)")
    parser.add_argument("--queries", type=int, default=1000, help="queries a second (1,000)")
    parser.add_argument("--announces", type=int, default=1000, help="announces a second (1,000)")
    parser.add_argument("--peers", type=int, default=20_000)
    parser.add_argument("--torrents", type=int, default=1_000)
    parser.add_argument("--asked", type=int, default=500, help="torrents that the queries ask for (500)")
    parser.add_argument("--workers", type=int, default=1, help="with 2 the node has a process of its own (1)")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    return parser.parse_args()


def setting() -> str:
    return tables.setting(
        {
            "date": datetime.now(UTC).date().isoformat(),
            "command": shlex.join(["python", "-m", "loadtest.bench.dht_beside", *sys.argv[1:]]),
            "machine": machine.machine(),
            "versions": machine.versions(),
        }
    )


def run(options: argparse.Namespace) -> Section:
    words = "process" if options.workers == 1 else "processes"
    section = Section(
        f"{options.queries:,} queries a second beside {options.announces:,} announces a second, "
        f"{options.workers} {words} for announces"
    )
    with served(options) as (target, targets, port):
        load = Load(targets, 64, options.seconds)
        check(target, "keep-alive", load)
        alone = queries_alone(options, target, port)
        kinds: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        for _ in range(options.rounds):
            for flooded, found in kinds.items():
                found.append(announces(options, target, load, port if flooded else None))
        commands = store_commands(options, target, port)
    report(section, options, kinds, alone)
    section.find("store commands for a torrent within 10 s, at most", commands, "", 1)
    return section


@contextlib.contextmanager
def served(options: argparse.Namespace) -> Iterator[tuple[Target, Path, int]]:
    """A tracker with all peers in its swarms, the file of regular announces, and the port of its node."""
    port = free_port()
    variables = {
        "TRACKER_DHT__ENABLED": "true",
        "TRACKER_DHT__LISTEN": f"127.0.0.1:{port}",
        "TRACKER_DHT__TORRENTS": "all",
        "TRACKER_DHT__LOOKUPS_PER_MINUTE": "0",
        "TRACKER_DHT__ADDRESS_QUERIES_SECOND": "10000",
        "TRACKER_DHT__ADDRESS_BURST": "100000",
        "TRACKER_DHT__QUERIES_SECOND": "100000",
        "TRACKER_DHT__QUERIES_BURST": "1000000",
        "TRACKER_DHT__ANSWER_BYTES_SECOND": "1000000000",
    }
    start = partial(tracker, name="dht", file=False, workers=options.workers, more=variables)
    with tempfile.TemporaryDirectory(prefix="dht-") as name:
        with prepared(Path(name), options.peers, options.torrents, Kind("dht", "tracker", start)) as (target, targets):
            lines = targets.read_text().splitlines()
            regular = [each for each in lines if each.startswith("/announce") and "&event=" not in each]
            targets.write_text("\n".join(regular))
            yield target, targets, port


def announces(options: argparse.Namespace, target: Target, load: Load, port: int | None) -> dict[str, float]:
    """One round, with queries where ``port`` is given. Times in ms; ``cpu`` in seconds of tracker and store."""
    queries = None if port is None else query_load(options, port)
    before = cpu(target)
    with generator(
        "loadtest.bench.open_loop", target, load, "keep-alive", options.announces, "--connections", "1024"
    ) as http:
        found = result(target, http)
    used = cpu(target) - before
    if found["refused"] + found["reset"] + found["unanswered"] + found["unsent"]:
        words = "without" if port is None else "with"
        raise BenchError(f"announces {words} queries were not answered: {found}")
    times = found["answered_ms"]
    measured = {"announces": found["answered"], "cpu": used, "p50": times["p50"], "p99": times["p99"]}
    measured["late"] = found["late_ms"]["p99"]
    if queries is not None:
        asked = query_result(queries)
        measured |= {"sent": asked["sent"], "answered": asked["answered"]}
    return measured


def queries_alone(options: argparse.Namespace, target: Target, port: int) -> dict[str, float]:
    """CPU µs of a query, less what the tracker takes at rest; the size of an answer, and its latency."""
    used = []
    found: dict[str, Any] = {}
    for asking in (False, True):
        before, began = cpu(target), time.monotonic()
        if asking:
            found = query_result(query_load(options, port))
        else:
            time.sleep(options.seconds / 2)
        used.append((cpu(target) - before, time.monotonic() - began))
    (resting, rested), (busy, passed) = used
    return {
        "us": (busy - resting / rested * passed) / max(found["answered"], 1) * 1e6,
        "bytes": found["answer_bytes"],
        "p99": found["answered_ms"]["p99"],
    }


def store_commands(options: argparse.Namespace, target: Target, port: int) -> int:
    """The most commands within 10 s that name the same torrent, while queries ask for all of them. What a script does
    is one command.

    A node that knows few nodes also reads a page of the register and five of its torrents, to ask their peers. That is
    not caused by queries, and not counted."""
    assert target.store is not None
    names = {info_hash_of(number).hex() for number in range(options.asked)}
    times: dict[str, list[float]] = {name: [] for name in names}
    listening = threading.Event()
    page_read = 0.0

    def listen() -> None:
        nonlocal page_read
        with target.store.monitor() as monitor:  # type: ignore[union-attr]
            listening.set()
            for each in monitor.listen():
                if _END in each["command"]:
                    return
                if each["client_type"] == "lua":
                    continue
                if " info_hash " in each["command"]:
                    page_read = each["time"]
                elif each["time"] - page_read > _PEERS_OF_PAGE_SECONDS:
                    for name in names.intersection(each["command"].split()):
                        times[name].append(each["time"])

    thread = threading.Thread(target=listen)
    thread.start()
    listening.wait()
    asked = query_result(query_load(options, port))
    target.store.echo(_END)
    thread.join()
    if asked["answered"] < asked["sent"] / 2 or not all(times.values()):
        raise BenchError(f"not all of {len(names)} torrents were read from the store: {asked}")
    return max(
        sum(start <= each < start + _WINDOW_SECONDS for each in found) for found in times.values() for start in found
    )


def report(
    section: Section, options: argparse.Namespace, kinds: dict[bool, list[dict[str, float]]], alone: dict[str, float]
) -> None:
    for flooded, rounds in kinds.items():
        words = "with queries" if flooded else "without"
        for name, what in (("p50", "announces, p50"), ("p99", "announces, p99")):
            section.find(f"{what}, {words}", tables.median(rounds, name), f"ms{spread(rounds, name)}")
        for each in rounds:
            # What the queries took is known from the run without announces.
            less = each.get("answered", 0) * alone["us"]
            each["us"] = (each["cpu"] * 1e6 - less) / each["announces"]
            each["share"] = 100 * each["cpu"] / options.seconds
        section.find(
            f"CPU time per announce, {words}{', less that of the queries' if flooded else ''}",
            tables.median(rounds, "us"),
            f"µs{spread(rounds, 'us')}",
        )
        section.find(f"CPU time of tracker and store, {words}", tables.median(rounds, "share"), "% of a core")
        section.find(f"send delay of the load generator, p99, {words}", tables.median(rounds, "late"), "ms")
    for name in ("p50", "p99", "us"):
        what = {"p50": "p50", "p99": "p99", "us": "CPU time per announce"}[name]
        ratio = tables.median(kinds[True], name) / tables.median(kinds[False], name)
        section.find(f"{what}, with queries to without", ratio, "times")
    sent, answered = (sum(each[name] for each in kinds[True]) for name in ("sent", "answered"))
    section.find("queries without an answer, beside announces", sent - answered, f"of {sent:,.0f}", 0)
    section.find("CPU time of a query, without announces", alone["us"], "µs", ANSWER_GOAL_MICROSECONDS)
    section.find("answer, without nodes", alone["bytes"], "bytes")
    section.find("answers to queries without announces, p99", alone["p99"], "ms")


def spread(rounds: list[dict[str, float]], name: str) -> str:
    values = sorted(each[name] for each in rounds)
    return f" ({values[0]:.3g} to {values[-1]:.3g})"


def cpu(target: Target) -> float:
    return sum(part.user + part.kernel for part in processes.cpu_by_part(target.pids).values())


def query_load(options: argparse.Namespace, port: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "loadtest.bench.dht_load", "--port", str(port)]
    command += ["--rate", str(options.queries), "--torrents", str(options.asked)]
    with processes.pinned(processes.LOAD_CORE):
        return subprocess.Popen(
            [*command, "--seconds", str(options.seconds)], cwd=processes.ROOT, stdout=subprocess.PIPE, text=True
        )


def query_result(run: "subprocess.Popen[str]") -> dict[str, Any]:
    try:
        output, _ = run.communicate(timeout=_RESULT_SECONDS)
        found: dict[str, Any] = json.loads(output)
    except (ValueError, subprocess.TimeoutExpired):
        run.kill()
        raise BenchError(f"the queries ended with {run.wait()}") from None
    return found


if __name__ == "__main__":
    main()
