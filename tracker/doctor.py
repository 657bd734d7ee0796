"""Looks the store and the settings over, and says in one line each what is well, what is not, and how to mend it.

Nothing is changed: the tracker itself adds the notification flags it needs when it starts. Where the server
forbids a look (CONFIG or INFO in its access list), that is a finding too, and the rest goes on.
"""

import ipaddress
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError, ResponseError

from tracker.doctor_failover import examine_failover
from tracker.finding import Finding
from tracker.geoip import GeoIP
from tracker.settings import AnnounceSettings, Settings
from tracker.store.connection import Connection
from tracker.store.counters import Counters
from tracker.store.keys import Keys
from tracker.store.notifications import missing_flags, read_setting

__all__ = ["CLOCK_SECONDS", "Finding", "Patient", "examine", "examine_geoip", "examine_settings", "is_public"]

CLOCK_SECONDS = 2.0
"""Tracker and store may differ by less than this: due lists and heartbeats compare their clocks."""
HEARTBEAT_SECONDS = 15.0
SLOW_SECONDS = 0.05
PUBSUB_BUFFER_BYTES = 256 * 1024 * 1024
EXPIRE_EFFORT = 5
FULL_SHARE = 0.9
LISTED_INTERVALS = range(300, 10801)
"""Seconds between announces that lists of public trackers accept."""
GEOIP_DAYS = 60
"""A GeoIP database older than this is stale: those of places come out at least once a month."""
_PINGS = 5


@dataclass(frozen=True, slots=True)
class Patient:
    """What is looked at. ``clock`` gives epoch seconds, as the tracker's does."""

    connection: Connection
    keys: Keys
    counters: Counters
    settings: Settings
    clock: Callable[[], float]


async def examine(patient: Patient) -> AsyncIterator[Finding]:
    """Every finding, one by one as it is made. Raises StoreAway when the store goes away meanwhile."""
    info = await _info(patient.connection)
    if info:
        for check in (_server, _role, _memory, _written):
            for finding in check(info):
                yield finding
    else:
        yield Finding(
            "warning",
            "server",
            "INFO is forbidden, so little can be looked at",
            "allow it: ACL SETUSER … +info",
        )
    for more in (_configuration(patient, info), examine_failover(patient.connection, info)):
        async for finding in more:
            yield finding
    for look in (_scripts, _channels, _clock, _latency, _heartbeat, _repairs):
        yield await look(patient)
    yield examine_geoip(patient.settings.geoip.database, patient.clock())
    for finding in examine_settings(patient.settings):
        yield finding


async def _info(connection: Connection) -> Mapping[str, Any]:
    try:
        answer: Mapping[str, Any] = await connection.command("INFO")
    except ResponseError:
        return {}
    return answer


def _server(info: Mapping[str, Any]) -> Iterator[Finding]:
    kind = "valkey" if "valkey_version" in info else "redis"
    yield Finding("ok", "server", f"{kind} {info.get(f'{kind}_version', 'of unknown version')}")
    if str(info.get("cluster_enabled", 0)) == "1":
        yield Finding(
            "wrong",
            "cluster",
            "the server is part of a cluster",
            "use one that is not: set cluster-enabled to no",
        )


def _role(info: Mapping[str, Any]) -> Iterator[Finding]:
    if info.get("role", "master") == "master":
        yield Finding("ok", "role", "this server takes writes")
        return
    primary = f"{info.get('master_host', '?')}:{info.get('master_port', '?')}"
    yield Finding(
        "wrong", "role", f"this server is a replica of {primary}", "point TRACKER_REDIS__URL at the primary"
    )


def _memory(info: Mapping[str, Any]) -> Iterator[Finding]:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        yield Finding("ok", "eviction", policy)
    else:
        text = f"{policy} throws away swarms, users and counters when memory is short"
        yield Finding("wrong", "eviction", text, "set maxmemory-policy to noeviction")
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not limit:
        remedy = "set maxmemory where the host is not for the store alone"
        yield Finding("ok", "memory", f"{_megabytes(used)} used, no limit is set", remedy)
    elif used > limit * FULL_SHARE:
        text = f"{_megabytes(used)} used of {_megabytes(limit)}"
        yield Finding("warning", "memory", text, "raise maxmemory, or joins will be refused")
    else:
        yield Finding("ok", "memory", f"{_megabytes(used)} used of {_megabytes(limit)}")


