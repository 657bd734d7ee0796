"""Overload generator: `python -m loadtest.bench.rush --help`; prints one line of JSON.

It simulates a population. Each client announces once, at its due time (Poisson), and never again in the run, because
refused clients get a retry time of minutes. So the offered load does not depend on the answers. Latency counts from the
due time. A client gives up after 5 s.

With one connection per request each client opens its own. With keep-alive there are as many connections as concurrent
clients, each a client with many torrents. Its next announce uses the open connection; if the tracker has closed it,
another client takes its place on a new one. The generator uses sockets and epoll without asyncio, and as few calls as
possible: at three times the tracker's maximum a request may cost it 50 µs.
"""

import random
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.bench.open_loop import OFFERED, command, is_last, is_success, is_whole
from loadtest.bench.percentiles import in_milliseconds

TIMEOUT_SECONDS = 5.0
_AT_ONCE = 64
"""Requests sent between two checks for answers."""


@dataclass(slots=True)
class Results:
    """Results of the requests: seconds from the due time to the result."""

    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    """Refused with an answer."""
    closed: list[float] = field(default_factory=list)
    """Refused without one: the connection was closed or not accepted."""
    gave_up: int = 0
    unsent: int = 0
    """All clients were waiting, or the system had no more sockets."""
    late: list[float] = field(default_factory=list)
    """Delay between due time and sending."""


class Rush:
    """Sends ``requests`` in a cycle to ``port``, from at most ``connections`` clients at a time."""

    def __init__(
        self,
        port: int,
        requests: Sequence[bytes],
        *,
        keep_alive: bool,
        connections: int,
        offset: int = 0,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._address = ("127.0.0.1", port)
        self._requests = requests
        self._next = offset
        self._keep_alive = keep_alive
        self._clients = connections
        self._epoll = select.epoll()
        self._in_progress: dict[int, tuple[socket.socket, float, bytes]] = {}
        """By descriptor: (connection, due time of its request, received part of the answer)."""
        self._idle: list[socket.socket] = []
        """Unused connections, possibly closed by the tracker."""
        self._unsent: dict[int, bytes] = {}
        """Requests whose connection is not established yet: over loopback, when the accept queue is full."""
        self._due: deque[tuple[float, int]] = deque()
        self._rng = random.Random(1)
        self.results = Results()
        self.sent = 0
        self.steady_rate = 0.0
        """Answers per second in the second half of the run."""

    def run(self, rate: float, seconds: float) -> None:
        clock, gap = time.perf_counter, self._rng.expovariate
        due = began = clock()
        half, end = began + seconds / 2, began + seconds
        answered, since = 0, began
        while (now := clock()) < end:
            if now >= half:
                half, answered, since = end, len(self.results.answered), now
            for _ in range(_AT_ONCE):
                if due > now:
                    break
                self._announce(due)
                due += gap(rate)
            self._poll(0)
        self.steady_rate = (len(self.results.answered) - answered) / max(clock() - since, 1e-9)
        print(OFFERED, flush=True)
        while self._in_progress:
            self._poll(0.01)

    def close(self) -> None:
        for sock in (*self._idle, *(sock for sock, _, _ in self._in_progress.values())):
            sock.close()
        self._epoll.close()

    def summary(self) -> dict[str, Any]:
        results = self.results
        return {
            "sent": self.sent,
            "answered": len(results.answered),
            "refused": len(results.refused),
            "closed": len(results.closed),
            "gave_up": results.gave_up,
            "unsent": results.unsent,
            "steady_rate": self.steady_rate,
            "answered_ms": in_milliseconds(results.answered),
            "refused_ms": in_milliseconds(results.refused),
            "closed_ms": in_milliseconds(results.closed),
            "late_ms": in_milliseconds(results.late),
        }

    def _announce(self, due: float) -> None:
        resting = self._clients - len(self._in_progress)
        if resting <= 0:
            self.results.unsent += 1
            return
        sock = self._some_idle(resting) or self._connected()
        if sock is None:
            return
        request = self._requests[self._next % len(self._requests)]
        self._next += 1
        self.sent += 1
        number = sock.fileno()
        self._in_progress[number] = sock, due, b""
        self._due.append((due, number))
        self.results.late.append(time.perf_counter() - due)
        self._send(sock, request)

    def _send(self, sock: socket.socket, request: bytes) -> None:
        """A request is short enough that a socket accepts all of it or nothing."""
        try:
            sock.send(request)
        except BlockingIOError:
            self._unsent[sock.fileno()] = request
            self._epoll.modify(sock, select.EPOLLIN | select.EPOLLOUT)
        except OSError:  # refused, or closed meanwhile
            self._closed(sock.fileno())

    def _some_idle(self, resting: int) -> socket.socket | None:
        """The connection of a random idle client, if it has one."""
        idle = self._idle
        if self._rng.random() * resting >= len(idle):
            return None
        n = int(self._rng.random() * len(idle))
        idle[n], idle[-1] = idle[-1], idle[n]
        sock = idle.pop()
        return sock if sock.fileno() >= 0 else None

    def _connected(self) -> socket.socket | None:
        try:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            sock.connect_ex(self._address)
            self._epoll.register(sock, select.EPOLLIN)
        except OSError:
            self.results.unsent += 1
            return None
        return sock

    def _poll(self, timeout: float) -> None:
        for number, event in self._epoll.poll(timeout, 1024):
            if event & select.EPOLLOUT and number in self._unsent:
                self._epoll.modify(number, select.EPOLLIN)
                self._send(self._in_progress[number][0], self._unsent.pop(number))
            else:
                self._read(number)
        now = time.perf_counter()
        while self._due and now - self._due[0][0] > self._timeout_seconds:
            due, number = self._due.popleft()
            waiting = self._in_progress.get(number)
            if waiting is not None and waiting[1] == due:
                self._end(number)
                self.results.gave_up += 1

    def _read(self, number: int) -> None:
        waiting = self._in_progress.get(number)
        if waiting is None:
            self._drop_idle(number)
            return
        sock, due, answer = waiting
        try:
            data = sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._closed(number)
            return
        answer += data
        if not is_whole(answer):
            self._in_progress[number] = sock, due, answer
            return
        del self._in_progress[number]
        times = self.results.answered if is_success(answer) else self.results.refused
        times.append(time.perf_counter() - due)
        if self._keep_alive and not is_last(answer):
            self._idle.append(sock)
        else:
            sock.close()

    def _closed(self, number: int) -> None:
        self.results.closed.append(time.perf_counter() - self._in_progress[number][1])
        self._end(number)

    def _end(self, number: int) -> None:
        self._unsent.pop(number, None)
        self._in_progress.pop(number)[0].close()

    def _drop_idle(self, number: int) -> None:
        """Closes an idle connection that the tracker closed; its client notices when it sends."""
        for sock in self._idle:
            if sock.fileno() == number:
                sock.close()
                return


if __name__ == "__main__":
    command(__doc__, 8192, Rush)
