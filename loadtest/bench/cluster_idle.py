"""CPU time of an unused private tracker: with 64 shards on a cluster of three, and with one store."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from loadtest.bench import processes
from loadtest.bench.cluster_sides import Stores, one_store, sharded
from loadtest.bench.sections import Section

SHARDS = 64
GOAL = 3.0
_SETTLE_SECONDS = 20.0


def measure_idle(directory: Path, *, seconds: float) -> Section:
    """Both at the same time: CPU time is counted for each process."""
    section = Section("An unused private tracker")
    with ExitStack() as stack:
        sides: list[tuple[Stores, int]] = []
        for stores in (stack.enter_context(one_store(directory)), stack.enter_context(sharded(SHARDS))):
            (place := directory / stores.name.replace(" ", "-")).mkdir()
            settings = {**stores.settings, "TRACKER_USERS__PRIVATE": "required"}
            pid, _ = stack.enter_context(processes.tracker(place, **settings))
            sides.append((stores, pid))
        time.sleep(_SETTLE_SECONDS)
        before = [_used(stores, pid) for stores, pid in sides]
        began = time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - began
        for (stores, pid), used in zip(sides, before, strict=True):
            tracker, store, commands = (
                (now - then) / passed for now, then in zip(_used(stores, pid), used, strict=True)
            )
            goal = GOAL if stores.nodes is not None else None
            section.find(f"{stores.name}: tracker", 100 * tracker, "% of a core", goal)
            section.find(f"{stores.name}: store, all nodes", 100 * store, "% of a core", goal)
            section.find(f"{stores.name}: commands", commands, "a second")
    return section


def _used(stores: Stores, pid: int) -> Sequence[float]:
    """CPU seconds of the tracker and of the store, and commands, so far."""
    store = sum(map(processes.cpu_of, stores.pids))
    return processes.cpu_of(pid), store, stores.statistics("stats", "total_commands_processed")
