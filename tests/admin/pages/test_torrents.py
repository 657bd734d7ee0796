"""The list of torrents: searching, sorting, paging; and adding."""

import re
from urllib.parse import quote

import aiohttp
import bencodepy
import pytest

from tests.admin.conftest import Admin, Serve
from tests.admin.pages.conftest import Private
from tests.admin.pages.page import Page, get, send
from tests.store.harness import Store, info_hash, update
from tracker.admin.pages.forms import DEFAULT_SIZE
from tracker.admin.pages.torrents import MAX_FILES
from tracker.bittorrent import InfoHash
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.public import TorrentSettings
from tracker.store.access.audit import AuditFilter
from tracker.store.sharding import listing

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>'


def torrent_file(name: str = "a file", **changes: object) -> bytes:
    info = {"length": 5, "name": name, "piece length": 16384, "pieces": b"\x11" * 20, **changes}
    made: bytes = bencodepy.encode({"announce": "http://tracker/announce", "info": info})
    return made


def upload(*files: tuple[str, bytes], **fields: str) -> aiohttp.FormData:
    form = aiohttp.FormData(fields)
    for filename, content in files:
        form.add_field("file", content, filename=filename, content_type="application/x-bittorrent")
    return form


@pytest.mark.parametrize("mode", ["open", "registered"])
async def test_an_empty_list_explains_what_to_do(serve: Serve, prefix: str, mode: str) -> None:
    settings = Settings(redis=RedisSettings(prefix=prefix), torrents=TorrentSettings.model_validate({"mode": mode}))
    admin = await serve(settings)
    async with admin.browser() as browser:
        page = await get(browser, "/torrents")
    assert "No torrents yet" in page.text
    assert "http://127.0.0.1:6969/announce" in page.text
    assert "/torrents/add" in page.hrefs


async def test_private_mode_shows_no_announce_url_without_passkey(private: Private) -> None:
    """Each user of a private tracker has a personal announce URL."""
    async with private.admin.browser() as browser:
        for path in ("/torrents", "/torrents/add"):
            page = await get(browser, path)
            assert "6969/announce" not in page.text
            assert "/users" in page.hrefs
            assert "passkey" in page.text


async def test_the_list_sorts_by_any_column_in_both_directions(store: Store, browser: aiohttp.ClientSession) -> None:
    for number, (seeders, leechers) in enumerate([(1, 2), (3, 1), (2, 3)], 1):
        for peer in range(seeders + leechers):
            await store.announce(update(100 * number + peer, torrent=number, bytes_left=0 if peer < seeders else 9))
    a, b, c = (info_hash(number).hex() for number in (1, 2, 3))
    assert (await get(browser, "/torrents")).torrents == [b, c, a]
    assert (await get(browser, "/torrents?order=asc")).torrents == [a, c, b]
    page = await get(browser, "/torrents?sort=leechers")
    assert page.torrents == [c, a, b]
    assert "/torrents?sort=leechers&order=asc" in page.hrefs
    assert (await get(browser, "/torrents?sort=leechers&order=asc")).torrents == [b, a, c]


async def test_paging_keeps_the_order_and_sorting_returns_to_page_one(
    admin: Admin, browser: aiohttp.ClientSession
) -> None:
    hashes = {info_hash(number) for number in range(2 * DEFAULT_SIZE + 3)}
    for one in hashes:
        await admin.store.torrents.add(one)
    path, seen = "/torrents?sort=leechers&order=asc", list[str]()
    for number in (1, 2, 3):
        page = await get(browser, path)
        seen += page.torrents
        assert f"of {len(hashes)}" in page.text
        assert "/torrents?sort=leechers" in page.hrefs  # ascending, from the first page
        later = [link for link in page.hrefs if f"page={number + 1}" in link]
        if number == 3:
            assert not later
            break
        assert set(later) == {f"/torrents?sort=leechers&order=asc&page={number + 1}"}
        path = later[0]
    assert sorted(seen) == sorted(one.hex() for one in hashes)


