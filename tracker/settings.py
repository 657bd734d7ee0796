"""Every setting, its default and one sentence about it.

``TRACKER_REDIS__URL`` is field ``url`` of section ``redis``; settings_sources.py reads them, and
docs/settings.md is made from them. Parts receive their own section, never the whole. A new setting
goes into the section of its part: nothing else has to know.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from tracker.setting_types import MOST_BYTES, MOST_SECONDS, ListenAddress, Network, Section
from tracker.settings_background import (
    GeoIPSettings,
    JobSettings,
    ScoringSettings,
    StatHatSettings,
    StatsDSettings,
    UniqueSettings,
)
from tracker.settings_limits import LimitSettings

__all__ = [
    "FIELDS",
    "PREFIX",
    "AdminSettings",
    "AnnounceSettings",
    "ClientSettings",
    "DataSettings",
    "GeoIPSettings",
    "HttpSettings",
    "JobSettings",
    "LimitSettings",
    "LogSettings",
    "ReaperSettings",
    "RedisSettings",
    "ScoringSettings",
    "Settings",
    "StatHatSettings",
    "StatsDSettings",
    "TorrentSettings",
    "UniqueSettings",
    "UserSettings",
    "variable",
]

PREFIX = "TRACKER_"


class HttpSettings(Section):
    """Where requests come in, and how large they may be."""

    listen: tuple[ListenAddress, ...] = Field(
        ("0.0.0.0:6969", "[::]:6969"),
        description="Addresses to serve on: `host:port`, `[ipv6]:port` or `unix:/path`. On a system without "
        "IPv6 the IPv6 ones are left out with a warning.",
    )
    trusted_proxies: tuple[Network, ...] = Field(
        (),
        description="Networks (`10.0.0.0/8`) whose X-Forwarded-For, Forwarded and PROXY headers and `ip=` are "
        "believed; once any is named, whoever connects through a unix socket is believed as well.",
    )
    proxy_protocol: bool = Field(
        False, description="Expect a PROXY protocol header (v1 or v2) on connections from trusted proxies."
    )
    ip_parameter_from_private: bool = Field(
        False, description="Honour `ip=` from private and loopback addresses too, for tests in a LAN."
    )
    max_request_line_bytes: int = Field(
        32768,
        ge=1024,
        le=1048576,
        description="Longest request line accepted; a scrape of 400 torrents needs 29,000.",
    )
    max_header_bytes: int = Field(
        8190,
        ge=256,
        le=1048576,
        description="Longest single header line accepted; all lines of a request together may have as many bytes as this one "
        "and the longest request line.",
    )
    max_headers: int = Field(64, ge=8, le=1024, description="Most header lines accepted in one request.")
    keepalive_seconds: float = Field(
        60,
        gt=0,
        le=3600,
        description="A connection is closed after being idle, or not reading its answers, for this long.",
    )
    header_seconds: float = Field(
        10,
        gt=0,
        le=3600,
        description="A connection is closed when a request, from its first byte or from connecting to the end of "
        "its header lines, takes longer than this; at most as long as it may be idle.",
    )
    max_connections: int = Field(
        20_000,
        ge=16,
        le=1_000_000,
        description="Most connections open in one process, or as many as its file descriptors allow. When there are "
        "as many, the one open longest that waits for no answer is closed for each that comes.",
    )
    max_connections_per_address: int = Field(
        2000,
        ge=1,
        le=1_000_000_000,
        description="Most connections of one address (IPv6: one /64) open in one process; further ones are closed at "
        "once. Trusted proxies may open any number.",
    )
    half_close_seconds: float = Field(
        5, gt=0, le=60, description="How long a client that closed its sending side may wait for its answer."
    )
    stop_delay_seconds: float = Field(
        0,
        ge=0,
        le=600,
        description="How long to go on serving after SIGTERM while `/ready` says no, so that a balancer sends nobody here "
        "any more when the port closes.",
    )
    workers: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes that answer requests; with more than 1 the background work has one of its own.",
    )
    access_log: bool = Field(False, description="Log one line for every request, without its passkey.")


class RedisSettings(Section):
    """The store: somebody's Redis or Valkey, or a private one."""

    url: SecretStr | None = Field(
        None,
        description="An existing server: `redis://`, `rediss://` or `unix://`, with user, password and "
        "database; or the sentinels that know where it is: "
        "`redis+sentinel://user:password@host:26379,host:26379/name-of-the-master/database`, with TLS "
        "`rediss+sentinel://`. Without it a private server is started.",
    )
    sentinel_user: str | None = Field(
        None, description="The user that the sentinels know, where they want one; not that of the server."
    )
    sentinel_password: SecretStr | None = Field(None, description="The password that the sentinels want.")
    prefix: str = Field(
        "t:",
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9_.{}\-]*:$",
        description="What every key begins with, so that several trackers can share a server; ends with a colon.",
    )
    tls_ca_file: Path | None = Field(
        None,
        description="Certificates to check a `rediss://` server against, instead of the system's.",
    )
    connect_timeout_seconds: float = Field(
        0.5, gt=0, le=60, description="Time that connecting to the store may take."
    )
    timeout_seconds: float = Field(
        0.8,
        gt=0,
        le=60,
        description="Time that an answer of the store may take; after it announces fail with `retry in`.",
    )
    max_waiting: int = Field(
        2048,
        ge=64,
        le=1_000_000_000,
        description="Announces that may wait for the store, in all processes together; further ones are refused at once, with "
        "`retry in`, and their connections closed. It should be what is answered in half a second.",
    )


