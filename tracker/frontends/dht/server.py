"""The sockets of the DHT: one per address family, in the background process. Datagrams go to the node, which decides
(tracker/dht/node.py). Queries about a torrent wait until the store was read."""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from socket import inet_pton
from typing import NamedTuple

from tracker.bittorrent import Address, Endpoint, InfoHash
from tracker.dht.node import DhtNode
from tracker.dht.responder import Swarm
from tracker.errors import StoreUnavailable
from tracker.system.aiohttp_connection import describe
from tracker.system.datagrams import Ancillary, DatagramSocket, reply_control
from tracker.system.event_loop import running
from tracker.system.logger import Logger
from tracker.wire.endpoint import format_address, pack_endpoint
from tracker.wire.krpc import AnnouncePeer, GetPeers, Query

MAX_DATAGRAMS = 64
"""Datagrams that one socket reads in one turn of the event loop."""
MAX_BYTES = 2049
"""One byte more than a message may have, so that the parser drops longer ones."""
READERS = 4
"""Readings of the store at once."""
TICK_SECONDS = 0.25
LIFETIME_SECONDS = 10
"""How long is known what the store said about a torrent."""
MAX_SWARMS = 2500
"""More than may be asked for within the lifetime under the default limits: 400 at once, and 200 a second."""
MAX_WAITING = 1000

Key = tuple[InfoHash, int]
"""A torrent, and the address family: 4 or 6."""
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EPERM)

ReadSwarm = Callable[[InfoHash, int], Awaitable[Swarm]]
"""(torrent, address family). Raises StoreUnavailable."""

log = Logger("tracker.dht")


class WaitingQuery(NamedTuple):
    query: Query
    source: Endpoint
    control: Sequence[tuple[int, int, bytes]] = ()
    """Control messages for the answer."""


class SwarmCache:
    """What the store said about torrents, and the queries that wait for it. Both are bounded. So a flood costs the
    store one reading of a torrent in 10 seconds."""

    def __init__(self) -> None:
        self._swarms: dict[Key, tuple[float, Swarm]] = {}  # the oldest first
        self._waiting: dict[Key, list[WaitingQuery]] = {}
        self.waiting_count = 0
        self._changed: set[Key] = set()
        """Torrents that have changed since their reading began."""

    def get(self, key: Key, now: float) -> Swarm | None:
        """``None`` where nothing is known, or it is too old."""
        known = self._swarms.get(key)
        return known[1] if known is not None and now - known[0] < LIFETIME_SECONDS else None

    def forget(self, info_hash: InfoHash | None) -> None:
        """Forgets a torrent that has changed; None: any of them may have."""
        changed = [*self._swarms, *self._waiting] if info_hash is None else [(info_hash, 4), (info_hash, 6)]
        for key in changed:
            self._swarms.pop(key, None)
            if key in self._waiting:
                self._changed.add(key)

    def wait(self, key: Key, waiting: WaitingQuery) -> bool:
        """Returns whether the caller must read the store: not where a reading is under way. Not to be called
        while MAX_WAITING queries wait."""
        self.waiting_count += 1
        others = self._waiting.setdefault(key, [])
        others.append(waiting)
        return len(others) == 1

    def must_read_again(self, key: Key) -> bool:
        """Whether the torrent has changed since its reading began, or since the last call."""
        if key not in self._changed:
            return False
        self._changed.remove(key)
        return True

    def finish(self, key: Key, swarm: Swarm | None, now: float) -> list[WaitingQuery]:
        """Returns the queries that waited. ``swarm`` is ``None`` where the store could not be read: they are not
        answered then."""
        waiting = self._waiting.pop(key, [])
        self.waiting_count -= len(waiting)
        self._changed.discard(key)
        if swarm is None:
            return waiting
        self._swarms.pop(key, None)
        if len(self._swarms) >= MAX_SWARMS:
            del self._swarms[next(iter(self._swarms))]
        self._swarms[key] = now, swarm
        return waiting


