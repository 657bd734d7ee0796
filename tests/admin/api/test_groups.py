"""/groups, and the group of a user."""

from typing import Any

import pytest

from tests.admin.api.api_client import ApiClient
from tests.store.harness import START

PLAIN: dict[str, Any] = {
    "name": "",
    "may_announce": True,
    "can_leech": True,
    "max_downloads": None,
    "upload_multiplier": 1.0,
    "upload_multiplier_until": None,
    "download_multiplier": 1.0,
    "download_multiplier_until": None,
    "hnr_exempt": False,
}


async def test_groups_are_put_changed_listed_and_deleted(full: ApiClient) -> None:
    assert await full.get("/groups") == {"groups": []}
    vip = {"name": "vip", "download_multiplier": 0, "download_multiplier_until": START + 60, "max_downloads": 8}
    wanted = {"group_id": 20, **PLAIN, **vip}
    assert await full.ask("PUT", "/groups/20", json=vip) == wanted
    assert await full.ask("PUT", "/groups/3", json={"may_announce": False}) == {
        "group_id": 3,
        **PLAIN,
        "may_announce": False,
    }
    assert await full.get("/groups/20") == wanted
    assert [group["group_id"] for group in (await full.get("/groups"))["groups"]] == [3, 20]
    changed = await full.ask("PATCH", "/groups/20", json={"max_downloads": -1})
    assert changed == {**wanted, "max_downloads": None}
    assert await full.ask("PUT", "/groups/20", json={}) == {"group_id": 20, **PLAIN}
    assert await full.ask("DELETE", "/groups/20", 204) is None
    for method, body in (("GET", None), ("DELETE", None), ("PATCH", {})):
        await full.ask(method, "/groups/20", 404, json=body)


async def test_a_user_has_a_group(full: ApiClient) -> None:
    await full.ask("POST", "/users", 201, json={"user_id": "7", "group": 20})
    assert (await full.get("/users/7"))["group"] == 20
    assert (await full.ask("PATCH", "/users/7", json={"group": -1}))["group"] is None
    rows = [{"user_id": "7", "group": 3}, {"user_id": "8", "group": 3}]
    await full.ask("POST", "/users/batch", json={"users": rows})
    assert [user["group"] for user in (await full.get("/users"))["items"]] == [3, 3]
    for wrong in ("vip", 0, -2, 10**9):
        assert await full.wrong_fields("PATCH", "/users/7", json={"group": wrong}) == ["body.group"]


@pytest.mark.parametrize(
    ("name", "value"), [("max_downloads", "x"), ("upload_multiplier", -1), ("may_announce", 2), ("slots", 1)]
)
async def test_an_invalid_group_changes_nothing(full: ApiClient, name: str, value: Any) -> None:
    assert await full.wrong_fields("PUT", "/groups/20", json={name: value}) == [f"body.{name}"]
    await full.ask("PUT", "/groups/0", 422, json={})
    assert await full.get("/groups") == {"groups": []}
