"""/static/: the files of the package, their caching, and no access to other files."""

import gzip
from importlib.resources import files

import pytest

from tests.admin.conftest import Admin
from tests.raw_http import ask
from tracker.admin.http import static_files

SCRIPT = (files("tracker.admin") / "static" / "sign_in.js").read_bytes()


async def test_static_files_need_no_token_and_have_a_content_type(admin: Admin) -> None:
    async with admin.client() as client:
        response = await client.get("/static/sign_in.js")
        assert (response.status, response.content_type, await response.read()) == (200, "text/javascript", SCRIPT)
        response = await client.get("/static/tracker.css")
        assert (response.status, response.content_type, response.charset) == (200, "text/css", "utf-8")
        response = await client.get("/static/icon.svg")
        assert (response.status, response.content_type) == (200, "image/svg+xml")


async def test_versioned_files_are_cached_and_others_revalidated(admin: Admin) -> None:
    async with admin.client() as client:
        first = await client.get("/static/sign_in.js?v=1")
        assert first.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        again = await client.get("/static/sign_in.js", headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status, await again.read()) == (304, b"")
        assert again.headers["Cache-Control"] == "no-cache" and again.headers["ETag"] == first.headers["ETag"]
        changed = await client.get("/static/sign_in.js", headers={"If-None-Match": '"other"'})
        assert changed.status == 200


async def test_large_text_files_are_compressed_for_clients_that_accept_it(admin: Admin) -> None:
    path = next(path for path, file in static_files.read_all().items() if file.gzipped and path.endswith(".css"))
    async with admin.client(auto_decompress=False) as client:
        plain = await client.get(f"/static/{path}", headers={"Accept-Encoding": "identity"})
        packed = await client.get(f"/static/{path}", headers={"Accept-Encoding": "br, gzip"})
        assert packed.headers["Content-Encoding"] == "gzip" and packed.headers["Vary"] == "Accept-Encoding"
        assert gzip.decompress(await packed.read()) == await plain.read()
        assert "Content-Encoding" not in plain.headers


async def test_nothing_in_the_package_is_executable_or_large() -> None:
    found = static_files.read_all()
    assert "sign_in.js" in found and not any(path.endswith((".py", ".pyc")) for path in found)
    assert sum(len(file.content) for file in found.values()) < 2_000_000


WAYS_OUT = [
    "/static/../server.py",
    "/static/%2e%2e/server.py",
    "/static/%2e%2e%2fserver.py",
    "/static/..%2fserver.py",
    "/static/%252e%252e%252fserver.py",
    "/static/..%5cserver.py",
    "/static/..\\server.py",
    "/static/....//server.py",
    "/static//etc/passwd",
    "/static/%2fetc/passwd",
    "/static/%00sign_in.js",
    "/static/sign_in.js%00.css",
    "/static/",
    "/static/vendor",
    "/static/vendor/",
    "/static/%c0%ae%c0%ae/server.py",
    "/static/vendor/../../server.py",
    "/static/./../server.py",
    "/static",
    "/%73tatic/../metrics",
    "/static%2f..%2fmetrics",
    "/static/../metrics",
    "/static/..;/metrics",
    "//static/../metrics",
]


@pytest.mark.parametrize("target", WAYS_OUT)
async def test_no_path_reaches_other_files(admin: Admin, target: str) -> None:
    """Neither to other files nor, through an open route, to pages that need a token."""
    response = await ask(admin.addresses[0], f"GET {target} HTTP/1.1\nHost: localhost")
    assert response.status in (303, 400, 401, 404), response
    assert b"import" not in response.body and b"root:" not in response.body and b"# TYPE" not in response.body
