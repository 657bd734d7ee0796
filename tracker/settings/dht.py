"""Settings of the DHT node."""

import socket
from typing import Annotated, Literal

from pydantic import Field

from tracker.settings.types import Reloaded, Section, UdpAddress, check_udp_listen, checked_by

NAME = r"^[-.0-9A-Za-z]{0,64}$"


def _check_families(values: tuple[str, ...]) -> None:
    families = [_family(value) for value in values]
    if len(set(families)) < len(families):
        raise ValueError("at most one IPv4 and one IPv6 address")


def _family(value: str) -> int:
    family = socket.AF_INET6 if ":" in value else socket.AF_INET
    try:
        socket.inet_pton(family, value)
    except OSError:
        raise ValueError("must be IPv4 or IPv6 addresses") from None
    return family


class DhtSettings(Section):
    """A node of the mainline DHT, for public torrents."""

    enabled: bool = False
    """Run a node of the DHT. While it is off, no socket is open."""
    listen: Annotated[tuple[Annotated[str, checked_by(check_udp_listen)], ...], Field(max_length=2)] = (
        "0.0.0.0:6881",
        "[::]:6881",
    )
    """UDP addresses of the node, `host:port` or `[ipv6]:port`, at most one of each family."""
    name: str = Field("", pattern=NAME)
    """Name of this node in the store; must be unique per store. Empty: the host name."""
    bootstrap: tuple[UdpAddress, ...] = ()
    """Nodes to begin with, `host:port` or `[ipv6]:port`. None is built in. Saved nodes come first; then these and
    clients of public swarms."""
    external_address: Annotated[tuple[str, ...], checked_by(_check_families)] = ()
    """This host's addresses as others see them, at most one IPv4 and one IPv6 address. Unset: what other nodes
    report."""
    torrents: Literal["public", "all", "any"] = "public"
    """`public`: only torrents whose field `private` is 0 take part. `all`: all torrents that are not known to be
    private, also those that registered themselves or are not registered. `any`: as `public`, but the node also keeps
    what other nodes announce of any hash that is not known to be private."""
    answer: bool = True
    """Answer other nodes with peers of the swarms of torrents that take part."""
    lookups_per_minute: Annotated[int, Field(ge=0, le=600)] = 10
    """Torrents with few seeders that the node looks up in the DHT per minute; 0 for none. Each is looked up once in 6
    hours at most, and takes 20 to 100 packets."""
    give_peers: Reloaded[bool] = False
    """Add peers that the node found in the DHT to the replies of announces that find few peers in the swarm. Never of
    private torrents."""
    give_below: Reloaded[int] = Field(10, ge=1, le=200)
    """An announce that finds fewer peers in the swarm gets peers of the DHT."""
    verify_peers: Reloaded[bool] = True
    """Return only peers that completed a handshake for the torrent; needs `TRACKER_PROBE__ENABLED`. `false`: peers
    reported by nodes in at least two networks (IPv4: /16, IPv6: /32)."""
    samples: Literal["announced", "public", "none"] = "announced"
    """Info hashes that the node shows to indexers (BEP 51). `announced`: of torrents that nodes announced to it.
    `public`: also of the tracker's torrents whose field `private` is 0."""
    read_only: bool = False
    """Only look up (BEP 43): queries of other nodes get no answer. For hosts behind NAT."""
    private_addresses: bool = False
    """Accept nodes with private and loopback addresses, with no limit per network. For LANs."""
    bucket_nodes: int = Field(80, ge=8, le=1000)
    """Maximum number of nodes per bucket of the routing table."""
    bucket_hashes: int = Field(80, ge=8, le=1000)
    """Maximum number of announced info hashes per bucket."""
    node_timeout_seconds: int = Field(1800, ge=60, le=86_400)
    """A node silent for longer is dropped when a ping fails."""
    address_queries_second: Annotated[float, Field(gt=0, le=10_000)] = 1
    """Queries answered per second, per address (IPv6: /64). Queries beyond that are ignored."""
    address_burst: int = Field(10, ge=1, le=100_000)
    """Burst: queries of one address that are answered at once."""
    queries_second: float = Field(200, gt=0, le=100_000)
    """Queries answered per second, from all addresses."""
    queries_burst: int = Field(400, ge=1, le=1_000_000)
    """Burst: queries answered at once, from all addresses."""
    answer_bytes_second: int = Field(64_000, ge=1024, le=1_000_000_000)
    """Bytes of answers per second in total."""
    sent_queries_second: float = Field(50, gt=0, le=10_000)
    """Queries that the node sends per second in total."""

    @property
    def node_name(self) -> str:
        """``name``, or the host name as far as it may be one."""
        return self.name or "".join(c for c in socket.gethostname() if c.isascii() and (c.isalnum() or c in "-."))[:64]
