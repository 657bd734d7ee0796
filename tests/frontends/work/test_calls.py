"""What claimants are answered: request, done, done+request, release (section by section of docs/work.md)."""

from typing import Any

import pytest

from tests.frontends.work.conftest import HASH, Reply, Serve, Site
from tests.store.harness import ALICE, BOB
from tests.store.work.harness import claim_of, rank
from tracker.bittorrent import InfoHash
from tracker.errors import ClientError

ASK = {"downloader": "volunteer_1", "version": "20260101.01"}
ASK_JSON = {**ASK, "api_version": "2"}


async def claimed(site: Site, project: str = "proj", **fields: Any) -> dict[str, Any]:
    reply = await site.ask(f"/{project}/request", {**ASK_JSON, **fields})
    assert reply.status == 200, reply
    found: dict[str, Any] = reply.json
    return found


async def report(site: Site, item: str = "one", **fields: Any) -> Reply:
    return await site.ask("/proj/done", {**ASK, "item": item, "bytes": {}, **fields})


async def test_a_client_of_2012_gets_the_item_as_text(site: Site) -> None:
    await site.add("item & <one>")
    reply = await site.ask("/proj/request", ASK)
    assert (reply.status, reply.text) == (200, "item & <one>")
    assert reply.headers["content-type"].startswith("text/plain")


async def test_a_client_of_2019_gets_json_with_token_and_lease(site: Site) -> None:
    await site.add("one")
    reply = await claimed(site)
    claim = await claim_of(site.store, "proj", "volunteer_1", "one")
    assert claim is not None and reply == {
        "item_name": "one",
        "token": claim.token,
        "lease_ends": int(site.store.clock.now) + 604_800,
    }


async def test_the_body_is_json_whatever_its_content_type(site: Site) -> None:
    await site.add("one")
    reply = await site.ask("/proj/request", ASK, headers={"Content-Type": "text/html"})
    assert reply.text == "one"


async def test_every_refusal_of_a_request_has_its_status_and_no_body(site: Site) -> None:
    """The order of checks: name, block, version, budget, rate, items."""
    projects = site.store.work.projects
    assert await refused(site) == (404, "")  # no item
    await site.add(*(f"item{number}" for number in range(9)))
    await projects.edit("proj", {"per_minute": 1})
    await claimed(site)
    reply = await site.ask("/proj/request", ASK)
    assert (reply.status, reply.text) == (429, "") and 1 <= int(reply.headers["retry-after"]) <= 61
    await claimed_until_budget_is_used(site)
    assert await refused(site) == (404, "")  # budget
    await projects.edit("proj", {"min_version": "20260101.02"})
    assert await refused(site) == (455, "")
    await site.store.work.blocks.block("volunteer_1", "proj")
    assert await refused(site) == (403, "")
    reply = await site.ask("/proj/request", {**ASK, "downloader": "../etc"})
    assert reply.status == 400
    assert (await site.ask("/other/request", ASK)).status == 404


async def claimed_until_budget_is_used(site: Site) -> None:
    site.store.clock.now += 61
    await claimed(site)


async def refused(site: Site, **fields: Any) -> tuple[int, str]:
    reply = await site.ask("/proj/request", {**ASK, **fields})
    return reply.status, reply.text


@pytest.mark.parametrize(
    ("version", "status"),
    [("20260101.1", 200), ("20260101.01", 200), ("20260101", 455), ("20251231.99", 455), ("", 455)],
)
async def test_versions_are_compared_as_text(site: Site, version: str, status: int) -> None:
    """W19."""
    await site.store.work.projects.edit("proj", {"min_version": "20260101.01"})
    await site.add("one")
    assert (await refused(site, version=version))[0] == status


async def test_legacy_status_is_420(serve: Serve) -> None:
    site = await serve(work={"legacy_status": True})
    await site.project(per_minute=1)
    await site.add("one", "two")
    await claimed(site)
    reply = await site.ask("/proj/request", ASK)
    assert reply.status == 420 and int(reply.headers["retry-after"]) >= 1


