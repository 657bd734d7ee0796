"""Many announces at once on a busy machine."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec

from loadtest.chaos.environment import Environment, ExperimentError
from loadtest.chaos.experiment import Skipped, experiment, one_tracker
from loadtest.clients.load import Load

TORRENTS = 1000
SECONDS = 30.0


def with_libtorrent(environment: Environment) -> None:
    if find_spec("libtorrent") is None:
        raise Skipped("libtorrent is not installed")
    one_tracker(environment)


@experiment("session-started", prepare=with_libtorrent)
async def session_started(environment: Environment, _: Load) -> None:
    """A client starts with 1,000 torrents of three HTTP and one UDP URL each, on a machine without idle cores."""
    host = f"127.0.0.1:{environment.tracker.port}"
    urls = [f"udp://{host}/announce", *(f"http://{host}/announce?url={number}" for number in range(3))]
    async with busy_cores():
        client = await _python("-m", "loadtest.clients.session", str(TORRENTS), str(SECONDS), *urls, stdout=PIPE)
        output, _error = await client.communicate()
    if int(output) < TORRENTS * len(urls):
        raise ExperimentError(f"{int(output)} of {TORRENTS * len(urls)} announces got a good reply")
    if "store lost" in environment.tracker.log:
        raise ExperimentError("the tracker took its store for lost")


@asynccontextmanager
async def busy_cores() -> AsyncIterator[None]:
    """Four programs for each core that compute without end."""
    programs = [await _python("-c", "while True: pass") for _ in range(4 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for each in programs:
            each.kill()
            await each.wait()


async def _python(*words: str, stdout: int | None = None) -> Process:
    return await asyncio.create_subprocess_exec(sys.executable, *words, stdout=stdout)
