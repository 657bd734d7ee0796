"""Signing in by token and by link, the session cookie, and signing out."""

from http.cookies import SimpleCookie

import pytest
from pydantic import ValidationError

from tests.admin.conftest import Admin, Serve
from tracker.admin.http.cookies import COOKIE, SECURE_COOKIE
from tracker.admin.http.problems import CONTENT_TYPE
from tracker.settings.site import AdminSettings


def cookie(headers: list[str], name: str = COOKIE) -> "SimpleCookie":
    """The cookie of the response, which must be the only one."""
    jar = SimpleCookie()
    assert len(headers) == 1
    jar.load(headers[0])
    assert list(jar) == [name]
    return jar


async def test_a_token_signs_a_browser_in(admin: Admin) -> None:
    token = await admin.token("read")
    async with admin.client(headers={"Origin": admin.url}) as browser:
        response = await browser.get("/", allow_redirects=False)
        assert (response.status, response.headers["Location"]) == (303, "/sign-in")
        page = await browser.get("/sign-in")
        assert page.status == 200 and page.content_type == "text/html"
        text = await page.text()
        assert 'action="/sign-in"' in text and 'name="token"' in text and 'method="post"' in text
        response = await browser.post("/sign-in", data={"token": f" {token}\n"}, allow_redirects=False)
        assert (response.status, response.headers["Location"]) == (303, "/")
        morsel = cookie(response.headers.getall("Set-Cookie"))[COOKIE]
        assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "Strict", "/")
        assert (morsel["secure"], morsel["domain"], morsel["max-age"]) == ("", "", "43200")
        assert token not in morsel.value
        assert (await browser.get("/")).status == 200
        assert (await browser.get("/api/v1/nothing")).status == 404


async def test_a_link_signs_a_browser_in_once(admin: Admin) -> None:
    secret = await admin.store.tokens.new_link()
    async with admin.client(headers={"Origin": admin.url}) as first, admin.client() as second:
        response = await first.post("/sign-in", data={"link": secret}, allow_redirects=False)
        assert (response.status, response.headers["Location"]) == (303, "/")
        assert (await first.get("/")).status == 200
        again = await second.post("/sign-in", data={"link": secret})
        assert again.status == 403 and "tracker sign-in-link" in await again.text()
        assert "Set-Cookie" not in again.headers
        assert (await second.get("/", allow_redirects=False)).status == 303


async def test_the_script_removes_the_secret_of_a_link_from_the_url(admin: Admin) -> None:
    async with admin.client() as browser:
        page = await (await browser.get("/sign-in")).text()
        assert "/static/sign_in.js" in page and 'name="link"' in page
        script = await (await browser.get("/static/sign_in.js")).text()
        assert script.index("replaceState") < script.index("submit()")


async def test_an_invalid_token_is_refused_on_the_page(admin: Admin) -> None:
    async with admin.client(headers={"Origin": admin.url}) as browser:
        for form in ({"token": "swk_0123456789ab_" + "a" * 43}, {"token": ""}, {}, {"link": "x"}):
            response = await browser.post("/sign-in", data=form, allow_redirects=False)
            assert (response.status, response.content_type) == (403, "text/html")
            assert "Set-Cookie" not in response.headers
            assert 'role="alert"' in await response.text()
            assert (await browser.get("/", allow_redirects=False)).status == 303


async def test_the_cookie_set_over_tls_is_secure(serve: Serve) -> None:
    """By X-Forwarded-Proto of the proxy, or by the Origin of the browser."""
    admin = await serve(hosts=("tracker.example",))
    token = await admin.token("read")
    for headers in ({"Origin": "https://tracker.example"}, {"Host": "tracker.example", "X-Forwarded-Proto": "https"}):
        async with admin.client(headers=headers) as browser:
            response = await browser.post("/sign-in", data={"token": token}, allow_redirects=False)
            assert response.status == 303
            morsel = cookie(response.headers.getall("Set-Cookie"), SECURE_COOKIE)[SECURE_COOKIE]
            assert (morsel["secure"], morsel["path"], morsel["domain"]) == (True, "/", "")
            sent = {"Cookie": f"{SECURE_COOKIE}={morsel.value}"}
            assert (await browser.get("/api/v1/nothing", headers=sent)).status == 404


