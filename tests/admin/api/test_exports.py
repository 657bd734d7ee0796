"""Lists with filters, and their exports as CSV and JSON lines."""

import csv
import io
import json
from typing import Any, cast

import pytest

from tests.admin.api.api_client import ApiClient, all_pages
from tests.admin.conftest import Admin
from tests.store.harness import info_hash
from tracker.admin.api import exports
from tracker.admin.api.models import Part
from tracker.errors import StoreUnavailable


async def fetched(asking: ApiClient, path: str, **query: Any) -> tuple[str, str]:
    """The text, and what the header says."""
    async with asking.session.get(f"/api/v1/{path}", params=query) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == ("text/csv" if path.endswith("csv") else "application/jsonl")
        assert "attachment" in response.headers["Content-Disposition"]
        return await response.text(), response.headers["Export-Complete"]


async def exported(asking: ApiClient, path: str, **query: Any) -> list[dict[str, Any]]:
    """The rows of a complete export."""
    text, _ = await fetched(asking, path, **query)
    if path.endswith("csv"):
        return list(csv.DictReader(io.StringIO(text)))
    *rows, end = (json.loads(line) for line in text.splitlines())
    assert end == {"rows": len(rows), "next_cursor": None}
    return rows


@pytest.fixture
async def listed(admin: Admin) -> Admin:
    """Three torrents of sizes 30, 10 and 20, the last one disabled and private; three users, the last one disabled."""
    for number, size in ((1, 30), (2, 10), (3, 20)):
        await admin.store.torrents.add(info_hash(number), {"name": f"=film {number}", "size": str(size)})
        user_id, passkey = str(number), str(number) * 20
        await admin.store.users.add(user_id, passkey, name=f"user {number}", enabled=number < 3, uploaded=size)
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
    for query in ({"q": "a", "sort": "size"}, {"offset": 1}):
        await full.wrong_fields("GET", "/torrents", params=query)
    for query in ({"private": "true", "cursor": "x"}, {"cursor": "w1"}):
        await full.get("/torrents", 422, **query)


@pytest.mark.parametrize("form", ["csv", "json-lines"])
async def test_lists_are_exported_as_filtered_and_sorted(
    listed: Admin, reader: ApiClient, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several pages, without passkeys. What a spreadsheet would run as a formula begins with an apostrophe."""
    monkeypatch.setattr(exports, "PAGE", 1)
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


@pytest.mark.parametrize("query", [{}, {"q": "m"}, {"enabled": "true"}], ids=str)
async def test_an_export_that_ends_early_says_so_and_where_it_continues(
    listed: Admin, full: ApiClient, query: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its last line, and in the header where the length of the list is known before."""
    await listed.store.torrents.edit(info_hash(3), {"enabled": "1"})
    monkeypatch.setattr(exports, "PAGE", 1)
    text, header = await fetched(full, "torrents/json-lines", limit=2, **query)
    *rows, end = map(json.loads, text.splitlines())
    assert len(rows) == end["rows"] == 2 and end["next_cursor"]
    assert header in ("no", "unknown") and (query or header == "no")
    rest, last = await fetched(full, "torrents/json-lines", cursor=end["next_cursor"], **query)
    more, final = map(json.loads, rest.splitlines())
    assert {row["info_hash"] for row in (*rows, more)} == {info_hash(number).hex() for number in (1, 2, 3)}
    assert (final, last) == ({"rows": 1, "next_cursor": None}, "yes")
    lines = (await fetched(full, "torrents/csv", limit=2, **query))[0].splitlines()
    assert lines[3:] == [f"# ends early after 2 rows; next_cursor: {end['next_cursor']}"]


@pytest.mark.parametrize("what", ["users", "audit"])
async def test_other_lists_end_early_in_the_same_way(listed: Admin, full: ApiClient, what: str) -> None:
    for number in range(3):
        await full.ask("PATCH", f"/users/{number + 1}", json={"name": f"name {number}"})
    rows, cursor = list[str](), cast("str | None", "")
    while cursor is not None:
        text, _ = await fetched(full, f"{what}/json-lines", limit=2, cursor=cursor)
        *found, end = text.splitlines()
        rows += found
        cursor = json.loads(end)["next_cursor"]
    assert len(rows) == len(set(rows)) == 3
    assert "# ends early after 2 rows" in (await fetched(full, f"{what}/csv", limit=2))[0].splitlines()[-1]


@pytest.mark.parametrize(
    ("columns", "end"),
    [
        ((), '{"rows":1,"next_cursor":"f1","error":"the store is unavailable"}'),
        (("a",), "# ends early after 1 rows: the store is unavailable; next_cursor: f1"),
    ],
)
async def test_an_export_that_meets_an_unavailable_store_says_so(columns: tuple[str, ...], end: str) -> None:
    """Its first part was read; the next one is in a shard that does not answer."""

    async def read(cursor: str, count: int) -> Part:
        if cursor:
            raise StoreUnavailable("the store does not answer")
        return Part([{"a": 1}], "f1", 3, 0)

    made = await exports.export(read, "x", "", 3, columns)
    text = b"".join([chunk async for chunk in made["content"]]).decode()
    assert text.splitlines()[-1] == end
    assert made["headers"] == {"Export-Complete": "yes"}


async def test_filters_of_exports_are_validated(full: ApiClient) -> None:
    for what in ("torrents", "users"):
        for query in ({"sort": "x"}, {"enabled": "maybe"}, {"limit": "0"}):
            assert await full.wrong_fields("GET", f"/{what}/csv", params=query)
