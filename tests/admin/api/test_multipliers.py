from typing import Any

import pytest

from tests.admin.api.api_client import ApiClient, swarms_of
from tests.admin.conftest import Admin
from tests.store.harness import ALICE, START, info_hash, update

HASH = info_hash(1).hex()
END = START + 1000


async def test_multipliers_for_all_users_are_replaced(full: ApiClient) -> None:
    none: dict[str, Any] = {"upload_multiplier": 1.0, "download_multiplier": 1.0}
    none |= {"upload_multiplier_until": None, "download_multiplier_until": None}
    assert await full.get("/multipliers") == none
    wanted = {**none, "download_multiplier": 0.0, "download_multiplier_until": END}
    sent = {"download_multiplier": 0, "download_multiplier_until": END}
    assert await full.ask("PUT", "/multipliers", json=sent) == wanted
    assert await full.get("/multipliers") == wanted
    assert await full.ask("PUT", "/multipliers", json={}) == none


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("upload_multiplier", 1001),
        ("upload_multiplier", -1),
        ("download_multiplier", "0.5.5"),
        ("download_multiplier", "2 -inf"),
        ("download_multiplier", "2 1 2"),
        ("download_multiplier", True),
        ("download_multiplier", "2, " * 90 + "2"),
        ("upload_multiplier_until", 0),
        ("download_multiplier_until", 10**13),
        ("download_multiplier_until", "tomorrow"),
    ],
)
async def test_invalid_multipliers_change_nothing(full: ApiClient, field: str, value: Any) -> None:
    assert await full.wrong_fields("PUT", "/multipliers", json={field: value}) == [f"body.{field}"]
    assert (await full.get("/multipliers"))["upload_multiplier"] == 1


async def test_users_and_torrents_have_multipliers_with_an_end(full: ApiClient) -> None:
    await full.ask("POST", "/users", 201, json={"user_id": "7"})
    await full.ask("POST", "/torrents", 201, json={"info_hash": HASH})
    given = {"upload_multiplier": 2, "upload_multiplier_until": END, "download_multiplier": 0.5}
    for path in ("/users/7", f"/torrents/{HASH}"):
        row = await full.ask("PATCH", path, json=given)
        assert {name: row[name] for name in given} == given and row["download_multiplier_until"] is None
        row = await full.ask("PATCH", path, json={"upload_multiplier": 3})
        assert (row["upload_multiplier"], row["upload_multiplier_until"]) == (3, None)
        problem = await full.ask("PATCH", path, 422, json={"upload_multiplier_until": END})
        assert problem["detail"] == "upload_multiplier_until needs upload_multiplier"
    for path in ("/users", "/torrents"):
        (row,) = (await full.get(path))["items"]
        assert (row["upload_multiplier"], row["download_multiplier"]) == (3, 0.5)


async def test_other_rules_of_a_user_are_edited(full: ApiClient) -> None:
    await full.ask("POST", "/users", 201, json={"user_id": "7"})
    row = await full.get("/users/7")
    assert (row["max_downloads"], row["hnr_exempt"]) == (None, False)
    row = await full.ask("PATCH", "/users/7", json={"max_downloads": 3, "hnr_exempt": True})
    assert (row["max_downloads"], row["hnr_exempt"], row["enabled"]) == (3, True, True)
    row = await full.ask("PATCH", "/users/7", json={"max_downloads": -1, "enabled": False})
    assert (row["max_downloads"], row["hnr_exempt"], row["enabled"]) == (None, True, False)
    assert await full.wrong_fields("PATCH", "/users/7", json={"max_downloads": -2}) == ["body.max_downloads"]


async def test_pending_hit_and_runs_are_listed(full: ApiClient, admin: Admin, redis_url: str) -> None:
    await admin.store.torrents.add(info_hash(1), {"name": "a film"})
    await admin.store.users.add("7", ALICE)
    rules = {"accounts": "required", "hnr_min_bytes": 100, "hnr_threshold": 1000, "hnr_grace": 600}
    async with swarms_of(admin, redis_url, **rules) as store:
        for torrent in (1, 2):
            await store.announce(update(1, "s", torrent, passkey=ALICE))
            await store.pass_time(10)
            await store.announce(update(1, "x", torrent, passkey=ALICE, downloaded=500, bytes_left=5))
        at = int(store.clock.now) + 600
    await admin.store.torrents.remove(info_hash(2))
    page = await full.get("/hit-and-runs/pending")
    assert (page["total"], [row["at"] for row in page["items"]]) == (2, [at - 10, at])
    expected = {"user_id": "7", "torrent_id": "1", "info_hash": HASH, "name": "a film", "at": at - 10}
    expected |= {"downloaded": 500, "uploaded": 0, "total_seconds": 10, "seed_seconds": 0}
    assert page["items"][0] == expected
    assert (page["items"][1]["info_hash"], page["items"][1]["name"]) == (None, "")
    assert (await full.get("/hit-and-runs"))["total"] == 0


RULES = f"2 {END} donor, 1.5 group"


@pytest.mark.parametrize("path", ["/users/7", f"/torrents/{HASH}", "/multipliers"])
async def test_all_rules_of_a_multiplier_are_set_as_text(full: ApiClient, path: str) -> None:
    """A reply has a number where there is one rule without a name, and the text otherwise; it may be sent back."""
    method = "PUT" if path == "/multipliers" else "PATCH"
    await full.ask("POST", "/users", 201, json={"user_id": "7", "upload_multiplier": "3 old"})
    await full.ask("POST", "/torrents", 201, json={"info_hash": HASH, "upload_multiplier": "3 old"})
    row = await full.ask(method, path, json={"upload_multiplier": RULES, "download_multiplier": f"0 {END}"})
    names = ("upload_multiplier", "upload_multiplier_until", "download_multiplier", "download_multiplier_until")
    assert [row[name] for name in names] == [RULES, None, 0, END]
    again = await full.ask(method, path, json={name: row[name] for name in names})
    shown = await full.get(path)
    assert again == row == {name: shown[name] for name in row}
    ended = {"upload_multiplier": f"2 {START - 1} donor, 3"}
    for wrong, why in (
        (ended, "in the future"),
        ({"upload_multiplier": 2, "upload_multiplier_until": START - 1}, "in the future"),
        ({"upload_multiplier": "2 a, 3 a"}, "same name"),
        ({"upload_multiplier": "2 inf"}, "begins with a letter"),
        ({"upload_multiplier": ", ".join(["2"] * 9)}, "at most 8"),
        ({"upload_multiplier": RULES, "upload_multiplier_until": END}, "one number"),
    ):
        assert why in (await full.ask(method, path, 422, json=wrong))["detail"]
    shown = await full.get(path)
    assert row == {name: shown[name] for name in row}


async def test_new_users_and_torrents_have_no_rule_that_has_ended(full: ApiClient) -> None:
    ended = {"download_multiplier": 0, "download_multiplier_until": START - 1}
    for path, row in (("/users", {"user_id": "7"}), ("/torrents", {"info_hash": HASH})):
        problem = await full.ask("POST", path, 422, json={**row, **ended})
        assert problem["detail"] == "the end of a multiplier must be in the future"
