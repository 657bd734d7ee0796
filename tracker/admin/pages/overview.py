"""The overview page: current state of the tracker, and charts over minutes, hours and days."""

from typing import Any

import orjson
from aiohttp import web
from redis.exceptions import RedisError

from tracker.admin.context import AdminContext
from tracker.admin.http.problems import Problem
from tracker.admin.pages import overview_readings
from tracker.admin.pages.announce_urls import announce_urls
from tracker.admin.pages.live import AWAY, LatestReading
from tracker.admin.pages.overview_readings import VIEWS, View
from tracker.admin.pages.rendering import render
from tracker.errors import StoreUnavailable


def routes(context: AdminContext, latest_reading: LatestReading) -> list[web.AbstractRouteDef]:
    """The page, and the data of its charts."""

    async def overview(request: web.Request) -> web.Response:
        return render(request, "overview.html", await _variables(context, latest_reading, request))

    async def charts(request: web.Request) -> web.Response:
        draw = overview_readings.CHARTS.get(request.match_info["chart"])
        if draw is None:
            raise Problem(404, detail="unknown chart")
        window = await overview_readings.read_window(context, _view(request))
        return web.Response(body=orjson.dumps(draw(window)), content_type="application/json")

    return [web.get("/", overview), web.get("/figures/{chart}.json", charts)]


def _view(request: web.Request) -> View:
    return VIEWS.get(request.query.get("view", ""), VIEWS["2m"])


async def _variables(
    context: AdminContext, latest_reading: LatestReading, request: web.Request
) -> dict[str, Any]:
    """Without the store the page shows the problem, and recovers with the store."""
    view = _view(request)
    problems = list(context.problems())
    variables: dict[str, Any] = {
        "view": view,
        "views": VIEWS.values(),
        "server": context.server,
        "mode": context.settings.torrents.mode,
        "accounts": context.settings.users.private,
        "listen": context.listening,
        "announce_urls": announce_urls(context.listening, context.udp, request.host),
        "texts": {},
        "tones": {},
        "failures": [],
        "fresh": False,
    }
    try:
        reading = await latest_reading.latest()
    except (StoreUnavailable, RedisError):
        return variables | {"problems": problems or [AWAY]}
    return variables | {
        "problems": problems,
        "texts": overview_readings.texts(reading),
        "tones": overview_readings.tones(reading),
        "failures": reading.failures,
        "fresh": not reading.totals["requests"],
    }
