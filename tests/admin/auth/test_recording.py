"""Changes by the API and the dashboard in the audit log."""

from typing import Any

import pytest

from tests.admin.conftest import Admin
from tracker.admin.http.cookies import COOKIE
from tracker.store.access.audit import AuditEntry, AuditFilter
from tracker.store.jobs.records import Result
from tracker.store.work.records import Project

HASH = "ab" * 20
CALLS: list[tuple[str, str, dict[str, Any], str, list[str], dict[str, int]]] = [
    ("POST", "/torrents", {"info_hash": HASH, "name": "a"}, "torrent.add", [f"torrent {HASH}"], {}),
    ("PATCH", f"/torrents/{HASH}", {"name": "b"}, "torrent.edit", [f"torrent {HASH}"], {}),
    ("PUT", f"/denials/{HASH}", {"reason": "no"}, "denial.add", [f"torrent {HASH}"], {}),
    ("DELETE", f"/denials/{HASH}", {}, "denial.remove", [f"torrent {HASH}"], {}),
    ("POST", "/users", {"user_id": "7", "name": "Alice"}, "user.add", ["user 7"], {}),
    ("PATCH", "/users/7", {"name": "Bob", "uploaded": 5}, "user.edit", ["user 7"], {}),
    ("POST", "/users/7/passkey", {}, "user.rotate", ["user 7"], {}),
    ("POST", "/users/7/forgive", {}, "user.forgive", ["user 7"], {"forgiven": 0}),
    (
        "PUT",
        f"/users/7/freeleech/{HASH}",
        {"until": 1_900_000_000},
        "freeleech.give",
        [f"torrent {HASH}", "user 7"],
        {},
    ),
    ("DELETE", "/users/7", {}, "user.delete", ["user 7"], {}),
    ("PUT", "/multipliers", {"upload_multiplier": 2}, "multipliers.set", ["multipliers all"], {}),
    ("PUT", "/clients/-TR4", {"name": "x"}, "client.allow", ["client -TR4"], {}),
    ("PUT", "/denied-clients/-qB", {"reason": "x"}, "client.deny", ["client -qB"], {}),
    ("POST", "/work/projects", {"name": "proj"}, "project.create", ["project proj"], {}),
    (
        "POST",
        "/work/projects/proj/items",
        {"items": ["a", "b"]},
        "items.add",
        ["project proj"],
        {"added": 2, "processed": 2},
    ),
    ("POST", "/work/blocked", {"who": "eve"}, "block.add", ["block /eve"], {}),
    ("POST", "/work/projects/proj/blocked", {"who": "eve"}, "block.add", ["project proj", "block proj/eve"], {}),
    ("DELETE", "/work/projects/proj", {}, "project.delete", ["project proj"], {}),
    ("DELETE", f"/torrents/{HASH}", {}, "torrent.remove", [f"torrent {HASH}"], {}),
]


async def newest(admin: Admin, limit: int = 1) -> list[AuditEntry]:
    return (await admin.store.audit.page(AuditFilter(), limit=limit))[0]


def names(entry: AuditEntry) -> list[str]:
    return [f"{each.kind} {each.id}" for each in entry.objects]


async def test_each_change_by_the_api_is_recorded_with_its_objects_and_numbers(admin: Admin) -> None:
    async with admin.client("admin") as program:
        for method, path, body, operation, objects, counts in CALLS:
            options: dict[str, Any] = {"json": body} if method != "DELETE" and body else {}
            async with program.request(method, f"/api/v1{path}", **options) as response:
                assert response.status < 300, (method, path, await response.text())
            (entry,) = await newest(admin)
            assert (entry.operation, names(entry)) == (operation, objects), (method, path)
            assert (entry.actor, entry.role, entry.way) == ("test admin", "admin", "api")
            assert entry.address == "127.0.0.1" and entry.token_id
            assert dict(entry.counts) == counts
            if operation not in ("items.add", "user.forgive"):
                assert any(each.before != each.after or "passkey" in each.after for each in entry.objects)


