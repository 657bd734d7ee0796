"""CPU time per announce with 16 shards on a cluster of three, and with one store, for the same announces in turn."""

import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loadtest.bench import processes
from loadtest.bench.cluster_sides import Stores, one_store, sharded
from loadtest.bench.latency import prepared
from loadtest.bench.measure import Load, Measurements, check, measure
from loadtest.bench.sections import Section
from loadtest.bench.targets import Kind, Target

SHARDS = 16
GOALS = {16: 1.3, 64: 1.3, 512: 1.15}
"""Requests in progress at a time, and the CPU time of an announce with shards, as a multiple of one store's."""


@dataclass(frozen=True, slots=True)
class _Side:
    stores: Stores
    target: Target
    targets: Path


def measure_cost(directory: Path, *, peers: int, torrents: int, rounds: int, seconds: int) -> Section:
    section = Section(f"CPU time per announce, {peers:,} peers in {torrents:,} torrents")
    with ExitStack() as stack:
        sides = [
            stack.enter_context(_side(stack.enter_context(stores), directory, peers, torrents))
            for stores in (one_store(directory), sharded(SHARDS))
        ]
        for connections in GOALS:
            _compare(section, sides, connections, rounds, seconds)
    return section


@contextmanager
def _side(stores: Stores, directory: Path, peers: int, torrents: int) -> Iterator[_Side]:
    (place := directory / stores.name.replace(" ", "-")).mkdir()
    kind = Kind(stores.name, "cluster", partial(_tracker, stores=stores))
    with prepared(place, peers, torrents, kind) as (target, targets):
        yield _Side(stores, target, targets)


@contextmanager
def _tracker(directory: Path, torrents: int, *, stores: Stores) -> Iterator[Target]:
    with processes.tracker(directory, **stores.settings) as (pid, port):
        yield Target(stores.name, port, [pid, *stores.pids])


def _compare(section: Section, sides: list[_Side], connections: int, rounds: int, seconds: int) -> None:
    found: dict[str, list[Measurements]] = {side.stores.name: [] for side in sides}
    for side in sides:
        check(side.target, "keep-alive", Load(side.targets, connections, seconds))
    for number in range(rounds):
        for side in sides if number % 2 else reversed(sides):
            found[side.stores.name].append(_run(side, Load(side.targets, connections, seconds)))
    for name, runs in found.items():
        what = f"{connections} connections, {name}"
        for part in ("server", "store"):
            section.find(f"{what}: {part}", _median(runs, f"{part}_us"), "µs")
        section.find(f"{what}: tracker and store", _median(runs, "total_us"), "µs")
        section.find(f"{what}: announces per call", _median(runs, "requests_per_call"), "")
    one, several = found.values()
    ratios = [mine["total_us"] / other["total_us"] for mine, other in zip(several, one, strict=True)]
    section.find(f"{connections} connections: cluster / one store", statistics.median(ratios), "", GOALS[connections])


def _run(side: _Side, load: Load) -> Measurements:
    """With the number of announces per call of the announce script, about: other functions are few."""
    before = side.stores.statistics("commandstats", "cmdstat_fcall", "calls")
    found = measure(side.target, "keep-alive", load)
    calls = side.stores.statistics("commandstats", "cmdstat_fcall", "calls") - before
    return found | {"requests_per_call": found["requests"] / max(1, calls)}


def _median(runs: list[Measurements], name: str) -> float:
    return statistics.median(run[name] for run in runs)
