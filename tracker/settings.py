"""Every setting, its default and one sentence about it; the only reader of the environment.

Values come from, first wins: TRACKER_… variables, a ``.env`` file, a TOML file (``--config``), the
defaults here. ``TRACKER_REDIS__URL`` is field ``url`` of section ``redis``. Parts receive their own
section, never the whole.
"""

from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

Network = IPv4Network | IPv6Network


class Section(BaseModel):
    """One part's settings: frozen, and nothing unknown gets in."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class HttpSettings(Section):
    listen: tuple[str, ...] = Field(
        ("0.0.0.0:6969", "[::]:6969"),
        description="Addresses to serve on: `host:port`, `[ipv6]:port` or `unix:/path`. A system without IPv6 goes on with a warning.",
    )
    trusted_proxies: tuple[Network, ...] = Field(
        (),
        description="Networks whose X-Forwarded-For, Forwarded, PROXY headers and `ip=` are believed; peers on a unix socket count as trusted once any is named.",
    )
    proxy_protocol: bool = Field(
        False, description="Expect a PROXY protocol header (v1 or v2) on connections from trusted proxies."
    )
    ip_parameter_from_private: bool = Field(
        False, description="Honour `ip=` from private and loopback addresses too (for tests in a LAN)."
    )
    max_request_line_bytes: int = Field(
        32768, ge=1024, le=1048576, description="Longest request line accepted; a scrape of 400 torrents needs 29,000."
    )
    max_header_bytes: int = Field(8190, ge=256, le=1048576, description="Longest single header line accepted.")
    max_headers: int = Field(64, ge=8, le=1024, description="Most header lines accepted in a request.")
    keepalive_seconds: float = Field(
        60, gt=0, le=3600, description="An idle or unfinished request's connection is closed after this long."
    )
    half_close_seconds: float = Field(
        5, gt=0, le=60, description="How long a client that closed its sending side may wait for its answer."
    )
    access_log: bool = Field(False, description="Log one line for every request (never with a passkey).")


class RedisSettings(Section):
    url: SecretStr | None = Field(
        None,
        description="An existing server: redis://, rediss:// or unix://, with user, password and database; without it a private one is started.",
    )
    prefix: str = Field(
        "t:",
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9_.{}\-]*:$",
        description="What every key begins with, so that several trackers can share a server.",
    )
    tls_ca_file: Path | None = Field(None, description="Certificates to check a rediss:// server against; the system's when unset.")
    connect_timeout_seconds: float = Field(0.5, gt=0, le=60, description="Time a connection to the store may take.")
    timeout_seconds: float = Field(
        0.8, gt=0, le=60, description="Time an answer of the store may take; then announces fail with `retry in`."
    )
    max_waiting: int = Field(
        4096, ge=64, description="Announces that may wait for the store in one process before more are refused."
    )


class DataSettings(Section):
    directory: Path = Field(Path("data"), description="Where the private store keeps its data, made when missing, readable by its owner only.")


class AnnounceSettings(Section):
    interval_seconds: int = Field(1800, ge=1, le=86400, description="How often peers announce; public tracker lists accept 300 to 10800.")
    interval_jitter: float = Field(
        0.1, ge=0, le=0.5, description="Share of the interval added at random, so that peers do not come in waves."
    )
    min_interval_seconds: int = Field(900, ge=0, le=86400, description="Peers are asked not to announce more often than this.")
    peers_default: int = Field(50, ge=0, le=1000, description="Peers given when the client names no number.")
    peers_max: int = Field(200, ge=0, le=1000, description="Most peers given in one answer.")
    private_addresses: Literal["serve", "refuse"] = Field(
        "serve",
        description="What to do with peers on private, loopback and other unroutable addresses: `refuse` is right for a public tracker.",
    )


class TorrentSettings(Section):
    mode: Literal["open", "registered"] = Field(
        "open", description="`open` registers unknown torrents at their first announce, `registered` refuses them."
    )
    max_torrents: int = Field(1_000_000, ge=1, description="In open mode, torrents that may be registered at all.")
    new_per_address_hour: int = Field(
        1000, ge=1, description="In open mode, new torrents one address (IPv6: one /64) may register in an hour."
    )
    forget_after_seconds: int = Field(
        604_800, ge=60, description="In open mode, a torrent that registered itself is forgotten after so long without a peer."
    )
    full_scrape: bool = Field(False, description="Answer a scrape without info_hash with every torrent.")
    max_scrape: int = Field(400, ge=1, le=10_000, description="Torrents one scrape may ask for; further ones are left out.")


class UserSettings(Section):
    private: bool = Field(False, description="Require a passkey in the announce URL (private mode) and keep totals by user.")
    peer_memory_seconds: int = Field(
        2_592_000, ge=60, description="In private mode, how long a peer that left is remembered."
    )
    hnr_min_bytes: int = Field(
        1_048_576, ge=0, description="A user who downloaded more than this of a torrent owes it seeding time."
    )
    hnr_threshold_seconds: int = Field(259_200, ge=0, description="Time on a torrent below which leaving it is a hit and run.")
    max_credit_bytes_per_second: int = Field(
        134_217_728, ge=1, description="Credit per announce is cut to this rate; what is cut is counted."
    )


class ClientSettings(Section):
    allow_list: bool = Field(False, description="Serve only peers whose peer id begins with an allowed prefix.")


class ReaperSettings(Section):
    interval_seconds: float = Field(
        2700, gt=0, le=172_800, description="A peer silent for this long (or 1.5 announce intervals, if longer) is removed."
    )


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least important lines to print.")
    format: Literal["auto", "human", "json"] = Field("auto", description="`auto` is human in a terminal and JSON elsewhere.")


class Settings(BaseSettings):
    """All settings in force."""

    model_config = SettingsConfigDict(
        env_prefix="TRACKER_", env_nested_delimiter="__", env_file=".env", extra="forbid", frozen=True
    )

    http: HttpSettings = HttpSettings()
    redis: RedisSettings = RedisSettings()
    data: DataSettings = DataSettings()
    announce: AnnounceSettings = AnnounceSettings()
    torrents: TorrentSettings = TorrentSettings()
    users: UserSettings = UserSettings()
    clients: ClientSettings = ClientSettings()
    reaper: ReaperSettings = ReaperSettings()
    log: LogSettings = LogSettings()
