"""The page of one user: sets, hit-and-runs, and the secret passkey."""

from dataclasses import replace

import pytest

from tests.admin.pages.conftest import HNR_SECONDS, Private
from tests.admin.pages.page import get, send
from tests.admin.pages.test_users import leave_early
from tests.store.harness import ALICE, endpoint, info_hash, update
from tracker.admin.pages.rendering import ratio
from tracker.admin.pages.users import PAGE, ROTATED
from tracker.store.schema.multipliers import Multiplier
from tracker.store.users.fields import FIELDS
from tracker.wire.endpoint import format_endpoint

HERE = "/users/7"
VERBS = ("edit", "freeleech", "freeleech/revoke", "passkey", "rotate", "forgive", "delete")


@pytest.fixture
async def alice(private: Private) -> Private:
    """A private tracker with user 7."""
    await private.store.users.add("7", ALICE)
    return private


@pytest.mark.parametrize("who", ["8", ALICE, "x", "0", "9" * 40, "%C2%B2"])
async def test_an_unknown_user_has_no_page(alice: Private, who: str) -> None:
    async with alice.admin.browser() as browser:
        await get(browser, f"/users/{who}", status=404)
        for verb in VERBS:
            await send(browser, f"/users/{who}/{verb}", status=404)
    assert await alice.store.users.count() == 1


async def test_totals_and_torrents_are_shown(alice: Private) -> None:
    store = alice.store
    await alice.admin.store.torrents.add(info_hash(1), {"name": "<b>Debian</b>"})
    await store.announce(update(1, "s", passkey=ALICE))
    await store.pass_time(60)
    await store.announce(update(1, passkey=ALICE, uploaded=3 * 1024**2, downloaded=2 * 1024**2))
    async with alice.admin.browser() as browser:
        page = await get(browser, HERE)
    assert "Uploaded 3.0 MiB" in page.text and "Ratio 1.50" in page.text
    assert "<b>Debian</b>" in page.text and not [e for e in page.all("b") if "Debian" in e.text]
    assert page.torrents == 2 * [info_hash(1).hex()]  # of the live peer too
    assert ALICE not in page.source


async def test_unregistered_torrents_are_listed(alice: Private) -> None:
    store = alice.store
    async with alice.admin.browser() as browser:
        assert "Not registered" not in (await get(browser, HERE)).text
        key = store.keys.user_unregistered(7)
        await store.redis.zadd(key, {info_hash(8).hex(): store.clock.now, info_hash(9).hex(): store.clock.now})
        await alice.admin.store.torrents.add(info_hash(9))
        page = await get(browser, HERE)
    assert "Not registered" in page.text
    assert info_hash(8).hex() in page.text and info_hash(9).hex() not in page.text


async def test_a_checked_user_has_a_badge(alice: Private) -> None:
    async with alice.admin.browser() as browser:
        assert "connectable" not in (await get(browser, HERE)).text
        await alice.store.connect_checks.note(endpoint(1), "7", False)
        assert "not connectable" in (await get(browser, HERE)).text
        await alice.store.connect_checks.note(endpoint(1), "7", True)
        page = await get(browser, HERE)
    assert "connectable" in page.text and "not connectable" not in page.text


async def test_unreported_downloads_are_shown(alice: Private) -> None:
    """A fall of `left` without download, for the user and per torrent; hidden if 0."""
    await alice.store.announce(update(1, "s", passkey=ALICE, bytes_left=3 * 1024**2))
    async with alice.admin.browser() as browser:
        assert "nreported" not in (await get(browser, HERE)).text
        await alice.store.announce(update(1, passkey=ALICE, bytes_left=0))
        page = await get(browser, f"{HERE}?set=complete")
    assert "Unreported downloads 3.0 MiB" in page.text and "0 B 3.0 MiB unreported" in page.text


