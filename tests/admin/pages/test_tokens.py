"""The page of tokens."""

import re

import pytest

from tests.admin.conftest import Admin
from tests.admin.pages.page import Page, get, post_form


@pytest.mark.parametrize("role", ["read", "operate", "admin"])
async def test_a_new_token_is_shown_once_and_works(admin: Admin, role: str) -> None:
    async with admin.browser() as browser:
        async with browser.post("/tokens", data={"name": "graphs", "role": role}) as response:
            assert response.status == 200
            assert response.headers["Cache-Control"] == "no-store"
            text = await response.text()
        found = re.search(r"swk_\w{12}_[\w-]{43}", text)
        assert found
        token = await admin.store.tokens.verify(found[0])
        assert token is not None and (token.name, token.role) == ("graphs", role)
        assert found[0] not in (await get(browser, "/tokens")).source


@pytest.mark.parametrize("name", ["", "x" * 65, "grafana", "a\x00b"])
async def test_taken_and_invalid_names_are_refused_with_an_error_at_the_field(admin: Admin, name: str) -> None:
    await admin.store.tokens.create("grafana", "read")
    async with admin.browser() as browser:
        async with browser.post("/tokens", data={"name": name}) as response:
            assert response.status == 422
            assert "token" in Page(await response.text()).one("p", role="alert").text
    assert {token.name for token in await admin.store.tokens.list()} == {"grafana", "test admin"}


async def test_a_revoked_token_is_gone_and_its_sessions_end(admin: Admin) -> None:
    await admin.token("read")
    (other,) = [token for token in await admin.store.tokens.list() if token.name == "test read"]
    async with admin.browser("read") as reader, admin.browser() as browser:
        await get(reader, "/torrents")
        page = await post_form(browser, f"/tokens/{other.token_id}/revoke")
        assert "signed out" in page.text
        assert "test read" not in page.text
        async with reader.get("/torrents", allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (303, "/sign-in")
        async with browser.post(f"/tokens/{other.token_id}/revoke") as response:
            assert response.status == 404


async def test_role_read_sees_neither_the_list_nor_a_link_to_it(admin: Admin) -> None:
    await admin.store.tokens.create("grafana", "read")
    async with admin.browser("read") as reader, admin.client("read") as program:
        for session in (reader, program):
            async with session.get("/tokens") as response:
                assert response.status == 403
                assert "grafana" not in await response.text()
        assert 'href="/tokens"' not in (await get(reader, "/")).source
    async with admin.browser("admin") as browser:
        assert 'href="/tokens"' in (await get(browser, "/")).source


async def test_a_token_has_an_end_and_addresses(admin: Admin) -> None:
    form = {"name": "site", "role": "operate", "expires": "2100-01-01T00:00", "addresses": "192.0.2.0/24, ::1"}
    async with admin.browser() as browser:
        async with browser.post("/tokens", data=form) as response:
            assert response.status == 200
        token = next(token for token in await admin.store.tokens.list() if token.name == "site")
        assert (token.role, token.expires) == ("operate", 4_102_444_800)
        assert token.addresses == ("192.0.2.0/24", "::1/128")
        assert "192.0.2.0/24, ::1/128" in (await get(browser, "/tokens")).text
        for wrong in ({"expires": "1999-01-01"}, {"expires": "soon"}, {"addresses": "here"}):
            async with browser.post("/tokens", data={"name": "other", **wrong}) as response:
                assert response.status == 422
    admin.clock.now = 4_102_444_800
    async with admin.browser() as later:
        assert "expired" in (await get(later, "/tokens")).text
