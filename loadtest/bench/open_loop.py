"""Open-loop load generator: `python -m loadtest.bench.open_loop --help`; prints one line of JSON.

wrk sends the next request after the last answer. So a stalling server gets fewer requests, and one request per
connection sees the stall. Here requests follow a schedule (Poisson), and latency counts from the due time, whether or
not the request could be sent then. It uses sockets and epoll without asyncio, and polls without sleeping: it has
its own core, and its clock must be finer than what it measures.
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

from loadtest.bench.measure import HEADERS
from loadtest.bench.percentiles import in_milliseconds
from tracker.system.resources import raise_limit

GIVE_UP_SECONDS = 5.0
OFFERED = "offered"
"""Printed after the last due time, before the last answers."""


@dataclass(slots=True)
class Exchange:
    """A request in progress on a socket; none if ``due`` is None."""

    socket: socket.socket
    due: float | None = None
    unsent: bytes = b""
    answer: bytes = b""


@dataclass(slots=True)
class Results:
    """Results of the requests; seconds from the due time."""

    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    reset: int = 0
    late: list[float] = field(default_factory=list)
    """Delay between due time and sending."""
    unsent: int = 0
    """Due while all connections were in use, or the system had no more sockets."""


class Load:
    """Sends ``requests`` in a cycle to ``port`` at ``rate`` a second for ``seconds``."""

    def __init__(
        self,
        port: int,
        requests: list[bytes],
        *,
        keep_alive: bool,
        connections: int,
        offset: int = 0,
        give_up_seconds: float = GIVE_UP_SECONDS,
    ) -> None:
        self._give_up_seconds = give_up_seconds
        self._address = ("127.0.0.1", port)
        self._requests = requests
        self._next = offset
        self._keep_alive = keep_alive
        self._connections = connections
        self._epoll = select.epoll()
        self._in_progress: dict[int, Exchange] = {}
        self._free: list[Exchange] = []
        self._open = 0
        self._waiting: deque[float] = deque()
        self.results = Results()
        self.sent = 0
        self.steady_rate = 0.0
        """Answers per second in the second half of the run."""

    def run(self, rate: float, seconds: float, seed: int = 1) -> None:
        gaps = random.Random(seed).expovariate
        clock = time.perf_counter
        due = began = clock()
        half, end = began + seconds / 2, began + seconds
        answered, since = 0, began
        while due < end:
            now = clock()
            if now >= half:
                half, answered, since = end + 1, len(self.results.answered), now
            while due <= now and due < end:
                self._offer(due)
                due += gaps(rate)
            self._look(0)
        self.steady_rate = (len(self.results.answered) - answered) / max(clock() - since, 1e-9)
        print(OFFERED, flush=True)
        give_up = clock() + self._give_up_seconds
        while self._in_progress and clock() < give_up:
            self._look(0.01)

    def close(self) -> None:
        for exchange in (*self._free, *self._in_progress.values()):
            exchange.socket.close()
        self._epoll.close()

    def summary(self) -> dict[str, Any]:
        results = self.results
        return {
            "sent": self.sent,
            "answered": len(results.answered),
            "refused": len(results.refused),
            "reset": results.reset,
            "unanswered": len(self._in_progress),
            "steady_rate": self.steady_rate,
            "unsent": results.unsent + len(self._waiting),
            "answered_ms": in_milliseconds(results.answered),
            "refused_ms": in_milliseconds(results.refused),
            "late_ms": in_milliseconds(results.late),
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
            self.results.unsent += 1
            return
        if failed not in (0, errno.EINPROGRESS):
            made.close()
            self.results.unsent += 1
            return
        self._open += 1
        self._epoll.register(made, select.EPOLLIN)
        self._send(Exchange(made), due)

    def _send(self, exchange: Exchange, due: float) -> None:
        self.results.late.append(time.perf_counter() - due)
        exchange.due, exchange.answer = due, b""
        exchange.unsent = self._requests[self._next % len(self._requests)]
        self._next += 1
        self.sent += 1
        self._in_progress[exchange.socket.fileno()] = exchange
        self._flush(exchange)

    def _flush(self, exchange: Exchange) -> None:
        try:
            exchange.unsent = exchange.unsent[exchange.socket.send(exchange.unsent) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            if error.errno != errno.ENOTCONN:  # ENOTCONN: still connecting
                self._end(exchange, answered=False)
                return
        wanted = select.EPOLLIN | (select.EPOLLOUT if exchange.unsent else 0)
        if exchange.unsent:
            self._epoll.modify(exchange.socket, wanted)

    def _look(self, timeout: float) -> None:
        for number, event in self._epoll.poll(timeout):
            exchange = self._in_progress.get(number)
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
        del self._in_progress[exchange.socket.fileno()]
        if not answered:
            self.results.reset += 1
        elif is_success(exchange.answer):
            self.results.answered.append(taken)
        else:
            self.results.refused.append(taken)
        if answered and self._keep_alive and not is_last(exchange.answer):
            exchange.due = None
            self._free.append(exchange)
        else:
            exchange.socket.close()
            self._open -= 1
        if self._waiting:
            self._offer(self._waiting.popleft())

    def _drop_idle(self, number: int) -> None:
        """Closes an idle connection that the server closed."""
        closed = [exchange for exchange in self._free if exchange.socket.fileno() == number]
        for exchange in closed:
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
    """Whether the server announced that it closes the connection."""
    return b"connection: close" in answer.partition(b"\r\n\r\n")[0].lower()


class Generator(Protocol):
    """A load generator whose rate does not depend on the answers."""

    def run(self, rate: float, seconds: float) -> None: ...

    def summary(self) -> dict[str, Any]: ...


def command(description: str | None, connections: int, make: Callable[..., Generator]) -> None:
    """Runs the generator that ``make`` returns, and prints its results; ``connections`` is the default maximum."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--targets", type=Path, required=True, help="request targets, one a line")
    parser.add_argument("--mode", choices=list(HEADERS), required=True)
    parser.add_argument("--rate", type=float, required=True, help="requests due per second")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--connections", type=int, default=connections, help=f"maximum ({connections})")
    parser.add_argument("--offset", type=int, default=0, help="requests of the cycle already sent")
    options = parser.parse_args()
    raise_limit()
    tail = HEADERS[options.mode].replace("|", "\r\n")
    requests = [f"GET {target}{tail}".encode() for target in options.targets.read_text().splitlines()]
    load = make(
        options.port,
        requests,
        keep_alive=options.mode == "keep-alive",
        connections=options.connections,
        offset=options.offset,
    )
    gc.collect()
    gc.disable()
    load.run(options.rate, options.seconds)
    print(json.dumps(load.summary()))


if __name__ == "__main__":
    command(__doc__, 512, Load)
