"""A store on a Redis or Valkey Cluster: each prefix has a hash tag, so one node at a time serves all its keys.

The prefixes that a node serves share its sockets and its pipe. A slot that has moved is followed: the node that served
it answers MOVED, has executed nothing and names the other node. The map of the slots is read when a node is lost, until
another serves its slots. While a slot is moved key by key, its node answers ASK, and the prefix is unavailable:
whether an undeclared key of a script has moved cannot be known.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, RedisError, TryAgainError

from tracker.errors import StartupError, StoreNotReady, StoreUnavailable
from tracker.store.client.connection import Connection, Topology
from tracker.store.client.sentinel import MasterPool
from tracker.store.client.server import Server
from tracker.store.client.server_info import parse_info
from tracker.store.client.url import Address
from tracker.system.logger import Logger

_ASKED = 5
"""How many nodes are asked for the map at a time. Most of them decide: one that was cut off knows an old map."""

_NOT_SERVED = (AskError, ClusterDownError, TryAgainError)
"""The node answers, but does not serve the slot at the moment."""
SLOTS = 16384
NO_MAJORITY = "no majority"
_WORDS = 8
"""Words in the line of CLUSTER NODES about a node without slots."""
LOOK_SECONDS = 5.0
"""How often each node is pinged, so that a lost one is noticed also where nothing else is sent to it."""

log = Logger("tracker.store")

ServerAt = Callable[[Address], Server]
"""Returns the node at an address."""
SlotRange = tuple[int, int, Address]
"""First slot, last slot, and the node that serves them."""
SlotMap = tuple[list[SlotRange], list[Address]]
"""The slots, and all nodes: replicas too."""


def slot_of(prefix: str) -> int | None:
    """The slot of all keys under ``prefix``; None when it has no hash tag, so that they have many."""
    _, _, rest = prefix.partition("{")
    tag, end, _ = rest.partition("}")
    return key_slot(prefix.encode()) if tag and end else None


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as most of the others know it, and what it says itself."""

    node_id: str
    address: Address
    primary_id: str
    """Of a replica; empty for a primary."""
    failing: bool
    """Whether others get no reply from it."""
    slots: tuple[tuple[int, int], ...]
    """First and last one of each range."""
    answers: bool = False
    offset: int = 0
    """How much of the stream of changes it has (bytes)."""
    linked: bool = False
    """Whether a replica is connected to its primary."""


def parse_nodes(reply: str, asked_host: str) -> list[NodeState]:
    """The reply to CLUSTER NODES. A node that does not know its own host leaves it out: it is the one asked."""
    found = []
    for words in map(str.split, reply.splitlines()):
        if len(words) < _WORDS:  # no line of this version's format
            continue
        node_id, place, text, primary, _, _, _, _, *slots = words
        flags = text.split(",")
        if "handshake" in flags or "noaddr" in flags:
            continue
        host, _, port = place.partition("@")[0].rpartition(":")
        ranges = [each.partition("-") for each in slots if not each.startswith("[")]
        found.append(
            NodeState(
                node_id,
                (host.strip("[]") or asked_host, int(port)),
                "" if primary == "-" else primary,
                "fail" in flags or "fail?" in flags,
                tuple((int(first), int(last or first)) for first, _, last in ranges),
            )
        )
    return found


def no_majority(views: Iterable[Sequence[NodeState]]) -> str:
    """Why no node serves, if no node that answers has a majority of the primaries; else empty. ``views``: what each of
    them says of all."""
    counts = []
    for view in views:
        primaries = [node for node in view if node.slots and not node.primary_id]  # these decide with each other
        counts.append((sum(not node.failing for node in primaries), len(primaries)))
    answering, primaries_known = max(counts, default=(0, 0))
    if 2 * answering > primaries_known or not primaries_known:
        return ""
    return f"{NO_MAJORITY}: {answering} of {primaries_known} primaries answer{'s' * (answering == 1)}"


