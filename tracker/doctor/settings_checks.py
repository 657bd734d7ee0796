"""Checks of the tracker's settings, and of what they switch on: announces over UDP, the node of the DHT, a site's
database."""

import ipaddress
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from tracker.doctor import Finding, ago
from tracker.errors import StartupError
from tracker.geoip import GeoIP, update_notes
from tracker.settings.model import Settings
from tracker.settings.public import AnnounceSettings
from tracker.store.dht.nodes import DhtNodes, NodeStatus
from tracker.store.store import Store
from tracker.system.datagrams import KNOWS_DESTINATION
from tracker.workers.site.mapping import check_libraries, load_mapping

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
    needed = {
        "TRACKER_USERS__PRIVATE=required": users.private == "required",
        "TRACKER_TORRENTS__MODE=registered": settings.torrents.mode == "registered",
        "TRACKER_CLIENTS__DENY_LIST=true or TRACKER_CLIENTS__ALLOW_LIST=true": clients.deny_list or clients.allow_list,
    }
    missing = [name for name, is_set in needed.items() if not is_set]
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
        return Finding("warning", "geoip", f"{database}; the last update failed: {failed}", "run: tracker geoip update")
    if not database.cities:
        return Finding("ok", "geoip", str(database), "a City database would also count users by city")
    return Finding("ok", "geoip", str(database))


SYSTEM = Path("/proc/sys/net")
_WILDCARDS = ("0.0.0.0:", "[::]:")


def check_udp(
    settings: Settings, system: Path = SYSTEM, *, knows_destination: bool = KNOWS_DESTINATION
) -> Iterator[Finding]:
    """What loses packets of a tracker with many peers on this system; nothing where UDP is off or local. Without
    ``knows_destination`` a socket on all addresses may answer from another address than was asked."""
    addresses = settings.udp_addresses(settings.http.listen)
    if not any(map(is_public, addresses)):
        return
    if not knows_destination and (everywhere := [each for each in addresses if each.startswith(_WILDCARDS)]):
        text = f"on this system {everywhere[0]} may answer from another address than was asked; clients ignore that"
        remedy = "if this machine has several addresses, name each of them in TRACKER_UDP__LISTEN"
        yield Finding("warning", "udp addresses", text, remedy)
    granted, wanted = _number(system / "core/rmem_max"), settings.udp.receive_buffer_bytes
    if granted is not None and granted < wanted:
        text = f"the receive buffer of UDP sockets is at most {granted} bytes: bursts of announces are lost"
        yield Finding("warning", "udp", text, f"sysctl -w net.core.rmem_max={wanted}, then restart the tracker")
    else:
        yield Finding("ok", "udp", f"a receive buffer of {wanted} bytes")
    tracked = _number(system / "netfilter/nf_conntrack_max")
    if tracked is not None:
        text = f"the firewall tracks connections, at most {tracked}; each UDP client takes one for a minute"
        yield Finding("ok", "udp firewall", text, "with many peers exempt the port, see docs/udp.md")


def _number(path: Path) -> int | None:
    """None if the system does not have it."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


async def check_dht_node(nodes: DhtNodes, settings: Settings, now: float) -> AsyncIterator[Finding]:
    """``now``: epoch seconds. Raises StoreUnavailable."""
    if not settings.dht.enabled:
        return
    name = settings.dht.node_name
    status = await nodes.status(name)
    if status is None:
        yield Finding("ok", "dht", f"the node {name} has not saved its status yet")
        return
    yield _state(status, now)
    if status.participation is not None:
        advice = status.participation.advice
        yield Finding("warning" if advice else "ok", "dht torrents", status.participation.text, advice)


def _state(status: NodeStatus, now: float) -> Finding:
    state = status.state(now)
    if state == "stopped":
        text = f"the node {status.name} last ran {ago(now - status.saved)} ago"
        return Finding("warning", "dht", text, "start the tracker, or look into its log")
    if state == "down" and status.last_answer is None:
        text = f"no node of the DHT has answered {status.name} since its start"
        return Finding("warning", "dht", text, "open its UDP port in the firewall; name TRACKER_DHT__BOOTSTRAP")
    if state == "down":
        assert status.last_answer is not None
        text = f"no node of the DHT has answered {status.name} for {ago(now - status.last_answer)}"
        return Finding("warning", "dht", text, "check this host's connection and firewall")
    if state == "up" and not (status.nodes(4) or status.nodes(6)):
        text = f"nodes of the DHT answer {status.name}, but it knows none: it keeps none with private addresses"
        return Finding("warning", "dht", text, "in a LAN set TRACKER_DHT__PRIVATE_ADDRESSES=true")
    return Finding("ok", "dht", f"{status.nodes(4)} nodes over IPv4, {status.nodes(6)} over IPv6")


def check_dht_settings(settings: Settings) -> Iterator[Finding]:
    dht = settings.dht
    if not dht.enabled:
        return
    if settings.users.private == "required":
        text = "the node of the DHT runs while users are required: public torrents are answered to anyone"
        yield Finding("warning", "dht", text, "set TRACKER_DHT__ENABLED=false unless this is intended")
    if any(listen.startswith("[::]:") for listen in dht.listen):
        text = "the node of the DHT listens on all IPv6 addresses: its answers may leave from another one"
        remedy = "if this host has several IPv6 addresses, name one global address in TRACKER_DHT__LISTEN"
        yield Finding("ok", "dht", f"{text}; {remedy}")
    if dht.give_peers and dht.verify_peers and not settings.probe.enabled:
        text = "no peer of the DHT is handed out: their check needs connections, which are disabled"
        yield Finding("warning", "dht", text, "set TRACKER_PROBE__ENABLED=true")
    if not dht.bootstrap and not dht.private_addresses:
        text = "no node of the DHT to begin with is named: only saved nodes and clients of public swarms are asked"
        yield Finding("ok", "dht", text)


REMEDY = "see docs/sync.md"


async def check_site(store: Store, settings: Settings) -> AsyncIterator[Finding]:
    """What is wrong with its tables, rights and clock."""
    if settings.site.database is None:
        return
    try:
        check_libraries()
        from tracker.workers.site.sync import open_sync  # noqa: PLC0415

        async with open_sync(store, settings.site) as sync:
            wrong = await sync.problems()
    except StartupError as error:
        yield Finding("wrong", "site", str(error), REMEDY)
        return
    for text in wrong:
        yield Finding("wrong", "site", text, REMEDY)
    if load_mapping(settings.site.mapping).slots != settings.users.beyond_max_downloads == "refusal":
        text = "downloads beyond a user's slots are refused; the site's former tracker warns, and gives no peers"
        yield Finding("warning", "site", text, "unset TRACKER_USERS__BEYOND_MAX_DOWNLOADS")
    if not wrong:
        yield Finding("ok", "site", "the tables of the site's database fit the mapping")
