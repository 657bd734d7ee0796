"""GET /metrics for Prometheus: the figures of this tracker, of its processes together, and of its store.

A scrape asks the store once, for a bounded time. Without it the figures of the tracker come all the same.
docs/metrics.md lists the metrics, and says how to be let in.
"""

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from tracker.admin.desk import Desk
from tracker.admin.metrics.exposition import Scrape, about
from tracker.admin.metrics.reading import read_store


def routes(desk: Desk) -> list[web.AbstractRouteDef]:
    started = desk.clock()

    async def metrics(request: web.Request) -> web.Response:
        store = await read_store(desk.stores)
        scrape = Scrape(desk.telemetry(), store, about(desk, started))
        encode, content_type = choose_encoder(",".join(request.headers.getall("Accept", [])))
        response = web.Response(body=encode(scrape), headers={"Content-Type": content_type})
        response.enable_compression()
        return response

    return [web.get("/metrics", metrics)]
