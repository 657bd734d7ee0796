"""The heartbeat of each web process: peers can announce.

The background process sends one too, but may be suspended while web processes serve. Without their heartbeat that would
look like an outage, and no time in a swarm would count.
"""

import asyncio
from collections.abc import Sequence

import structlog
from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.swarms.reaping import HEARTBEAT_SECONDS, Reaping

SHARDED_SECONDS = 4 * HEARTBEAT_SECONDS
"""The interval with several shards. An outage begins after 60 s without a heartbeat."""

log = structlog.get_logger("tracker.heartbeat")


async def send_heartbeats(reapings: Sequence[Reaping], connection: Connection) -> None:
    """To all of ``reapings`` at a time, until cancelled; survives errors of the store. Of several, none waits for one
    that is away."""
    while True:
        await asyncio.gather(*map(_beat, reapings))
        if len(reapings) == 1:
            await connection.until_available()
        await asyncio.sleep(HEARTBEAT_SECONDS if len(reapings) == 1 else SHARDED_SECONDS)


async def _beat(reaping: Reaping) -> None:
    try:
        await reaping.heartbeat()
    except StoreUnavailable:
        return
    except RedisError as error:
        log.error("heartbeat failed", error=str(error))
