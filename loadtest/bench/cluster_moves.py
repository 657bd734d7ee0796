"""One of 16 shards moves to another node under 500 announces a second: at once, as Valkey 9 does, and key by key."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import uvloop

from loadtest.bench import processes
from loadtest.bench.cluster_sides import Stores, sharded
from loadtest.bench.latency import generator, result
from loadtest.bench.loader import BenchError, send_all
from loadtest.bench.measure import Load
from loadtest.bench.population import announce_target, make_peers
from loadtest.bench.sections import Section
from loadtest.bench.targets import Target
from loadtest.cluster import Node
from tracker.store.schema.keys import shard_prefixes

SHARDS, RATE = 16, 500
PREFIXES = shard_prefixes("t:", SHARDS)
MOVED = PREFIXES[3]
GOAL_SECONDS = 1.0
_CONNECTIONS = 256


def measure_moves(directory: Path, *, peers: int, seconds: int) -> Section:
    """Every announce is a join of a new peer, so that each can be found in the store afterwards."""
    section = Section(f"A shard of {SHARDS} moves under {RATE} announces/s, {peers:,} peers at first")
    joins = [announce_target(peer, "started", peers_wanted=1) for peer in make_peers(peers + 4 * RATE * seconds, 2_000)]
    with ExitStack() as stack:
        stores = stack.enter_context(sharded(SHARDS))
        pid, port = stack.enter_context(processes.tracker(directory, **stores.settings))
        target = Target(stores.name, port, [pid, *stores.pids])
        uvloop.run(send_all(port, joins[:peers]))
        (targets := directory / "targets").write_text("\n".join(joins[peers:]))
        assert stores.nodes is not None
        moves = {"at once": stores.nodes.move, "key by key": stores.nodes.move_key_by_key}
        for name, move in moves.items():
            _measure_move(section, name, move, stores, target, Load(targets, _CONNECTIONS, seconds))
    return section


def _measure_move(
    section: Section, name: str, move: Callable[[str, Node], None], stores: Stores, target: Target, load: Load
) -> None:
    before, took = _peers(stores), 0.0

    def move_it() -> None:
        nonlocal took
        assert stores.nodes is not None
        time.sleep(load.seconds / 3)
        serving = stores.nodes.primary(MOVED)
        started = time.monotonic()
        move(MOVED, next(node for node in stores.nodes.nodes if node is not serving))
        took = time.monotonic() - started

    thread = threading.Thread(target=move_it)
    with generator(
        "loadtest.bench.open_loop", target, load, "keep-alive", RATE, "--connections", str(load.connections)
    ) as run:
        thread.start()
        found = result(target, run)
    thread.join()
    if not took:
        raise BenchError(f"the shard did not move {name}")
    joined = _peers(stores) - before
    at_once = name == "at once"
    section.find(f"{name}: the move", took, "s")
    worst = max(found[kind].get("worst", 0.0) for kind in ("answered_ms", "refused_ms")) / 1000
    section.find(f"{name}: the longest call", worst, "s", GOAL_SECONDS)
    section.find(f"{name}: p99", found["answered_ms"]["p99"], "ms")
    lost = found["reset"] + found["unanswered"] + found["unsent"]
    section.find(f"{name}: announces without an answer", lost, f"of {found['sent']:,}", 0)
    section.find(f"{name}: refused with a retry time", found["refused"], "", 0 if at_once else None)
    section.find(f"{name}: answered, but not in the store", max(0, found["answered"] - joined), "", 0)


def _peers(stores: Stores) -> int:
    """All peers in the store."""
    total = 0
    for prefix in PREFIXES:
        for kind in ("seeders", "leechers"):
            assert stores.nodes is not None
            key = f"{prefix}stats:{kind}"
            total += int(stores.nodes.primary(key).ask("GET", key) or 0)
    return total
