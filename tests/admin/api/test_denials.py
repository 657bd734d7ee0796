from tests.admin.api.api_client import ApiClient, all_pages, swarms_of
from tests.admin.conftest import Admin
from tests.store.harness import info_hash, update


async def test_a_torrent_is_denied_and_allowed_again(full: ApiClient, admin: Admin, redis_url: str) -> None:
    one = info_hash(1).hex()
    row = await full.ask("PUT", f"/denials/{one}", json={"reason": "asked to"})
    assert row == {"info_hash": one, "reason": "asked to"}
    async with swarms_of(admin, redis_url) as store:
        assert await store.refused(update(1)) == "denied"
        (listed,) = (await full.get("/denials"))["items"]
        assert listed == {**row, "since": int(listed["since"])}
        await full.ask("DELETE", f"/denials/{one}", 204)
        await store.announce(update(1))
    assert (await full.get("/denials"))["total"] == 0
    await full.ask("DELETE", f"/denials/{one}", 404)


async def test_a_denial_without_a_reason_gets_a_default_one(full: ApiClient) -> None:
    row = await full.ask("PUT", f"/denials/{info_hash(1).hex()}", json={})
    assert row["reason"] == "this torrent is not served here"
    wrong = await full.wrong_fields("PUT", f"/denials/{info_hash(1).hex()}", json={"reason": ""})
    assert wrong == ["body.reason"]


async def test_the_list_is_paged(full: ApiClient) -> None:
    hashes = [info_hash(number).hex() for number in range(5)]
    for each in hashes:
        await full.ask("PUT", f"/denials/{each}", json={})
    rows = await all_pages(full, "/denials", limit=2)
    assert sorted(row["info_hash"] for row in rows) == hashes
