"""Selection of the session cookie: over TLS only the ``__Host-`` cookie counts."""

import pytest
from aiohttp.test_utils import make_mocked_request

from tests.admin.conftest import Admin, Serve
from tracker.admin.http.cookies import COOKIE, SECURE_COOKIE, came_by_tls, cookie_of


@pytest.mark.parametrize(
    ("headers", "tls"),
    [
        ({}, False),
        ({"X-Forwarded-Proto": "https"}, True),
        ({"X-Forwarded-Proto": "HTTPS, http"}, True),
        ({"X-Forwarded-Proto": "http"}, False),
        ({"Origin": "https://tracker.example"}, True),
        ({"Origin": "http://tracker.example"}, False),
        ({"Host": "tracker.example", "Sec-Fetch-Site": "none"}, True),
        ({"Host": "192.0.2.7:6970", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Host": "127.0.0.1:6970", "Sec-Fetch-Site": "none"}, False),
        ({"Host": "[::1]:6970", "Sec-Fetch-Site": "none"}, False),
        ({"Host": "LocalHost:6970", "Sec-Fetch-Site": "none"}, False),
        ({"Host": "tracker.localhost.", "Sec-Fetch-Site": "none"}, False),
        ({"Host": "localhost.example", "Sec-Fetch-Site": "none"}, True),
        ({"Host": "localhost", "X-Forwarded-Proto": "https", "Sec-Fetch-Site": "none"}, True),
    ],
)
def test_tls_is_recognised_by_headers(headers: dict[str, str], tls: bool) -> None:
    """Browsers send Sec-Fetch-Site only over TLS and to loopback hosts."""
    assert came_by_tls(make_mocked_request("GET", "/", headers)) == tls


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({"Cookie": f"{COOKIE}=plain"}, "plain"),
        ({"Cookie": f"{SECURE_COOKIE}=secure; {COOKIE}=plain"}, "secure"),
        ({"Cookie": f"{COOKIE}=plain", "X-Forwarded-Proto": "https"}, ""),
        ({"Cookie": f"{COOKIE}=plain; {SECURE_COOKIE}=", "X-Forwarded-Proto": "https"}, ""),
        ({"Cookie": f"{COOKIE}=plain; {SECURE_COOKIE}=secure", "X-Forwarded-Proto": "https"}, "secure"),
        ({}, ""),
    ],
)
def test_the_plain_cookie_is_ignored_over_tls(headers: dict[str, str], found: str) -> None:
    assert cookie_of(make_mocked_request("GET", "/", headers)) == found


@pytest.mark.parametrize("told", [{"X-Forwarded-Proto": "https"}, {"Sec-Fetch-Site": "none"}])
async def test_a_cookie_planted_by_another_host_is_ignored(serve: Serve, told: dict[str, str]) -> None:
    """Cookie tossing: another host of the domain sets the plain cookie of its own session."""
    admin = await serve(hosts=("tracker.example",))
    _, planted = await _signed_in(admin)
    headers = {"Host": "tracker.example", "Cookie": f"{COOKIE}={planted}", **told}
    async with admin.client(headers=headers) as victim:
        async with victim.get("/", allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (303, "/sign-in")
        async with victim.get("/api/v1/torrents") as refused:
            assert refused.status == 401


async def _signed_in(admin: Admin) -> tuple[str, str]:
    """(CSRF token, secret) of a session."""
    signed_in = await admin.store.tokens.sign_in_by_token(await admin.token("admin"), 600)
    assert signed_in is not None
    return signed_in[0].csrf, signed_in[1]
