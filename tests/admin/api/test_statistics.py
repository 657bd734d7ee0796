from tests.admin.api.api_client import ApiClient
from tests.admin.conftest import Admin
from tests.store.harness import info_hash
from tracker.store.stats.refusal_samples import RefusedAnnounce


async def test_totals_are_shown(full: ApiClient, admin: Admin) -> None:
    await admin.store.users.add()
    sums = await full.get("/statistics")
    assert (sums["users"], sums["torrents"], sums["totals"]["seeders"]) == (1, 0, 0)
    assert sums["failures"] == {}


async def test_a_counter_is_shown_over_time(full: ApiClient, admin: Admin) -> None:
    counters, now = admin.store.counters, admin.clock.now
    counters.count("announces", by=3)
    counters.count("failures.no such torrent", at=now - 120)
    await counters.flush()
    assert (await full.get("/counters"))["items"] == ["announces", "failures.no such torrent"]
    assert (await full.get("/counters", pattern="ann*"))["items"] == ["announces"]
    series = await full.get("/counters/announces")
    assert series["precision"] == 60 and len(series["items"]) == 120
    assert series["items"][-1] == {"start": int(now // 60 * 60), "count": 3}
    bare = await full.get("/counters/failures.no such torrent", precision=1, fill="false")
    assert [each["count"] for each in bare["items"]] == []  # a slice of one second is dropped after two minutes
    bare = await full.get("/counters/failures.no such torrent", fill="false", since=int(now) - 200)
    assert [each["count"] for each in bare["items"]] == [1]
    assert (await full.get("/counters/announces", fill="false", until=int(now) - 100))["items"] == []


async def test_an_unknown_counter_is_empty(full: ApiClient) -> None:
    assert {each["count"] for each in (await full.get("/counters/nothing"))["items"]} == {0}
    assert (await full.get("/counters/nothing", fill="false"))["items"] == []


async def test_invalid_parameters_of_series_are_refused(full: ApiClient) -> None:
    for query, field in (
        ({"precision": "7"}, "query.precision"),
        ({"precision": "+60"}, "query.precision"),
        ({"precision": "60.0"}, "query.precision"),
        ({"since": "-1"}, "query.since"),
        ({"fill": "yes"}, "query.fill"),
        ({"until": "1e3"}, "query.until"),
        ({"form": "json"}, "query.form"),
    ):
        assert await full.wrong_fields("GET", "/counters/announces", params=query) == [field]


async def test_a_distribution_is_shown_over_time(full: ApiClient, admin: Admin) -> None:
    for value in (1.0, 2.0, 3.0):
        admin.store.counters.observe("announce_seconds", value)
    await admin.store.counters.flush()
    assert (await full.get("/distributions"))["items"] == ["announce_seconds"]
    found = await full.get("/distributions/announce_seconds")
    (only,) = found["items"]
    assert (only["count"], only["sum"], only["mean"], only["min"], only["max"]) == (3, 6.0, 2.0, 1.0, 3.0)
    assert found["total"]["sum"] == 6.0
    assert found["total"]["deviation"] == only["deviation"]
    assert (await full.get("/distributions/nothing"))["total"] is None


async def test_refused_announces_of_a_reason_are_shown(full: ApiClient, admin: Admin) -> None:
    now = int(admin.clock())
    samples = [RefusedAnnounce(now - 5, info_hash(1), "aria2", "7"), RefusedAnnounce(now, info_hash(2), "Deluge 2.1")]
    await admin.store.refusal_samples.add({"unknown torrent": samples})
    assert (await full.get("/refusals/unknown torrent"))["items"] == [
        {"at": now, "info_hash": info_hash(2).hex(), "client": "Deluge 2.1", "user_id": None},
        {"at": now - 5, "info_hash": info_hash(1).hex(), "client": "aria2", "user_id": "7"},
    ]
    assert (await full.get("/refusals/nothing"))["items"] == []
