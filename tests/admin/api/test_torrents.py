from pathlib import Path

import bencodepy
import pytest
from aiohttp import FormData

from tests.admin.api.api_client import ApiClient, all_pages, swarms_of
from tests.admin.conftest import Admin
from tests.every_field import TORRENT
from tests.store.harness import info_hash, update
from tests.torrent_files import HYBRID, V1
from tracker.bittorrent import InfoHash
from tracker.settings.model import Settings

HASH = "ab" * 20


def torrent_file(info: dict[bytes, object] | None = None) -> FormData:
    form = FormData()
    form.add_field("file", bencodepy.encode({b"info": info or HYBRID}), filename="a.torrent")
    return form


@pytest.mark.parametrize("way", ["new", "batch", "patch", "file"])
async def test_a_torrent_waits_for_approval(full: ApiClient, way: str) -> None:
    if way == "new":
        await full.ask("POST", "/torrents", 201, json={"info_hash": HASH, "enabled": "pending"})
    elif way == "batch":
        body = {"torrents": [{"info_hash": HASH, "enabled": "pending"}, {"info_hash": "cd" * 20, "enabled": "no"}]}
        assert (await full.ask("POST", "/torrents/batch", json=body))["errors"] == 1
    elif way == "patch":
        await full.ask("POST", "/torrents", 201, json={"info_hash": HASH})
        await full.ask("PATCH", f"/torrents/{HASH}", json={"enabled": "pending"})
    else:
        form = torrent_file({b"name": b"x", b"piece length": 16384, b"pieces": bytes(20), b"length": 5})
        form.add_field("pending", "true")
        await full.ask("POST", "/torrent-files", 201, data=form)
    (row,) = (await full.get("/torrents", enabled="pending"))["items"]
    assert (row["state"], row["reason"]) == ("pending", "")
    for flag in ("true", "false"):
        assert (await full.get("/torrents", enabled=flag))["items"] == []
    await full.ask("PATCH", f"/torrents/{row['info_hash']}", json={"enabled": True})
    (row,) = (await full.get("/torrents", enabled="true"))["items"]
    assert row["state"] == "registered"
    await full.ask("PATCH", f"/torrents/{row['info_hash']}", 422, json={"enabled": "maybe"})


@pytest.mark.parametrize("way", ["new", "batch", "patch", "file", "name of the form", "site"])
async def test_names_follow_one_rule(full: ApiClient, admin: Admin, way: str) -> None:
    """Joiners and wide spaces stay, overrides are dropped; of a name that cannot be refused, control characters too."""
    given, name = "می\u200cخواهم \u202egpj\u3000", "می\u200cخواهم gpj\u3000"
    info_hash = HASH
    if way in ("file", "name of the form"):
        form = torrent_file(V1 | {b"name": f"\n{given}\x1b".encode() if way == "file" else b"x"})
        if way != "file":
            form.add_field("name", given)
        info_hash = (await full.ask("POST", "/torrent-files", 201, data=form))["torrents"][0]["info_hash"]
    elif way == "batch":
        await full.ask("POST", "/torrents/batch", json={"torrents": [{"info_hash": HASH, "name": given}]})
    else:
        new = {"info_hash": HASH} | ({"name": given} if way == "new" else {})
        added = await full.ask("POST", "/torrents", 201, json=new)
        assert added["torrents"][0]["name"] == ("" if way != "new" else name)
    if way == "patch":
        await full.ask("PATCH", f"/torrents/{HASH}", json={"name": given})
    if way == "site":
        key = admin.store.keys.torrent(InfoHash(bytes.fromhex(HASH)))
        await admin.store.connection.command("HSET", key, "name", f"\n{given}")
    assert (await full.get(f"/torrents/{info_hash}"))["name"] == name
    (found,) = (await full.get("/torrents"))["items"]
    assert found["name"] == name


