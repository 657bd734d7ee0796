"""Batches of users and torrents: the outcome of each row, limits, and roles."""

import asyncio
from io import BytesIO
from typing import Any

import pytest

from tests.admin.api.api_client import ApiClient
from tests.admin.conftest import Admin
from tests.store.harness import ALICE, BOB, info_hash
from tracker.admin.api.models import MAX_BATCH_BYTES, MAX_ROWS
from tracker.admin.context import MAX_BATCHES

HASH = info_hash(1).hex()


def outcomes(reply: Any) -> list[Any]:
    """Of each row the outcome, or the error."""
    return [row["error"] or row["outcome"] for row in reply["rows"]]


async def batch(client: ApiClient, what: str, rows: list[Any], **options: Any) -> Any:
    return await client.ask("POST", f"/{what}/batch", json={what: rows, **options})


async def test_each_user_has_an_outcome(full: ApiClient, admin: Admin) -> None:
    await admin.store.users.add("7", ALICE, uploaded=5)
    rows = [
        {"user_id": "7", "name": "Alice", "uploaded": 100},
        {"user_id": "8", "passkey": BOB, "downloaded": 9, "enabled": False, "reason": "unpaid"},
        {"user_id": "9"},
        {"user_id": "10", "passkey": ALICE},
        {"user_id": True},
        {"user_id": "12", "colour": "red", "size": 1},
        {"name": "nobody"},
        "text",
        {str(number): 1 for number in range(100)},
        {"user_id": "13", "uploaded": 2**53},
    ]
    reply = await batch(full, "users", rows)
    assert outcomes(reply) == [
        "known",
        "added",
        "added",
        "this passkey belongs to another user: give one of them a new one",
        "user_id: must be a string",
        "colour: is unknown",
        "a user needs user_id or passkey",
        "not a JSON object",
        "too many fields",
        f"uploaded: must be at most {2**53 - 1}",
    ]
    assert (reply["added"], reply["known"], reply["errors"]) == (2, 1, 7)
    assert [row["user_id"] for row in reply["rows"][:4]] == ["7", "8", "9", "10"]
    made = [row["passkey"] for row in reply["rows"]]
    assert made[2] == await admin.store.users.passkey_of("9") and not any(made[:2] + made[3:])
    alice, bob = await admin.store.users.find("7"), await admin.store.users.find("8")
    assert (alice.uploaded, alice.name) == (5, "Alice")
    assert (bob.downloaded, bob.enabled, bob.reason) == (9, False, "unpaid")
    assert await admin.store.users.count() == 3
    again = await batch(full, "users", rows[:3], replace_totals=True)
    assert outcomes(again) == ["known", "known", "known"] and not any(row["passkey"] for row in again["rows"])
    assert (await admin.store.users.find("7")).uploaded == 100


async def test_each_torrent_has_an_outcome(full: ApiClient, admin: Admin) -> None:
    rows = [
        {"info_hash": HASH.upper(), "name": "one", "download_multiplier": 0, "snatches": 50, "labels": ["a"]},
        {"info_hash": "2" * 64, "private": True, "size": 9, "upload_multiplier": 2.5},
        {"info_hash": "3" * 39},
        {"name": "x"},
        {"info_hash": "4" * 40, "upload_multiplier": 3},
        {"info_hash": "5" * 40, "labels": ["A"]},
        None,
        {"info_hash": "6" * 40, "upload_multiplier_until": 1_900_000_000},
    ]
    reply = await batch(full, "torrents", rows)
    assert outcomes(reply)[:2] == ["added", "added"] and outcomes(reply)[4] == "added"
    assert outcomes(reply)[2].startswith("info_hash: must match pattern")
    assert outcomes(reply)[3] == "info_hash: is required"
    assert outcomes(reply)[5].startswith("labels.0: ") and outcomes(reply)[6] == "not a JSON object"
    assert outcomes(reply)[7] == "upload_multiplier_until needs upload_multiplier"
    assert [row["info_hash"] for row in reply["rows"][:2]] == [HASH, "2" * 40]
    shown = await full.get(f"/torrents/{HASH}")
    assert (shown["name"], shown["snatches"], shown["download_multiplier"]) == ("one", 50, 0)
    assert (await full.get(f"/torrents/{'4' * 40}"))["upload_multiplier"] == 3
    assert (await full.get("/torrents", sort="snatches"))["items"][0]["info_hash"] == HASH
    rows[0]["snatches"] = 7  # type: ignore[index]  # only a new torrent gets them
    again = await batch(full, "torrents", rows[:2])
    assert outcomes(again) == ["known", "known"]
    assert [row["torrent_id"] for row in again["rows"]] == [row["torrent_id"] for row in reply["rows"][:2]]
    assert (await full.get(f"/torrents/{HASH}"))["snatches"] == 50
    assert await admin.store.torrents.count() == 3


