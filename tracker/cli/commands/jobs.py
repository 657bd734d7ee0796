"""``tracker jobs …``."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Literal

from typer import Argument, Option

from tracker.cli.commands import EVERYTHING, PAGE, LimitOrAll, Pages, Yes, confirm, group
from tracker.cli.commands.options import Given, OptionsOf, columns_of
from tracker.cli.terminal import Row, columns, note, progress, say
from tracker.errors import ClientError, existing
from tracker.operations import service
from tracker.operations.audit import Change
from tracker.store.jobs.records import (
    FIELDS,
    FINISHED,
    PROCESS_TORRENT,
    STATUSES,
    SWEEP,
    Enqueued,
    Job,
    QueueLimits,
    check_queue,
)
from tracker.store.schema.record import fields_of
from tracker.store.store import Store


async def until_scored(store: Store, job_id: str, total: int | None) -> None:
    """Waits until this rescoring has ended, and every job that scores a torrent.

    The progress comes from the tracker's counter, which is about a second late. Raises ClientError when the rescoring
    fails or is deleted.
    """
    began, noted, busy = time.time(), False, True
    before = await _scored(store, began)
    with progress("scored", total) as shown:
        while busy:
            await asyncio.sleep(0.25)
            walk = await store.jobs.get(job_id)
            if walk is None or walk.status == "failed":
                raise ClientError(f"rescoring stopped: {walk.error if walk else 'the job was deleted'}")
            sizes = await store.jobs.sizes(PROCESS_TORRENT)
            left = sum(number for status, number in sizes.items() if status not in FINISHED)
            busy = walk.status != "completed" or left > 0
            shown.reach(await _scored(store, began) - before)
            if not noted and walk.started is None and time.time() - began > 10:
                noted = True
                note("no tracker has started this job yet; a tracker must be running")


async def _scored(store: Store, since: float) -> int:
    """How many torrents were scored since the day of ``since`` (epoch s)."""
    days = await store.counters.series(f"jobs.{PROCESS_TORRENT}.completed", 86_400, since)
    return sum(number for _, number in days)


QueueName = Annotated[str | None, Option("--queue", help="Only this queue.")]
_MAX_HOURS = 1_000_000
"""A century; the store cannot represent much more."""
_Waiting = Literal["pending", "retry"]
_Finished = Literal["completed", "failed"]
Status = Annotated[Literal[_Waiting, "running", _Finished] | None, Option()]
Purged = Annotated[Literal[_Waiting, _Finished] | None, Option(show_default="completed and failed")]

JobId = Annotated[str, Argument(metavar="ID")]
_LISTED = ("id", "queue", "status", "retries", "created", "payload", "error")

jobs = group("Show and manage background jobs.")


async def _queues(store: Store, wanted: str | None) -> list[str]:
    if wanted is None:
        return await store.jobs.queues()
    try:
        return [check_queue(wanted)]
    except ValueError as error:
        raise ClientError(str(error)) from error


@jobs.command("list", lists="id:10 queue:16 status:9 retries>7 created:20 payload error")
async def list_jobs(
    store: Store, queue: QueueName = None, status: Status = None, limit: LimitOrAll = EVERYTHING
) -> Pages:
    """List jobs by queue and status.

    Waiting jobs are ordered by their earliest start, running ones by the end of their lease, finished ones newest
    first. Priorities are ignored, so this is not the order of execution.
    """
    left = limit
    for name in await _queues(store, queue):
        for each_status in [status] if status else STATUSES:
            async for page in store.jobs.pages(name, each_status, PAGE):
                yield map(_row, page[:left])
                left -= len(page[:left])
                if not left:
                    return


@jobs.command(
    "queues", lists=[*columns("queue:20 " + " ".join(f"{status}>10" for status in STATUSES)), *columns_of(QueueLimits)]
)
async def list_queues(store: Store) -> Pages:
    """List queues: the number of their jobs by status, and the limits set with `tracker jobs limit`."""
    for name in await store.jobs.queues():
        limits = asdict(await store.jobs.limits_of(name))
        yield [{"queue": name, **await store.jobs.sizes(name), **limits}]


@jobs.command("limit", audited="jobs.limit", given=OptionsOf(QueueLimits))
async def limit_queue(
    store: Store, change: Change, queue: Annotated[str, Argument(metavar="QUEUE")], given: Given = None
) -> None:
    """Set how many jobs of a queue run at once, and the priority of new ones. Without an option: as the settings."""
    (name,) = await _queues(store, queue)
    await change.touch("queue", name)
    await store.jobs.set_limits(name, given or {})
    say(f"changed {name}")


@jobs.command("show")
async def show_job(store: Store, id: JobId) -> Row:
    """Show a job."""
    return _row(existing(await store.jobs.get(id), "job"), FIELDS)


@jobs.command("retry", audited="jobs.retry", each="job")
async def retry_job(store: Store, id: JobId) -> str:
    """Run failed jobs again, with all their retries. A job that is waiting to retry runs at once."""
    await store.jobs.retry(id)
    return f"{id} queued"


def _purged(status: str | None) -> list[str]:
    return [status] if status else ["completed", "failed"]


def _ask_purge(status: str | None, queue: str | None, older_than: float | None, yes: bool) -> None:
    which = f"{' and '.join(_purged(status))} jobs of {queue or 'all queues'}"
    if older_than is not None:
        ended = "could have started" if status in ("pending", "retry") else "finished"
        which += f" that {ended} more than {older_than:g} hours ago"
    confirm(f"Delete the {which}?", yes=yes)


@jobs.command("purge", audited="jobs.purge", checks=_ask_purge)
async def purge_jobs(
    store: Store,
    change: Change,
    queue: QueueName = None,
    status: Purged = None,
    older_than: Annotated[
        float | None,
        Option(
            min=0,
            max=_MAX_HOURS,
            metavar="HOURS",
            help="Only jobs that finished at least this long ago, or waiting ones that could have started by then.",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Delete jobs that are not running: those of one status, or the completed and failed ones."""
    statuses = _purged(status)
    before = None if older_than is None else time.time() - older_than * 3600
    queues = await _queues(store, queue)
    total = sum([await store.jobs.purge(name, each_status, before) for name in queues for each_status in statuses])
    change.note(queue=queue, status=" ".join(statuses), before=before and int(before))
    change.count(deleted=total)
    say(f"deleted {total}")


