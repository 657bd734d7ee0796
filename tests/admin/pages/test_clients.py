"""The page of client software."""

import pytest

from tests.admin.conftest import Admin
from tests.admin.pages.page import Page, get, post_form
from tests.store.harness import count_software


async def test_clients_are_shown_by_share_and_rejections_with_their_reason(admin: Admin) -> None:
    heard = {("qBittorrent 5.0.2", ""): 30, ("aria2", ""): 10, ("Xunlei 1", "client not allowed"): 4}
    await count_software(admin.store.client_software, 1, heard, admin.clock())
    async with admin.browser() as browser:
        page = await get(browser, "/clients")
        assert page.one("a", href="/clients/program?name=qBittorrent&period=all").text == "qBittorrent"
        assert "75.0 %" in page.text
        assert "client not allowed" in page.text
        month = (await get(browser, "/clients?period=2027-01")).text
        assert "75.0 %" in month
        assert "No clients yet" in (await get(browser, "/clients?period=2026-12")).text


async def test_leaderboards_are_paged(admin: Admin) -> None:
    await count_software(
        admin.store.client_software, 1, {(f"Program{n} 1.0", ""): 100 - n for n in range(60)}, admin.clock()
    )
    async with admin.browser() as browser:
        page = await get(browser, "/clients?page=2")
        assert "26–50 of 60" in page.text
        assert "/clients?period=all&refused=1&page=3#joins" in page.links
        assert "/clients?period=all&refused=1&page=1#joins" in page.links


async def test_the_allow_list_is_changed(admin: Admin) -> None:
    async with admin.browser() as browser:
        assert "The allow-list is empty" in (await get(browser, "/clients")).text
        page = await post_form(browser, "/clients/allow", prefix="-T%00<", text="odd")
        assert "-T%00<" in page.text
        assert (await admin.store.allow_list.page(0))[1] == [(b"-T\0<", "odd")]
        remove = page.one("input", name="prefix", type="hidden").attributes["value"]
        assert remove is not None
        page = await post_form(browser, "/clients/disallow", prefix=remove)
        assert "The allow-list is empty" in page.text
        async with browser.post("/clients/disallow", data={"prefix": remove}) as response:
            assert response.status == 422


async def test_the_deny_list_is_changed(admin: Admin) -> None:
    async with admin.browser() as browser:
        assert "The deny list is empty" in (await get(browser, "/clients")).text
        page = await post_form(browser, "/clients/deny", prefix="-T%00<", text="<old>")
        assert "-T%00<" in page.text and "<old>" in page.text
        assert await admin.store.deny_list.all() == {b"-T\0<": "<old>"}
        page = await post_form(browser, "/clients/undeny", prefix="-T%00<")
        assert "The deny list is empty" in page.text
        async with browser.post("/clients/undeny", data={"prefix": "-T"}) as response:
            assert response.status == 422
        async with browser.post("/clients/deny", data={"prefix": "", "text": "kept"}) as response:
            assert response.status == 422
            page = Page(await response.text())
    assert "1 to 20" in page.one("p", role="alert").text
    assert page.one("input", name="text", value="kept").attributes["value"] == "kept"


@pytest.mark.parametrize("beginning", ["", "x" * 21])
async def test_an_invalid_prefix_is_refused_with_an_error_at_the_field(admin: Admin, beginning: str) -> None:
    async with admin.browser() as browser:
        async with browser.post("/clients/allow", data={"prefix": beginning, "text": "kept"}) as response:
            assert response.status == 422
            page = Page(await response.text())
    assert "1 to 20" in page.one("p", role="alert").text
    assert page.one("input", name="text", value="kept").attributes["value"] == "kept"


async def test_a_program_leads_to_its_versions_and_their_refusals(admin: Admin) -> None:
    heard = {
        ("qBittorrent 5.0.2", ""): 30,
        ("qBittorrent 4.6.0", ""): 10,
        ("aria2", ""): 5,
        ("qBittorrent 4.1", "client denied"): 4,
        ("aria2", "client denied"): 3,
    }
    await count_software(admin.store.client_software, 1, heard, admin.clock())
    async with admin.browser("read") as browser:
        board = await get(browser, "/clients")
        assert "/clients/program?name=qBittorrent&period=all" in board.links
        assert "qBittorrent 40 88.9 %" in board.text
        page = await get(browser, "/clients/program?name=qBittorrent&period=all")
        rows = [row.text for row in page.all("tr")]
        async with browser.get("/clients/program?name=none") as response:
            assert response.status == 404
    assert rows[1:3] == ["qBittorrent 5.0.2 30 75.0 %", "qBittorrent 4.6.0 10 25.0 %"]
    assert rows[4:] == ["qBittorrent 4.1 client denied 4"]
    assert "/failures?reason=client%20denied" in page.links