@pytest.mark.parametrize("what", ["users", "torrents"])
async def test_a_batch_is_bounded(full: ApiClient, admin: Admin, what: str) -> None:
    path, before = f"/{what}/batch", await admin.store.users.count()
    assert await full.wrong_fields("POST", path, json={what: []}) == [f"body.{what}"]
    assert await full.wrong_fields("POST", path, json={what: [{}] * (MAX_ROWS + 1)}) == [f"body.{what}"]
    assert await full.wrong_fields("POST", path, json={what: {}}) == [f"body.{what}"]
    assert await full.wrong_fields("POST", path, json={what: [{}], "more": 1}) == ["body.more"]
    many = {str(number): 1 for number in range(20_000)}
    assert await full.wrong_fields("POST", path, json=many) == ["body."]
    await full.ask("POST", path, 400, data=b"{", headers={"Content-Type": "application/json"})
    large = BytesIO(b" " * (MAX_BATCH_BYTES + 1))
    await full.ask("POST", path, 413, data=large, headers={"Content-Type": "application/json"})
    deep = b'{"%s": [%s]}' % (what.encode(), b"[" * 150 + b"]" * 150)
    reply = await full.ask("POST", path, 200, data=deep, headers={"Content-Type": "application/json"})
    assert outcomes(reply) == ["not a JSON object"]
    assert await admin.store.users.count() == before


@pytest.mark.parametrize("what", ["users", "torrents"])
async def test_role_read_may_send_no_batch(reader: ApiClient, what: str) -> None:
    await reader.ask("POST", f"/{what}/batch", 403, json={what: [{}]})


async def test_more_batches_than_may_run_at_once_wait(full: ApiClient, admin: Admin) -> None:
    number = MAX_BATCHES + 2
    batches = [{"users": [{"user_id": str(150 * n + m)} for m in range(1, 151)]} for n in range(number)]
    replies = await asyncio.gather(*(full.ask("POST", "/users/batch", json=batch) for batch in batches))
    assert [reply["added"] for reply in replies] == [150] * number
    assert await admin.store.users.count() == 150 * number


async def test_a_full_batch(full: ApiClient, admin: Admin) -> None:
    batch = {"users": [{"user_id": str(number)} for number in range(1, MAX_ROWS + 1)]}
    assert (await full.ask("POST", "/users/batch", json=batch))["added"] == MAX_ROWS
    assert await admin.store.users.count() == MAX_ROWS


async def test_the_document_describes_the_rows(full: ApiClient) -> None:
    document = await (await full.session.get("/api/openapi.json")).json()
    schemas = document["components"]["schemas"]
    user = schemas["UserBatch"]["properties"]["users"]["items"]
    assert {"user_id", "passkey", "uploaded", "reason"} < user["properties"].keys()
    row = schemas["TorrentBatch"]["properties"]["torrents"]["items"]
    assert row["required"] == ["info_hash"] and "upload_multiplier" in row["properties"]
    responses = document["paths"]["/api/v1/users/batch"]["post"]["responses"]
    assert responses["413"]["description"] == "The body is larger than 1024 KiB."


async def test_a_batch_links_halves(full: ApiClient, admin: Admin) -> None:
    """The v1 half may stand in another row; a wrong half is an error of its row."""
    one, two, three, four = (info_hash(number).hex() for number in (1, 2, 3, 4))
    rows = [
        {"info_hash": two, "hybrid_of": one, "name": "v2"},
        {"info_hash": one, "enabled": False},
        {"info_hash": three, "hybrid_of": one},
        {"info_hash": four, "hybrid_of": "ab" * 20},
    ]
    reply = await batch(full, "torrents", rows)
    assert outcomes(reply) == [
        "added",
        "added",
        "the torrent that hybrid_of names is a half of another hybrid torrent: end that link first",
        "the torrent that hybrid_of names is not registered",
    ]
    assert await admin.store.torrents.count() == 2
    assert outcomes(await batch(full, "torrents", rows[:2])) == ["known"] * 2
    both = [await full.get(f"/torrents/{each}") for each in (one, two)]
    assert [(row["hybrid_of"], row["hybrid"], row["state"]) for row in both] == [
        (None, two, "disabled"),
        (one, None, "disabled"),
    ]
    await full.ask("POST", "/torrents/batch", json={"torrents": [{"info_hash": one, "enabled": True}]})
    assert (await full.get(f"/torrents/{two}"))["state"] == "registered"
    assert [each["id"] for each in (await full.get("/audit"))["items"][0]["objects"]] == [one, two]
