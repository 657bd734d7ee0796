"""``tracker jobs …``."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

import typer

from tracker.commands import PAGE, AsJson, Config, each, group, with_stores
from tracker.errors import ClientError
from tracker.store.job import REPROCESS, REPROCESS_RETRIES, STATUSES, SWEEP, Enqueued, Job, check_queue
from tracker.stores import Stores
from tracker.terminal import Column, Listing, Row, describe, say

QueueName = Annotated[str | None, typer.Option("--queue", help="Only this queue.")]
Status = Annotated[str | None, typer.Option("--status", help=f"Only these: {', '.join(STATUSES)}.")]
_PURGED = tuple(name for name in STATUSES if name != "running")
Purged = Annotated[
    str | None,
    typer.Option("--status", help=f"Only these: {', '.join(_PURGED)}.", show_default="completed and failed"),
]

jobs = group("The queue of background jobs.")


def _statuses(wanted: str | None, among: Iterable[str] = STATUSES) -> list[str]:
    if wanted is not None and wanted not in among:
        raise typer.BadParameter(f"--status takes {', '.join(among)}")
    return [wanted] if wanted else list(among)


async def _queues(stores: Stores, wanted: str | None) -> list[str]:
    if wanted is None:
        return await stores.jobs.queues()
    try:
        return [check_queue(wanted)]
    except ValueError as error:
        raise ClientError(str(error)) from error


@jobs.command("list")
def list_jobs(
    queue: QueueName = None,
    status: Status = None,
    limit: Annotated[int, typer.Option(min=1, help="How many.", show_default="all")] = 2**53,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List jobs by queue and status: those that wait by when they may run, running ones by the end of their
    lease, finished ones from the newest on. It is not the order they run in: that takes priorities, too."""
    statuses = _statuses(status)
    columns = [Column("id", 10), Column("queue", 16), Column("status", 9), Column("retries", 7, right=True)]
    listing = Listing([*columns, Column("created", 20), Column("payload"), Column("error")], as_json=as_json)

    async def work(stores: Stores) -> None:
        left = limit
        for name in await _queues(stores, queue):
            for each_status in statuses:
                async for page in stores.jobs.pages(name, each_status, PAGE):
                    listing.page(_row(job) for job in page[:left])
                    left -= len(page[:left])
                    if not left:
                        return

    with_stores(config, work)


@jobs.command("show")
def show_job(
    id: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False, config: Config = None
) -> None:
    """Show everything about a job."""

    async def work(stores: Stores) -> None:
        job = await stores.jobs.get(id)
        if job is None:
            raise ClientError("unknown job")
        describe(_details(job), as_json=as_json)

    with_stores(config, work)


@jobs.command("retry")
def retry_job(ids: Annotated[list[str], typer.Argument(metavar="ID…")], config: Config = None) -> None:
    """Let jobs that failed run again, with all of their retries; those that wait to retry, at once."""

    async def action(stores: Stores, id: str) -> str:
        await stores.jobs.retry(id)
        return f"{id} waits to run"

    each(config, ids, action)


@jobs.command("purge")
def purge_jobs(
    queue: QueueName = None,
    status: Purged = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: Config = None,
) -> None:
    """Delete jobs that do not run: those of a status, or the finished ones."""
    statuses = _statuses(status, _PURGED)
    if status is None:
        statuses = ["completed", "failed"]
    if not yes:
        which = f"{' and '.join(statuses)} jobs of {queue or 'all queues'}"
        typer.confirm(f"Delete the {which}?", abort=True)

    async def work(stores: Stores) -> None:
        total = 0
        for name in await _queues(stores, queue):
            for each_status in statuses:
                total += await stores.jobs.purge(name, each_status)
        say(f"deleted {total}")

    with_stores(config, work)


@jobs.command("reprocess")
def reprocess(
    min_score: Annotated[float | None, typer.Option(help="Only torrents that score at least this.")] = None,
    max_score: Annotated[float | None, typer.Option(help="Only torrents that score at most this.")] = None,
    min_seeders: Annotated[int | None, typer.Option(min=0, help="Only those with so many seeders.")] = None,
    max_seeders: Annotated[int | None, typer.Option(min=0, help="Only those with at most so many.")] = None,
    config: Config = None,
) -> None:
    """Have all torrents, or those that fit, scored again by the running tracker, in the background."""
    filters = {
        "min_score": min_score,
        "max_score": max_score,
        "min_seeders": min_seeders,
        "max_seeders": max_seeders,
    }
    payload = {name: value for name, value in filters.items() if value is not None}
    for least, most in ((min_score, max_score), (min_seeders, max_seeders)):
        if least is not None and most is not None and least > most:
            raise ClientError(f"no torrent has at least {least:g} and at most {most:g}")

    async def work(stores: Stores) -> None:
        try:
            job = await stores.jobs.enqueue(REPROCESS, payload, max_retries=REPROCESS_RETRIES)
        except ValueError as error:  # a score of nan or inf
            raise ClientError("a score is a number") from error
        _tell(job)

    with_stores(config, work)


@jobs.command("sweep")
def sweep(config: Config = None) -> None:
    """Have every swarm visited at once by the running tracker: silent peers, repairs, torrents to forget."""

    async def work(stores: Stores) -> None:
        _tell(await stores.jobs.enqueue(SWEEP))

    with_stores(config, work)


def _tell(job: Enqueued) -> None:
    say(f"{job.id} waits to run" if job.new else f"{job.id} is under way already")


def _row(job: Job) -> Row:
    return {
        "id": job.id,
        "queue": job.queue,
        "status": job.status,
        "retries": job.retries,
        "created": _moment(job.created),
        "payload": job.payload,
        "error": job.error,
    }


def _details(job: Job) -> Row:
    return {
        **_row(job),
        "max_retries": job.max_retries,
        "priority": job.priority,
        "run_after": _moment(job.run_after),
        "deadline": _moment(job.deadline),
        "started": _moment(job.started),
        "finished": _moment(job.finished),
        "cursor": job.cursor,
        "fingerprint": job.fingerprint,
    }


def _moment(seconds: float | None) -> str:
    """UTC; empty for none, and for what is no time a calendar has."""
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return ""
