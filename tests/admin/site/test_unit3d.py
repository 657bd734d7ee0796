"""The calls of UNIT3D over HTTP: what each changes in the store, and what it answers."""

from typing import Any

import pytest

from tests.admin.site.conftest import GROUP, HASH, OTHER, PASSKEY, TORRENT, USER, Site
from tracker.bittorrent import InfoHash
from tracker.store.torrents.torrents import Torrent
from tracker.store.users.fields import User

INFO_HASH = InfoHash(HASH)


async def torrent_of(site: Site) -> Torrent:
    found = await site.store.torrents.get(INFO_HASH)
    assert found is not None
    return found


async def user_of(site: Site) -> User:
    found = await site.store.users.by_id("7")
    assert found is not None
    return found


async def test_a_torrent_is_registered_with_the_id_of_the_site_and_replaced(site: Site) -> None:
    status, body = await site.ask("PUT", "torrents", {**TORRENT, "comment": "ignored"})
    assert (status, body) == (200, b"")
    found = await torrent_of(site)
    assert (found.torrent_id, found.enabled, found.completions) == ("700", True, 5)
    assert await site.get("torrents/700") == {
        "id": 700,
        "status": "Approved",
        "is_deleted": False,
        "peers": {},
        "seeders": 0,
        "leechers": 0,
        "times_completed": 5,
        "download_factor": 100,
        "upload_factor": 100,
    }
    assert await site.put("torrents", {**TORRENT, "download_factor": 67, "upload_factor": 200}) == 200
    changed = await site.get("torrents/700")
    assert (changed["download_factor"], changed["upload_factor"]) == (67, 200)
    assert await site.put("torrents", TORRENT) == 200
    assert (await torrent_of(site)).download_multiplier == ()


@pytest.mark.parametrize(("status", "name"), [(0, "Pending"), (1, "Approved"), (2, "Rejected"), (3, "Postponed")])
async def test_only_an_approved_torrent_is_served(site: Site, status: int, name: str) -> None:
    assert await site.put("torrents", {**TORRENT, "status": status}) == 200
    found = await torrent_of(site)
    assert (found.enabled, found.pending) == (status == 1, status != 1)
    assert (await site.get("torrents/700"))["status"] == name
    assert await site.put("torrents", TORRENT) == 200
    assert (await torrent_of(site)).enabled


async def test_a_torrent_that_the_site_deleted_is_not_served(site: Site) -> None:
    assert await site.put("torrents", {**TORRENT, "is_deleted": True}) == 200
    shown = await site.get("torrents/700")
    assert (shown["is_deleted"], shown["status"]) == (True, "Approved")
    assert not (await torrent_of(site)).pending
    for _ in range(2):  # the answer to the first may be lost
        assert await site.delete("torrents", {"id": 700, "info_hash": HASH.hex()}) == 200
    assert (await site.ask("GET", "torrents/700"))[0] == 404
    assert await site.put("torrents", TORRENT) == 200
    assert (await torrent_of(site)).torrent_id == "700"


async def test_an_info_hash_has_one_id(site: Site) -> None:
    await site.put("torrents", TORRENT)
    status, problem = await site.ask("PUT", "torrents", {**TORRENT, "id": 701})
    assert status == 409
    assert "700" in problem["detail"]
    assert await site.put("torrents", {**TORRENT, "info_hash": "02" * 20}) == 409


async def test_a_user_is_added_changed_and_deleted(site: Site) -> None:
    assert await site.ask("PUT", "users", {**USER, "email": "ignored"}) == (200, b"")
    user = await user_of(site)
    assert (user.passkey, user.can_leech, user.group) == (PASSKEY, True, 3)
    await site.store.users.edit("7", {"uploaded": 5})
    assert await site.put("users", {**USER, "can_download": False, "group_id": 4}) == 200
    user = await user_of(site)
    assert (user.can_leech, user.group, user.uploaded) == (False, 4, 5)
    for _ in range(2):
        assert await site.delete("users", {"id": 7, "passkey": PASSKEY}) == 200
    assert (await site.ask("GET", "users/7"))[0] == 404


async def test_a_new_passkey_replaces_the_old_one_also_when_the_call_is_repeated(site: Site) -> None:
    await site.put("users", USER)
    for _ in range(2):
        assert await site.put("users", {**USER, "new_passkey": OTHER}) == 200
        assert (await user_of(site)).passkey == OTHER
    assert await site.store.users.get(PASSKEY) is None