async def test_cut_credit_is_shown_with_the_torrent(alice: Private) -> None:
    """With the settings that limit it; hidden if 0."""
    store = alice.store
    await store.announce(update(1, "s", passkey=ALICE))
    async with alice.admin.browser() as browser:
        pages = [await get(browser, path) for path in (HERE, "/users")]
        assert not any("not credited" in page.text or "were not credited" in page.text for page in pages)
        store.clock.now += 10
        rate = store.rules.current.max_credit
        await store.announce(update(1, passkey=ALICE, uploaded=10 * rate + 3 * 1024**2))
        page, users = await get(browser, HERE), await get(browser, "/users")
        overview = await get(browser, "/")
    assert "3.0 MiB were not credited" in page.text and "Not credited 3.0 MiB" in page.text
    assert "TRACKER_USERS__MAX_CREDIT_BYTES_PER_SECOND (1.2 GiB/s)" in page.text
    assert "11.6 GiB 3.0 MiB not credited" in page.text
    assert "7 3.0 MiB not credited" in users.text
    assert "Not credited 3.0 MiB" in overview.text
    (tile,) = [e for e in overview.all("div") if e.attributes.get("data-tile") == "credit_cut"]
    assert "warn" in (tile.attributes["class"] or "").split()


async def test_a_set_is_paged_and_keeps_removed_torrents(alice: Private) -> None:
    ids = [str(number) for number in range(1, 4 * PAGE)]  # Redis returns small sets in one piece
    await alice.store.redis.sadd(alice.store.keys.user_set("7", "complete"), *ids, "<b>")
    path, seen = f"{HERE}?set=complete", 0
    async with alice.admin.browser() as browser:
        while path:
            page = await get(browser, path)
            rows = page.all("th", scope="row")
            assert all("no longer registered" in row.text for row in rows)
            seen += len(rows)
            path = next((href for href in page.hrefs if "cursor=" in href), "")
        for odd in ("set=x", "set=complete&cursor=x", "cursor=" + "9" * 19, "set=hnr&cursor=-1"):
            await get(browser, f"{HERE}?{odd}")
    assert seen >= len(ids) + 1


async def test_a_hit_and_run_shows_the_remaining_time_and_is_forgiven(alice: Private) -> None:
    await leave_early(alice, ALICE, 1)
    await leave_early(alice, ALICE, 2)
    async with alice.admin.browser() as browser:
        page = await get(browser, f"{HERE}?set=hnr")
        assert f"{(HNR_SECONDS - 60) // 60} min" in page.text
        assert len(page.torrents) == 2
        response = await send(browser, f"{HERE}/forgive", {"torrent_id": "1"})
        assert response.location == f"{HERE}?set=hnr&notice=forgiven"
        assert await alice.store.torrents_of("7", "hnr") == ["2"]
        await send(browser, f"{HERE}/forgive")
    assert await alice.store.users.hit_and_run_count() == 0


async def test_the_passkey_is_shown_on_request_to_role_operate(alice: Private) -> None:
    async with alice.admin.browser() as browser:
        page = await send(browser, f"{HERE}/passkey", status=200)
    assert f"/{ALICE}/announce" in page.text
    async with alice.admin.browser("read") as reader:
        assert ALICE not in (await get(reader, HERE)).source
        assert ALICE not in (await send(reader, f"{HERE}/passkey", status=403)).source


async def test_a_new_passkey_replaces_the_old_one(alice: Private) -> None:
    async with alice.admin.browser() as browser:
        page = await send(browser, f"{HERE}/rotate", status=200)
    new = await alice.store.users.passkey_of("7")
    assert new is not None and new != ALICE and new in page.text and ROTATED in page.text
    assert await alice.store.refused(update(1, passkey=ALICE)) == "unknown passkey"


async def test_a_passkey_may_be_chosen(alice: Private) -> None:
    async with alice.admin.browser() as browser:
        assert "letters, digits" in (await send(browser, f"{HERE}/rotate", {"passkey": "short"}, status=422)).text
        page = await send(browser, f"{HERE}/rotate", {"passkey": "chosen-by-the-site"}, status=200)
    assert "chosen-by-the-site" in page.text
    assert await alice.store.users.passkey_of("7") == "chosen-by-the-site"


