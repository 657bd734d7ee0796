"""All settings: the sections together, and the names of their fields.

``TRACKER_REDIS__URL`` is field ``url`` of section ``redis``; sources.py reads them, reference.py prints
docs/settings.md. Each part of the tracker receives its own section. A new setting needs only a field in its section,
with a text after it, and, unless the whole section is in one group, a place in the groups of reference.py.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic.fields import FieldInfo

from tracker.settings import background, public
from tracker.settings.site import AdminSettings, ChangeSettings, LogSettings, SiteSettings, WorkSettings
from tracker.settings.store import DataSettings, RedisSettings
from tracker.settings.types import Section

PREFIX = "TRACKER_"


def _not_unix(listen: Sequence[str]) -> tuple[str, ...]:
    return tuple(address for address in listen if not address.startswith("unix:"))


class Settings(Section):
    """All settings. An instance made by hand holds defaults and its arguments; it never reads the environment.

    The defaults are made without validation: a command validates only the sections that have values.
    """

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
        """Where to serve UDP; ``tcp`` are the addresses of the TCP listeners, which ``auto`` stands for.

        None if ``why_no_udp`` has a reason.
        """
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


RELOADED: Mapping[str, frozenset[str]] = {
    section: names for section, part in Settings.model_fields.items() if (names := type(part.default).reloaded())
}
"""By section: the settings that a reload applies."""


def is_reloaded(section: str, name: str) -> bool:
    return name in RELOADED.get(section, ())
