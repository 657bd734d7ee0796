"""Waits for background work of a tracker."""

import asyncio
import time

from tracker.cli.progress import progress
from tracker.cli.terminal import note
from tracker.errors import ClientError
from tracker.store.jobs.records import FINISHED, PROCESS_TORRENT
from tracker.store.store import Store

_EVERY_SECONDS = 0.25
_LONG_SECONDS = 10.0
_SLICE = 86_400
_COUNTER = f"jobs.{PROCESS_TORRENT}.completed"


async def until_scored(store: Store, job_id: str, total: int | None) -> None:
    """Waits until this rescoring has ended, and every job that scores a torrent.

    The progress comes from the tracker's counter, which is about a second late. Raises ClientError when the rescoring
    fails or is deleted.
    """
    began, noted, busy = time.time(), False, True
    before = await _scored(store, began)
    with progress("scored", total) as shown:
        while busy:
            await asyncio.sleep(_EVERY_SECONDS)
            walk = await store.jobs.get(job_id)
            if walk is None or walk.status == "failed":
                raise ClientError(f"rescoring stopped: {walk.error if walk else 'the job was deleted'}")
            sizes = await store.jobs.sizes(PROCESS_TORRENT)
            left = sum(number for status, number in sizes.items() if status not in FINISHED)
            busy = walk.status != "completed" or left > 0
            shown.reach(await _scored(store, began) - before)
            if not noted and walk.started is None and time.time() - began > _LONG_SECONDS:
                noted = True
                note("no tracker has started this job yet; a tracker must be running")


async def _scored(store: Store, since: float) -> int:
    """How many torrents were scored since the day of ``since`` (epoch s)."""
    return sum(number for _, number in await store.counters.series(_COUNTER, _SLICE, since))
