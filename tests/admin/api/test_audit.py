import csv
import io
import json

from tests.admin.api.api_client import ApiClient, all_pages
from tests.admin.conftest import Admin

HASH = "ab" * 20


async def test_changes_are_listed_newest_first_and_filtered(full: ApiClient, admin: Admin) -> None:
    await full.ask("POST", "/users", 201, json={"user_id": "7", "name": "Alice"})
    await full.ask("PATCH", "/users/7", json={"name": "Bob"})
    await full.ask("PUT", f"/denials/{HASH}", json={"reason": "no"})
    found = await all_pages(full, "/audit", limit=1)
    assert [row["operation"] for row in found] == ["denial.add", "user.edit", "user.add"]
    edit = found[1]
    assert edit["objects"] == [{"kind": "user", "id": "7", "before": {"name": "Alice"}, "after": {"name": "Bob"}}]
    assert (edit["actor"], edit["role"], edit["way"]) == ("test admin", "admin", "api")
    for query, number in (
        ({"actor": "test admin"}, 3),
        ({"actor": edit["token_id"]}, 3),
        ({"actor": "nobody"}, 0),
        ({"operation": "user"}, 2),
        ({"object": HASH.upper()}, 1),
        ({"way": "cli"}, 0),
        ({"since": edit["at"] + 3600}, 0),
        ({"until": edit["at"] - 3600}, 0),
        ({"since": edit["at"] - 3600, "until": edit["at"] + 3600}, 3),
    ):
        assert len((await full.get("/audit", **query))["items"]) == number, query


async def test_changes_are_exported(full: ApiClient) -> None:
    await full.ask("PUT", f"/denials/{HASH}", json={"reason": "no"})
    await full.ask("DELETE", f"/denials/{HASH}", 204)
    for path, media_type in (("csv", "text/csv"), ("json-lines", "application/jsonl")):
        async with full.session.get(f"/api/v1/audit/{path}?operation=denial.add") as response:
            assert (response.status, response.content_type) == (200, media_type)
            assert "attachment" in response.headers["Content-Disposition"]
            text = await response.text()
        rows = list(csv.DictReader(io.StringIO(text))) if path == "csv" else [json.loads(text.splitlines()[0])]
        assert [row["operation"] for row in rows] == ["denial.add"]


async def test_only_admins_read_the_log_and_filters_are_validated(full: ApiClient, admin: Admin) -> None:
    for role in ("read", "operate"):
        async with admin.client(role) as program:
            for path in ("/audit", "/audit/csv", "/audit/json-lines"):
                assert (await program.get(f"/api/v1{path}")).status == 403
    for name, value in {"way": "x", "since": -1, "until": "x", "cursor": "1", "limit": 501}.items():
        assert await full.wrong_fields("GET", "/audit", params={name: value}) == [f"query.{name}"]
