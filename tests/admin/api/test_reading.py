"""Invalid requests are refused with the right status, never with 500."""

import json
from typing import Any

import pytest
from aiohttp import FormData
from yarl import URL

from tests.admin.api.api_client import JSON, ApiClient
from tests.admin.conftest import Admin

HASH = "ab" * 20


def raw(body: bytes, content_type: str = JSON) -> dict[str, Any]:
    return {"data": body, "headers": {"Content-Type": content_type}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"name": "x"',
        b"{'name': 'x'}",
        b'{"name": "\xff"}',
        b'{"name": "\\ud800"}',
        b'{"name": NaN}x',
        b"[" * 60_000,
        b'{"a":' * 12_000,
        b"\xef\xbb\xbf\x00",
        '{"name": "utf-16"}'.encode("utf-16"),
    ],
)
async def test_malformed_json_is_refused(full: ApiClient, body: bytes) -> None:
    await full.ask("POST", "/users", 400, **raw(body))


@pytest.mark.parametrize(
    "body",
    [b"null", b"[]", b'"x"', b"1", b'{"a": 1}', b'{"can_leech": 1}', b'{"can_leech": "true"}', b'{"user_id": []}'],
)
async def test_json_of_a_wrong_shape_is_refused(full: ApiClient, body: bytes) -> None:
    response = await full.ask("POST", "/users", 422, **raw(body))
    assert response["errors"][0]["in"] == "body"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "x" * 1001),
        ("name", "a\0b"),
        ("name", "a\nb"),
        ("name", ["x"]),
        ("name", 10**400),
        ("reason", ""),
        ("upload_multiplier", 10**400),
        ("upload_multiplier", -1),
        ("upload_multiplier", "1x"),
        ("private", 1),
        ("info_hash", "g" * 40),
        ("info_hash", "ab" * 20 + "\n"),
        ("info_hash", "٠" * 40),
        ("reset_score", None),
    ],
)
async def test_invalid_values_are_refused(full: ApiClient, field: str, value: object) -> None:
    body = json.dumps({"info_hash": HASH, field: value}).encode()
    assert await full.wrong_fields("POST", "/torrents", **raw(body)) == [f"body.{field}"]


async def test_unusual_text_is_kept(full: ApiClient) -> None:
    """But for characters that reorder text: the rule for names removes them."""
    name = "<script>alert('x')</script> \U0001f600 \u202e \ufeff é"
    await full.ask("POST", "/torrents", 201, json={"info_hash": HASH, "name": name})
    assert (await full.get(f"/torrents/{HASH}"))["name"] == name.replace("\u202e", "")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "x"])
async def test_another_content_type_is_refused(full: ApiClient, content_type: str) -> None:
    response = await full.ask("POST", "/users", 415, **raw(b"{}", content_type))
    assert "application/json" in response["detail"]


async def test_forms_are_accepted_for_uploads_only(full: ApiClient) -> None:
    response = await full.ask("POST", "/torrents", 415, **raw(PART, BOUNDARY))
    assert response["detail"] == "send a body of type application/json"
    response = await full.ask("POST", "/torrent-files", 415, json={})
    assert response["detail"] == "send a body of type multipart/form-data"


async def test_a_charset_in_the_content_type_is_ignored(full: ApiClient) -> None:
    await full.ask("POST", "/users", 201, **raw(b"{}", "application/json; charset=utf-8"))


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=501", "limit=-1", "limit=1.0", "limit=1_0", "limit=%20", "limit=%00", "limit=٣", "limit="],
)
async def test_numbers_in_a_query_string_are_validated(full: ApiClient, admin: Admin, query: str) -> None:
    url = URL(f"{admin.url}/api/v1/users?{query}")
    async with full.session.get(url) as response:
        assert response.status == 422
        assert (await response.json(content_type=None))["errors"][0]["field"] == "limit"


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("/users", "limt=1", "limt"),
        ("/users", "limit=1&limit=2", "limit"),
        ("/users", "%FF=1", "\N{REPLACEMENT CHARACTER}"),
        ("/users", "offset=0", "offset"),
        ("/scores", "cursor=18446744073709551616", "cursor"),
        ("/clients", "cursor=18446744073709551616", "cursor"),
        ("/health", "verbose=1", "verbose"),
        ("/users", "x" * 3000 + "=1", "x" * 100),
    ],
)
async def test_unknown_parameters_are_refused(full: ApiClient, admin: Admin, path: str, query: str, field: str) -> None:
    async with full.session.get(URL(f"{admin.url}/api/v1{path}?{query}", encoded=True)) as response:
        assert response.status == 422
        assert (await response.json(content_type=None))["errors"][0]["field"] == field