async def test_a_passkey_belongs_to_one_user(site: Site) -> None:
    await site.put("users", USER)
    status, problem = await site.ask("PUT", "users", {**USER, "id": 8})
    assert status == 409
    assert "passkey" in problem["detail"]
    assert PASSKEY not in problem["detail"]
    await site.put("users", {**USER, "id": 8, "passkey": OTHER})
    assert await site.put("users", {**USER, "id": 8, "passkey": OTHER, "new_passkey": PASSKEY}) == 409
    assert (await user_of(site)).passkey == PASSKEY


async def test_donors_lifetime_and_personal_freeleech_stand_beside_each_other(site: Site) -> None:
    await site.put("users", {**USER, "is_donor": True, "is_lifetime": True})
    assert await site.put("personal-freeleech", {"user_id": 7}) == 200
    assert {rule.name for rule in (await user_of(site)).download_multiplier} == {"donor", "lifetime", "personal"}
    assert await site.put("users", {**USER, "is_lifetime": True}) == 200
    for _ in range(2):
        assert await site.delete("personal-freeleech", {"user_id": 7}) == 200
    shown = await site.get("users/7")
    assert (shown["is_donor"], shown["is_lifetime"]) == (False, True)
    assert [rule.name for rule in (await user_of(site)).download_multiplier] == ["lifetime"]


async def test_a_featured_torrent_keeps_its_rule_when_the_torrent_is_replaced(site: Site) -> None:
    await site.put("torrents", {**TORRENT, "download_factor": 50})
    assert await site.put("featured-torrents", {"torrent_id": 700}) == 200
    await site.put("torrents", {**TORRENT, "download_factor": 75})
    found = await torrent_of(site)
    assert [(rule.factor, rule.name) for rule in found.upload_multiplier] == [(2.0, "featured")]
    assert {(rule.factor, rule.name) for rule in found.download_multiplier} == {(0.75, ""), (0.0, "featured")}
    assert (await site.get("torrents/700"))["download_factor"] == 75
    for _ in range(2):
        assert await site.delete("featured-torrents", {"torrent_id": 700}) == 200
    assert [rule.factor for rule in (await torrent_of(site)).download_multiplier] == [0.75]


async def test_groups_set_the_rules_of_their_users(site: Site) -> None:
    rules = {"download_slots": 4, "is_immune": True, "is_freeleech": True, "is_double_upload": True}
    assert await site.put("groups", {**GROUP, **rules}) == 200
    group = await site.store.groups.get(3)
    assert group is not None
    assert (group.name, group.may_announce, group.max_downloads, group.hnr_exempt) == ("user", True, 4, True)
    assert [rule.factor for rule in group.upload_multiplier + group.download_multiplier] == [2.0, 0.0]
    assert await site.put("groups", GROUP) == 200
    group = await site.store.groups.get(3)
    assert group is not None
    assert (group.max_downloads, group.hnr_exempt, group.upload_multiplier) == (0, False, ())
    assert group.can_leech
    assert await site.put("groups", {**GROUP, "download_slots": 0}) == 200
    assert not (await site.store.groups.all())[0].can_leech
    for slug in ("banned", "validating", "disabled"):
        assert await site.put("groups", {**GROUP, "slug": slug}) == 200
        assert not (await site.store.groups.all())[0].may_announce
    for _ in range(2):
        assert await site.delete("groups", {"id": 3}) == 200
    assert await site.store.groups.get(3) is None


async def test_agents_are_denied(site: Site) -> None:
    for _ in range(2):
        assert await site.put("blacklisted-agents", {"peer_id_prefix": "-XL00%"}) == 200
    assert await site.store.deny_list.all() == {b"-XL00%": ""}
    for _ in range(2):
        assert await site.delete("blacklisted-agents", {"peer_id_prefix": "-XL00%"}) == 200
    assert await site.store.deny_list.all() == {}
    assert await site.put("blacklisted-agents", {"peer_id_prefix": "x" * 21}) == 400


