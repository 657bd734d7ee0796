"""Open-loop UDP load generator: `python -m loadtest.bench.udp_load --help`; prints one line of JSON.

Announces follow a schedule (Poisson), as those of open_loop.py, and latency counts from the due time. One socket has a
connection id and sends announces; the transaction id of each tells which announce a reply answers. With ``--flood``
nothing is measured: packets that prove no address are sent at that rate.
"""

import argparse
import contextlib
import gc
import itertools
import json
import random
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address
from typing import Any

from loadtest.bench.open_loop import OFFERED
from loadtest.bench.percentiles import in_milliseconds
from loadtest.bench.population import PEERS_WANTED, TORRENT_BYTES, Peer, make_peers, make_workload
from tracker.wire.udp import ANNOUNCE, CONNECT, PROTOCOL_ID

GIVE_UP_SECONDS, CONNECT_SECONDS, CONNECTS = 2.0, 0.5, 20
_RECEIVE_BUFFER = 16 * 1024 * 1024
_MAX_READ = 64
_CONNECT = struct.pack(">QII", PROTOCOL_ID, CONNECT, 1)
_OPTIONS = b"\x02\x09/announce"
GARBAGE = b"no tracker packet: its action is unknown........"
FLOODS, FORGED = ("garbage", "connect", "invalid"), "forged"
"""Forged packets are connect requests from many addresses of loopback."""
_FORGED_ADDRESSES, _NEW_CLIENTS, _NEW_TRIES = 500, 40, 3