async def test_done_counts_once_and_a_duplicate_says_ok(site: Site) -> None:
    await site.add("one")
    await claimed(site)
    for _ in range(2):
        reply = await report(site, bytes={"data": 1234}, id={"sum": "abc"})
        assert (reply.status, reply.text) == (200, "OK\n")
    (entry,) = await site.store.redis.xrange(site.store.keys.work_log("proj"))
    row = dict(zip(*[iter(entry[1])] * 2, strict=True)) if isinstance(entry[1], list) else entry[1]
    assert (row[b"item"], row[b"by"], row[b"total"]) == (b"one", b"volunteer_1", b"1234")
    assert row[b"id"] == b'{"sum":"abc"}' and row[b"version"] == b"20260101.01"


async def test_a_report_that_can_never_count_is_ok_without_a_token_only(site: Site) -> None:
    """Clients without tokens repeat it until it is accepted. It changes nothing (W6, W7)."""
    await site.add("one", "two", "three")
    held = await claimed(site)
    other = "two" if held["item_name"] == "one" else "one"
    assert (await site.store.work.claims.done("proj", "stranger", "three")).counted
    before = await site.store.dump()
    for item in ("three", "unknown"):
        assert (await report(site, item)).text == "OK\n"
    for item, token, status in ((other, "1", 410), ("unknown", "1", 404), (held["item_name"], "1", 410)):
        assert (await report(site, item, token=token)).status == status
    assert await site.store.dump() == before


async def test_a_report_of_a_blocked_name_is_ok_without_a_token(site: Site) -> None:
    """Clients without tokens repeat it until it is accepted; it does not count."""
    await site.add("one")
    held = await claimed(site)
    await site.store.work.blocks.block("volunteer_1", "proj")
    before = await site.store.dump()
    assert (await report(site)).text == "OK\n"
    assert (await report(site, token=held["token"])).status == 403
    assert await site.store.dump() == before


async def test_upload_targets_have_turns(site: Site) -> None:
    assert (await site.ask("/proj/upload", ASK)).json == {}
    targets = ("rsync://one.example/:downloader/", "https://two.example/")
    await site.store.work.projects.edit("proj", {"upload_targets": targets})
    found = [(await site.ask("/proj/upload", ASK)).json["upload_target"] for _ in range(4)]
    assert found[:2] == found[2:] and set(found) == {"rsync://one.example/volunteer_1/", "https://two.example/"}
    assert (await site.ask("/proj/upload", {"downloader": "x"})).status == 400
    uploaded = {"uploader": "volunteer_1", "item": "one", "server": "two"}
    assert (await site.ask("/proj/uploaded", uploaded)).text == "OK\n"
    for wrong in ("https://two.example", "ftp://two.example/", "rsync:///", "https://a b/"):
        with pytest.raises(ClientError, match="upload_targets"):
            await site.store.work.projects.edit("proj", {"upload_targets": (wrong,)})


async def test_charts_and_versions_have_the_form_of_2020(site: Site) -> None:
    await site.store.work.projects.edit("proj", {"min_version": "2"})
    now = int(site.store.clock.now)
    at = now - now % 600
    for number, name in enumerate(("one", "two"), 1):
        await site.add(name)
        await claimed(site, version=f"2.{number}")
        await report(site, name, version=f"2.{number}", bytes={"data": 5})
        await rank(site.store)
        await site.store.pass_time(600)
    assert (await site.ask("/proj/charts.json")).json == {
        "downloader_chart": {"volunteer_1": [[at, 5], [at + 600, 10]]},
        "downloader_items_chart": {"volunteer_1": [[at, 1], [at + 600, 2]]},
        "items_done_chart": [[at, 1], [at + 600, 2]],
        "bytes_chart": [[at, 5], [at + 600, 10]],
    }
    assert (await site.ask("/proj/update-status.json")).json == {
        "downloader_version": {"volunteer_1": "2.2"},
        "current_version": "2",
        "current_version_update_message": None,
    }


