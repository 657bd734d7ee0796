import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from pydantic import SecretStr

from tests.admin.api.api_client import ApiClient, swarms_of
from tests.admin.conftest import Admin, Serve
from tests.store.harness import ALICE, info_hash, peer_id, redis_of, update
from tests.waiting import eventually, in_background
from tracker.errors import ClientError
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.site import ChangeSettings
from tracker.store.changes.webhooks import webhook_id
from tracker.store.swarms.codec import Admitted

URL = "https://site.example/hook/hunter2?key=hunter2"


@pytest.fixture
async def admin(serve: Serve, prefix: str) -> AsyncIterator[Admin]:
    """The feed is on, and one webhook is set."""
    changes = ChangeSettings(max_entries=1000, webhook_urls=(SecretStr(URL),), webhook_secret=SecretStr("s" * 32))
    admin = await serve(Settings(redis=RedisSettings(prefix=prefix), changes=changes))
    async with in_background(admin.store.swarms.run()):
        yield admin


async def announce(admin: Admin, peer: int, event: str) -> None:
    assert isinstance(await admin.store.swarms.announce(update(peer, event)), Admitted)


async def test_the_feed_is_read_in_pages(full: ApiClient, admin: Admin) -> None:
    for event in ("s", "x", "s"):
        await announce(admin, 1, event)
    first = await full.get("/changes", limit=2)
    assert [row["change"] for row in first["items"]] == ["joined", "stopped"]
    assert first["items"][0] == {
        "id": first["items"][0]["id"],
        "at": int(first["items"][0]["id"].partition("-")[0]) // 1000,
        "change": "joined",
        "info_hash": info_hash(1).hex(),
        "torrent_id": "1",
        "user_id": None,
        "peer_id": peer_id(1).hex(),
        "uploaded": 0,
        "downloaded": 0,
        "seed_time": 0,
        "left": 1000,
        "seeders": 0,
        "leechers": 1,
        "credited_uploaded": None,
        "credited_downloaded": None,
        "endpoints": ["11.0.0.1:6881"],
        "announced_id": peer_id(1).hex(),
        "client": "Xtorrent 0.0.0.1",
        "user_agent": None,
        "peer_uploaded": 0,
        "peer_downloaded": 0,
    }
    assert (first["next"], first["gap"]) == (first["items"][1]["id"], False)
    rest = await full.get("/changes", since=first["next"])
    assert [row["change"] for row in rest["items"]] == ["joined"] and not rest["gap"]
    last = await full.get("/changes", since=rest["next"])
    assert last == {"items": [], "next": rest["next"], "gap": False}


async def test_a_position_that_the_feed_no_longer_has_is_a_gap(full: ApiClient, admin: Admin) -> None:
    await announce(admin, 1, "s")
    found = await full.get("/changes", since="5")
    assert len(found["items"]) == 1 and found["gap"]


@pytest.mark.parametrize("wrong", [{"since": "x"}, {"since": "1-"}, {"limit": "0"}, {"limit": "1001"}])
async def test_wrong_parameters_are_refused(full: ApiClient, wrong: dict[str, str]) -> None:
    (name,) = wrong
    assert await full.wrong_fields("GET", "/changes", params=wrong) == [f"query.{name}"]


async def test_a_feed_that_is_off_is_a_conflict(full: ApiClient, admin: Admin) -> None:
    off = replace_changes(admin, ChangeSettings())
    admin.context.live.current = off
    problem = await full.get("/changes", 409)
    assert "TRACKER_CHANGES__MAX_ENTRIES" in problem["detail"]
    assert await full.get("/webhooks") == {"items": []}


def replace_changes(admin: Admin, changes: ChangeSettings) -> Settings:
    return admin.context.settings.model_copy(update={"changes": changes})


async def test_webhooks_show_their_deliveries_without_secrets(full: ApiClient, admin: Admin) -> None:
    (before,) = (await full.get("/webhooks"))["items"]
    assert before == {
        "receiver": "https://site.example",
        "position": "0",
        "delivered": 0,
        "delivered_at": None,
        "gaps": 0,
        "failures": 0,
        "error": "",
        "retry_at": None,
    }
    state: dict[str, str | int] = {
        "position": "5-0",
        "delivered": 7,
        "delivered_at": 9,
        "failures": 2,
        "error": "status 500",
        "retry_at": 11,
    }
    await admin.store.webhooks.hold(webhook_id(URL), "token")
    await admin.store.webhooks.hold(webhook_id(URL), "token", state)
    (after,) = (await full.get("/webhooks"))["items"]
    assert after == {**before, **state}