async def test_torrents_are_found_by_name_or_start_of_the_info_hash(
    admin: Admin, browser: aiohttp.ClientSession
) -> None:
    await admin.store.torrents.add(info_hash(1), {"name": "Debian 12 netinst"})
    await admin.store.torrents.add(info_hash(2), {"name": "Größe"})
    one, two = info_hash(1).hex(), info_hash(2).hex()
    assert (await get(browser, "/torrents?q=DEBIAN")).torrents == [one]
    assert (await get(browser, f"/torrents?q={quote('GRÖSSE')}")).torrents == [two]
    assert (await get(browser, f"/torrents?q={two}")).torrents == [two]
    assert "No matches" in (await get(browser, "/torrents?q=ubuntu")).text


async def test_searching_with_htmx_returns_the_list_only(admin: Admin, browser: aiohttp.ClientSession) -> None:
    await admin.store.torrents.add(info_hash(1), {"name": "Debian"})
    page = await get(browser, "/torrents?q=deb", part=True)
    assert page.torrents == [info_hash(1).hex()]
    assert not page.all("html")


async def test_a_search_with_many_matches_is_paged(admin: Admin, browser: aiohttp.ClientSession) -> None:
    hashes = {info_hash(number).hex() for number in range(DEFAULT_SIZE + 20)}
    for one in hashes:
        await admin.store.torrents.add(info_hash(int(one, 16)), {"name": f"Film {one[-3:]}"})
    path, seen = "/torrents?q=film", set[str]()
    while path:
        page = await get(browser, path)
        seen.update(page.torrents)
        path = next((link for link in page.hrefs if "cursor=" in link), "")
    assert seen == hashes


INVALID_QUERIES = [
    "page=0", "page=-1", "page=x", "page=99999999999999999999", "sort=password", "sort=", "order=up",
    "sort=seeders&sort=score", "sort=score", "q=%20",
]  # fmt: skip
EMPTY_QUERIES = [
    "page=1000000", "sort=score&page=7", "q=%00", "q=%ff%fe", "q=%ed%a0%80", "q=" + "a" * 5000,
    "q=*", "q=%5B",
]  # fmt: skip


@pytest.mark.parametrize("query", INVALID_QUERIES)
async def test_invalid_query_parameters_become_defaults(
    admin: Admin, browser: aiohttp.ClientSession, query: str
) -> None:
    await admin.store.torrents.add(info_hash(1), {"name": "Debian"})
    page = await get(browser, f"/torrents?{query}")
    assert page.torrents == [info_hash(1).hex()]


@pytest.mark.parametrize("query", EMPTY_QUERIES)
async def test_queries_that_match_nothing_show_no_torrent(
    admin: Admin, browser: aiohttp.ClientSession, query: str
) -> None:
    await admin.store.torrents.add(info_hash(1), {"name": "Debian"})
    page = await get(browser, f"/torrents?{query}")
    assert page.torrents == []


async def test_an_invalid_cursor_is_refused(browser: aiohttp.ClientSession) -> None:
    page = await get(browser, "/torrents?q=a&cursor=%00", status=400)
    assert "cursor" in page.text


async def test_names_are_escaped(admin: Admin, browser: aiohttp.ClientSession) -> None:
    await admin.store.torrents.add(info_hash(1), {"name": HOSTILE})
    await admin.store.torrents.deny(info_hash(1), HOSTILE)
    for path in ("/torrents", f"/torrents?q={quote('<script>')}", f"/torrents?q={quote(HOSTILE)}x"):
        page = await get(browser, path)
        assert HOSTILE in page.text
        assert not page.all("img")


async def test_one_file_redirects_to_its_torrent(admin: Admin, browser: aiohttp.ClientSession) -> None:
    response = await send(browser, "/torrents/add", upload(("a.torrent", torrent_file("Debian")), private="1"))
    found = re.fullmatch(r"/torrents/([0-9a-f]{40})\?notice=added", response.location)
    assert found
    page = await get(browser, response.location)
    assert "Debian" in page.text and "Added." in page.text
    (torrent,) = await admin.store.torrents.top("seeders", 10)
    assert (torrent.info_hash.hex(), torrent.name, torrent.private) == (found[1], "Debian", True)


