"""/uniques: unique users by place, torrent and month."""

from typing import Annotated, Literal

from pydantic import Field

from tracker.admin.api.contract import Answer, Call, Endpoints, Query
from tracker.admin.api.models import OffsetPage, Paged, Period, page_of

endpoints = Endpoints(
    "uniques", "Unique users by country, city, postcode and torrent, of all time and by month."
)

MetricText = Annotated[
    str,
    Field(
        max_length=300,
        pattern=r"^(countries|cities|postcodes|torrents)\.[^:\u0000-\u0020]+\.users$",
        description="A metric as docs/uniques.md names them; in the address `/` is `%2F`, and `%` is `%25`.",
        examples=["countries.GB.users"],
    ),
]


class UniquesRow(Answer):
    """Unique users of a place or a torrent."""

    name: str = Field(description="A place, or the info hash of a torrent.")
    users: int


class UniquesPage(OffsetPage[UniquesRow]):
    """Places or torrents, most users first."""


class UniquesQuery(Paged):
    period: Period = "all"


class FigureQuery(Query):
    period: Period = "all"


class Figure(Answer):
    """Unique users of a metric."""

    metric: str
    period: str
    users: int


@endpoints.get("/uniques/{scope}", "Places and torrents by unique users")
async def top(
    call: Call, scope: Literal["countries", "cities", "postcodes", "torrents"], query: UniquesQuery
) -> UniquesPage:
    """Months are kept for 13 months. Without a GeoIP database nobody is counted by place."""
    found = await call.stores.uniques.top(scope, query.period, query.limit, query.offset)
    items = [UniquesRow(name=name, users=users) for name, users in found]
    return UniquesPage(**page_of(query, items, None))


@endpoints.get("/uniques/metrics/{metric}", "Unique users of one metric")
async def figure(call: Call, metric: MetricText, query: FigureQuery) -> Figure:
    """0 where nobody was counted."""
    month = None if query.period == "all" else query.period
    if metric.startswith("torrents."):  # an info hash may be written either way
        metric = metric.lower()
    users = await call.stores.uniques.figure(metric, month)
    return Figure(metric=metric, period=query.period, users=users)
