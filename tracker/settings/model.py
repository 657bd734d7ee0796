"""All settings: the sections together, and the names of their fields.

``TRACKER_REDIS__URL`` is field ``url`` of section ``redis``; sources.py reads them, reference.py prints
docs/settings.md. Each part of the tracker receives its own section. A new setting needs only a field in its section
and, unless the whole section is in one group, a place in the groups of reference.py.
"""

from collections.abc import Mapping, Sequence

from pydantic import ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from tracker.settings.admin import AdminSettings, LogSettings
from tracker.settings.announces import AnnounceSettings, ReaperSettings, TorrentSettings
from tracker.settings.background import (
    GeoIPSettings,
    JobSettings,
    ProbeSettings,
    ScoringSettings,
    StatHatSettings,
    StatsDSettings,
    UniqueSettings,
)
from tracker.settings.changes import ChangeSettings
from tracker.settings.dht import DhtSettings
from tracker.settings.http import HttpSettings
from tracker.settings.limits import LimitSettings
from tracker.settings.store import DataSettings, RedisSettings
from tracker.settings.types import Section
from tracker.settings.udp import AUTO, OFF, UdpSettings
from tracker.settings.users import ClientSettings, UserSettings
from tracker.settings.work import WorkSettings

__all__ = [
    "FIELDS",
    "PREFIX",
    "RELOADED",
    "AdminSettings",
    "AnnounceSettings",
    "ChangeSettings",
    "ClientSettings",
    "DataSettings",
    "DhtSettings",
    "GeoIPSettings",
    "HttpSettings",
    "JobSettings",
    "LimitSettings",
    "LogSettings",
    "ProbeSettings",
    "ReaperSettings",
    "RedisSettings",
    "ScoringSettings",
    "Settings",
    "StatHatSettings",
    "StatsDSettings",
    "TorrentSettings",
    "UdpSettings",
    "UniqueSettings",
    "UserSettings",
    "WorkSettings",
    "is_reloaded",
    "variable",
]

PREFIX = "TRACKER_"


def _not_unix(listen: Sequence[str]) -> tuple[str, ...]:
    return tuple(address for address in listen if not address.startswith("unix:"))


class Settings(Section):
    """All settings. An instance made by hand holds defaults and its arguments; it never reads the environment."""

    http: HttpSettings = HttpSettings()
    udp: UdpSettings = UdpSettings()
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
    probe: ProbeSettings = ProbeSettings()
    stathat: StatHatSettings = StatHatSettings()
    statsd: StatsDSettings = StatsDSettings()
    changes: ChangeSettings = ChangeSettings()
    work: WorkSettings = WorkSettings()
    dht: DhtSettings = DhtSettings()
    admin: AdminSettings = AdminSettings()
    log: LogSettings = LogSettings()

    def udp_addresses(self, tcp: Sequence[str]) -> tuple[str, ...]:
        """Where to serve UDP; ``tcp`` are the addresses of the TCP listeners, which ``auto`` stands for.

        None if ``why_no_udp`` has a reason.
        """
        if self.udp.listen != (AUTO,):
            return () if self.udp.listen == (OFF,) else self.udp.listen
        return () if self.why_no_udp(tcp) else _not_unix(tcp)

    def why_no_udp(self, tcp: Sequence[str]) -> str:
        """Why ``auto`` serves no UDP; empty if it does, or if the setting is not ``auto``."""
        if self.udp.listen != (AUTO,):
            return ""
        if self.http.trusted_proxies:
            return "clients come through a proxy, which UDP goes round"
        if self.users.private == "required":
            return "passkeys are required, and many clients send none over UDP"
        return "" if _not_unix(tcp) else "clients come through a unix socket"

    @field_validator("statsd")
    @classmethod
    def _one_receiver(cls, value: StatsDSettings, info: ValidationInfo) -> StatsDSettings:
        """Each number is deleted once it was sent, so it can go to one server only."""
        stathat = info.data.get("stathat")
        if value.address and isinstance(stathat, StatHatSettings) and stathat.ezkey:
            raise ValueError(
                "choose one: statistics go to StatHat (TRACKER_STATHAT__EZKEY) or to StatsD (TRACKER_STATSD__ADDRESS)"
            )
        return value

    @field_validator("changes")
    @classmethod
    def _recorded(cls, value: ChangeSettings) -> ChangeSettings:
        """Checked here and not in its section: a reload may change `max_entries` before a restart drops the URLs."""
        if value.webhook_urls and not value.max_entries:
            raise ValueError("TRACKER_CHANGES__WEBHOOK_URLS needs TRACKER_CHANGES__MAX_ENTRIES")
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


RELOADED: Mapping[str, frozenset[str]] = {
    "announce": frozenset(
        {
            "interval_seconds",
            "interval_jitter",
            "min_interval_seconds",
            "peers_default",
            "peers_max",
            "private_addresses",
            "untold_ports",
        }
    ),
    "torrents": frozenset(
        {
            "mode",
            "max_torrents",
            "new_per_address_hour",
            "new_per_network_hour",
            "forget_after_seconds",
            "keep_files",
            "full_scrape",
            "max_scrape",
        }
    ),
    "users": frozenset(
        {
            "peer_memory_seconds",
            "hnr_min_bytes",
            "hnr_threshold_seconds",
            "hnr_time",
            "hnr_min_percent",
            "hnr_ratio",
            "hnr_grace_seconds",
            "max_credit_bytes_per_second",
            "max_user_credit_bytes_per_second",
            "max_peers_per_torrent",
            "max_downloads",
            "own_peers",
            "min_credit_interval_seconds",
            "peer_lists_at_once",
            "peer_lists_per_minute",
            "peer_lists_per_day",
        }
    ),
    "clients": frozenset({"allow_list", "deny_list"}),
    "reaper": frozenset({"interval_seconds"}),
    "geoip": frozenset({"database"}),
    "probe": frozenset({"enabled"}),
    "changes": frozenset({"max_entries"}),
    "limits": frozenset(LimitSettings.model_fields),
    "dht": frozenset({"give_peers", "give_below", "verify_peers"}),
    "log": frozenset({"level", "format"}),
}
"""By section: the settings that a reload applies."""


def is_reloaded(section: str, name: str) -> bool:
    return name in RELOADED.get(section, ())
