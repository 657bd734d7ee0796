"""Forms are decoded as UTF-8: other codecs may take hours for a body of the max size."""

import pytest

from tests.admin.conftest import Admin
from tracker.admin.http.cookies import COOKIE
from tracker.admin.http.form_body import MAX_FIELDS

_PART = (
    b'--b\r\nContent-Disposition: form-data; name="csrf"\r\n'
    b"Content-Type: text/plain; charset=utf-16\r\n\r\n%b\r\n--b--\r\n"
)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/x-www-form-urlencoded; charset=punycode", b"csrf=%b"),
        ("application/x-www-form-urlencoded; charset=idna", b"csrf=%b"),
        ("multipart/form-data; boundary=b; charset=utf-7", _PART),
    ],
)
async def test_forms_are_decoded_as_utf_8_whatever_charset_they_name(
    admin: Admin, content_type: str, body: bytes
) -> None:
    signed_in = await admin.store.tokens.sign_in_by_token(await admin.token("read"), 60)
    assert signed_in is not None
    session, secret = signed_in
    headers = {"Origin": admin.url, "Content-Type": content_type, "Cookie": f"{COOKIE}={secret}"}
    async with admin.client(headers=headers) as browser:
        form = body % session.csrf.encode()
        async with browser.post("/sign-out", data=form, allow_redirects=False) as response:
            assert response.status == 303


async def test_a_form_with_too_many_fields_is_refused(admin: Admin) -> None:
    async with admin.browser() as browser:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        async with browser.post("/torrents/add", data=b"a&" * (MAX_FIELDS + 1), headers=headers) as response:
            assert response.status == 400


async def test_a_body_of_another_type_has_no_fields(admin: Admin) -> None:
    async with admin.client() as browser:
        async with browser.post("/sign-in", data=b"token=a", headers={"Content-Type": "text/plain"}) as response:
            assert response.status == 403
