"""Checks of a server's clock, and of a cluster: which shards are unavailable, and the settings of every node."""

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace

from redis.exceptions import ResponseError

from tracker.doctor import Finding
from tracker.doctor.replicas import check_cluster
from tracker.doctor.server_checks import check_configuration, check_info
from tracker.errors import StoreUnavailable
from tracker.settings.model import Settings
from tracker.store.client.cluster import slot_of
from tracker.store.client.connection import Connection
from tracker.store.client.node_states import NO_MAJORITY, NodeState, no_majority
from tracker.store.client.server_info import read_info
from tracker.store.sharding.shards import Shard
from tracker.store.sharding.unavailable import MAIN, named
from tracker.store.store import Store

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
    nodes = await store.connection.topology.states()
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


async def check_nodes(
    store: Store, settings: Settings, clock: Callable[[], float], *, tracker_running: bool
) -> AsyncIterator[Finding]:
    """Yields nothing with one shard, or without a cluster. The node of the main prefix has been checked before."""
    if not (store.shards.others and store.connection.topology.nodes):
        return
    with suppress(StoreUnavailable):  # the node of a key is asked, which another node names
        await store.shards.each(lambda shard: ("EXISTS", shard.keys.prefix))
    unavailable = False
    for address, shards in sorted(_by_node(store).items()):
        here = [shard for shard in shards if not shard.connection.unavailable]
        findings: list[Finding] | None = []
        if here and address != store.connection.master:
            findings = await _problems(here[0].connection, settings, clock, tracker_running=tracker_running)
        missing = shards if findings is None else [shard for shard in shards if shard not in here]
        if missing:
            unavailable = True
            lost = named(shard.number for shard in missing)
            text = f"unavailable: {lost} of {address} ({missing[0].connection.cause}); their torrents are refused"
            yield Finding("wrong", "shards", text, remedy_for(store))
        for each in findings or ():
            yield Finding(each.level, each.subject, f"{address}: {each.text}", each.remedy)
    if not unavailable:
        yield Finding("ok", "shards", f"all {len(store.shards)} are served")


def _by_node(store: Store) -> dict[str, list[Shard]]:
    found: dict[str, list[Shard]] = {}
    for shard in store.shards:
        found.setdefault(shard.connection.master, []).append(shard)
    return found


async def _problems(
    connection: Connection, settings: Settings, clock: Callable[[], float], *, tracker_running: bool
) -> list[Finding] | None:
    """What is not right on a node; None if it does not answer."""
    try:
        try:
            info = await read_info(connection)
        except ResponseError:
            info = {}
        found = [*check_info(info, settings), await check_clock(connection, clock)]
        found += [each async for each in check_configuration(connection, info, tracker_running=tracker_running)]
        found += [each async for each in check_cluster(connection, info)]
    except StoreUnavailable:
        return None
    return [each for each in found if each.level != "ok"]


async def check_clock(connection: Connection, clock: Callable[[], float]) -> Finding:
    before = clock()
    try:
        seconds = await _server_time(connection)
    except ResponseError:
        text = "TIME is forbidden, so the clock difference is unknown"
        return Finding("warning", "clock", text, "allow it: ACL SETUSER … +time")
    difference = seconds - (before + clock()) / 2
    if abs(difference) < CLOCK_SECONDS:
        return Finding("ok", "clock", f"the store's and this machine's differ by {abs(difference):.3f} s")
    way = "ahead of" if difference > 0 else "behind"
    text = f"the store's is {abs(difference):.1f} s {way} this machine's"
    return Finding("wrong", "clock", text, "run a time service (NTP) on both")


async def _server_time(connection: Connection) -> float:
    seconds, microseconds = await connection.command("TIME")
    return int(seconds) + int(microseconds) / 1e6
