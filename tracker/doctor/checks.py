"""Checks the store and the settings. Each check yields one line: the state, and how to fix what is wrong.

Checks change nothing: the tracker itself sets the notification flags it needs when it starts. If the server forbids a
command (by its access list), that is a finding too, and the other checks continue.
"""

import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence

from redis.exceptions import RedisError, ResponseError

from tracker.bittorrent import is_routable
from tracker.doctor import Finding, ago
from tracker.doctor.server_checks import (
    HEARTBEAT_SECONDS,
    check_members,
    check_node,
    check_nodes,
    heartbeat_age,
    remedy_for,
)
from tracker.doctor.settings_checks import (
    check_dht_node,
    check_dht_settings,
    check_geoip,
    check_settings,
    check_site,
    check_udp,
)
from tracker.errors import StartupError, StoreUnavailable
from tracker.refusals import (
    ADDRESS_HIDDEN,
    ADDRESS_IMPOSSIBLE,
    PROXY_HEADER_MISSING,
    PROXY_HEADER_UNEXPECTED,
    UPGRADE_MISSING,
)
from tracker.settings.model import Settings
from tracker.store.store import Store
from tracker.store.work.log import GROUP
from tracker.store.work.projects import KEPT_LOG
from tracker.store.work.verification import asks_for_probes
from tracker.wire.endpoint import format_endpoint

SLOW_SECONDS = 0.05
MAX_NAMED = 5
"""How many projects of work distribution a finding names."""
_PINGS = 5
_RECENT_SECONDS, _SLICE_SECONDS = 3600, 300


async def run_checks(store: Store, settings: Settings) -> AsyncIterator[Finding]:
    """Yields findings as they are made. What needs a part of the store that is unavailable is left out, and named at
    the end of the checks of the store."""
    skipped: list[str] = []
    checks: dict[str, AsyncIterator[Finding]] = {
        "nodes": check_members(store),
        "layout": _layout(store),
        "server": check_node(store.connection, store, settings),
        "settings of other nodes": check_nodes(store, settings),
        "writes": _writes(store),
        "scripts": _scripts(store),
        "expiry events": _channels(store),
        "latency": _latency(store, settings),
        "heartbeat": _heartbeat(store),
        "counts": _repairs(store),
        "proxies": _proxies(store),
        "addresses of peers": _missing_proxy(store),
        "work": _work(store, settings),
        "DHT": check_dht_node(store.dht_nodes, settings, store.clock()),
        "site": check_site(store, settings),
    }
    for what, check in checks.items():
        try:
            async for finding in check:
                yield finding
        except StoreUnavailable:
            skipped.append(what)
        except RedisError as error:
            yield Finding("wrong", what, f"the store forbids the check ({error})", _REMEDIES["no permission"])
    if skipped:
        text = f"{store.connection.cause or 'the store refuses work'}; not checked: {', '.join(skipped)}"
        yield Finding("wrong", "main store", text, remedy_for(store))
    for finding in check_without_store(settings, store.clock()):
        yield finding


def check_without_store(settings: Settings, now: float) -> Iterator[Finding]:
    yield check_geoip(settings.geoip_file, now)
    yield from (*check_settings(settings), *check_dht_settings(settings), *check_udp(settings))


async def _layout(store: Store) -> AsyncIterator[Finding]:
    try:
        await store.check_layout()
    except StartupError as error:
        yield Finding("wrong", "layout", str(error))


_REMEDIES = {
    "disk full": "free space on the store's disk, and look into its log: also a disk that it may not write to says so",
    "read-only": "point TRACKER_REDIS__URL at the primary",
    "no permission": "allow all commands on its keys: ACL SETUSER … +@all",
    "out of memory": "raise maxmemory, or joins are refused",
}


async def _writes(store: Store) -> AsyncIterator[Finding]:
    await store.connection.check_writes(store.keys.heartbeat())
    if reason := store.connection.refusal:
        yield Finding("wrong", "writes", f"the store refuses writes: {reason}", _REMEDIES[reason])
    else:
        yield Finding("ok", "writes", "the store accepts writes")


async def _scripts(store: Store) -> AsyncIterator[Finding]:
    try:
        await store.connection.command("EVAL", "return 1", 0)
    except ResponseError as error:
        text = f"the server forbids scripts ({error})"
        yield Finding("wrong", "scripts", text, "allow them: ACL SETUSER … +@scripting")
    else:
        yield Finding("ok", "scripts", "the server runs scripts")


async def _channels(store: Store) -> AsyncIterator[Finding]:
    channels = f"{store.connection.keyspace_channel(store.keys.timeouts())}*"
    try:
        async with store.connection.subscription(patterns=[channels]):
            yield Finding("ok", "channels", "the subscription to expiry events is allowed")
    except ResponseError:
        text = "the subscription to expiry events is forbidden, so only due lists and the sweep remove peers"
        yield Finding("warning", "channels", text, "allow it: ACL SETUSER … &*")