class DataSettings(Section):
    """What is kept on this machine."""

    directory: Path = Field(
        Path("data"),
        description="Where the private store keeps its data; made when missing, readable by its owner only.",
    )


class AnnounceSettings(Section):
    """What peers are told."""

    interval_seconds: int = Field(
        1800,
        ge=1,
        le=86400,
        description="How often peers announce; lists of public trackers accept 300 to 10800.",
    )
    interval_jitter: float = Field(
        0.1,
        ge=0,
        le=0.5,
        description="Share of the interval added at random, so that peers do not come in waves.",
    )
    min_interval_seconds: int = Field(
        900, ge=0, le=86400, description="Peers are asked not to announce more often than this."
    )
    peers_default: int = Field(50, ge=0, le=1000, description="Peers given to a client that names no number.")
    peers_max: int = Field(200, ge=0, le=1000, description="Most peers given in one answer.")
    private_addresses: Literal["serve", "refuse"] = Field(
        "serve",
        description="What to do with peers on private, loopback and other addresses that the internet cannot "
        "reach: `refuse` is right for a public tracker, `serve` for a first try at home.",
    )

    @property
    def longest_interval_seconds(self) -> int:
        """The longest a peer may be told to wait: the interval with all of its jitter."""
        return self.interval_seconds + int(self.interval_seconds * self.interval_jitter)


class TorrentSettings(Section):
    """Which torrents are served, and how many."""

    mode: Literal["open", "registered"] = Field(
        "open",
        description="`open` registers an unknown torrent at its first announce, `registered` refuses it. What has "
        "registered itself by then stays registered while it has peers.",
    )
    max_torrents: int = Field(
        1_000_000, ge=1, le=1_000_000_000, description="In open mode, most torrents that may be registered."
    )
    new_per_address_hour: int = Field(
        1000,
        ge=1,
        le=1_000_000_000,
        description="In open mode, new torrents that one address (IPv6: one /64) may register in an hour.",
    )
    forget_after_seconds: int = Field(
        604_800,
        ge=60,
        le=MOST_SECONDS,
        description="In open mode, a torrent that registered itself is forgotten after so long without a peer.",
    )
    full_scrape: bool = Field(False, description="Answer a scrape without info_hash with every torrent.")
    max_scrape: int = Field(
        400, ge=1, le=10_000, description="Torrents that one scrape may ask for; further ones are left out."
    )


