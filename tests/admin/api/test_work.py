"""/work: projects, items, claims, results and blocks (rows W11, W12, W17, W18, W20)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.admin.api.api_client import TEXT, ApiClient, swarms_of
from tests.admin.conftest import Admin
from tests.store.harness import Store
from tests.store.work.harness import claimed
from tests.store.work.policy import swarm
from tracker.bittorrent import InfoHash
from tracker.settings.background import ProbeSettings
from tracker.store.work.periods import week_of

HASH = "ab" * 20
PROJ = "/work/projects/proj"


@pytest.fixture
async def store(admin: Admin, redis_url: str) -> AsyncIterator[Store]:
    async with swarms_of(admin, redis_url) as found:
        yield found


@pytest.fixture
async def proj(full: ApiClient) -> None:
    await full.ask("POST", "/work/projects", 201, json={"name": "proj", "order": "weakest"})


async def add(full: ApiClient, *items: str, **options: object) -> None:
    await full.ask("POST", f"{PROJ}/items", json={"items": items, **options})


async def test_a_project_is_created_changed_and_deleted(full: ApiClient) -> None:
    """W20: deleting a project leaves the others."""
    created = await full.ask("POST", "/work/projects", 201, json={"name": "proj", "domains": ["b", "a"]})
    assert (created["kind"], created["verify"], created["domains"]) == ("items", "none", ["b", "a"])
    assert created["items"] == dict.fromkeys(("todo", "secondary", "redo", "asked", "out", "done"), 0)
    keep = await full.ask("POST", "/work/projects", 201, json={"name": "keep", "kind": "seeding", "target": 5})
    assert (keep["verify"], keep["order"], keep["passkeys"], keep["target"]) == ("announce", "weakest", True, 5)
    await full.ask("POST", "/work/projects", 409, json={"name": "proj"})
    changed = await full.ask("PATCH", PROJ, json={"title": "A <b>", "budget": 7, "public": True})
    assert (changed["title"], changed["budget"], changed["public"]) == ("A <b>", 7, True)
    assert changed["domains"] == ["a", "b"]
    assert await full.get(PROJ) == changed
    assert [row["name"] for row in (await full.get("/work/projects"))["items"]] == ["keep", "proj"]
    await full.ask("DELETE", PROJ, 204)
    await full.ask("DELETE", PROJ, 404)
    assert [row["name"] for row in (await full.get("/work/projects"))["items"]] == ["keep"]


async def test_a_project_that_verifies_addresses_has_no_passkeys(full: ApiClient) -> None:
    new = {"name": "open", "kind": "seeding", "verify": "address"}
    made = await full.ask("POST", "/work/projects", 201, json=new)
    assert (made["verify"], made["passkeys"], made["probes_missing"]) == ("address", False, False)
    for change in ({"verify": "announce"}, {"passkeys": True}):
        await full.ask("PATCH", "/work/projects/open", 422, json=change)
    await full.ask("POST", "/work/projects", 422, json={"name": "x", "verify": "address"})


async def test_invalid_settings_are_refused(full: ApiClient, proj: None) -> None:
    wrong = await full.wrong_fields("PATCH", PROJ, json={"budget": 0, "verify": "x", "kind": "seeding"})
    assert set(wrong) == {"body.budget", "body.verify", "body.kind"}
    refused = await full.ask("PATCH", PROJ, 422, json={"verify": "piece"})
    assert "verifies nothing" in refused["detail"]
    assert "body.name" in await full.wrong_fields("POST", "/work/projects", json={"name": "../x"})
    await full.ask("POST", "/work/projects", 422, json={"name": "blocked"})


async def test_every_path_of_an_unknown_project_is_not_found(full: ApiClient) -> None:
    paths = ("", "/items", "/claims", "/log", "/leaderboard", "/blocked", "/blocked-log")
    for path in paths:
        await full.get(f"/work/projects/none{path}", 404)
    await full.get("/work/projects/none/item", 404, name="a")
    await full.ask("DELETE", "/work/projects/none/item", 404, params={"name": "a"})
    await full.ask("DELETE", "/work/projects/none/items", 404, params={"list": "todo"})
    await full.ask("POST", "/work/projects/none/items", 404, json={"items": ["a"]})
    await full.ask("POST", "/work/projects/none/claims/release", 404, json={"min_age": 0})
    await full.ask("POST", "/work/projects/none/blocked", 404, json={"who": "alice"})
    await full.ask("DELETE", "/work/projects/none/blocked", 404, params={"who": "alice"})


async def test_items_are_added_once(full: ApiClient, proj: None) -> None:
    """W18."""
    added = await full.ask("POST", f"{PROJ}/items", json={"items": ["a", "b"], "place": 3})
    assert added == {"processed": 2, "added": 2}
    text = "a\r\n\n c \n"
    headers = {"Content-Type": TEXT}
    added = await full.ask("POST", f"{PROJ}/item-list?queue=secondary", data=text, headers=headers)
    assert added == {"processed": 2, "added": 1}
    await add(full, "own", claimants=["alice"])
    listed = await full.get(f"{PROJ}/items")
    assert [(row["item"], row["place"]) for row in listed["items"]] == [("a", 3), ("b", 3)]
    assert [row["item"] for row in (await full.get(f"{PROJ}/items", list="secondary"))["items"]] == ["c"]
    assert [row["item"] for row in (await full.get(f"{PROJ}/items", claimant="alice"))["items"]] == ["own"]
    project = await full.get(PROJ)
    assert (project["items"]["todo"], project["items"]["secondary"], project["items"]["asked"]) == (2, 1, 1)
    assert project["totals"]["added"] == 4


async def test_one_invalid_item_adds_none(full: ApiClient, proj: None) -> None:
    """W11."""
    for bad in ("x\n", "\x1b[2J", "é" * 200, "\u2028"):
        await full.ask("POST", f"{PROJ}/items", 422, json={"items": ["fine", bad]})
    assert await full.wrong_fields("POST", f"{PROJ}/items", json={"items": []}) == ["body.items"]
    await full.ask("POST", f"{PROJ}/item-list", 400, data=b"\xff", headers={"Content-Type": TEXT})
    await full.ask("POST", f"{PROJ}/item-list", 415, json=["a"])
    assert (await full.get(f"{PROJ}/items"))["items"] == []


async def test_items_of_seeding_are_registered_torrents(full: ApiClient, admin: Admin) -> None:
    await full.ask("POST", "/work/projects", 201, json={"name": "proj", "kind": "seeding"})
    refused = await full.ask("POST", f"{PROJ}/items", 422, json={"items": [HASH]})
    assert "is not registered" in refused["detail"]
    await admin.store.torrents.add(InfoHash(bytes.fromhex(HASH)), {})
    assert (await full.ask("POST", f"{PROJ}/items", json={"items": [HASH.upper()]}))["added"] == 1


async def test_long_lists_are_paged(full: ApiClient, proj: None) -> None:
    names = [f"item {number}" for number in range(25)]
    await add(full, *names, place=1)
    found: list[str] = []
    page: dict[str, Any] = {"next_cursor": ""}
    while page["next_cursor"] is not None:
        page = await full.get(f"{PROJ}/items", limit=10, cursor=page["next_cursor"])
        found += [row["item"] for row in page["items"]]
    assert found == sorted(names)
    await full.get(f"{PROJ}/items", 422, cursor="x")


async def test_an_item_is_shown_and_removed(full: ApiClient, store: Store, proj: None) -> None:
    odd = "a/{b}?%2F"
    await add(full, odd, copies=2)
    await claimed(store, "alice")
    shown = await full.get(f"{PROJ}/item", name=odd)
    assert shown == {"item": odd, "status": "out", "copies": 1, "claimants": ["alice"]}
    await full.ask("DELETE", f"{PROJ}/item", 204, params={"name": odd})
    assert (await full.get(f"{PROJ}/item", name=odd))["copies"] == 0
    await full.get(f"{PROJ}/item", 404, name="none")
    await full.ask("DELETE", f"{PROJ}/item", 404, params={"name": "none"})


async def test_a_list_is_purged(full: ApiClient, store: Store, proj: None) -> None:
    await add(full, *map(str, range(500)))
    await add(full, *map(str, range(500, 600)))
    await add(full, "redo", queue="redo")
    assert await full.ask("DELETE", f"{PROJ}/items", params={"list": "todo"}) == {"removed": 600}
    assert (await full.get(PROJ))["items"]["redo"] == 1
    claim = await claimed(store, "alice")
    await store.work.claims.done("proj", "alice", claim.item)
    now = int(store.clock())
    purge = {"list": "done", "before": str(now - 5)}
    assert await full.ask("DELETE", f"{PROJ}/items", params=purge) == {"removed": 0}
    assert (await full.get(f"{PROJ}/items", list="done"))["items"] == [{"item": "redo", "place": None, "done_at": now}]
    assert await full.ask("DELETE", f"{PROJ}/items", params={"list": "done"}) == {"removed": 1}


async def test_claims_are_listed_and_released(full: ApiClient, store: Store, proj: None) -> None:
    """W12: by age, claimant, item and prefix."""
    await full.ask("PATCH", PROJ, json={"start_budget": 10})
    for number, name in enumerate(("one/a", "one/b", "two/a", "two/b")):
        await add(full, name, place=number)
    for who in ("alice", "bob", "alice", "bob"):
        await claimed(store, who, address="192.0.2.1")
        store.clock.now += 100
    listed = (await full.get(f"{PROJ}/claims"))["items"]
    assert [(row["item"], row["claimant"]) for row in listed][:2] == [("one/a", "alice"), ("one/b", "bob")]
    assert listed[0]["address"] == "192.0.2.1"
    assert listed[0]["lease_ends"] - listed[0]["claimed_at"] == 604_800
    assert len((await full.get(f"{PROJ}/claims", claimant="bob"))["items"]) == 2
    assert len((await full.get(f"{PROJ}/claims", item="two/a"))["items"]) == 1
    assert len((await full.get(f"{PROJ}/claims", min_age=200))["items"]) == 3
    release = f"{PROJ}/claims/release"
    refused = await full.ask("POST", release, 422, json={})
    assert "choose the claims" in refused["detail"]
    assert await full.ask("POST", release, json={"min_age": 350}) == {"released": 1}
    assert await full.ask("POST", release, json={"item_prefix": "one", "claimant": "alice"}) == {"released": 0}
    assert await full.ask("POST", release, json={"item_prefix": "one"}) == {"released": 1}
    assert await full.ask("POST", release, json={"item": "two/b"}) == {"released": 1}
    assert await full.ask("POST", release, json={"min_age": 0}) == {"released": 1}
    assert len((await full.get(f"{PROJ}/items"))["items"]) == 4


async def test_a_project_that_needs_probes_says_so_while_there_are_none(admin: Admin, full: ApiClient) -> None:
    for name, verify, missing in (("weak", "announce", False), ("strong", "handshake", True)):
        body = {"name": name, "kind": "seeding", "verify": verify}
        assert (await full.ask("POST", "/work/projects", 201, json=body))["probes_missing"] is missing
    settings = admin.context.settings
    admin.context.live.current = settings.model_copy(update={"probe": ProbeSettings(enabled=True)})
    assert (await full.get("/work/projects/strong"))["probes_missing"] is False


async def test_results_are_listed(full: ApiClient, store: Store, proj: None) -> None:
    await full.ask("PATCH", PROJ, json={"start_budget": 10})
    await add(full, "a", "b", "c")
    for who, number in (("alice", 5), ("bob", 0), ("alice", 7)):
        claim = await claimed(store, who)
        await store.work.claims.done(
            "proj", who, claim.item, address="192.0.2.1", reported={"data": number}, id_text="x"
        )
        store.clock.now += 60
    await store.work.leaderboard.update("proj")
    board = await full.get(f"{PROJ}/leaderboard")
    assert board["total"] == 2
    assert board["items"] == [
        {"claimant": "alice", "items": 2, "bytes": 12, "seconds": 0},
        {"claimant": "bob", "items": 1, "bytes": 0, "seconds": 0},
    ]
    assert len((await full.get(f"{PROJ}/leaderboard", by="bytes", limit=1))["items"]) == 1
    assert (await full.get(f"{PROJ}/leaderboard", period="2020-01"))["items"] == []
    in_week = await full.get(f"{PROJ}/leaderboard", period=week_of(store.clock.now))
    assert in_week["items"] == board["items"]
    assert (await full.get(f"{PROJ}/leaderboard", period="2020-W53"))["items"] == []
    for wrong in ("2026-W00", "2026-W54", "W47"):
        assert await full.wrong_fields("GET", f"{PROJ}/leaderboard", params={"period": wrong}) == ["query.period"]
    first = await full.get(f"{PROJ}/log", limit=2)
    assert [row["total_bytes"] for row in first["items"]] == [7, 0]
    assert first["items"][0]["bytes"] == {"data": 7} and first["items"][0]["address"] == "192.0.2.1"
    rest = await full.get(f"{PROJ}/log", limit=2, before=first["next_before"])
    assert [row["total_bytes"] for row in rest["items"]] == [5] and rest["next_before"] is None
    assert (await full.get(PROJ))["domain_bytes"] == {"data": 12}
    assert await full.wrong_fields("GET", f"{PROJ}/log?before=x") == ["query.before"]


async def test_a_claimant_is_blocked_and_unblocked(full: ApiClient, store: Store, proj: None) -> None:
    blocked = f"{PROJ}/blocked"
    assert await full.ask("POST", blocked, json={"who": "alice"}) == {"who": "alice", "new": True}
    assert (await full.ask("POST", blocked, json={"who": "alice"}))["new"] is False
    assert (await full.ask("POST", "/work/blocked", json={"who": "2001:db8::/64"}))["new"] is True
    assert (await full.get(blocked))["items"] == ["alice"]
    assert (await full.get("/work/blocked"))["items"] == ["2001:db8::/64"]
    await full.ask("DELETE", "/work/blocked", 204, params={"who": "2001:db8::/64"})
    await full.ask("DELETE", blocked, 204, params={"who": "alice"})
    await full.ask("DELETE", blocked, 404, params={"who": "alice"})
    await full.ask("POST", blocked, 422, json={"who": "10.0.0.0/8"})
    log = (await full.get(f"{PROJ}/blocked-log"))["items"]
    assert [(row["what"], row["who"]) for row in log] == [("unblocked", "alice"), ("blocked", "alice")]


async def test_role_read_sees_no_addresses(full: ApiClient, reader: ApiClient, store: Store, proj: None) -> None:
    """W17: nor lists of blocked ones, and it changes nothing."""
    await add(full, "a", "b")
    claim = await claimed(store, "alice", address="192.0.2.77")
    await store.work.claims.done("proj", "alice", claim.item, address="192.0.2.77")
    await claimed(store, "alice", address="192.0.2.77")
    await full.ask("POST", f"{PROJ}/blocked", json={"who": "192.0.2.77"})
    for path in ("", "/items", "/claims", "/log", "/leaderboard"):
        shown = await reader.get(f"{PROJ}{path}")
        assert "192.0.2" not in str(shown), path
    assert "192.0.2.77" in str(await full.get(f"{PROJ}/claims"))
    for path in (f"{PROJ}/blocked", f"{PROJ}/blocked-log", "/work/blocked"):
        await reader.get(path, 403)
    await reader.ask("DELETE", PROJ, 403)


async def test_the_policy_is_previewed(full: ApiClient, reader: ApiClient, store: Store, proj: None) -> None:
    """What it would enqueue, and why; nothing changes."""
    await full.ask("POST", "/work/projects", 201, json={"name": "seeds", "kind": "seeding"})
    weak = await swarm(store, 1, [1] * 72)
    await swarm(store, 2, [9] * 72)
    (row,) = (await reader.get("/work/projects/seeds/policy"))["items"]
    assert row == {
        "info_hash": weak.hex(),
        "reason": "weak",
        "copies_before": 0,
        "copies": 2,
        "queue": "todo",
        "asked": [],
        "average": 1.0,
        "seeders": 1,
    }
    assert (await full.get("/work/projects/seeds/items"))["items"] == []
    await full.get(f"{PROJ}/policy", 422)
    await full.get("/work/projects/none/policy", 404)
