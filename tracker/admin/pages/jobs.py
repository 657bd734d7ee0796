"""The pages of background jobs: queues, lists, one job, and actions."""

import json
from typing import Any

from aiohttp import web

from tracker.admin.auth.recording import CHANGE
from tracker.admin.http.problems import Problem
from tracker.admin.pages.forms import Form, page_number, turned
from tracker.admin.pages.rendering import Pages, done, get, post
from tracker.errors import ClientError, Conflict, existing
from tracker.operations import service
from tracker.store.jobs.records import FINISHED, STATUSES, SWEEP, is_queue
from tracker.store.users.site_rows import SyncState

PAGE = 50
_TONES = {"running": "accent", "retry": "warn", "completed": "good", "failed": "bad"}
_ORDER = ("failed", "retry", "running", "pending", "completed")
_MAX_QUEUES = 100


class JobPages(Pages):
    @get("/jobs", "jobs.html", part="parts/jobs.html")
    async def show(self, request: web.Request) -> dict[str, Any]:
        """The query has ``queue``, ``status`` and ``page``. htmx gets only the queues and the list."""
        jobs = self._store.jobs
        queues = [(name, await jobs.sizes(name)) for name in (await jobs.queues())[:_MAX_QUEUES]]
        queue, status = _chosen(queues, request.query.get("queue", ""), request.query.get("status", ""))
        number = page_number(request.query.get("page", ""))
        total = dict(queues).get(queue, {}).get(status, 0)
        here = f"/jobs?queue={queue}&status={status}"
        keeps_site = self._context.settings.site.database is not None
        urls = [url.get_secret_value() for url in self._context.settings.changes.webhook_urls]
        return {
            "queues": queues,
            "webhooks": await self._store.webhooks.all(urls),
            "site": (await self._store.site_rows.state() or SyncState()) if keeps_site else None,
            "queue": queue,
            "status": status,
            "statuses": STATUSES,
            "tones": _TONES,
            "jobs": await jobs.page(queue, status, (number - 1) * PAGE, PAGE) if queue else [],
            "here": f"{here}&page={number}",
            **turned(here, number, PAGE, total),
        }

    @get(r"/jobs/{id:\w+}", "job.html")
    async def show_one(self, request: web.Request) -> dict[str, Any]:
        job = existing(await self._store.jobs.get(request.match_info["id"]), "job")
        return {"job": job, "tones": _TONES, "payload": _pretty(job.payload)}

    @post(r"/jobs/{id:\w+}/retry", "jobs.retry")
    async def retry(self, request: web.Request, form: Form) -> web.Response:
        id = request.match_info["id"]
        try:
            await self._store.jobs.retry(id)
        except Conflict as error:
            raise Problem(409, detail=f"this job {error}") from error
        return done(request, f"/jobs/{id}", "retried")

    @post("/jobs/purge", "jobs.purge")
    async def purge(self, request: web.Request, form: Form) -> web.Response:
        queue, status = form.text("queue"), form.text("status")
        if not is_queue(queue) or status not in STATUSES or status == "running":
            raise Problem(400, detail="name a queue and a status other than running")
        request[CHANGE].count(deleted=await self._store.jobs.purge(queue, status))
        return done(request, "/jobs", "purged", queue=queue, status=status)

    @post("/jobs/reprocess", "jobs.reprocess", errors_on="show")
    async def reprocess(self, request: web.Request, form: Form) -> web.Response:
        scores = {name: _number(form.text(name), float) for name in ("min_score", "max_score")}
        seeders = {name: _number(form.text(name), int) for name in ("min_seeders", "max_seeders")}
        await service.rescore(self._store.jobs, **scores, **seeders)
        return done(request, "/jobs", "reprocess")

    @post("/jobs/sweep", "jobs.sweep")
    async def sweep(self, request: web.Request, form: Form) -> web.Response:
        await self._store.jobs.enqueue(SWEEP)
        return done(request, "/jobs", "sweep")


def _chosen(queues: list[tuple[str, dict[str, int]]], queue: str, status: str) -> tuple[str, str]:
    """The list to show: the requested one, else failed, retry, running or pending jobs. ``queues``: jobs by status."""
    sizes = dict(queues)
    if queue in sizes:
        first = next((each for each in _ORDER if sizes[queue][each]), FINISHED[0])
        return queue, status if status in STATUSES else first
    waiting = ((name, each) for each in _ORDER[:4] for name, by_status in queues if by_status[each])
    return next(waiting, (queues[0][0] if queues else "", FINISHED[0]))


def _pretty(payload: str) -> str:
    try:
        return json.dumps(json.loads(payload), indent=2, ensure_ascii=False)
    except ValueError:  # written by another program
        return payload


def _number(text: str, kind: type) -> Any:
    """None for an empty field. Raises ClientError."""
    try:
        return kind(text) if text else None
    except ValueError:
        raise ClientError("a filter must be a number or empty") from None
