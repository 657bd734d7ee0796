"""Kills or suspends processes: web processes, the tracker, its private store."""

import asyncio
import os
import signal

from loadtest.chaos.environment import Environment, until
from loadtest.chaos.experiment import experiment
from loadtest.clients.load import Load

WEB = "tracker.app.web_process"


def two_web_processes(environment: Environment) -> None:
    environment.add_tracker(TRACKER_HTTP__WORKERS="2")


@experiment("worker-killed", prepare=two_web_processes)
async def worker_killed(environment: Environment, _: Load) -> None:
    """kill -9 of one of two web processes."""
    victim = environment.tracker.children(WEB)[0]
    os.kill(victim, signal.SIGKILL)
    await until(lambda: victim not in environment.tracker.children(WEB), 5.0, "the end of the process is noticed")


@experiment("workers-killed", prepare=two_web_processes)
async def workers_killed(environment: Environment, _: Load) -> None:
    """kill -9 of both web processes at once."""
    for victim in environment.tracker.children(WEB):
        os.kill(victim, signal.SIGKILL)


@experiment("worker-stopped", prepare=two_web_processes)
async def worker_stopped(environment: Environment, _: Load) -> None:
    """SIGSTOP of one of two web processes for 5 s."""
    victim = environment.tracker.children(WEB)[0]
    os.kill(victim, signal.SIGSTOP)
    await asyncio.sleep(5.0)
    os.kill(victim, signal.SIGCONT)


@experiment("background-killed", prepare=two_web_processes)
async def background_killed(environment: Environment, _: Load) -> None:
    """kill -9 of the background process, the parent of two web processes; restarted as by systemd."""
    environment.tracker.kill()
    await asyncio.to_thread(environment.tracker.start)


@experiment("tracker-killed")
async def tracker_killed(environment: Environment, _: Load) -> None:
    """kill -9 of a single-process tracker with its private store; restarted as by systemd."""
    environment.tracker.kill()
    await asyncio.to_thread(environment.tracker.start)


@experiment("store-killed")
async def store_killed(environment: Environment, _: Load) -> None:
    """kill -9 of the private store."""
    os.kill(environment.store_pid, signal.SIGKILL)


@experiment("store-stopped")
async def store_stopped(environment: Environment, _: Load) -> None:
    """SIGSTOP of the private store for 5 s."""
    victim = environment.store_pid
    os.kill(victim, signal.SIGSTOP)
    await asyncio.sleep(5.0)
    os.kill(victim, signal.SIGCONT)
