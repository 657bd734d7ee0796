"""The pages of work distribution: all projects, and the settings of one."""

from typing import Any, get_args

from aiohttp import web

from tracker.admin.context import AdminContext
from tracker.admin.http.problems import Problem
from tracker.admin.pages.forms import Form, read_form
from tracker.admin.pages.rendering import Pages, done, get, post
from tracker.errors import ClientError
from tracker.operations.work import create_project, policy_preview
from tracker.store.schema.record import settable
from tracker.store.store import Store
from tracker.store.work.records import Kind, Project
from tracker.store.work.sizes import CLASSES, EVERY_SECONDS
from tracker.store.work.verification import asks_for_probes

_GIB = 2**30
_PREVIEWED = 200
"""Torrents that the preview of the policy looks at."""


SETTINGS = settable(Project)


class WorkPages(Pages):
    """Handlers of all projects, and of the settings of one."""

    @get("/work", "work.html")
    async def show(self, request: web.Request) -> dict[str, Any]:
        projects, form = await self._store.work.projects.all(), await read_form(request)
        found = await self._store.work.statistics.read([project.name for project in projects])
        return {
            "projects": list(zip(projects, found, strict=True)),
            "blocked": await self._store.work.blocks.all(),
            "kinds": get_args(Kind),
            "next_sizes": (int(self._context.clock()) // EVERY_SECONDS + 1) * EVERY_SECONDS,
            "given": {name: form.text(name) for name in ("name", "title", "who")},
        }

    @get("/work/bytes.json")
    async def bytes(self, request: web.Request) -> web.Response:
        """GiB of registered torrents by number of seeders for each day, in the format of charts.js."""
        del request
        days = await self._store.work.sizes.days()
        while days and not any(days[0].sums):  # before the first torrent
            days = days[1:]
        series = [
            {"name": f"{seeders} seeders", "values": [day.sums[place] / _GIB for day in days]}
            for place, seeders in enumerate(CLASSES)
        ]
        return web.json_response({"x": [day.day for day in days], "series": series})

    @post("/work", "project.create", errors_on="show")
    async def create(self, request: web.Request, form: Form) -> web.Response:
        name = form.text("name")
        kind: Kind = "seeding" if form.text("kind") == "seeding" else "items"
        await create_project(self._store, name, kind, {"title": form.text("title")})
        return done(request, f"/work/{name}/settings", "added")

    @post("/work/blocked", "block.add", errors_on="show")
    @post("/work/unblock", "block.remove", errors_on="show")
    async def block(self, request: web.Request, form: Form) -> web.Response:
        return done(request, "/work", await change_block(self._store, request, form))

    @get("/work/{project}/policy", "work_policy.html")
    async def policy(self, request: web.Request) -> dict[str, Any]:
        frame = await project_frame(self._context, request, "/policy")
        try:
            changes = await policy_preview(self._store, project_name(request), max_torrents=_PREVIEWED)
        except ClientError as error:
            raise Problem(404, detail=str(error)) from error
        return {**frame, "changes": changes, "previewed": _PREVIEWED}

    @get("/work/{project}/settings", "work_settings.html")
    async def settings(self, request: web.Request) -> dict[str, Any]:
        frame = await project_frame(self._context, request, "/settings")
        return {
            **frame,
            "fields": SETTINGS.values(),
            "values": {name: _shown(getattr(frame["project"], name)) for name in SETTINGS},
        }

    @post("/work/{project}/settings", "project.edit", errors_on="settings")
    async def edit(self, request: web.Request, form: Form) -> web.Response:
        name = project_name(request)
        await self._store.work.projects.edit(name, _changes(form))
        return done(request, f"/work/{name}/settings", "saved")

    @post("/work/{project}/delete", "project.delete", role="admin")
    async def delete(self, request: web.Request, form: Form) -> web.Response:
        await self._store.work.projects.delete(project_name(request))
        return done(request, "/work", "removed")


def project_name(request: web.Request) -> str:
    return str(request.match_info["project"])


async def change_block(store: Store, request: web.Request, form: Form, project: str | None = None) -> str:
    """Blocks or unblocks who the form names; in all projects without ``project``. Returns the notice."""
    who, unblocks = form.text("who"), request.path.endswith("/unblock")
    await (store.work.blocks.unblock if unblocks else store.work.blocks.block)(who, project)
    return "removed" if unblocks else "added"


async def project_frame(context: AdminContext, request: web.Request, tab: str) -> dict[str, Any]:
    """The variables of work_project.html. Raises UnknownProject."""
    work = context.store.work
    project = await work.projects.get(project_name(request))
    (numbers,) = await work.statistics.read([project.name])
    return {
        "project": project,
        "numbers": numbers,
        "needs_probes": asks_for_probes(project) and not context.settings.probe.enabled,
        "here": f"/work/{project.name}",
        "tab": tab,
    }


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _changes(form: Form) -> dict[str, Any]:
    """The settings of the form. Raises ClientError for text in place of a number."""
    changes: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        text = form.text(name)
        if setting.kind == "flag":
            changes[name] = text == "yes"
        elif setting.kind == "names":
            changes[name] = tuple(filter(None, (each.strip() for each in text.split(","))))
        elif setting.kind == "number":
            if not (text.isascii() and text.isdigit() and len(text) <= 16):
                raise ClientError(f"{setting.label}: must be a whole number")
            changes[name] = int(text)
        else:
            changes[name] = text
    return changes
