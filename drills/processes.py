"""Processes that are killed or stopped: web processes, the tracker itself, its private store."""

import asyncio
import os
import signal

from drills.drill import drill
from drills.fleet import Fleet
from drills.scene import Scene, until

WEB = "tracker.web_process"


def two_web_processes(scene: Scene) -> None:
    scene.add_tracker(TRACKER_HTTP__WORKERS="2")


@drill("worker-killed", prepare=two_web_processes)
async def worker_killed(scene: Scene, _: Fleet) -> None:
    """kill -9 of one of two web processes."""
    victim = scene.post.children(WEB)[0]
    os.kill(victim, signal.SIGKILL)
    await until(lambda: victim not in scene.post.children(WEB), 5.0, "its end is noticed")


@drill("workers-killed", prepare=two_web_processes)
async def workers_killed(scene: Scene, _: Fleet) -> None:
    """kill -9 of both web processes at once."""
    for victim in scene.post.children(WEB):
        os.kill(victim, signal.SIGKILL)


@drill("worker-stopped", prepare=two_web_processes)
async def worker_stopped(scene: Scene, _: Fleet) -> None:
    """SIGSTOP of one of two web processes for 5 s."""
    victim = scene.post.children(WEB)[0]
    os.kill(victim, signal.SIGSTOP)
    await asyncio.sleep(5.0)
    os.kill(victim, signal.SIGCONT)


@drill("background-killed", prepare=two_web_processes)
async def background_killed(scene: Scene, _: Fleet) -> None:
    """kill -9 of the process that does the background work, the parent of two web processes; started again as systemd does."""
    scene.post.kill()
    await asyncio.to_thread(scene.post.start)


@drill("tracker-killed")
async def tracker_killed(scene: Scene, _: Fleet) -> None:
    """kill -9 of a tracker of one process with its private store; started again as systemd does."""
    scene.post.kill()
    await asyncio.to_thread(scene.post.start)


@drill("store-killed")
async def store_killed(scene: Scene, _: Fleet) -> None:
    """kill -9 of the private store."""
    os.kill(scene.store_pid, signal.SIGKILL)


@drill("store-stopped")
async def store_stopped(scene: Scene, _: Fleet) -> None:
    """SIGSTOP of the private store for 5 s."""
    victim = scene.store_pid
    os.kill(victim, signal.SIGSTOP)
    await asyncio.sleep(5.0)
    os.kill(victim, signal.SIGCONT)