async def test_role_read_can_sign_out(admin: Admin) -> None:
    async with admin.browser("read") as browser:
        assert (await browser.get("/")).status == 200
        kept = next(iter(browser.cookie_jar)).value
        response = await browser.post("/sign-out", allow_redirects=False)
        assert (response.status, response.headers["Location"]) == (303, "/sign-in")
        gone = [SimpleCookie(header) for header in response.headers.getall("Set-Cookie")]
        assert [(name, jar[name].value, jar[name]["max-age"]) for jar in gone for name in jar] == [
            (COOKIE, "", "0"),
            (SECURE_COOKIE, "", "0"),
        ]
        stolen = {"Cookie": f"{COOKIE}={kept}"}
        assert (await browser.get("/", headers=stolen, allow_redirects=False)).status == 303


async def test_signing_out_needs_the_csrf_token(admin: Admin) -> None:
    async with admin.browser("read", headers={"X-CSRF-Token": "wrong"}) as browser:
        assert (await browser.post("/sign-out", allow_redirects=False)).status == 403
        assert (await browser.get("/")).status == 200


async def test_signing_in_creates_a_new_session(admin: Admin) -> None:
    """Session fixation: the previous session is replaced and ends."""
    planted = "a" * 43
    async with admin.browser("admin") as attacker:
        theirs = next(iter(attacker.cookie_jar)).value
        for before in (planted, theirs):
            async with admin.client(headers={"Origin": admin.url}, cookies={COOKIE: before}) as victim:
                form = {"token": await admin.token("admin")}
                response = await victim.post("/sign-in", data=form, allow_redirects=False)
                assert cookie(response.headers.getall("Set-Cookie"))[COOKIE].value not in (planted, theirs)
        assert (await attacker.get("/", allow_redirects=False)).status == 303  # replaced sessions end


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/x-www-form-urlencoded; charset=nonsense", b"token=a"),
        ("application/x-www-form-urlencoded", b"token=\xff\xfe"),
        ("multipart/form-data", b"--x\r\n"),
        ("multipart/form-data; boundary=x", b"nonsense"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n--x--\r\n"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data; name=token\r\n\r\na"),
        (
            "multipart/form-data; boundary=x",
            b"--x\r\nContent-Transfer-Encoding: odd\r\n"
            b"Content-Disposition: form-data; name=token\r\n\r\na\r\n--x--\r\n",
        ),
        (
            "multipart/form-data; boundary=x",
            b"--x\r\nContent-Type: multipart/mixed; boundary=y\r\n\r\n--y\r\n\r\na\r\n--y--\r\n--x--\r\n",
        ),
        ("application/json", b'{"token": "a"}'),
        ("text/plain", b"token=a"),
    ],
)
async def test_malformed_forms_are_refused(admin: Admin, content_type: str, body: bytes) -> None:
    async with admin.client() as browser:
        response = await browser.post("/sign-in", data=body, headers={"Content-Type": content_type})
        assert response.status in (400, 403)


async def test_the_size_of_the_form_is_limited(admin: Admin) -> None:
    """It needs no authentication."""
    async with admin.client() as browser:
        response = await browser.post("/sign-in", data={"token": "a" * 5000})
        assert (response.status, response.content_type) == (413, CONTENT_TYPE)


async def test_the_session_lasts_as_long_as_configured(serve: Serve) -> None:
    admin = await serve(session_seconds=60)
    async with admin.browser("read") as browser:
        assert (await browser.get("/")).status == 200
        admin.clock.now += 60
        assert (await browser.get("/", allow_redirects=False)).status == 303


def test_a_session_lasts_at_most_thirty_days() -> None:
    assert AdminSettings(session_seconds=30 * 86400).session_seconds == 30 * 86400
    with pytest.raises(ValidationError):
        AdminSettings(session_seconds=30 * 86400 + 1)
