"""All settings: the sections together, with that of the store, and the names of their fields.

``TRACKER_REDIS__URL`` is field ``url`` of section ``redis``; sources.py reads them, reference.py prints
docs/settings.md. Each part of the tracker receives its own section. A new setting needs only a field in its section,
with a text after it, and, unless the whole section is in one group, a place in the groups of reference.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from tracker.settings import background, public
from tracker.settings.site import AdminSettings, ChangeSettings, LogSettings, SiteSettings, WorkSettings
from tracker.settings.types import RELOADED_MARK, Section

PREFIX = "TRACKER_"


class RedisSettings(Section):
    """The store: an existing Redis or Valkey server. Without a URL the tracker starts a private server."""

    url: SecretStr | None = None
    """An existing server: `redis://`, `rediss://` or `unix://`, with user, password and database. With Sentinel:
    `redis+sentinel://user:password@host:26379,host:26379/name-of-the-master/database`, with TLS `rediss+sentinel://`.
    Of a cluster one node or several: `redis://user:password@host:6379,host:6379`; the first that answers names the
    others. Without it a private server is started."""
    sentinel_user: str | None = None
    """User name for the sentinels, if they require one; separate from the server's user name."""
    sentinel_password: SecretStr | None = None
    """Password for the sentinels, if they require one."""
    prefix: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.{}:\-]*:$")] = "t:"
    """Prefix of every key, so that several trackers can share a server; it ends with a colon. On a Redis or Valkey
    Cluster it needs a hash tag, as in `t:{t}:`, unless there are several shards."""
    shards: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of parts that the swarms are split into, by info hash: 1, or a power of two. It is fixed when the store is
    made; `tracker reshard` copies a store into one with another number."""
    tls_ca_file: Path | None = None
    """CA certificates that verify a `rediss://` server, instead of the system's."""
    connect_timeout_seconds: float = Field(0.5, gt=0, le=60)
    """How long connecting to the store may take."""
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 0.8
    """How long an answer of the store may take. After that, announces fail with `retry in`."""
    start_wait_seconds: Annotated[float, Field(ge=0, le=86_400)] = 0
    """How long a start waits for a store that does not answer or refuses work for now; 0: for ever. `tracker serve
    --fail-fast` waits for a second."""
    max_waiting: Annotated[int, Field(ge=64, le=1_000_000_000)] = 2048
    """Maximum number of announces waiting for the store, in all processes together. More are refused at once with
    `retry in`, and their connections closed. A good value is the number of announces that the tracker answers in half a
    second."""

    @field_validator("shards")
    @classmethod
    def _power_of_two(cls, value: int, info: ValidationInfo) -> int:
        if value & (value - 1):
            raise ValueError("choose 1 or a power of two")
        if value > 1 and "{" in info.data.get("prefix", ""):
            raise ValueError("several shards need a prefix without braces")
        return value

    @field_validator("prefix")
    @classmethod
    def _no_shard(cls, value: str) -> str:
        """Scripts recognise the prefixes of several shards, and the main one, by such an end."""
        if re.search(r":\{([0-9]+[a-z]*|main)\}:$", value):
            raise ValueError("choose another hash tag: numbers and main are those of shards")
        return value


class DataSettings(Section):
    """The private store's data on this machine."""

    directory: Path = Path("data")
    """Directory of the private store's data. It is created if missing, readable by its owner only."""
    max_memory_mb: Annotated[int | None, Field(ge=0, le=1_000_000_000)] = None
    """Memory limit of the private store, in MB (2^20 bytes); 0: no limit. Default: 60 % of the memory this process may
    use (cgroup or machine), at least 256 MB and 1.25 times the data at the start. At 80 % of it unique users are no
    longer counted, at 100 % joins are refused."""


def _not_unix(listen: Sequence[str]) -> tuple[str, ...]:
    return tuple(address for address in listen if not address.startswith("unix:"))


