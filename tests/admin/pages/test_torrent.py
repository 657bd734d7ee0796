"""The page of one torrent: content and actions."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.admin.conftest import Admin, Serve
from tests.admin.pages.conftest import Private
from tests.admin.pages.page import get, send
from tests.store.harness import ALICE, Store, endpoint, info_hash, peer_id, running, update
from tracker.admin.pages.torrents import PEERS
from tracker.bittorrent import PeerId
from tracker.settings.background import ProbeSettings
from tracker.settings.model import DataSettings, RedisSettings, Settings
from tracker.settings.public import TorrentSettings
from tracker.store.stats.metric_names import place_names
from tracker.store.stats.unique_users import UniqueUserEvent
from tracker.store.swarms.rules import SwarmRules
from tracker.store.torrents.records import TORRENT_FIELDS, Torrent
from tracker.store.torrents.scores import Scored

ONE = info_hash(1)
HERE = f"/torrents/{ONE.hex()}"
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>'


async def known(admin: Admin) -> Torrent:
    found = await admin.store.torrents.get(ONE)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "path", [HERE, f"{HERE}/peers", f"{HERE}/charts/swarm", "/torrents/xyz", "/torrents/" + "é" * 40]
)
async def test_an_unknown_torrent_has_no_page(browser: aiohttp.ClientSession, path: str) -> None:
    await get(browser, path, status=404)


async def test_an_unknown_torrent_cannot_be_changed(admin: Admin, browser: aiohttp.ClientSession) -> None:
    for verb in ("edit", "enable", "pend", "disable", "remove"):
        await send(browser, f"{HERE}/{verb}", status=404)
    assert await admin.store.torrents.get(ONE) is None


async def test_statistics_and_peers_are_shown(store: Store, browser: aiohttp.ClientSession) -> None:
    qbittorrent = PeerId(b"-qB5020-abcdefghijkl")
    await store.announce(update(1, peer_id=qbittorrent, bytes_left=0))
    await store.announce(update(2, bytes_left=3 * 1024**2))
    await store.announce_counts.flush()
    page = await get(browser, HERE)
    assert ONE.hex() in page.text and "registered" in page.text
    tiles = {e.text.split()[0]: e.text.split()[1] for e in page.all("div", **{"class": "tile"})}
    assert (tiles["Seeders"], tiles["Leechers"], tiles["Announces"]) == ("1", "1", "2")
    assert "qBittorrent 5.0.2" in page.text and "11.0.0.1:6881" in page.text
    assert "3.0 MiB left" in page.text
    assert "http://127.0.0.1:6969/announce" in page.text


@pytest.mark.parametrize("checks", [False, True])
async def test_connectable_peers_are_shown_where_they_are_checked(
    serve: Serve, redis_url: str, prefix: str, checks: bool
) -> None:
    probe = ProbeSettings(enabled=True, connectable=checks)
    admin = await serve(Settings(redis=RedisSettings(prefix=prefix), probe=probe))
    async with running(Store(redis_url, admin.store.keys, SwarmRules(), admin.clock)) as store:
        for number in (1, 2, 3):
            await store.announce(update(number))
        await store.connect_checks.note(endpoint(1), "", True)
        await store.connect_checks.note(endpoint(2), "", False)
        async with admin.browser() as browser:
            page = await get(browser, HERE)
    assert ("Connectable" in page.text) is checks
    cells = sorted(cell.text for cell in page.all("td") if cell.text in ("yes", "no"))
    assert cells == (["no", "yes"] if checks else [])


async def test_peers_are_paged_completely(store: Store, browser: aiohttp.ClientSession) -> None:
    peers = 4 * PEERS  # Redis returns small sets in one piece
    await asyncio.gather(*(store.announce(update(n + 1, bytes_left=n % 2)) for n in range(peers)))
    path, seen, turns = HERE, set[str](), 0
    while path:
        page = await get(browser, path, part="/peers" in path)
        seen.update(
            (e.attributes["title"] or "").removeprefix("Peer id ")
            for e in page.all("span", **{"class": "sub mono"})
            if "title" in e.attributes
        )
        path = next((href for href in page.hrefs if "/peers?cursor=" in href), "")
        turns += 1
    assert seen == {peer_id(number + 1).hex() for number in range(peers)}
    assert turns > 1
    without_scripts = await get(browser, f"{HERE}/peers?cursor=0")
    assert without_scripts.all("html") and HERE in without_scripts.hrefs


@pytest.mark.parametrize("cursor", ["x", "-1", "9" * 19, "9" * 60, "²", ""])
async def test_invalid_cursors_start_at_the_beginning(
    store: Store, browser: aiohttp.ClientSession, cursor: str
) -> None:
    await store.announce(update(1))
    page = await get(browser, f"{HERE}/peers?cursor={cursor}")
    assert "11.0.0.1:6881" in page.text


async def test_names_of_peers_and_sites_are_escaped(admin: Admin, store: Store, browser: aiohttp.ClientSession) -> None:
    ids = [b"-<b>hi</b>-<script>a", bytes(range(236, 256)), b'"><img src=x>12345678', b"\0" * 20]
    for number, each in enumerate(ids):
        await store.announce(update(number + 1, peer_id=PeerId(each[:20])))
    await admin.store.torrents.edit(ONE, {"name": HOSTILE, "enabled": "0", "reason": HOSTILE})
    written = {"multi_up": HOSTILE, "multi_dn": b"\xff", "labels": HOSTILE, "size": HOSTILE}
    await store.redis.hset(store.keys.torrent(ONE), mapping=written)
    await store.redis.hset(
        store.keys.peer("1", PeerId(ids[3])), mapping={"left": HOSTILE, "uploaded": "9" * 400, "speed_up": "nan"}
    )
    page = await get(browser, HERE)
    assert HOSTILE in page.text
    assert not page.all("img") and not page.all("b")
    await admin.store.torrents.deny(ONE, HOSTILE)
    assert not (await get(browser, HERE)).all("img")


async def test_charts_show_the_history(admin: Admin, store: Store, browser: aiohttp.ClientSession) -> None:
    await store.announce(update(1, bytes_left=0))
    page = await get(browser, HERE)
    assert not page.all("figure") and "not scored yet" in page.text
    for score in (1.2, 0.96):
        store.clock.now += 3600
        taken = await store.scores.take(1)
        await store.scores.finish([Scored(one, score) for one in taken])
    page = await get(browser, HERE)
    sources = {figure.attributes["data-chart"] for figure in page.all("figure")}
    assert sources == {f"{HERE}/charts/swarm", f"{HERE}/charts/score"}
    assert "rank 1 of 1" in page.text
    async with browser.get(f"{HERE}/charts/swarm") as response:
        swarm = await response.json()
    async with browser.get(f"{HERE}/charts/score") as response:
        score = await response.json()
    now = int(store.clock.now)
    assert swarm["x"] == score["x"] == [now - 3600, now]
    assert [(one["name"], one["values"]) for one in swarm["series"]] == [("Seeders", [1, 1]), ("Leechers", [0, 0])]
    assert score["series"] == [{"name": "Score", "values": [1.2, 0.96]}]
    await get(browser, f"{HERE}/charts/passkeys", status=404)


async def test_unique_users_are_shown_by_country(admin: Admin, store: Store, browser: aiohttp.ClientSession) -> None:
    await store.announce(update(1))
    places = [("United Kingdom", "London", "SW1A"), ("United Kingdom", "", ""), ("Kosovo", "", "")]
    seen = [UniqueUserEvent(ONE, f"192.0.2.{n}", place_names(*place)) for n, place in enumerate(places)]
    await admin.store.unique_users.count(seen, store.clock.now)
    table = next(e.text for e in (await get(browser, HERE)).all("table") if "Country" in e.text)
    assert table.split() == ["Country", "Share", "Users", "United", "Kingdom", "2", "Kosovo", "1"]


async def test_the_page_has_every_field(admin: Admin, browser: aiohttp.ClientSession) -> None:
    """A field that the page does not have is named here."""
    await admin.store.torrents.add(ONE, {})
    page = await get(browser, HERE)
    shown = {element.attributes.get("name") for element in page.all("input")}
    shown |= {"enabled"} if any(href.endswith("/disable") for href in page.changes) else set()
    assert [name for name in TORRENT_FIELDS if name not in shown] == []


async def test_name_size_and_labels_are_edited(admin: Admin, browser: aiohttp.ClientSession) -> None:
    await admin.store.torrents.add(ONE, {"name": "before", "private": "1"})
    fields = {"name": "after", "size": "2048", "labels": "films 4k"}
    assert (await send(browser, f"{HERE}/edit", fields)).location == f"{HERE}?notice=saved"
    found = await known(admin)
    assert (found.name, found.private) == ("after", False)  # an unticked checkbox is not sent
    assert (found.size, found.labels) == (2048, ("films", "4k"))
    page = await get(browser, HERE)
    assert "2.0 KiB" in page.text and {"films", "4k"} <= {e.text for e in page.all("span")}
    listed = (await get(browser, "/torrents")).text
    assert "2.0 KiB" in listed and "films" in listed


async def test_a_kept_file_is_downloaded_with_an_announce_url(
    admin: Admin, browser: aiohttp.ClientSession, tmp_path: Path
) -> None:
    await admin.store.torrents.add(ONE, {})
    assert "Download the" not in (await get(browser, HERE)).text
    assert (await browser.get(f"{HERE}/file")).status == 404
    torrents = TorrentSettings(keep_files=True)
    changes = {"data": DataSettings(directory=tmp_path), "torrents": torrents}
    admin.context.live.current = admin.context.settings.model_copy(update=changes)
    admin.context.torrent_files.keep(ONE, b"d4:infodee")
    assert "Download the .torrent file" in (await get(browser, HERE)).text
    response = await browser.get(f"{HERE}/file")
    assert await response.read() == b"d8:announce30:http://127.0.0.1:6969/announce4:infodee"
    private = {**changes, "users": admin.context.settings.users.model_copy(update={"private": "required"})}
    admin.context.live.current = admin.context.settings.model_copy(update=private)
    assert await (await browser.get(f"{HERE}/file")).read() == b"d4:infodee"
    await send(browser, f"{HERE}/remove", {})
    assert admin.context.torrent_files.read(ONE) is None


async def test_rules_are_listed_set_and_removed(admin: Admin, browser: aiohttp.ClientSession) -> None:
    """The table says which have ended; a torrent with 0 for both is neutral."""
    now = int(admin.clock())
    rules = f"2 {now - 5} old, 3 {now + 1000} event, <b>x</b>"
    await admin.store.torrents.add(ONE)
    await admin.store.connection.command("HSET", admin.store.keys.torrent(ONE), "multi_up", rules)
    page = await get(browser, HERE)
    table = next(e.text for e in page.all("table") if "Credit" in e.text)
    assert "old upload ×2 ended" in " ".join(table.split()) and "event upload ×3" in " ".join(table.split())
    assert "upload ×3" in {e.text for e in page.all("span")} and "<b>x" not in page.source
    fields = {"rule": "quiet", "upload_multiplier": "0", "download_multiplier": "0", "until": "2100-01-01T00:00"}
    assert (await send(browser, f"{HERE}/multipliers", fields)).location == f"{HERE}?notice=saved"
    found = await known(admin)
    end = 4102444800
    assert found.fields["multi_up"] == f"3 {now + 1000} event, 0 {end} quiet"
    assert found.fields["multi_dn"] == f"0 {end} quiet"
    assert "neutral" in {e.text for e in (await get(browser, HERE)).all("span")}
    assert "neutral" in (await get(browser, "/torrents")).text
    await send(browser, f"{HERE}/multipliers/remove", {"rule": "quiet"})
    assert (await known(admin)).fields["multi_up"] == f"3 {now + 1000} event"
    wrong: tuple[dict[str, str], ...] = (
        {},
        {**fields, "rule": "2nd"},
        {**fields, "until": "2001-01-01T00:00"},
        {**fields, "until": "inf"},
    )
    for each in wrong:
        await send(browser, f"{HERE}/multipliers", each, status=422)
    assert (await known(admin)).fields["multi_up"] == f"3 {now + 1000} event"


async def test_an_invalid_multiplier_changes_nothing(admin: Admin, browser: aiohttp.ClientSession) -> None:
    await admin.store.torrents.add(ONE, {"name": "before"})
    page = await send(browser, f"{HERE}/multipliers", {"upload_multiplier": "1e9"}, status=422)
    assert "a multiplier is a number" in page.text
    assert "multi_up" not in (await known(admin)).fields


async def test_a_torrent_is_set_pending_and_approved(
    admin: Admin, store: Store, browser: aiohttp.ClientSession
) -> None:
    await admin.store.torrents.add(ONE)
    await send(browser, f"{HERE}/pend")
    page = await get(browser, HERE)
    assert "Clients show “this torrent waits for approval”" in page.text
    assert {f"{HERE}/enable", f"{HERE}/disable"} <= set(page.changes) and f"{HERE}/pend" not in page.changes
    assert await store.refused(update(1)) == "pending"
    assert (await get(browser, "/torrents?state=pending")).torrents
    assert not (await get(browser, "/torrents?state=disabled")).torrents
    await send(browser, f"{HERE}/enable")
    assert (await known(admin)).switch is True
    await store.announce(update(1))


async def test_a_torrent_is_disabled_with_a_reason_and_enabled_again(
    admin: Admin, store: Store, browser: aiohttp.ClientSession
) -> None:
    await admin.store.torrents.add(ONE)
    await send(browser, f"{HERE}/disable", {"reason": "bad release"})
    assert "reason “bad release”" in (await get(browser, HERE)).text
    assert await store.refused(update(1)) == "disabled"
    assert f"{HERE}/disable" not in (await get(browser, HERE)).changes
    await send(browser, f"{HERE}/enable")
    found = await known(admin)
    assert found.enabled and not found.reason
    await store.announce(update(1))


async def test_a_torrent_is_denied_and_allowed_again(
    admin: Admin, store: Store, browser: aiohttp.ClientSession
) -> None:
    await admin.store.torrents.add(ONE)
    await send(browser, f"{HERE}/deny", {"reason": "asked to"})
    page = await get(browser, HERE)
    assert "denied" in page.text and "reason “asked to”" in page.text
    assert await store.refused(update(1)) == "denied"
    await send(browser, f"{HERE}/allow")
    assert (await known(admin)).denied is None


async def test_allowing_an_unknown_info_hash_redirects_to_the_list(
    admin: Admin, browser: aiohttp.ClientSession
) -> None:
    await send(browser, f"{HERE}/deny")
    assert (await get(browser, HERE)).changes == {f"{HERE}/allow"}
    assert (await send(browser, f"{HERE}/allow")).location == "/torrents?notice=saved"


async def test_a_torrent_is_removed(admin: Admin, browser: aiohttp.ClientSession) -> None:
    await admin.store.torrents.add(ONE)
    assert (await send(browser, f"{HERE}/remove")).location == "/torrents?notice=removed"
    assert await admin.store.torrents.get(ONE) is None


async def test_role_read_sees_no_actions_and_cannot_change_anything(
    admin: Admin, reader: aiohttp.ClientSession
) -> None:
    await admin.store.torrents.add(ONE, {"name": "before"})
    before = await known(admin)
    assert not (await get(reader, HERE)).changes
    for verb in ("edit", "enable", "pend", "disable", "deny", "allow", "remove"):
        await send(reader, f"{HERE}/{verb}", {"name": "after"}, status=403)
    assert await known(admin) == before


async def test_users_are_linked_in_private_mode_only(private: Private) -> None:
    await private.store.users.add("7", ALICE)
    await private.admin.store.torrents.add(ONE)
    await private.store.announce(update(1, passkey=ALICE))
    async with private.admin.browser() as browser:
        page = await get(browser, HERE)
    assert "/users/7" in page.hrefs
    assert ALICE not in page.source


async def test_the_halves_of_a_hybrid_torrent_show_each_other(admin: Admin, browser: aiohttp.ClientSession) -> None:
    v2 = info_hash(2)
    there = f"/torrents/{v2.hex()}"
    for half in (ONE, v2):
        await admin.store.torrents.add(half)
    await send(browser, f"{there}/edit", {"name": "x", "hybrid_of": ONE.hex()})
    assert (await known(admin)).hybrid == v2.hex()
    page = await get(browser, there)
    assert "v2 half" in page.source and f'href="{HERE}"' in page.source and "the v1 half</a> only" in page.source
    page = await get(browser, HERE)
    assert "v1 half" in page.source and f'href="{there}"' in page.source and 'name="hybrid_of"' not in page.source
    listed = await get(browser, "/torrents")
    assert "v1 half" in listed.source and "v2 half" in listed.source
    await send(browser, f"{HERE}/edit", {"name": "y"})
    assert (await known(admin)).hybrid == v2.hex()
    page = await send(browser, f"{there}/edit", {"name": "x", "hybrid_of": v2.hex()}, status=422)
    assert "half of itself" in page.source
    await send(browser, f"{HERE}/disable", {"reason": "no"})
    found = await admin.store.torrents.get(v2)
    assert found is not None and (found.enabled, found.reason) == (False, "no")
    await send(browser, f"{there}/deny", {"reason": "asked to"})
    assert (await known(admin)).denied == "asked to"
    await send(browser, f"{HERE}/allow")
    await send(browser, f"{there}/edit", {"name": "x", "hybrid_of": ""})
    assert (await known(admin)).hybrid == ""
