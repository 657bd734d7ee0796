from tests.admin.api.api_client import ApiClient
from tests.admin.conftest import Admin, Serve
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.public import HttpSettings


async def test_a_token_works_until_it_is_revoked(full: ApiClient, admin: Admin) -> None:
    made = await full.ask("POST", "/tokens", 201, json={"name": "site"})
    assert made["role"] == "read"
    headers = {"Authorization": f"Bearer {made['token']}"}
    async with admin.client(headers=headers) as session:
        async with session.get("/api/v1/torrents") as response:
            assert response.status == 200
        async with session.post("/api/v1/tokens", json={"name": "more", "role": "admin"}) as response:
            assert response.status == 403
        await full.ask("DELETE", f"/tokens/{made['token_id']}", 204)
        async with session.get("/api/v1/torrents") as response:
            assert response.status == 401
    await full.ask("DELETE", f"/tokens/{made['token_id']}", 404)


async def test_the_list_has_no_secrets_and_needs_role_admin(full: ApiClient, reader: ApiClient) -> None:
    made = await full.ask("POST", "/tokens", 201, json={"name": "site", "role": "admin"})
    listed = await full.get("/tokens")
    assert "site" in [row["name"] for row in listed["items"]]
    assert made["token"] not in str(listed)
    await reader.get("/tokens", 403)


async def test_token_names_are_unique_and_validated(full: ApiClient) -> None:
    await full.ask("POST", "/tokens", 201, json={"name": "site"})
    await full.ask("POST", "/tokens", 409, json={"name": "site"})
    for name in ("", "x" * 65, "a\nb"):
        assert await full.wrong_fields("POST", "/tokens", json={"name": name}) == ["body.name"]
    await full.ask("POST", "/tokens", 422, json={"name": "\u200b"})
    wrong = {"role": "full", "expires": 0, "addresses": [""] * 33}
    for field, value in wrong.items():
        refused = await full.wrong_fields("POST", "/tokens", json={"name": "x", field: value})
        assert refused == [f"body.{field}"]
    await full.ask("POST", "/tokens", 422, json={"name": "x", "addresses": ["nowhere"]})
    await full.ask("POST", "/tokens", 422, json={"name": "x", "expires": 1})


async def test_a_token_is_limited_in_time_and_to_addresses(full: ApiClient, admin: Admin) -> None:
    ends = int(admin.clock.now) + 60
    limits = {"expires": ends, "addresses": ["192.0.2.7", "2001:db8::1/32"]}
    made = await full.ask("POST", "/tokens", 201, json={"name": "site", **limits})
    row = next(row for row in (await full.get("/tokens"))["items"] if row["name"] == "site")
    assert (row["expires"], row["addresses"]) == (ends, ["192.0.2.7/32", "2001:db8::/32"])
    async with admin.client(headers={"Authorization": f"Bearer {made['token']}"}) as session:
        async with session.get("/api/v1/torrents") as response:
            assert response.status == 401
    here = {"name": "here", "expires": ends, "addresses": ["127.0.0.0/8"]}
    made = await full.ask("POST", "/tokens", 201, json=here)
    async with admin.client(headers={"Authorization": f"Bearer {made['token']}"}) as session:
        for now, status in ((ends - 1, 200), (ends, 401)):
            admin.clock.now = now
            async with session.get("/api/v1/torrents") as response:
                assert response.status == status


async def test_behind_a_trusted_proxy_the_clients_address_counts(serve: Serve, prefix: str) -> None:
    for trusted, status in ((("127.0.0.0/8",), 200), ((), 401)):
        http = HttpSettings.model_validate({"trusted_proxies": trusted})
        admin = await serve(Settings(redis=RedisSettings(prefix=prefix), http=http))
        _, text = await admin.store.tokens.create(f"site {status}", "read", addresses=["192.0.2.7"])
        headers = {"Authorization": f"Bearer {text}", "X-Forwarded-For": "192.0.2.7"}
        async with admin.client(headers=headers) as session:
            async with session.get("/api/v1/torrents") as response:
                assert response.status == status
            elsewhere = {"X-Forwarded-For": "192.0.2.7, 192.0.2.8"}
            async with session.get("/api/v1/torrents", headers=elsewhere) as response:
                assert response.status == 401
