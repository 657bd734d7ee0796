"""Settings of the background work: places, unique users, scores, jobs, probes, statistics sent to other servers, and
the DHT node."""

import socket
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from tracker.settings.types import (
    AnnounceUrls,
    QueueNumbers,
    Reloaded,
    Section,
    UdpAddress,
    WebAddress,
    check_udp_listen,
    checked_by,
    host_and_port,
    queue_numbers,
)

GEOIP_SOURCES = ("dbip-city-lite", "dbip-country-lite", "maxmind:GeoLite2-City", "maxmind:GeoLite2-Country")


class GeoIPSettings(Section):
    """The location of addresses."""

    database: Reloaded[Path | None] = None
    """A GeoIP2 City or Country database (`.mmdb`, from MaxMind or DB-IP), which the tracker reopens when the file is
    replaced; or a source, from which the tracker fetches one each week: `dbip-city-lite`, `dbip-country-lite`,
    `maxmind:GeoLite2-City` or `maxmind:GeoLite2-Country`. Without it, unique users are not counted by location."""
    account_id: str = ""
    """Your account id at MaxMind, for a source `maxmind:…`."""
    licence_key: SecretStr | None = None
    """Your licence key at MaxMind."""

    @property
    def source(self) -> str | None:
        """The source that ``database`` names; None for a path."""
        return str(self.database) if str(self.database) in GEOIP_SOURCES else None


class UniqueSettings(Section):
    """Counting unique users."""

    enabled: bool = True
    """Count unique users by torrent and, with a GeoIP database, by location."""
    mode: Literal["exact", "hashed", "hyperloglog"] = "exact"
    """`exact` keeps one key per address and metric for 30 days. `hashed` does the same with a keyed hash instead of the
    address. `hyperloglog` keeps an estimate in a few kilobytes per metric."""
    ipv6_prefix: int = Field(64, ge=16, le=128)
    """Number of leading bits of an IPv6 address that identify one user."""


class ScoringSettings(Section):
    """Scoring torrents."""

    enabled: bool = True
    """Score torrents in this process."""
    interval_seconds: int = Field(3600, ge=1, le=604_800)
    """Each torrent is scored once per interval, as far as capacity allows."""
    max_peers: Annotated[int | None, Field(ge=1, le=1_000_000_000)] = None
    """The score of a swarm with fewer peers falls. Default: `TRACKER_ANNOUNCE__PEERS_DEFAULT`."""
    per_second: float = Field(500, gt=0, le=100_000)
    """Maximum number of torrents scored per second by this process."""
    history: Annotated[int, Field(ge=0, le=10_000)] = 72
    """Scorings kept per ranked torrent, each with its seeders, leechers and snatches; 0 for none. 72 take about 2 kB of
    the store per torrent."""
    upstreams: AnnounceUrls = ()
    """Other trackers to ask about each torrent, as announce URLs (`http://`, `https://` or `udp://`). Their peers count
    in the scores."""
    upstream_max_peers: int = Field(50, ge=1, le=1_000_000_000)
    """The same as `max_peers`, for swarms of other trackers."""
    dht_max_peers: int = Field(50, ge=1, le=1_000_000_000)
    """The same as `max_peers`, for peers that the DHT node found."""
    upstream_peers: bool = False
    """Also ask other trackers for peer addresses, and count them. The announce has the event `stopped`, so it does not
    join the swarm."""
    upstream_per_minute: float = Field(60, gt=0, le=60_000)
    """Maximum number of requests per minute to one host of another tracker."""


class JobSettings(Section):
    """The queue of background jobs."""

    concurrency: QueueNumbers = ("process_torrent:4",)
    """Jobs of a queue that run at the same time, over all trackers on the store: `queue:number`, 1 to 256; of other
    queues one. `tracker jobs limit` sets another number for a queue."""
    priority: QueueNumbers = ()
    """Priority of new jobs of a queue: `queue:number`, -10 to 10; of other queues 0. `tracker jobs limit` sets another
    for a queue."""

    @field_validator("concurrency", "priority")
    @classmethod
    def _in_range(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        lowest, highest = (1, 256) if info.field_name == "concurrency" else (-10, 10)
        if not all(lowest <= number <= highest for number in queue_numbers(value).values()):
            raise ValueError(f"must be numbers from {lowest} to {highest}")
        return value


class ProbeSettings(Section):
    """Connections to peers."""

    enabled: Reloaded[bool] = False
    """Allow connections to peers, to check what they announce: only to routable addresses, from port 1024, once an hour
    per endpoint, three times a day per address (IPv6: /64) unless it is a claimant's, two per second. While it is off,
    the tracker connects to no peer. Projects of work distribution with `verify` `handshake` or `piece` use it,
    `TRACKER_DHT__GIVE_PEERS`, and `connectable`."""
    connectable: bool = False
    """Check once a day which peers accept connections, and show it in the API, on the dashboard and by user. It needs
    `enabled`. Peers are given to other peers whatever the result."""


class StatHatSettings(Section):
    """Statistics sent to StatHat."""

    ezkey: SecretStr | None = None
    """The EZ key of the StatHat account. Without it nothing is sent."""
    url: WebAddress = "https://api.stathat.com"
    """Base URL of the EZ API, for compatible servers; `/ez` is appended."""
    prefix: str = Field("", max_length=60, pattern=r"^[^~\x00-\x1f\x7f]*$")
    """Prefix of every statistic's name."""
    places: bool = True
    """Also send unique users by city and postcode, not only by country."""
    per_torrent: bool = False
    """Also send unique users by torrent."""


class StatsDSettings(Section):
    """The same statistics sent to a StatsD server, instead of StatHat."""

    address: UdpAddress | None = None
    """UDP address of the server, `host:port` or `[ipv6]:port`. Without it nothing is sent. Not together with
    `TRACKER_STATHAT__EZKEY`."""
    prefix: str = Field("tracker.", max_length=60, pattern=r"^[A-Za-z0-9_.\-]*$")
    """Prefix of every metric's name."""

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """``address`` as (host, port)."""
        return None if self.address is None else host_and_port(self.address)


NAME = r"^[-.0-9A-Za-z]{0,64}$"


def _check_families(values: tuple[str, ...]) -> None:
    families = [socket.AF_INET6 if ":" in value else socket.AF_INET for value in values]
    try:
        for family, value in zip(families, values, strict=True):
            socket.inet_pton(family, value)
    except OSError:
        raise ValueError("must be IPv4 or IPv6 addresses") from None
    if len(set(families)) < len(families):
        raise ValueError("at most one IPv4 and one IPv6 address")


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
