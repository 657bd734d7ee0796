"""A store on a Redis or Valkey Cluster: each prefix has a hash tag, so one node at a time serves all its keys.

The prefixes that a node serves share its sockets and its pipe. A slot that has moved is followed: the node that served
it answers MOVED, has executed nothing and names the other node. The map of the slots is read when a node is lost, until
another serves its slots. While a slot is moved key by key, its node answers ASK, and the prefix is unavailable:
whether an undeclared key of a script has moved cannot be known.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from redis.asyncio import Redis
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from tracker.errors import StartupError, StoreUnavailable
from tracker.store.client.connection import MAX_SOCKETS, PROBE_SECONDS, Connection
from tracker.store.client.loop_timeout import loop_timeout
from tracker.store.client.pipe import Argument, RedisPipe
from tracker.store.client.sentinel import MasterPool
from tracker.store.client.shared_socket import SharedSocket
from tracker.store.client.subscription import Subscription
from tracker.store.client.timed_call import OnRoundTrip
from tracker.store.client.url import Address

_ASKED = 5
"""How many nodes are asked for the map at a time. Most of them decide: one that was cut off knows an old map."""

_NOT_SERVED = (AskError, ClusterDownError, TryAgainError)
"""The node answers, but does not serve the slot at the moment."""
LOOK_SECONDS = 5.0
"""How often each node is pinged, so that a lost one is noticed also where nothing else is sent to it."""

OpenClient = Callable[[Address], Redis]
"""Returns a client for the node at an address."""
SlotRange = tuple[int, int, Address]
"""First slot, last slot, and the node that serves them."""
SlotMap = tuple[list[SlotRange], list[Address]]
"""The slots, and all nodes: replicas too."""


def slot_of(prefix: str) -> int | None:
    """The slot of all keys under ``prefix``; None when it has no hash tag, so that they have many."""
    _, _, rest = prefix.partition("{")
    tag, end, _ = rest.partition("}")
    return key_slot(prefix.encode()) if tag and end else None


class _Node:
    """What the connections share that a node serves."""

    def __init__(self, client: Redis) -> None:
        self.client = client
        self.sockets = asyncio.Semaphore(MAX_SOCKETS)
        self.opening = asyncio.Lock()
        self.pipe: RedisPipe | None = None
        self.command_pipe = SharedSocket[RedisPipe]()
        self.subscription = SharedSocket[Subscription]()
        self.connections: set[SlotConnection] = set()

    def use(self, pipe: RedisPipe) -> None:
        self.pipe = pipe
        for connection in self.connections:
            connection.pipe = pipe

    def add(self, connection: "SlotConnection") -> None:
        self.connections.add(connection)
        if self.pipe is not None:
            self.pipe.gathers = len(self.connections) > 1

    async def close(self) -> None:
        if self.pipe is not None:
            self.pipe.close()
        self.command_pipe.close()
        self.subscription.close()
        await self.client.aclose()


class Cluster:
    """The nodes of a cluster. ``addresses`` are known ones, at least one; ``ranges`` say which of them serves which
    slot: commands without a key, such as SCAN, never get MOVED. ``timeout`` and ``on_round_trip`` are those of each
    connection."""

    def __init__(
        self,
        open_client: OpenClient,
        addresses: Sequence[Address],
        ranges: Sequence[SlotRange] = (),
        *,
        timeout: float,
        on_round_trip: OnRoundTrip | None = None,
    ) -> None:
        self._open_client = open_client
        self._first = addresses[0]
        self._addresses = deque(addresses)
        self._timeout = timeout
        self._on_round_trip = on_round_trip
        self._ranges = list(ranges)
        self._nodes: dict[Address, _Node] = {}
        self._connections: dict[str, SlotConnection] = {}
        self._doubt = asyncio.Event()

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All known nodes, replicas too."""
        return tuple(self._addresses)

    def of(self, prefix: str) -> "SlotConnection":
        """The connection for the keys under ``prefix``, which must have a hash tag."""
        if prefix not in self._connections:
            slot = slot_of(prefix)
            assert slot is not None
            address = _primary(self._ranges, slot) or self._first  # which may answer MOVED
            self._connections[prefix] = SlotConnection(
                self, prefix, slot, address, self._timeout, self._on_round_trip
            )
        return self._connections[prefix]

    def node(self, address: Address) -> _Node:
        if address not in self._nodes:
            self._nodes[address] = _Node(self._open_client(address))
        return self._nodes[address]

    def doubt(self) -> None:
        """Makes ``watch`` read the map."""
        self._doubt.set()

    async def watch(self) -> None:
        """Finds the nodes of unavailable slots, several times a second, and lost nodes, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look())
            tasks.create_task(self._reconnect())

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for node in list(self._nodes.values()):
                available = [each for each in node.connections if not each.unavailable]
                if available:
                    with suppress(StoreUnavailable, RedisError):
                        await available[0].command("PING")

    async def _reconnect(self) -> None:
        while True:
            await self._doubt.wait()
            self._doubt.clear()
            with suppress(StoreUnavailable):
                await self.read_map()
            async with asyncio.TaskGroup() as tasks:
                for each in list(self._connections.values()):
                    if each.unavailable:
                        tasks.create_task(each.reconnect())
            if any(each.unavailable for each in self._connections.values()):
                self._doubt.set()
            await asyncio.sleep(PROBE_SECONDS)

    async def read_map(self) -> None:
        """Asks several nodes which of them serves which slot, and moves the connections; raises StoreUnavailable when
        none answers."""
        self._addresses.rotate(1 - _ASKED)
        asked = dict.fromkeys([self._first, *islice(self._addresses, _ASKED - 1)])
        maps: list[SlotMap] = []

        async def ask(address: Address) -> None:
            with suppress(RedisError, OSError):
                maps.append(await self._read_map_of(address))

        async with asyncio.TaskGroup() as tasks:
            for address in asked:
                tasks.create_task(ask(address))
        self._ranges = [each for ranges, _ in maps for each in ranges]
        if not self._ranges:
            raise StoreUnavailable("no node of the cluster says which nodes serve")
        for connection in self._connections.values():
            connection.use(_primary(self._ranges, connection.slot) or connection.address)
        await self._forget({address for _, addresses in maps for address in addresses})

    async def _read_map_of(self, address: Address) -> SlotMap:
        client = self._open_client(address)
        try:
            async with loop_timeout(self._timeout):
                return await read_slot_map(client)
        finally:
            await client.aclose()

    async def _forget(self, named: set[Address]) -> None:
        """Forgets what is not in the map any more, and closes the connections to nodes that serve no slot."""
        new = [each for each in sorted(named) if each not in self._addresses]
        self._addresses = deque([*new, *(each for each in self._addresses if each in named)])
        for address in [address for address, node in self._nodes.items() if not node.connections]:
            await self._nodes.pop(address).close()

    async def close(self) -> None:
        for node in self._nodes.values():
            await node.close()


async def read_slot_map(client: Redis) -> SlotMap:
    """What one node knows. CLUSTER SLOTS names the port with or without TLS, as the connection to it is."""
    host = client.connection_pool.connection_kwargs["host"]
    ranges, addresses = [], []
    for first, last, *nodes in await client.execute_command("CLUSTER", "SLOTS"):  # type: ignore[no-untyped-call]
        found = [_address(node, host) for node in nodes]
        ranges.append((first, last, found[0]))
        addresses += found
    return ranges, addresses


def _address(node: list[Any], asked_host: str) -> Address:
    """A node that does not know its own host leaves it out: it is the one that was asked."""
    host = (node[0] or b"").decode()
    return (host if host not in ("", "?") else asked_host, int(node[1]))


def _primary(ranges: Sequence[SlotRange], slot: int) -> Address | None:
    """The node that most maps name for ``slot``."""
    votes = Counter(address for first, last, address in ranges if first <= slot <= last)
    return votes.most_common(1)[0][0] if votes else None


class SlotConnection(Connection):
    """A Connection to the node that serves the slot of one prefix."""

    def __init__(
        self,
        cluster: Cluster,
        prefix: str,
        slot: int,
        address: Address,
        timeout: float,
        on_round_trip: OnRoundTrip | None,
    ) -> None:
        self.slot = slot
        self._cluster = cluster
        self.address = address
        self._node = cluster.node(address)
        self._prefix = prefix
        super().__init__(self._node.client, timeout=timeout, on_round_trip=on_round_trip)
        self._log = self._log.bind(prefix=prefix)
        self._join()

    def _join(self) -> None:
        node = self._node
        node.add(self)
        self._client, self.pipe = node.client, node.pipe
        self._sockets, self._opening = node.sockets, node.opening
        self._command_pipe, self._subscription = node.command_pipe, node.subscription

    def of(self, prefix: str) -> "SlotConnection":
        return self._cluster.of(prefix)

    @property
    def server(self) -> object:
        return self._node

    @property
    def _is_shared(self) -> bool:
        return len(self._node.connections) > 1

    @property
    def nodes(self) -> tuple[Address, ...]:
        return self._cluster.addresses

    @property
    def master(self) -> str:
        """The address of the node that serves the slot."""
        return f"{self.address[0]}:{self.address[1]}"

    def use(self, address: Address) -> None:
        """Goes on at another node. Subscriptions end: the node that has left sends no events of the slot."""
        if address == self.address:
            return
        self._node.connections.discard(self)
        self.address, self._node = address, self._cluster.node(address)
        self._join()
        self._losses += 1
        self._log.info("another node serves the store", slot=self.slot, address=self.master)
        for subscriber in self._subscribers:
            subscriber.end(RedisConnectionError("the slot has moved"))

    async def command(self, *args: Argument) -> Any:
        with suppress(MovedError):
            return await super().command(*args)
        return await self._once_moved(super().command(*args))

    async def direct(self, *args: Argument) -> Any:
        with suppress(MovedError):
            return await super().direct(*args)
        return await self._once_moved(super().direct(*args))

    async def send(self, commands: Sequence[tuple[Connection, tuple[Argument, ...]]]) -> list[Any]:
        answers = await super().send(commands)
        moved = defaultdict[Connection, list[int]](list)
        for number, answer in enumerate(answers):
            if isinstance(answer, MovedError):  # the others were executed before the move
                moved[commands[number][0]].append(number)
        for connection, numbers in moved.items():
            repeated = await Connection.send(connection, [commands[number] for number in numbers])
            for number, answer in zip(numbers, repeated, strict=True):
                again = isinstance(answer, MovedError)
                answers[number] = StoreUnavailable("the slot is moving") if again else answer
        return answers

    async def _once_moved(self, call: Awaitable[Any]) -> Any:
        try:
            return await call
        except MovedError as error:
            self._cluster.doubt()
            raise StoreUnavailable("the slot is moving") from error

    def raise_if_unavailable(self, error: Exception) -> None:
        """MOVED does not mean it: the call can be repeated, and goes to the node that serves the slot now."""
        if isinstance(error, MovedError):
            self.use((error.host or self.address[0], error.port))
            return
        if isinstance(error, _NOT_SERVED):
            self._cluster.doubt()  # other nodes may have chosen another one for the slot
            self._set_unavailable(error)
        super().raise_if_unavailable(error)

    async def _disconnect_idle(self) -> None:
        """Not while the node answers for other slots, whose calls may take these connections."""
        if all(each.unavailable for each in self._node.connections):
            await super()._disconnect_idle()

    async def _ping(self) -> None:
        """A node may answer and not serve the slot. The prefix itself is no key: while a slot is moved key by key, its
        node answers ASK."""
        with suppress(ResponseError):  # any other reply proves that it serves
            await self.command("EXISTS", self._prefix)

    def _lost(self, error: Exception) -> None:
        """The node is lost for all its slots."""
        self._cluster.doubt()
        for each in tuple(self._node.connections):
            Connection._lost(each, error)  # another of this class

    async def _open_pipe(self) -> RedisPipe:
        node = self._node
        pipe = await super()._open_pipe()
        if node is self._node:
            node.use(pipe)
        return pipe

    async def watch(self) -> None:
        """Watches all connections of the cluster."""
        await self._cluster.watch()

    async def close(self) -> None:
        await self._cluster.close()


async def find_nodes(client: Redis, prefix: str, shown: str) -> SlotMap:
    """The cluster that the server of ``client`` is part of. The first node is the one that serves ``prefix``.

    ``shown`` is the server's address as it may be printed. Raises StartupError when the cluster cannot be used.
    """
    slot, options = slot_of(prefix), client.connection_pool.connection_kwargs
    if slot is None:
        raise StartupError(
            f"the store at {shown} is part of a cluster: TRACKER_REDIS__PREFIX needs a hash tag, as in t:{{t}}:"
        )
    if "host" not in options or isinstance(client.connection_pool, MasterPool):
        raise StartupError(f"the store at {shown} is part of a cluster: name a node by redis:// or rediss://")
    if options.get("db"):
        raise StartupError(f"the store at {shown}: only database 0 of a cluster can be used")
    try:
        ranges, addresses = await read_slot_map(client)
    except (RedisError, OSError) as error:
        raise StartupError(f"the store at {shown} does not tell the nodes of its cluster: {error}") from error
    primary = _primary(ranges, slot)
    if primary is None:
        raise StartupError(f"no node of the cluster at {shown} serves the slot {slot} of the prefix {prefix}")
    return ranges, list(dict.fromkeys([primary, *addresses]))


async def check_node(connection: Connection, prefix: str) -> None:
    """Raises StartupError when the node does not answer that serves ``prefix``."""
    try:
        await connection.command("PING")
    except (StoreUnavailable, RedisError) as error:
        raise StartupError(
            f"the node {connection.master} of the cluster, which serves {prefix}, does not answer. If it runs, it "
            "announces a wrong address (cluster-announce-ip, cluster-announce-hostname)"
        ) from error
