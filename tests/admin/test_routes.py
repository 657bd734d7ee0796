"""Authorization of every route of the router, so that none can be forgotten."""

import re

import pytest

from tests.admin.conftest import Admin
from tracker.admin.auth.auth import ANY_SCOPE, OPEN
from tracker.admin.auth.hosts import SAFE_METHODS
from tracker.admin.http.cookies import COOKIE
from tracker.admin.server import make_app

_VALUES = {"info_hash": "ab" * 20, "token_id": "0" * 12, "id": "0" * 12, "prefix": "-TR40"}


async def guarded(admin: Admin, *, safe: bool) -> list[tuple[str, str]]:
    """(method, path) of every route but the open ones, with a value for each placeholder."""
    found = []
    for route in make_app(admin.context, admin.context.settings.admin, admin.addresses).router.routes():
        assert route.resource is not None
        path = route.resource.canonical
        if path not in OPEN and (route.method in SAFE_METHODS) == safe:
            found.append((route.method, re.sub(r"\{(\w+)\}", lambda part: _VALUES.get(part[1], "1"), path)))
    assert len(found) > 20
    return found


@pytest.mark.parametrize("safe", [True, False])
async def test_every_route_needs_authentication(admin: Admin, safe: bool) -> None:
    async with admin.client() as stranger:
        for method, path in await guarded(admin, safe=safe):
            async with stranger.request(method, path, allow_redirects=False) as response:
                to_sign_in = response.headers.get("Location") == "/sign-in"
                assert response.status == 401 or (safe and to_sign_in), (method, path)


async def test_every_change_needs_scope_full(admin: Admin) -> None:
    async with admin.client("read") as program, admin.browser("read") as browser:
        for method, path in await guarded(admin, safe=False):
            for session in (program, browser):
                if path not in ANY_SCOPE:
                    async with session.request(method, path, allow_redirects=False) as response:
                        assert response.status == 403, (method, path)


async def test_every_change_with_a_cookie_needs_csrf_token_and_origin(admin: Admin) -> None:
    """Neither with the right Origin and no CSRF token, nor with the CSRF token and no Origin."""
    signed_in = await admin.store.tokens.sign_in_by_token(await admin.token("full"), 60)
    assert signed_in is not None
    session, secret = signed_in
    cookie = {"Cookie": f"{COOKIE}={secret}"}
    async with admin.client() as browser:
        for method, path in await guarded(admin, safe=False):
            for headers in ({"Origin": admin.url}, {"X-CSRF-Token": session.csrf}):
                async with browser.request(
                    method, path, headers=cookie | headers, allow_redirects=False
                ) as response:
                    assert response.status == 403, (method, path)
        async with browser.get("/", headers=cookie) as response:
            assert response.status == 200