async def test_permissions_are_changed_one_by_one(alice: Private) -> None:
    async def rights() -> tuple[bool, bool]:
        user = await alice.store.users.find("7")
        return user.enabled, user.can_leech

    async with alice.admin.browser() as browser:
        for field, value, then in (
            ("enabled", "0", (False, True)),
            ("can_leech", "0", (False, False)),
            ("enabled", "1", (True, False)),
            ("admin", "1", (True, False)),
        ):
            await send(browser, f"{HERE}/edit", {field: value})
            assert await rights() == then


async def test_a_user_is_disabled_with_a_reason(alice: Private) -> None:
    async with alice.admin.browser() as browser:
        await send(browser, f"{HERE}/edit", {"enabled": "0", "reason": "<b>unpaid</b>"})
        page = await get(browser, HERE)
        assert "Clients show the reason “<b>unpaid</b>”" in page.text and not page.all("b")
        await send(browser, f"{HERE}/edit", {"enabled": "1"})
        assert "Clients show" not in (await get(browser, HERE)).text
        await send(browser, f"{HERE}/edit", {"enabled": "0", "reason": ""})
        assert "“your account is disabled”" in (await get(browser, HERE)).text
    assert (await alice.store.users.find("7")).reason == ""


async def test_name_and_totals_are_edited(alice: Private) -> None:
    """Empty totals are unchanged, an empty name is removed."""
    form = {"name": "Alice", "uploaded": "3145728", "downloaded": "", "snatches": "4"}
    async with alice.admin.browser() as browser:
        await send(browser, f"{HERE}/edit", form)
        page = await get(browser, HERE)
        assert "Alice" in page.text and "Uploaded 3.0 MiB" in page.text
        wrong = await send(browser, f"{HERE}/edit", {"uploaded": "-1"}, status=422)
        assert "uploaded is a whole number" in wrong.text
        await send(browser, f"{HERE}/edit", {"name": "", "uploaded": ""})
    user = await alice.store.users.find("7")
    assert (user.name, user.uploaded, user.downloaded, user.snatches) == ("", 3145728, 0, 4)


async def test_a_user_is_deleted(alice: Private) -> None:
    async with alice.admin.browser() as browser:
        assert (await send(browser, f"{HERE}/delete")).location == "/users?notice=removed"
    assert await alice.store.users.count() == 0


async def test_role_read_sees_no_actions_and_cannot_change_anything(alice: Private) -> None:
    await leave_early(alice, ALICE, 1)
    async with alice.admin.browser("read") as reader:
        assert not (await get(reader, f"{HERE}?set=hnr")).changes
        for verb in VERBS:
            await send(reader, f"{HERE}/{verb}", {"enabled": "0"}, status=403)
    user = await alice.store.users.find("7")
    assert user.enabled and user.passkey == ALICE
    assert await alice.store.users.hit_and_run_count() == 1


async def test_forms_need_the_csrf_token_of_the_session(alice: Private) -> None:
    headers = {"X-CSRF-Token": "wrong"}
    async with alice.admin.browser(headers=headers) as browser:
        for verb in VERBS:
            await send(browser, f"{HERE}/{verb}", status=403)
    assert await alice.store.users.passkey_of("7") == ALICE


def test_a_ratio_needs_a_download() -> None:
    assert (ratio(3, 2), ratio(3, 0), ratio(0, 0), ratio(0, 5)) == ("1.50", "∞", "–", "0.00")


async def test_rules_of_a_user_are_edited(alice: Private) -> None:
    async with alice.admin.browser() as browser:
        fields = {"upload_multiplier": "1.5", "download_multiplier": "0"}
        assert (await send(browser, f"{HERE}/multipliers", fields)).location == f"{HERE}?notice=saved"
        fields = {"max_downloads": "3", "hnr_exempt": "1"}
        assert (await send(browser, f"{HERE}/edit", fields)).location == f"{HERE}?notice=saved"
        user = await alice.store.users.find("7")
        assert (user.upload_multiplier, user.download_multiplier) == ((Multiplier(1.5),), (Multiplier(0),))
        assert (user.max_downloads, user.hnr_exempt) == (3, True)
        page = await get(browser, HERE)
        assert {"freeleech", "upload ×1.5", "no hit-and-runs"} <= {e.text for e in page.all("span")}
        assert "freeleech" in (await get(browser, "/users")).text
        await send(browser, f"{HERE}/multipliers", {"upload_multiplier": "x"}, status=422)
        await send(browser, f"{HERE}/edit", {"max_downloads": "-2"}, status=422)
        assert await alice.store.users.find("7") == user
        await send(browser, f"{HERE}/edit", {"max_downloads": "", "hnr_exempt": "0"})
        await send(browser, f"{HERE}/multipliers/remove", {"rule": ""})
    user = await alice.store.users.find("7")
    assert not user.upload_multiplier and not user.download_multiplier
    assert (user.max_downloads, user.hnr_exempt) == (None, False)


