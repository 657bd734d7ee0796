from typing import Any

import pytest
from multidict import CIMultiDict

from tests.admin.api.api_client import ApiClient, all_pages, swarms_of
from tests.admin.conftest import Admin
from tests.every_field import USER
from tests.store.harness import ALICE, BOB, info_hash, redis_of, update


async def test_passkeys_are_shown_to_operators_only(full: ApiClient, reader: ApiClient) -> None:
    async with full.session.post("/api/v1/users", json={}) as made:
        assert (made.status, made.headers["Location"]) == (201, "/api/v1/users/1")
        told = await made.json()
    assert told["announce_path"] == f"/{told['passkey']}/announce"
    assert (await full.get("/users/1"))["passkey"] == told["passkey"]
    assert (await reader.get("/users/1"))["passkey"] is None
    for path in ("/users", "/hit-and-runs", "/users/1/torrents/active"):
        assert told["passkey"] not in str(await full.get(path))


async def test_unregistered_torrents_of_a_user_are_listed(full: ApiClient, admin: Admin) -> None:
    await full.ask("POST", "/users", 201, json={"user_id": "7"})
    store, now = admin.store, int(admin.clock())
    tried = {info_hash(number).hex(): now - number for number in (1, 2, 3)}
    await redis_of(store.connection).zadd(store.keys.user_unregistered(7), tried)
    await store.torrents.add(info_hash(2))
    assert (await full.get("/users/7/unregistered"))["items"] == [
        {"info_hash": info_hash(number).hex(), "at": now - number} for number in (1, 3)
    ]
    await full.ask("GET", "/users/8/unregistered", 404)


async def test_a_taken_user_id_is_a_conflict(full: ApiClient) -> None:
    await full.ask("POST", "/users", 201, json={"user_id": "7", "can_leech": False})
    await full.ask("POST", "/users", 409, json={"user_id": "7"})
    assert await full.wrong_fields("POST", "/users", json={"user_id": "07"}) == ["body.user_id"]
    await full.ask("POST", "/users", 409, json={"user_id": 7})
    assert (await full.get("/users/7"))["can_leech"] is False


async def test_users_can_be_changed(full: ApiClient) -> None:
    await full.ask("POST", "/users", 201, json={"user_id": "7"})
    row = await full.ask("PATCH", "/users/7", json={"enabled": False})
    assert (row["enabled"], row["can_leech"]) == (False, True)
    old = (await full.get("/users/7"))["passkey"]
    new = (await full.ask("POST", "/users/7/passkey"))["passkey"]
    assert new != old
    assert (await full.get("/users/7"))["passkey"] == new
    assert (await full.get("/users/7"))["enabled"] is False
    await full.ask("DELETE", "/users/7", 204)
    await full.ask("DELETE", "/users/7", 404)


@pytest.mark.parametrize("way", ["new", "batch", "known", "patch"])
async def test_every_field_of_a_user_can_be_set(full: ApiClient, way: str) -> None:
    if way in ("known", "patch"):
        await full.ask("POST", "/users", 201, json={"user_id": "7"})
    if way == "new":
        await full.ask("POST", "/users", 201, json={"user_id": "7", **USER})
    elif way == "patch":
        await full.ask("PATCH", "/users/7", json=USER)
    else:
        body = {"users": [{"user_id": "7", **USER}], "replace_totals": True}
        assert (await full.ask("POST", "/users/batch", json=body))["errors"] == 0
    (row,) = (await full.get("/users"))["items"]
    assert row == {"user_id": "7", **USER}
    none = {"upload_multiplier": 1, "download_multiplier": 1, "max_downloads": -1, "hnr_exempt": False}
    row = await full.ask("PATCH", "/users/7", json={**none, "name": "", "enabled": True})
    assert (row["upload_multiplier"], row["download_multiplier_until"]) == (1, None)
    assert (row["max_downloads"], row["hnr_exempt"], row["name"], row["reason"]) == (None, False, "", "")