async def test_torrents_are_listed_by_when_they_were_updated(full: ApiClient, admin: Admin) -> None:
    redis = redis_of(admin.store.connection)
    await redis.xadd(admin.store.keys.changes(), {"change": "joined"}, id="5000-0")
    for torrent in (1, 2):
        assert isinstance(await admin.store.swarms.announce(update(1, "s", torrent)), Admitted)
    rows: list[dict[str, Any]] = []
    page: dict[str, Any] = {"next_cursor": ""}
    while page["next_cursor"] is not None:
        page = await full.get("/torrents", updated_since=6, limit=1, cursor=page["next_cursor"])
        rows += page["items"]
    assert [(row["info_hash"], row["leechers"]) for row in rows] == [(info_hash(1).hex(), 1), (info_hash(2).hex(), 1)]
    assert (await full.get("/torrents", updated_since=2**40))["items"] == []
    assert "reach back" in (await full.get("/torrents", 409, updated_since=4))["detail"]
    for wrong in ({"sort": "score"}, {"enabled": "true"}, {"q": "x"}):
        await full.wrong_fields("GET", "/torrents", params={"updated_since": "6", **wrong})
    admin.context.live.current = replace_changes(admin, ChangeSettings())
    assert "MAX_ENTRIES" in (await full.get("/torrents", 409, updated_since=6))["detail"]


async def test_users_are_listed_by_when_they_were_updated(full: ApiClient, admin: Admin) -> None:
    redis, key = redis_of(admin.store.connection), admin.store.keys.changes()
    for user in ("7", "8", "9"):
        await admin.store.users.add(user)
    for second, user in enumerate(("7", "8", "", "7", "404", "x"), 100):
        await redis.xadd(key, {"change": "joined", "user_id": user}, id=f"{1000 * second}-0")
    found = await full.get("/users", updated_since=100)
    assert [row["user_id"] for row in found["items"]] == ["7", "8"]
    assert (found["total"], found["next_cursor"]) == (None, None)
    page = await full.get("/users", updated_since=101, limit=2)
    assert ([row["user_id"] for row in page["items"]], page["next_cursor"]) == (["8"], "102000-0")
    page = await full.get("/users", updated_since=101, limit=2, cursor="102000-0")
    assert [row["user_id"] for row in page["items"]] == ["7"]
    assert (await full.get("/users", updated_since=104))["items"] == []
    assert (await full.get("/users", updated_since=2**40))["items"] == []
    assert "reach back" in (await full.get("/users", 409, updated_since=99))["detail"]
    await full.wrong_fields("GET", "/users", params={"updated_since": "100", "order": "desc"})
    await full.get("/users", 422, cursor="102000-0")


@pytest.mark.parametrize(("path", "named"), [("/users", "user_id"), ("/torrents", "info_hash")])
async def test_what_was_updated_is_exported_and_the_last_line_says_how_to_go_on(
    full: ApiClient, admin: Admin, path: str, named: str
) -> None:
    ids = {"/users": ["7", "8", "9"], "/torrents": [info_hash(number).hex() for number in (7, 8, 9)]}[path]
    await admin.store.user_import.save([{"user_id": each} for each in ("7", "8", "9")])
    await admin.store.torrents.add_many([(info_hash(number), {}) for number in (7, 8, 9)])
    redis, key = redis_of(admin.store.connection), admin.store.keys.changes()
    for second, changed in enumerate(ids, 100):
        await redis.xadd(key, {"change": "joined", named: changed}, id=f"{1000 * second}-0")

    async def exported(**query: str) -> tuple[list[str], dict[str, Any]]:
        async with full.session.get(f"/api/v1{path}/json-lines", params=query) as response:
            *rows, end = map(json.loads, (await response.text()).splitlines())
        return [row[named] for row in rows], end

    found, end = await exported(updated_since="100", limit="2")
    assert (found, end["rows"], "next_updated_since" in end) == (ids[:2], 2, False)
    found, end = await exported(updated_since="100", cursor=end["next_cursor"])
    assert (found, end["next_cursor"]) == (ids[2:], None)
    since = end["next_updated_since"]
    found, end = await exported(updated_since=since)
    assert (found, end) == ([], {"rows": 0, "next_cursor": None, "next_updated_since": since})
    await redis.xadd(key, {"change": "joined", named: ids[0]}, id="103000-0")
    assert (await exported(updated_since=since))[0] == ids[:1]


