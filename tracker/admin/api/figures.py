"""/statistics, /counters and /distributions: what happened, and when."""

from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import Field

from tracker.admin import operations
from tracker.admin.api.contract import Answer, Call, Endpoints, Query
from tracker.admin.api.models import Flag, Moment, Whole
from tracker.store.slices import PRECISIONS, Distribution

endpoints = Endpoints("statistics", "Sums of all time, and counters and distributions by slices of time.")

Precision = Literal["1", "5", "60", "300", "3600", "18000", "86400"]
assert tuple(map(int, Precision.__args__)) == PRECISIONS  # type: ignore[attr-defined]  # typing's own
NameText = Annotated[
    str,
    Field(
        max_length=300,
        description="The name of a counter; docs/counters.md has them.",
        examples=["announces"],
    ),
]


class Statistics(Answer):
    """Sums of all time, and how much there is now."""

    torrents: int
    scored_torrents: int = Field(description="Torrents in the ranking by score.")
    denials: int = Field(description="Forbidden torrents.")
    users: int
    users_with_hit_and_runs: int
    totals: dict[str, int] = Field(
        description="seeders and leechers now; the rest counts from the beginning."
    )
    failures: dict[str, int] = Field(description="Refused requests by reason.")


class NamesQuery(Query):
    pattern: str = Field("*", max_length=300, description="A glob, such as `failures.*`.")


class Names(Answer):
    """Names that have slices, sorted."""

    items: list[str]


class SeriesQuery(Query):
    precision: Precision = Field(
        "60", description="The length of a slice in seconds; the last 120 of each are kept."
    )
    since: Whole = Field(0, description="A moment (epoch s) in the first slice wanted.")
    until: Whole | None = Field(None, description="A moment (epoch s) in the last slice wanted.")


class CounterQuery(SeriesQuery):
    fill: Flag = Field(True, description="Slices in which nothing was counted are there, too, as 0.")


class Slice(Answer):
    """What was counted in one slice of time."""

    start: Moment
    count: int


class CounterSeries(Answer):
    """A counter by slices of time, oldest first. One that never counted has none, or only zeros."""

    name: str
    precision: int
    items: list[Slice]


class Measured(Answer):
    """What was measured: how many values, and how they lie."""

    count: int
    mean: float
    deviation: float = Field(description="The standard deviation.")
    min: float
    max: float


class MeasuredSlice(Measured):
    """The same in one slice of time."""

    start: Moment


class DistributionSeries(Answer):
    """A distribution by slices of time, oldest first, and of them all together."""

    name: str
    precision: int
    total: Measured | None = Field(description="null when nothing was measured.")
    items: list[MeasuredSlice]


@endpoints.get("/statistics", "Sums of all time")
async def statistics(call: Call) -> Statistics:
    return Statistics(**asdict(await operations.statistics(call.stores)))


@endpoints.get("/counters", "Names of counters")
async def counters(call: Call, query: NamesQuery) -> Names:
    return Names(items=await call.stores.counters.names(query.pattern))


@endpoints.get("/counters/{name}", "A counter over time")
async def counter(call: Call, name: NameText, query: CounterQuery) -> CounterSeries:
    precision = int(query.precision)
    last = call.desk.clock() if query.until is None else query.until
    found = await call.stores.counters.series(name, precision, query.since, last, fill=query.fill)
    return CounterSeries(
        name=name, precision=precision, items=[Slice(start=start, count=count) for start, count in found]
    )


@endpoints.get("/distributions", "Names of distributions")
async def distributions(call: Call, query: NamesQuery) -> Names:
    return Names(items=await call.stores.counters.distribution_names(query.pattern))


@endpoints.get("/distributions/{name}", "A distribution over time")
async def distribution(call: Call, name: NameText, query: SeriesQuery) -> DistributionSeries:
    """Such as how long announces took."""
    precision = int(query.precision)
    last = call.desk.clock() if query.until is None else query.until
    found, total = await call.stores.counters.distribution(name, precision, query.since, last)
    return DistributionSeries(
        name=name,
        precision=precision,
        total=None if total is None else Measured(**_fields(total)),
        items=[MeasuredSlice(start=start, **_fields(each)) for start, each in found],
    )


def _fields(measured: Distribution) -> dict[str, float]:
    return {name: getattr(measured, name) for name in Measured.model_fields}
