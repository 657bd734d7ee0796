"""GET /metrics for Prometheus: metrics of this tracker, over all its processes, and of its store.

A scrape queries the store with a deadline. Without the store, the metrics of the tracker are still exposed.
docs/metrics.md lists the metrics and describes access.
"""

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from tracker.admin.context import AdminContext
from tracker.admin.metrics.exposition import Scrape, about
from tracker.admin.metrics.store_readings import read_store


def routes(context: AdminContext) -> list[web.AbstractRouteDef]:
    started = context.clock()

    async def metrics(request: web.Request) -> web.Response:
        store = await read_store(context.store)
        scrape = Scrape(context.telemetry(), store, about(context, started))
        encode, content_type = choose_encoder(",".join(request.headers.getall("Accept", [])))
        response = web.Response(body=encode(scrape), headers={"Content-Type": content_type})
        response.enable_compression()
        return response

    return [web.get("/metrics", metrics)]