class UserSettings(Section):
    """Passkeys, totals by user, and hit and run."""

    private: bool = Field(
        False, description="Require a passkey in the announce URL (private mode), and keep totals by user."
    )
    peer_memory_seconds: int = Field(
        2_592_000,
        ge=60,
        le=MOST_SECONDS,
        description="In private mode, how long a peer that left is remembered.",
    )
    hnr_min_bytes: int = Field(
        1_048_576,
        ge=0,
        le=MOST_BYTES,
        description="A user who downloaded more than this of a torrent owes it time.",
    )
    hnr_threshold_seconds: int = Field(
        259_200,
        ge=0,
        le=MOST_SECONDS,
        description="The time owed: leaving a torrent before it is a hit and run.",
    )
    max_credit_bytes_per_second: int = Field(
        134_217_728,
        ge=1,
        le=MOST_BYTES,
        description="Upload and download are credited up to this rate; what is cut off is counted.",
    )


class ClientSettings(Section):
    """Which client programs are served."""

    allow_list: bool = Field(
        False,
        description="Serve only peers whose peer id begins with an allowed prefix (`tracker client allow`).",
    )
    count_software: bool = Field(
        True,
        description="Count which client programs join and which are refused, by month and of all time "
        "(`tracker client seen`).",
    )


class ReaperSettings(Section):
    """When silent peers are removed."""

    interval_seconds: float = Field(
        2700,
        gt=0,
        le=172_800,
        description="A peer silent for this long, or for 1.5 announce intervals if that is longer, is removed.",
    )


class AdminSettings(Section):
    """The admin port: dashboard, API and metrics. Everything on it but `/health` and `/ready` needs a token."""

    enabled: bool = Field(True, description="Serve the admin port.")
    listen: tuple[ListenAddress, ...] = Field(
        ("127.0.0.1:6970",),
        description="Its addresses, written as those of `TRACKER_HTTP__LISTEN`. It speaks plain HTTP: elsewhere than on "
        "this machine, put a proxy with TLS in front of it.",
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="Host names, without ports, under which browsers and scripts may reach it, besides `localhost` and "
        "the addresses it listens on; requests for others are refused.",
    )
    session_seconds: int = Field(
        43_200, ge=60, le=2_592_000, description="How long a sign-in to the dashboard lasts."
    )
    max_upload_bytes: int = Field(
        10_485_760,
        ge=1024,
        le=134_217_728,
        description="Largest request body accepted, and so largest .torrent file.",
    )


class LogSettings(Section):
    """What is printed, to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least important lines to print."
    )
    format: Literal["auto", "human", "json"] = Field(
        "auto",
        description="`human` is coloured text, `json` one object a line; `auto` is human in a terminal.",
    )


class Settings(Section):
    """All settings in force. Made by hand it holds defaults and what it is given; it never looks around."""

    http: HttpSettings = HttpSettings()
    redis: RedisSettings = RedisSettings()
    data: DataSettings = DataSettings()
    announce: AnnounceSettings = AnnounceSettings()
    torrents: TorrentSettings = TorrentSettings()
    users: UserSettings = UserSettings()
    clients: ClientSettings = ClientSettings()
    limits: LimitSettings = LimitSettings()
    reaper: ReaperSettings = ReaperSettings()
    geoip: GeoIPSettings = GeoIPSettings()
    uniques: UniqueSettings = UniqueSettings()
    scoring: ScoringSettings = ScoringSettings()
    jobs: JobSettings = JobSettings()
    stathat: StatHatSettings = StatHatSettings()
    statsd: StatsDSettings = StatsDSettings()
    admin: AdminSettings = AdminSettings()
    log: LogSettings = LogSettings()

    @field_validator("statsd")
    @classmethod
    def _one_receiver_of_figures(cls, value: StatsDSettings, info: ValidationInfo) -> StatsDSettings:
        """Each figure is sent once, and then it is gone."""
        stathat = info.data.get("stathat")
        if value.address and isinstance(stathat, StatHatSettings) and stathat.ezkey:
            raise ValueError(
                "choose one: figures go to StatHat (TRACKER_STATHAT__EZKEY) or to StatsD (TRACKER_STATSD__ADDRESS)"
            )
        return value


FIELDS: Mapping[tuple[str, str], FieldInfo] = {
    (section, name): field
    for section, part in Settings.model_fields.items()
    for name, field in type(part.default).model_fields.items()
}
"""Every setting by (section, name)."""


def variable(section: str, name: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{section}__{name}".upper()
