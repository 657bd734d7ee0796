"""Settings of a site: its database and calls, the change feed and its webhooks, the listener for claimants, the admin
port, and the log."""

import re
from ipaddress import ip_network
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, SecretStr, field_validator, model_validator

from tracker.settings.types import ListenAddress, Network, Reloaded, Section, SiteUrl, checked_by, url_parts

MIN_KEY_LENGTH = 32
_KEY = re.compile(rf"[-_0-9A-Za-z]{{{MIN_KEY_LENGTH},}}", re.ASCII)


def _check_key(value: SecretStr) -> None:
    if not _KEY.fullmatch(value.get_secret_value()):
        raise ValueError(f"must have at least {MIN_KEY_LENGTH} letters, digits, _ or -")


def _check_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise ValueError("is no time zone, such as UTC or Europe/Berlin") from error


Key = Annotated[SecretStr, checked_by(_check_key)]


class SiteSettings(Section):
    """The calls that a site's own code makes, as UNIT3D and Gazelle send them, and the site's database."""

    listen: tuple[ListenAddress, ...] = ()
    """Addresses where the site's calls are answered, written like `TRACKER_HTTP__LISTEN`. Empty: off. The port speaks
    plain HTTP: use a loopback address or a unix socket."""
    name: str = Field("site", pattern=r"^[-_.0-9A-Za-z]{1,64}$")
    """The site's name in the audit log."""
    key: Key | None = None
    """The key of its calls, at least 32 letters, digits, `_` or `-`: UNIT3D's `TRACKER_KEY`, Gazelle's
    `TRACKER_SECRET`."""
    report_key: Key | None = None
    """The key of Gazelle's reports, written like `key`: `TRACKER_REPORTKEY`. Unset: no reports."""
    allowed: tuple[Network, ...] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
    """Networks from which these calls are accepted. A unix socket is always one of them."""
    database: SecretStr | None = None
    """The site's own database, whose tables the tracker keeps ([sync.md](sync.md)):
    `mysql://user:password@host/database`, also for MariaDB, or `postgresql://…`. A unix socket:
    `mysql://user:password@localhost/database?unix_socket=/path`. Needs `TRACKER_CHANGES__MAX_ENTRIES` and
    `TRACKER_CHANGES__UPDATES_SECONDS`. Unset: off."""
    mapping: Annotated[str, Field(min_length=1)] = "unit3d"
    """Which tables and columns it has: `unit3d`, `gazelle`, `nexusphp`, or the path of a mapping file."""
    time_zone: Annotated[str, checked_by(_check_zone)] = "UTC"
    """Time zone of dates without one in the site's tables (MySQL's `DATETIME`), such as `Asia/Shanghai`: NexusPHP's
    `TIMEZONE`. UNIT3D and Gazelle write UTC."""
    sync_in_tracker: bool = True
    """Sync in the tracker's own process. false: only `tracker sync run` does."""
    sync_seconds: float = Field(3.0, ge=0.5, le=60)
    """How often what has changed is written (s)."""
    full_pass_hour: int = Field(4, ge=0, le=23)
    """From which hour on all rows are compared and repaired each day (UTC)."""


MAX_WEBHOOKS = 8
MIN_SECRET_LENGTH = 16


def _check_webhook_urls(urls: tuple[SecretStr, ...]) -> None:
    """The error names the position in the list, because a URL may contain a secret."""
    for number, url in enumerate(urls, 1):
        text = url.get_secret_value()
        parts = url_parts(text, "http", "https")
        if not parts or "@" in parts.netloc or "#" in text or " " in text:
            raise ValueError(f"number {number} is not an http:// or https:// URL without user and fragment")
    if len({url.get_secret_value() for url in urls}) < len(urls):
        raise ValueError("a URL is given twice")


