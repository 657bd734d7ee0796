"""One rule of a multiplier by its name: of a user, of a torrent and for all users."""

from typing import Any

import pytest

from tests.admin.api.api_client import ApiClient
from tests.admin.conftest import Admin
from tests.store.harness import START, info_hash

HASH = info_hash(1).hex()
END = START + 1000


@pytest.mark.parametrize("path", ["/users/7", f"/torrents/{HASH}", "/multipliers"])
async def test_one_rule_is_set_and_removed_beside_others(full: ApiClient, path: str) -> None:
    await full.ask("POST", "/users", 201, json={"user_id": "7", "upload_multiplier": 1.5})
    await full.ask("POST", "/torrents", 201, json={"info_hash": HASH, "upload_multiplier": 1.5})
    await full.ask("PUT", "/multipliers", json={"upload_multiplier": 1.5})
    rules = f"{path}/rules"
    plain = {"name": "", "direction": "upload", "factor": 1.5, "until": None, "active": True}
    assert await full.get(rules) == {"rules": [plain]}
    new = {"name": "donor", "direction": "upload", "factor": 2, "until": END, "active": True}
    free = {**new, "direction": "download", "factor": 0}
    reply = await full.ask("PUT", f"{rules}/donor", json={"upload": 2, "download": 0, "until": END})
    assert reply == {"rules": [plain, new, free]}
    reply = await full.ask("PUT", f"{rules}/donor", json={"download": 0.5})
    assert reply == {"rules": [plain, {**free, "factor": 0.5, "until": None}]}
    await full.ask("DELETE", f"{rules}/donor", 204)
    await full.ask("DELETE", f"{rules}/donor", 404)
    assert await full.get(rules) == {"rules": [plain]}
    incomplete: list[dict[str, Any]] = [{}, {"until": END}, {"upload": 2, "until": START - 1}]
    for wrong in [*incomplete, {"upload": 1001}, {"upload": "2"}, {"upload": 2, "until": 10**12}]:
        await full.ask("PUT", f"{rules}/donor", 422, json=wrong)
    for name in ("2nd", "a b", "inf", "a" * 65):
        await full.ask("PUT", f"{rules}/{name}", 422, json={"upload": 2})
    for number in range(7):
        await full.ask("PUT", f"{rules}/r{number}", json={"upload": 2})
    assert "at most 8" in (await full.ask("PUT", f"{rules}/r7", 422, json={"upload": 2}))["detail"]


async def test_rules_of_unknown_users_and_torrents_are_not_found(full: ApiClient) -> None:
    for path in ("/users/9", f"/torrents/{'9' * 40}"):
        await full.ask("GET", f"{path}/rules", 404)
        await full.ask("PUT", f"{path}/rules/donor", 404, json={"upload": 2})
        await full.ask("DELETE", f"{path}/rules/donor", 404)


async def test_a_list_shows_which_rules_have_ended(full: ApiClient, admin: Admin) -> None:
    """Also those that a site wrote, without its text that is no rule."""
    await full.ask("POST", "/torrents", 201, json={"info_hash": HASH})
    await admin.store.torrents.edit(info_hash(1), {"multi_up": f"2 {START - 5} old, 3 {END} new"})
    shown = (await full.get(f"/torrents/{HASH}/rules"))["rules"]
    assert [(rule["name"], rule["active"]) for rule in shown] == [("old", False), ("new", True)]


async def test_changes_of_rules_are_recorded(full: ApiClient, admin: Admin) -> None:
    await full.ask("POST", "/users", 201, json={"user_id": "7", "upload_multiplier": 1.5})
    await full.ask("POST", "/torrents", 201, json={"info_hash": HASH})
    await full.ask("PUT", "/users/7/rules/donor", json={"upload": 2, "until": END})
    await full.ask("PUT", f"/torrents/{HASH}/rules/event", json={"download": 0})
    await full.ask("PUT", "/multipliers/rules/event", json={"upload": 3})
    await full.ask("DELETE", "/multipliers/rules/event", 204)
    rows = [{"user_id": "7", "upload_multiplier": "4 group"}]
    await full.ask("POST", "/users/batch", json={"users": rows})
    entries = (await full.get("/audit"))["items"][:5]
    changed = [(entry["operation"], each["before"], each["after"]) for entry in entries for each in entry["objects"]]
    both = f"1.5, 2 {END} donor"
    assert changed == [
        ("user.batch", {"upload_multiplier": both}, {"upload_multiplier": "4 group"}),
        ("multipliers.set", {"upload": "3 event"}, {"upload": "1"}),
        ("multipliers.set", {"upload": "1"}, {"upload": "3 event"}),
        ("torrent.edit", {"download_multiplier": "1"}, {"download_multiplier": "0 event"}),
        ("user.edit", {"upload_multiplier": "1.5"}, {"upload_multiplier": both}),
    ]