@pytest.mark.parametrize("path", ["POST /users", "PATCH /users/7", "POST /users/batch"])
async def test_an_end_needs_its_multiplier(full: ApiClient, path: str) -> None:
    await full.ask("POST", "/users", 201, json={"user_id": "7"})
    row = {"upload_multiplier_until": 1_900_000_000}
    method, _, path = path.partition(" ")
    if path.endswith("batch"):
        reply = await full.ask(method, path, json={"users": [{"user_id": "7", **row}]})
        assert reply["rows"][0]["error"] == "upload_multiplier_until needs upload_multiplier"
    else:
        assert "needs upload_multiplier" in (await full.ask(method, path, 422, json=row))["detail"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("POST", "/passkey"),
        ("POST", "/forgive"),
        ("POST", "/forgive/1"),
        ("GET", "/torrents/hnr"),
    ],
)
async def test_unknown_users_are_not_found(full: ApiClient, method: str, path: str) -> None:
    options: dict[str, Any] = {"json": {}} if method == "PATCH" else {}
    await full.ask(method, f"/users/999{path}", 404, **options)
    assert await full.wrong_fields(method, f"/users/0x1{path}", **options) == ["path.user_id"]


async def test_unreported_downloads_are_shown(full: ApiClient, admin: Admin) -> None:
    await full.ask("POST", "/users", 201, json={"user_id": "7"})
    assert (await full.get("/users/7"))["unreported"] == 0
    keys, redis = admin.store.keys, redis_of(admin.store.connection)
    await redis.hset(keys.user("7"), "unreported", "5000")
    await redis.hset(keys.user_torrent("7", "1"), "unreported", "5000")
    await redis.sadd(keys.user_set("7", "active"), "1", "2")
    await redis.hset(keys.user_torrent("7", "2"), "unreported", "-300")
    assert (await full.get("/users/7"))["unreported"] == 5000
    rows = (await full.get("/users/7/torrents/active"))["items"]
    assert {row["torrent_id"]: row["unreported"] for row in rows} == {"1": 5000, "2": 0}


async def test_cut_credit_is_shown_with_the_torrent(full: ApiClient, admin: Admin, redis_url: str) -> None:
    await admin.store.users.add("7", ALICE)
    async with swarms_of(admin, redis_url, accounts="required", max_credit=100) as store:
        for torrent in (1, 2):
            await store.announce(update(1, "s", torrent=torrent, passkey=ALICE))
        await store.pass_time(10)
        await store.announce(update(1, torrent=1, passkey=ALICE, uploaded=1234, downloaded=5))
    assert (await full.get("/users/7"))["credit_cut"] == 234
    assert [row["credit_cut"] for row in (await full.get("/users"))["items"]] == [234]
    rows = (await full.get("/users/7/torrents/active"))["items"]
    assert {row["torrent_id"]: row["credit_cut"] for row in rows} == {"1": 234, "2": 0}


async def test_a_user_is_not_found_by_passkey(full: ApiClient, admin: Admin) -> None:
    """Proxies would log it."""
    await admin.store.users.add("7", "1" * 15 + "a")
    assert await full.wrong_fields("GET", f"/users/{'1' * 15}a") == ["path.user_id"]