@pytest.mark.parametrize("way", ["new", "batch", "known", "patch"])
async def test_every_field_of_a_torrent_can_be_set(full: ApiClient, way: str) -> None:
    fields = {**TORRENT, "labels": TORRENT["labels"].split()}
    v1 = await full.ask("POST", "/torrents", 201, json={"info_hash": TORRENT["hybrid_of"]})
    if way in ("known", "patch"):
        await full.ask("POST", "/torrents", 201, json={"info_hash": HASH})
    if way == "new":
        await full.ask("POST", "/torrents", 201, json={"info_hash": HASH, **fields, "snatches": 8})
    elif way == "patch":
        await full.ask("PATCH", f"/torrents/{HASH}", json=fields)
    else:
        body = {"torrents": [{"info_hash": HASH, **fields, "snatches": 8}]}
        assert (await full.ask("POST", "/torrents/batch", json=body))["errors"] == 0
    row = await full.get(f"/torrents/{HASH}")
    other = await full.get(f"/torrents/{v1['torrents'][0]['info_hash']}")
    assert (other["hybrid_of"], other["hybrid"]) == (None, HASH)
    assert row["state"] == "disabled" and row["snatches"] == (8 if way in ("new", "batch") else 0)
    assert {name: row[name] for name in fields if name != "enabled"} == {
        name: value for name, value in fields.items() if name != "enabled"
    }


async def test_a_torrent_is_registered_by_info_hash(full: ApiClient) -> None:
    async with full.session.post("/api/v1/torrents", json={"info_hash": HASH.upper(), "name": "a film"}) as made:
        assert made.status == 201
        assert made.headers["Location"] == f"/api/v1/torrents/{HASH}"
        body = await made.json()
    assert body == {"new": True, "torrents": [{"info_hash": HASH, "torrent_id": "1", "new": True, "name": "a film"}]}
    shown = await full.get(f"/torrents/{HASH}")
    assert (shown["name"], shown["state"], shown["private"], shown["score"]) == ("a film", "registered", False, 1.0)
    again = await full.ask("POST", "/torrents", 200, json={"info_hash": HASH, "private": True})
    assert again["new"] is False
    assert (await full.get(f"/torrents/{HASH}"))["private"] is True


async def test_a_torrent_is_registered_by_v2_hash(full: ApiClient) -> None:
    body = await full.ask("POST", "/torrents", 201, json={"info_hash": "cd" * 32})
    assert body["torrents"][0]["info_hash"] == "cd" * 20


async def test_an_uploaded_torrent_may_have_multipliers(full: ApiClient) -> None:
    form = torrent_file()
    form.add_field("download_multiplier", "0")
    form.add_field("download_multiplier_until", "1900000000")
    added = await full.ask("POST", "/torrent-files", 201, data=form)
    row = await full.get(f"/torrents/{added['torrents'][0]['info_hash']}")
    assert (row["download_multiplier"], row["download_multiplier_until"]) == (0, 1_900_000_000)
    assert (row["upload_multiplier"], row["upload_multiplier_until"]) == (1, None)
    for name, value in (("upload_multiplier", "nan"), ("upload_multiplier", "x"), ("upload_multiplier_until", "+1")):
        form = torrent_file()
        form.add_field(name, value)
        assert await full.wrong_fields("POST", "/torrent-files", data=form) == [f"body.{name}"]
    form = torrent_file()
    form.add_field("upload_multiplier_until", "1900000000")
    assert "needs upload_multiplier" in (await full.ask("POST", "/torrent-files", 422, data=form))["detail"]


async def test_a_hybrid_file_registers_two_torrents(full: ApiClient) -> None:
    body = await full.ask("POST", "/torrent-files", 201, data=torrent_file())
    assert len(body["torrents"]) == 2
    for each in body["torrents"]:
        assert (await full.get(f"/torrents/{each['info_hash']}"))["name"] == "a film"
    form = torrent_file()
    form.add_field("name", "another")
    form.add_field("private", "true")
    assert (await full.ask("POST", "/torrent-files", 200, data=form))["new"] is False
    shown = await full.get(f"/torrents/{body['torrents'][0]['info_hash']}")
    assert (shown["name"], shown["private"]) == ("another", True)


async def test_the_torrents_of_a_hybrid_file_are_halves_of_one(full: ApiClient) -> None:
    body = await full.ask("POST", "/torrent-files", 201, data=torrent_file())
    v1, v2 = (each["info_hash"] for each in body["torrents"])
    first, second = await full.get(f"/torrents/{v1}"), await full.get(f"/torrents/{v2}")
    assert (first["hybrid_of"], first["hybrid"]) == (None, v2)
    assert (second["hybrid_of"], second["hybrid"]) == (v1, None)
    edited = await full.ask("PATCH", f"/torrents/{v2}", json={"enabled": False, "download_multiplier": 0})
    assert edited["hybrid_of"] == v1
    first = await full.get(f"/torrents/{v1}")
    assert (first["state"], first["download_multiplier"]) == ("disabled", 0)
    await full.ask("PUT", f"/denials/{v1}", json={})
    assert (await full.get(f"/torrents/{v2}"))["state"] == "denied"
    await full.ask("DELETE", f"/denials/{v2}", 204)
    await full.ask("DELETE", f"/denials/{v1}", 404)
    await full.ask("DELETE", f"/torrents/{v1}", 204)
    second = await full.get(f"/torrents/{v2}")
    assert (second["state"], second["hybrid_of"]) == ("disabled", None)


