"""Checks of the store's servers, from INFO, CONFIG GET and TIME: of one server; of a cluster, which shards are
unavailable, and the settings of every node; and with replicas, whether the sentinels agree, whether a failover is
possible, and what it would lose."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from redis.exceptions import ResponseError

from tracker.doctor import Finding, megabytes
from tracker.errors import StoreUnavailable
from tracker.settings.model import Settings
from tracker.store.client.cluster import NO_MAJORITY, Cluster, NodeState, no_majority, slot_of
from tracker.store.client.connection import Connection
from tracker.store.client.sentinel import SentinelReply
from tracker.store.client.server_info import missing_flags, parse_info, read_info, read_setting, too_old, version_of
from tracker.store.sharding.shards import MAIN, Shard, named
from tracker.store.stats.memory_usage import NEARLY_FULL
from tracker.store.store import Store

PUBSUB_BUFFER_BYTES = 256 * 1024 * 1024
EXPIRE_EFFORT = 5
FULL_SHARE = 0.9
HEARTBEAT_SECONDS = 15.0


async def check_node(connection: Connection, store: Store, settings: Settings) -> AsyncIterator[Finding]:
    info: Mapping[str, Any] = {}
    with suppress(ResponseError):  # INFO may be forbidden
        info = await read_info(connection)
    for finding in check_info(info, settings):
        yield finding
    is_running = False
    with suppress(StoreUnavailable):
        age = await heartbeat_age(store)
        is_running = age is not None and age < HEARTBEAT_SECONDS
    async for finding in check_configuration(connection, info, tracker_running=is_running):
        yield finding
    async for finding in check_copies(connection, info):
        yield finding
    yield await check_clock(connection, store.clock)


async def heartbeat_age(store: Store) -> float | None:
    """By the newest heartbeat of all prefixes that are available."""
    shards = store.shards
    beats = await shards.each(lambda shard: ("GET", shard.keys.heartbeat()), shards.all)
    last = max((float(beat) for beat in beats.values() if beat), default=None)
    return None if last is None else max(0.0, store.clock() - last)


def check_info(info: Mapping[str, Any], settings: Settings) -> Iterator[Finding]:
    """``info`` is the server's INFO, empty if that is forbidden."""
    if not info:
        text = "INFO is forbidden, so few checks are possible"
        yield Finding("warning", "server", text, "allow it: ACL SETUSER … +info")
        return
    if reason := too_old(info):
        yield Finding("wrong", "server", reason, "upgrade this node")
    else:
        yield Finding("ok", "server", version_of(info)[2])
    if info.get("role", "master") == "master":
        yield Finding("ok", "role", "this server accepts writes")
    else:
        text = f"this server is a replica of {info.get('master_host', '?')}:{info.get('master_port', '?')}"
        yield Finding("wrong", "role", text, "point TRACKER_REDIS__URL at the primary")
    yield from _memory(info, settings)
    yield from check_disk(info)


def _memory(info: Mapping[str, Any], settings: Settings) -> Iterator[Finding]:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        yield Finding("ok", "eviction", policy)
    else:
        text = f"{policy} evicts swarms, users and counters when memory is short"
        yield Finding("wrong", "eviction", text, "set maxmemory-policy to noeviction")
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    text = f"{megabytes(used)} used{f' of {megabytes(limit)}' if limit else ', no limit set'}"
    if limit and used > limit * FULL_SHARE:
        yield Finding("warning", "memory", text, "raise maxmemory, or joins will be refused")
    else:
        yield Finding("ok", "memory", text, "" if limit else "set maxmemory if the host runs other programs")
    stores_markers = settings.uniques.enabled and settings.uniques.mode != "hyperloglog"
    if limit and stores_markers and used > limit * NEARLY_FULL:  # markers of unique users must leave room for peers
        text = f"{used / limit:.0%} of maxmemory is used, so new unique users are not counted"
        remedy = "set TRACKER_UNIQUES__MODE=hyperloglog, which stores no addresses, or raise maxmemory"
        yield Finding("warning", "unique users", text, remedy)


_DISK_FAULTS = {
    "aof_last_write_status": "the last write to the append-only file failed",
    "aof_last_bgrewrite_status": "the last rewrite of the append-only file failed",
    "rdb_last_bgsave_status": "the last snapshot failed",
}


