"""Authorization of every route of the router, so that none can be forgotten."""

import re
from collections.abc import Mapping

import pytest

from tests.admin.conftest import Admin
from tests.e2e.sample_trackers import PRIVATE_PATHS, PUBLIC_PATHS
from tracker.admin.auth.auth import OPEN, SAFE_METHODS, rule_of
from tracker.admin.http.cookies import COOKIE
from tracker.admin.server import make_app
from tracker.store.access.tokens import ROLES, Role, may

_VALUES = {"info_hash": "ab" * 20, "token_id": "0" * 12, "id": "0" * 12, "prefix": "-TR40"}


SKIPPED = ("/live", "/sign-out")
"""One reply never ends, and the other ends the session of the browser."""


async def with_routes(admin: Admin, values: Mapping[str, str] = _VALUES) -> list[tuple[str, str, str]]:
    """(method, route, path) of every route but the open ones; the path has a value for each placeholder."""
    found = []
    for route in make_app(admin.context, admin.context.settings.admin, admin.addresses).router.routes():
        assert route.resource is not None
        canonical = route.resource.canonical
        if canonical not in OPEN:
            path = re.sub(r"\{(\w+)\}", lambda part: values.get(part[1], "1"), canonical)
            found.append((route.method, canonical, path))
    return found


async def guarded(admin: Admin, *, safe: bool) -> list[tuple[str, str]]:
    """(method, path) of every route that is safe, or of every other one, but of the open ones."""
    found = [(m, path) for m, _, path in await with_routes(admin) if (m in SAFE_METHODS) == safe]
    assert len(found) > 20
    return found


_NO_PAGES = re.compile(r"/api/.*|.*\.json|.*/(?:chart|charts/.*|file|live)|/live|/metrics|/sign-out")
"""GET routes that serve no page."""


async def test_the_browser_tests_open_every_page(admin: Admin) -> None:
    """So that axe-core checks each: tests/e2e/test_dashboard_accessibility.py."""
    opened = {path.partition("?")[0] for path in (*PUBLIC_PATHS, *PRIVATE_PATHS)}
    missing = []
    for method, route, _ in await with_routes(admin):
        pattern = re.sub(r"\{\w+\}", "[^/]+", route)
        is_page = method in ("GET", "*") and not _NO_PAGES.fullmatch(route)
        if is_page and not any(re.fullmatch(pattern, path) for path in opened):
            missing.append(route)
    assert missing == []


@pytest.mark.parametrize("safe", [True, False])
async def test_every_route_needs_authentication(admin: Admin, safe: bool) -> None:
    async with admin.client() as stranger:
        for method, path in await guarded(admin, safe=safe):
            async with stranger.request(method, path, allow_redirects=False) as response:
                to_sign_in = response.headers.get("Location") == "/sign-in"
                assert response.status == 401 or (safe and to_sign_in), (method, path)


@pytest.mark.parametrize("role", ROLES)
async def test_every_route_is_open_to_the_roles_of_its_rule_only(admin: Admin, role: Role) -> None:
    """Without a body or an object, so that a route that may be used changes nothing."""
    served = 0
    async with admin.client(role) as program, admin.browser(role) as browser:
        for method, route, path in await with_routes(admin):
            rule = rule_of(method, route)
            assert rule is not None
            if route in SKIPPED:
                continue
            for session in (program, browser):
                async with session.request(method, path, allow_redirects=False) as response:
                    refused = response.status == 403
                    assert refused == (not may(role, rule.role)), (method, path, response.status)
                    served += not refused
    assert served > 50


async def test_every_change_with_a_cookie_needs_csrf_token_and_origin(admin: Admin) -> None:
    """Neither with the right Origin and no CSRF token, nor with the CSRF token and no Origin."""
    signed_in = await admin.store.tokens.sign_in_by_token(await admin.token("admin"), 60)
    assert signed_in is not None
    session, secret = signed_in
    cookie = {"Cookie": f"{COOKIE}={secret}"}
    async with admin.client() as browser:
        for method, path in await guarded(admin, safe=False):
            for headers in ({"Origin": admin.url}, {"X-CSRF-Token": session.csrf}):
                async with browser.request(method, path, headers=cookie | headers, allow_redirects=False) as response:
                    assert response.status == 403, (method, path)
        async with browser.get("/", headers=cookie) as response:
            assert response.status == 200
