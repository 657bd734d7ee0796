"""Checks of the tracker's own settings, without a store."""

import ipaddress
from collections.abc import Iterator
from pathlib import Path

from tracker.doctor import Finding, ago
from tracker.geoip import GeoIP, update_notes
from tracker.settings.model import AnnounceSettings, Settings

LISTED_INTERVALS = range(300, 10801)
"""Announce intervals (s) that lists of public trackers accept."""
GEOIP_DAYS = 60
"""An older GeoIP database is outdated: publishers release one at least every month."""


def check_settings(settings: Settings) -> Iterator[Finding]:
    """Settings that do not fit together, or do not fit a public tracker."""
    public = [listen for listen in settings.http.listen if is_public(listen)]
    if public and settings.announce.private_addresses == "serve":
        text = f"{public[0]} is reachable from the internet, and peers on private addresses are served"
        remedy = "for a public tracker set TRACKER_ANNOUNCE__PRIVATE_ADDRESSES=refuse"
        yield Finding("warning", "addresses", text, remedy)
    admin = [listen for listen in settings.admin.listen if settings.admin.enabled and is_public(listen)]
    if admin:
        text = f"{admin[0]} is reachable from other machines over plain HTTP: tokens can be intercepted"
        yield Finding("warning", "admin port", text, "make it reachable only through a proxy with TLS")
    if settings.probe.connectable and not settings.probe.enabled:
        text = "TRACKER_PROBE__CONNECTABLE is on, but no connection to peers is allowed"
        yield Finding("warning", "probes", text, "set TRACKER_PROBE__ENABLED=true")
    yield from _site(settings)
    yield from _webtorrent(settings)
    yield _interval(settings.announce)


def _site(settings: Settings) -> Iterator[Finding]:
    """Settings without which the calls of a site's own code have no effect."""
    site, users, clients = settings.site, settings.users, settings.clients
    if not site.listen:
        return
    missing = [
        name
        for name, is_set in (
            ("TRACKER_USERS__PRIVATE=required", users.private == "required"),
            ("TRACKER_TORRENTS__MODE=registered", settings.torrents.mode == "registered"),
            (
                "TRACKER_CLIENTS__DENY_LIST=true or TRACKER_CLIENTS__ALLOW_LIST=true",
                clients.deny_list or clients.allow_list,
            ),
        )
        if not is_set
    ]
    if public := [listen for listen in site.listen if is_public(listen)]:
        text = f"{public[0]} takes the site's calls from other machines over plain HTTP: its key can be intercepted"
        yield Finding("warning", "site", text, "use a loopback address or a unix socket")
    if missing:
        text = "calls of the site about users, torrents or clients have no effect with these settings"
        yield Finding("warning", "site", text, f"set {', '.join(missing)}")
    elif not public:
        yield Finding("ok", "site", f"calls are answered on {', '.join(site.listen)}")


def _webtorrent(settings: Settings) -> Iterator[Finding]:
    """A missing URL for browsers: a warning where a setting asks for WebSockets, which open trackers serve anyway."""
    urls = settings.announce.urls
    if not settings.serves_websockets or not urls or any(url.startswith("wss:") for url in urls):
        return
    text = "WebSockets are served, but no announce URL begins with wss://, which pages from https:// need"
    remedy = "add one to TRACKER_ANNOUNCE__URLS, through a proxy with TLS, see docs/webtorrent.md"
    remedy += "; or set TRACKER_WEBTORRENT__ENABLED=false"
    yield Finding("warning" if settings.webtorrent.enabled else "ok", "webtorrent", text, remedy)


def _interval(announce: AnnounceSettings) -> Finding:
    interval, max_interval = announce.interval_seconds, announce.max_interval_seconds
    shown = f"{interval} s" if max_interval == interval else f"{interval} to {max_interval} s"
    if interval not in LISTED_INTERVALS or max_interval not in LISTED_INTERVALS:
        text = f"peers announce every {shown}; lists of public trackers accept 300 to 10800 s"
        return Finding("warning", "interval", text, "set TRACKER_ANNOUNCE__INTERVAL_SECONDS to 1800")
    if announce.min_interval_seconds > interval:
        text = f"the minimum interval, {announce.min_interval_seconds} s, exceeds the interval, {interval} s"
        return Finding("warning", "interval", text, "lower TRACKER_ANNOUNCE__MIN_INTERVAL_SECONDS")
    return Finding("ok", "interval", shown)


def is_public(listen: str) -> bool:
    """Whether a listen address may be reachable from other machines. Unknown host names may be."""
    if listen.startswith("unix:"):
        return False
    host = listen.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return True
    return address.is_unspecified or address.is_global


def check_geoip(path: Path | None, now: float) -> Finding:
    """Checks the GeoIP database. ``now`` is in epoch seconds."""
    if path is None:
        text = "no database configured, so users are not counted by place"
        remedy = "to count them set TRACKER_GEOIP__DATABASE=dbip-city-lite, see docs/geoip.md"
        return Finding("ok", "geoip", text, remedy)
    geoip = GeoIP(path)
    database = geoip.describe()
    geoip.close()
    if database is None:
        text = f"{path} is unusable ({geoip.problem}), so users are not counted by place"
        failed = update_notes(path).get("problem")
        remedy = f"the last update failed: {failed}" if failed else "see docs/geoip.md, or run: tracker geoip update"
        return Finding("wrong", "geoip", text, remedy)
    age = now - database.built.timestamp() if database.built else 0.0
    if age > GEOIP_DAYS * 86400:
        text = f"{database}; that was {ago(age)} ago"
        return Finding("warning", "geoip", text, "update it regularly as described in docs/geoip.md")
    if failed := update_notes(path).get("problem"):
        text = f"{database}; the last update failed: {failed}"
        return Finding("warning", "geoip", text, "run: tracker geoip update")
    if not database.cities:
        return Finding("ok", "geoip", str(database), "a City database would also count users by city")
    return Finding("ok", "geoip", str(database))
