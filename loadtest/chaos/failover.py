"""Failovers of a store with a replica and three sentinels: after a failure, or on command."""

import asyncio
import os
import signal
from contextlib import ExitStack
from pathlib import Path

from redis import Redis

from loadtest.chaos.environment import Environment, ExperimentError, until
from loadtest.chaos.experiment import PAUSED_SECONDS, experiment
from loadtest.clients.load import Load
from loadtest.sentinels import Failover, failover

DOWN_MILLISECONDS = 1000
_TIMEOUT_SECONDS = 30.0

_GROUPS: dict[Path, Failover] = {}
"""By the directory of the environment."""


def two_servers(environment: Environment) -> None:
    """Master and replica with append-only files, and a tracker with two web processes that uses only the sentinels."""
    stack = ExitStack()
    environment.add_cleanup(stack.close)
    group = stack.enter_context(failover(sentinels=3, options=(), down_milliseconds=DOWN_MILLISECONDS))
    _GROUPS[environment.directory] = group
    environment.server = group.master
    environment.add_tracker(TRACKER_REDIS__URL=group.url, TRACKER_HTTP__WORKERS="2")


async def _moved(environment: Environment) -> None:
    """Waits until the replica is master and publishes expiry events. Later checks read from it."""
    group = _GROUPS[environment.directory]
    await asyncio.to_thread(group.await_master, group.servers[1])
    environment.server = group.servers[1]

    def has_events() -> bool:
        with environment.store() as store:
            return "x" in str(store.config_get("notify-keyspace-events")["notify-keyspace-events"])

    await until(has_events, _TIMEOUT_SECONDS, "the new master publishes expiry events")


def _forget_events(environment: Environment) -> None:
    """The replica does not publish expiry events until the tracker enables them."""
    with _GROUPS[environment.directory].servers[1].client() as replica:
        replica.config_set("notify-keyspace-events", "")


@experiment(
    "failover-killed", prepare=two_servers, may_lose=100, keeps_active_peers=False, settles_seconds=PAUSED_SECONDS
)
async def failover_killed(environment: Environment, _: Load) -> None:
    """kill -9 of a master with three sentinels (`down-after-milliseconds` 1000); its replica takes over."""
    _forget_events(environment)
    _GROUPS[environment.directory].servers[0].kill()
    await _moved(environment)


@experiment(
    "failover-stopped", prepare=two_servers, may_lose=100, keeps_active_peers=False, settles_seconds=PAUSED_SECONDS
)
async def failover_stopped(environment: Environment, _: Load) -> None:
    """SIGSTOP of such a master for 10 s: it is replaced, and still considers itself master afterwards."""
    _forget_events(environment)
    old = _GROUPS[environment.directory].servers[0]
    os.kill(old.pid, signal.SIGSTOP)
    try:
        await asyncio.gather(_moved(environment), asyncio.sleep(10.0))
    finally:
        os.kill(old.pid, signal.SIGCONT)
    with old.client() as client:
        await asyncio.sleep(2.0)
        calls = _script_calls(client)
        await asyncio.sleep(2.0)
        if _script_calls(client) > calls:
            raise ExperimentError("the old master still receives writes")


def _script_calls(client: Redis) -> int:
    statistics = client.info("commandstats")
    return sum(statistics.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "fcall"))


@experiment(
    "failover-planned", prepare=two_servers, may_lose=400, keeps_active_peers=False, settles_seconds=PAUSED_SECONDS
)
async def failover_planned(environment: Environment, _: Load) -> None:
    """SENTINEL FAILOVER: the replica takes over from a healthy master, which accepts announces until it is demoted."""
    _forget_events(environment)
    await asyncio.to_thread(_GROUPS[environment.directory].promote)
    await _moved(environment)


@experiment("failover-coordinated", prepare=two_servers)
async def failover_coordinated(environment: Environment, _: Load) -> None:
    """SENTINEL FAILOVER COORDINATED (Valkey 9): the master pauses writers until the replica has everything."""
    _forget_events(environment)
    await asyncio.to_thread(_GROUPS[environment.directory].promote, "COORDINATED")
    await _moved(environment)