async def test_wrong_domains_release_the_item_and_are_logged(serve: Serve) -> None:
    """W8: no claimant is blocked unless the project says so."""
    site = await serve()
    await site.project(domains=("data",), start_budget=9)
    await site.add("one")
    for _ in range(2):
        await claimed(site)
        assert (await report(site, bytes={"dtaa": 5})).text == "OK\n"
    (event, _) = await site.store.work.blocks.log("proj")
    assert (event.what, event.who, event.item) == ("wrong domains", "volunteer_1", "one")
    held = await claimed(site)
    assert (await report(site, bytes={}, token=held["token"])).status == 400
    await claimed(site)
    await site.store.work.projects.edit("proj", {"block_wrong_domains": True})
    assert (await report(site, bytes={"dtaa": 5})).text == "OK\n"
    assert (await site.ask("/proj/request", ASK)).status == 403


@pytest.mark.parametrize(("legacy", "status"), [(False, 429), (True, 420)])
async def test_claims_given_back_count_in_the_budget(serve: Serve, legacy: bool, status: int) -> None:
    """Otherwise a loop would use up the rate of the project."""
    site = await serve(work={"legacy_status": legacy})
    await site.project(start_budget=2)
    await site.add("one")
    for _ in range(2):
        await claimed(site)
        assert (await site.ask("/proj/release", {**ASK, "item": "one"})).text == "Released OK.\n"
    reply = await site.ask("/proj/request", ASK)
    assert (reply.status, reply.body, reply.headers["retry-after"]) == (status, b"", "60")
    site.store.clock.now += 60
    await claimed(site)


@pytest.mark.parametrize("number", [-1, 1.5, True, 2**53, 2**64, "5", None])
async def test_bytes_are_whole_numbers_within_bounds(site: Site, number: object) -> None:
    """W8."""
    await site.add("one")
    await claimed(site)
    assert (await report(site, bytes={"data": number})).status == 400
    assert (await report(site, bytes={"data": 2**53 - 1})).text == "OK\n"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"downloader": 5}',
        b'{"downloader": "volunteer_1", "version": 5}',
        b'{"downloader": "volunteer_1", "api_version": 2}',
        b'{"downloader": "volunteer_1", "free_bytes": -1}',
        b'{"downloader": "volunteer_1", "free_bytes": true}',
        b'{"downloader": "volunteer_1", "free_bytes": "many"}',
        b'{"downloader": "volunteer_1", "bytes": []}',
        b'{"downloader": "volunteer_1", "id": 5}',
        b'{"downloader": "\\ud800\\ud800"}',
        b"[" * 60_000,
    ],
)
async def test_wrong_types_and_malformed_bodies_are_400(site: Site, body: bytes) -> None:
    await site.add("one")
    assert (await site.ask("/proj/request", body)).status == 400


async def test_unknown_fields_are_ignored(site: Site) -> None:
    await site.add("one")
    assert (await site.ask("/proj/request", {**ASK, "warrior": {"x": [1]}, "item_name": 5})).text == "one"


async def test_a_body_has_at_most_64_kib(site: Site) -> None:
    await site.add("one")
    assert (await site.ask("/proj/request", {**ASK, "x": "y" * 65_536})).status == 413
    assert (await site.ask("/proj/request", {**ASK, "x": "y" * 65_000})).status == 200


@pytest.mark.parametrize("name", ["", "ab", "a" * 31, "volunteer 1", "volunteer_1\n", "vølunteer", "a/b", "<b>"])
async def test_names_match_in_full(site: Site, name: str) -> None:
    """W11."""
    await site.add("one")
    assert (await site.ask("/proj/request", {**ASK, "downloader": name})).status == 400


@pytest.mark.parametrize("item", ["", "a" * 256, "a\nb", "a\x00", "a\u2028b"])
async def test_items_match_in_full(site: Site, item: str) -> None:
    """W11."""
    for call in ("done", "release", "done+request"):
        assert (await site.ask(f"/proj/{call}", {**ASK, "item": item})).status == 400


