"""The calls of Gazelle to Ocelot over HTTP: what each changes in the store, and what it answers."""

import pytest
from structlog.testing import capture_logs

from tests.admin.site.conftest import HASH, KEY, OTHER, PASSKEY, REPORT_KEY, Serve, Site
from tests.raw_http import connect
from tracker.bittorrent import InfoHash
from tracker.store.access.audit import AuditFilter
from tracker.store.torrents.torrents import Torrent
from tracker.store.users.fields import User

HASHES = [HASH, b"\0 &+%\xff" + b"\x80" * 14, b"success&action=x\r\n12"]
SUCCESS = (200, "success")


async def torrent_of(site: Site, info_hash: bytes = HASH) -> Torrent:
    found = await site.store.torrents.get(InfoHash(info_hash))
    assert found is not None
    return found


async def user_of(site: Site, user_id: str = "7") -> User:
    found = await site.store.users.by_id(user_id)
    assert found is not None
    return found


async def test_a_reply_ends_with_success_and_closes_the_connection(site: Site) -> None:
    """Gazelle reads until the end, sends no Host, and compares what follows the last line end."""
    for request, end in (
        (f"/{KEY}/update?action=add_user&passkey={PASSKEY}&id=7&visible=1", b"success"),
        (f"/{REPORT_KEY}/report?get=stats", b"\nsuccess"),
        (f"/{KEY}/update?action=remove_token", b"}"),
        (f"/{'x' * 32}/update?action=add_user", b"}"),
    ):
        async with connect(site.address) as client:
            client.send(f"GET {request} HTTP/1.1\r\n\r\n".encode())
            assert (await client.receive()).body.endswith(end)
            assert await client.is_closed()


@pytest.mark.parametrize("info_hash", HASHES)
async def test_a_torrent_is_added_changed_and_deleted(site: Site, info_hash: bytes) -> None:
    for _ in range(2):
        assert await site.ocelot("add_torrent", id=9, info_hash=info_hash, freetorrent=0) == SUCCESS
    found = await torrent_of(site, info_hash)
    assert (found.torrent_id, found.upload_multiplier, found.download_multiplier) == ("9", (), ())
    assert await site.ocelot("update_torrent", info_hash=info_hash, freetorrent=1) == SUCCESS
    found = await torrent_of(site, info_hash)
    assert (found.upload_multiplier, [rule.factor for rule in found.download_multiplier]) == ((), [0.0])
    assert await site.ocelot("info_torrent", info_hash=info_hash) == SUCCESS
    for _ in range(2):
        assert await site.ocelot("delete_torrent", info_hash=info_hash, reason=1) == SUCCESS
    found = await torrent_of(site, info_hash)
    assert (found.registered, found.denied) == (False, "Unregistered torrent: Trump")
    assert await site.ocelot("add_torrent", id=9, info_hash=info_hash, freetorrent=2) == SUCCESS
    found = await torrent_of(site, info_hash)
    assert (found.registered, found.denied, found.is_neutral(site.clock.now)) == (True, None, True)
    assert await site.ocelot("delete_torrent", info_hash=info_hash, reason=-1) == SUCCESS
    assert await site.store.torrents.get(InfoHash(info_hash)) is None


async def test_an_id_conflict_leaves_a_deleted_torrent_denied(site: Site) -> None:
    assert await site.ocelot("add_torrent", id=9, info_hash=HASHES[1]) == SUCCESS
    assert await site.ocelot("add_torrent", id=8, info_hash=HASH) == SUCCESS
    assert await site.ocelot("delete_torrent", info_hash=HASH, reason=0) == SUCCESS
    assert (await site.ocelot("add_torrent", id=9, info_hash=HASH))[0] == 409
    assert [each.reason for each in await site.store.torrents.denials()] == ["Unregistered torrent: Dupe"]
    assert await site.ocelot("add_torrent", id=8, info_hash=HASH) == SUCCESS
    assert await site.store.torrents.denials() == []


async def test_several_torrents_change_at_once(site: Site) -> None:
    for number, info_hash in enumerate(HASHES[:2], 1):
        await site.ocelot("add_torrent", id=number, info_hash=info_hash)
    assert await site.ocelot("update_torrents", info_hashes=b"".join(HASHES), freetorrent=1) == SUCCESS
    found = await site.store.torrents.get_all([InfoHash(each) for each in HASHES])
    assert [rule.factor for torrent in found for rule in torrent.download_multiplier] == [0.0, 0.0]


async def test_a_user_is_added_changed_and_removed_without_losing_totals(site: Site) -> None:
    assert await site.ocelot("add_user", passkey=PASSKEY, id=7, visible=0) == SUCCESS
    assert not (await user_of(site)).visible
    assert await site.ocelot("update_user", passkey=PASSKEY, can_leech=0, visible=1) == SUCCESS
    user = await user_of(site)
    assert (user.can_leech, user.visible) == (False, True)
    await site.store.users.edit("7", {"uploaded": 5})
    for _ in range(2):
        assert await site.ocelot("remove_user", passkey=PASSKEY) == SUCCESS
        assert not (await user_of(site)).enabled
    assert await site.ocelot("add_user", passkey=PASSKEY, id=7, visible=1) == SUCCESS
    user = await user_of(site)
    assert (user.enabled, user.reason, user.uploaded, user.can_leech) == (True, "", 5, False)


async def test_several_users_are_removed_at_once(site: Site) -> None:
    await site.ocelot("add_user", passkey=PASSKEY, id=7)
    await site.ocelot("add_user", passkey=OTHER, id=8)
    assert await site.ocelot("remove_users", passkeys=PASSKEY + "c" * 32 + OTHER) == SUCCESS
    assert [(await user_of(site, each)).enabled for each in ("7", "8")] == [False, False]
    (entry, *_), _ = await site.store.audit.page(AuditFilter())
    assert {each.id for each in entry.objects} == {"7", "8"}