class Cluster(Topology):
    """The nodes of a cluster. ``addresses`` are known ones, at least one; ``ranges`` say which of them serves which
    slot: commands without a key, such as SCAN, never get MOVED."""

    def __init__(self, server_at: ServerAt, addresses: Sequence[Address], ranges: Sequence[SlotRange] = ()) -> None:
        super().__init__()
        self._server_at = server_at
        self._first = addresses[0]
        self._addresses = deque(addresses)
        self._ranges = list(ranges)
        self._servers: dict[Address, Server] = {}
        self._views: list[list[NodeState]] = []
        """What each node that answered last says of all nodes."""

    @property
    def nodes(self) -> tuple[Address, ...]:
        return tuple(self._addresses)

    def of(self, prefix: str) -> Connection:
        """The connection for the keys under ``prefix``, which must have a hash tag."""
        for known in self.connections:
            if known.prefix == prefix:
                return known
        server = self._server(self._primary(prefix) or self._first)  # which may answer MOVED
        server.serve(prefix)
        return Connection(server, self, prefix)

    def _primary(self, prefix: str) -> Address | None:
        """The node that most maps name for the slot of ``prefix``."""
        slot = slot_of(prefix)
        assert slot is not None
        votes = Counter(address for first, last, address in self._ranges if first <= slot <= last)
        return votes.most_common(1)[0][0] if votes else None

    def _server(self, address: Address) -> Server:
        if address not in self._servers:
            self._servers[address] = self._server_at(address)
        return self._servers[address]

    def redirects(self, connection: Connection, error: Exception) -> bool:
        """After MOVED, the call can be repeated, and goes to the node that serves the slot now."""
        if isinstance(error, MovedError):
            host, _ = connection.server.address or self._first
            connection.use(self._server((error.host or host, error.port)))
            return True
        if isinstance(error, _NOT_SERVED):  # other nodes may have chosen another one for the slot
            connection.set_unavailable(error)
        return False

    async def follow(self) -> None:
        """Pings each node, so that a lost one is noticed also where nothing else is sent to it."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            available = {each.server: each for each in self.connections if not each.unavailable}
            for connection in available.values():
                with suppress(StoreUnavailable, RedisError):
                    await connection.command("PING")

    async def find(self) -> None:
        """Asks several nodes which of them serves which slot, moves the connections, and forgets what is not in the map
        any more; raises StoreUnavailable when none answers."""
        self._addresses.rotate(1 - _ASKED)
        asked = dict.fromkeys([self._first, *islice(self._addresses, _ASKED - 1)])
        maps: list[SlotMap] = []
        self._views = []

        async def ask(server: Server) -> None:
            with suppress(StoreUnavailable, RedisError, OSError):
                maps.append(await read_slot_map(server))
            with suppress(StoreUnavailable, RedisError, OSError):  # the store's user may not be allowed to
                self._views.append(await read_nodes(server))

        await self._with_each(asked, ask)
        known, self.cause = self.cause, no_majority(self._views) if maps else "no node of the cluster answers"
        if self.cause and self.cause != known:
            log.warning("the cluster does not serve", cause=self.cause)
        self._ranges = [each for ranges, _ in maps for each in ranges]
        if not self._ranges:
            raise StoreUnavailable("no node of the cluster says which nodes serve")
        for connection in self.connections:
            if primary := self._primary(connection.prefix):
                connection.use(self._server(primary))
        named = {address for _, addresses in maps for address in addresses}
        new = [each for each in sorted(named) if each not in self._addresses]
        self._addresses = deque([*new, *(each for each in self._addresses if each in named)])
        for address in [address for address, server in self._servers.items() if not server.prefixes]:
            await self._servers.pop(address).close()

    def cause_of(self, error: Exception) -> str:
        if isinstance(error, AskError | TryAgainError):
            return "the slot is moving to another node"
        return "the node does not serve the slot" if isinstance(error, ClusterDownError) else "the node does not answer"

    async def states(self) -> list[NodeState]:
        """The nodes, each as it is at the moment; of one that is known by its address only, nothing but the address."""
        await self.look()
        votes = Counter(node for view in self._views for node in view)
        known = {node.node_id: node for node, _ in reversed(votes.most_common())}
        nodes = list(known.values()) or [NodeState("", each, "", True, ()) for each in self._addresses]
        found: list[NodeState] = []

        async def ask(server: Server) -> None:
            node = next(each for each in nodes if each.address == server.address)
            with suppress(StoreUnavailable, RedisError, OSError):
                info = parse_info(await server.execute("INFO", "replication"))
                offset = int(info.get("slave_repl_offset" if node.primary_id else "master_repl_offset", "0"))
                linked = info.get("master_link_status") == "up"
                node = replace(node, answers=True, offset=offset, linked=linked)
            found.append(node)

        await self._with_each([node.address for node in nodes], ask)
        return sorted(found, key=lambda node: (node.slots or ((SLOTS, 0),), node.address))

    async def _with_each(self, addresses: Iterable[Address], call: Callable[[Server], Awaitable[None]]) -> None:
        """On connections of its own: those of announces may hang."""

        async def on_one(address: Address) -> None:
            server = self._server_at(address)
            try:
                await call(server)
            finally:
                await server.close()

        await asyncio.gather(*map(on_one, addresses))

    async def close(self) -> None:
        for server in self._servers.values():
            await server.close()


async def read_slot_map(server: Server) -> SlotMap:
    """What one node knows. CLUSTER SLOTS names the port with or without TLS, as the connection to it is."""
    host = server.client.connection_pool.connection_kwargs["host"]
    ranges, addresses = [], []
    for first, last, *nodes in await server.execute("CLUSTER", "SLOTS"):
        found = [_address(node, host) for node in nodes]
        ranges.append((first, last, found[0]))
        addresses += found
    return ranges, addresses


async def read_nodes(server: Server) -> list[NodeState]:
    """All nodes, as one of them knows them. CLUSTER NODES may name other ports than those of the connection's kind."""
    host = server.client.connection_pool.connection_kwargs["host"]
    ranges = await server.execute("CLUSTER", "SLOTS")
    places = {node[2].decode(): _address(node, host) for _, _, *nodes in ranges for node in nodes}
    nodes = parse_nodes((await server.execute("CLUSTER", "NODES")).decode(), host)
    return [replace(node, address=places.get(node.node_id, node.address)) for node in nodes]