def check_disk(info: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the last writes to disk succeeded; a server that has written nothing passes."""
    failed = [text for name, text in _DISK_FAULTS.items() if info.get(name, "ok") != "ok"]
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
    missing = missing_flags(flags)
    text = f"notify-keyspace-events does not have {missing}"
    if not missing:
        yield Finding("ok", "events", f"notify-keyspace-events is {flags}")
    elif tracker_running:
        yield Finding("wrong", "events", f"{text}, so peers that time out are removed late", "set it to Kx")
    else:
        yield Finding("warning", "events", text, "set it to Kx; the tracker tries to set it at its start")
    yield _persistence(info, await read_setting(connection, "save") or "")
    yield _pubsub_buffer(await read_setting(connection, "client-output-buffer-limit") or "")
    effort = await read_setting(connection, "active-expire-effort") or "1"
    remedy = f"active-expire-effort {EXPIRE_EFFORT} frees memory sooner" if int(effort) < EXPIRE_EFFORT else ""
    yield Finding("ok", "expire effort", effort, remedy)


def _persistence(info: Mapping[str, Any], save: str) -> Finding:
    if not info:
        text = "INFO is forbidden, so persistence is unknown"
        return Finding("warning", "persistence", text, "check that appendonly is yes")
    if str(info.get("aof_enabled", 0)) == "1":
        return Finding("ok", "persistence", "the append-only file is on")
    remedy = "set appendonly to yes"
    if save:
        return Finding("warning", "persistence", "snapshots only: a crash loses everything since the last one", remedy)
    return Finding("wrong", "persistence", "off: torrents, users and totals are lost when the server stops", remedy)


def _pubsub_buffer(limits: str) -> Finding:
    """``limits`` is like ``normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60``."""
    words = limits.split()
    if "pubsub" not in words:
        return Finding("ok", "event buffer", "the server reports no limit")
    hard, soft = (int(word) for word in words[words.index("pubsub") + 1 :][:2])
    smallest = min((limit for limit in (hard, soft) if limit), default=PUBSUB_BUFFER_BYTES)
    if smallest >= PUBSUB_BUFFER_BYTES:
        return Finding("ok", "event buffer", f"{megabytes(hard)} for pub/sub" if hard else "no limit for pub/sub")
    text = f"{megabytes(smallest)} for pub/sub, so a mass expiry disconnects the reaper"
    return Finding("warning", "event buffer", text, "set client-output-buffer-limit to: pubsub 256mb 0 0")


_START = "start that node, or let a replica of it take over (docs/cluster.md, Failover)"
_TAKE_OVER = (
    "start the nodes that do not answer; if they are lost, send a replica of each, if it answers, CLUSTER FAILOVER "
    "TAKEOVER (docs/cluster.md, Failover)"
)
CLOCK_SECONDS = 2.0
"""Maximum difference between the clocks of tracker and store: due lists and heartbeats compare them."""


def remedy_for(store: Store) -> str:
    """What to do about a main store that is unavailable."""
    if not store.connection.topology.nodes:
        return "start the server that TRACKER_REDIS__URL names"
    return _TAKE_OVER if store.connection.cause.startswith(NO_MAJORITY) else _START


async def check_members(store: Store) -> AsyncIterator[Finding]:
    """One line for each node of a cluster, and one where too few answer. Yields nothing without a cluster."""
    topology = store.connection.topology
    nodes = await topology.states() if isinstance(topology, Cluster) else []
    by_id = {node.node_id: node for node in nodes}
    for node in nodes:
        yield _member(node, by_id.get(node.primary_id), store)
    cause = no_majority([[replace(node, failing=not node.answers) for node in nodes]]) or store.connection.cause
    if cause.startswith(NO_MAJORITY):
        yield Finding("wrong", "majority", cause, _TAKE_OVER)


def _member(node: NodeState, primary: NodeState | None, store: Store) -> Finding:
    host, port = node.address
    text = f"{host}:{port}"
    if primary is not None:
        text += f", a replica of {primary.address[0]}:{primary.address[1]}"
    elif node.slots:
        slots = ", ".join(f"{first} to {last}" for first, last in node.slots)
        served = [each for each in store.shards.all if _serves(node, each)]
        shards = named(each.number for each in served if each.number != MAIN)
        what = ["main store"] * any(each is store.shards.main for each in served) + [shards] * (shards != "shard ")
        text += f", a primary with the slots {slots} ({', '.join(what) or 'no shard'})"
    else:
        text += ", without slots"
    if not node.answers:
        return Finding("wrong", "node", f"{text}, does not answer", _START)
    if primary is None:
        return Finding("ok", "node", f"{text}, answers")
    if not node.linked:
        text += ", answers, and is not connected to its primary"
        return Finding("warning", "node", text, "look into its log: without it what the primary has is in one place")
    behind = f", {max(0, primary.offset - node.offset)} bytes behind" if primary.answers else ""
    return Finding("ok", "node", f"{text}, answers{behind}")


def _serves(node: NodeState, shard: Shard) -> bool:
    slot = slot_of(shard.keys.prefix)
    return slot is not None and any(first <= slot <= last for first, last in node.slots)


async def check_nodes(store: Store, settings: Settings) -> AsyncIterator[Finding]:
    """Yields nothing with one shard, or without a cluster. The node of the main prefix has been checked before."""
    if not (store.shards.others and store.connection.topology.nodes):
        return
    with suppress(StoreUnavailable):  # the node of a key is asked, which another node names
        await store.shards.each(lambda shard: ("EXISTS", shard.keys.prefix))
    unavailable, by_node = False, dict[str, list[Shard]]()
    for shard in store.shards:
        by_node.setdefault(shard.connection.master, []).append(shard)
    for address, shards in sorted(by_node.items()):
        here = [shard for shard in shards if not shard.connection.unavailable]
        findings: list[Finding] = []
        if here and address != store.connection.master:
            try:
                findings = [
                    each async for each in check_node(here[0].connection, store, settings) if each.level != "ok"
                ]
            except StoreUnavailable:
                here = []
        if missing := [shard for shard in shards if shard not in here]:
            unavailable = True
            lost = named(shard.number for shard in missing)
            text = f"unavailable: {lost} of {address} ({missing[0].connection.cause}); their torrents are refused"
            yield Finding("wrong", "shards", text, remedy_for(store))
        for each in findings:
            yield Finding(each.level, each.subject, f"{address}: {each.text}", each.remedy)
    if not unavailable:
        yield Finding("ok", "shards", f"all {len(store.shards)} are served")


async def check_clock(connection: Connection, clock: Callable[[], float]) -> Finding:
    before = clock()
    try:
        seconds, microseconds = await connection.command("TIME")
    except ResponseError:
        text = "TIME is forbidden, so the clock difference is unknown"
        return Finding("warning", "clock", text, "allow it: ACL SETUSER … +time")
    difference = int(seconds) + int(microseconds) / 1e6 - (before + clock()) / 2
    if abs(difference) < CLOCK_SECONDS:
        return Finding("ok", "clock", f"the store's and this machine's differ by {abs(difference):.3f} s")
    way = "ahead of" if difference > 0 else "behind"
    text = f"the store's is {abs(difference):.1f} s {way} this machine's"
    return Finding("wrong", "clock", text, "run a time service (NTP) on both")


MIN_NODE_TIMEOUT = 5000
"""Milliseconds."""
MAX_LAG = 10
"""Seconds."""
MIN_PRIMARIES = 3
"""Most of the nodes with slots decide on a failover. Of two, none may fail."""


async def check_copies(connection: Connection, info: Mapping[str, Any]) -> AsyncIterator[Finding]:
    """Yields nothing without sentinels or a cluster. ``info`` is the server's INFO, empty if that is forbidden."""
    replicas = int(info.get("connected_slaves", 0))
    if (replies := await connection.topology.replies()) is not None:
        yield _sentinels(replies, connection.master)
        if info:
            yield check_replicas(replicas, await read_setting(connection, "min-replicas-to-write"))
    elif connection.topology.nodes:
        async for finding in _check_cluster(connection, replicas, knows_replicas=bool(info)):
            yield finding
    else:
        return
    if await read_setting(connection, "requirepass") and await read_setting(connection, "masterauth") == "":
        text = "requirepass is set and masterauth is not: after a failover this server cannot be a replica"
        yield Finding("warning", "masterauth", text, "set masterauth to the same password on each server")


async def _check_cluster(connection: Connection, replicas: int, *, knows_replicas: bool) -> AsyncIterator[Finding]:
    text = f"{connection.master} serves the keys; nodes known: {len(connection.topology.nodes)}"
    yield Finding("ok", "cluster", text)
    if knows_replicas and not replicas:
        text = "the node that serves the keys has no replica, so no failover is possible"
        yield Finding("warning", "replicas", text, "start one: CLUSTER REPLICATE <id of the node>")
    if replicas:
        async for finding in _check_takeover(connection):
            yield finding
    required = int(await read_setting(connection, "min-replicas-to-write") or 0)
    if knows_replicas and (found := check_required(replicas, required)) is not None:
        yield found
    max_lag = int(await read_setting(connection, "min-replicas-max-lag") or MAX_LAG)
    if (found := check_isolation(replicas, required, max_lag)) is not None:
        yield found
    timeout = int(await read_setting(connection, "cluster-node-timeout") or MIN_NODE_TIMEOUT)
    if timeout < MIN_NODE_TIMEOUT:
        text = f"cluster-node-timeout is {timeout} ms: a node that is busy for longer counts as failed, and a node "
        text += "that does not reach most of the others for longer refuses work"
        yield Finding("warning", "node timeout", text, f"set it to {MIN_NODE_TIMEOUT} or more on each node")
    if await read_setting(connection, "cluster-require-full-coverage") == "yes":
        text = "all nodes refuse work while the slots of one are not served"
        yield Finding("warning", "coverage", text, "set cluster-require-full-coverage to no on each node")


async def _check_takeover(connection: Connection) -> AsyncIterator[Finding]:
    """Whether a replica can take over. Its own settings are not read: those of all nodes are usually the same."""
    with suppress(ResponseError):  # CLUSTER INFO may be forbidden
        state = parse_info(await connection.command("CLUSTER", "INFO"))
        if (primaries := int(state.get("cluster_size", MIN_PRIMARIES))) < MIN_PRIMARIES:
            text = f"nodes with slots: {primaries}; after the failure of one, too few are left to choose its replica"
            yield Finding("warning", "primaries", text, f"spread the slots over {MIN_PRIMARIES} nodes or more")
    if await read_setting(connection, "cluster-replica-no-failover") == "yes":
        text = "cluster-replica-no-failover is yes: a replica with this setting does not take over by itself"
        yield Finding("warning", "failover", text, "set cluster-replica-no-failover to no on each node")


def check_required(replicas: int, required: int) -> Finding | None:
    """Whether a node of a cluster takes announces, and whether the one after a failover does. ``replicas``: those that
    are connected; ``required``: min-replicas-to-write."""
    if not required or required < replicas:
        return None
    text = f"min-replicas-to-write is {required} with {replicas} connected: "
    remedy = "start another replica, or set min-replicas-to-write to 0 on each node"
    if required > replicas:
        return Finding("wrong", "replicas", f"{text}the node refuses all announces", remedy)
    text += "after a failover one fewer is connected, so the new node refuses all announces"
    return Finding("warning", "replicas", text, remedy)


def check_isolation(replicas: int, required: int, max_lag: int) -> Finding | None:
    """Whether a node that is cut off from the others soon refuses announces. ``replicas`` and ``required``: as in
    ``check_required``; ``max_lag``: min-replicas-max-lag (s)."""
    remedy = f"set min-replicas-to-write to 1 and min-replicas-max-lag to {MAX_LAG} on each node"
    if replicas > 1 and not required:
        text = f"{replicas} replicas connected, but a node that is cut off from them keeps accepting announces that "
        return Finding("warning", "isolation", f"{text}will be lost, for cluster-node-timeout and 2 s", remedy)
    if required and not 0 < max_lag <= MAX_LAG:
        text = f"min-replicas-max-lag is {max_lag}: a node that is cut off from its replicas accepts announces that "
        return Finding("warning", "isolation", f"{text}will be lost for longer than {MAX_LAG} s", remedy)
    return None


def check_replicas(replicas: int, required: str | None) -> Finding:
    """``required`` is min-replicas-to-write; None if it cannot be read."""
    if not replicas:
        text = "the master has no replica, so no failover is possible"
        return Finding("wrong", "replicas", text, "start one: replicaof <host> <port of the master>")
    if required == "0" and replicas > 1:
        text = f"{replicas} connected, but a master cut off from them keeps accepting writes that will be lost"
        return Finding("warning", "replicas", text, "set min-replicas-to-write to 1 and min-replicas-max-lag to 10")
    return Finding("ok", "replicas", f"{replicas} connected")


def _sentinels(replies: list[SentinelReply], master: str) -> Finding:
    agree = [reply for reply in replies if reply.address and f"{reply.address[0]}:{reply.address[1]}" == master]
    if len(agree) == len(replies) and len(replies) > 2:
        return Finding("ok", "sentinels", f"all {len(replies)} report {master} as the master")
    if len(agree) == len(replies):
        text = f"{len(replies)} report {master} as the master; with fewer than 3, one failure can prevent a failover"
        return Finding("warning", "sentinels", text, "name 3 or more in TRACKER_REDIS__URL")
    others = "; ".join(
        f"{reply.sentinel}: {reply.problem or f'reports {reply.address}'}" for reply in replies if reply not in agree
    )
    text = f"{len(agree)} of {len(replies)} report {master} as the master ({others})"
    return Finding("warning", "sentinels", text, "check that all of them run and monitor the same master")