async def test_the_largest_numbers_are_accepted(full: ApiClient) -> None:
    await full.get("/users", cursor=f"f{10**12 - 1}")
    await full.get("/torrents", cursor=f"f{10**12 - 1}", limit=500)
    await full.get("/scores", cursor=2**64 - 1, limit=500)
    await full.get("/clients", cursor=2**64 - 1)
    await full.get("/counters/announces", since=2**53 - 1, until=2**53 - 1)
    await full.get("/counters/announces", until=0)


async def test_errors_do_not_repeat_the_input(full: ApiClient) -> None:
    response = await full.ask("POST", "/users", 422, json={"user_id": "a secret"})
    assert "a secret" not in str(response)


async def test_the_list_of_errors_is_bounded(full: ApiClient) -> None:
    response = await full.ask("POST", "/users", 422, json={f"x{number}": 1 for number in range(1000)})
    assert len(response["errors"]) == 20


BOUNDARY = "multipart/form-data; boundary=b"
PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=", b"x"),
        (BOUNDARY, b"x"),
        (BOUNDARY, PART),
        (BOUNDARY, PART + b"x"),
        (BOUNDARY, PART + b"x\r\n--c--\r\n"),
        (BOUNDARY, b"--b\r\n\r\nx\r\n--b--\r\n"),
        (BOUNDARY, b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n"),
        (BOUNDARY, b'--b\r\nContent-Disposition: form-data; name="_charset_"\r\n\r\n' + b"x" * 99 + b"\r\n--b--\r\n"),
        (BOUNDARY, b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\n\xff\r\n--b--\r\n'),
        (
            BOUNDARY,
            b'--b\r\nContent-Disposition: form-data; name="name"\r\n'
            b"Content-Type: text/plain; charset=nope\r\n\r\nx\r\n--b--\r\n",
        ),
        (
            BOUNDARY,
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\nContent-Transfer-Encoding: nope\r\n'
            b"\r\nx\r\n--b--\r\n",
        ),
        (BOUNDARY, b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\nx\r\n--c--\r\n--b--\r\n"),
        (BOUNDARY, b"--b\r\nContent-Type: multipart/mixed\r\n\r\nx\r\n--b--\r\n"),
        (BOUNDARY, b"--b\r\n" + b"X: y\r\n" * 500 + b"\r\nx\r\n--b--\r\n"),
        (BOUNDARY, b"--b\r\nno header\r\n\r\nx\r\n--b--\r\n"),
        (
            BOUNDARY,
            PART + b"x\r\n" + b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n\r\n' * 3000 + b"--b--\r\n",
        ),
    ],
)
async def test_malformed_forms_are_refused(full: ApiClient, content_type: str, body: bytes) -> None:
    async with full.session.post("/api/v1/torrent-files", **raw(body, content_type)) as response:
        assert response.status in (400, 413, 422), await response.text()


async def test_a_repeated_form_field_is_refused(full: ApiClient) -> None:
    form = FormData()
    form.add_field("file", b"x", filename="f")
    form.add_field("file", b"y", filename="g")
    assert await full.wrong_fields("POST", "/torrent-files", data=form) == ["body.file"]


async def test_a_file_in_place_of_a_text_is_refused(full: ApiClient) -> None:
    form = FormData()
    form.add_field("file", b"x", filename="f")
    form.add_field("private", b"true\xff", filename="g")
    assert await full.wrong_fields("POST", "/torrent-files", data=form) == ["body.private"]


async def test_bodies_that_contradict_their_headers_are_refused(full: ApiClient) -> None:
    for encoding in ("gzip", "deflate", "br"):
        headers = {"Content-Type": JSON, "Content-Encoding": encoding}
        async with full.session.post("/api/v1/users", data=b"no such thing", headers=headers) as response:
            assert response.status in (400, 415), encoding
