"""The page of a failure reason: its requests over time, and the clients and torrents of refused announces."""

import re
from collections import Counter
from typing import Any
from urllib.parse import urlencode

import orjson
from aiohttp import web

from tracker.admin.pages.history import chart_data, shown_of
from tracker.admin.pages.rendering import Pages, get
from tracker.errors import existing
from tracker.operations import history
from tracker.operations.history import RANGES, Chart, Line
from tracker.refusals import CLOSED, Label, Reason, explained
from tracker.store.stats.client_software import MAX_MEMBERS, parted, shown
from tracker.store.stats.refusal_samples import MAX_KEPT


class FailurePages(Pages):
    @get("/failures", "failure.html")
    async def show(self, request: web.Request) -> dict[str, Any]:
        """The query has ``reason``, and ``range`` as on the pages of the past."""
        store, reason = self._store, request.query.get("reason", "")
        total = existing((await store.counters.failures()).get(reason), "reason")
        samples = await store.refusal_samples.last(reason)
        torrents = await store.torrents.get_all(list(dict.fromkeys(sample.info_hash for sample in samples)))
        ranged = shown_of(request, self._clock())
        return {
            "reason": reason,
            "explained": [_for_page(each) for each in explained(reason)],
            "closed": CLOSED.get(Label(reason)),
            "total": total,
            "query": urlencode({"reason": reason}),
            "shown": ranged,
            "ranges": RANGES.values(),
            "clients": await self._clients(reason),
            "torrents": Counter(sample.info_hash.hex() for sample in samples).most_common(),
            "samples": samples,
            "max_samples": MAX_KEPT,
            "names": {torrent.info_hash.hex(): torrent.name for torrent in torrents},
        }

    async def _clients(self, reason: str) -> list[tuple[str, int]]:
        """(client, refused announces of all time), most first. Leaderboards keep the beginning of a long reason."""
        board = await self._store.client_software.top("failures", count=MAX_MEMBERS)
        kept = shown("", reason)[1]
        return [(parted(member)[0], count) for member, count in board if parted(member)[1] == kept]

    @get("/failures/chart.json")
    async def data(self, request: web.Request) -> web.Response:
        now, reason = self._clock(), request.query.get("reason", "")
        lines = (Line("failures", "Refused", (f"failures.{reason}",)),)
        counters = self._store.counters
        slices = await history.read(counters, lines, shown_of(request, now).window(), now)
        chart = Chart("failures", "Refused requests", "per second", lines)
        return web.Response(body=orjson.dumps(chart_data(chart, slices)), content_type="application/json")


def _for_page(reason: Reason) -> tuple[str, str, str]:
    """(text, meaning, remedy) without the Markdown of the documents."""
    meaning, remedy = (
        re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "") for text in (reason.meaning, reason.remedy)
    )
    return reason.text, meaning, remedy
