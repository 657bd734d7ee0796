"""The settings of what runs behind the announces; tracker/settings.py puts all sections together."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from tracker.setting_types import MOST_SECONDS, AnnounceUrls, Section, UdpAddress, WebAddress, host_and_port


class GeoIPSettings(Section):
    """Where addresses are in the world."""

    database: Path | None = Field(
        None,
        description="A GeoIP2 City or Country database (`.mmdb`, MaxMind's or DB-IP's); replaced files are noticed. "
        "Without it unique users are not counted by place.",
    )


class UniqueSettings(Section):
    """How unique users are counted."""

    enabled: bool = Field(
        True, description="Count unique users by torrent and, with a GeoIP database, by place."
    )
    mode: Literal["exact", "hashed", "hyperloglog"] = Field(
        "exact",
        description="`exact` keeps one key per address and metric for 30 days, `hashed` the same with a keyed hash "
        "instead of the address, `hyperloglog` an estimate in a few kilobytes per metric.",
    )
    ipv6_prefix: int = Field(
        64, ge=16, le=128, description="IPv6 addresses that agree in so many bits count as one user."
    )
    max_waiting: int = Field(
        100_000,
        ge=64,
        le=1_000_000_000,
        description="Joins that may wait to be counted in one process; further ones are dropped.",
    )


class ScoringSettings(Section):
    """How torrents are scored."""

    enabled: bool = Field(True, description="Score torrents in this process.")
    interval_seconds: int = Field(
        3600,
        ge=1,
        le=604_800,
        description="Each torrent is scored once in so long, as far as capacity allows.",
    )
    max_peers: int | None = Field(
        None,
        ge=1,
        le=1_000_000_000,
        description="A swarm of so many peers is not weak; without it as many as `TRACKER_ANNOUNCE__PEERS_DEFAULT`.",
    )
    cap: float = Field(4.0, ge=1, le=1000, description="No score grows beyond this.")
    per_second: float = Field(
        500, gt=0, le=100_000, description="Most torrents scored per second in this process."
    )
    history: int = Field(
        72,
        ge=0,
        le=10_000,
        description="How many scorings are remembered of each torrent in the ranking, with its seeders, leechers and "
        "snatches then; 0 for none. 72 take about 2 kB of the store for each torrent.",
    )
    processors_max: int = Field(
        8, ge=1, le=256, description="Most torrents' batches scored at the same time in this process."
    )
    upstreams: AnnounceUrls = Field(
        (),
        description="Other trackers to ask about each torrent, as announce URLs (`http://`, `https://` or `udp://`), "
        "so that torrents known elsewhere are scored too.",
    )
    upstream_max_peers: int = Field(
        50, ge=1, le=1_000_000_000, description="The same as `max_peers`, for swarms of other trackers."
    )
    upstream_peers: bool = Field(
        False,
        description="Also ask other trackers for addresses of peers (as an observer that stops at once), and count them.",
    )
    upstream_per_minute: float = Field(
        60, gt=0, le=60_000, description="Most requests to one host of another tracker in a minute."
    )
    upstream_timeout_seconds: float = Field(
        10, gt=0, le=60, description="How long another tracker may take to answer."
    )


class JobSettings(Section):
    """The queue of background jobs."""

    max_retries: int = Field(2, ge=0, le=100, description="How often a job that failed is tried again.")
    timeout_seconds: float = Field(1800, gt=0, le=604_800, description="How long one run of a job may take.")
    keep_seconds: int = Field(
        86_400,
        ge=0,
        le=MOST_SECONDS,
        description="How long finished jobs can be looked at before they are deleted.",
    )
    concurrency: int = Field(
        4,
        ge=1,
        le=256,
        description="Torrents' jobs that run at the same time, over all trackers on the store.",
    )


class StatHatSettings(Section):
    """Figures sent to StatHat."""

    ezkey: SecretStr | None = Field(
        None, description="The EZ key of the account; without it nothing is sent."
    )
    url: WebAddress = Field(
        "https://api.stathat.com",
        description="Where the EZ API is; another one for compatible servers. `/ez` is added.",
    )
    prefix: str = Field(
        "",
        max_length=60,
        pattern=r"^[^~\x00-\x1f\x7f]*$",
        description="What the name of every statistic begins with.",
    )
    per_torrent: bool = Field(False, description="Send unique users by torrent too, not only by country.")
    timeout_seconds: float = Field(10, gt=0, le=60, description="How long one answer may take.")
    max_waiting: int = Field(
        100_000,
        ge=100,
        le=1_000_000_000,
        description="Figures that may wait while it (or StatsD) does not answer; further ones are dropped and counted.",
    )


class StatsDSettings(Section):
    """The same figures sent to a StatsD server, instead of StatHat."""

    address: UdpAddress | None = Field(
        None,
        description="Its UDP address, `host:port` or `[ipv6]:port`; without it nothing is sent. Not together with "
        "`TRACKER_STATHAT__EZKEY`.",
    )
    prefix: str = Field(
        "tracker.",
        max_length=60,
        pattern=r"^[A-Za-z0-9_.\-]*$",
        description="What the name of every metric begins with.",
    )

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """``address`` as (host, port)."""
        return None if self.address is None else host_and_port(self.address)
