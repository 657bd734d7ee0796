"""A tracker at three times its maximum rate: how much it still serves, and how the rest is refused."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.bench import processes
from loadtest.bench.latency import CLOSE, generator, get, prepared, result
from loadtest.bench.loader import BenchError
from loadtest.bench.measure import Load, Measurements, check, measure
from loadtest.bench.sections import Section
from loadtest.bench.targets import MODES, Target

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


def _overloaded(section: Section, target: Target, load: Load, mode: str, maximum: Measurements) -> None:
    before = sum(processes.resident_by_part(target.pids).values())
    rate, spent = maximum["requests_per_s"], _cpu_seconds(target)
    with _watched(target) as sizes, generator("loadtest.bench.rush", target, load, mode, rate * OFFERED_TIMES) as run:
        assert run.stdout is not None
        run.stdout.readline()
        recovery = _recovery(target.port)
        found = result(target, run)
    sent, spent = found["sent"], _cpu_seconds(target) - spent
    section.find(f"{mode}: offered", sent / load.seconds / rate, f"times {rate:,.0f} requests/s")
    section.find(f"{mode}: send delay of the load generator, p99", found["late_ms"]["p99"], "ms")
    section.find(f"{mode}: answered, relative to that maximum", found["steady_rate"] / rate, "times", 0.9, more=True)
    cost_factor = spent / max(found["answered"], 1) * 1e6 / (maximum["server_us"] + maximum["store_us"])
    section.find(f"{mode}: CPU per answer, refusals included, relative to that at the maximum", cost_factor, "times")
    for fate, words, goal in (
        ("answered", "p99 of answers", 1),
        ("refused", "p99 of failures", None),
        ("closed", "p99 of closed connections", None),
    ):
        if found[fate]:
            section.find(f"{mode}: {words}", found[f"{fate}_ms"]["p99"] / 1000, "s", goal)
    section.find(f"{mode}: answered with a failure", found["refused"], f"of {sent:,}")
    section.find(f"{mode}: connection closed or reset", found["closed"], f"of {sent:,}")
    section.find(f"{mode}: no answer for 5 s", found["gave_up"], f"of {sent:,}")
    section.find(f"{mode}: peak memory, relative to before", max(sizes) / before, "times")
    section.find(f"{mode}: recovered after", recovery, "s", 2)


def _cpu_seconds(target: Target) -> float:
    return sum(cpu.user + cpu.kernel for cpu in processes.cpu_by_part(target.pids).values())


def _recovery(port: int) -> float:
    """Seconds until single requests are answered quickly again."""
    request = f"GET /scrape?info_hash={'%01' * 20}{CLOSE}".encode()
    began, quick = time.perf_counter(), 0
    while quick < _RECOVERED_TIMES:
        sent = time.perf_counter()
        if sent - began > _GIVE_UP_SECONDS:
            return _GIVE_UP_SECONDS
        try:
            get(port, request)
        except (OSError, BenchError):
            quick = 0
            continue
        quick = quick + 1 if time.perf_counter() - sent < _RECOVERED_SECONDS else 0
    return time.perf_counter() - began


@contextmanager
def _watched(target: Target) -> Iterator[list[int]]:
    """Samples the memory of the target (bytes), several times a second."""
    sizes, over = [sum(processes.resident_by_part(target.pids).values())], threading.Event()

    def sample() -> None:
        while not over.wait(0.25):
            sizes.append(sum(processes.resident_by_part(target.pids).values()))

    watching = threading.Thread(target=sample)
    watching.start()
    try:
        yield sizes
    finally:
        over.set()
        watching.join()