@dataclass(eq=False)
class DhtSocket:
    """One socket and its node. ``timer`` gives seconds from any start. While it is not ``active``, nothing is sent, and
    what comes is not read."""

    node: DhtNode
    sock: DatagramSocket
    timer: Callable[[], float]
    to_read: "asyncio.Queue[Read]"
    """Bounded by the cache."""
    active: Callable[[], bool]
    cache: SwarmCache = field(default_factory=SwarmCache)

    def __post_init__(self) -> None:
        self.family = 6 if self.sock.ipv6 else 4
        self._family = self.sock.socket.family
        self._ancillary_bytes = self.sock.ancillary_bytes

    def read(self) -> None:
        """Reads what waits. Never raises: an error of one sender must not stop the others."""
        for _ in range(MAX_DATAGRAMS):
            try:
                data, ancillary, _, sender = self.sock.socket.recvmsg(MAX_BYTES, self._ancillary_bytes)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:  # an ICMP error about an earlier datagram
                continue
            if self.active():
                with _errors_logged("a datagram of the DHT failed"):
                    self._receive(data, ancillary, sender)
        self.flush()

    def _receive(self, data: bytes, ancillary: Ancillary, sender: tuple[str, int]) -> None:
        now = self.timer()
        address = Address(inet_pton(self._family, sender[0].partition("%")[0]))
        source = pack_endpoint(address, sender[1])
        control = reply_control(ancillary) if ancillary else []
        query = self.node.receive(data, source, now)
        if query is not None:
            assert isinstance(query.arguments, GetPeers | AnnouncePeer)
            key = query.arguments.info_hash, self.family
            swarm = self.cache.get(key, now)
            if swarm is not None:
                self.node.respond(query, source, swarm, now)
            elif self.cache.waiting_count >= MAX_WAITING:
                self.node.counts.dropped["too many wait"] += 1
            elif self.cache.wait(key, WaitingQuery(query, source, control)):
                self.to_read.put_nowait((self, key))
        self.flush(control)

    def flush(self, control: Sequence[tuple[int, int, bytes]] = ()) -> None:
        """Sends what the node has to send. A datagram that cannot be sent is a lost one. ``control`` sends an answer
        from the address that was asked, and does no harm to queries that the same datagram caused."""
        datagrams = self.node.take_datagrams()
        for endpoint, data in datagrams if self.active() else ():
            target = format_address(endpoint[:-2]), int.from_bytes(endpoint[-2:], "big")
            try:
                self.sock.socket.sendmsg([data], control, 0, target)
            except OSError as error:
                if error.errno in _UNREACHABLE:
                    self.node.unreachable(endpoint, self.timer())

    def tick(self) -> None:
        """Never raises, as ``read``: the tracker would stop."""
        with _errors_logged("the node of the DHT failed"):
            if self.active():
                self.node.tick(self.timer())
        self.flush()

    def finish(self, key: Key, swarm: Swarm | None) -> None:
        """Answers the queries that waited for the store; none where it could not be read. Never raises."""
        now = self.timer()
        for waiting in self.cache.finish(key, swarm, now):
            with _errors_logged("a datagram of the DHT failed"):
                if swarm is None:
                    self.node.counts.dropped["store unavailable"] += 1
                else:
                    self.node.respond(waiting.query, waiting.source, swarm, now)
                    self.flush(waiting.control)


Read = tuple[DhtSocket, Key]


@contextlib.contextmanager
def _errors_logged(text: str) -> Iterator[None]:
    try:
        yield
    except StoreUnavailable:
        raise
    except Exception as error:  # noqa: BLE001  # as the other front ends do
        log.error(text, **describe(error))


@contextlib.asynccontextmanager
async def serve_dht(
    nodes: Mapping[int, DhtNode],
    sockets: Sequence[DatagramSocket],
    read_swarm: ReadSwarm,
    timer: Callable[[], float],
    active: Callable[[], bool] = lambda: True,
) -> AsyncIterator[list[DhtSocket]]:
    """Serves on ``sockets`` until the block is left; the caller closes them. ``nodes`` by 4 and 6, one for each
    socket; both are silent while not ``active``."""
    to_read: asyncio.Queue[Read] = asyncio.Queue()
    served = [DhtSocket(nodes[6 if each.ipv6 else 4], each, timer, to_read, active) for each in sockets]
    loop = asyncio.get_running_loop()

    async def tick() -> None:
        while True:
            for each in served:
                each.tick()
            await asyncio.sleep(TICK_SECONDS)

    async def read() -> None:
        while True:
            await _read(*await to_read.get(), read_swarm)

    with contextlib.ExitStack() as stack:
        for opened, each in zip(sockets, served, strict=True):
            loop.add_reader(opened.socket, each.read)
            stack.callback(loop.remove_reader, opened.socket)
        async with running(tick, *[read] * READERS):
            yield served


async def _read(served: DhtSocket, key: Key, read_swarm: ReadSwarm) -> None:
    swarm = None
    try:
        with _errors_logged("a torrent cannot be read for the DHT"):
            found = await read_swarm(*key)
            while served.cache.must_read_again(key):
                found = await read_swarm(*key)
            swarm = found
    except StoreUnavailable:
        log.debug("queries of the DHT are not answered: the store is unavailable")
    finally:
        served.finish(key, swarm)
