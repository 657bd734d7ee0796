"""A load that does not wait for answers: `python -m bench.open_loop --help`; prints one line of JSON.

wrk sends the next request when the last was answered, so a server that stalls is asked less, and the stall is seen by
one request in each connection. Here requests are due by a schedule of their own (Poisson), and a latency is counted
from the moment a request was due, whether or not it could be sent then. Sockets and epoll without asyncio, and no sleep
between two looks, because this has a core of its own and its clock must not be coarser than what it measures.
"""

import argparse
import errno
import gc
import json
import random
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bench.measure import HEADERS
from bench.percentiles import in_milliseconds
from tracker.descriptors import raise_limit

GIVE_UP_SECONDS = 5.0
OFFERED = "offered"
"""Printed when the last request was due, before the last answers come."""


@dataclass(slots=True)
class Exchange:
    """A request under way on a socket, or none when ``due`` is None."""

    socket: socket.socket
    due: float | None = None
    unsent: bytes = b""
    answer: bytes = b""


@dataclass(slots=True)
class Tally:
    """What became of the requests; seconds from when each was due."""

    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    reset: int = 0
    late: list[float] = field(default_factory=list)
    """How long after it was due each was sent."""
    unsent: int = 0
    """Due when every connection allowed was taken, or when the system gave no more sockets."""


