"""/statistics, /counters and /distributions: totals and time series; /uniques: unique users; /history: charts."""

from dataclasses import asdict
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from tracker.admin.api.contract import Call, Endpoints, Query, Reply
from tracker.admin.api.models import (
    Flag,
    Hex,
    ItemList,
    Moment,
    OptionalText,
    Page,
    Period,
    PeriodQuery,
    Whole,
    copy_of,
    number,
)
from tracker.operations import history, service
from tracker.operations.history import CHARTS, PARTS, RANGES, Part, Unit
from tracker.refusals import NAMES
from tracker.store.schema.keys import SCOPES, Board
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


class Names(ItemList[str]):
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
    items = [Slice(start=start, count=count) for start, count in found]
    return CounterSeries(name=name, precision=query.precision, items=items)


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


unique_endpoints = Endpoints("uniques", "Unique users by country, city, postcode and torrent, all-time and by month.")

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


class FigureQuery(Query):
    period: Period = "all"


class Figure(Reply):
    """Unique users of a metric."""

    metric: str
    period: str
    users: int
    may_exceed: Exceed


@unique_endpoints.get("/uniques/{scope}", "List locations or torrents by unique users")
async def top(call: Call, scope: Board, query: PeriodQuery) -> UniquesPage:
    """Monthly counts are kept for 13 months. Locations need a GeoIP database."""
    found = await call.store.unique_users.top(scope, query.period, query.limit, query.offset)
    items = [UniquesRow(name=name, users=users) for name, users in found]
    exceed = await call.store.unique_users.may_exceed(query.period)
    return UniquesPage.of(query, items, None, may_exceed=exceed)


@unique_endpoints.get("/uniques/metrics/{metric}", "Show unique users of a metric")
async def figure(call: Call, metric: MetricText, query: FigureQuery) -> Figure:
    """0 if nothing was counted."""
    month = None if query.period == "all" else query.period
    if metric.startswith("torrents."):  # info hashes are case-insensitive
        metric = metric[:_INFO_HASH].lower() + metric[_INFO_HASH:]
    users = await call.store.unique_users.users_of(metric, month)
    exceed = await call.store.unique_users.may_exceed(query.period)
    return Figure(metric=metric, period=query.period, users=users, may_exceed=exceed)


history_endpoints = Endpoints("history", "Charts of peers, torrents, requests, joins and traffic over time.")

ChartName = Literal["peers", "torrents", "users", "requests", "announces", "joins", "traffic", "latency"]
assert get_args(ChartName) == tuple(CHARTS)
RangeName = Literal["2m", "2h", "24h", "7d", "30d", "90d"]
assert get_args(RangeName) == tuple(RANGES)
assert get_args(Part) == tuple(PARTS)


class HistoryQuery(Query):
    range: RangeName = Field("24h", description="How far the chart reaches back from `until`.")
    since: Whole | None = Field(None, description="The first time (epoch s), instead of `range`.")
    until: Whole | None = Field(None, description="The last time (epoch s); now by default.")
    step: Precision = Field(
        1, description="The shortest slice (s). Slices are longer where shorter ones are no longer kept."
    )
    by: Part = Field(
        "total",
        description="Lines by protocol or address family: of `peers`, `announces`, `joins` and `traffic`. The other "
        "charts have totals only.",
    )


class HistoryLine(Reply):
    """One line of a chart."""

    name: str
    label: str
    values: list[float | None] = Field(description="One value per slice; null: no data.")


class ChartHistory(Reply):
    """A chart: its slices, oldest first, and the values of each line."""

    chart: ChartName
    title: str
    unit: Unit
    since: Moment
    until: Moment
    step: int = Field(description="Slice length in seconds.")
    incomplete: bool = Field(description="Whether the last slice has not ended. Its rate is that so far.")
    starts: list[Moment]
    lines: list[HistoryLine]


@history_endpoints.get("/history/{chart}", "Show a chart")
async def chart(call: Call, chart: ChartName, query: HistoryQuery) -> ChartHistory:
    """`peers`, `torrents` and `users` are sampled every 5 s; a value is the mean of a slice. `peers` by protocol or
    family are what the sweep counted last, up to two reap intervals ago: the protocol is that of a peer's last join,
    and a peer on both families counts in each. The others are rates from the counters in docs/counters.md; `traffic`
    is what peers report."""
    now, shown = call.context.clock(), CHARTS[chart]
    lines = shown.lines_by(query.by)
    until = int(now) if query.until is None else query.until
    since = until - RANGES[query.range].seconds if query.since is None else query.since
    window = history.window_between(since, until, now, max(query.step, shown.min_step))
    slices = await history.read(call.store.counters, lines, window, now)
    return ChartHistory.from_record(
        window,
        chart=chart,
        title=shown.title,
        unit=shown.unit,
        incomplete=slices.incomplete,
        starts=slices.starts,
        lines=[HistoryLine(name=e.name, label=e.label, values=slices.values[e.name]) for e in lines],
    )
