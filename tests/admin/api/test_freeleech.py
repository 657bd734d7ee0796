import pytest

from tests.admin.api.api_client import ApiClient
from tests.admin.conftest import Admin
from tests.store.harness import info_hash

HASH = info_hash(1).hex()
PATH = f"/users/7/freeleech/{HASH}"


async def test_tokens_are_given_listed_and_taken_back(full: ApiClient, admin: Admin) -> None:
    await full.ask("POST", "/users", 201, json={"user_id": "7"})
    await admin.store.torrents.add(info_hash(1), {"name": "a film"})
    end = int(admin.clock()) + 1000
    token = {"torrent_id": "1", "info_hash": HASH, "name": "a film", "until": end}
    assert await full.ask("PUT", PATH, json={"until": end}) == token
    page = await full.get("/users/7/freeleech")
    assert (page["items"], page["total"]) == ([token], 1)
    await admin.store.torrents.remove(info_hash(1))
    (row,) = (await full.get("/users/7/freeleech"))["items"]
    assert (row["torrent_id"], row["info_hash"], row["name"]) == ("1", None, "")
    await admin.store.torrents.add(info_hash(2))
    await full.ask("PUT", f"/users/7/freeleech/{info_hash(2).hex()}", json={"until": end + 1})
    await full.ask("DELETE", f"/users/7/freeleech/{info_hash(2).hex()}", 204)
    await full.ask("DELETE", f"/users/7/freeleech/{info_hash(2).hex()}", 404)


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_unknown_users_and_torrents_are_not_found(full: ApiClient, method: str) -> None:
    options = {"json": {"until": 10**12}} if method == "PUT" else {}
    await full.ask(method, PATH, 404, **options)
    await full.ask("POST", "/users", 201, json={"user_id": "7"})
    await full.ask(method, PATH, 404, **options)
    await full.ask("GET", "/users/8/freeleech", 404)


async def test_the_end_is_in_the_future(full: ApiClient, admin: Admin) -> None:
    await full.ask("POST", "/users", 201, json={"user_id": "7"})
    await admin.store.torrents.add(info_hash(1))
    assert (await full.ask("PUT", PATH, json={}))["until"] is None
    assert await full.wrong_fields("PUT", PATH, json={"until": 0}) == ["body.until"]
    problem = await full.ask("PUT", PATH, 422, json={"until": 1})
    assert problem["detail"] == "a freeleech token must end in the future"


async def test_a_token_for_the_v2_half_of_a_hybrid_torrent_is_one_for_its_v1_half(
    full: ApiClient, admin: Admin
) -> None:
    await full.ask("POST", "/users", 201, json={"user_id": "7"})
    for number in (1, 2):
        await admin.store.torrents.add(info_hash(number))
    await admin.store.hybrids.link(info_hash(1), info_hash(2))
    token = await full.ask("PUT", PATH, json={"until": int(admin.clock()) + 1000})
    assert (token["torrent_id"], token["info_hash"]) == ("2", info_hash(2).hex())
    await full.ask("DELETE", PATH, 204)
    assert (await full.get("/users/7/freeleech"))["items"] == []