class UdpLoad:
    """Sends announces of ``peers`` in a cycle to ``port`` of loopback."""

    def __init__(self, port: int, peers: Sequence[Peer]) -> None:
        self._socket = socket.socket(type=socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        self._socket.connect(("127.0.0.1", port))
        connection_id = self._connect()
        self._packets = [announce_packet(connection_id, peer) for peer in peers]
        self._socket.setblocking(False)
        self._due: dict[int, float] = {}
        self.answered: list[float] = []
        self.late: list[float] = []
        self.refused = self.unsent = self.sent = self.answer_bytes = 0
        self.answered_in_time = 0
        """Answers before the last due time; later ones would make a slow server look fast."""

    def _connect(self) -> bytes:
        """A connection id. The request is repeated, because a flood may be under way."""
        self._socket.settimeout(CONNECT_SECONDS)
        for _ in range(CONNECTS):
            self._socket.send(_CONNECT)
            with contextlib.suppress(TimeoutError):
                return self._socket.recv(64)[8:16]
        raise TimeoutError("no connection id")

    def run(self, rate: float, seconds: float, seed: int = 1) -> None:
        clock = time.perf_counter
        began = clock()
        for due in _schedule(rate, seconds, seed):
            self._read()  # also when it is late
            while clock() < began + due:
                self._read()
            self._send(began + due)
        self.answered_in_time = len(self.answered)
        print(OFFERED, flush=True)
        give_up = clock() + GIVE_UP_SECONDS
        while self._due and clock() < give_up:
            self._read()

    def _send(self, due: float) -> None:
        packet = self._packets[self.sent % len(self._packets)]
        transaction = self.sent
        self.sent += 1
        self.late.append(time.perf_counter() - due)
        try:
            self._socket.send(packet[:12] + transaction.to_bytes(4, "big") + packet[16:])
        except OSError:
            self.unsent += 1
            return
        self._due[transaction] = due

    def _read(self) -> None:
        for _ in range(_MAX_READ):
            try:
                reply = self._socket.recv(2048)
            except OSError:
                return
            due = self._due.pop(int.from_bytes(reply[4:8], "big"), None)
            if due is None:
                continue
            if reply[:4] == b"\0\0\0\1":
                self.answered.append(time.perf_counter() - due)
                self.answer_bytes += len(reply)
            else:
                self.refused += 1

    def summary(self) -> dict[str, Any]:
        return {
            "sent": self.sent,
            "answered": len(self.answered),
            "answered_in_time": self.answered_in_time,
            "refused": self.refused,
            "unanswered": len(self._due),
            "unsent": self.unsent,
            "answer_bytes": self.answer_bytes / max(len(self.answered), 1),
            "answered_ms": in_milliseconds(self.answered),
            "late_ms": in_milliseconds(self.late),
            "cpu_seconds": time.process_time(),
        }


def announce_packet(connection_id: bytes, peer: Peer) -> bytes:
    """A regular announce, as libtorrent sends it: with the path of the URL."""
    left = peer.bytes_left
    numbers = (TORRENT_BYTES - left, left, (TORRENT_BYTES - left) // 2, 0, 0, int(peer.key, 16))
    fields = struct.pack(">QQQIIIiH", *numbers, PEERS_WANTED, peer.port)
    head = connection_id + struct.pack(">II", ANNOUNCE, 0)
    return head + peer.info_hash + peer.peer_id + fields + _OPTIONS


def _schedule(rate: float, seconds: float, seed: int) -> Iterator[float]:
    """Due times, in seconds from the start."""
    gaps, due = random.Random(seed).expovariate, 0.0
    while (due := due + gaps(rate)) < seconds:
        yield due


def flood(port: int, kind: str, rate: float, seconds: float) -> dict[str, Any]:
    """Sends packets that prove no address, and reads no reply."""
    packets = {
        "garbage": GARBAGE,
        "connect": _CONNECT,
        FORGED: _CONNECT,
        "invalid": announce_packet(b"\x81" + bytes(7), make_peers(1, 1)[0]),
    }
    sent, packet = 0, packets[kind]
    with contextlib.ExitStack() as stack:
        senders = [
            stack.enter_context(_sender(port, each)) for each in range(_FORGED_ADDRESSES if kind == FORGED else 1)
        ]
        began = time.perf_counter()
        for due, sender in zip(_schedule(rate, seconds, 2), itertools.cycle(senders), strict=False):
            while time.perf_counter() < began + due:
                pass
            try:
                sender.send(packet)
                sent += 1
            except OSError:
                continue
    return {"sent": sent, "cpu_seconds": time.process_time()}


def new_clients(port: int) -> dict[str, Any]:
    """How many of 40 clients at other addresses get a connection id. Each tries three times, 0.5 s apart."""
    connected = 0
    for number in range(_NEW_CLIENTS):
        with _sender(port, _FORGED_ADDRESSES + number) as client:
            client.settimeout(CONNECT_SECONDS)
            for _ in range(_NEW_TRIES):
                client.send(_CONNECT)
                with contextlib.suppress(TimeoutError):
                    connected += len(client.recv(64)) == 16
                    break
    return {"connected": connected, "of": _NEW_CLIENTS}


def _sender(port: int, number: int) -> socket.socket:
    """A socket at an address of its own, the first of which is 127.0.0.1."""
    sender = socket.socket(type=socket.SOCK_DGRAM)
    sender.bind((str(IPv4Address("127.0.0.1") + number), 0))
    sender.connect(("127.0.0.1", port))
    sender.setblocking(False)
    return sender


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="packets due per second")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--peers", type=int, default=20_000)
    parser.add_argument("--torrents", type=int, default=1_000)
    parser.add_argument("--flood", choices=[*FLOODS, FORGED])
    parser.add_argument("--new-clients", action="store_true", help="only ask for connection ids, from 40 addresses")
    options = parser.parse_args()
    gc.collect()
    gc.disable()
    if options.flood:
        print(json.dumps(flood(options.port, options.flood, options.rate, options.seconds)))
        return
    if options.new_clients:
        print(json.dumps(new_clients(options.port)))
        return
    present = make_workload(options.peers, options.torrents, options.peers).present
    load = UdpLoad(options.port, present)
    load.run(options.rate, options.seconds)
    print(json.dumps(load.summary()))


if __name__ == "__main__":
    main()
