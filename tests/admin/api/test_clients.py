import pytest
from yarl import URL

from tests.admin.api.api_client import ApiClient, all_pages
from tests.admin.conftest import Admin
from tests.store.harness import count_software, redis_of


async def test_the_allow_list_can_be_changed(full: ApiClient) -> None:
    assert await full.ask("PUT", "/clients/-TR40", json={"name": "Transmission"}) == {
        "prefix": "-TR40",
        "name": "Transmission",
    }
    await full.ask("PUT", "/clients/-qB", json={})
    rows = await all_pages(full, "/clients", limit=1)
    assert sorted(row["prefix"] for row in rows) == ["-TR40", "-qB"]
    await full.ask("DELETE", "/clients/-qB", 204)
    await full.ask("DELETE", "/clients/-qB", 404)


async def test_the_deny_list_can_be_changed(full: ApiClient, admin: Admin) -> None:
    row = {"prefix": "-TR283", "reason": "too old"}
    assert await full.ask("PUT", "/denied-clients/-TR283", json={"reason": "too old"}) == row
    assert await full.ask("PUT", "/denied-clients/M7-%2500", json={}) == {"prefix": "M7-%00", "reason": ""}
    rows = await all_pages(full, "/denied-clients", limit=1)
    assert sorted(each["prefix"] for each in rows) == ["-TR283", "M7-%00"] and row in rows
    await full.ask("DELETE", "/denied-clients/-TR283", 204)
    await full.ask("DELETE", "/denied-clients/-TR283", 404)
    assert await admin.store.deny_list.all() == {b"M7-\0": ""}


async def test_a_full_deny_list_is_a_conflict_and_a_reason_has_a_maximum(full: ApiClient, admin: Admin) -> None:
    fields = await full.wrong_fields("PUT", "/denied-clients/-TR", json={"reason": "x" * 201})
    assert fields == ["body.reason"]
    entries = {b"%d" % number: b"" for number in range(1000)}
    await redis_of(admin.store.connection).hset(admin.store.keys.denied_clients(), mapping=entries)
    await full.ask("PUT", "/denied-clients/-TR", 409, json={})


@pytest.mark.parametrize("path", ["%2500%25FF%2525", "%00%FF%25"])
async def test_non_printable_prefixes_are_percent_encoded(full: ApiClient, admin: Admin, path: str) -> None:
    """Percent-encoded once by hand, and twice by generated clients."""
    async with full.session.put(URL(f"{admin.url}/api/v1/clients/{path}", encoded=True), json={}) as response:
        assert (await response.json())["prefix"] == "%00%FF%25"
    assert await admin.store.allow_list.page(0) == (0, [(b"\0\xff%", "")])


@pytest.mark.parametrize("text", ["-" * 21, "%2500" * 21])
async def test_a_prefix_has_at_most_20_bytes(full: ApiClient, admin: Admin, text: str) -> None:
    async with full.session.put(URL(f"{admin.url}/api/v1/clients/{text}", encoded=True), json={}) as response:
        assert response.status == 422


async def test_clients_are_listed_by_count(full: ApiClient, admin: Admin) -> None:
    heard = {("qBittorrent 5.0.2", ""): 3, ("Transmission 4.0.6", "unknown torrent"): 2}
    await count_software(admin.store.client_software, 1, heard, admin.clock.now)
    joins = await full.get("/software/joins")
    assert joins["items"] == [{"name": "qBittorrent 5.0.2", "count": 3}]
    failures = await full.get("/software/failures", period="all")
    assert failures["items"] == [{"name": "Transmission 4.0.6: unknown torrent", "count": 2}]
    assert (await full.get("/software/joins", period="1999-01"))["total"] == 0
    assert await full.wrong_fields("GET", "/software/joins", params={"period": "2026-13"}) == ["query.period"]
