"""The first page: how the tracker does right now, and over the last minutes, hours and days."""

from typing import Any

import orjson
from aiohttp import web
from redis.exceptions import RedisError

from tracker.admin.desk import Desk
from tracker.admin.pages import figures
from tracker.admin.pages.addresses import announce_urls
from tracker.admin.pages.figures import VIEWS, View
from tracker.admin.pages.live import AWAY, Readings
from tracker.admin.pages.rendering import render
from tracker.admin.problems import Problem
from tracker.errors import StoreAway


def routes(desk: Desk, readings: Readings) -> list[web.AbstractRouteDef]:
    """The page, and what its charts are drawn from."""

    async def overview(request: web.Request) -> web.Response:
        return render(request, "overview.html", await _context(desk, readings, request))

    async def charts(request: web.Request) -> web.Response:
        draw = figures.CHARTS.get(request.match_info["chart"])
        if draw is None:
            raise Problem(404, detail="there is no such chart")
        window = await figures.read_window(desk, _view(request))
        return web.Response(body=orjson.dumps(draw(window)), content_type="application/json")

    return [web.get("/", overview), web.get("/figures/{chart}.json", charts)]


def _view(request: web.Request) -> View:
    return VIEWS.get(request.query.get("view", ""), VIEWS["2m"])


async def _context(desk: Desk, readings: Readings, request: web.Request) -> dict[str, Any]:
    """While the store is away the page still says so, and comes alive when it is back."""
    view = _view(request)
    problems = list(desk.problems())
    context: dict[str, Any] = {
        "view": view,
        "views": VIEWS.values(),
        "server": desk.server,
        "mode": desk.settings.torrents.mode,
        "private": desk.settings.users.private,
        "listen": desk.listening,
        "announce_urls": announce_urls(desk.listening, request.host),
        "texts": {},
        "tones": {},
        "failures": [],
        "fresh": False,
    }
    try:
        reading = await readings.figures()
    except (StoreAway, RedisError):
        return context | {"problems": problems or [AWAY]}
    return context | {
        "problems": problems,
        "texts": figures.texts(reading),
        "tones": figures.tones(reading),
        "failures": reading.failures,
        "fresh": not reading.totals["requests"],
    }
