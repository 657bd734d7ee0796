"""/scores: the ranking, and the scoring backlog."""

from dataclasses import asdict

from tracker.admin.api.contract import Call, Endpoints, Reply
from tracker.admin.api.models import Page, Paged, copy_of, page_of
from tracker.admin.api.torrents import TorrentRow, rows
from tracker.store.torrents.scores import Lag

endpoints = Endpoints("scores", "The ranking of torrents, and the scoring backlog.")


class Ranking(Page[TorrentRow]):
    """Torrents by score, highest first."""


@copy_of(Lag)
class ScoringLag(Reply):
    """The scoring backlog."""


@endpoints.get("/scores", "List the ranking")
async def ranking(call: Call, query: Paged) -> Ranking:
    found = await call.store.torrents.top("score", query.limit, query.offset)
    return Ranking(**page_of(query, rows(found), await call.store.scores.count()))


@endpoints.get("/scores/lag", "Show the scoring backlog")
async def lag(call: Call) -> ScoringLag:
    return ScoringLag(**asdict(await call.store.scores.lag()))
