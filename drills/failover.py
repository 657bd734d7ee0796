"""A store with a stand-in, and three sentinels that put it in the place of the master: by themselves, or when asked."""

import asyncio
import os
import signal
from contextlib import ExitStack
from pathlib import Path

from drills.drill import drill
from drills.fleet import Fleet
from drills.scene import DrillError, Scene, until
from tests.sentinels import Failover, failover

DOWN_MILLISECONDS = 1000
_PATIENCE_SECONDS = 30.0

_GROUPS: dict[Path, Failover] = {}
"""By the directory of the scene."""


def two_servers(scene: Scene) -> None:
    """Master and replica with their append-only files, and a tracker with two web processes that knows sentinels only."""
    stack = ExitStack()
    scene.at_the_end(stack.close)
    group = stack.enter_context(failover(sentinels=3, options=(), down_milliseconds=DOWN_MILLISECONDS))
    _GROUPS[scene.directory] = group
    scene.server = group.master
    scene.add_tracker(TRACKER_REDIS__URL=group.url, TRACKER_HTTP__WORKERS="2")


async def _moved(scene: Scene) -> None:
    """Until the stand-in is master, where what follows is looked for, with the events that the tracker needs."""
    group = _GROUPS[scene.directory]
    await asyncio.to_thread(group.await_master, group.servers[1])
    scene.server = group.servers[1]

    def has_events() -> bool:
        with scene.store() as store:
            return "x" in str(store.config_get("notify-keyspace-events")["notify-keyspace-events"])

    await until(has_events, _PATIENCE_SECONDS, "the new master publishes expiry events")


def _forget_events(scene: Scene) -> None:
    """The stand-in has never been told to publish what expires."""
    with _GROUPS[scene.directory].servers[1].client() as stand_in:
        stand_in.config_set("notify-keyspace-events", "")


@drill("failover-killed", prepare=two_servers, may_lose=100, spares_the_living=False)
async def failover_killed(scene: Scene, _: Fleet) -> None:
    """kill -9 of a master that three sentinels watch over (`down-after-milliseconds` 1000); its replica takes over."""
    _forget_events(scene)
    _GROUPS[scene.directory].servers[0].kill()
    await _moved(scene)


@drill("failover-stopped", prepare=two_servers, may_lose=100, spares_the_living=False)
async def failover_stopped(scene: Scene, _: Fleet) -> None:
    """SIGSTOP of such a master for 10 s: it is replaced meanwhile, and thinks itself the master when it goes on."""
    _forget_events(scene)
    old = _GROUPS[scene.directory].servers[0]
    os.kill(old.pid, signal.SIGSTOP)
    try:
        await asyncio.gather(_moved(scene), asyncio.sleep(10.0))
    finally:
        os.kill(old.pid, signal.SIGCONT)
    with old.client() as client:
        await asyncio.sleep(2.0)
        calls = client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
        await asyncio.sleep(2.0)
        if client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"] > calls:
            raise DrillError("the old master is still written to")


@drill("failover-planned", prepare=two_servers, may_lose=400, spares_the_living=False)
async def failover_planned(scene: Scene, _: Fleet) -> None:
    """SENTINEL FAILOVER: the replica takes over while the master is well, and takes announces until it is told."""
    _forget_events(scene)
    await asyncio.to_thread(_GROUPS[scene.directory].promote)
    await _moved(scene)


@drill("failover-coordinated", prepare=two_servers)
async def failover_coordinated(scene: Scene, _: Fleet) -> None:
    """SENTINEL FAILOVER COORDINATED (Valkey 9): the master holds writers back until the replica has everything."""
    _forget_events(scene)
    await asyncio.to_thread(_GROUPS[scene.directory].promote, "COORDINATED")
    await _moved(scene)
