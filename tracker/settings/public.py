"""Settings of the public ports: HTTP, UDP, announces over WebSockets, and the rate limits per address."""

from typing import Annotated

from pydantic import Field

from tracker.settings.types import ListenAddress, Network, Reloaded, Section, check_udp_listen, checked_by


class HttpSettings(Section):
    """The public HTTP port: addresses, proxies, connection limits."""

    listen: tuple[ListenAddress, ...] = ("0.0.0.0:6969", "[::]:6969")
    """Addresses to serve on: `host:port`, `[ipv6]:port` or `unix:/path`. On a system without IPv6, IPv6 addresses are
    skipped with a warning."""
    trusted_proxies: tuple[Network, ...] = ()
    """Networks (`10.0.0.0/8`) whose X-Forwarded-For, Forwarded and PROXY headers and `ip=` are trusted. With at least
    one network here, connections over a unix socket are trusted as well."""
    proxy_protocol: bool = False
    """Expect a PROXY protocol header (v1 or v2) on connections from trusted proxies."""
    ip_parameter_from_private: bool = False
    """Also trust `ip=` from private and loopback addresses, for tests in a LAN."""
    max_request_line_bytes: Annotated[int, Field(ge=1024, le=1048576)] = 32768
    """Maximum length of a request line. A scrape of 400 torrents needs 29,000 bytes."""
    max_header_bytes: Annotated[int, Field(ge=256, le=1048576)] = 8190
    """Maximum length of one header line. All lines of a request together may be as long as this plus
    `max_request_line_bytes`."""
    keepalive_seconds: Annotated[float, Field(gt=0, le=3600)] = 60
    """A connection is closed after being idle, or not reading its answers, for this long."""
    header_seconds: Annotated[float, Field(gt=0, le=3600)] = 10
    """How long the head of a request may take, from its first byte (or from connecting) to the end of its header lines;
    at most `keepalive_seconds`. Then the connection is closed."""
    max_connections: Annotated[int, Field(ge=16, le=1_000_000)] = 20_000
    """Maximum number of open connections per process; fewer where the limit of open files is lower. At the limit, each
    new connection closes the oldest idle one."""
    max_connections_per_address: Annotated[int, Field(ge=1, le=1_000_000_000)] = 2000
    """Maximum number of open connections per address (IPv6: per /64) and process. At the limit, each new connection
    closes the oldest idle one of that address. Trusted proxies have no limit."""
    stop_delay_seconds: Annotated[float, Field(ge=0, le=600)] = 0
    """How long to keep serving after SIGTERM while `/ready` reports not ready, so that a load balancer stops sending
    requests before the port closes."""
    ready_when_degraded: bool = True
    """Answer `/ready` with 200 while this tracker reaches only some shards of the store. `false` where a load balancer
    has another tracker, which may reach them all: 503. It must still use a tracker if none is ready."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes that answer requests. With 2 or more, background work has its own process."""
    keep_user_agents: bool = False
    """Keep the User-Agent header of a peer's announces, up to 64 characters, for the change feed and lists of peers.
    Over UDP there is none."""
    access_log: bool = False
    """Log one line per request, without its passkey."""


AUTO, OFF = "auto", "off"


def _check_udp(listen: tuple[str, ...]) -> None:
    if not listen or (len(listen) > 1 and not {AUTO, OFF}.isdisjoint(listen)):
        raise ValueError("write auto, off, or addresses: host:port or [ipv6]:port")
    for address in listen:
        if address not in (AUTO, OFF):
            check_udp_listen(address)


class UdpSettings(Section):
    """Announces over UDP."""

    listen: Annotated[tuple[str, ...], checked_by(_check_udp)] = (AUTO,)
    """Addresses for announces over UDP: `host:port` or `[ipv6]:port`. `auto`: the TCP addresses of `http.listen`, but
    none with trusted proxies or where passkeys are required. `off`: none."""
    receive_buffer_bytes: Annotated[int, Field(ge=4096, le=1073741824)] = 4194304
    """Receive buffer of each UDP socket. The system limits it (`net.core.rmem_max`); less is logged. A default of
    212,992 bytes holds 256 packets."""


class WebTorrentSettings(Section):
    """WebTorrent: browsers announce over WebSockets, on the HTTP port."""

    enabled: bool | None = None
    """Serve WebSockets. Not set: in open mode, unless passkeys are required."""
    interval_seconds: Reloaded[Annotated[int, Field(ge=10, le=3600)]] = 120
    """How often peers announce over a WebSocket. Only announces bring new offers, so a long interval delays connections
    between few peers."""
    max_offers: Reloaded[int] = Field(10, ge=0, le=20)
    """Offers of one announce that are passed on; further ones are ignored."""
    max_torrents: Reloaded[int] = Field(100, ge=1, le=10_000)
    """Maximum number of torrents of a connection."""
    origins: tuple[str, ...] = ()
    """Sites whose pages may connect, such as `https://example.com`. Empty: all, and clients that name none."""


class LimitSettings(Section):
    """Rate limits per address (IPv6: per /64). An address beyond a limit gets longer intervals and fewer peers.
    Beyond twice the limit it is refused (most stops still pass). Beyond four times the limit its connections are
    closed without an answer."""

    enabled: Reloaded[bool] = True
    """Apply the limits of this section."""
    peer_announces_minute: Reloaded[Annotated[int, Field(ge=1, le=1_000_000_000)]] = 20
    """Early announces per minute of one peer on one torrent. An announce is early if it comes less than 30 seconds
    after the last one (or a quarter of the interval, if that is shorter)."""
    torrent_announces_minute: Reloaded[Annotated[int, Field(ge=1, le=1_000_000_000)]] = 2000
    """Extra announces per minute from one address on one torrent: joins, stops, early or refused announces, and
    announces using another peer's id."""
    joins_minute: Reloaded[int] = Field(3000, ge=1, le=1_000_000_000)
    """Joins per minute from one address, on all torrents together."""
    address_requests_minute: Reloaded[Annotated[int, Field(ge=1, le=1_000_000_000)]] = 10_000
    """Announces plus scraped torrents per minute from one address, on all torrents together."""
    unknown_passkeys_minute: Reloaded[Annotated[int, Field(ge=1, le=1_000_000_000)]] = 60
    """How many different unknown passkeys one address may try per minute. Beyond that, passkeys not seen as valid
    recently are refused without a lookup."""
    work_requests_minute: Reloaded[Annotated[int, Field(ge=1, le=1_000_000_000)]] = 60
    """Requests per minute from one address to the listener of work distribution. Beyond that they are refused with
    status 429."""
    address_entries_per_torrent: Reloaded[Annotated[int, Field(ge=1, le=1000)]] = 400
    """Endpoints and WebSockets one address may have in one swarm. Further peers get answers with a warning, but are not
    given to other peers."""
    address_entries: Reloaded[Annotated[int, Field(ge=1, le=1_000_000_000)]] = 50_000
    """Endpoints and WebSockets one address may have in all swarms together; a /24 (IPv6: /48) may have ten times as
    many."""
    exempt: Reloaded[tuple[Network, ...]] = ()
    """Networks (`198.18.0.0/15`) without limits, such as your own seedboxes. An IPv6 address exempts its whole /64.
    Their endpoints still count for the /24 or /48 around them."""
    private_addresses: Reloaded[bool] = False
    """Also limit private and loopback addresses. Off by default: behind a proxy missing from
    `TRACKER_HTTP__TRUSTED_PROXIES`, all peers appear to have the proxy's address."""
