"""Checks of a store with Sentinel or in a cluster: whether the sentinels agree, whether a failover is possible, and
what it would lose."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from tracker.doctor.finding import Finding
from tracker.store.client.connection import Connection
from tracker.store.client.keyspace_events import read_setting
from tracker.store.client.sentinel import SentinelReply


async def check_failover(connection: Connection, info: Mapping[str, Any]) -> AsyncIterator[Finding]:
    """Yields nothing without sentinels. ``info`` is the server's INFO, empty if that is forbidden."""
    replies = await connection.sentinels()
    if replies is None:
        return
    yield _sentinels(replies, connection.master)
    if info:
        required = await read_setting(connection, "min-replicas-to-write")
        yield check_replicas(int(info.get("connected_slaves", 0)), required)


async def check_cluster(connection: Connection, info: Mapping[str, Any]) -> AsyncIterator[Finding]:
    """Yields nothing without a cluster. ``info`` as in ``check_failover``."""
    if not connection.nodes:
        return
    yield Finding(
        "ok", "cluster", f"{connection.master} serves the keys; nodes known: {len(connection.nodes)}"
    )
    if info and not int(info.get("connected_slaves", 0)):
        text = "the node that serves the keys has no replica, so no failover is possible"
        remedy = "start one: CLUSTER REPLICATE <id of the node>"
        yield Finding("warning", "replicas", text, remedy)
    if await read_setting(connection, "cluster-require-full-coverage") == "yes":
        text = "all nodes refuse work while the slots of one are not served"
        yield Finding("warning", "coverage", text, "set cluster-require-full-coverage to no on each node")


def check_replicas(replicas: int, required: str | None) -> Finding:
    """``required`` is min-replicas-to-write; None if it cannot be read."""
    if not replicas:
        text = "the master has no replica, so no failover is possible"
        return Finding("wrong", "replicas", text, "start one: replicaof <host> <port of the master>")
    if required == "0" and replicas > 1:
        text = (
            f"{replicas} connected, but a master cut off from them keeps accepting writes that will be lost"
        )
        remedy = "set min-replicas-to-write to 1 and min-replicas-max-lag to 10"
        return Finding("warning", "replicas", text, remedy)
    return Finding("ok", "replicas", f"{replicas} connected")


def _sentinels(replies: list[SentinelReply], master: str) -> Finding:
    agree = [
        reply for reply in replies if reply.address and f"{reply.address[0]}:{reply.address[1]}" == master
    ]
    if len(agree) == len(replies) and len(replies) > 2:
        return Finding("ok", "sentinels", f"all {len(replies)} report {master} as the master")
    if len(agree) == len(replies):
        text = f"{len(replies)} report {master} as the master; with fewer than 3, one failure can prevent a failover"
        return Finding("warning", "sentinels", text, "name 3 or more in TRACKER_REDIS__URL")
    others = "; ".join(
        f"{reply.sentinel}: {reply.problem or f'reports {reply.address}'}"
        for reply in replies
        if reply not in agree
    )
    text = f"{len(agree)} of {len(replies)} report {master} as the master ({others})"
    return Finding("warning", "sentinels", text, "check that all of them run and monitor the same master")
