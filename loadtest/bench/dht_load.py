"""Queries to a DHT node at a rate: `python -m loadtest.bench.dht_load --help`; prints one line of JSON.

The queries follow a schedule (Poisson) and ask for the peers of torrents of the population, in turn. Latency counts
from the due time. It sleeps between queries, because a busy load generator may share its core.
"""

import argparse
import json
import random
import socket
import time
from typing import Any

from loadtest.bench.percentiles import in_milliseconds
from loadtest.bench.population import info_hash_of
from tracker.bittorrent import InfoHash
from tracker.wire.krpc import GetPeers, NodeId, Query, encode_query

_GIVE_UP_SECONDS = 5.0
_PAUSE_SECONDS = 0.002
_RECEIVE_BUFFER = 16 * 1024 * 1024
_FIELD = b"1:t4:"


class DhtLoad:
    """Sends get_peers to ``port`` of loopback."""

    def __init__(self, port: int, torrents: int) -> None:
        self._socket = socket.socket(type=socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        self._socket.connect(("127.0.0.1", port))
        self._socket.setblocking(False)
        packets = [_packet(InfoHash(info_hash_of(number))) for number in range(torrents)]
        self._packets = [packet.partition(_FIELD + bytes(4)) for packet in packets]
        self._due: dict[bytes, float] = {}
        self._answered: list[float] = []
        self._sent = self._answer_bytes = 0

    def run(self, rate: float, seconds: float, seed: int = 3) -> None:
        gaps, clock = random.Random(seed).expovariate, time.perf_counter
        due = began = clock()
        while due < began + seconds:
            now = clock()
            while due <= now and due < began + seconds:
                self._send(due)
                due += gaps(rate)
            self._read()
            time.sleep(min(max(due - clock(), 0), _PAUSE_SECONDS))
        give_up = clock() + _GIVE_UP_SECONDS
        while self._due and clock() < give_up:
            self._read()
            time.sleep(_PAUSE_SECONDS)

    def summary(self) -> dict[str, Any]:
        return {
            "sent": self._sent,
            "answered": len(self._answered),
            "answer_bytes": self._answer_bytes / max(len(self._answered), 1),
            "answered_ms": in_milliseconds(self._answered),
        }

    def _send(self, due: float) -> None:
        before, _, after = self._packets[self._sent % len(self._packets)]
        transaction = self._sent.to_bytes(4, "big")
        self._sent += 1
        self._due[transaction] = due
        try:
            self._socket.send(before + _FIELD + transaction + after)
        except OSError:
            return  # counts as not answered

    def _read(self) -> None:
        while True:
            try:
                answer = self._socket.recv(2048)
            except OSError:
                return
            at = answer.rfind(_FIELD) + len(_FIELD)
            due = self._due.pop(answer[at : at + 4], None)
            if due is not None:
                self._answered.append(time.perf_counter() - due)
                self._answer_bytes += len(answer)


def _packet(info_hash: InfoHash) -> bytes:
    return encode_query(Query(bytes(4), NodeId(b"l" * 20), GetPeers(info_hash), version=b"LT\2\x11"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="queries due per second")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--torrents", type=int, default=500)
    options = parser.parse_args()
    load = DhtLoad(options.port, options.torrents)
    load.run(options.rate, options.seconds)
    print(json.dumps(load.summary()))


if __name__ == "__main__":
    main()
