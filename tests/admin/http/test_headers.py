"""Headers that depend on the response and on TLS."""

import pytest

from tests.admin.conftest import Admin, Serve
from tracker.admin.http.connections import JSON_FILE, TLS_ONLY


async def test_responses_over_tls_have_strict_transport_security(serve: Serve) -> None:
    admin = await serve(hosts=("tracker.example",))
    for headers, said in (
        ({"Host": "tracker.example", "X-Forwarded-Proto": "https"}, TLS_ONLY),
        ({"Host": "tracker.example", "X-Forwarded-Proto": "http"}, None),
        ({}, None),
    ):
        async with admin.client("read", headers=headers) as client:
            for path in ("/sign-in", "/api/v1/torrents", "/nothing", "/static/sign_in.js"):
                async with client.get(path) as response:
                    assert response.headers.get("Strict-Transport-Security") == said, path


@pytest.mark.parametrize("path", ["/api/v1/torrents", "/api/openapi.json", "/api/v1/nothing", "/history/a"])
async def test_json_is_an_attachment_with_a_fixed_name(admin: Admin, path: str) -> None:
    async with admin.client("read") as client:
        for asked in (path, f"{path}?;/setup.bat"):
            async with client.get(asked) as response:
                assert "json" in response.content_type
                assert response.headers["Content-Disposition"] == JSON_FILE


@pytest.mark.parametrize("path", ["/", "/sign-in", "/metrics", "/health", "/static/sign_in.js", "/static/tracker.css"])
async def test_texts_have_a_content_type_and_charset(admin: Admin, path: str) -> None:
    async with admin.client("read") as client:
        response = await client.get(path)
        assert response.content_type.startswith("text/") and response.charset == "utf-8"
        (await response.read()).decode()
        assert "Content-Disposition" not in response.headers


async def test_no_header_names_a_version(admin: Admin) -> None:
    """Neither of the tracker nor of its libraries."""
    async with admin.client() as stranger:
        for path in ("/sign-in", "/health", "/ready", "/api/v1/nothing", "/nothing", "/metrics"):
            response = await stranger.get(path)
            told = str(response.headers) + await response.text()
            assert not [
                word
                for word in ("Server", "X-Powered-By", "aiohttp", "Python/", "Valkey", "Redis", "Version")
                if word.lower() in told.lower()
            ], path