@jobs.command("reprocess", audited="jobs.reprocess")
async def reprocess(
    store: Store,
    change: Change,
    min_score: Annotated[float | None, Option(help="Only torrents with at least this score.")] = None,
    max_score: Annotated[float | None, Option(help="Only torrents with at most this score.")] = None,
    min_seeders: Annotated[int | None, Option(min=0, help="Only torrents with at least this many seeders.")] = None,
    max_seeders: Annotated[int | None, Option(min=0, help="Only torrents with at most this many seeders.")] = None,
    wait: Annotated[
        bool, Option("--wait", help="Wait until all are scored. Ctrl-C ends the wait, not the scoring.")
    ] = False,
) -> None:
    """Rescore all torrents, or the matching ones, in the running tracker."""
    bounds = {"min_score": min_score, "max_score": max_score}
    job = await service.rescore(store.jobs, **bounds, min_seeders=min_seeders, max_seeders=max_seeders)
    change.note(**bounds, min_seeders=min_seeders, max_seeders=max_seeders)
    change.created("job", job.id)
    _print_queued(job)
    if wait:
        some = any(bound is not None for bound in (*bounds.values(), min_seeders, max_seeders))
        await until_scored(store, job.id, None if some else await store.torrents.count())
        say("all torrents are scored")


@jobs.command("sweep", audited="jobs.sweep")
async def sweep(store: Store, change: Change) -> None:
    """Sweep all swarms now, in the running tracker: remove timed-out peers and old torrents, repair counts."""
    job = await store.jobs.enqueue(SWEEP)
    change.created("job", job.id)
    _print_queued(job)


def _print_queued(job: Enqueued) -> None:
    say(f"{job.id} queued" if job.new else f"{job.id} is already queued or running")


def _row(job: Job, among: Iterable[str] = _LISTED) -> Row:
    values = ((name, getattr(job, name), fields_of(Job)[name]) for name in among)
    return {name: _moment(value) if field.unit else value for name, value, field in values}


def _moment(seconds: float | None) -> str:
    """UTC; empty for None and for dates outside the calendar."""
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return ""
