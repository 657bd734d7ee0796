from tests.admin.api.api_client import ApiClient
from tests.admin.conftest import Admin


async def test_a_token_works_until_it_is_revoked(full: ApiClient, admin: Admin) -> None:
    made = await full.ask("POST", "/tokens", 201, json={"name": "site"})
    assert made["scope"] == "read"
    headers = {"Authorization": f"Bearer {made['token']}"}
    async with admin.client(headers=headers) as session:
        async with session.get("/api/v1/torrents") as response:
            assert response.status == 200
        async with session.post("/api/v1/tokens", json={"name": "more", "scope": "full"}) as response:
            assert response.status == 403
        await full.ask("DELETE", f"/tokens/{made['token_id']}", 204)
        async with session.get("/api/v1/torrents") as response:
            assert response.status == 401
    await full.ask("DELETE", f"/tokens/{made['token_id']}", 404)


async def test_the_list_has_no_secrets_and_needs_scope_full(full: ApiClient, reader: ApiClient) -> None:
    made = await full.ask("POST", "/tokens", 201, json={"name": "site", "scope": "full"})
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
    assert await full.wrong_fields("POST", "/tokens", json={"name": "x", "scope": "all"}) == ["body.scope"]
