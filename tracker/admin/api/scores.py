"""/scores: the ranking, and how far scoring is behind."""

from dataclasses import asdict

from pydantic import Field

from tracker.admin.api.contract import Answer, Call, Endpoints
from tracker.admin.api.models import OffsetPage, Paged, page_of
from tracker.admin.api.torrents import TorrentRow, rows

endpoints = Endpoints("scores", "The ranking of torrents, and how far scoring is behind.")


class Ranking(OffsetPage[TorrentRow]):
    """Torrents by score, the highest first."""


class ScoringLag(Answer):
    """How far scoring is behind."""

    count: int = Field(description="Torrents in the ranking.")
    waiting: int = Field(description="Those whose turn has come, and that nobody works on.")
    late: int = Field(description="Those whose turn came more than an interval ago.")
    longest_seconds: float = Field(description="Since the scoring that is longest ago.")


@endpoints.get("/scores", "The ranking")
async def ranking(call: Call, query: Paged) -> Ranking:
    found = await call.stores.torrents.top("score", query.limit, query.offset)
    return Ranking(**page_of(query, rows(found), await call.stores.scores.count()))


@endpoints.get("/scores/lag", "How far scoring is behind")
async def lag(call: Call) -> ScoringLag:
    return ScoringLag(**asdict(await call.stores.scores.lag()))
