"""Passes the counts of the nodes of the DHT on to the telemetry of the process."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass

from tracker.dht.node import DhtNode
from tracker.runtime.telemetry import Telemetry
from tracker.store.dht.nodes import state_of
from tracker.store.dht.torrents import Participation

HEALTH = "dht_up", "dht_answered_at", "dht_torrents"
_FLUSH_SECONDS = 1.0


@dataclass(eq=False)
class DhtTelemetry:
    """``nodes`` by 4 and 6. ``clock`` returns epoch seconds, ``timer`` the time of the nodes."""

    telemetry: Telemetry
    nodes: Mapping[int, DhtNode]
    participation: Callable[[], Participation | None] = lambda: None
    _: KW_ONLY
    clock: Callable[[], float] = time.time
    timer: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._passed: dict[str, int] = {}
        self.telemetry.gauge("dht_nodes", lambda: sum(len(each.table) for each in self.nodes.values()))
        self.telemetry.gauge("dht_hashes", lambda: sum(len(each.announced) for each in self.nodes.values()))
        self.telemetry.gauge("dht_peers", lambda: sum(each.announced.peer_count for each in self.nodes.values()))

    def add_health(self) -> None:
        """Adds the gauges of nodes that run here: they start now."""
        started = self.timer()

        def up() -> float:
            return state_of(started, self._last_answer(), self.timer()) != "down"

        def answered_at() -> float:
            answered = self._last_answer()
            return 0 if answered is None else self.clock() - (self.timer() - answered)

        def torrents() -> float:
            counted = self.participation()
            return counted.estimate if counted is not None else 0

        for name, read in zip(HEALTH, (up, answered_at, torrents), strict=True):
            self.telemetry.gauge(name, read)

    def remove_health(self) -> None:
        """Removes these gauges: another tracker runs the nodes of this name."""
        for name in HEALTH:
            self.telemetry.remove_gauge(name)

    def _last_answer(self) -> float | None:
        answers = (node.table.last_answer for node in self.nodes.values())
        return max((at for at in answers if at is not None), default=None)

    async def run(self) -> None:
        """Flushes every second until cancelled."""
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            self.flush()

    def flush(self) -> None:
        """Passes on what was counted since the last call. For every second."""
        sums: dict[str, int] = {}
        for node in self.nodes.values():
            for name, number in counted(node):
                sums[name] = sums.get(name, 0) + number
        for name, number in sums.items():
            grown = number - self._passed.get(name, 0)
            if grown or name not in self._passed:  # also zeros, so that the first event shows as an increase
                self.telemetry.count(name, grown)
        self._passed = sums
        for node in self.nodes.values():
            while node.counts.seconds:
                query, seconds = node.counts.seconds.popleft()
                self.telemetry.observe(f"dht_query_seconds.{query}", seconds)


def counted(node: DhtNode) -> Iterator[tuple[str, int]]:
    """Names of telemetry, and the numbers since the start of the node."""
    for (query, outcome), number in node.counts.queries_in.items():
        yield f"dht.in.{query}.{outcome}", number
    for (query, outcome), number in node.counts.queries_out.items():
        yield f"dht.out.{query}.{outcome}", number
    for reason, number in node.counts.dropped.items():
        yield f"dht.dropped.{reason}", number
    yield "dht.packets.in", node.counts.packets_in
    yield "dht.packets.out", node.counts.packets_out
    yield "dht.bytes.in", node.counts.bytes_in
    yield "dht.bytes.out", node.counts.bytes_out
    for kind, entries in (("nodes", node.table.entries), ("hashes", node.announced.swarms)):
        yield f"dht.{kind}.added", entries.added
        yield f"dht.{kind}.dropped", entries.dropped
