"""Checks of a store with several shards on a cluster: which shards are unavailable, and the settings of every node."""

from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from redis.exceptions import ResponseError

from tracker.doctor.clock import check_clock
from tracker.doctor.finding import Finding
from tracker.doctor.replicas import check_cluster
from tracker.doctor.server_checks import check_configuration, check_info
from tracker.errors import StoreUnavailable
from tracker.settings.model import Settings
from tracker.store.client.connection import Connection
from tracker.store.client.server_info import read_info
from tracker.store.sharding.away import named
from tracker.store.sharding.shards import Shard
from tracker.store.store import Store


async def check_nodes(
    store: Store, settings: Settings, clock: Callable[[], float], *, tracker_running: bool
) -> AsyncIterator[Finding]:
    """Yields nothing with one shard, or without a cluster. The node of the main prefix has been checked before."""
    if len(store.shards) == 1 or not store.connection.nodes:
        return
    with suppress(StoreUnavailable):  # the node of a key is asked, which another node names
        await store.shards.each(lambda shard: ("EXISTS", shard.keys.prefix))
    away = False
    for address, shards in sorted(_by_node(store).items()):
        here = [shard for shard in shards if not shard.connection.unavailable]
        findings: list[Finding] | None = []
        if here and address != store.connection.master:
            findings = await _problems(here[0].connection, settings, clock, tracker_running=tracker_running)
        missing = shards if findings is None else [shard for shard in shards if shard not in here]
        if missing:
            away = True
            text = (
                f"{address} is unavailable, or does not serve {_named(missing)}: their torrents are refused"
            )
            yield Finding("wrong", "shards", text, "start that node, or promote a replica of it")
        for each in findings or ():
            yield Finding(each.level, each.subject, f"{address}: {each.text}", each.remedy)
        if here and not findings and not missing:
            yield Finding("ok", "node", f"{address} serves {_named(shards)}")
    if not away:
        yield Finding("ok", "shards", f"all {len(store.shards)} are served")


def _by_node(store: Store) -> dict[str, list[Shard]]:
    found: dict[str, list[Shard]] = {}
    for shard in store.shards:
        found.setdefault(shard.connection.master, []).append(shard)
    return found


def _named(shards: list[Shard]) -> str:
    return named(shard.number for shard in shards)


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
        found += [
            each async for each in check_configuration(connection, info, tracker_running=tracker_running)
        ]
        found += [each async for each in check_cluster(connection, info)]
    except StoreUnavailable:
        return None
    return [each for each in found if each.level != "ok"]
