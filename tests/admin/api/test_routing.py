from tests.admin.api.api_client import ApiClient, program
from tests.admin.conftest import Serve


async def test_head_is_a_get_without_a_body(reader: ApiClient) -> None:
    async with reader.session.head("/api/v1/torrents") as response:
        assert response.status == 200
        assert await response.read() == b""


async def test_unknown_methods_and_paths_are_refused(full: ApiClient) -> None:
    for method, path, status in (
        ("PUT", "/torrents", 405),
        ("GET", "/nothing", 404),
        ("GET", "/torrents/", 404),
        ("GET", "/counters/a/b", 404),
        ("GET", "/reprocess", 405),
    ):
        await full.ask(method, path, status)


async def test_an_unavailable_store_is_status_503(serve: Serve) -> None:
    admin = await serve()
    async with program(admin) as asking:
        await asking.get("/torrents")
        admin.store.connection._lost(ConnectionError())
        async with asking.session.get("/api/v1/torrents") as response:
            assert response.status == 503
            assert "Retry-After" in response.headers


async def test_a_browser_can_change_things_with_its_csrf_token(serve: Serve) -> None:
    admin = await serve()
    async with admin.browser() as browser:
        async with browser.post("/api/v1/users", json={}) as response:
            assert response.status == 201
        async with browser.post("/api/v1/users", json={}, headers={"X-CSRF-Token": "x"}) as response:
            assert response.status == 403
        async with browser.delete("/api/v1/users/1", headers={"Origin": "http://elsewhere.test"}) as response:
            assert response.status == 403
