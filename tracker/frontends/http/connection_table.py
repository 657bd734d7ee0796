"""Tracks open connections per port and per network, and closes those past their deadline.

A connection costs a file descriptor and some kilobytes, and any client may open thousands and send nothing. So the
number of connections per network (an IPv4 address or an IPv6 /64) is limited, and a request head must arrive within
some seconds. When a limit is reached, the oldest idle connection is closed: of the network whose limit is reached,
otherwise of all. So a client that sends its request at once is served. Connections of trusted proxies belong to no
network and stay open. The memory that all connections hold is limited too (Budget), and returns to the system
after a flood.
"""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from tracker.bittorrent import Address
from tracker.refusals import TOO_MANY_CONNECTIONS, TOO_MUCH_HELD, Label
from tracker.settings.public import HttpSettings
from tracker.system.aiohttp_connection import peer_of
from tracker.system.logger import Logger
from tracker.system.resources import max_connections, release_memory
from tracker.wire.endpoint import pack_address
from tracker.wire.proxy import Networks

_MAX_EXAMINED = 32
"""How many of the connections that are oldest, or have held bytes for the longest time, are examined to close one."""

Holder = TypeVar("Holder")


@dataclass(eq=False)
class Budget(Generic[Holder]):
    """Limits the bytes that the connections of a process hold together, and closes one when they hold more: each has a
    limit, but ten thousand need one too. ``close`` ends a connection and releases its bytes; ``network_of`` gives its
    network, or None."""

    max_bytes: int
    network_of: Callable[[Holder], bytes | None]
    close: Callable[[Holder], None]
    total: int = 0
    peak: int = 0
    """The largest total since it was last reset."""
    _held: dict[Holder, int] = field(default_factory=dict)
    _of_network: dict[Hashable, int] = field(default_factory=dict)

    def hold(self, holder: Holder, size: int) -> None:
        """``holder`` now has ``size`` bytes. Beyond the limit connections are closed, perhaps this one."""
        if not size:
            self.release(holder)
            return
        self._add(holder, size - self._held.get(holder, 0))
        self._held[holder] = size
        self.peak = max(self.peak, self.total)
        while self.total > self.max_bytes:
            # Among the oldest, the one whose network holds the most: one network must not displace the others.
            oldest = islice(self._held, _MAX_EXAMINED)
            self.close(max(oldest, key=lambda each: self._of_network[self.network_of(each) or each]))

    def release(self, holder: Holder) -> None:
        size = self._held.pop(holder, 0)
        if size:
            self._add(holder, -size)

    def _add(self, holder: Holder, size: int) -> None:
        self.total += size
        owner: Hashable = self.network_of(holder) or holder
        left = self._of_network.get(owner, 0) + size
        if left:
            self._of_network[owner] = left
        else:
            self._of_network.pop(owner, None)


MAX_PENDING_REQUEST_BYTES = 32 * 2**20
"""Bytes of unfinished and waiting requests in one process: a thousand connections with the largest head each."""
MAX_UNREAD_ANSWER_BYTES = 64 * 2**20
"""Bytes of unread answers in one process."""
HALF_CLOSE_SECONDS = 5.0
"""How long a client that closed its sending side may wait for its answer: longer than the store's timeout."""
_HEAD_SWEEPS = 4
"""How many checks for overdue connections fit into the time limit for a request head, at least."""
PING_SECONDS = 45.0
"""Proxies close a WebSocket that is silent for 60 to 100 s. One that answers no ping for half as long is closed."""
_MAX_CLOSED_TOGETHER, _CLOSE_PAUSE_SECONDS = 128, 0.005
"""Closing thousands of connections at once would block the event loop."""
_FRESH_SECONDS = 1.0
"""How long a stopping server waits for the first request of a new connection."""
_MAX_PIPELINED_A_TURN = 16
"""Pipelined requests handled in one turn of the event loop, so that other connections are served too."""
_FLOOD_CONNECTIONS, _FLOOD_BYTES = 256, 4 * 2**20
"""Memory is released when this many fewer connections or bytes are held than at the peak."""
_RELEASE_INTERVAL_SECONDS = 10.0