async def test_the_page_has_every_field(alice: Private) -> None:
    """A field that is missing from the page is named here."""
    async with alice.admin.browser() as browser:
        page = await get(browser, HERE)
    shown = {element.attributes.get("name") for element in page.all("input")}
    assert [name for name in FIELDS if name not in shown] == []


async def test_freeleech_tokens_are_given_and_revoked(alice: Private) -> None:
    await alice.admin.store.torrents.add(info_hash(1), {"name": "<b>a film</b>"})
    async with alice.admin.browser() as browser:
        fields = {"info_hash": info_hash(1).hex(), "until": "2100-01-01T00:00"}
        assert (await send(browser, f"{HERE}/freeleech", fields)).location == f"{HERE}?notice=saved"
        page = await get(browser, HERE)
        assert "<b>a film</b>" in page.text and "2100-01-01 00:00:00 UTC" in page.text
        wrong = ({**fields, "until": "x"}, {**fields, "info_hash": "x"}, {**fields, "info_hash": "0" * 40})
        for each in wrong:
            await send(browser, f"{HERE}/freeleech", each, status=422)
        await send(browser, f"{HERE}/freeleech", {**fields, "until": ""})
        assert "without an end" in (await get(browser, HERE)).text
        await send(browser, f"{HERE}/freeleech/revoke", {"torrent_id": "1"})
        assert "2100-01-01" not in (await get(browser, HERE)).text
    assert await alice.store.freeleech.count("7") == 0


async def test_live_peers_last_seen_and_history_are_shown(alice: Private) -> None:
    store = alice.store
    store.rules.current = replace(store.rules.current, max_changes=1000)
    await alice.admin.store.torrents.add(info_hash(1), {"name": "<b>Debian</b>"})
    async with alice.admin.browser("read") as browser:
        page = await get(browser, HERE)
        assert "No live peers" in page.text and not page.all("h2", id="history")
        await store.announce(update(1, "s", passkey=ALICE))
        await store.pass_time(60)
        page = await get(browser, HERE)
        (row,) = [each for each in page.all("tr") if format_endpoint(endpoint(1)) in each.text]
        assert "<b>Debian</b>" in row.text and "downloading" in row.text and "1 min ago" in row.text
        assert "Last seen now" in page.text and "Joined" in page.text
        await store.announce(update(1, "c", passkey=ALICE, bytes_left=0))
        await store.announce(update(1, "x", passkey=ALICE, bytes_left=0))
        await store.pass_time(3600)
        page = await get(browser, HERE)
    assert "No live peers" in page.text and "Last seen 1 h ago" in page.text
    times = [each.text for each in page.all("td", data_label="Event")]
    assert sorted(times) == ["Completed", "Joined", "Left"]
    # By the settings of this admin port; the store recorded changes all the same.
    assert "completions only, because the change feed is off" in page.text


async def test_pending_hit_and_runs_have_due_dates_and_are_forgiven(alice: Private) -> None:
    store = alice.store
    store.rules.current = replace(store.rules.current, hnr_grace=7200)
    await leave_early(alice, ALICE, 1)
    await leave_early(alice, ALICE, 2)
    async with alice.admin.browser() as browser:
        page = await get(browser, HERE)
        assert "Pending hit-and-runs" in page.text and page.text.count("in 2 h") == 2
        await send(browser, f"{HERE}/forgive", {"torrent_id": "1"})
        assert await store.hit_and_runs.pending_count() == 1
        await send(browser, f"{HERE}/forgive")
        assert "Pending hit-and-runs" not in (await get(browser, HERE)).text
    assert await store.hit_and_runs.pending_count() == 0