async def test_before_and_after_of_an_edit(admin: Admin) -> None:
    await admin.store.users.add("7", name="Alice")
    async with admin.client("operate") as program:
        await program.patch("/api/v1/users/7", json={"name": "Bob", "uploaded": 5})
        await program.patch("/api/v1/users/7", json={"enabled": False})
    second, first = await newest(admin, 2)
    assert (first.objects[0].before, first.objects[0].after) == (
        {"name": "Alice", "uploaded": "0"},
        {"name": "Bob", "uploaded": "5"},
    )
    assert (second.objects[0].before, second.objects[0].after) == ({"enabled": "true"}, {"enabled": "false"})
    assert second.role == "operate"


async def test_a_change_by_the_dashboard_is_recorded(admin: Admin) -> None:
    async with admin.browser("operate") as browser:
        async with browser.post("/torrents/denied", data={"info_hash": HASH, "reason": "no"}) as response:
            assert response.status == 200
        (denied,) = await newest(admin)
        async with browser.post("/users", data={"name": "Alice"}) as response:
            assert response.status == 200
        (added,) = await newest(admin)
        async with browser.post("/clients/allow", data={"prefix": "-TR4", "text": "x"}) as response:
            assert response.status == 200
        (allowed,) = await newest(admin)
    assert (denied.way, denied.actor, denied.operation) == ("dashboard", "test operate", "denial.add")
    assert names(denied) == [f"torrent {HASH}"] and denied.objects[0].after["denied"] == "no"
    assert names(added) == ["user 1"] and added.objects[0].after["name"] == "Alice"
    assert names(allowed) == ["client -TR4"] and allowed.objects[0].after == {"allowed": "x"}


async def test_a_session_by_link_is_named_so(admin: Admin) -> None:
    signed_in = await admin.store.tokens.sign_in_by_link(await admin.store.tokens.new_link(), 60)
    assert signed_in is not None
    headers = {"Origin": admin.url, "X-CSRF-Token": signed_in[0].csrf}
    async with admin.client(headers=headers, cookies={COOKIE: signed_in[1]}) as browser:
        async with browser.post("/jobs/sweep", allow_redirects=False) as response:
            assert response.status == 303
    (entry,) = await newest(admin)
    assert (entry.actor, entry.token_id, entry.operation) == ("sign-in link", "", "jobs.sweep")


async def test_every_changed_row_of_a_batch_is_found_by_its_id(admin: Admin) -> None:
    known = await admin.store.users.add("1", name="old")
    await admin.store.users.add("999", name="same")
    rows: list[dict[str, Any]] = [{"passkey": known.passkey, "name": "new"}, {"user_id": "999", "name": "same"}]
    rows += [{"user_id": str(number)} for number in range(2, 250)] + [{"user_id": "x"}]
    async with admin.client("operate") as program:
        async with program.post("/api/v1/users/batch", json={"users": rows}) as response:
            assert response.status == 200
    entries = await newest(admin, 50)
    assert dict(entries[0].counts) == {"added": 248, "known": 2, "errors": 1}
    assert len(entries[0].objects) == 10 and len(entries) <= 7
    named = [name for entry in entries for name in names(entry)]
    assert sorted(named) == sorted(f"user {number}" for number in range(1, 250))
    objects = {each.id: each for entry in entries for each in entry.objects}
    assert (objects["1"].before, objects["1"].after) == ({"name": "old"}, {"name": "new"})
    assert objects["249"].before == {} and objects["249"].after["enabled"] == "true"
    assert known.passkey not in repr(entries)
    for user_id, number in (("1", 1), ("249", 1), ("999", 0)):
        found, _ = await admin.store.audit.page(AuditFilter(object=user_id, operation="user.batch"))
        assert len(found) == number, user_id


