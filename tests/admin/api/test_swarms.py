import pytest

from tests.admin.api.api_client import ApiClient, all_pages, swarms_of
from tests.admin.conftest import Admin
from tests.store.harness import ALICE, endpoint, info_hash, peer_id, update
from tracker.bittorrent import PeerId
from tracker.store.stats.metric_names import PlaceNames
from tracker.store.stats.unique_users import UniqueUserEvent
from tracker.store.torrents.scores import Scored

ONE = info_hash(1).hex()


async def test_peers_of_a_torrent_are_listed(full: ApiClient, reader: ApiClient, admin: Admin, redis_url: str) -> None:
    await admin.store.torrents.add(info_hash(1))
    await admin.store.users.add("7", ALICE)
    async with swarms_of(admin, redis_url, accounts="required") as store:
        await store.announce(
            update(1, peer_id=PeerId(b"-qB5020-" + bytes(12)), passkey=ALICE, uploaded=5, bytes_left=0)
        )
    page = await full.get(f"/torrents/{ONE}/peers")
    (peer,) = page["items"]
    assert (page["total"], page["next_cursor"]) == (1, None)
    assert (peer["client"], peer["user_id"], peer["seeding"]) == ("qBittorrent 5.0.2", "7", True)
    assert peer["endpoints"] == ["11.0.0.1:6881"]
    assert peer["last_announce"] == int(admin.clock.now) and peer["connectable"] is None
    user = await full.get("/users/7")
    assert user["connectable"] is user["connectable_checked_at"] is None
    text = str(await reader.get(f"/torrents/{ONE}/peers"))
    assert ALICE not in text


async def test_peers_and_users_are_shown_as_connectable(full: ApiClient, admin: Admin, redis_url: str) -> None:
    await admin.store.torrents.add(info_hash(1))
    await admin.store.users.add("7", ALICE)
    async with swarms_of(admin, redis_url, accounts="required") as store:
        for number in (1, 2):
            await store.announce(update(number, "s", passkey=ALICE))
    for number, connectable in ((1, True), (2, False)):
        await admin.store.connect_checks.note(endpoint(number), "7", connectable)
    rows = await all_pages(full, f"/torrents/{ONE}/peers")
    assert {row["endpoints"][0]: row["connectable"] for row in rows} == {"11.0.0.1:6881": True, "11.0.0.2:6881": False}
    user = await full.get("/users/7")
    assert (user["connectable"], user["connectable_checked_at"]) == (True, int(admin.clock.now))


async def test_all_peers_are_listed_page_by_page(full: ApiClient, admin: Admin, redis_url: str) -> None:
    async with swarms_of(admin, redis_url) as store:
        for number in range(600):
            await store.announce(update(number, "s"))
    found = await all_pages(full, f"/torrents/{ONE}/peers", limit=100)
    assert {peer["peer_id"] for peer in found} == {peer_id(number).hex() for number in range(600)}


async def test_history_and_rank_are_shown(full: ApiClient, admin: Admin, redis_url: str) -> None:
    async with swarms_of(admin, redis_url) as store:
        await store.announce(update(1, "s"))
    shown = await full.get(f"/torrents/{ONE}")
    assert shown["turn"]["rank"] == 1 and shown["turn"]["of"] == 1
    assert not shown["turn"]["being_scored"]
    taken = await admin.store.scores.take_one(shown["torrent_id"])
    assert taken is not None
    assert (await full.get(f"/torrents/{ONE}"))["turn"]["being_scored"]
    await admin.store.scores.finish([Scored(taken, 0.8)])
    (point,) = (await full.get(f"/torrents/{ONE}/history"))["items"]
    assert point == {
        "at": int(admin.clock.now),
        "seeders": 0,
        "leechers": 1,
        "snatches": 0,
        "score": pytest.approx(0.8),
    }


async def test_locations_of_users_are_listed(full: ApiClient, admin: Admin) -> None:
    await admin.store.torrents.add(info_hash(1))
    place = PlaceNames("United_Kingdom", "London", "SW1A")
    batch = [UniqueUserEvent(info_hash(1), f"192.0.2.{number}", place) for number in range(3)]
    await admin.store.unique_users.count(batch, admin.clock.now)
    page = await full.get(f"/torrents/{ONE}/uniques")
    assert page["users"] == 3
    assert {"scope": "cities", "place": "United_Kingdom/London", "users": 3} in page["items"]
    assert (await full.get(f"/torrents/{ONE}"))["unique_users"] == 3
    assert len(await all_pages(full, f"/torrents/{ONE}/uniques", limit=1)) == 3


@pytest.mark.parametrize("what", ["peers", "history", "uniques"])
async def test_an_unknown_torrent_is_not_found(full: ApiClient, what: str) -> None:
    await full.get(f"/torrents/{ONE}/{what}", 404)
