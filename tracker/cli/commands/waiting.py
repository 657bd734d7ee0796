"""Waiting for what a tracker does in the background."""

import asyncio
import time

import typer

from tracker.errors import ClientError
from tracker.progress import progress
from tracker.store.job import FINISHED, PROCESS_TORRENT
from tracker.stores import Stores

_EVERY_SECONDS = 0.25
_LONG_SECONDS = 10.0
_SLICE = 86_400
_COUNTER = f"jobs.{PROCESS_TORRENT}.completed"


async def until_scored(stores: Stores, job_id: str, total: int | None) -> None:
    """Until this walk through the torrents has ended, and every job that scores one.

    The progress shows how many were scored meanwhile, by the tracker's own count, which comes about a second late.
    Raises ClientError when the walk fails, or is deleted.
    """
    began, told, busy = time.time(), False, True
    before = await _scored(stores, began)
    with progress("scored", total) as shown:
        while busy:
            await asyncio.sleep(_EVERY_SECONDS)
            walk = await stores.jobs.get(job_id)
            if walk is None or walk.status == "failed":
                raise ClientError(f"not all were scored: {walk.error if walk else 'the job was deleted'}")
            sizes = await stores.jobs.sizes(PROCESS_TORRENT)
            left = sum(number for status, number in sizes.items() if status not in FINISHED)
            busy = walk.status != "completed" or left > 0
            shown.reach(await _scored(stores, began) - before)
            if not told and walk.started is None and time.time() - began > _LONG_SECONDS:
                told = True
                typer.echo("note: no tracker has begun with it yet: one must be running", err=True)


async def _scored(stores: Stores, since: float) -> int:
    """In the days from ``since`` (epoch s) on."""
    return sum(number for _, number in await stores.counters.series(_COUNTER, _SLICE, since))
