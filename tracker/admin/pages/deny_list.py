"""The page of the deny list: info hashes that are refused even if registered."""

from typing import Any

from aiohttp import web

from tracker.admin.pages.forms import Form, page_number, read_form
from tracker.admin.pages.paging import turned
from tracker.admin.pages.rendering import Pages, done, get, post
from tracker.operations.torrents import NOT_SERVED, allow_torrent, deny_torrent, parse_hash

PAGE = 50


class DenyListPage(Pages):
    @get("/torrents/denied", "torrents_denied.html")
    async def show(self, request: web.Request) -> dict[str, Any]:
        number, torrents = page_number(request.query.get("page", "")), self._store.torrents
        return {
            "denials": await torrents.denials((number - 1) * PAGE, PAGE),
            **turned("/torrents/denied", number, PAGE, await torrents.denial_count()),
            "info_hash": (await read_form(request)).text("info_hash"),
        }

    @post("/torrents/denied", "denial.add", errors_on="show")
    async def deny(self, request: web.Request, form: Form) -> web.Response:
        await deny_torrent(self._store, parse_hash(form.text("info_hash")), form.text("reason") or NOT_SERVED)
        return done(request, "/torrents/denied", "added")

    @post("/torrents/denied/allow", "denial.remove", errors_on="show")
    async def allow(self, request: web.Request, form: Form) -> web.Response:
        await allow_torrent(self._store, parse_hash(form.text("info_hash")))
        return done(request, "/torrents/denied", "removed")