async def test_valid_files_are_registered_beside_invalid_ones(admin: Admin, browser: aiohttp.ClientSession) -> None:
    form = upload(
        ("a.torrent", torrent_file("A")), (f"{HOSTILE}.torrent", b"d4:info"), ("c.torrent", torrent_file("C"))
    )
    page = await send(browser, "/torrents/add", form, status=200)
    assert {torrent.name for torrent in await admin.store.torrents.top("seeders", 10)} == {"A", "C"}
    assert len(page.torrents) == 2
    assert "not a well-formed .torrent file" in page.text


@pytest.mark.parametrize(
    ("form", "why"),
    [
        (upload(("a.torrent", b"l" * 5000)), "not a well-formed .torrent file"),
        (upload(("a.torrent", b"")), "not a well-formed .torrent file"),
        (upload(), "Choose .torrent files"),
        (upload(info_hash="xyz"), "40 hexadecimal digits"),
        (upload(*[("a.torrent", b"x")] * (MAX_FILES + 1)), f"at most {MAX_FILES}"),
    ],
    ids=["bomb", "empty", "nothing", "hash", "many"],
)
async def test_invalid_torrent_files_are_refused_with_a_reason(
    admin: Admin, browser: aiohttp.ClientSession, form: aiohttp.FormData, why: str
) -> None:
    page = await send(browser, "/torrents/add", form, status=422)
    assert why in page.text
    assert await admin.store.torrents.count() == 0


async def test_an_upload_beyond_the_limit_is_refused(serve: Serve) -> None:
    admin = await serve(max_upload_bytes=4096)
    async with admin.browser() as browser:
        page = await send(browser, "/torrents/add", upload(("a.torrent", b"x" * 50_000)), status=413)
    assert "TRACKER_ADMIN__MAX_UPLOAD_BYTES" in page.text


async def test_an_info_hash_is_registered_with_a_name(admin: Admin, browser: aiohttp.ClientSession) -> None:
    one = info_hash(7)
    await send(browser, "/torrents/add", {"info_hash": f" {one.hex().upper()} ", "name": "Seven"})
    await send(browser, "/torrents/add", {"info_hash": one.hex()})  # again without a name: the name stays
    found = await admin.store.torrents.get(one)
    assert found is not None and found.registered and found.name == "Seven" and not found.private


async def test_a_form_needs_the_csrf_token_of_its_page(admin: Admin) -> None:
    async with admin.browser(headers={"X-CSRF-Token": ""}) as browser:
        async with browser.post("/torrents/add", data={"info_hash": "00" * 20}) as response:
            assert response.status == 403
    async with admin.browser() as browser:
        page = await get(browser, "/torrents/add")
        origin = browser.headers["Origin"]
        cookies = {cookie.key: cookie.value for cookie in browser.cookie_jar}
    (token,) = {field.attributes["value"] for field in page.all("input", name="csrf")}
    assert token
    async with aiohttp.ClientSession(admin.url, cookies=cookies, headers={"Origin": origin}) as plain:
        await send(plain, "/torrents/add", {"info_hash": "00" * 20, "csrf": "wrong"}, status=403)
        await send(plain, "/torrents/add", upload(("a.torrent", torrent_file()), csrf=token))
    assert await admin.store.torrents.count() == 1