class ChangeSettings(Section):
    """The change feed, and the webhooks that send it."""

    max_entries: Reloaded[Annotated[int, Field(ge=0, le=10_000_000)]] = 0
    """About how many changes the feed keeps, the newest: who joined and left swarms, completions, hit-and-runs. A
    change takes about 200 bytes of the store. 0: no changes are recorded."""
    updates_seconds: Annotated[int, Field(ge=0, le=3600)] = 0
    """How often the feed tells that a peer has announced: `updated`, at most once in so many seconds for each peer,
    with its values then. 0: it does not tell."""
    webhook_urls: Annotated[tuple[SecretStr, ...], checked_by(_check_webhook_urls), Field(max_length=MAX_WEBHOOKS)] = ()
    """Where each change is posted, in signed batches: `http://` or `https://` URLs. Needs `max_entries` and a secret
    for each URL."""
    webhook_secret: SecretStr | None = None
    """The key of the signatures for the first URL, at least 16 characters."""
    webhook_secrets: Annotated[tuple[SecretStr, ...], Field(max_length=MAX_WEBHOOKS - 1)] = ()
    """The keys of the signatures for the other URLs, in their order. No two URLs have the same."""

    @property
    def receivers(self) -> dict[str, str]:
        """The secret of each webhook URL. A secret may be set without a URL."""
        secrets = ([self.webhook_secret] if self.webhook_secret else []) + [*self.webhook_secrets]
        return {
            url.get_secret_value(): secret.get_secret_value()
            for url, secret in zip(self.webhook_urls, secrets, strict=False)
        }

    @field_validator("webhook_secret", "webhook_secrets")
    @classmethod
    def _are_long_enough(cls, value: Any) -> Any:
        secrets = value if isinstance(value, tuple) else (value,) if value and value.get_secret_value() else ()
        if any(len(each.get_secret_value()) < MIN_SECRET_LENGTH for each in secrets):
            raise ValueError(f"must have at least {MIN_SECRET_LENGTH} characters")
        return value

    @model_validator(mode="after")
    def _is_complete(self) -> "ChangeSettings":
        if self.webhook_urls and not (self.webhook_secret and self.webhook_secret.get_secret_value()):
            raise ValueError("TRACKER_CHANGES__WEBHOOK_URLS needs TRACKER_CHANGES__WEBHOOK_SECRET")
        if self.webhook_urls and len(self.webhook_urls) != 1 + len(self.webhook_secrets):
            raise ValueError("TRACKER_CHANGES__WEBHOOK_SECRETS has a secret for each URL but the first")
        if self.webhook_urls and len(set(self.receivers.values())) < len(self.webhook_urls):
            raise ValueError("two URLs of TRACKER_CHANGES__WEBHOOK_URLS have the same secret")
        return self


INFO_HASH = "{info_hash}"


def _check_torrent_url(value: str) -> None:
    head, name, rest = value.partition(INFO_HASH)
    valid = name and head.startswith(("http://", "https://")) and not any(mark in head + rest for mark in '{}<>" ')
    if value and not valid:
        raise ValueError(f"must be an http:// or https:// URL with {INFO_HASH} in it")


class WorkSettings(Section):
    """Work distribution: the listener for claimants, who ask for torrents to seed or for other items."""

    listen: tuple[ListenAddress, ...] = ()
    """Addresses where claimants ask for work, written like `TRACKER_HTTP__LISTEN`. Empty: off. The port speaks plain
    HTTP: put a proxy with TLS in front of it if claimants send passkeys over the internet."""
    default: Annotated[str, Field(pattern=r"^[-_0-9A-Za-z]{0,30}$")] = ""
    """The project that also answers paths without a project's name, such as `/request` and `/done`, for clients of
    ArchiveTeam's universal-tracker. Empty: none."""
    legacy_status: bool = False
    """Answer claims above the project's rate with status 420 instead of 429, as clients of ArchiveTeam's
    universal-tracker expect."""
    torrent_url: Annotated[str, checked_by(_check_torrent_url)] = ""
    """Where claimants download a .torrent file: a URL in which `{info_hash}` stands for its 40 hex digits. Empty: they
    get a magnet link only."""


class AdminSettings(Section):
    """The admin port: dashboard, API and metrics. Everything but the probes and the sign-in page requires a token."""

    enabled: bool = True
    """Serve the admin port."""
    listen: tuple[ListenAddress, ...] = ("127.0.0.1:6970",)
    """Addresses of the admin port, written like `TRACKER_HTTP__LISTEN`. The port speaks plain HTTP: put a proxy with
    TLS in front of it unless it listens on this machine only."""
    hosts: tuple[str, ...] = ()
    """Host names, without ports, under which browsers and scripts may reach the admin port, besides `localhost` and the
    addresses it listens on. Requests for other hosts are refused."""
    url: SiteUrl | None = None
    """Where browsers reach the dashboard, such as `https://tracker.example`, if it differs from `listen`: behind a
    proxy, or on a port that a container publishes. Sign-in links begin with it, and its host is accepted like
    `hosts`."""
    session_seconds: int = Field(43_200, ge=60, le=2_592_000)
    """How long a sign-in to the dashboard lasts."""
    audit_entries: Annotated[int, Field(ge=1000, le=10_000_000)] = 100_000
    """Entries of the audit log, of about 300 bytes each. Older ones are deleted, and all after a year. Calls that
    change many rows have further entries of up to 8 KB: a tenth as many."""
    max_upload_bytes: int = Field(10_485_760, ge=1024, le=134_217_728)
    """Maximum size of a request body, and so of a .torrent file."""


class LogSettings(Section):
    """The log, on standard error."""

    level: Reloaded[Literal["debug", "info", "warning", "error"]] = "info"
    """Minimum level of the lines that are printed."""
    format: Reloaded[Literal["auto", "human", "json"]] = "auto"
    """`human` is coloured text, `json` one object per line; `auto` is `human` in a terminal, else `json`."""
