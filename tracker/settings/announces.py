"""Settings of announces, torrents and the removal of peers that time out."""

from typing import Annotated, Literal

from pydantic import Field

from tracker.settings.types import MAX_SECONDS, AnnounceBase, Reloaded, Section


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
