"""/history: the charts of the dashboard as data."""

from typing import Literal, get_args

from pydantic import Field

from tracker.admin.api.contract import Call, Endpoints, Query, Reply
from tracker.admin.api.models import Moment, Whole
from tracker.admin.api.statistics import Precision
from tracker.operations import history
from tracker.operations.history import CHARTS, PARTS, RANGES, Part, Unit

endpoints = Endpoints("history", "Charts of peers, torrents, requests, joins and traffic over time.")

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


class History(Reply):
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


@endpoints.get("/history/{chart}", "Show a chart")
async def chart(call: Call, chart: ChartName, query: HistoryQuery) -> History:
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
    return History.from_record(
        window,
        chart=chart,
        title=shown.title,
        unit=shown.unit,
        incomplete=slices.incomplete,
        starts=slices.starts,
        lines=[HistoryLine(name=e.name, label=e.label, values=slices.values[e.name]) for e in lines],
    )
