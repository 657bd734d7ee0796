"""How long an answer takes: of an idle tracker, of one at 70 % of what it can do, and of one that is asked for three times as much."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from bench import processes
from bench.loader import BenchError, send_all
from bench.measure import HEADERS, Load, check, measure
from bench.open_loop import OFFERED, is_success, is_whole
from bench.percentiles import in_milliseconds
from bench.population import announce_target, make_workload
from bench.sections import Section
from bench.targets import FIRST, MODES, Target

SATURATION, OVERLOAD = 0.7, 3.0
CROWD = 8192
"""Connections of the overload."""
_IDLE_REQUESTS, _IDLE_PAUSE_SECONDS = 3000, 0.001
_RECOVERED_SECONDS, _RECOVERED_TIMES, _GIVE_UP_SECONDS = 0.01, 5, 30.0
_TOLERANCE = 0.9
"""Below this share of the rate asked for, a paced load is not what it says."""


def measure_latency(directory: Path, seconds: int, peers: int, torrents: int) -> list[Section]:
    workload = make_workload(peers, torrents, peers)
    (targets := directory / "targets").write_text("\n".join(workload.targets))
    with FIRST.start(directory, torrents) as target:
        processes.place(target.pids, processes.cores())
        joins = [announce_target(peer, "started", peers_wanted=1) for peer in workload.present]
        uvloop.run(send_all(target.port, joins))
        processes.place(target.pids, {processes.cores()[processes.SERVER_CORE]})
        processes.wait_until_idle(target.pids)
        load = Load(targets, 64, seconds)
        regular = [
            each for each in workload.targets if "&event=" not in each and each.startswith("/announce")
        ]
        sections = [Section(f"Latency, {peers:,} peers in {torrents:,} torrents"), Section("Overload")]
        for mode in MODES:
            idle = _idle(target.port, regular, mode)
            goal = 0.35 if mode == "keep-alive" else None
            sections[0].find(f"{mode}, idle, one connection: p50", idle["p50"], "ms", goal)
            sections[0].find(f"{mode}, idle, one connection: p99", idle["p99"], "ms")
        for mode in MODES:
            check(target, mode, load)
            most = measure(target, mode, load)["requests_per_s"]
            sections[0].find(f"{mode}: most requests per second, closed loop", most, "")
            _paced(sections[0], target, load, mode, most * SATURATION)
            _overloaded(sections[1], target, load, mode, most)
        return sections


def _idle(port: int, targets: list[str], mode: str) -> dict[str, float]:
    """Milliseconds of single requests, one after the other with pauses."""
    tail = HEADERS[mode].replace("|", "\r\n")
    taken = []
    with processes.pinned(processes.LOAD_CORE):
        connection = None
        for n in range(_IDLE_REQUESTS):
            request = f"GET {targets[n % len(targets)]}{tail}".encode()
            began = time.perf_counter()
            if connection is None:
                connection = socket.create_connection(("127.0.0.1", port))
            _ask(connection, request)
            taken.append(time.perf_counter() - began)
            if mode == "close":
                connection.close()
                connection = None
            time.sleep(_IDLE_PAUSE_SECONDS)
        if connection is not None:
            connection.close()
    return in_milliseconds(taken[len(taken) // 10 :])  # the first are for warming up


def _ask(connection: socket.socket, request: bytes) -> None:
    """Raises BenchError unless the answer is a success."""
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
    with _generator(target, load, mode, rate, "--connections", "1024") as run:
        found = _finish(target, run)
    if found["sent"] < rate * load.seconds * _TOLERANCE:
        section.remarks.append(
            f"- {mode}: the load could not keep up with {rate:,.0f} requests/s: {found['sent']:,} sent"
        )
    # One request in a hundred more or less that is not answered at all would be in no percentile.
    lost = found["refused"] + found["reset"] + found["unanswered"] + found["unsent"]
    words = f"{mode}, {rate:,.0f} requests/s ({SATURATION:.0%} of that), open loop"
    section.find(f"{words}: p50", found["answered_ms"]["p50"], "ms")
    section.find(f"{words}: p99", found["answered_ms"]["p99"], "ms", 10)
    section.find(f"{words}: p99.9", found["answered_ms"]["p99.9"], "ms")
    section.find(f"{words}: sent late by the load itself, p99", found["late_ms"]["p99"], "ms")
    section.find(f"{words}: not answered", lost, f"of {found['sent']:,}", 0)


def _overloaded(section: Section, target: Target, load: Load, mode: str, most: float) -> None:
    before = sum(processes.resident_by_part(target.pids).values())
    with _watched(target) as sizes:
        options = ("--drop", "--connections", str(CROWD))
        with _generator(target, load, mode, most * OVERLOAD, *options) as run:
            assert run.stdout is not None
            run.stdout.readline()
            recovery = _recovery(target.port)
            found = _finish(target, run)
    sent = found["sent"]
    rate = sent / load.seconds
    section.find(f"{mode}: offered", rate / most, f"times {most:,.0f} requests/s")
    section.find(f"{mode}: answered, of that maximum", found["steady_rate"] / most, "times", 0.9, more=True)
    slowest = found["answered_ms"].get("p99", float("inf"))
    section.find(f"{mode}: p99 of the answered", slowest / 1000, "s", 1)
    refusals = found["refused_ms"].get("p99", 0.0) / 1000
    section.find(f"{mode}: refused with an answer", found["refused"], f"of {sent:,}, p99 {refusals:.2f} s")
    section.find(f"{mode}: connections reset", found["reset"], f"of {sent:,}")
    section.find(f"{mode}: not answered at all", found["unanswered"], f"of {sent:,}")
    section.find(f"{mode}: memory, most over before", max(sizes) / before, "times")
    section.find(f"{mode}: as quick as before again after", recovery, "s", 2)


def _recovery(port: int) -> float:
    """Seconds until single announces are answered at once again."""
    request = f"GET /scrape?info_hash={'%01' * 20}{HEADERS['close'].replace('|', chr(13) + chr(10))}".encode()
    began, quick = time.perf_counter(), 0
    while quick < _RECOVERED_TIMES:
        asked = time.perf_counter()
        if asked - began > _GIVE_UP_SECONDS:
            return _GIVE_UP_SECONDS
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as connection:
                _ask(connection, request)
        except (OSError, BenchError):
            quick = 0
            continue
        quick = quick + 1 if time.perf_counter() - asked < _RECOVERED_SECONDS else 0
    return time.perf_counter() - began


@contextmanager
def _generator(
    target: Target, load: Load, mode: str, rate: float, *options: str
) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "bench.open_loop", "--port", str(target.port), "--mode", mode]
    command += ["--targets", str(load.targets_file), "--rate", str(rate), "--seconds", str(load.seconds)]
    with processes.pinned(processes.LOAD_CORE):
        run = subprocess.Popen(
            [*command, "--offset", str(target.sent), *options],
            cwd=processes.ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield run
        finally:
            run.kill()
            run.wait()


def _finish(target: Target, run: "subprocess.Popen[str]") -> dict[str, Any]:
    said, _ = run.communicate(timeout=120)
    try:
        found: dict[str, Any] = json.loads(said.removeprefix(f"{OFFERED}\n"))
    except ValueError:
        raise BenchError(f"the load ended with {run.returncode}: {said[-300:]}") from None
    target.sent += found["sent"]
    return found


@contextmanager
def _watched(target: Target) -> Iterator[list[int]]:
    """Bytes the target occupies, several times a second."""
    sizes, over = [sum(processes.resident_by_part(target.pids).values())], threading.Event()

    def look() -> None:
        while not over.wait(0.25):
            sizes.append(sum(processes.resident_by_part(target.pids).values()))

    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield sizes
    finally:
        over.set()
        watching.join()
