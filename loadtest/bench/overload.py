"""A tracker that is asked for three times as much as it can do: how much it still does, and what becomes of the rest."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import processes
from bench.latency import CLOSE, ask, generator, prepared, result
from bench.loader import BenchError
from bench.measure import Figures, Load, check, measure
from bench.sections import Section
from bench.targets import MODES, Target

OFFERED_TIMES = 3.0
_RECOVERED_SECONDS, _RECOVERED_TIMES, _GIVE_UP_SECONDS = 0.01, 5, 30.0


def measure_overload(directory: Path, seconds: int, peers: int, torrents: int) -> list[Section]:
    with prepared(directory, peers, torrents) as (target, workload):
        load = Load(workload, 64, seconds)
        section = Section("Overload")
        for mode in MODES:
            check(target, mode, load)
            _overloaded(section, target, load, mode, measure(target, mode, load))
        return [section]


def _overloaded(section: Section, target: Target, load: Load, mode: str, at_most: Figures) -> None:
    before = sum(processes.resident_by_part(target.pids).values())
    most, spent = at_most["requests_per_s"], _cpu_seconds(target)
    with _watched(target) as sizes, generator("bench.rush", target, load, mode, most * OFFERED_TIMES) as run:
        assert run.stdout is not None
        run.stdout.readline()
        recovery = _recovery(target.port)
        found = result(target, run)
    sent, spent = found["sent"], _cpu_seconds(target) - spent
    section.find(f"{mode}: offered", sent / load.seconds / most, f"times {most:,.0f} requests/s")
    section.find(f"{mode}: sent late by the load itself, p99", found["late_ms"]["p99"], "ms")
    section.find(f"{mode}: answered, of that maximum", found["steady_rate"] / most, "times", 0.9, more=True)
    dearer = spent / max(found["answered"], 1) * 1e6 / (at_most["server_us"] + at_most["store_us"])
    section.find(f"{mode}: CPU for each answered, refusals included, to that at the maximum", dearer, "times")
    for fate, words, goal in (
        ("answered", "p99 of the answered", 1),
        ("refused", "p99 of those refused in words", None),
        ("closed", "p99 of those turned away", None),
    ):
        if found[fate]:
            section.find(f"{mode}: {words}", found[f"{fate}_ms"]["p99"] / 1000, "s", goal)
    section.find(f"{mode}: refused in words", found["refused"], f"of {sent:,}")
    section.find(f"{mode}: turned away or reset", found["closed"], f"of {sent:,}")
    section.find(f"{mode}: nothing heard for 5 s", found["gave_up"], f"of {sent:,}")
    section.find(f"{mode}: memory, most over before", max(sizes) / before, "times")
    section.find(f"{mode}: as quick as before again after", recovery, "s", 2)


def _cpu_seconds(target: Target) -> float:
    return sum(cpu.user + cpu.kernel for cpu in processes.cpu_by_part(target.pids).values())


def _recovery(port: int) -> float:
    """Seconds until single announces are answered at once again."""
    request = f"GET /scrape?info_hash={'%01' * 20}{CLOSE}".encode()
    began, quick = time.perf_counter(), 0
    while quick < _RECOVERED_TIMES:
        asked = time.perf_counter()
        if asked - began > _GIVE_UP_SECONDS:
            return _GIVE_UP_SECONDS
        try:
            ask(port, request)
        except (OSError, BenchError):
            quick = 0
            continue
        quick = quick + 1 if time.perf_counter() - asked < _RECOVERED_SECONDS else 0
    return time.perf_counter() - began


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
