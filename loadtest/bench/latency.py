"""Latency of answers: of an idle tracker, and of one at 70 % of its maximum rate."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from loadtest.bench import processes
from loadtest.bench.loader import BenchError, send_all
from loadtest.bench.measure import HEADERS, Load, check, measure
from loadtest.bench.open_loop import OFFERED, is_success, is_whole
from loadtest.bench.percentiles import in_milliseconds
from loadtest.bench.population import announce_target, make_workload
from loadtest.bench.sections import Section
from loadtest.bench.targets import FIRST, KINDS, MODES, YARDSTICK, Kind, Target

SATURATION = 0.7
CLOSE = HEADERS["close"].replace("|", "\r\n")
_IDLE_REQUESTS, _IDLE_PAUSE_SECONDS = 3000, 0.001
_IDLE_GOAL = 3.0
"""How many times nginx's time an announce may take on an idle tracker."""
_TOLERANCE = 0.9
"""Minimum share of the requested rate that the load must reach."""


def measure_latency(directory: Path, seconds: int, peers: int, torrents: int) -> list[Section]:
    with prepared(directory, peers, torrents) as (target, targets):
        load = Load(targets, 64, seconds)
        regular = [
            each for each in targets.read_text().splitlines() if "&event=" not in each and each.startswith("/announce")
        ]
        section = Section(f"Latency, {peers:,} peers in {torrents:,} torrents")
        for mode in MODES:
            idle = _idle(target.port, regular, mode)
            section.find(f"{mode}, idle, one connection: p50", idle["p50"], "ms")
            section.find(f"{mode}, idle, one connection: p99", idle["p99"], "ms")
            if constant := _idle_constant(directory, torrents, regular, mode):
                section.find(f"{mode}, idle: p50 of {YARDSTICK}", constant, "ms")
                goal = _IDLE_GOAL if mode == "keep-alive" else None
                section.find(f"{mode}, idle: p50, to that of nginx", idle["p50"] / constant, "times", goal)
        for mode in MODES:
            check(target, mode, load)
            maximum = measure(target, mode, load)["requests_per_s"]
            section.find(f"{mode}: max requests per second, closed loop", maximum, "")
            _paced(section, target, load, mode, maximum * SATURATION)
        return [section]


def _idle_constant(directory: Path, torrents: int, regular: list[str], mode: str) -> float:
    """The p50 (ms) of a constant answer of nginx beside the idle tracker, on the same core; 0 without nginx."""
    kind = next(kind for kind in KINDS if kind.name == YARDSTICK)
    if kind.missing():
        return 0.0
    with kind.start(directory, torrents) as constant:
        processes.place(constant.pids, {processes.cores()[processes.SERVER_CORE]})
        return _idle(constant.port, regular, mode)["p50"]


@contextmanager
def prepared(directory: Path, peers: int, torrents: int, kind: Kind = FIRST) -> Iterator[tuple[Target, Path]]:
    """An idle tracker with all peers in its swarms, on its core or cores; and the file of request targets."""
    workload = make_workload(peers, torrents, peers)
    (targets := directory / "targets").write_text("\n".join(workload.targets))
    with kind.start(directory, torrents) as target:
        processes.place(target.pids, processes.cores())
        joins = [announce_target(peer, "started", peers_wanted=1) for peer in workload.present]
        uvloop.run(send_all(target.port, joins))
        if not target.spread:
            processes.place(target.pids, {processes.cores()[processes.SERVER_CORE]})
        processes.wait_until_idle(target.pids)
        yield target, targets


def _idle(port: int, targets: list[str], mode: str) -> dict[str, float]:
    """Latency (ms) of single requests, one after the other with pauses."""
    tail = HEADERS[mode].replace("|", "\r\n")
    taken = []
    with processes.pinned(processes.LOAD_CORE):
        connection = None
        for n in range(_IDLE_REQUESTS):
            request = f"GET {targets[n % len(targets)]}{tail}".encode()
            began = time.perf_counter()
            if connection is None:
                connection = socket.create_connection(("127.0.0.1", port))
            _exchange(connection, request)
            taken.append(time.perf_counter() - began)
            if mode == "close":
                connection.close()
                connection = None
            time.sleep(_IDLE_PAUSE_SECONDS)
        if connection is not None:
            connection.close()
    return in_milliseconds(taken[len(taken) // 10 :])  # the first warm up


def get(port: int, request: bytes) -> None:
    """One request on its own connection. Raises OSError, and BenchError unless the answer is a success."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        _exchange(connection, request)


def _exchange(connection: socket.socket, request: bytes) -> None:
    connection.sendall(request)
    answer = b""
    while not is_whole(answer):
        data = connection.recv(65536)
        if not data:
            raise BenchError(f"the connection was closed: {answer[:300]!r}")
        answer += data
    if not is_success(answer):
        raise BenchError(f"refused: {answer[:300]!r}")


def _paced(section: Section, target: Target, load: Load, mode: str, rate: float) -> None:
    with generator("loadtest.bench.open_loop", target, load, mode, rate, "--connections", "1024") as run:
        found = result(target, run)
    if found["sent"] < rate * load.seconds * _TOLERANCE:
        section.remarks.append(
            f"- {mode}: the load could not keep up with {rate:,.0f} requests/s: {found['sent']:,} sent"
        )
    # Unanswered requests are in no percentile, so they are counted.
    lost = found["refused"] + found["reset"] + found["unanswered"] + found["unsent"]
    words = f"{mode}, {rate:,.0f} requests/s ({SATURATION:.0%} of that), open loop"
    section.find(f"{words}: p50", found["answered_ms"]["p50"], "ms")
    section.find(f"{words}: p99", found["answered_ms"]["p99"], "ms", 10)
    section.find(f"{words}: p99.9", found["answered_ms"]["p99.9"], "ms")
    section.find(f"{words}: send delay of the load generator, p99", found["late_ms"]["p99"], "ms")
    section.find(f"{words}: not answered", lost, f"of {found['sent']:,}", 0)


@contextmanager
def generator(
    module: str, target: Target, load: Load, mode: str, rate: float, *options: str
) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", module, "--port", str(target.port), "--mode", mode]
    command += ["--targets", str(load.targets_file), "--rate", str(rate), "--seconds", str(load.seconds)]
    with processes.pinned(processes.LOAD_CORE):
        run = subprocess.Popen(
            [*command, "--offset", str(target.sent), *options], cwd=processes.ROOT, stdout=subprocess.PIPE, text=True
        )
        try:
            yield run
        finally:
            run.kill()
            run.wait()


def result(target: Target, run: "subprocess.Popen[str]") -> dict[str, Any]:
    output, _ = run.communicate(timeout=120)
    try:
        found: dict[str, Any] = json.loads(output.removeprefix(f"{OFFERED}\n"))
    except ValueError:
        raise BenchError(f"the load ended with {run.returncode}: {output[-300:]}") from None
    target.sent += found["sent"]
    return found