class Settings(Section):
    """All settings. An instance made by hand holds defaults and its arguments; it never reads the environment. The
    defaults are made without validation: a command validates only the sections that have values."""

    http: public.HttpSettings = public.HttpSettings.model_construct()
    udp: public.UdpSettings = public.UdpSettings.model_construct()
    webtorrent: public.WebTorrentSettings = public.WebTorrentSettings.model_construct()
    redis: RedisSettings = RedisSettings.model_construct()
    data: DataSettings = DataSettings.model_construct()
    announce: public.AnnounceSettings = public.AnnounceSettings.model_construct()
    torrents: public.TorrentSettings = public.TorrentSettings.model_construct()
    users: public.UserSettings = public.UserSettings.model_construct()
    clients: public.ClientSettings = public.ClientSettings.model_construct()
    limits: public.LimitSettings = public.LimitSettings.model_construct()
    reaper: public.ReaperSettings = public.ReaperSettings.model_construct()
    geoip: background.GeoIPSettings = background.GeoIPSettings.model_construct()
    uniques: background.UniqueSettings = background.UniqueSettings.model_construct()
    scoring: background.ScoringSettings = background.ScoringSettings.model_construct()
    jobs: background.JobSettings = background.JobSettings.model_construct()
    probe: background.ProbeSettings = background.ProbeSettings.model_construct()
    stathat: background.StatHatSettings = background.StatHatSettings.model_construct()
    statsd: background.StatsDSettings = background.StatsDSettings.model_construct()
    changes: ChangeSettings = ChangeSettings.model_construct()
    site: SiteSettings = SiteSettings.model_construct()
    work: WorkSettings = WorkSettings.model_construct()
    dht: background.DhtSettings = background.DhtSettings.model_construct()
    admin: AdminSettings = AdminSettings.model_construct()
    log: LogSettings = LogSettings.model_construct()

    @property
    def geoip_file(self) -> Path | None:
        """The GeoIP database: the path that is set, or where that of the source is kept."""
        source = self.geoip.source
        if source is None:
            return self.geoip.database
        return self.data.directory / "geoip" / f"{source.replace(':', '-')}.mmdb"

    @property
    def serves_websockets(self) -> bool:
        if self.webtorrent.enabled is not None:
            return self.webtorrent.enabled
        return self.torrents.mode == "open" and self.users.private != "required"

    def udp_addresses(self, tcp: Sequence[str]) -> tuple[str, ...]:
        """Where to serve UDP; nowhere if ``why_no_udp`` has a reason. ``tcp``: where TCP is served, for ``auto``."""
        if self.udp.listen != (public.AUTO,):
            return () if self.udp.listen == (public.OFF,) else self.udp.listen
        return () if self.why_no_udp(tcp) else _not_unix(tcp)

    def why_no_udp(self, tcp: Sequence[str]) -> str:
        """Why ``auto`` serves no UDP; empty if it does, or if the setting is not ``auto``."""
        if self.udp.listen != (public.AUTO,):
            return ""
        if self.http.trusted_proxies:
            return "clients come through a proxy, which UDP goes round"
        if self.users.private == "required":
            return "passkeys are required, and many clients send none over UDP"
        return "" if _not_unix(tcp) else "clients come through a unix socket"

    def contradictions(self) -> list[str]:
        """What is wrong with settings of several fields, a line each. Not for a reload, which may change
        `max_entries` before a restart drops the URLs."""
        lines = []
        if self.statsd.address and self.stathat.ezkey:  # each number is deleted once it was sent
            lines.append(
                "statsd: choose one: statistics go to StatHat (TRACKER_STATHAT__EZKEY) "
                "or to StatsD (TRACKER_STATSD__ADDRESS)"
            )
        if self.changes.webhook_urls and not self.changes.max_entries:
            lines.append("changes: TRACKER_CHANGES__WEBHOOK_URLS needs TRACKER_CHANGES__MAX_ENTRIES")
        if self.site.database and not self.changes.max_entries:
            lines.append("site: TRACKER_SITE__DATABASE needs TRACKER_CHANGES__MAX_ENTRIES")
        if self.site.database and not self.changes.updates_seconds:
            lines.append("site: TRACKER_SITE__DATABASE needs TRACKER_CHANGES__UPDATES_SECONDS, such as 1")
        if self.site.listen and self.site.key is None:
            lines.append("site: TRACKER_SITE__LISTEN needs TRACKER_SITE__KEY")
        return lines


FIELDS: Mapping[tuple[str, str], FieldInfo] = {
    (section, name): field
    for section, part in Settings.model_fields.items()
    for name, field in type(part.default).model_fields.items()
}
"""Every setting by (section, name)."""


def variable(section: str, name: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{section}__{name}".upper()


RELOADED = frozenset(key for key, field in FIELDS.items() if RELOADED_MARK in field.metadata)
"""The settings that a reload applies, by (section, name)."""


@dataclass(eq=False, slots=True)
class LiveSettings:
    """The settings of one process. A reload replaces ``current``: read it at each use instead of keeping it."""

    current: Settings


def values_of(settings: Settings) -> dict[str, Any]:
    """The settings that a reload changes, in types of JSON. No secret is among them."""
    included: dict[str, set[str]] = {}
    for section, name in RELOADED:
        included.setdefault(section, set()).add(name)
    return settings.model_dump(mode="json", include=included)


def with_values(settings: Settings, values: Mapping[str, Mapping[str, Any]]) -> Settings:
    """``settings`` with those of ``values_of``. A section without a change stays the same object."""
    changed = {}
    for section, some in values.items():
        old = getattr(settings, section)
        new = type(old).model_validate({**old.model_dump(), **some})
        if new != old:
            changed[section] = new
    return settings.model_copy(update=changed)


def differences(old: Settings, new: Settings) -> Iterator[tuple[str, str]]:
    for section, name in FIELDS:
        if getattr(getattr(old, section), name) != getattr(getattr(new, section), name):
            yield section, name
