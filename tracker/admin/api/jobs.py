"""/queues and /jobs: background jobs."""

from collections.abc import Awaitable
from typing import Annotated, Literal

from pydantic import Field

from tracker.admin import operations
from tracker.admin.api.contract import Answer, Body, Call, Endpoints, Query
from tracker.admin.api.models import Count, Moment, OffsetPage, Paged, Whole, page_of
from tracker.admin.api.routing import conflict, not_found
from tracker.errors import ClientError
from tracker.store.job import Enqueued, Job
from tracker.store.jobs import QueueFull

endpoints = Endpoints("jobs", "Background jobs: what waits, runs, and was done.")

_UNKNOWN_QUEUE = {404: "No job was ever put into such a queue."}
_FULL = {409: "Too many jobs wait in this queue already."}
_UNKNOWN_JOB = {404: "There is no such job (any more)."}

QueueText = Annotated[
    str, Field(pattern="^[a-z][a-z0-9_]{0,63}$", description="The name of a queue.", examples=["reprocess"])
]
JobIdText = Annotated[str, Field(pattern="^[0-9]{1,20}$", description="The id of a job.", examples=["42"])]


class QueueRow(Answer):
    """A queue, and how many jobs it has of each status."""

    name: str
    pending: int
    running: int
    retry: int = Field(description="Failed, and to be tried again.")
    completed: int
    failed: int


class Queues(Answer):
    """Every queue that ever had a job."""

    items: list[QueueRow]


class JobRow(Answer):
    """A job."""

    id: str
    queue: str
    status: str
    payload: str = Field(description="JSON.")
    retries: int
    max_retries: int
    priority: int
    run_after: Moment | None
    deadline: Moment | None
    error: str = Field(description="Why the last run failed.")
    cursor: str = Field(description="How far a job that goes on where it was has come.")
    created: Moment | None
    started: Moment | None
    finished: Moment | None


class JobPage(OffsetPage[JobRow]):
    """A page of jobs: finished ones from the newest on, those that wait by when they may run."""


class JobQuery(Paged):
    status: Literal["pending", "running", "retry", "completed", "failed"]


class PurgeQuery(Query):
    status: Literal["pending", "retry", "completed", "failed"]
    before: Whole | None = Field(None, description="Only those that finished before (epoch s).")


class Purged(Answer):
    """How many jobs were deleted."""

    deleted: int


class ReprocessFilter(Body):
    """Which torrents; all of them where nothing is said."""

    min_score: float | None = Field(None, allow_inf_nan=False)
    max_score: float | None = Field(None, allow_inf_nan=False)
    min_seeders: Count | None = None
    max_seeders: Count | None = None


class JobEnqueued(Answer):
    """A job that waits to run."""

    id: str
    new: bool = Field(description="false: the same one was under way already, and still is.")


@endpoints.get("/queues", "List queues")
async def queues(call: Call) -> Queues:
    jobs = call.stores.jobs
    return Queues(items=[QueueRow(name=name, **await jobs.sizes(name)) for name in await jobs.queues()])


@endpoints.get("/queues/{queue}/jobs", "List jobs of a queue", errors=_UNKNOWN_QUEUE)
async def list_all(call: Call, queue: QueueText, query: JobQuery) -> JobPage:
    await _check(call, queue)
    jobs = call.stores.jobs
    found = await jobs.page(queue, query.status, query.offset, query.limit)
    total = (await jobs.sizes(queue))[query.status]
    return JobPage(**page_of(query, [_row(job) for job in found], total))


@endpoints.delete("/queues/{queue}/jobs", "Delete jobs of a queue", errors=_UNKNOWN_QUEUE)
async def purge(call: Call, queue: QueueText, query: PurgeQuery) -> Purged:
    """Those of one status. Jobs that run cannot be deleted."""
    await _check(call, queue)
    return Purged(deleted=await call.stores.jobs.purge(queue, query.status, query.before))


async def _check(call: Call, queue: str) -> None:
    if queue not in await call.stores.jobs.queues():
        raise not_found("queue")


@endpoints.get("/jobs/{id}", "Show a job", errors=_UNKNOWN_JOB)
async def show(call: Call, id: JobIdText) -> JobRow:
    job = await call.stores.jobs.get(id)
    if job is None:
        raise not_found("job")
    return _row(job)


@endpoints.post(
    "/jobs/{id}/retry",
    "Run a job again",
    errors={**_UNKNOWN_JOB, 409: "It waits or runs already, or is done, or the same payload is under way."},
)
async def retry(call: Call, id: JobIdText) -> JobRow:
    """One that failed, with all of its retries; one that waits to retry, at once."""
    job = await show(call, id)
    try:
        await call.stores.jobs.retry(id)
    except ClientError as error:
        if error.text == "unknown job":
            raise not_found("job") from error
        raise conflict(error) from error
    again = await call.stores.jobs.get(id)
    return job if again is None else _row(again)


@endpoints.post(
    "/reprocess", "Have torrents scored again", status=202, errors=_FULL, location="/jobs/{answer.id}"
)
async def reprocess(call: Call, body: ReprocessFilter) -> JobEnqueued:
    """All of them, or those that fit; in the background."""
    return await _enqueued(operations.reprocess(call.stores.jobs, **body.model_dump()))


@endpoints.post("/sweep", "Have every swarm visited", status=202, errors=_FULL, location="/jobs/{answer.id}")
async def sweep(call: Call) -> JobEnqueued:
    """At once, in the background: silent peers, repairs, torrents to forget."""
    return await _enqueued(operations.sweep(call.stores.jobs))


async def _enqueued(enqueuing: Awaitable[Enqueued]) -> JobEnqueued:
    try:
        job = await enqueuing
    except QueueFull as error:
        raise conflict(error) from error
    return JobEnqueued(id=job.id, new=job.new)


def _row(job: Job) -> JobRow:
    times = {name: _moment(getattr(job, name)) for name in _TIMES}
    rest = {name: getattr(job, name) for name in JobRow.model_fields if name not in _TIMES}
    return JobRow(**rest, **times)


_TIMES = ("run_after", "deadline", "created", "started", "finished")


def _moment(at: float | None) -> int | None:
    return None if at is None else int(at)