async def test_edits_count_as_updates(full: ApiClient, admin: Admin) -> None:
    """Of the API, as of the dashboard, the command line and imports: tests/store/changes/test_edits.py."""
    await redis_of(admin.store.connection).xadd(admin.store.keys.changes(), {"change": "joined"}, id="1000-0")
    hashes = [info_hash(number).hex() for number in range(1, 4)]
    await full.ask("POST", "/torrents", 201, json={"info_hash": hashes[0]})
    await full.ask("POST", "/torrents/batch", json={"torrents": [{"info_hash": each} for each in hashes[1:]]})
    await full.ask("POST", "/users", 201, json={"user_id": "7"})
    await full.ask("POST", "/users/batch", json={"users": [{"user_id": "8"}, {"user_id": "9"}]})
    rows = (await full.get("/torrents", updated_since=1))["items"]
    assert [row["info_hash"] for row in rows] == hashes
    assert [row["user_id"] for row in (await full.get("/users", updated_since=1))["items"]] == ["7", "8", "9"]
    await redis_of(admin.store.connection).delete(admin.store.keys.edits())
    await full.ask("PATCH", f"/torrents/{hashes[1]}", json={"download_multiplier": 0})
    await full.ask("PATCH", "/users/8", json={"hnr_exempt": True})
    (row,) = (await full.get("/torrents", updated_since=1))["items"]
    assert (row["info_hash"], row["download_multiplier"]) == (hashes[1], 0)
    (row,) = (await full.get("/users", updated_since=1))["items"]
    assert (row["user_id"], row["hnr_exempt"]) == ("8", True)


async def test_a_forgiven_hit_and_run_is_in_the_feed(full: ApiClient, admin: Admin) -> None:
    redis, keys = redis_of(admin.store.connection), admin.store.keys
    await admin.store.users.add("7")
    await redis.sadd(keys.user_set("7", "hnr"), "5")
    await redis.hset(keys.user_torrent("7", "5"), mapping={"uploaded": "3", "downloaded": "9"})
    assert await full.ask("POST", "/users/7/forgive/5") == {"forgiven": 1}
    (change,) = (await full.get("/changes"))["items"]
    assert (change["change"], change["user_id"], change["torrent_id"]) == ("hit_and_run_forgiven", "7", "5")
    assert (change["uploaded"], change["downloaded"], change["peer_id"]) == (3, 9, None)


@pytest.mark.parametrize("note_updates", [True, False])
async def test_a_site_that_polls_gets_each_change_of_a_user_on_a_torrent(
    full: ApiClient, admin: Admin, redis_url: str, note_updates: bool
) -> None:
    """A row of a batch, a join, a regular announce, a stop. The next list begins where the one before ended. Where
    regular announces are not noted, what they changed comes with the next change."""
    redis = redis_of(admin.store.connection)
    await redis.xadd(admin.store.keys.changes(), {"change": "joined"}, id="1000-0")
    await admin.store.users.add("7", ALICE)
    (added,) = await admin.store.torrents.add_many([(info_hash(1), {})])
    assert not isinstance(added, ClientError)
    row, since = {"user_id": "7", "torrent_id": added[0]}, "1"

    async def found(limit: int = 1) -> tuple[int, ...]:
        """The bytes in the rows of the next list."""
        nonlocal since
        cursor, rows = cast("str | None", ""), list[dict[str, Any]]()
        while cursor is not None:
            query = {"updated_since": since, "limit": str(limit), "cursor": cursor}
            async with full.session.get("/api/v1/user-torrents", params=query) as response:
                assert response.status == 200, await response.text()
                *part, end = map(json.loads, (await response.text()).splitlines())
            rows += part
            cursor = end["next_cursor"]
        since = end["next_updated_since"]
        assert {(each["user_id"], each["torrent_id"]) for each in rows} <= {("7", added[0])}
        return tuple({each["uploaded"] for each in rows})

    async def gets(uploaded: int) -> bool:
        return await found() == (uploaded,)

    async with swarms_of(admin, redis_url, accounts="required", max_changes=1000, note_updates=note_updates) as store:
        await full.ask("POST", "/user-torrents/batch", json={"user_torrents": [{**row, "uploaded": 100}]})
        await eventually(lambda: gets(100))
        assert await found() == ()
        await store.announce(update(1, "s", passkey=ALICE, bytes_left=0))
        await eventually(lambda: gets(100))
        await store.announce(update(1, "u", passkey=ALICE, bytes_left=0, uploaded=5))
        await store.changes.record_updates()
        if note_updates:
            await eventually(lambda: gets(105))
        else:
            assert await found() == ()
        await store.announce(update(1, "x", passkey=ALICE, bytes_left=0, uploaded=7))
        await eventually(lambda: gets(107))
        await store.users.edit("7", {"name": "a name"})  # changes the user, not what the user has on a torrent
        assert await found() == ()
    all_rows = await full.session.get("/api/v1/user-torrents")
    text = await all_rows.text()
    assert [json.loads(line).get("uploaded") for line in text.splitlines()] == [107, None]
    async with full.session.get("/api/v1/user-torrents", params={"updated_since": "0-5"}) as response:
        assert response.status == 409
    for wrong in ({"updated_since": "x"}, {"cursor": "-1"}, {"limit": "0"}):
        await full.wrong_fields("GET", "/user-torrents", params=wrong)
