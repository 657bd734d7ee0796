"""Headers that depend on the answer, and on the line it goes over."""

import pytest

from tests.admin.conftest import Admin, Serve
from tracker.admin.headers import JSON_FILE, TLS_ONLY


async def test_a_name_reached_by_tls_is_not_asked_for_without_it(serve: Serve) -> None:
    admin = await serve(hosts=("tracker.example",))
    for headers, said in (
        ({"Host": "tracker.example", "X-Forwarded-Proto": "https"}, TLS_ONLY),
        ({"Host": "tracker.example", "X-Forwarded-Proto": "http"}, None),
        ({}, None),
    ):
        async with admin.client("read", headers=headers) as client:
            for path in ("/sign-in", "/api/v1/torrents", "/nothing", "/static/sign_in.js"):
                async with client.get(path) as answer:
                    assert answer.headers.get("Strict-Transport-Security") == said, path


@pytest.mark.parametrize("path", ["/api/v1/torrents", "/api/openapi.json", "/api/v1/nothing", "/figures/a"])
async def test_json_is_no_page_and_names_no_file_by_itself(admin: Admin, path: str) -> None:
    async with admin.client("read") as client:
        for asked in (path, f"{path}?;/setup.bat"):
            async with client.get(asked) as answer:
                assert "json" in answer.content_type
                assert answer.headers["Content-Disposition"] == JSON_FILE


@pytest.mark.parametrize(
    "path", ["/", "/sign-in", "/metrics", "/health", "/static/sign_in.js", "/static/tracker.css"]
)
async def test_a_text_says_its_type_and_that_it_is_utf_8(admin: Admin, path: str) -> None:
    async with admin.client("read") as client:
        answer = await client.get(path)
        assert answer.content_type.startswith("text/") and answer.charset == "utf-8"
        (await answer.read()).decode()
        assert "Content-Disposition" not in answer.headers


async def test_strangers_learn_no_versions(admin: Admin) -> None:
    """Neither ours nor those of what we are made of."""
    async with admin.client() as nobody:
        for path in ("/sign-in", "/health", "/ready", "/api/v1/nothing", "/nothing", "/metrics"):
            answer = await nobody.get(path)
            told = str(answer.headers) + await answer.text()
            assert not [
                word
                for word in ("Server", "X-Powered-By", "aiohttp", "Python/", "Valkey", "Redis", "Version")
                if word.lower() in told.lower()
            ], path
