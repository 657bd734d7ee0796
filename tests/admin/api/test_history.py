"""The charts of the dashboard as data."""

import pytest

from tests.admin.api.api_client import ApiClient
from tests.admin.conftest import Admin
from tracker.operations.history import CHARTS, PARTS


async def test_a_chart_has_slices_and_lines(full: ApiClient, admin: Admin) -> None:
    now = int(admin.clock())
    admin.clock.now += 30
    admin.store.counters.count("joins.v4", by=120, at=now - 60)
    admin.store.counters.observe("leechers", 5, 7, at=now)
    await admin.store.counters.flush()
    joins = await full.get("/history/joins", range="2h", by="family")
    assert (joins["unit"], joins["step"], joins["until"]) == ("per second", 60, now + 30)
    assert joins["incomplete"] and joins["starts"][-2:] == [now - 60, now]
    lines = {line["name"]: line["values"] for line in joins["lines"]}
    assert set(lines) == {"v4", "v6"} and lines["v4"][-2:] == [2, 0] and not any(lines["v6"])
    peers = await full.get("/history/peers", range="2m")
    assert peers["step"] == 5  # samples are 5 s apart
    lines = {line["name"]: line["values"] for line in peers["lines"]}
    assert lines["seeders"] == [None] * len(peers["starts"])
    assert lines["leechers"][peers["starts"].index(now)] == 6


async def test_every_chart_is_served_for_every_role(full: ApiClient, reader: ApiClient) -> None:
    for name in CHARTS:
        for by in PARTS:
            shown = await full.get(f"/history/{name}", by=by)
            assert shown == await reader.get(f"/history/{name}", by=by)
            lines = [line.name for line in CHARTS[name].lines_by(by)]
            assert [line["name"] for line in shown["lines"]] == lines
            assert [len(line["values"]) for line in shown["lines"]] == [len(shown["starts"])] * len(lines)


@pytest.mark.parametrize(("query", "step"), [({"step": 300}, 300), ({"step": 60}, 60), ({}, 5)])
async def test_the_step_is_the_shortest_slice(full: ApiClient, admin: Admin, query: dict[str, int], step: int) -> None:
    now = int(admin.clock())
    shown = await full.get("/history/traffic", since=now - 500, until=now - 100, **query)
    assert (shown["step"], shown["since"], shown["until"]) == (step, now - 500, now - 100)


async def test_invalid_queries_are_refused(full: ApiClient) -> None:
    for query, field in (
        ({"range": "1h"}, "query.range"),
        ({"step": "7"}, "query.step"),
        ({"by": "country"}, "query.by"),
        ({"since": "-1"}, "query.since"),
        ({"until": "x"}, "query.until"),
    ):
        assert await full.wrong_fields("GET", "/history/peers", params=query) == [field]
