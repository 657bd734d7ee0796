"""Settings of what peers use: the public ports, announces, torrents, users, clients, and the rate limits."""

from typing import Annotated, Literal

from pydantic import Field

from tracker.bittorrent import Accounts
from tracker.settings.types import (
    MAX_BYTES,
    MAX_SECONDS,
    AnnounceBase,
    ListenAddress,
    Network,
    Reloaded,
    Section,
    check_udp_listen,
    checked_by,
)
from tracker.wire.announce_path import PasskeyForms


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


class AnnounceSettings(Section):
    """Replies to announces."""

    urls: Reloaded[Annotated[tuple[AnnounceBase, ...], Field(max_length=16)]] = ()
    """Where clients reach the tracker, such as `https://tracker.example,udp://tracker.example:6969`, without
    `/announce`; the most important one first. The banner, the dashboard, the API, .torrent files and work distribution
    name these. Empty: the addresses of `TRACKER_HTTP__LISTEN`, unless clients come through a proxy."""
    interval_seconds: Reloaded[int] = Field(1800, ge=1, le=86400)
    """How often peers announce. Lists of public trackers accept 300 to 10800."""
    interval_jitter: Reloaded[Annotated[float, Field(ge=0, le=0.5)]] = 0.1
    """Maximum share of the interval that is added at random, so that peers do not come in waves."""
    min_interval_seconds: Reloaded[int] = Field(900, ge=0, le=86400)
    """Peers are asked not to announce more often than this."""
    peers_default: Reloaded[int] = Field(50, ge=0, le=1000)
    """Peers returned to a client that does not ask for a number."""
    peers_max: Reloaded[int] = Field(200, ge=0, le=1000)
    """Maximum number of peers in one reply."""
    private_addresses: Reloaded[Literal["serve", "refuse"]] = "serve"
    """What to do with peers on private, loopback and other addresses that are unreachable from the internet. Use
    `refuse` for a public tracker, `serve` in a local network."""
    untold_ports: Reloaded[tuple[Annotated[int, Field(ge=1, le=65535)], ...]] = Field((), max_length=64)
    """Peers on these ports are not returned to others, at most 64 ports."""

    def urls_of(self, passkey: str = "") -> list[str]:
        """The configured announce URLs, of a user if there is a passkey."""
        return [f"{url}/{passkey}/announce" if passkey else f"{url}/announce" for url in self.urls]

    @property
    def max_interval_seconds(self) -> int:
        """The interval plus its full jitter."""
        return self.interval_seconds + int(self.interval_seconds * self.interval_jitter)


class TorrentSettings(Section):
    """Which torrents are served, and how many."""

    mode: Reloaded[Literal["open", "registered"]] = "open"
    """`open` registers an unknown torrent at its first announce; `registered` refuses it. Torrents that registered
    themselves in open mode stay until they are forgotten (`forget_after_seconds`)."""
    max_torrents: Reloaded[Annotated[int, Field(ge=1, le=1_000_000_000)]] = 1_000_000
    """In open mode, maximum number of registered torrents. At the limit, a new torrent replaces the self-registered one
    that has been empty longest; if there is none, it is refused. A network (IPv4: /24, IPv6: /48) that registered more
    than a tenth of them loses its own first, then also those of one or two peers. Torrents that only WebSockets ever
    joined come on top, up to a tenth of all; beyond that they count as those of one network."""
    new_per_address_hour: Reloaded[Annotated[int, Field(ge=1, le=1_000_000_000)]] = 10_000
    """In open mode, new torrents that one address (IPv6: one /64) may register per hour."""
    new_per_network_hour: Reloaded[Annotated[int, Field(ge=1, le=1_000_000_000)]] = 50_000
    """In open mode, new torrents that one network (IPv4: /24, IPv6: /48) may register per hour."""
    forget_after_seconds: Reloaded[Annotated[int, Field(ge=60, le=MAX_SECONDS)]] = 604_800
    """A self-registered torrent is forgotten after this long without a peer. One that only a single address (IPv6: one
    /64) ever joined is forgotten after an hour, and one that only WebSockets ever joined after ten minutes, if that is
    sooner."""
    keep_files: Reloaded[bool] = False
    """Keep the .torrent files that are added through the API, the dashboard or the command line, in `torrents` in the
    data directory, for download. A file is kept without announce URLs and comments, and deleted when its torrent is
    removed. Trackers on several hosts do not share the files."""
    full_scrape: Reloaded[bool] = False
    """Answer a scrape without info_hash with every torrent."""
    max_scrape: Reloaded[Annotated[int, Field(ge=1, le=10_000)]] = 400
    """Maximum number of torrents in one scrape, over UDP at most 74. A scrape of more is refused."""


class ReaperSettings(Section):
    """When timed-out peers are removed."""

    interval_seconds: Reloaded[Annotated[float, Field(gt=0, le=172_800)]] = 2700
    """A peer is removed after this long without an announce, or after 1.5 announce intervals if that is longer."""