async def test_the_list_is_paged(full: ApiClient, admin: Admin) -> None:
    for _ in range(5):
        await admin.store.users.add()
    rows = await all_pages(full, "/users", limit=2)
    assert [row["user_id"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert (await full.get("/users"))["total"] == 5


async def test_torrents_and_hit_and_runs_of_a_user_are_listed(full: ApiClient, admin: Admin, redis_url: str) -> None:
    await admin.store.torrents.add(info_hash(1), {"name": "a film"})
    await admin.store.torrents.add(info_hash(2))
    await admin.store.users.add("7", ALICE)
    await admin.store.users.add("8", BOB)
    rules = {"accounts": "required", "hnr_min_bytes": 100, "hnr_threshold": 1000, "max_gap": 7200}
    async with swarms_of(admin, redis_url, **rules) as store:
        for torrent in (1, 2):
            await store.announce(update(1, "s", torrent=torrent, passkey=ALICE))
            await store.pass_time(10)
            await store.announce(update(1, "x", torrent=torrent, passkey=ALICE, downloaded=500, bytes_left=5))
        await store.announce(update(2, "s", passkey=BOB))
    shown = await full.get("/users/7")
    assert shown["torrents"] == {"active": 0, "complete": 0, "incomplete": 2, "hnr": 2}
    assert shown["downloaded"] == 1000
    owed = await all_pages(full, "/users/7/torrents/hnr")
    first = next(row for row in owed if row["info_hash"] == info_hash(1).hex())
    assert (first["name"], first["downloaded"], first["total_seconds"]) == ("a film", 500, 10)
    assert (await full.get("/users/8/torrents/active"))["items"][0]["peers"] == 1
    assert await full.wrong_fields("GET", "/users/7/torrents/all") == ["path.set_name"]
    assert (await full.get("/hit-and-runs"))["items"] == [{"user_id": "7", "torrents": 2}]
    assert await full.ask("POST", f"/users/7/forgive/{first['torrent_id']}") == {"forgiven": 1}
    await full.ask("POST", f"/users/7/forgive/{first['torrent_id']}", 404)
    assert await full.ask("POST", "/users/7/forgive") == {"forgiven": 1}
    assert (await full.get("/hit-and-runs"))["total"] == 0


async def test_a_user_is_created_with_everything_that_a_site_knows(full: ApiClient, admin: Admin) -> None:
    body = {
        "user_id": "7",
        "passkey": ALICE,
        "name": "Alice",
        "enabled": False,
        "reason": "unpaid",
        "can_leech": False,
        "uploaded": 2**53 - 1,
        "downloaded": 5,
        "snatches": 3,
        "announces": 9,
    }
    assert (await full.ask("POST", "/users", 201, json=body))["passkey"] == ALICE
    shown = await full.get("/users/7")
    assert {name: shown[name] for name in body} == body
    assert await full.wrong_fields("POST", "/users", json={"passkey": "short"}) == ["body.passkey"]
    assert await full.wrong_fields("POST", "/users", json={"uploaded": -1}) == ["body.uploaded"]
    assert await full.wrong_fields("POST", "/users", json={"name": "a\nb"}) == ["body.name"]
    assert await full.wrong_fields("POST", "/users", json={"name": "x" * 256}) == ["body.name"]
    await full.ask("POST", "/users", 409, json={"user_id": "8", "passkey": ALICE})
    assert await admin.store.users.count() == 1


async def test_totals_name_reason_and_passkey_are_changed(full: ApiClient, admin: Admin) -> None:
    await admin.store.users.add("7", ALICE, uploaded=5)
    await admin.store.users.add("8", BOB)
    row = await full.ask("PATCH", "/users/7", json={"enabled": False, "reason": "unpaid", "uploaded": 100})
    assert (row["enabled"], row["reason"], row["uploaded"], row["downloaded"]) == (False, "unpaid", 100, 0)
    row = await full.ask("PATCH", "/users/7", json={"enabled": True, "name": "Alice"})
    assert (row["enabled"], row["reason"], row["name"]) == (True, "", "Alice")
    for _ in range(2):  # a repetition changes nothing
        row = await full.ask("PATCH", "/users/7", json={"passkey": "c" * 20, "snatches": 4})
        assert (row["name"], row["snatches"]) == ("Alice", 4) and "passkey" not in row
    assert await admin.store.users.passkey_of("7") == "c" * 20
    await full.ask("PATCH", "/users/7", 409, json={"passkey": BOB})


async def test_a_user_is_looked_up_by_passkey(full: ApiClient, reader: ApiClient, admin: Admin) -> None:
    await admin.store.users.add("7", ALICE, name="Alice")
    found = await full.ask("POST", "/users/lookup", json={"passkey": ALICE})
    assert (found["user_id"], found["name"], found["passkey"]) == ("7", "Alice", ALICE)
    await full.ask("POST", "/users/lookup", 404, json={"passkey": BOB})
    await reader.ask("POST", "/users/lookup", 403, json={"passkey": ALICE})
    assert await full.wrong_fields("POST", "/users/lookup", json={"passkey": "x"}) == ["body.passkey"]


async def test_users_are_sorted_filtered_and_searched(full: ApiClient, reader: ApiClient, admin: Admin) -> None:
    for number, name in enumerate(("Zoe", "adam", "Eve"), 1):
        await admin.store.users.add(str(number), name=name, uploaded=number * 10, downloaded=5, enabled=number != 2)

    async def ids(**query: Any) -> list[str]:
        return [row["user_id"] for row in await all_pages(reader, "/users", limit=1, **query)]

    assert await ids(sort="name") == ["2", "3", "1"]
    assert await ids(sort="ratio", order="desc") == ["3", "2", "1"]
    assert await ids(sort="hit_and_runs") == []
    assert await ids(enabled="false") == ["2"]
    assert await ids(enabled="true", sort="uploaded", order="desc") == ["3", "1"]
    assert await ids(q="e") == ["3", "1"]
    assert await ids(q="2") == ["2"]
    page = await full.get("/users", q="e", limit=1)
    assert page["total"] is None and page["next_cursor"]
    assert (await full.get("/users", sort="name"))["total"] == 3
    assert await full.wrong_fields("GET", "/users", params={"q": "e", "sort": "id"}) == ["query."]
    assert await full.wrong_fields("GET", "/users", params={"offset": "1"}) == ["query.offset"]
    assert await full.wrong_fields("GET", "/users", params={"q": "e", "cursor": "x"}) == ["query.cursor"]
    assert await full.wrong_fields("GET", "/users", params={"sort": "passkey"}) == ["query.sort"]


async def test_a_user_id_may_be_a_number_in_json(full: ApiClient) -> None:
    """The id of a user cannot be changed."""
    assert (await full.ask("POST", "/users", 201, json={"user_id": 7}))["user_id"] == "7"
    batch = await full.ask("POST", "/users/batch", json={"users": [{"user_id": 8}, {"user_id": "7"}]})
    assert [row["user_id"] for row in batch["rows"]] == ["8", "7"]
    for user_id in (7, "7"):
        assert (await full.ask("PATCH", "/users/7", json={"user_id": user_id, "name": "A"}))["name"] == "A"
    await full.ask("PATCH", "/users/7", 422, json={"user_id": 8})
    for wrong in (0, -1, 1.5, True, "x"):
        assert await full.wrong_fields("PATCH", "/users/7", json={"user_id": wrong}) == ["body.user_id"]


async def test_a_request_with_an_idempotency_key_adds_once(full: ApiClient) -> None:
    await full.ask("POST", "/users", 201, json={"user_id": "7", "uploaded": 100})
    gift, key = {"add_uploaded": 50, "add_downloaded": 5}, {"Idempotency-Key": "order-1"}
    row = await full.ask("PATCH", "/users/7", json=gift, headers=key)
    assert (row["uploaded"], row["downloaded"]) == (150, 5)
    assert (await full.ask("PATCH", "/users/7", json=gift))["uploaded"] == 200
    assert await full.ask("PATCH", "/users/7", json=gift, headers=key) == row, "the same reply"
    assert (await full.get("/users/7"))["uploaded"] == 200
    for path, body in (("/users/7", {"add_uploaded": 51}), ("/users/8", gift)):
        problem = await full.ask("PATCH", path, 409, json=body, headers=key)
        assert "another request had this idempotency key" in problem["detail"]
    await full.ask("PATCH", "/users/7", 422, json=gift, headers={"Idempotency-Key": ""})
    two = CIMultiDict([("Idempotency-Key", "order-2"), ("Idempotency-Key", "order-2")])
    problem = await full.ask("PATCH", "/users/7", 400, json=gift, headers=two)
    assert problem["detail"] == "Idempotency-Key is given more than once"
    for method, path in (("POST", "/users"), ("GET", "/users/7"), ("DELETE", "/users/7")):
        problem = await full.ask(method, path, 400, headers=key, **({"json": {}} if method == "POST" else {}))
        assert problem["detail"] == "Idempotency-Key is not taken by this call"
    assert (await full.ask("PATCH", "/users/7", json={"add_uploaded": -1000}))["uploaded"] == 0
    entries = (await full.get("/audit"))["items"]
    assert [entry["details"].get("repeated") for entry in entries if entry["details"].get("repeated")]
    edits = [entry["objects"][0] for entry in entries if entry["operation"] == "user.edit"]
    assert [(each["before"].get("uploaded"), each["after"].get("uploaded")) for each in reversed(edits)] == [
        ("100", "150"),
        ("150", "200"),
        (None, None),
        ("200", "0"),
    ]


async def test_a_batch_with_an_idempotency_key_adds_once(full: ApiClient) -> None:
    rows = [{"user_id": 7, "add_uploaded": 50}, {"user_id": 8, "add_uploaded": "x"}, {"user_id": 9, "name": "nine"}]
    key = {"Idempotency-Key": "round-1"}
    told = await full.ask("POST", "/users/batch", json={"users": rows}, headers=key)
    assert [(row["outcome"], row["uploaded"]) for row in told["rows"]] == [
        ("added", 50),
        ("error", None),
        ("added", None),
    ]
    assert await full.ask("POST", "/users/batch", json={"users": rows}, headers=key) == told
    told = await full.ask("POST", "/users/batch", json={"users": rows[:1]})
    assert (told["rows"][0]["uploaded"], told["rows"][0]["downloaded"]) == (100, 0)
    await full.ask("POST", "/users/batch", 409, json={"users": rows[:1]}, headers=key)