def _written(info: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the last attempts to keep data on the disk went well; zero attempts did."""
    failed = [
        what
        for name, what in (
            ("aof_last_write_status", "the last write to the append-only file failed"),
            ("aof_last_bgrewrite_status", "the last rewrite of the append-only file failed"),
            ("rdb_last_bgsave_status", "the last snapshot failed"),
        )
        if info.get(name, "ok") != "ok"
    ]
    for text in failed:
        yield Finding("wrong", "disk", text, "see the server's log, and whether its disk is full")
    if not failed:
        yield Finding("ok", "disk", "the last writes went well")


async def _configuration(patient: Patient, info: Mapping[str, Any]) -> AsyncIterator[Finding]:
    """What only CONFIG GET tells."""
    connection = patient.connection
    flags = await read_setting(connection, "notify-keyspace-events")
    if flags is None:
        text = "CONFIG is forbidden: notification flags, buffer limits and persistence stay unknown"
        yield Finding(
            "warning",
            "config",
            text,
            "allow it (ACL SETUSER … +config|get +config|set), or check redis.conf's lines",
        )
        return
    yield _flags(flags, await _tracker_seen(patient))
    yield _persistence(info, await read_setting(connection, "save") or "")
    yield _pubsub_buffer(await read_setting(connection, "client-output-buffer-limit") or "")
    yield _effort(await read_setting(connection, "active-expire-effort") or "1")


def _flags(flags: str, tracker_seen: float | None) -> Finding:
    missing = missing_flags(flags)
    if not missing:
        return Finding("ok", "events", f"notify-keyspace-events is {flags}")
    text = f"notify-keyspace-events lacks {missing}"
    if tracker_seen is None:
        return Finding("warning", "events", text, "set it to Kx; the tracker tries to when it starts")
    return Finding("wrong", "events", f"{text} while a tracker runs: silent peers go late", "set it to Kx")


def _persistence(info: Mapping[str, Any], save: str) -> Finding:
    if not info:
        return Finding(
            "warning", "persistence", "INFO is forbidden, so it is unknown", "see that appendonly is yes"
        )
    if str(info.get("aof_enabled", 0)) == "1":
        return Finding("ok", "persistence", "the append-only file is on")
    remedy = "set appendonly to yes"
    if save:
        return Finding(
            "warning", "persistence", "snapshots only: a crash loses all since the last one", remedy
        )
    return Finding(
        "wrong", "persistence", "off: torrents, users and totals are lost when the server stops", remedy
    )


def _pubsub_buffer(limits: str) -> Finding:
    """``limits`` is like ``normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60``."""
    words = limits.split()
    if "pubsub" not in words:
        return Finding("ok", "event buffer", "this server names no limit")
    hard, soft = (int(word) for word in words[words.index("pubsub") + 1 :][:2])
    least = min((limit for limit in (hard, soft) if limit), default=PUBSUB_BUFFER_BYTES)
    if least >= PUBSUB_BUFFER_BYTES:
        return Finding(
            "ok", "event buffer", f"{_megabytes(hard)} for pub/sub" if hard else "no limit for pub/sub"
        )
    text = f"{_megabytes(least)} for pub/sub, so a mass expiry cuts the reaper off"
    return Finding("warning", "event buffer", text, "set client-output-buffer-limit to: pubsub 256mb 0 0")


def _effort(effort: str) -> Finding:
    if int(effort) >= EXPIRE_EFFORT:
        return Finding("ok", "expire effort", effort)
    return Finding(
        "ok", "expire effort", effort, f"with active-expire-effort {EXPIRE_EFFORT} memory comes back sooner"
    )


async def _scripts(patient: Patient) -> Finding:
    try:
        await patient.connection.command("EVAL", "return 1", 0)
    except ResponseError as error:
        return Finding(
            "wrong", "scripts", f"the server runs none ({error})", "allow them: ACL SETUSER … +@scripting"
        )
    return Finding("ok", "scripts", "the server runs them")


async def _channels(patient: Patient) -> Finding:
    channels = f"{patient.connection.keyspace_channel(patient.keys.timeouts())}*"
    try:
        async with patient.connection.subscription(patterns=[channels]):
            return Finding("ok", "channels", "expiry events may be listened to")
    except ResponseError:
        text = "the subscription to expiry events is forbidden: due lists and the sweep reap alone"
        return Finding("warning", "channels", text, "allow it: ACL SETUSER … &*")


async def _clock(patient: Patient) -> Finding:
    before = patient.clock()
    try:
        seconds = await _server_time(patient.connection)
    except ResponseError:
        return Finding(
            "warning",
            "clock",
            "TIME is forbidden, so the difference is unknown",
            "allow it: ACL SETUSER … +time",
        )
    difference = seconds - (before + patient.clock()) / 2
    if abs(difference) < CLOCK_SECONDS:
        return Finding("ok", "clock", f"the store's and this machine's differ by {abs(difference):.3f} s")
    way = "ahead of" if difference > 0 else "behind"
    text = f"the store's is {abs(difference):.1f} s {way} this machine's"
    return Finding("wrong", "clock", text, "run a time service (NTP) on both")


async def _server_time(connection: Connection) -> float:
    seconds, microseconds = await connection.command("TIME")
    return int(seconds) + int(microseconds) / 1e6


async def _latency(patient: Patient) -> Finding:
    took = []
    for _ in range(_PINGS):
        began = time.perf_counter()
        await patient.connection.command("PING")
        took.append(time.perf_counter() - began)
    middle = statistics.median(took)
    text = f"{middle * 1000:.2f} ms for a PING"
    if middle >= patient.settings.redis.timeout_seconds:
        return Finding(
            "wrong", "latency", text, "no announce will be answered in time: move the store nearer"
        )
    if middle >= SLOW_SECONDS:
        return Finding(
            "warning", "latency", text, "move the store nearer, or see what keeps it busy (SLOWLOG GET)"
        )
    return Finding("ok", "latency", text)


async def _tracker_seen(patient: Patient) -> float | None:
    """Seconds since a running tracker was here; None when none is."""
    age = await _heartbeat_age(patient)
    return age if age is not None and age < HEARTBEAT_SECONDS else None


async def _heartbeat_age(patient: Patient) -> float | None:
    last = await patient.connection.command("GET", patient.keys.heartbeat())
    return max(0.0, patient.clock() - float(last)) if last else None


async def _heartbeat(patient: Patient) -> Finding:
    age = await _heartbeat_age(patient)
    if age is None:
        return Finding("ok", "tracker", "none has used this store yet")
    if age < HEARTBEAT_SECONDS:
        return Finding("ok", "tracker", "one is running")
    return Finding(
        "warning", "tracker", f"none is running; one was here {_ago(age)} ago", "start it: tracker serve"
    )


async def _repairs(patient: Patient) -> Finding:
    try:
        repairs = (await patient.counters.totals())["repairs"]
    except RedisError as error:
        return Finding(
            "wrong", "counts", f"they cannot be read ({error})", f"allow keys {patient.keys.prefix}*"
        )
    if not repairs:
        return Finding("ok", "counts", "the sweep never had to repair one")
    key = patient.keys.stat("repairs")
    text = (
        f"the sweep repaired {repairs}, which never happens unless keys are changed from outside or evicted"
    )
    return Finding("wrong", "counts", text, f"find out by whom, then DEL {key}")


def examine_geoip(path: Path | None, now: float) -> Finding:
    """The database of places. ``now`` is in epoch seconds."""
    if path is None:
        text = "no database is named, so users are not counted by place"
        return Finding("ok", "geoip", text, "to count them set TRACKER_GEOIP__DATABASE, see docs/geoip.md")
    geoip = GeoIP(path)
    database = geoip.describe()
    geoip.close()
    if database is None:
        text = f"{path} is of no use ({geoip.problem}), so users are not counted by place"
        return Finding("wrong", "geoip", text, "fetch a database as docs/geoip.md says")
    age = now - database.built.timestamp() if database.built else 0.0
    if age > GEOIP_DAYS * 86400:
        text = f"{database}; that was {_ago(age)} ago"
        return Finding("warning", "geoip", text, "fetch a new one regularly as docs/geoip.md says")
    if not database.cities:
        return Finding("ok", "geoip", str(database), "with one of cities users are counted by city, too")
    return Finding("ok", "geoip", str(database))


def examine_settings(settings: Settings) -> Iterator[Finding]:
    """What a public tracker should not be run with."""
    public = [listen for listen in settings.http.listen if is_public(listen)]
    if public and settings.announce.private_addresses == "serve":
        text = f"peers on private addresses are served, and {public[0]} is open to the world"
        remedy = "for a public tracker set TRACKER_ANNOUNCE__PRIVATE_ADDRESSES=refuse"
        yield Finding("warning", "addresses", text, remedy)
    admin = [listen for listen in settings.admin.listen if settings.admin.enabled and is_public(listen)]
    if admin:
        text = f"{admin[0]} is open to others, and speaks plain HTTP: tokens can be read on the way"
        yield Finding("warning", "admin port", text, "let a proxy with TLS reach it, and nobody else")
    yield from _intervals(settings.announce)


def _intervals(announce: AnnounceSettings) -> Iterator[Finding]:
    interval, longest = announce.interval_seconds, announce.longest_interval_seconds
    told = f"{interval} s" if longest == interval else f"{interval} to {longest} s"
    if interval not in LISTED_INTERVALS or longest not in LISTED_INTERVALS:
        text = f"peers announce every {told}, and lists of public trackers accept 300 to 10800"
        yield Finding("warning", "interval", text, "set TRACKER_ANNOUNCE__INTERVAL_SECONDS to 1800")
    elif announce.min_interval_seconds > interval:
        text = f"the least interval, {announce.min_interval_seconds} s, is longer than the interval, {interval} s"
        yield Finding("warning", "interval", text, "lower TRACKER_ANNOUNCE__MIN_INTERVAL_SECONDS")
    else:
        yield Finding("ok", "interval", told)


def is_public(listen: str) -> bool:
    """Can a listen address (as in the settings) be reached from outside? A name may be anything, so it can."""
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


def _megabytes(count: int) -> str:
    return f"{count / 1024 / 1024:.1f} MB"


def _ago(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
