"""The page of the audit log."""

import aiohttp

from tests.admin.api.api_client import program
from tests.admin.conftest import Admin
from tests.admin.pages.page import get
from tracker.admin.pages.system import PAGE

HASH = "ab" * 20


async def test_changes_are_shown_with_who_when_and_what(admin: Admin, browser: aiohttp.ClientSession) -> None:
    assert "No changes yet" in (await get(browser, "/audit")).text
    await browser.post("/users", data={"user_id": "7", "name": "Alice"})
    await browser.post("/users/7/edit", data={"name": "Bob"})
    page = await get(browser, "/audit")
    assert "name: Alice → Bob" in page.text and "user.edit" in page.text
    assert "test admin" in page.text and "dashboard, 127.0.0.1" in page.text
    assert page.all("a", href="/users/7")


async def test_the_list_is_filtered_and_exported_as_filtered(admin: Admin, browser: aiohttp.ClientSession) -> None:
    await browser.post("/torrents/denied", data={"info_hash": HASH})
    await browser.post("/users", data={"user_id": "7"})
    page = await get(browser, "/audit?operation=user&way=dashboard&since=2020-01-01T00:00")
    assert "user.add" in page.text and page.all("a", href="/users/7")
    assert not page.all("a", href=f"/torrents/{HASH}")
    (link,) = [e.attributes["href"] for e in page.all("a") if "JSON lines" in e.text]
    assert link == "/api/v1/audit/json-lines?operation=user&way=dashboard&since=1577836800"
    async with browser.get(str(link)) as response:
        assert (await response.text()).count("\n") == 2, "an entry, and the line that says that all are there"
    assert "No matching changes" in (await get(browser, "/audit?object=8")).text
    for wrong in ("since=soon", "until=x", "cursor=x"):
        async with browser.get(f"/audit?{wrong}") as response:
            assert response.status == 422
            assert f'value="{wrong.partition("=")[2]}"' not in await response.text(), "no time to a browser"


async def test_older_changes_follow(admin: Admin, browser: aiohttp.ClientSession) -> None:
    for number in range(1, 53):
        await browser.post("/users", data={"user_id": str(number)}, allow_redirects=False)
    first = await get(browser, "/audit?way=dashboard")
    (older,) = [str(e.attributes["href"]) for e in first.all("a", rel="next")]
    second = await get(browser, older)
    assert len(first.all("th", scope="row")) == 50 and len(second.all("th", scope="row")) == 2
    assert second.all("a", href="/audit?way=dashboard")


async def test_only_role_admin_sees_the_page_and_its_link(admin: Admin) -> None:
    async with admin.browser("operate") as operator:
        async with operator.get("/audit") as response:
            assert response.status == 403
        assert 'href="/audit"' not in (await get(operator, "/")).source
    async with admin.browser("admin") as browser:
        assert 'href="/audit"' in (await get(browser, "/")).source


async def test_a_bulk_change_is_one_row_without_defaults(admin: Admin, browser: aiohttp.ClientSession) -> None:
    """Also one whose objects are in several entries of the store."""
    hashes = [f"{number:040x}" for number in range(1, 101)]
    async with program(admin) as api:
        row = {"name": "x", "upload_multiplier": 2}
        await api.ask("POST", "/torrents/batch", json={"torrents": [{"info_hash": each, **row} for each in hashes]})
    page = await get(browser, "/audit")
    assert len(page.all("tr")) == 2, "the head, and one row for all"
    assert "100 objects" in page.text and "name: – → x, upload_multiplier: – → 2" in page.text
    assert "download_multiplier" not in page.text


async def test_a_bulk_change_is_one_row_at_the_end_of_a_page_too(admin: Admin, browser: aiohttp.ClientSession) -> None:
    """All of it is on the page where it begins, and the next page begins with the change before it."""
    hashes = [f"{number:040x}" for number in range(1, 201)]
    for user in ("6", "7"):
        await browser.post("/users", data={"user_id": user}, allow_redirects=False)
    async with program(admin) as api:
        await api.ask("POST", "/torrents/batch", json={"torrents": [{"info_hash": each} for each in hashes]})
    for number in range(PAGE - 1):
        await browser.post("/torrents/denied", data={"info_hash": f"{number:040x}"}, allow_redirects=False)
    first = await get(browser, "/audit")
    assert "200 objects" in first.text and len(first.all("th", scope="row")) == PAGE
    (older,) = [str(e.attributes["href"]) for e in first.all("a", rel="next")]
    second = await get(browser, older)
    assert "objects" not in second.text and len(second.all("th", scope="row")) == 2