async def test_role_read_sees_no_actions_and_cannot_change_anything(
    admin: Admin, reader: aiohttp.ClientSession
) -> None:
    await admin.store.torrents.add(info_hash(1))
    for path in ("/torrents", "/torrents/add", "/torrents/denied"):
        page: Page = await get(reader, path)
        assert not page.changes
    assert "/torrents/add" not in (await get(reader, "/torrents")).hrefs
    await send(reader, "/torrents/add", {"info_hash": "00" * 20}, status=403)
    assert await admin.store.torrents.count() == 1


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data; boundary=b", b"--b\r\n\r\nno name\r\n--b--\r\n"),
        ("multipart/form-data; boundary=b", b"nothing of the kind"),
        ("multipart/form-data", b"--b\r\n"),
        ("application/x-www-form-urlencoded; charset=klingon", b"a=b"),
        ("application/x-www-form-urlencoded", b"info_hash=%ff%fe&name=%ed%a0%80"),
        ("application/json", b"{}"),
    ],
)
async def test_a_body_that_is_no_form_is_refused(browser: aiohttp.ClientSession, kind: str, body: bytes) -> None:
    async with browser.post("/torrents/add", data=body, headers={"Content-Type": kind}) as response:
        assert response.status in (400, 422)


async def test_torrents_are_filtered(admin: Admin, browser: aiohttp.ClientSession) -> None:
    """The number is known where few fit. The search text narrows a filter."""
    for number in range(1, 31):
        fields = {"name": f"film {number}", "private": "1" if number > 20 else "0", "enabled": "0"}
        await admin.store.torrents.add(info_hash(number), fields if number > 3 else {"name": "film"})
    await admin.store.torrent_listing.rank()
    page = await get(browser, "/torrents?state=disabled&sort=added&size=25")
    assert len(page.torrents) == 25 and "1–25 of 27" in page.text
    page = await get(browser, "/torrents?state=disabled&sort=added&size=25&page=2")
    assert len(page.torrents) == 2 and "26–27 of 27" in page.text
    found = await get(browser, "/torrents?state=disabled&q=film&size=25&page=2")
    assert len(found.torrents) == 2 and "26–27 of 27" in found.text
    assert len((await get(browser, "/torrents?private=yes")).torrents) == 10
    assert len((await get(browser, "/torrents?private=no&state=enabled")).torrents) == 3
    assert (await get(browser, "/torrents?private=yes&q=film+29")).torrents == [info_hash(29).hex()]
    assert (await get(browser, "/torrents?seeders=some")).torrents == []
    assert "No matches" in (await get(browser, "/torrents?seeders=some")).text
    assert len((await get(browser, "/torrents?seeders=none")).torrents) == 30
    chosen = [e.attributes["value"] for e in page.elements if e.tag == "option" and "selected" in e.attributes]
    assert chosen == ["disabled", "", "", "25"]