async def test_wrong_halves_are_refused(full: ApiClient) -> None:
    """Nothing is changed then."""
    one, two, three, unknown = (f"{number:040x}" for number in (1, 2, 3, 4))
    for each in (one, two, three):
        await full.ask("POST", "/torrents", 201, json={"info_hash": each})
    await full.ask("PATCH", f"/torrents/{two}", json={"hybrid_of": one.upper()})
    for half, of in ((one, two), (one, one), (three, one), (three, two), (two, three), (one, three)):
        refusal = await full.ask("PATCH", f"/torrents/{half}", 409, json={"hybrid_of": of, "name": "x"})
        assert "half of" in refusal["detail"]
    refusal = await full.ask("PATCH", f"/torrents/{three}", 422, json={"hybrid_of": unknown, "name": "x"})
    assert "not registered" in refusal["detail"]
    refusal = await full.ask("POST", "/torrents", 409, json={"info_hash": unknown, "hybrid_of": two})
    assert "half of" in refusal["detail"]
    await full.ask("POST", "/torrents", 409, json={"info_hash": unknown, "hybrid_of": "ab" * 20})
    await full.ask("PATCH", f"/torrents/{unknown}", 404, json={"hybrid_of": one})
    assert await full.wrong_fields("PATCH", f"/torrents/{three}", json={"hybrid_of": "x"}) == ["body.hybrid_of"]
    items = (await full.get("/torrents"))["items"]
    assert {row["info_hash"]: (row["hybrid_of"], row["name"]) for row in items} == {
        one: (None, ""),
        two: (one, ""),
        three: (None, ""),
    }
    await full.ask("PATCH", f"/torrents/{one}", json={"hybrid_of": ""})
    assert (await full.get(f"/torrents/{two}"))["hybrid_of"] is None


async def test_a_file_whose_hash_is_a_half_of_another_torrent_is_refused(full: ApiClient) -> None:
    v1 = (await full.ask("POST", "/torrent-files", 201, data=torrent_file()))["torrents"][0]["info_hash"]
    await full.ask("PATCH", f"/torrents/{v1}", json={"hybrid_of": ""})
    for each in ({"info_hash": HASH}, {"info_hash": "ef" * 20, "hybrid_of": v1}):
        await full.ask("POST", "/torrents", 201, json=each)
    form = torrent_file()
    form.add_field("name", "another")
    assert "half of another" in (await full.ask("POST", "/torrent-files", 409, data=form))["detail"]
    assert (await full.get(f"/torrents/{v1}"))["name"] == "a film"


@pytest.mark.parametrize(("written", "private"), [("True", True), ("false", False), ("FALSE", False)])
async def test_booleans_of_forms_are_case_insensitive(full: ApiClient, written: str, private: bool) -> None:
    """Clients made by openapi-python-client send ``False`` for omitted fields."""
    form = torrent_file()
    form.add_field("private", written)
    form.add_field("reset_score", "False")
    added = await full.ask("POST", "/torrent-files", 201, data=form)
    assert (await full.get(f"/torrents/{added['torrents'][0]['info_hash']}"))["private"] is private


async def test_invalid_torrent_files_are_refused(full: ApiClient) -> None:
    form = FormData()
    form.add_field("file", b"d4:info", filename="a.torrent")
    response = await full.ask("POST", "/torrent-files", 422, data=form)
    assert response["detail"] == "this is not a well-formed .torrent file"
    form = FormData({"name": "no file"})
    form.add_field("other", b"x", filename="x")
    assert await full.wrong_fields("POST", "/torrent-files", data=form) == ["body.file", "body.other"]


async def test_a_torrent_id_that_is_no_number_is_a_conflict(full: ApiClient, admin: Admin) -> None:
    await admin.store.connection.command("SET", admin.store.keys.info_hash(info_hash(1)), "a site's")
    await full.ask("POST", "/torrents", 409, json={"info_hash": info_hash(1).hex()})