async def test_a_passkey_is_changed_also_when_the_call_is_repeated(site: Site) -> None:
    await site.ocelot("add_user", passkey=PASSKEY, id=7)
    for _ in range(2):
        assert await site.ocelot("change_passkey", oldpasskey=PASSKEY, newpasskey=OTHER) == SUCCESS
    assert (await user_of(site)).passkey == OTHER
    await site.ocelot("add_user", passkey=PASSKEY, id=8)
    assert (await site.ocelot("change_passkey", oldpasskey=PASSKEY, newpasskey=OTHER))[0] == 409
    assert (await site.ocelot("change_passkey", oldpasskey="c" * 32, newpasskey="d" * 32))[0] == 404


async def test_tokens_are_given_and_taken_back(site: Site) -> None:
    await site.ocelot("add_user", passkey=PASSKEY, id=7)
    await site.ocelot("add_torrent", id=9, info_hash=HASH)
    for _ in range(2):
        assert await site.ocelot("add_token", info_hash=HASH, userid=7) == SUCCESS
    assert await site.store.freeleech.count("7") == 1
    for _ in range(2):
        assert await site.ocelot("remove_token", info_hash=HASH, userid=7) == SUCCESS
    assert await site.store.freeleech.count("7") == 0
    assert (await site.ocelot("add_token", info_hash=HASH, userid=8))[0] == 404
    assert (await site.ocelot("add_token", info_hash=HASHES[1], userid=7))[0] == 404


async def test_clients_are_allowed(site: Site) -> None:
    for _ in range(2):
        assert await site.ocelot("add_whitelist", peer_id="-TR2%") == SUCCESS
    assert await site.ocelot("edit_whitelist", old_peer_id="-TR2%", new_peer_id="-TR3") == SUCCESS
    assert (await site.store.allow_list.page(0))[1] == [(b"-TR3", "")]
    assert await site.ocelot("remove_whitelist", peer_id="-TR3") == SUCCESS
    assert (await site.store.allow_list.page(0))[1] == []


async def test_the_announce_interval_changes_until_a_restart(site: Site) -> None:
    with capture_logs() as lines:
        assert await site.ocelot("update_announce_interval", new_announce_interval=1234) == SUCCESS
    assert 1234 in [line.get("seconds") for line in lines]
    assert [each.announce.interval_seconds for each in site.applied] == [1234]
    status, text = await site.ocelot("update_announce_interval", new_announce_interval=5)
    assert status == 400 and "TRACKER_ANNOUNCE__MIN_INTERVAL_SECONDS" in text
    status, text = await site.ocelot("update_announce_interval", new_announce_interval=100_000)
    assert (status, "TRACKER_ANNOUNCE__INTERVAL_SECONDS" in text) == (400, True)
    assert len(site.applied) == 1


@pytest.mark.parametrize(
    "query",
    [
        "",
        "action=",
        "action=nothing",
        "action=add_user",
        f"action=add_user&id=7&passkey={'a' * 15}",
        f"action=add_user&id=x&passkey={PASSKEY}",
        f"action=add_user&id=0&passkey={PASSKEY}",
        f"action=add_user&id=7&passkey={PASSKEY}&visible=2",
        "action=add_torrent&id=9&info_hash=abc",
        f"action=add_torrent&id={10**13}&info_hash={'%01' * 20}",
        f"action=add_torrent&id=9&info_hash={'%01' * 20}&freetorrent=3",
        f"action=update_torrents&info_hashes={'%01' * 21}&freetorrent=1",
        "action=update_torrents&info_hashes=&freetorrent=1",
        f"action=remove_users&passkeys={'a' * 33}",
        f"action=delete_torrent&info_hash={'%01' * 20}&reason=dupe",
        "action=add_whitelist&peer_id=",
        f"action=add_whitelist&peer_id={'x' * 21}",
    ],
)
async def test_wrong_values_are_refused(site: Site, query: str) -> None:
    status, text = await site.fetch(f"/{KEY}/update?{query}")
    assert status == 400
    assert not text.endswith("success")
    assert await site.store.users.count() == 0


async def test_what_is_unknown_is_404(site: Site) -> None:
    for action in ("update_torrent", "info_torrent"):
        assert (await site.ocelot(action, info_hash=HASH, freetorrent=1))[0] == 404
    assert (await site.ocelot("update_user", passkey=PASSKEY, can_leech=1))[0] == 404


async def test_reports_need_their_own_key(serve: Serve) -> None:
    site = await serve()
    await site.ocelot("add_user", passkey=PASSKEY, id=7)
    assert await site.fetch(f"/{REPORT_KEY}/report?get=user&key={PASSKEY}") == (200, "0 leeching\n0 seeding\nsuccess")
    status, text = await site.fetch(f"/{REPORT_KEY}/report?get=stats")
    lines = [line.partition(" ")[2] for line in text.splitlines()]
    assert status == 200
    assert {"leechers tracked", "seeders tracked", "requests handled", "successful announcements"} <= set(lines)
    assert (await site.fetch(f"/{REPORT_KEY}/report?get=user&key={OTHER}"))[0] == 404
    assert (await site.fetch(f"/{REPORT_KEY}/report?get=x"))[0] == 400
    assert (await site.fetch(f"/{KEY}/report?get=stats"))[0] == 401
    assert (await site.fetch(f"/{REPORT_KEY}/update?action=info_torrent"))[0] == 401
    without = await serve(report_key=None)
    assert (await without.fetch(f"/{REPORT_KEY}/report?get=stats"))[0] == 401
