from tests.admin.api.asking import Program, program
from tests.admin.conftest import Serve


async def test_head_is_a_get_without_a_body(reader: Program) -> None:
    async with reader.session.head("/api/v1/torrents") as answer:
        assert answer.status == 200
        assert await answer.read() == b""


async def test_methods_and_paths_that_are_none(full: Program) -> None:
    for method, path, status in (
        ("PUT", "/torrents", 405),
        ("GET", "/nothing", 404),
        ("GET", "/torrents/", 404),
        ("GET", "/counters/a/b", 404),
        ("GET", "/reprocess", 405),
    ):
        await full.ask(method, path, status)


async def test_a_store_that_is_away_is_no_error_of_ours(serve: Serve) -> None:
    admin = await serve()
    async with program(admin) as asking:
        await asking.get("/torrents")
        admin.stores.connection._lost(ConnectionError())
        async with asking.session.get("/api/v1/torrents") as answer:
            assert answer.status == 503
            assert "Retry-After" in answer.headers


async def test_a_browser_changes_things_with_its_csrf_token(serve: Serve) -> None:
    admin = await serve()
    async with admin.browser() as browser:
        async with browser.post("/api/v1/users", json={}) as answer:
            assert answer.status == 201
        async with browser.post("/api/v1/users", json={}, headers={"X-CSRF-Token": "x"}) as answer:
            assert answer.status == 403
        async with browser.delete("/api/v1/users/1", headers={"Origin": "http://elsewhere.test"}) as answer:
            assert answer.status == 403