async def test_every_changed_torrent_of_a_batch_is_found_by_its_hash(admin: Admin) -> None:
    hashes = [f"{number:040x}" for number in range(130)]
    for name in ("old", "old", "new"):
        rows = [{"info_hash": each, "name": name if each == hashes[77] else "x"} for each in hashes]
        async with admin.client("operate") as program:
            async with program.post("/api/v1/torrents/batch", json={"torrents": rows}) as response:
                assert response.status == 200
    found, _ = await admin.store.audit.page(AuditFilter(object=hashes[77]))
    changes = [(each.before, each.after) for entry in found for each in entry.objects if each.id == hashes[77]]
    assert changes[0] == ({"name": "old"}, {"name": "new"})
    assert (changes[1][0], changes[1][1]["name"], len(changes)) == ({}, "old", 2)


async def test_reading_and_refused_calls_have_no_entry(admin: Admin) -> None:
    user = await admin.store.users.add("7")
    async with admin.client("read") as reader, admin.client("admin") as program:
        await reader.delete("/api/v1/users/7")
        await program.get("/api/v1/users/7")
        await program.post("/api/v1/users/lookup", json={"passkey": user.passkey})
        await program.patch("/api/v1/users/8", json={"name": "x"})
        await program.patch("/api/v1/users/7", json={"nme": "x"})
        await program.post("/api/v1/users", json={"user_id": "7"})
        await program.post("/api/v1/users", data=b"{")
    assert await newest(admin) == []


async def test_tokens_are_recorded_without_their_text(admin: Admin) -> None:
    async with admin.client("admin") as program, admin.browser("admin") as browser:
        async with program.post("/api/v1/tokens", json={"name": "site", "role": "operate"}) as response:
            made = await response.json()
        await program.delete(f"/api/v1/tokens/{made['token_id']}")
        await browser.post("/tokens", data={"name": "other"})
    created_by_form, revoked, created = await newest(admin, 3)
    assert names(created) == names(revoked) == [f"token {made['token_id']}"]
    assert created.objects[0].after == {"name": "site", "role": "operate"} == revoked.objects[0].before
    assert created_by_form.objects[0].after["name"] == "other"
    assert made["token"] not in repr(await admin.store.connection.command("XRANGE", admin.store.keys.audit(), "-", "+"))


async def test_jobs_and_projects_by_the_dashboard(admin: Admin) -> None:
    store = admin.store
    await store.work.projects.create(Project("proj"))
    await store.jobs.enqueue("q")
    (job,) = await store.jobs.claim({"q": (1, 1)})
    await store.jobs.finish([Result(job, "fatal", "why")])
    async with admin.browser("admin") as browser:
        project = ["project proj"]
        for path, form, objects, counts, details in (
            (f"/jobs/{job.id}/retry", {}, [f"job {job.id}"], {}, {}),
            ("/jobs/purge", {"queue": "q", "status": "pending"}, ["queue q"], {"deleted": 1}, {"status": "pending"}),
            (
                "/work/proj/items",
                {"items": "a\nb", "queue": "todo"},
                project,
                {"processed": 2, "added": 2},
                {"queue": "todo"},
            ),
            ("/work/proj/items/purge", {"list": "todo"}, project, {"removed": 2}, {"list": "todo"}),
            ("/work/proj/claims/release", {"prefix": "a"}, project, {"released": 0}, {"prefix": "a"}),
            ("/work/proj/blocked", {"who": "eve"}, [*project, "block proj/eve"], {}, {}),
            ("/work/proj/delete", {}, project, {}, {}),
        ):
            async with browser.post(path, data=form, allow_redirects=False) as response:
                assert response.status == 303, path
            (entry,) = await newest(admin)
            assert (names(entry), dict(entry.counts), dict(entry.details)) == (objects, counts, details), path


@pytest.mark.parametrize("path", ["/api/v1/torrents", "/torrents/denied"])
async def test_a_lost_entry_does_not_fail_the_change(admin: Admin, path: str) -> None:
    await admin.store.connection.command("SET", admin.store.keys.audit(), "of another program")
    body: dict[str, Any] = {"json": {"info_hash": HASH}} if path.startswith("/api") else {"data": {"info_hash": HASH}}
    session = admin.client("admin") if path.startswith("/api") else admin.browser("admin")
    async with session as caller, caller.post(path, **body, allow_redirects=False) as response:
        assert response.status < 400
