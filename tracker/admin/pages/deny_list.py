"""The page of the deny list: info hashes that are refused even if registered."""

from aiohttp import web

from tracker.admin.context import AdminContext
from tracker.admin.pages.forms import page_number, read_form
from tracker.admin.pages.paging import turned
from tracker.admin.pages.rendering import done, render
from tracker.errors import ClientError
from tracker.operations.torrents import NOT_SERVED, allow_torrent, deny_torrent, parse_hash

PAGE = 50


def routes(context: AdminContext) -> list[web.AbstractRouteDef]:
    torrents = context.store.torrents

    async def show(request: web.Request, error: str = "", info_hash: str = "") -> web.Response:
        number = page_number(request.query.get("page", ""))
        variables = {
            "denials": await torrents.denials((number - 1) * PAGE, PAGE),
            **turned("/torrents/denied", number, PAGE, await torrents.denial_count()),
            "error": error,
            "info_hash": info_hash,
        }
        return render(request, "torrents_denied.html", variables, status=422 if error else 200)

    async def deny(request: web.Request) -> web.Response:
        form = await read_form(request)
        text = form.text("info_hash")
        try:
            info_hash = parse_hash(text)
        except ClientError as error:
            return await show(request, str(error), text)
        await deny_torrent(context.store, info_hash, form.text("reason") or NOT_SERVED)
        return done(request, "/torrents/denied", "added")

    async def allow(request: web.Request) -> web.Response:
        text = (await read_form(request)).text("info_hash")
        try:
            await allow_torrent(context.store, parse_hash(text))
        except ClientError as error:
            return await show(request, str(error))
        return done(request, "/torrents/denied", "removed")

    return [
        web.get("/torrents/denied", show),
        web.post("/torrents/denied", deny),
        web.post("/torrents/denied/allow", allow),
    ]