def _address(node: list[Any], asked_host: str) -> Address:
    """A node that does not know its own host leaves it out: it is the one that was asked."""
    host = (node[0] or b"").decode()
    return (host if host not in ("", "?") else asked_host, int(node[1]))


async def find_nodes(server: Server, prefix: str, shown: str) -> SlotMap:
    """The cluster that ``server`` is part of, for keys under ``prefix``. ``shown`` is its address as it may be printed.
    Raises StartupError when the cluster cannot be used."""
    pool = server.client.connection_pool
    if slot_of(prefix) is None:
        raise StartupError(
            f"the store at {shown} is part of a cluster: TRACKER_REDIS__PREFIX needs a hash tag, as in t:{{t}}:"
        )
    if "host" not in pool.connection_kwargs or isinstance(pool, MasterPool):
        raise StartupError(f"the store at {shown} is part of a cluster: name a node by redis:// or rediss://")
    if pool.connection_kwargs.get("db"):
        raise StartupError(f"the store at {shown}: only database 0 of a cluster can be used")
    try:
        ranges, addresses = await read_slot_map(server)
    except (RedisError, OSError) as error:
        raise StoreNotReady(f"the store at {shown} does not tell the nodes of its cluster: {error}") from error
    asked = (pool.connection_kwargs["host"], pool.connection_kwargs["port"])
    known = list(dict.fromkeys(addresses)) or [asked]
    return ranges, sorted(known, key=lambda address: address != asked)  # another one may not answer


async def check_served(connection: Connection, prefixes: Sequence[str]) -> None:
    """Raises StoreNotReady when no node serves any of the ``prefixes``."""

    async def is_served(prefix: str) -> bool:
        try:
            await connection.topology.of(prefix).pipeline(("EXISTS", prefix))
        except StoreUnavailable:
            return False
        return True

    if any(await asyncio.gather(*map(is_served, prefixes))):
        return
    await connection.topology.look()
    own = connection.topology.of(prefixes[0])
    advice = ""
    if "answer" in own.cause and not own.cause.startswith(NO_MAJORITY):
        advice = ". If the nodes run, they announce wrong addresses (cluster-announce-ip, cluster-announce-hostname)"
    raise StoreNotReady(f"no shard is served; {prefixes[0]} at {own.master}: {own.cause}{advice}")
