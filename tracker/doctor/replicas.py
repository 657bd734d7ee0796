"""Checks of a store with Sentinel or in a cluster: whether the sentinels agree, whether a failover is possible, and
what it would lose."""

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from redis.exceptions import ResponseError

from tracker.doctor import Finding
from tracker.store.client.connection import Connection
from tracker.store.client.sentinel import SentinelReply
from tracker.store.client.server_info import parse_info, read_setting

MIN_NODE_TIMEOUT = 5000
"""Milliseconds."""
MAX_LAG = 10
"""Seconds."""
MIN_PRIMARIES = 3
"""Most of the nodes with slots decide on a failover. Of two, none may fail."""


async def check_failover(connection: Connection, info: Mapping[str, Any]) -> AsyncIterator[Finding]:
    """Yields nothing without sentinels. ``info`` is the server's INFO, empty if that is forbidden."""
    replies = await connection.topology.replies()
    if replies is None:
        return
    yield _sentinels(replies, connection.master)
    if info:
        required = await read_setting(connection, "min-replicas-to-write")
        yield check_replicas(int(info.get("connected_slaves", 0)), required)
    async for finding in _check_return(connection):
        yield finding


async def check_cluster(connection: Connection, info: Mapping[str, Any]) -> AsyncIterator[Finding]:
    """Yields nothing without a cluster. ``info`` as in ``check_failover``."""
    if not connection.topology.nodes:
        return
    yield Finding(
        "ok", "cluster", f"{connection.master} serves the keys; nodes known: {len(connection.topology.nodes)}"
    )
    replicas = int(info.get("connected_slaves", 0))
    if info and not replicas:
        text = "the node that serves the keys has no replica, so no failover is possible"
        remedy = "start one: CLUSTER REPLICATE <id of the node>"
        yield Finding("warning", "replicas", text, remedy)
    if replicas:
        async for finding in _check_takeover(connection):
            yield finding
    required = int(await read_setting(connection, "min-replicas-to-write") or 0)
    if info and (found := check_required(replicas, required)) is not None:
        yield found
    max_lag = int(await read_setting(connection, "min-replicas-max-lag") or MAX_LAG)
    if (found := check_isolation(replicas, required, max_lag)) is not None:
        yield found
    async for finding in _check_return(connection):
        yield finding
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


async def _check_return(connection: Connection) -> AsyncIterator[Finding]:
    """Whether this server can sign in to the one that takes over from it."""
    if await read_setting(connection, "requirepass") and await read_setting(connection, "masterauth") == "":
        text = "requirepass is set and masterauth is not: after a failover this server cannot be a replica"
        yield Finding("warning", "masterauth", text, "set masterauth to the same password on each server")


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
        remedy = "set min-replicas-to-write to 1 and min-replicas-max-lag to 10"
        return Finding("warning", "replicas", text, remedy)
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
