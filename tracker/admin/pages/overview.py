"""The overview page: current state of the tracker, and charts over minutes, hours and days."""

from typing import Any

from aiohttp import web
from redis.exceptions import RedisError

from tracker.admin.context import AdminContext
from tracker.admin.pages import overview_readings
from tracker.admin.pages.announce_urls import announce_urls
from tracker.admin.pages.live import UNAVAILABLE, LatestReading
from tracker.admin.pages.rendering import render
from tracker.errors import StoreUnavailable
from tracker.operations.history import RANGES


def routes(context: AdminContext, latest_reading: LatestReading) -> list[web.AbstractRouteDef]:
    """The page."""

    async def overview(request: web.Request) -> web.Response:
        return render(request, "overview.html", await _variables(context, latest_reading, request))

    return [web.get("/", overview)]


async def _variables(context: AdminContext, latest_reading: LatestReading, request: web.Request) -> dict[str, Any]:
    """Without the store the page shows the problem, and recovers with the store."""
    problems = list(context.problems())
    variables: dict[str, Any] = {
        "range": RANGES.get(request.query.get("range", ""), RANGES["2m"]),
        "ranges": RANGES.values(),
        "server": context.server,
        "listen": context.listening,
        "announce_urls": announce_urls(context, request.host),
        "texts": {},
        "tones": {},
        "failures": [],
        "outage": "",
        "fresh": False,
    }
    try:
        reading = await latest_reading.latest()
    except (StoreUnavailable, RedisError):
        return variables | {
            "problems": problems,
            "outage": "" if problems or context.store.shards.notices() else UNAVAILABLE,
        }
    return variables | {
        "problems": problems,
        "texts": overview_readings.texts(reading),
        "tones": overview_readings.tones(reading),
        "failures": reading.failures,
        "fresh": not reading.totals["requests"],
    }