async def test_done_and_request_in_one_call(site: Site) -> None:
    await site.add("one")
    await claimed(site)
    await site.add("two")
    reply = await site.ask("/proj/done+request", {**ASK_JSON, "item": "one", "bytes": {"data": 1}})
    assert (reply.status, reply.json["item_name"]) == (200, "two")
    assert await site.store.redis.xlen(site.store.keys.work_log("proj")) == 1
    reply = await site.ask("/proj/done%2Brequest", {**ASK, "item": "two", "bytes": {"data": 1}})
    assert reply.status == 404


async def test_only_own_claims_are_released(site: Site) -> None:
    await site.add("one")
    held = await claimed(site)
    for fields in ({"downloader": "stranger"}, {"token": "1"}, {"item": "other"}):
        reply = await site.ask("/proj/release", {**ASK, "item": "one", **fields})
        assert (reply.status, reply.text) == (200, "Invalid item.\n")
    reply = await site.ask("/proj/release", {**ASK, "item": "one", "token": held["token"]})
    assert (reply.status, reply.text) == (200, "Released OK.\n")
    assert (await claimed(site))["item_name"] == "one"


async def test_the_default_project_answers_paths_without_a_name(serve: Serve) -> None:
    """The form of 2012 (W26)."""
    site = await serve(work={"default": "proj"})
    assert (await site.ask("/request", ASK)).status == 404  # not created yet
    await site.project()
    await site.add("one")
    assert (await site.ask("/request", ASK)).text == "one"
    assert (await site.ask("/release", {**ASK, "item": "one"})).text == "Released OK.\n"
    assert (await site.ask("/request", ASK)).text == "one"
    await site.add("two")
    assert (await site.ask("/done+request", {**ASK, "item": "one", "bytes": {}})).text == "two"
    assert (await site.ask("/done", {**ASK, "item": "two", "bytes": {}})).text == "OK\n"
    assert (await site.ask("/proj/request", ASK)).status == 404


async def test_without_a_default_short_paths_are_404(site: Site) -> None:
    for path in ("/request", "/done", "/release", "/done+request"):
        assert (await site.ask(path, ASK)).status == 404


async def test_a_blocked_name_or_address_gets_nothing_by_any_call(site: Site) -> None:
    """W10: blocking and unblocking work from the next call on."""
    await site.add("one", "two")
    held = await claimed(site)
    item, blocks = held["item_name"], site.store.work.blocks
    for who in ("volunteer_1", "127.0.0.1"):
        await blocks.block(who)
        before = await site.store.dump()
        assert (await site.ask("/proj/request", ASK)).status == 403
        assert (await report(site, item, token=held["token"])).status == 403
        assert (await site.ask("/proj/done+request", {**ASK, "item": item, "bytes": {}})).status == 403
        assert (await site.ask("/proj/release", {**ASK, "item": item})).text != "Released OK.\n"
        assert await site.store.dump() == before
        await blocks.unblock(who)
    assert (await report(site, item)).text == "OK\n"


