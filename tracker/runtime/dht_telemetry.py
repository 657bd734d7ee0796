"""Passes the counts of the nodes of the DHT on to the telemetry of the process."""

import asyncio
from collections.abc import Iterator, Mapping

from tracker.dht.node import DhtNode
from tracker.runtime.telemetry import Telemetry

_FLUSH_SECONDS = 1.0


class DhtTelemetry:
    """``nodes`` by 4 and 6."""

    def __init__(self, telemetry: Telemetry, nodes: Mapping[int, DhtNode]) -> None:
        self._telemetry = telemetry
        self._nodes = nodes
        self._passed: dict[str, int] = {}
        telemetry.gauge("dht_nodes", lambda: sum(len(each.table) for each in self._nodes.values()))
        telemetry.gauge("dht_hashes", lambda: sum(len(each.announced) for each in self._nodes.values()))
        telemetry.gauge("dht_peers", lambda: sum(each.announced.peer_count for each in self._nodes.values()))

    async def run(self) -> None:
        """Flushes every second until cancelled."""
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            self.flush()

    def flush(self) -> None:
        """Passes on what was counted since the last call. For every second."""
        sums: dict[str, int] = {}
        for node in self._nodes.values():
            for name, number in counted(node):
                sums[name] = sums.get(name, 0) + number
        for name, number in sums.items():
            grown = number - self._passed.get(name, 0)
            if grown or name not in self._passed:  # also zeros, so that the first event shows as an increase
                self._telemetry.count(name, grown)
        self._passed = sums
        for node in self._nodes.values():
            for query, seconds in node.counts.take_seconds():
                self._telemetry.observe(f"dht_query_seconds.{query}", seconds)


def counted(node: DhtNode) -> Iterator[tuple[str, int]]:
    """Names of telemetry, and the numbers since the start of the node."""
    for (query, outcome), number in node.counts.queries_in.items():
        yield f"dht.in.{query}.{outcome}", number
    for (query, outcome), number in node.counts.queries_out.items():
        yield f"dht.out.{query}.{outcome}", number
    for reason, number in node.counts.dropped.items():
        yield f"dht.dropped.{reason}", number
    yield "dht.bytes.in", node.counts.bytes_in
    yield "dht.bytes.out", node.counts.bytes_out
    for kind, entries in (("nodes", node.table), ("hashes", node.announced)):
        yield f"dht.{kind}.added", entries.added
        yield f"dht.{kind}.dropped", entries.dropped