async def test_the_number_of_matches_is_shown_without_page_numbers(
    admin: Admin, browser: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where too many fit to sort them, an index still tells how many."""
    monkeypatch.setattr(listing, "MAX_MATCHES", 0)
    for number in range(1, 31):
        await admin.store.torrents.add(info_hash(number), {"private": "1"})
    await admin.store.torrent_listing.rank()
    page = await get(browser, "/torrents?private=yes&sort=snatches&size=25")
    assert "25 of 30 shown" in page.text and page.torrents


async def test_the_page_says_that_its_lists_are_incomplete(admin: Admin, browser: aiohttp.ClientSession) -> None:
    """Until the job has listed all torrents after an upgrade."""
    await admin.store.torrents.add(info_hash(1))
    assert "Indexes are being built" in (await get(browser, "/torrents")).text
    await admin.store.torrent_listing.rank()
    assert "Indexes are being built" not in (await get(browser, "/torrents")).text


async def test_a_page_of_htmx_names_its_url(admin: Admin, browser: aiohttp.ClientSession) -> None:
    """Without the empty fields of the form."""
    await admin.store.torrents.add(info_hash(1))
    headers = {"HX-Request": "true"}
    async with browser.get("/torrents?q=&state=&seeders=none&size=50", headers=headers) as response:
        assert response.headers["HX-Push-Url"] == "/torrents?seeders=none"


async def test_size_addition_and_last_activity_are_shown(store: Store, browser: aiohttp.ClientSession) -> None:
    await store.torrents.add(info_hash(1), {"size": "2048"})
    store.clock.now += 7200
    for torrent in (2, 3):
        await store.announce(update(1, "s", torrent))
    await store.announce(update(1, "x", 3))
    store.clock.now += 3600
    page = await get(browser, "/torrents")
    cells = {
        label: [element.text for element in page.all("td", data_label=label)]
        for label in ("Size", "Added", "Last activity")
    }
    assert sorted(cells["Size"]) == ["2.0 KiB", "–", "–"]
    assert sorted(cells["Added"]) == ["1 h ago", "1 h ago", "3 h ago"]
    assert sorted(cells["Last activity"]) == ["1 h ago", "now", "–"]


async def test_only_exceptions_have_badges(admin: Admin, browser: aiohttp.ClientSession) -> None:
    async def badges() -> list[str]:
        found = (await get(browser, "/torrents")).all("span")
        return [each.text for each in found if "badge" in (each.attributes.get("class") or "")]

    await admin.store.torrents.add(info_hash(1))
    assert await badges() == []
    await admin.store.torrents.edit(info_hash(1), {"enabled": "0", "labels": "a"})
    assert await badges() == ["disabled", "a"]


async def test_selected_torrents_are_changed_together(admin: Admin, browser: aiohttp.ClientSession) -> None:
    """Back to the same page of the list."""
    torrents = admin.store.torrents
    hashes = [info_hash(number) for number in range(1, 4)]
    for one in hashes:
        await torrents.add(one)

    async def change(action: str, *chosen: InfoHash, **fields: str) -> Page:
        form = [("info_hash", one.hex()) for one in chosen]
        return await send(browser, "/torrents/bulk?sort=size&page=2", [*form, ("action", action), *fields.items()])

    done = await change("disable", hashes[0], hashes[2], info_hash(99), disable_reason="no")
    assert done.location == "/torrents?sort=size&page=2&notice=changed"
    found = await torrents.get_all(hashes)
    assert [(one.enabled, one.reason) for one in found] == [(False, "no"), (True, ""), (False, "no")]
    (entry, *_), _ = await admin.store.audit.page(AuditFilter())
    assert (entry.operation, entry.counts) == ("torrent.bulk", {"selected": 3, "changed": 2})
    assert entry.details == {"action": "disable"}
    assert entry.objects[0].before["enabled"] == "true" and entry.objects[0].after["enabled"] == "false"
    await change("pend", hashes[0], hashes[2])
    found = await torrents.get_all(hashes)
    assert [(one.switch, one.reason) for one in found] == [("pending", ""), (True, ""), ("pending", "")]
    await change("enable", hashes[0])
    await change("deny", hashes[0], deny_reason="gone")
    denied = await torrents.get(hashes[0])
    assert denied is not None and (denied.enabled, denied.denied) == (True, "gone")
    await change("allow", hashes[0])
    await change("remove", *hashes[1:])
    assert [one.denied for one in await torrents.get_all(hashes)] == [None]
    assert (await change("remove")).location.endswith("notice=unselected")


async def test_the_audit_log_names_every_selected_torrent(admin: Admin, browser: aiohttp.ClientSession) -> None:
    hashes = [info_hash(number) for number in range(1, 24)]
    for one in hashes:
        await admin.store.torrents.add(one)
    form = [*(("info_hash", one.hex()) for one in hashes), ("action", "disable"), ("disable_reason", "no")]
    await send(browser, "/torrents/bulk", form)
    entries, _ = await admin.store.audit.page(AuditFilter())
    assert [len(entry.objects) for entry in entries] == [10, 13]
    objects = [each for entry in entries for each in entry.objects]
    assert sorted(each.id for each in objects) == sorted(one.hex() for one in hashes)
    assert {(each.before["enabled"], each.after["enabled"]) for each in objects} == {("true", "false")}
    assert [entry.counts for entry in entries] == [{"selected": 23, "changed": 23}, {}]
    assert {entry.details["action"] for entry in entries} == {"disable"}


@pytest.mark.parametrize("fields", [{"action": "explode"}, {}, {"action": "enable", "info_hash": "x"}])
async def test_an_unknown_action_or_torrent_is_refused(browser: aiohttp.ClientSession, fields: dict[str, str]) -> None:
    await send(browser, "/torrents/bulk", fields, status=422)
