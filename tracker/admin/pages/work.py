"""The pages of work distribution: all projects; the settings of one, its results, items, claims, and who is blocked."""

from typing import Any, cast, get_args
from urllib.parse import urlencode

from aiohttp import web

from tracker.admin.auth.auth import IDENTITY
from tracker.admin.auth.recording import CHANGE
from tracker.admin.http.problems import Problem
from tracker.admin.pages.forms import Form, clean, digits, first_and_next, page_number, turned
from tracker.admin.pages.rendering import Pages, done, get, post
from tracker.errors import ClientError
from tracker.operations.work import add_items, create_project, items_of, policy_preview, purge_items
from tracker.store.schema.record import settable
from tracker.store.work import periods
from tracker.store.work.records import QUEUES, Kind, NewItem, Place, Project, Queue
from tracker.store.work.sizes import CLASSES, EVERY_SECONDS
from tracker.store.work.statistics import Board
from tracker.store.work.verification import asks_for_probes

_GIB = 2**30
_PREVIEWED = 200
"""Torrents that the preview of the policy looks at."""
SETTINGS = settable(Project)
PAGE = 50
_LOGGED = 20
_MAX_CURSOR = 400
_MAX_LIST = 2**30
"""The limit of a form's size is lower: TRACKER_ADMIN__MAX_UPLOAD_BYTES."""
_MAX_HOURS = 10**6


