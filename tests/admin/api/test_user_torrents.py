"""The history of users that a site brings along, and all peers as lines."""

import json

from tests.admin.api.api_client import ApiClient, swarms_of
from tests.admin.conftest import Admin
from tests.store.harness import ALICE, info_hash, update
from tracker.errors import ClientError
from tracker.store.access.audit import AuditFilter


async def test_each_row_has_an_outcome_and_totals_stay(full: ApiClient, admin: Admin) -> None:
    await admin.store.users.add("7", ALICE, uploaded=10)
    (added,) = await admin.store.torrents.add_many([(info_hash(1), {})])
    assert not isinstance(added, ClientError)
    row = {"user_id": 7, "torrent_id": added[0], "uploaded": 100, "credited_uploaded": 150, "seed_seconds": 60}
    rows = [row, row, {"user_id": "7"}, {**row, "user_id": "8"}, {**row, "uploaded": -1}, "text"]
    told = await full.ask("POST", "/user-torrents/batch", json={"user_torrents": rows})
    assert [each["outcome"] for each in told["rows"]] == ["added", "known", "error", "error", "error", "error"]
    assert (told["added"], told["known"], told["errors"]) == (1, 1, 4)
    assert told["rows"][3]["error"] == "unknown user: add it first"
    account = (await admin.store.users.on_torrents("7", [added[0]]))[0]
    assert (account["uploaded"], account["extra_up"]) == ("100", "50")
    user = await admin.store.users.by_id("7")
    assert user is not None and user.uploaded == 10
    (entry,), _ = await admin.store.audit.page(AuditFilter())
    assert entry.counts == {"added": 1, "known": 1, "errors": 4}


async def test_ids_above_32_bits_and_the_largest_ones_are_kept(full: ApiClient, admin: Admin) -> None:
    for user_id, torrent_id in ((2**32 + 5, 2**32 + 6), (10**15 - 1, 10**13 - 1)):
        await full.ask("POST", "/users", 201, json={"user_id": user_id})
        hash_ = f"{torrent_id:040x}"
        await full.ask("POST", "/torrents", 201, json={"info_hash": hash_, "torrent_id": torrent_id})
        row = {"user_id": user_id, "torrent_id": torrent_id, "uploaded": 5}
        told = await full.ask("POST", "/user-torrents/batch", json={"user_torrents": [row]})
        assert told["added"] == 1
        async with full.session.get("/api/v1/user-torrents", params={"cursor": str(user_id - 1)}) as response:
            first, *_ = map(json.loads, (await response.text()).splitlines())
        assert (first["user_id"], first["torrent_id"]) == (str(user_id), str(torrent_id))
    body = {"info_hash": "9" * 40, "torrent_id": 10**13}
    assert await full.wrong_fields("POST", "/torrents", json=body) == ["body.torrent_id"]


async def test_totals_follow_where_that_is_asked_for(full: ApiClient, admin: Admin) -> None:
    await admin.store.users.add("7", ALICE, uploaded=10)
    (added,) = await admin.store.torrents.add_many([(info_hash(1), {})])
    assert not isinstance(added, ClientError)
    row = {"user_id": "7", "torrent_id": added[0], "uploaded": 100, "completed_at": 1_700_000_000}
    body = {"user_torrents": [row], "add_to_totals": True}
    for _ in range(2):
        await full.ask("POST", "/user-torrents/batch", json=body)
    user = await admin.store.users.by_id("7")
    assert user is not None and (user.uploaded, user.snatches) == (110, 1)


async def test_the_role_read_may_not(reader: ApiClient) -> None:
    await reader.ask("POST", "/user-torrents/batch", 403, json={"user_torrents": [{}]})


async def test_all_peers_come_as_lines_and_the_last_line_says_that_they_are_whole(
    full: ApiClient, reader: ApiClient, admin: Admin, redis_url: str
) -> None:
    async with swarms_of(admin, redis_url) as store:
        for number in range(1, 4):
            await store.announce(update(number, "s", torrent=number))
    for client, shown in ((full, 1), (reader, 0)):
        async with client.session.get("/api/v1/peers") as response:
            assert (response.status, response.content_type) == (200, "application/jsonl")
            *peers, last = map(json.loads, (await response.text()).splitlines())
        assert {each["info_hash"] for each in peers} == {info_hash(number).hex() for number in range(1, 4)}
        assert all(len(each["endpoints"]) == shown for each in peers)
        assert last == {"rows": 3, "next_cursor": None}
    await full.ask("GET", "/peers?cursor=99-0", 422)
