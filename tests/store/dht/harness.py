"""Nodes of the DHT as they save their status."""

from dataclasses import replace
from typing import Any

from tests.store.harness import START
from tracker.store.dht.nodes import NodeStatus
from tracker.store.dht.torrents import Participation

STATUS = NodeStatus(
    name="host.example",
    mode="public",
    started=START - 100,
    saved=START,
    last_answer=START - 5,
    ids={4: b"a" * 20, 6: b"b" * 20},
    externals={4: "192.0.2.1"},
    buckets={4: {0: 80, 17: 2}, 6: {}},
    hashes=3,
    peers=7,
    packets_in=11,
    packets_out=12,
    bytes_in=1300,
    bytes_out=1400,
    dropped={"port 0": 1, "over the limit of its address": 2},
    lookups={"answered": 5, "unanswered": 1},
    participation=Participation(registered=40, looked_at=40, part=1, unknown=30),
)


def status(**changes: Any) -> NodeStatus:
    """``STATUS``, with changes."""
    return replace(STATUS, **changes)
