"""/statistics, /counters and /distributions: totals and time series."""

from dataclasses import asdict
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from tracker.admin.api.contract import Call, Endpoints, Query, Reply
from tracker.admin.api.models import Flag, Hex, Items, Moment, OptionalText, Whole, copy_of, number
from tracker.operations import service
from tracker.refusals import NAMES
from tracker.store.stats.slices import PRECISIONS

endpoints = Endpoints("statistics", "All-time totals, and counters and distributions over time.")

_Precision = Literal[1, 5, 60, 300, 900, 3600, 7200, 18000, 28800, 86400]
assert get_args(_Precision) == PRECISIONS
Precision = Annotated[_Precision, BeforeValidator(number)]
NameText = Annotated[
    str, Field(max_length=300, description="Counter name; see docs/counters.md.", examples=["announces"])
]
ReasonText = Annotated[
    str,
    Field(
        max_length=300,
        description=f"A failure reason: {', '.join(NAMES)}, or the text that clients show.",
        examples=["unknown torrent"],
    ),
]


@copy_of(service.Statistics)
class Statistics(Reply):
    """All-time totals and current sizes."""


class NamesQuery(Query):
    pattern: str = Field("*", max_length=300, description="A glob, such as `failures.*`.")


class Names(Items[str]):
    """Names with data, sorted."""


class SeriesQuery(Query):
    precision: Precision = Field(60, description="Slice length in seconds; the last 120 slices are kept.")
    since: Whole = Field(0, description="A time (epoch s) in the first slice.")
    until: Whole | None = Field(None, description="A time (epoch s) in the last slice.")


class CounterQuery(SeriesQuery):
    fill: Flag = Field(True, description="true: empty slices are included as 0.")


class Slice(Reply):
    """The count of one time slice."""

    start: Moment
    count: int


class CounterSeries(Reply):
    """A counter by time slices, oldest first. An unknown counter has none, or only zeros."""

    name: str
    precision: Precision
    items: list[Slice]


class Measured(Reply):
    """Summary statistics of measured values."""

    count: int
    sum: float
    mean: float
    deviation: float = Field(description="Standard deviation.")
    min: float
    max: float


class MeasuredSlice(Measured):
    """Summary statistics of one time slice."""

    start: Moment


class DistributionSeries(Reply):
    """A distribution by time slices, oldest first, and over all of them."""

    name: str
    precision: Precision
    total: Measured | None = Field(description="null if nothing was measured.")
    items: list[MeasuredSlice]


class Refusal(Reply):
    """A refused announce."""

    at: Moment
    info_hash: Hex
    client: str = Field(description="The program that the peer id names.")
    user_id: OptionalText = Field(description="null if no user is known.")


class Refusals(Reply):
    """Refused announces of one reason, newest first."""

    reason: str
    items: list[Refusal]


@endpoints.get("/statistics", "Show totals")
async def statistics(call: Call) -> Statistics:
    return Statistics(**asdict(await service.statistics(call.store)))


@endpoints.get("/counters", "List counters")
async def counters(call: Call, query: NamesQuery) -> Names:
    return Names(items=await call.store.counters.names(query.pattern))


@endpoints.get("/counters/{name}", "Show a counter over time")
async def counter(call: Call, name: NameText, query: CounterQuery) -> CounterSeries:
    last = call.context.clock() if query.until is None else query.until
    found = await call.store.counters.series(name, query.precision, query.since, last, fill=query.fill)
    return CounterSeries(
        name=name, precision=query.precision, items=[Slice(start=start, count=count) for start, count in found]
    )


@endpoints.get("/distributions", "List distributions")
async def distributions(call: Call, query: NamesQuery) -> Names:
    return Names(items=await call.store.counters.distribution_names(query.pattern))


@endpoints.get("/distributions/{name}", "Show a distribution over time")
async def distribution(call: Call, name: NameText, query: SeriesQuery) -> DistributionSeries:
    """For example announce latency."""
    last = call.context.clock() if query.until is None else query.until
    found, total = await call.store.counters.distribution(name, query.precision, query.since, last)
    return DistributionSeries(
        name=name,
        precision=query.precision,
        total=None if total is None else Measured.from_record(total),
        items=[MeasuredSlice.from_record(each, start=start) for start, each in found],
    )


@endpoints.get("/refusals/{reason}", "Show refused announces of a reason")
async def refusals(call: Call, reason: ReasonText) -> Refusals:
    """A sample: at most the last 50, for 7 days. Announces over a rate limit are not sampled."""
    found = await call.store.refusal_samples.last(reason)
    return Refusals(reason=reason, items=[Refusal.from_record(each) for each in found])