async def test_lists_are_sorted_and_paged(full: ApiClient, admin: Admin, redis_url: str) -> None:
    async with swarms_of(admin, redis_url) as store:
        for torrent in range(1, 6):
            for peer in range(torrent):
                await store.announce(update(100 * torrent + peer, torrent=torrent, bytes_left=0))
    first = await full.get("/torrents", limit=2)
    assert [row["seeders"] for row in first["items"]] == [5, 4]
    assert (first["total"], first["next_cursor"]) == (5, "f2")
    rows = await all_pages(full, "/torrents", sort="seeders", order="asc", limit=2)
    assert [row["seeders"] for row in rows] == [1, 2, 3, 4, 5]
    for sort in ("leechers", "snatches", "score"):
        page = await full.get("/torrents", sort=sort)
        assert len(page["items"]) == page["total"] == 5


async def test_torrents_are_found_by_name_and_info_hash(full: ApiClient) -> None:
    for number, name in ((1, "Sintel"), (2, "sintel again"), (3, "Big Buck Bunny")):
        await full.ask("POST", "/torrents", 201, json={"info_hash": info_hash(number).hex(), "name": name})
    found = await all_pages(full, "/torrents", q="SINTEL", limit=1)
    assert sorted(row["name"] for row in found) == ["Sintel", "sintel again"]
    by_hash = await full.get("/torrents", q=info_hash(3).hex()[:40])
    assert [row["name"] for row in by_hash["items"]] == ["Big Buck Bunny"]
    assert await full.wrong_fields("GET", "/torrents", params={"q": "x", "sort": "score"}) == ["query."]
    await full.get("/torrents", 422, cursor="h5")
    await full.get("/torrents", 422, q="x", cursor="nocursor")


async def test_torrents_can_be_changed(full: ApiClient) -> None:
    await full.ask("POST", "/torrents", 201, json={"info_hash": HASH, "name": "a film"})
    row = await full.ask("PATCH", f"/torrents/{HASH}", json={"enabled": False, "reason": "asked to"})
    assert (row["state"], row["reason"], row["name"]) == ("disabled", "asked to", "a film")
    row = await full.ask("PATCH", f"/torrents/{HASH}", json={"enabled": True, "name": "renamed"})
    assert (row["state"], row["reason"], row["name"]) == ("registered", "", "renamed")
    await full.ask("PATCH", f"/torrents/{HASH}", json={"upload_multiplier": 2, "download_multiplier": 0.25})
    shown = await full.get(f"/torrents/{HASH}")
    assert (shown["upload_multiplier"], shown["download_multiplier"]) == (2.0, 0.25)
    assert await full.wrong_fields("PATCH", f"/torrents/{HASH}", json={"upload_multiplier": 1001}) == [
        "body.upload_multiplier"
    ]


async def test_a_torrent_has_a_size_and_labels(full: ApiClient) -> None:
    body = {"info_hash": HASH, "size": 2**53 - 1, "labels": ["films", "4k"]}
    await full.ask("POST", "/torrents", 201, json=body)
    row = await full.ask("PATCH", f"/torrents/{HASH}", json={"labels": ["x"]})
    assert (row["size"], row["labels"]) == (2**53 - 1, ["x"])
    row = await full.ask("PATCH", f"/torrents/{HASH}", json={"size": 0, "labels": []})
    assert (row["size"], row["labels"]) == (0, [])
    (listed,) = (await full.get("/torrents"))["items"]
    assert (listed["size"], listed["labels"]) == (0, [])
    for name, value in (("size", -1), ("size", 2**53), ("labels", ["A"]), ("labels", ["a b"])):
        wrong = await full.wrong_fields("PATCH", f"/torrents/{HASH}", json={name: value})
        assert wrong[0].startswith(f"body.{name}")
    too_many = {"labels": [f"l{n}" for n in range(21)]}
    assert await full.wrong_fields("PATCH", f"/torrents/{HASH}", json=too_many) == ["body.labels"]


async def test_a_file_gives_the_size_and_may_have_labels(full: ApiClient) -> None:
    form = torrent_file()
    form.add_field("labels", "films, 4k")
    (first, _) = (await full.ask("POST", "/torrent-files", 201, data=form))["torrents"]
    shown = await full.get(f"/torrents/{first['info_hash']}")
    assert (shown["size"], shown["labels"]) == (5, ["films", "4k"])
    form = torrent_file()
    form.add_field("labels", "Not Valid")
    await full.ask("POST", "/torrent-files", 422, data=form)


