"""Lists with filters, and their exports as CSV and JSON lines."""

import csv
import io
import json
from typing import Any

import pytest

from tests.admin.api.api_client import ApiClient, all_pages
from tests.admin.conftest import Admin
from tests.store.harness import info_hash
from tracker.operations import lists


async def exported(asking: ApiClient, path: str, **query: str) -> list[dict[str, Any]]:
    async with asking.session.get(f"/api/v1/{path}", params=query) as response:
        assert response.status == 200
        is_csv = path.endswith("csv")
        assert response.content_type == ("text/csv" if is_csv else "application/jsonl")
        assert "attachment" in response.headers["Content-Disposition"]
        text = await response.text()
    if is_csv:
        return list(csv.DictReader(io.StringIO(text)))
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
async def listed(admin: Admin) -> Admin:
    """Three torrents of sizes 30, 10 and 20, the last one disabled and private; three users, the last one disabled."""
    for number, size in ((1, 30), (2, 10), (3, 20)):
        await admin.store.torrents.add(info_hash(number), {"name": f"=film {number}", "size": str(size)})
        user_id, passkey = str(number), str(number) * 20
        await admin.store.users.add(
            user_id, passkey, name=f"user {number}", enabled=number < 3, uploaded=size
        )
    await admin.store.torrents.edit(info_hash(3), {"enabled": "0", "private": "1", "labels": "a b"})
    return admin


async def test_torrents_are_sorted_and_filtered(listed: Admin, full: ApiClient) -> None:
    async def sizes(**query: Any) -> list[int]:
        return [row["size"] for row in await all_pages(full, "/torrents", limit=2, **query)]

    assert await sizes(sort="size") == [30, 20, 10]
    assert await sizes(sort="name", order="asc") == [30, 10, 20]
    assert await sizes(sort="size", enabled="true") == [30, 10]
    assert await sizes(sort="added", private="true") == [20]
    assert set(await sizes(seeded="false")) == {30, 20, 10}
    assert await sizes(seeded="true") == []
    assert await sizes(q="film", enabled="true") == [30, 10]
    await listed.store.torrent_listing.rank()
    page = await full.get("/torrents", enabled="false", limit=1)
    assert (page["total"], page["next_cursor"]) == (1, None)
    (row,) = page["items"]
    assert (row["added"], row["empty_since"]) == (int(listed.clock.now), None)
    for query in ({"q": "a", "sort": "size"}, {"enabled": "true", "offset": 1}, {"cursor": "w1"}):
        await full.wrong_fields("GET", "/torrents", params=query)
    await full.get("/torrents", 422, private="true", cursor="x")


@pytest.mark.parametrize("form", ["csv", "json-lines"])
async def test_lists_are_exported_as_filtered_and_sorted(
    listed: Admin, reader: ApiClient, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several pages, without passkeys. What a spreadsheet would run as a formula begins with an apostrophe."""
    monkeypatch.setattr(lists, "_PAGE", 1)
    found = await exported(reader, f"torrents/{form}", sort="size")
    assert [int(row["size"]) for row in found] == [30, 20, 10]
    assert found[0]["name"] == ("'=film 1" if form == "csv" else "=film 1")
    assert found[0].keys() == (await reader.get("/torrents"))["items"][0].keys()
    (only,) = await exported(reader, f"torrents/{form}", enabled="false")
    assert only["labels"] == ('["a","b"]' if form == "csv" else ["a", "b"])
    assert [row["name"][-1] for row in await exported(reader, f"torrents/{form}", q="film 2")] == ["2"]
    users = await exported(reader, f"users/{form}", sort="uploaded", order="desc")
    assert [row["user_id"] for row in users] == ["1", "3", "2"]
    assert users[0].keys() == (await reader.get("/users"))["items"][0].keys()
    assert [row["user_id"] for row in await exported(reader, f"users/{form}", enabled="false")] == ["3"]


async def test_an_export_is_bounded(listed: Admin, full: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MAX_EXPORTED", 2)
    for what in ("torrents", "users"):
        assert len(await exported(full, f"{what}/csv")) == 2


async def test_filters_of_exports_are_validated(full: ApiClient) -> None:
    for what in ("torrents", "users"):
        for query in ({"sort": "x"}, {"enabled": "maybe"}, {"limit": "5"}):
            assert await full.wrong_fields("GET", f"/{what}/csv", params=query)
