"""More requests than anybody can serve: `python -m bench.rush --help`; prints one line of JSON.

The load is that of a population, of whom each member announces once, when its time has come (Poisson), and does not come again
within the run, whatever it is told: who is refused has been told minutes. So what is offered does not depend on what is
answered. A latency is counted from the moment a request was due, whether or not it could be sent then, and whoever has no
answer after 5 s goes away.

With one connection per request each member opens its own. With keep-alive there are as many open as clients may be here at a
time, each a client with many torrents: its next announce uses the connection that is open, and where the tracker has closed it
another client takes its place, on a new one. Sockets and epoll without asyncio, as few calls as can be: at three times what a
tracker can do a request may cost this side 50 µs.
"""

import random
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.open_loop import OFFERED, command, is_last, is_success, is_whole
from bench.percentiles import in_milliseconds

PATIENCE_SECONDS = 5.0
_AT_ONCE = 64
"""Requests that are sent before answers are looked for again."""


@dataclass(slots=True)
class Fates:
    """What became of the requests: seconds from when each was due until it was known."""

    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    """With an answer that says so."""
    closed: list[float] = field(default_factory=list)
    """Without: the connection was closed or not accepted."""
    gave_up: int = 0
    unsent: int = 0
    """Every client that may be here was waiting, or the system gave no more sockets."""
    late: list[float] = field(default_factory=list)
    """How long after it was due each was sent."""


class Rush:
    """``requests`` round and round to ``port``, from at most so many clients at a time, each with a connection."""

    def __init__(
        self, port: int, requests: Sequence[bytes], *, keep_alive: bool, connections: int, offset: int = 0
    ) -> None:
        self._address = ("127.0.0.1", port)
        self._requests = requests
        self._next = offset
        self._keep_alive = keep_alive
        self._clients = connections
        self._epoll = select.epoll()
        self._under_way: dict[int, tuple[socket.socket, float, bytes]] = {}
        """By descriptor: the connection, when its request was due, and what has come of the answer."""
        self._idle: list[socket.socket] = []
        """Open and unused, or closed by the tracker since."""
        self._unsent: dict[int, bytes] = {}
        """Requests of those whose connection is not there yet: over loopback, when the tracker's queue was full."""
        self._due: deque[tuple[float, int]] = deque()
        self._chance = random.Random(1)
        self.fates = Fates()
        self.sent = 0
        self.steady_rate = 0.0
        """Answers a second in the second half of the time."""

    def run(self, rate: float, seconds: float) -> None:
        clock, gap = time.perf_counter, self._chance.expovariate
        due = began = clock()
        half, end = began + seconds / 2, began + seconds
        answered, since = 0, began
        while (now := clock()) < end:
            if now >= half:
                half, answered, since = end, len(self.fates.answered), now
            for _ in range(_AT_ONCE):
                if due > now:
                    break
                self._announce(due)
                due += gap(rate)
            self._look(0)
        self.steady_rate = (len(self.fates.answered) - answered) / max(clock() - since, 1e-9)
        print(OFFERED, flush=True)
        while self._under_way:
            self._look(0.01)

    def close(self) -> None:
        for sock in (*self._idle, *(sock for sock, _, _ in self._under_way.values())):
            sock.close()
        self._epoll.close()

    def figures(self) -> dict[str, Any]:
        fates = self.fates
        return {
            "sent": self.sent,
            "answered": len(fates.answered),
            "refused": len(fates.refused),
            "closed": len(fates.closed),
            "gave_up": fates.gave_up,
            "unsent": fates.unsent,
            "steady_rate": self.steady_rate,
            "answered_ms": in_milliseconds(fates.answered),
            "refused_ms": in_milliseconds(fates.refused),
            "closed_ms": in_milliseconds(fates.closed),
            "late_ms": in_milliseconds(fates.late),
        }

    def _announce(self, due: float) -> None:
        resting = self._clients - len(self._under_way)
        if resting <= 0:
            self.fates.unsent += 1
            return
        sock = self._some_idle(resting) or self._connected()
        if sock is None:
            return
        request = self._requests[self._next % len(self._requests)]
        self._next += 1
        self.sent += 1
        number = sock.fileno()
        self._under_way[number] = sock, due, b""
        self._due.append((due, number))
        self.fates.late.append(time.perf_counter() - due)
        self._send(sock, request)

    def _send(self, sock: socket.socket, request: bytes) -> None:
        """A request is so short that a socket takes all of it or nothing."""
        try:
            sock.send(request)
        except BlockingIOError:
            self._unsent[sock.fileno()] = request
            self._epoll.modify(sock, select.EPOLLIN | select.EPOLLOUT)
        except OSError:  # refused, or closed since
            self._closed(sock.fileno())

    def _some_idle(self, resting: int) -> socket.socket | None:
        """The connection of the client whose turn it is, if it has one."""
        idle = self._idle
        if self._chance.random() * resting >= len(idle):
            return None
        n = int(self._chance.random() * len(idle))
        idle[n], idle[-1] = idle[-1], idle[n]
        sock = idle.pop()
        return sock if sock.fileno() >= 0 else None

    def _connected(self) -> socket.socket | None:
        try:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            sock.connect_ex(self._address)
            self._epoll.register(sock, select.EPOLLIN)
        except OSError:
            self.fates.unsent += 1
            return None
        return sock

    def _look(self, timeout: float) -> None:
        for number, event in self._epoll.poll(timeout, 1024):
            if event & select.EPOLLOUT and number in self._unsent:
                self._epoll.modify(number, select.EPOLLIN)
                self._send(self._under_way[number][0], self._unsent.pop(number))
            else:
                self._read(number)
        now = time.perf_counter()
        while self._due and now - self._due[0][0] > PATIENCE_SECONDS:
            due, number = self._due.popleft()
            waiting = self._under_way.get(number)
            if waiting is not None and waiting[1] == due:
                self._end(number)
                self.fates.gave_up += 1

    def _read(self, number: int) -> None:
        waiting = self._under_way.get(number)
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
            self._under_way[number] = sock, due, answer
            return
        del self._under_way[number]
        fate = self.fates.answered if is_success(answer) else self.fates.refused
        fate.append(time.perf_counter() - due)
        if self._keep_alive and not is_last(answer):
            self._idle.append(sock)
        else:
            sock.close()

    def _closed(self, number: int) -> None:
        self.fates.closed.append(time.perf_counter() - self._under_way[number][1])
        self._end(number)

    def _end(self, number: int) -> None:
        self._unsent.pop(number, None)
        self._under_way.pop(number)[0].close()

    def _drop_idle(self, number: int) -> None:
        """The tracker closed a connection that was not in use; its client finds out when it is."""
        for sock in self._idle:
            if sock.fileno() == number:
                sock.close()
                return


if __name__ == "__main__":
    command(__doc__, 8192, Rush)
