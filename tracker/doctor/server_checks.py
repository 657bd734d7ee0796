"""Checks of the store's server, from INFO and CONFIG GET."""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from tracker.doctor import Finding, megabytes
from tracker.settings.model import Settings
from tracker.store.client.connection import Connection
from tracker.store.client.server_info import missing_flags, read_setting, too_old, version_of
from tracker.store.stats.memory_usage import NEARLY_FULL

PUBSUB_BUFFER_BYTES = 256 * 1024 * 1024
EXPIRE_EFFORT = 5
FULL_SHARE = 0.9


def check_info(info: Mapping[str, Any], settings: Settings) -> Iterator[Finding]:
    """``info`` is the server's INFO, empty if that is forbidden."""
    if not info:
        text = "INFO is forbidden, so few checks are possible"
        yield Finding("warning", "server", text, "allow it: ACL SETUSER … +info")
        return
    yield _version(info)
    yield _role(info)
    yield from _memory(info)
    yield from check_disk(info)
    yield from _unique_users(info, settings)


def _version(info: Mapping[str, Any]) -> Finding:
    if reason := too_old(info):
        return Finding("wrong", "server", reason, "upgrade this node")
    return Finding("ok", "server", version_of(info)[2])


def _role(info: Mapping[str, Any]) -> Finding:
    if info.get("role", "master") == "master":
        return Finding("ok", "role", "this server accepts writes")
    primary = f"{info.get('master_host', '?')}:{info.get('master_port', '?')}"
    text = f"this server is a replica of {primary}"
    return Finding("wrong", "role", text, "point TRACKER_REDIS__URL at the primary")


def _memory(info: Mapping[str, Any]) -> Iterator[Finding]:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        yield Finding("ok", "eviction", policy)
    else:
        text = f"{policy} evicts swarms, users and counters when memory is short"
        yield Finding("wrong", "eviction", text, "set maxmemory-policy to noeviction")
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not limit:
        remedy = "set maxmemory if the host runs other programs"
        yield Finding("ok", "memory", f"{megabytes(used)} used, no limit set", remedy)
    elif used > limit * FULL_SHARE:
        text = f"{megabytes(used)} used of {megabytes(limit)}"
        yield Finding("warning", "memory", text, "raise maxmemory, or joins will be refused")
    else:
        yield Finding("ok", "memory", f"{megabytes(used)} used of {megabytes(limit)}")


def _unique_users(info: Mapping[str, Any], settings: Settings) -> Iterator[Finding]:
    """Markers of unique users must leave room for peers."""
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not limit or not settings.uniques.enabled or settings.uniques.mode == "hyperloglog":
        return
    if used > limit * NEARLY_FULL:
        text = f"{used / limit:.0%} of maxmemory is used, so new unique users are not counted"
        remedy = "set TRACKER_UNIQUES__MODE=hyperloglog, which stores no addresses, or raise maxmemory"
        yield Finding("warning", "unique users", text, remedy)


def check_disk(info: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the last writes to disk succeeded; a server that has written nothing passes."""
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
        yield Finding("wrong", "disk", text, "check the server's log and the free space on its disk")
    if not failed:
        yield Finding("ok", "disk", "the last writes succeeded")


async def check_configuration(
    connection: Connection, info: Mapping[str, Any], *, tracker_running: bool
) -> AsyncIterator[Finding]:
    """Checks that need CONFIG GET."""
    flags = await read_setting(connection, "notify-keyspace-events")
    if flags is None:
        text = "CONFIG is forbidden, so notification flags, buffer limits and persistence are unknown"
        remedy = "allow it (ACL SETUSER … +config|get +config|set), or compare the configuration with redis.conf"
        yield Finding("warning", "config", text, remedy)
        return
    yield _flags(flags, tracker_running=tracker_running)
    yield _persistence(info, await read_setting(connection, "save") or "")
    yield _pubsub_buffer(await read_setting(connection, "client-output-buffer-limit") or "")
    yield _effort(await read_setting(connection, "active-expire-effort") or "1")


def _flags(flags: str, *, tracker_running: bool) -> Finding:
    missing = missing_flags(flags)
    if not missing:
        return Finding("ok", "events", f"notify-keyspace-events is {flags}")
    text = f"notify-keyspace-events does not have {missing}"
    if tracker_running:
        return Finding("wrong", "events", f"{text}, so peers that time out are removed late", "set it to Kx")
    return Finding("warning", "events", text, "set it to Kx; the tracker tries to set it at its start")


def _persistence(info: Mapping[str, Any], save: str) -> Finding:
    if not info:
        text = "INFO is forbidden, so persistence is unknown"
        return Finding("warning", "persistence", text, "check that appendonly is yes")
    if str(info.get("aof_enabled", 0)) == "1":
        return Finding("ok", "persistence", "the append-only file is on")
    remedy = "set appendonly to yes"
    if save:
        text = "snapshots only: a crash loses everything since the last one"
        return Finding("warning", "persistence", text, remedy)
    text = "off: torrents, users and totals are lost when the server stops"
    return Finding("wrong", "persistence", text, remedy)


def _pubsub_buffer(limits: str) -> Finding:
    """``limits`` is like ``normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60``."""
    words = limits.split()
    if "pubsub" not in words:
        return Finding("ok", "event buffer", "the server reports no limit")
    hard, soft = (int(word) for word in words[words.index("pubsub") + 1 :][:2])
    smallest = min((limit for limit in (hard, soft) if limit), default=PUBSUB_BUFFER_BYTES)
    if smallest >= PUBSUB_BUFFER_BYTES:
        text = f"{megabytes(hard)} for pub/sub" if hard else "no limit for pub/sub"
        return Finding("ok", "event buffer", text)
    text = f"{megabytes(smallest)} for pub/sub, so a mass expiry disconnects the reaper"
    return Finding("warning", "event buffer", text, "set client-output-buffer-limit to: pubsub 256mb 0 0")


def _effort(effort: str) -> Finding:
    if int(effort) >= EXPIRE_EFFORT:
        return Finding("ok", "expire effort", effort)
    remedy = f"active-expire-effort {EXPIRE_EFFORT} frees memory sooner"
    return Finding("ok", "expire effort", effort, remedy)