class UserSettings(Section):
    """User accounts: passkeys, totals per user, hit-and-runs."""

    private: Accounts = "off"
    """Whether announces need a user's passkey in the URL. `required` refuses those without (a private tracker);
    `optional` credits an announce with a passkey to the user of the passkey, and serves others anonymously; `off`
    ignores passkeys."""
    passkey_after_announce: bool = True
    """Also read passkeys from `/announce/<passkey>` and `/scrape/<passkey>`. Without effect while `private` is
    `off`."""
    passkey_parameter: bool = True
    """Also read passkeys from the query: `/announce?passkey=<passkey>` and `/scrape?passkey=<passkey>`. Without effect
    while `private` is `off`."""
    peer_memory_seconds: Reloaded[int] = Field(2_592_000, ge=60, le=MAX_SECONDS)
    """How long a user's departed peer is remembered."""
    hnr_min_bytes: Reloaded[Annotated[int, Field(ge=0, le=MAX_BYTES)]] = 1_048_576
    """A user who downloaded more than this of a torrent has to stay on it for `hnr_threshold_seconds` in total."""
    hnr_threshold_seconds: Reloaded[Annotated[int, Field(ge=0, le=MAX_SECONDS)]] = 259_200
    """A user whose last peer leaves such a torrent with less total time than this gets a hit-and-run."""
    hnr_time: Reloaded[Literal["total", "seed"]] = "total"
    """The time that counts towards `hnr_threshold_seconds`: as a leecher and as a seeder (`total`), or as a seeder only
    (`seed`)."""
    hnr_min_percent: Reloaded[Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]] = 0
    """A user who downloaded no more than this part of a torrent gets no hit-and-run. For torrents of unknown size only
    `hnr_min_bytes` counts."""
    hnr_ratio: Reloaded[Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]] = 0
    """A user who uploaded this many times the downloaded bytes on the torrent gets no hit-and-run, whatever the time.
    0: the ratio does not count."""
    hnr_grace_seconds: Reloaded[Annotated[int, Field(ge=0, le=MAX_SECONDS)]] = 0
    """How long a user may leave such a torrent before it becomes a hit-and-run. Until then it is listed as pending
    (`tracker user pending`)."""
    max_credit_bytes_per_second: Reloaded[Annotated[int, Field(ge=1, le=MAX_BYTES)]] = 1_250_000_000
    """Maximum upload and download rate credited to a user on one torrent: 10 Gbit/s. The excess is not credited; the
    user's `credit_cut` counts it."""
    max_user_credit_bytes_per_second: Reloaded[Annotated[int, Field(ge=1, le=MAX_BYTES)]] = 1_250_000_000
    """The same over all torrents of a user. Unused credit is saved for up to two announce intervals."""

    max_peers_per_torrent: Reloaded[Annotated[int, Field(ge=0, le=100)]] = 0
    """How many peers a user may have in one torrent. When one more joins, the user's peer that has been silent longest
    is removed. 0: any number."""
    max_downloads: Reloaded[Annotated[int, Field(ge=0, le=1_000_000)]] = 0
    """How many torrents a user may download at once. Further ones are refused until one is complete or stopped. A user
    may have a limit of their own (`tracker user edit --max-downloads`). 0: any number."""
    beyond_max_downloads: Literal["mapping", "refusal", "warning"] = "mapping"
    """How a download beyond `max_downloads` is answered: `refusal`, or `warning`: without peers and with a warning.
    `mapping`: as `slots` of `TRACKER_SITE__MAPPING` says, where `TRACKER_SITE__DATABASE` is set (UNIT3D: `warning`);
    else `refusal`. In both cases the peer joins with a later announce, when the user may download one more."""
    own_peers: Reloaded[bool] = False
    """Whether replies to a user may contain the user's own other peers."""
    min_credit_interval_seconds: Reloaded[Annotated[int, Field(ge=0, le=86400)]] = 0
    """An announce of a user's peer sooner than this after its last one is neither credited nor answered with peers. Its
    bytes count with the next announce that is due. Capped at the announce interval."""
    peer_lists_at_once: Reloaded[Annotated[int, Field(ge=0, le=1_000_000)]] = 300
    """How many joins and early announces of a user are answered with peers at once. Seeders have a quarter of this and
    of the next two. 0: no limit."""
    peer_lists_per_minute: Reloaded[Annotated[int, Field(ge=0, le=1_000_000)]] = 60
    """How many more are answered with peers each minute, once those are used up. 0: no limit."""
    peer_lists_per_day: Reloaded[Annotated[int, Field(ge=0, le=1_000_000_000)]] = 20_000
    """How many joins and early announces of a user are answered with peers in a day. 0: no limit."""

    @property
    def passkey_forms(self) -> PasskeyForms:
        """Where announce URLs may carry a passkey."""
        if self.private == "off":
            return PasskeyForms()
        return PasskeyForms(self.private, self.passkey_after_announce, self.passkey_parameter)


class ClientSettings(Section):
    """Client programs."""

    allow_list: Reloaded[bool] = False
    """Serve only clients whose peer id begins with an allowed prefix (`tracker client allow`)."""
    deny_list: Reloaded[bool] = False
    """Refuse clients whose peer id begins with a denied prefix (`tracker client deny`), even if the allow-list permits
    them."""
    count_software: bool = True
    """Count the client programs that join and those that are refused, per month and for all time (`tracker client
    seen`)."""


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