async def test_a_kept_file_is_downloaded_until_its_torrent_is_removed(
    admin: Admin, full: ApiClient, tmp_path: Path
) -> None:
    settings = {"data": {"directory": tmp_path}, "torrents": {"keep_files": True}}
    admin.context.live.current = admin.context.settings.model_copy(
        update={name: getattr(Settings.model_validate(settings), name) for name in settings}
    )
    (first, _) = (await full.ask("POST", "/torrent-files", 201, data=torrent_file()))["torrents"]
    here = f"/torrents/{first['info_hash']}"
    assert (await full.get(here))["has_file"] is True
    async with full.session.get(f"/api/v1{here}/file") as response:
        assert (response.status, response.content_type) == (200, "application/x-bittorrent")
        assert first["info_hash"] in response.headers["Content-Disposition"]
        assert bencodepy.decode(await response.read()) == {b"info": HYBRID, b"piece layers": {}}
    await full.ask("DELETE", here, 204)
    await full.ask("POST", "/torrents", 201, json={"info_hash": first["info_hash"]})
    assert (await full.get(here))["has_file"] is False
    await full.get(f"{here}/file", 404)


async def test_no_file_is_kept_by_default(full: ApiClient) -> None:
    (first, _) = (await full.ask("POST", "/torrent-files", 201, data=torrent_file()))["torrents"]
    assert (await full.get(f"/torrents/{first['info_hash']}"))["has_file"] is False
    await full.get(f"/torrents/{first['info_hash']}/file", 404)


async def test_registering_again_changes_only_the_given_fields(full: ApiClient) -> None:
    await full.ask("POST", "/torrents", 201, json={"info_hash": HASH, "enabled": False, "upload_multiplier": 3})
    assert (await full.get(f"/torrents/{HASH}"))["state"] == "disabled"
    await full.ask("POST", "/torrents", 200, json={"info_hash": HASH, "name": "x"})
    shown = await full.get(f"/torrents/{HASH}")
    assert (shown["state"], shown["upload_multiplier"]) == ("disabled", 3.0)


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_unknown_torrents_are_not_found(full: ApiClient, method: str) -> None:
    options = {"json": {"name": "x"}} if method == "PATCH" else {}
    await full.ask(method, f"/torrents/{HASH}", 404, **options)
    assert await full.wrong_fields(method, "/torrents/xyz", **options) == ["path.info_hash"]


async def test_a_removed_torrent_is_gone(full: ApiClient) -> None:
    await full.ask("POST", "/torrents", 201, json={"info_hash": HASH})
    await full.ask("DELETE", f"/torrents/{HASH}", 204)
    await full.get(f"/torrents/{HASH}", 404)
    await full.ask("DELETE", f"/torrents/{HASH}", 404)


async def test_role_read_cannot_change_torrents(reader: ApiClient) -> None:
    await reader.ask("POST", "/torrents", 403, json={"info_hash": HASH})
    await reader.ask("DELETE", f"/torrents/{HASH}", 403)
    assert (await reader.get("/torrents"))["items"] == []


async def test_torrents_get_the_ids_of_the_site(full: ApiClient) -> None:
    told = await full.ask("POST", "/torrents", 201, json={"info_hash": HASH, "torrent_id": 4711})
    assert told["torrents"][0]["torrent_id"] == "4711"
    rows = [
        {"info_hash": HASH, "torrent_id": "4711"},
        {"info_hash": "cd" * 20, "torrent_id": 4711},
        {"info_hash": "cd" * 20, "torrent_id": 12},
        {"info_hash": "ef" * 20, "torrent_id": 0},
        {"info_hash": "ef" * 20},
    ]
    told = await full.ask("POST", "/torrents/batch", json={"torrents": rows})
    assert [(row["outcome"], row["torrent_id"]) for row in told["rows"]] == [
        ("known", "4711"),
        ("error", None),
        ("added", "12"),
        ("error", None),
        ("added", "4712"),
    ]
    assert told["rows"][1]["error"] == "another torrent has this torrent id"
    problem = await full.ask("POST", "/torrents", 409, json={"info_hash": HASH, "torrent_id": 5})
    assert "registered with another torrent id" in problem["detail"]
    items = (await full.get("/torrents"))["items"]
    assert {row["torrent_id"] for row in items} == {"12", "4711", "4712"}