log = Logger(__name__)


class ManagedConnection(Protocol):
    """A connection of either protocol."""

    until: int
    """The sweep after which it is overdue."""

    @property
    def fresh(self) -> bool:
        """Whether its first request has not arrived yet."""

    @property
    def idle(self) -> bool:
        """Whether it may be closed without losing an answer that the client would read."""

    def close_gracefully(self) -> None:
        """Closes it after its pending requests are answered; at once if there are none."""

    def on_overdue(self) -> None:
        """Closes it, if it may be."""

    def abort(self) -> None: ...


class ConnectionTable:
    """All connections of one server, in order of arrival. ``refused`` is called with a label for each one refused."""

    def __init__(self, http: HttpSettings, refused: Callable[[Label], None]) -> None:
        self._refused = refused
        self._proxies = Networks(http.trusted_proxies) or None
        self.half_close_seconds = HALF_CLOSE_SECONDS
        self._max = min(http.max_connections, max_connections())
        self._max_per_network = http.max_connections_per_address
        self._connections: dict[ManagedConnection, bytes | None] = {}
        """The network of each connection; None for a trusted proxy's."""
        self._networks: dict[bytes, dict[ManagedConnection, None]] = {}
        self.requests = Budget[ManagedConnection](MAX_PENDING_REQUEST_BYTES, self._connections.get, self._close_holder)
        """Bytes of requests that are unfinished, or wait for the answer to an earlier one."""
        self.answers = Budget[ManagedConnection](MAX_UNREAD_ANSWER_BYTES, self._connections.get, self._close_holder)
        """Bytes of answers that clients have not read."""
        self._peak = 0
        head_seconds = min(http.header_seconds, http.keepalive_seconds)
        self._sweep_seconds = min(head_seconds, PING_SECONDS / 2) / _HEAD_SWEEPS
        self.head_sweeps = round(head_seconds / self._sweep_seconds)
        self.idle_sweeps = round(http.keepalive_seconds / self._sweep_seconds)
        self.ping_sweeps = int(PING_SECONDS / self._sweep_seconds) - 1  # it is overdue with the next one
        self.pong_sweeps = int(PING_SECONDS / 2 / self._sweep_seconds) - 1
        self._release_sweeps = math.ceil(_RELEASE_INTERVAL_SECONDS / self._sweep_seconds)
        self._release_at = 0
        self.now = 0
        """Sweeps so far."""
        self._pipelined: deque[Callable[[], None]] = deque()
        self._overdue: deque[ManagedConnection] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def closing(self) -> bool:
        return self._empty is not None

    def add(self, connection: ManagedConnection, transport: asyncio.BaseTransport) -> tuple[Address, bool] | None:
        """Adds a connection. Returns the packed peer address (NO_ADDRESS on a unix socket) and whether the peer is a
        trusted proxy, or None if a limit refuses it."""
        address, trusted = peer_of(transport, self._proxies)
        network = None if trusted or not address else address[:8]  # all of IPv4, the /64 of IPv6
        if network is not None and len(self._networks.get(network, ())) >= self._max_per_network:
            self._refused(TOO_MANY_CONNECTIONS)
            if not self._make_room(self._networks[network]):
                return None
        elif len(self._connections) >= self._max and not self._make_room(self._connections):
            self._refused(TOO_MANY_CONNECTIONS)
            return None
        if network is not None:
            self._networks.setdefault(network, {})[connection] = None
        self._connections[connection] = network
        return address, trusted

    def is_exempt(self, peername: Any) -> bool:
        """Whether a waiting connection is exempt from load shedding: a trusted proxy's, or one on a unix socket."""
        if not isinstance(peername, tuple):
            return True
        if self._proxies is None:
            return False
        address = pack_address(peername[0].partition("%")[0])
        return address is not None and address in self._proxies

    def remove(self, connection: ManagedConnection) -> None:
        if self.requests.total or self.answers.total:  # two calls that most connections need not make
            self.requests.release(connection)
            self.answers.release(connection)
        network = self._connections.pop(connection, None)
        if network is not None:
            others = self._networks[network]
            del others[connection]
            if not others:
                del self._networks[network]
        if self._empty is not None and not self._connections:
            self._empty.set()

    def replace(self, connection: ManagedConnection, by: ManagedConnection) -> None:
        """Replaces a connection by another protocol on the same socket."""
        if connection not in self._connections:
            return
        self.requests.release(connection)
        self.answers.release(connection)
        self._connections[by] = network = self._connections.pop(connection)
        if network is not None:
            others = self._networks[network]
            del others[connection]
            others[by] = None

    def _make_room(self, among: dict[ManagedConnection, Any]) -> bool:
        """Closes one of the oldest connections; those that may not be closed move to the end."""
        for connection in list(islice(among, _MAX_EXAMINED)):
            if self._connections[connection] is not None and connection.idle:
                self._close(connection)
                return True
            among[connection] = among.pop(connection)
        return False

    def _close(self, connection: ManagedConnection) -> None:
        self.remove(connection)
        connection.abort()

    def _close_holder(self, connection: ManagedConnection) -> None:
        self._refused(TOO_MUCH_HELD)
        self._close(connection)

    def sweep(self) -> None:
        """Closes overdue connections, and schedules the next sweep. One timer for all: a timer for each connection
        would cost as much as reading its request."""
        if not self._overdue:
            self.now += 1
            now = self.now
            self._overdue.extend(connection for connection in self._connections if connection.until < now)
            self._release_memory()
        for _ in range(min(len(self._overdue), _MAX_CLOSED_TOGETHER)):
            connection = self._overdue.popleft()
            if connection.until < self.now:
                connection.on_overdue()
        seconds = _CLOSE_PAUSE_SECONDS if self._overdue else self._sweep_seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self.sweep)

    def continue_in_turn(self, callback: Callable[[], None]) -> None:
        """Schedules ``callback``, which handles the next pipelined request of a connection. If thousands of connections
        had a request handled in each turn, the loop would hardly accept new connections."""
        self._pipelined.append(callback)
        if len(self._pipelined) == 1:
            asyncio.get_running_loop().call_soon(self._continue_pipelined)

    def _continue_pipelined(self) -> None:
        for _ in range(min(len(self._pipelined), _MAX_PIPELINED_A_TURN)):
            self._pipelined[0]()
            self._pipelined.popleft()
        if self._pipelined:
            asyncio.get_running_loop().call_soon(self._continue_pipelined)

    def _release_memory(self) -> None:
        """Returns memory to the system once a flood is over."""
        self._peak = max(self._peak, len(self._connections))
        held = self.requests.total + self.answers.total
        freed = self.requests.peak + self.answers.peak - held
        over = self._peak - len(self._connections) >= _FLOOD_CONNECTIONS or freed >= _FLOOD_BYTES
        if over and self.now >= self._release_at:
            self._peak = len(self._connections)
            self.requests.peak, self.answers.peak = self.requests.total, self.answers.total
            self._release_at = self.now + self._release_sweeps
            release_memory()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def drain(self, seconds: float) -> None:
        """Closes idle connections and answers requests in flight, for at most ``seconds``."""
        self._empty = asyncio.Event()
        for connection in [connection for connection in self._connections if not connection.fresh]:
            connection.close_gracefully()
        await self._wait_until_empty(self._empty, _FRESH_SECONDS)
        for connection in list(self._connections):
            connection.close_gracefully()
        await self._wait_until_empty(self._empty, seconds - _FRESH_SECONDS)
        if self._connections:
            log.warning("closed connections with unfinished requests", connections=len(self._connections))

    async def _wait_until_empty(self, empty: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if self._connections:
                    await empty.wait()

    def abort_all(self) -> None:
        for connection in list(self._connections):
            connection.abort()