class WorkPages(Pages):
    @get("/work", "work.html")
    async def show(self, request: web.Request) -> dict[str, Any]:
        projects = await self._store.work.projects.all()
        found = await self._store.work.statistics.read([project.name for project in projects])
        return {
            "projects": list(zip(projects, found, strict=True)),
            "blocked": await self._store.work.blocks.all(),
            "kinds": get_args(Kind),
            "next_sizes": (int(self._context.clock()) // EVERY_SECONDS + 1) * EVERY_SECONDS,
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

    @get("/work/{project}/policy", "work_policy.html")
    async def policy(self, request: web.Request) -> dict[str, Any]:
        frame = await self._frame(request, "/policy")
        try:
            changes = await policy_preview(self._store, request.match_info["project"], max_torrents=_PREVIEWED)
        except ClientError as error:
            raise Problem(404, detail=str(error)) from error
        return {**frame, "changes": changes, "previewed": _PREVIEWED}

    @get("/work/{project}/settings", "work_settings.html")
    async def settings(self, request: web.Request) -> dict[str, Any]:
        frame = await self._frame(request, "/settings")
        return {
            **frame,
            "fields": SETTINGS.values(),
            "values": {name: _shown(getattr(frame["project"], name)) for name in SETTINGS},
        }

    @post("/work/{project}/settings", "project.edit", errors_on="settings")
    async def edit(self, request: web.Request, form: Form) -> web.Response:
        name = request.match_info["project"]
        await self._store.work.projects.edit(name, _changes(form))
        return done(request, f"/work/{name}/settings", "saved")

    @post("/work/{project}/delete", "project.delete", role="admin")
    async def delete(self, request: web.Request, form: Form) -> web.Response:
        await self._store.work.projects.delete(request.match_info["project"])
        return done(request, "/work", "removed")

    async def _frame(self, request: web.Request, tab: str) -> dict[str, Any]:
        """The variables of work_project.html. Raises UnknownProject."""
        work = self._store.work
        project = await work.projects.get(request.match_info["project"])
        (numbers,) = await work.statistics.read([project.name])
        return {
            "project": project,
            "numbers": numbers,
            "needs_probes": asks_for_probes(project) and not self._context.settings.probe.enabled,
            "here": f"/work/{project.name}",
            "tab": tab,
        }

    @get("/work/{project}", "work_results.html")
    async def results(self, request: web.Request) -> dict[str, Any]:
        """The query has ``by``, ``period`` and ``page``."""
        frame = await self._frame(request, "")
        name, here = request.match_info["project"], frame["here"]
        spans, asked = periods.shown(self._clock()), request.query.get("period", "")
        span = asked if asked in spans else None
        board: Board = next((each for each in get_args(Board) if each == request.query.get("by")), "count")
        number = page_number(request.query.get("page", ""))
        ranks, total = await self._store.work.leaderboard.table(name, board, span, PAGE, (number - 1) * PAGE)
        query = {"by": board, "period": span or "all"}
        return {
            **frame,
            "ranks": ranks,
            "board": board,
            "boards": [(each, f"{here}?{urlencode({**query, 'by': each})}", each == board) for each in get_args(Board)],
            "period": span or "all",
            "spans": spans,
            **turned(f"{here}?{urlencode(query)}", number, PAGE, total),
            "log": await self._store.work.log.newest(name, _LOGGED),
            "domain_bytes": await self._store.work.statistics.domain_bytes(name),
        }

    @get("/work/{project}/items", "work_items.html")
    async def items(self, request: web.Request) -> dict[str, Any]:
        """The query has ``list``, ``claimant``, ``cursor`` and ``item``, to find one."""
        frame, name = await self._frame(request, "/items"), request.match_info["project"]
        place = _place(request.query.get("list", ""))
        claimant, wanted = clean(request.query.get("claimant", ""), 30), clean(request.query.get("item", ""), 300)
        cursor, items = request.query.get("cursor", "")[:_MAX_CURSOR], self._store.work.items
        try:
            page = await items.page(name, place, claimant=claimant, cursor=cursor, count=PAGE)
        except ClientError:  # no such cursor or claimant
            page, claimant, cursor = await items.page(name, place, count=PAGE), "", ""
        query = {"list": place, "claimant": claimant}
        return {
            **frame,
            "place": place,
            "places": get_args(Place),
            "claimant": claimant,
            "entries": page.entries,
            "is_done": place == "done" and not claimant,
            **first_and_next(f"{frame['here']}/items", query, cursor, page.cursor),
            "wanted": wanted,
            "found": await self._store.work.items.status(name, wanted) if wanted else None,
            "queues": QUEUES,
            "max_list": _MAX_LIST,
        }

    @post("/work/{project}/items", "items.add", errors_on="items")
    async def add(self, request: web.Request, form: Form) -> web.Response:
        name = request.match_info["project"]
        queue, claimant = form.text("queue"), form.text("claimant")
        asked = (claimant,) if claimant else ()
        new = [NewItem(item, cast("Queue", queue), asked) for item in items_of(form.text("items", _MAX_LIST))]
        added = await add_items(self._store, name, new, again=form.ticked("again"))
        request[CHANGE].count(processed=added.processed, added=added.added)
        return done(request, f"/work/{name}/items", "added", list=queue)

    @post("/work/{project}/items/remove", "items.remove")
    async def remove(self, request: web.Request, form: Form) -> web.Response:
        name = request.match_info["project"]
        request[CHANGE].count(removed=await self._store.work.items.purge(name, [form.text("item")]))
        return done(request, f"/work/{name}/items", "removed", list=_place(form.text("list")))

    @post("/work/{project}/items/purge", "items.purge")
    async def purge(self, request: web.Request, form: Form) -> web.Response:
        name, place = request.match_info["project"], _place(form.text("list"))
        request[CHANGE].count(removed=await purge_items(self._store, name, place))
        return done(request, f"/work/{name}/items", "removed", list=place)

    @get("/work/{project}/claims", "work_claims.html")
    async def claims(self, request: web.Request) -> dict[str, Any]:
        """The query has ``claimant``, ``item`` and ``cursor``."""
        frame, name = await self._frame(request, "/claims"), request.match_info["project"]
        claimant, item = (clean(request.query.get(each, ""), 300) for each in ("claimant", "item"))
        cursor, found = request.query.get("cursor", "")[:_MAX_CURSOR], self._store.work.claims
        try:
            page = await found.page(name, cursor=cursor, count=PAGE, claimant=claimant or None, item=item or None)
        except ClientError:  # no such cursor
            page, cursor = await found.page(name, count=PAGE), ""
        query = {"claimant": claimant, "item": item}
        return {
            **frame,
            "claims": page.entries,
            "claimant": claimant,
            "item": item,
            **first_and_next(f"{frame['here']}/claims", query, cursor, page.cursor),
        }

    @post("/work/{project}/claims/release", "claims.release", errors_on="claims")
    async def release(self, request: web.Request, form: Form) -> web.Response:
        """Releases one claim, or all that match."""
        name, hours = request.match_info["project"], form.text("hours")
        await self._store.work.projects.get(name)
        released = await self._store.work.claims.release_all(
            name,
            claimant=form.text("claimant") or None,
            item=form.text("item") or None,
            prefix=form.text("prefix"),
            older_than=_hours(hours) * 3600 if hours else None,
        )
        request[CHANGE].count(released=released)
        return done(request, f"/work/{name}/claims", "released")

    @get("/work/{project}/blocked", "work_blocked.html")
    async def blocked(self, request: web.Request) -> dict[str, Any]:
        frame, name = await self._frame(request, "/blocked"), request.match_info["project"]
        sees_addresses = request[IDENTITY].may("operate")
        blocked = await self._store.work.blocks.all(name)
        names = [each for each in blocked if "." not in each and ":" not in each]  # others are addresses and networks
        shown = blocked if sees_addresses else names
        return {
            **frame,
            "blocked": shown,
            "hidden": len(blocked) - len(shown),
            "log": await self._store.work.blocks.log(name, PAGE) if sees_addresses else [],
        }

    @post("/work/blocked", "block.add", errors_on="show")
    @post("/work/unblock", "block.remove", errors_on="show")
    @post("/work/{project}/blocked", "block.add", errors_on="blocked")
    @post("/work/{project}/unblock", "block.remove", errors_on="blocked")
    async def block(self, request: web.Request, form: Form) -> web.Response:
        """Blocks or unblocks who the form names, in a project or in all."""
        project, unblocks = request.match_info.get("project"), request.path.endswith("/unblock")
        change = self._store.work.blocks.unblock if unblocks else self._store.work.blocks.block
        await change(form.text("who"), project)
        back = "/work" if project is None else f"/work/{project}/blocked"
        return done(request, back, "removed" if unblocks else "added")


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
            if (number := digits(text, 16)) is None:
                raise ClientError(f"{setting.label}: must be a whole number")
            changes[name] = number
        else:
            changes[name] = text
    return changes


def _place(text: str) -> Place:
    return cast("Place", text) if text in get_args(Place) else "todo"


def _hours(text: str) -> float:
    """Raises ClientError."""
    try:
        hours = float(text)
    except ValueError:
        hours = -1
    if not 0 <= hours <= _MAX_HOURS:
        raise ClientError("the age must be a number of hours")
    return hours
