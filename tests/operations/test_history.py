"""Charts of the past: which slices a range has, and what its lines show."""

import pytest

from tests.store.harness import START, Store
from tracker.core.counter_names import HTTP, HTTP_BYTES, UDP, UDP_AND_WEBSOCKET_BYTES, WEBSOCKET
from tracker.operations import history
from tracker.operations.history import CHARTS, PARTS, RANGES, Line, Window
from tracker.store.stats.slices import PRECISIONS, RETAINED, SAMPLED_PARTS, oldest_retained

DAY = 86_400
NOON = START - START % DAY + DAY // 2
"""Twelve hours into a day."""


@pytest.mark.parametrize(
    ("name", "step"), [("2m", 1), ("2h", 60), ("24h", 900), ("7d", 7200), ("30d", 28_800), ("90d", DAY)]
)
@pytest.mark.parametrize("now", [START, START + 59.9, NOON, NOON - 0.5])
def test_a_range_has_the_shortest_slices_that_are_kept(name: str, step: int, now: float) -> None:
    window = history.window_between(int(now) - RANGES[name].seconds, int(now), now)
    assert (window.step, window.until, window.span) == (step, int(now), RANGES[name].seconds)


def test_a_recent_part_of_a_range_has_shorter_slices() -> None:
    steps = [
        history.window_between(START - ago, START - ago + 60, START).step
        for ago in (100, 500, 7000, 30_000, 100_000, 400_000, 800_000, 2_000_000, 3_000_000, 9_000_000)
    ]
    assert steps == list(PRECISIONS)
    assert history.window_between(START - 100, START, START, min_step=60).step == 60


@pytest.mark.parametrize(
    ("since", "until"), [(0, 0), (START + 5, START + 9), (START, START - 900), (2**53 - 1, 2**53 - 1), (0, 2**53 - 1)]
)
def test_any_range_is_moved_into_what_is_kept(since: int, until: int) -> None:
    window = history.window_between(since, until, START)
    assert oldest_retained(START, DAY) <= window.since <= window.until - history.MIN_SPAN
    assert window.until <= START and window.span // window.step <= RETAINED


async def test_lines_are_rates_and_the_slice_in_progress_is_divided_by_its_time_so_far(store: Store) -> None:
    store.clock.now = START + 30
    counters = store.counters
    for name, number, at in (
        ("announces", 120, START - 60),
        ("announces.udp", 60, START - 60),
        ("announces", 60, START + 1),
        ("announces.udp", 90, START + 1),  # of another program
    ):
        counters.count(name, by=number, at=at)
    await counters.flush()
    lines = (Line("all", "All", ("announces",)), Line("http", "HTTP", ("announces",), ("announces.udp",)))
    slices = await history.read(counters, lines, Window(START - 120, START + 30, 60), store.clock())
    assert slices.starts == [START - 120, START - 60, START] and slices.incomplete
    assert slices.values == {"all": [0, 2, 2], "http": [0, 1, 0]}


async def test_samples_are_the_mean_or_the_maximum_of_a_slice(store: Store) -> None:
    store.counters.observe("seeders", 4, 8, at=START - 60)
    await store.counters.flush()
    lines = (Line("mean", "Mean", measured="seeders"), Line("max", "Max", measured="seeders", value="max"))
    slices = await history.read(store.counters, lines, Window(START - 120, START - 1, 60), START)
    assert slices.values == {"mean": [None, 6], "max": [None, 8]}
    assert not slices.incomplete


@pytest.mark.parametrize(
    ("after", "step", "newest", "incomplete"),
    [
        (0.0, 1, START - 2, False),  # counts arrive up to a second late
        (1.5, 60, START - 60, False),
        (5.9, 60, START - 60, False),
        (6.0, 60, START, True),
        (359.0, 3600, START - 3600, False),
        (360.0, 3600, START, True),
    ],
)
async def test_the_slice_in_progress_is_shown_once_a_tenth_has_passed(
    store: Store, after: float, step: int, newest: int, incomplete: bool
) -> None:
    now = START + after
    store.clock.now = now
    window = Window(int(now) - 20 * step, int(now), step)
    slices = await history.read(store.counters, (), window, now)
    assert (slices.starts[-1], slices.incomplete) == (newest, incomplete)


async def test_failures_are_those_of_all_kinds_of_requests(store: Store) -> None:
    for kind, number in (("announces", 60), ("scrapes", 120), ("other", 180)):
        store.counters.count(f"refused.{kind}", by=number, at=START - 60)
    await store.counters.flush()
    window = Window(START - 60, START - 1, 60)
    slices = await history.read(store.counters, CHARTS["requests"].lines, window, START)
    assert slices.values["failures"] == [6]


def test_names_and_labels_of_lines_are_unique_in_a_chart() -> None:
    for chart in CHARTS.values():
        for by in PARTS:
            lines = chart.lines_by(by)
            assert len({line.name for line in lines}) == len({line.label for line in lines}) == len(lines)


def test_every_line_by_protocol_or_family_is_counted_or_sampled() -> None:
    counted = {
        name
        for names in (*HTTP.values(), *UDP.values(), *WEBSOCKET.values(), *HTTP_BYTES, *UDP_AND_WEBSOCKET_BYTES)
        for name in names
    }
    for chart in CHARTS.values():
        for line in (*chart.protocol, *chart.family):
            assert {*line.counters, *line.without} <= counted
            assert line.measured in ("", *SAMPLED_PARTS)


async def test_announces_over_udp_of_earlier_versions_show_as_such(store: Store) -> None:
    """They were not counted by family."""
    for name, number in (("announces", 600), ("announces.udp", 180)):
        store.counters.count(name, by=number, at=START - 60)
    await store.counters.flush()
    lines, window = CHARTS["announces"].lines_by("protocol"), Window(START - 60, START - 1, 60)
    assert (await history.read(store.counters, lines, window, START)).values == {"http": [7], "udp": [3], "ws": [0]}


async def test_counts_over_http_are_all_but_those_over_others(store: Store) -> None:
    counters = store.counters
    for name, number in (
        ("joins", 720),
        ("joins.ws.v6", 120),
        ("joins.udp.v4", 60),
        ("joins.udp.v6", 120),
        ("joins.v4", 180),
    ):
        counters.count(name, by=number, at=START - 60)
    for name, number in (("seeders.http", 7), ("seeders.udp", 5)):
        counters.observe(name, number, at=START - 60)
    await counters.flush()
    window = Window(START - 60, START - 1, 60)
    joins = await history.read(counters, CHARTS["joins"].lines_by("protocol"), window, START)
    assert joins.values == {"http": [7], "udp": [3], "ws": [2]}
    families = await history.read(counters, CHARTS["joins"].lines_by("family"), window, START)
    assert families.values == {"v4": [3], "v6": [0]}
    peers = await history.read(counters, CHARTS["peers"].lines_by("protocol"), window, START)
    assert peers.values == {
        "seeders_http": [7],
        "seeders_udp": [5],
        "leechers_http": [None],
        "leechers_udp": [None],
        "seeders_ws": [None],
        "leechers_ws": [None],
    }
    assert CHARTS["latency"].lines_by("family") == CHARTS["latency"].lines