async def _latency(store: Store, settings: Settings) -> AsyncIterator[Finding]:
    took = []
    for _ in range(_PINGS):
        began = time.perf_counter()
        await store.connection.command("PING")
        took.append(time.perf_counter() - began)
    median = statistics.median(took)
    text = f"{median * 1000:.2f} ms for a PING"
    if median >= settings.redis.timeout_seconds:
        yield Finding("wrong", "latency", text, "every announce times out: move the store closer")
    elif median >= SLOW_SECONDS:
        remedy = "move the store closer, or find what keeps it busy (SLOWLOG GET)"
        yield Finding("warning", "latency", text, remedy)
    else:
        yield Finding("ok", "latency", text)


async def _heartbeat(store: Store) -> AsyncIterator[Finding]:
    age = await heartbeat_age(store)
    if age is None:
        yield Finding("ok", "tracker", "no tracker has used this store yet")
    elif age < HEARTBEAT_SECONDS:
        yield Finding("ok", "tracker", "a tracker is running")
    else:
        text = f"no tracker is running; the last one stopped {ago(age)} ago"
        yield Finding("warning", "tracker", text, "start it: tracker serve")


async def _repairs(store: Store) -> AsyncIterator[Finding]:
    try:
        repairs = (await store.counters.totals())["repairs"]
    except RedisError as error:
        text = f"the totals cannot be read ({error})"
        yield Finding("wrong", "counts", text, f"allow keys {store.keys.prefix}*")
        return
    if not repairs:
        yield Finding("ok", "counts", "the sweep has repaired nothing")
        return
    text = f"the sweep repaired {repairs}; this happens only if another program changes keys, or keys are evicted"
    yield Finding("wrong", "counts", text, "find the cause, then reset the counter: tracker wipe-stats --repairs")


_PORTS_OF_A_PROXY = 100
_PROXY_FAULTS = {
    ADDRESS_HIDDEN: "let it send X-Forwarded-For, or take it out of TRACKER_HTTP__TRUSTED_PROXIES",
    ADDRESS_IMPOSSIBLE: "look at the forwarding headers of the proxy; a client's ip= counts too",
    PROXY_HEADER_MISSING: "set TRACKER_HTTP__PROXY_PROTOCOL=false, or let the proxy send the header",
    PROXY_HEADER_UNEXPECTED: "set TRACKER_HTTP__PROXY_PROTOCOL=true, and the proxy in TRACKER_HTTP__TRUSTED_PROXIES",
    UPGRADE_MISSING: "let it pass on Upgrade and Connection as docs/webtorrent.md shows",
}


async def _proxies(store: Store) -> AsyncIterator[Finding]:
    """What proxies do not say about clients, by the refusals of the last hour."""
    since = store.clock() - _RECENT_SECONDS
    for text, remedy in _PROXY_FAULTS.items():
        try:
            slices = await store.counters.series(f"failures.{text}", _SLICE_SECONDS, since)
        except RedisError:
            return
        if refused := sum(count for _, count in slices):
            yield Finding("warning", "proxy", f"{refused} requests in an hour: {text}", f"{remedy} (docs/proxies.md)")


async def _missing_proxy(store: Store) -> AsyncIterator[Finding]:
    """A proxy that is not among the trusted ones gives its own address to all of its clients."""
    ports: dict[str, set[str]] = {}
    for endpoint in await store.all_peers.sample():
        if not is_routable(endpoint[:-2]):
            address, _, port = format_endpoint(endpoint).rpartition(":")
            ports.setdefault(address, set()).add(port)
    for address, found in ports.items():
        if len(found) >= _PORTS_OF_A_PROXY:
            told = f"peers on {len(found)} different ports have the private address {address}: it may be a proxy"
            remedy = "set its network in TRACKER_HTTP__TRUSTED_PROXIES (docs/proxies.md)"
            yield Finding("warning", "proxy address", told, remedy)


async def _work(store: Store, settings: Settings) -> AsyncIterator[Finding]:
    try:
        projects = await store.work.projects.all()
        undrained = await store.work.log.undrained([project.name for project in projects])
    except RedisError as error:
        text = f"the projects of work distribution cannot be read ({error})"
        yield Finding("wrong", "work logs", text, f"allow keys {store.keys.prefix}*")
        return
    unprobed = [project.name for project in projects if asks_for_probes(project)]
    if unprobed and not settings.probe.enabled:
        text = f"claims are verified by announces alone: project {_named(unprobed)}"
        remedy = "set TRACKER_PROBE__ENABLED=true, or verify of the project to announce"
        yield Finding("warning", "work probes", text, remedy)
    # A log with a drain keeps what was not drained. Without a drain it keeps KEPT_LOG entries.
    behind = sorted((name for name in undrained if undrained[name] > KEPT_LOG), key=lambda name: -undrained[name])
    if behind:
        named = _named([f"{name} ({undrained[name]})" for name in behind])
        text = f"finished claims that are not drained fill the store: project {named}"
        remedy = f"run tracker work drain {behind[0]} DIR regularly, or end the drain: XGROUP DESTROY "
        remedy += f"{store.keys.work_log(behind[0])} {GROUP}"
        yield Finding("warning", "work logs", text, remedy)


def _named(names: Sequence[str]) -> str:
    """The first of them, and how many more."""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
