"""/uniques: unique users by location, torrent and month."""

from typing import Annotated

from pydantic import Field

from tracker.admin.api.contract import Call, Endpoints, Query, Reply
from tracker.admin.api.models import Page, Paged, Period
from tracker.store.schema.keys import SCOPES, Board

endpoints = Endpoints("uniques", "Unique users by country, city, postcode and torrent, all-time and by month.")

_INFO_HASH = len("torrents.") + 40

MetricText = Annotated[
    str,
    Field(
        max_length=300,
        pattern=rf"^({SCOPES[0]}|torrents)\.[^:\u0000-\u0020]+\.users$",
        description="Metric name, see docs/uniques.md; in the URL write `%` as `%25`.",
        examples=["countries.United_Kingdom.users"],
    ),
]


class UniquesRow(Reply):
    """Unique users of a location or torrent."""

    name: str = Field(description="`<country>`, `<country>/<city>`, `<country>/<postcode>` or an info hash.")
    users: int


Exceed = Annotated[
    int,
    Field(
        description="Max error of the counts of this period, normally 0: so many markers of counted users were deleted "
        "because the store was short of memory."
    ),
]


class UniquesPage(Page[UniquesRow]):
    """Locations or torrents, highest count first."""

    may_exceed: Exceed


class UniquesQuery(Paged):
    period: Period = "all"


class FigureQuery(Query):
    period: Period = "all"


class Figure(Reply):
    """Unique users of a metric."""

    metric: str
    period: str
    users: int
    may_exceed: Exceed


@endpoints.get("/uniques/{scope}", "List locations or torrents by unique users")
async def top(call: Call, scope: Board, query: UniquesQuery) -> UniquesPage:
    """Monthly counts are kept for 13 months. Locations need a GeoIP database."""
    found = await call.store.unique_users.top(scope, query.period, query.limit, query.offset)
    items = [UniquesRow(name=name, users=users) for name, users in found]
    exceed = await call.store.unique_users.may_exceed(query.period)
    return UniquesPage.of(query, items, None, may_exceed=exceed)


@endpoints.get("/uniques/metrics/{metric}", "Show unique users of a metric")
async def figure(call: Call, metric: MetricText, query: FigureQuery) -> Figure:
    """0 if nothing was counted."""
    month = None if query.period == "all" else query.period
    if metric.startswith("torrents."):  # info hashes are case-insensitive
        metric = metric[:_INFO_HASH].lower() + metric[_INFO_HASH:]
    users = await call.store.unique_users.users_of(metric, month)
    exceed = await call.store.unique_users.may_exceed(query.period)
    return Figure(metric=metric, period=query.period, users=users, may_exceed=exceed)