async def test_a_freeleech_token_has_no_end(site: Site) -> None:
    await site.put("users", USER)
    await site.put("torrents", TORRENT)
    for _ in range(2):
        assert await site.put("freeleech-tokens", {"user_id": 7, "torrent_id": 700}) == 200
    site.clock.now += 10**9
    assert [token.torrent_id for token in await site.store.freeleech.page("7")] == ["700"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "torrents/700", None),
        ("GET", "torrents/99999999999999999999", None),
        ("GET", "users/7", None),
        ("GET", "users/99999999999999999999", None),
        ("PUT", "freeleech-tokens", {"user_id": 7, "torrent_id": 700}),
        ("PUT", "personal-freeleech", {"user_id": 7}),
        ("PUT", "featured-torrents", {"torrent_id": 700}),
        ("GET", "nothing", None),
        ("GET", "torrents/x", None),
    ],
)
async def test_what_is_unknown_is_404(site: Site, method: str, path: str, body: object) -> None:
    assert (await site.ask(method, path, body))[0] == 404


async def test_ids_above_32_bits_are_kept(site: Site) -> None:
    big = 2**32 + 5
    assert await site.put("users", {**USER, "id": big}) == 200
    assert await site.put("torrents", {**TORRENT, "id": big}) == 200
    assert await site.put("freeleech-tokens", {"user_id": big, "torrent_id": big}) == 200
    assert (await site.get(f"users/{big}"))["id"] == big
    assert (await site.get(f"torrents/{big}"))["id"] == big
    assert await site.put("users", {**USER, "id": 10**15}) == 400


@pytest.mark.parametrize(
    ("path", "body", "status", "detail"),
    [
        ("freeleech-tokens", {"user_id": 7, "torrent_id": 404}, 404, "unknown torrent: add it first"),
        ("featured-torrents", {"torrent_id": 404}, 404, "unknown torrent: add it first"),
        ("personal-freeleech", {"user_id": 404}, 404, "there is no such user: add the user first"),
        ("users", {**USER, "id": 8}, 409, "this passkey belongs to another user: give one of them a new one"),
        (
            "torrents",
            {**TORRENT, "id": 9999},
            409,
            f"this info hash has the id {TORRENT['id']}; `tracker torrent renumber` changes ids",
        ),
    ],
    ids=str,
)
async def test_a_call_that_does_not_fit_says_what_to_do(
    site: Site, path: str, body: dict[str, Any], status: int, detail: str
) -> None:
    assert await site.put("users", USER) == await site.put("torrents", TORRENT) == 200
    found, problem = await site.ask("PUT", path, body)
    assert (found, problem["detail"]) == (status, detail)


WRONG: list[tuple[str, dict[str, Any]]] = [
    *(("torrents", {**TORRENT, name: value}) for name, value in (
        ("id", "700"), ("id", 0), ("id", -1), ("id", 10**13), ("id", 7.5), ("id", True), ("id", None), ("status", 4),
        ("status", "1"), ("info_hash", "01" * 19), ("info_hash", 1), ("is_deleted", 0), ("is_deleted", "false"),
        ("download_factor", -1), ("download_factor", 1.5), ("upload_factor", None), ("seeders", "3"),
    )),
    *(("users", {**USER, name: value}) for name, value in (
        ("id", "7"), ("passkey", "short"), ("passkey", 7), ("passkey", None), ("new_passkey", "short"),
        ("can_download", 1), ("is_donor", "yes"), ("group_id", 0), ("num_seeding", None),
    )),
    *(("groups", {**GROUP, name: value}) for name, value in (
        ("id", "3"), ("slug", 3), ("download_slots", "4"), ("download_slots", -1), ("is_immune", 1),
    )),
    ("users", {name: value for name, value in USER.items() if name != "can_download"}),
    ("blacklisted-agents", {"peer_id_prefix": ""}),
    ("blacklisted-agents", {"peer_id_prefix": 5}),
    ("freeleech-tokens", {"user_id": 7}),
    ("personal-freeleech", {"user_id": "7"}),
    ("featured-torrents", {}),
]  # fmt: skip


async def test_wrong_types_are_refused_and_change_nothing(site: Site) -> None:
    for path, body in WRONG:
        status, problem = await site.ask("PUT", path, body)
        assert status == 400, (path, body, problem)
    for data in (b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe"):
        assert (await site.ask("PUT", "users", data))[0] == 400
    assert await site.store.users.count() == 0
    assert await site.store.torrents.count() == 0


async def test_statistics_are_rates_of_several_times(site: Site) -> None:
    shown = await site.get("stats")
    names = [f"{what}_per_{s}s" for what in ("requests", "announce_responses") for s in (1, 10, 60, 900, 7200)]
    assert list(shown) == ["created_at", "last_request_at", "last_announce_response_at", *names]
    assert all(type(value) is float for value in shown.values())
