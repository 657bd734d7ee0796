"""/queues and /jobs: background jobs."""

from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import Field

from tracker.admin.api.contract import Body, Call, Endpoints, Query, Reply
from tracker.admin.api.models import Count, ItemList, Page, Paged, Whole, changes_of, reply_of
from tracker.errors import existing
from tracker.operations import service
from tracker.store.jobs.records import SWEEP, Job, QueueLimits
from tracker.store.schema.record import shown

endpoints = Endpoints("jobs", "Background jobs: pending, running and finished.")

_UNKNOWN = "Unknown or deleted job."
QueueText = Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,63}$", description="Queue name.", examples=["reprocess"])]
JobIdText = Annotated[str, Field(pattern="^[0-9]{1,20}$", description="Job ID.", examples=["42"])]


@reply_of(QueueLimits)
class QueueRow(Reply):
    """A queue with its number of jobs by status."""

    name: str
    pending: int
    running: int
    retry: int = Field(description="Failed, waiting for a retry.")
    completed: int
    failed: int


@changes_of(QueueLimits)
class LimitsOfQueue(Body):
    """Limits of a queue; null or omitted: those of the settings."""


@reply_of(Job)
class JobRow(Reply):
    """A job."""


class JobQuery(Paged):
    status: Literal["pending", "running", "retry", "completed", "failed"]


class PurgeQuery(Query):
    status: Literal["pending", "retry", "completed", "failed"]
    before: Whole | None = Field(
        None, description="Only jobs that finished, or waiting ones that may run, by this time (epoch s)."
    )


class Purged(Reply):
    """Number of deleted jobs."""

    deleted: int


class ReprocessFilter(Body):
    """Selects torrents; empty: all."""

    min_score: float | None = Field(None, allow_inf_nan=False)
    max_score: float | None = Field(None, allow_inf_nan=False)
    min_seeders: Count | None = None
    max_seeders: Count | None = None


class JobEnqueued(Reply):
    """A queued job."""

    status_code = 202
    location = "/jobs/{reply.id}"

    id: str
    new: bool = Field(description="false: the same job was already pending, running or waiting for a retry.")


@endpoints.get("/queues", "List queues", schema="QueueList: All queues that have had a job.")
async def queues(call: Call) -> ItemList[QueueRow]:
    return ItemList(items=[await _queue(call, name) for name in await call.store.jobs.queues()])


async def _queue(call: Call, name: str) -> QueueRow:
    jobs = call.store.jobs
    return QueueRow(name=name, **await jobs.sizes(name), **asdict(await jobs.limits_of(name)))


@endpoints.put("/queues/{queue}/limits", "Set the limits of a queue", "jobs.limit", missing="Not found.")
async def limit(call: Call, queue: QueueText, body: LimitsOfQueue) -> QueueRow:
    """Running trackers apply them from their next claim on; jobs that wait keep their priority."""
    await call.store.jobs.set_limits(queue, body.model_dump(exclude_none=True))
    return await _queue(call, queue)


@endpoints.get(
    "/queues/{queue}/jobs",
    "List jobs of a queue",
    schema="JobPage: A page of jobs: finished ones newest first, waiting ones by `run_after`, running ones by the end "
    "of leases.",
)
async def list_all(call: Call, queue: QueueText, query: JobQuery) -> Page[JobRow]:
    existing(queue in await call.store.jobs.queues(), "queue")
    jobs = call.store.jobs
    rows = [JobRow(**shown(job)) for job in await jobs.page(queue, query.status, query.offset, query.limit)]
    return Page.of(query, rows, (await jobs.sizes(queue))[query.status])


@endpoints.delete("/queues/{queue}/jobs", "Delete jobs of a queue", "jobs.purge")
async def purge(call: Call, queue: QueueText, query: PurgeQuery) -> Purged:
    """Deletes jobs of one status. Running jobs cannot be deleted."""
    existing(queue in await call.store.jobs.queues(), "queue")
    return Purged(deleted=await call.store.jobs.purge(queue, query.status, query.before))


@endpoints.get("/jobs/{id}", "Show a job", missing=_UNKNOWN)
async def show(call: Call, id: JobIdText) -> JobRow:
    return JobRow(**shown(existing(await call.store.jobs.get(id), "job")))


@endpoints.post(
    "/jobs/{id}/retry",
    "Run a job again",
    "jobs.retry",
    missing=_UNKNOWN,
    conflict="It is pending, running or completed, or a job with the same payload is.",
)
async def retry(call: Call, id: JobIdText) -> JobRow:
    """A failed job starts over with all its retries. A job waiting for a retry runs immediately."""
    await call.store.jobs.retry(id)
    return await show(call, id)


@endpoints.post("/reprocess", "Rescore torrents", "jobs.reprocess", conflict="The queue is full.")
async def reprocess(call: Call, body: ReprocessFilter) -> JobEnqueued:
    """Queues a job that rescores all matching torrents."""
    return JobEnqueued.from_record(await service.rescore(call.store.jobs, **body.model_dump()))


@endpoints.post("/sweep", "Sweep all swarms now", "jobs.sweep", conflict="The queue is full.")
async def sweep(call: Call) -> JobEnqueued:
    """Queues a job that removes timed-out peers, repairs counts and forgets empty torrents."""
    return JobEnqueued.from_record(await call.store.jobs.enqueue(SWEEP))