class Load:
    """Sends ``requests`` round and round to ``port`` at ``rate`` a second for ``seconds``."""

    def __init__(
        self,
        port: int,
        requests: list[bytes],
        *,
        keep_alive: bool,
        connections: int,
        offset: int = 0,
    ) -> None:
        self._address = ("127.0.0.1", port)
        self._requests = requests
        self._next = offset
        self._keep_alive = keep_alive
        self._connections = connections
        self._epoll = select.epoll()
        self._under_way: dict[int, Exchange] = {}
        self._free: list[Exchange] = []
        self._open = 0
        self._waiting: deque[float] = deque()
        self.tally = Tally()
        self.sent = 0
        self.steady_rate = 0.0
        """Answers a second in the second half of the time, while there was no end of requests."""

    def run(self, rate: float, seconds: float, seed: int = 1) -> None:
        gaps = random.Random(seed).expovariate
        clock = time.perf_counter
        due = began = clock()
        half, end = began + seconds / 2, began + seconds
        answered, since = 0, began
        while due < end:
            now = clock()
            if now >= half:
                half, answered, since = end + 1, len(self.tally.answered), now
            while due <= now and due < end:
                self._offer(due)
                due += gaps(rate)
            self._look(0)
        self.steady_rate = (len(self.tally.answered) - answered) / max(clock() - since, 1e-9)
        print(OFFERED, flush=True)
        give_up = clock() + GIVE_UP_SECONDS
        while self._under_way and clock() < give_up:
            self._look(0.01)

    def close(self) -> None:
        for exchange in (*self._free, *self._under_way.values()):
            exchange.socket.close()
        self._epoll.close()

    def figures(self) -> dict[str, Any]:
        tally = self.tally
        return {
            "sent": self.sent,
            "answered": len(tally.answered),
            "refused": len(tally.refused),
            "reset": tally.reset,
            "unanswered": len(self._under_way),
            "steady_rate": self.steady_rate,
            "unsent": tally.unsent + len(self._waiting),
            "answered_ms": in_milliseconds(tally.answered),
            "refused_ms": in_milliseconds(tally.refused),
            "late_ms": in_milliseconds(tally.late),
        }

    def _offer(self, due: float) -> None:
        if self._free:
            self._send(self._free.pop(), due)
        elif self._open < self._connections:
            self._connect(due)
        else:
            self._waiting.append(due)

    def _connect(self, due: float) -> None:
        try:
            made = socket.socket()
            made.setblocking(False)
            failed = made.connect_ex(self._address)
        except OSError:
            self.tally.unsent += 1
            return
        if failed not in (0, errno.EINPROGRESS):
            made.close()
            self.tally.unsent += 1
            return
        self._open += 1
        self._epoll.register(made, select.EPOLLIN)
        self._send(Exchange(made), due)

    def _send(self, exchange: Exchange, due: float) -> None:
        self.tally.late.append(time.perf_counter() - due)
        exchange.due, exchange.answer = due, b""
        exchange.unsent = self._requests[self._next % len(self._requests)]
        self._next += 1
        self.sent += 1
        self._under_way[exchange.socket.fileno()] = exchange
        self._flush(exchange)

    def _flush(self, exchange: Exchange) -> None:
        try:
            exchange.unsent = exchange.unsent[exchange.socket.send(exchange.unsent) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            if error.errno != errno.ENOTCONN:  # else it is connecting
                self._end(exchange, answered=False)
                return
        wanted = select.EPOLLIN | (select.EPOLLOUT if exchange.unsent else 0)
        if exchange.unsent:
            self._epoll.modify(exchange.socket, wanted)

    def _look(self, timeout: float) -> None:
        for number, event in self._epoll.poll(timeout):
            exchange = self._under_way.get(number)
            if exchange is None:
                self._drop_idle(number)
            elif event & select.EPOLLOUT and exchange.unsent:
                self._epoll.modify(number, select.EPOLLIN)
                self._flush(exchange)
            else:
                self._read(exchange)

    def _read(self, exchange: Exchange) -> None:
        try:
            data = exchange.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end(exchange, answered=False)
            return
        exchange.answer += data
        if is_whole(exchange.answer):
            self._end(exchange, answered=True)

    def _end(self, exchange: Exchange, *, answered: bool) -> None:
        taken = time.perf_counter() - (exchange.due or 0.0)
        del self._under_way[exchange.socket.fileno()]
        if not answered:
            self.tally.reset += 1
        elif is_success(exchange.answer):
            self.tally.answered.append(taken)
        else:
            self.tally.refused.append(taken)
        if answered and self._keep_alive and not is_last(exchange.answer):
            exchange.due = None
            self._free.append(exchange)
        else:
            exchange.socket.close()
            self._open -= 1
        if self._waiting:
            self._offer(self._waiting.popleft())

    def _drop_idle(self, number: int) -> None:
        """The server closed a connection that waits for its next request."""
        gone = [exchange for exchange in self._free if exchange.socket.fileno() == number]
        for exchange in gone:
            self._free.remove(exchange)
            exchange.socket.close()
            self._open -= 1


def is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    _, found, length = head.lower().partition(b"content-length:")
    return bool(found) and len(body) >= int(length.split(b"\r\n", 1)[0])


def is_success(answer: bytes) -> bool:
    return answer.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")) and b"14:failure reason" not in answer


def is_last(answer: bytes) -> bool:
    """The server says that it will close the connection."""
    return b"connection: close" in answer.partition(b"\r\n\r\n")[0].lower()


class Generator(Protocol):
    """A load that is offered, whatever becomes of it."""

    def run(self, rate: float, seconds: float) -> None: ...

    def figures(self) -> dict[str, Any]: ...


def command(description: str | None, most: int, make: Callable[..., Generator]) -> None:
    """Offers the load that ``make`` gives, from ``most`` connections at a time if nobody says otherwise, and prints what became of it."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--targets", type=Path, required=True, help="request targets, one a line")
    parser.add_argument("--mode", choices=list(HEADERS), required=True)
    parser.add_argument("--rate", type=float, required=True, help="requests due in a second")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--connections", type=int, default=most, help=f"most at a time ({most})")
    parser.add_argument("--offset", type=int, default=0, help="requests of the round already sent")
    asked = parser.parse_args()
    raise_limit()
    tail = HEADERS[asked.mode].replace("|", "\r\n")
    requests = [f"GET {target}{tail}".encode() for target in asked.targets.read_text().splitlines()]
    load = make(
        asked.port,
        requests,
        keep_alive=asked.mode == "keep-alive",
        connections=asked.connections,
        offset=asked.offset,
    )
    gc.collect()
    gc.disable()
    load.run(asked.rate, asked.seconds)
    print(json.dumps(load.figures()))


if __name__ == "__main__":
    command(__doc__, 512, Load)