async def test_a_seeding_project_asks_for_a_passkey(seeding: Site) -> None:
    await seeding.store.torrents.add(InfoHash(bytes.fromhex(HASH)), {"name": "Some & thing", "size": "5000"})
    await seeding.add(HASH, project="seeds")
    for fields, headers in (
        ({}, {}),
        ({"passkey": "x" * 20}, {}),
        ({"passkey": ""}, {}),
        ({"passkey": "\u00e4" * 20}, {}),
        ({}, {"Authorization": "Bearer " + "x" * 20}),
        ({}, {"Authorization": f"Basic {ALICE}"}),
    ):
        reply = await seeding.ask("/seeds/request", {**ASK_JSON, **fields}, headers=headers)
        assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
    reply = await seeding.ask("/seeds/request", {"api_version": "2"}, headers={"Authorization": f"Bearer {ALICE}"})
    announce = f"http://127.0.0.1:6969/{ALICE}/announce"
    found = reply.json
    token = found.pop("token")
    assert token and found == {
        "item_name": HASH,
        "lease_ends": int(seeding.store.clock.now) + 21_600,
        "info_hash": HASH,
        "name": "Some & thing",
        "size": 5000,
        "seeders": 0,
        "leechers": 0,
        "magnet": f"magnet:?xt=urn:btih:{HASH}&dn=Some%20%26%20thing&xl=5000"
        f"&tr=http%3A%2F%2F127.0.0.1%3A6969%2F{ALICE}%2Fannounce",
        "torrent_url": None,
        "announce_url": announce,
        "seed_seconds": 86_400,
    }
    assert "private" in reply.headers["cache-control"]
    reply = await seeding.ask("/seeds/release", {"passkey": BOB, "item": HASH})
    assert reply.text == "Invalid item.\n"
    reply = await seeding.ask("/seeds/release", {"passkey": ALICE, "item": HASH})
    assert reply.text == "Released OK.\n"


async def test_a_disabled_user_gets_nothing(seeding: Site) -> None:
    await seeding.store.users.edit(ALICE, {"enabled": False})
    assert (await seeding.ask("/seeds/request", {"passkey": ALICE})).status == 403


async def test_larger_torrents_than_the_free_space_are_passed_over(seeding: Site) -> None:
    await seeding.store.torrents.add(InfoHash(bytes.fromhex(HASH)), {"size": "5000"})
    await seeding.add(HASH, project="seeds")
    assert (await seeding.ask("/seeds/request", {"passkey": ALICE, "free_bytes": 4999})).status == 404
    assert (await seeding.ask("/seeds/request", {"passkey": ALICE, "free_bytes": 5000})).text == HASH


async def test_an_unverified_report_says_how_much_is_missing(seeding: Site) -> None:
    await seeding.store.torrents.add(InfoHash(bytes.fromhex(HASH)), {})
    await seeding.add(HASH, project="seeds")
    await seeding.ask("/seeds/request", {"passkey": ALICE})
    reply = await seeding.ask("/seeds/done", {"passkey": ALICE, "item": HASH})
    assert (reply.status, reply.json) == (409, {"missing_seconds": 86_400})


async def test_configured_urls(serve: Serve) -> None:
    site = await serve(
        work={"torrent_url": "https://site.example/t/{info_hash}.torrent"},
        announce={"urls": ("https://tracker.example", "udp://tracker.example:6969")},
    )
    await site.project("seeds", kind="seeding", keep_done_days=30)
    await site.store.users.add("7", ALICE)
    await site.store.torrents.add(InfoHash(bytes.fromhex(HASH)))
    await site.add(HASH, project="seeds")
    found = (await site.ask("/seeds/request", {"passkey": ALICE, "api_version": "2"})).json
    assert found["announce_url"] == f"https://tracker.example/{ALICE}/announce"
    assert found["torrent_url"] == f"https://site.example/t/{HASH}.torrent"
    assert (found["name"], found["size"]) == ("", None)  # unknown


async def test_an_items_project_with_passkeys_ignores_the_name(serve: Serve) -> None:
    site = await serve()
    await site.project(passkeys=True)
    await site.store.users.add("7", ALICE)
    await site.add("one")
    assert (await site.ask("/proj/request", ASK)).status == 401
    assert (await site.ask("/proj/request", {**ASK, "passkey": ALICE})).text == "one"
    assert await site.store.redis.hkeys(site.store.keys.work_claims("proj")) == [b"one 7"]


async def test_a_user_who_may_not_download_is_offered_nothing_new(seeding: Site) -> None:
    await seeding.store.torrents.add(InfoHash(bytes.fromhex(HASH)))
    await seeding.add(HASH, project="seeds", place=1)
    await seeding.store.users.edit(ALICE, {"can_leech": False})
    assert (await seeding.ask("/seeds/request", {"passkey": ALICE})).status == 404
    assert (await seeding.ask("/seeds/request", {"passkey": BOB})).text == HASH
