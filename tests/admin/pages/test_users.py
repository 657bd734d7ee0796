"""The pages of all users."""

from dataclasses import replace

import aiohttp
import pytest

from tests.admin.conftest import Serve
from tests.admin.pages.conftest import Private
from tests.admin.pages.page import Page, get, post_form, send
from tests.store.harness import ALICE, BOB, info_hash, update
from tracker.admin.pages.forms import DEFAULT_SIZE
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.public import UserSettings
from tracker.store.access.audit import AuditFilter
from tracker.store.schema.multipliers import Multiplier
from tracker.store.sharding import listing
from tracker.store.users import listing as user_listing
from tracker.store.users.rules import GROUP_FIELDS, Group


@pytest.mark.parametrize("path", ["/users", "/users/owing", "/users/pending", "/users/groups"])
async def test_a_public_tracker_explains_accounts(browser: aiohttp.ClientSession, path: str) -> None:
    page = await get(browser, path)
    assert "TRACKER_USERS__PRIVATE=optional TRACKER_USERS__PRIVATE=required" in page.text
    assert not page.changes


async def test_users_are_listed_where_accounts_are_optional(serve: Serve, prefix: str) -> None:
    admin = await serve(Settings(redis=RedisSettings(prefix=prefix), users=UserSettings(private="optional")))
    async with admin.browser() as browser:
        assert "others are anonymous" in (await get(browser, "/users")).text
        page = await send(browser, "/users", {"user_id": "42", "can_leech": "1"}, status=200)
        assert "User 42 created." in page.text
        assert "Announces without one are anonymous." in (await get(browser, "/users")).text


async def test_empty_lists_explain_what_to_do(private: Private) -> None:
    async with private.admin.browser() as browser:
        assert "No users yet" in (await get(browser, "/users")).text
        assert "No hit-and-runs" in (await get(browser, "/users/owing")).text
        assert "becomes a hit-and-run at once" in (await get(browser, "/users/pending")).text


async def test_a_new_user_gets_a_passkey_that_is_shown_once(private: Private) -> None:
    async with private.admin.browser() as browser:
        page = await send(browser, "/users", {"user_id": "42", "can_leech": "1"}, status=200)
        passkey = await private.store.users.passkey_of("42")
        assert passkey is not None
        assert "User 42 created." in page.text
        assert f"http://127.0.0.1:6969/{passkey}/announce" in page.text
        for path in ("/users", "/users/42", "/users?id=42"):
            async with browser.get(path) as response:
                assert passkey not in await response.text()
    user = await private.store.users.find("42")
    assert user.can_leech


async def test_a_user_is_created_with_downloading_blocked(private: Private) -> None:
    async with private.admin.browser() as browser:
        await send(browser, "/users", {}, status=200)
    user = await private.store.users.find("1")
    assert not user.can_leech


@pytest.mark.parametrize("user_id", ["7", "0", "-1", "x", "9" * 30])
async def test_taken_and_invalid_ids_are_refused(private: Private, user_id: str) -> None:
    await private.store.users.add("7", ALICE)
    async with private.admin.browser() as browser:
        await send(browser, "/users", {"user_id": user_id}, status=422)
    assert await private.store.users.count() == 1


async def test_a_user_is_found_by_id_and_not_by_passkey(private: Private) -> None:
    await private.store.users.add("7", ALICE)
    async with private.admin.browser() as browser:
        assert (await get(browser, "/users?id=7", status=303)) is not None
        for wrong in ("8", ALICE, "%3Cb%3E", "9" * 400, "%C2%B2"):
            page = await get(browser, f"/users?id={wrong}", status=404)
            assert "No user " in page.text and not page.all("b")


async def test_a_long_list_is_paged(private: Private) -> None:
    ids = {str(number) for number in range(1, DEFAULT_SIZE + 4)}
    for one in ids:
        await private.store.users.add(one)
    async with private.admin.browser() as browser:
        first, second = await get(browser, "/users"), await get(browser, "/users?page=2")
    assert "/users?page=2" in first.hrefs and "/users?page=3" not in second.hrefs
    links = {href.removeprefix("/users/") for page in (first, second) for href in page.hrefs}
    assert ids <= links


async def test_users_with_the_highest_number_of_hit_and_runs_come_first(private: Private) -> None:
    for user_id, torrents in (("7", 1), ("8", 2)):
        user = await private.store.users.add(user_id)
        for torrent in range(torrents):
            await leave_early(private, user.passkey, torrent)
    async with private.admin.browser("read") as browser:
        page = await get(browser, "/users/owing")
    assert [href for href in page.hrefs if "set=hnr" in href] == ["/users/8?set=hnr", "/users/7?set=hnr"]


async def leave_early(private: Private, passkey: str, torrent: int) -> None:
    """A user downloads more than the hit-and-run threshold and leaves."""
    await private.store.announce(update(1, "s", torrent, passkey=passkey))
    await private.store.pass_time(60)
    await private.store.announce(update(1, "x", torrent, passkey=passkey, downloaded=5000))


async def test_role_read_cannot_create_users(private: Private) -> None:
    async with private.admin.browser("read") as reader:
        assert not (await get(reader, "/users")).changes
        await send(reader, "/users", {"user_id": "9"}, status=403)
    assert await private.store.users.count() == 0


async def test_multipliers_for_all_users_are_set_and_shown(private: Private) -> None:
    async with private.admin.browser() as browser:
        fields = {"upload_multiplier": "2", "download_multiplier": "0"}
        fields |= {"until": "2030-01-01T00:00"}
        assert (await send(browser, "/users/multipliers", fields)).location == "/users?notice=saved"
        upload, download = await private.store.multipliers.get()
        assert (upload, download) == ((Multiplier(2, 1893456000),), (Multiplier(0, 1893456000),))
        page = await get(browser, "/users")
        assert {"freeleech", "upload ×2"} <= {e.text for e in page.all("span")}
        assert "2030-01-01T00:00:00" in page.source
        await send(browser, "/users/multipliers", {"rule": "event", "upload_multiplier": "3"})
        assert "event" in {e.text for e in (await get(browser, "/users")).all("th")}
        await send(browser, "/users/multipliers/remove", {"rule": "event"})
        wrong = await send(browser, "/users/multipliers", {"upload_multiplier": "-2"}, status=422)
        assert "a multiplier is a number" in wrong.text
        wrong = await send(browser, "/users/multipliers", {"upload_multiplier": "2", "until": "soon"}, status=422)
        assert "a time is a date" in wrong.text
    assert await private.store.multipliers.get() == (upload, download)


async def test_pending_hit_and_runs_are_listed(private: Private) -> None:
    store = private.store
    store.rules.current = replace(store.rules.current, hnr_grace=7200)
    await store.users.add("7", ALICE)
    await leave_early(private, ALICE, 1)
    await leave_early(private, ALICE, 2)
    await private.admin.store.torrents.add(info_hash(1), {"name": "<b>a film</b>"})
    await private.admin.store.torrents.remove(info_hash(2))
    async with private.admin.browser() as browser:
        page = await get(browser, "/users/pending")
        assert "<b>a film</b>" in page.text and "no longer registered" in page.text and "in 2 h" in page.text
        assert "This page is empty" in (await get(browser, "/users/pending?page=2")).text
        assert "No hit-and-runs" in (await get(browser, "/users/owing")).text


async def test_users_are_sorted_filtered_and_searched(private: Private) -> None:
    for user_id, name, uploaded in (("7", "Zoe <b>", 30), ("8", "adam", 10), ("9", "Eve", 20)):
        await private.store.users.add(user_id, name=name, uploaded=uploaded, enabled=user_id != "9")

    def users(page: Page) -> list[str]:
        return [href.removeprefix("/users/") for href in page.hrefs if href.removeprefix("/users/").isdigit()]

    async with private.admin.browser("read") as browser:
        page = await get(browser, "/users?sort=name")
        assert users(page) == ["8", "9", "7"] and "Zoe <b>" in page.text and not page.all("b")
        assert "/users?sort=uploaded&order=desc" in page.hrefs
        assert users(await get(browser, "/users?sort=uploaded&order=desc")) == ["7", "9", "8"]
        assert users(await get(browser, "/users?state=disabled")) == ["9"]
        assert users(await get(browser, "/users?q=E")) == ["9", "7"]
        assert users(await get(browser, "/users?q=8")) == ["8"]
        assert "No matching users" in (await get(browser, "/users?q=nobody")).text
        for odd in ("sort=x", "state=x", "order=x", "cursor=-1", "cursor=w" + "9" * 19, "page=x", "q=%00"):
            await get(browser, f"/users?{odd}")


async def test_a_page_without_a_match_may_not_be_the_last(private: Private, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page looks at a bounded number of users. The second one by name is disabled."""
    await private.store.users.add("7", ALICE, name="Alice")
    await private.store.users.add("8", BOB, name="Bob", enabled=False)
    monkeypatch.setattr(user_listing, "USERS_A_CALL", 1)
    monkeypatch.setattr(user_listing, "USERS_A_PAGE", 1)
    monkeypatch.setattr(listing, "MAX_FEW", 0)
    async with private.admin.browser("read") as browser:
        page = await get(browser, "/users?state=disabled&sort=name")
        after = "/users?state=disabled&sort=name&cursor=w1"
        assert "No matching users yet" in page.text and after in page.hrefs
        assert "/users/8" in (await get(browser, after)).hrefs


async def test_a_filtered_list_has_numbered_pages(private: Private) -> None:
    for number in range(DEFAULT_SIZE + 3):
        await private.store.users.add(can_leech=number == 0)
    await private.store.user_listing.rank()
    async with private.admin.browser("read") as browser:
        first = await get(browser, "/users?state=blocked")
        second = await get(browser, "/users?state=blocked&page=2")
        sorted_by_id = await get(browser, "/users?state=blocked&sort=ratio&order=desc&page=2")
    assert "/users/2" in first.hrefs and "/users/1" not in first.hrefs
    assert "1–50 of 52" in first.text and "/users?state=blocked&page=2" in first.hrefs
    assert "51–52 of 52" in second.text and f"/users/{DEFAULT_SIZE + 3}" in second.hrefs
    assert "51–52 of 52" in sorted_by_id.text


async def test_the_page_says_that_its_lists_are_incomplete(private: Private) -> None:
    """Until the job has listed all users after an upgrade; not where there are none."""
    async with private.admin.browser("read") as browser:
        assert "Indexes are being built" not in (await get(browser, "/users")).text
        await private.store.users.add("7", ALICE)
        assert "Indexes are being built" in (await get(browser, "/users")).text
        await private.store.user_listing.rank()
        assert "Indexes are being built" not in (await get(browser, "/users")).text


async def test_a_user_is_found_by_passkey_in_a_form(private: Private) -> None:
    await private.store.users.add("7", ALICE)
    async with private.admin.browser() as browser:
        assert (await send(browser, "/users/lookup", {"passkey": ALICE})).location == "/users/7"
        page = await send(browser, "/users/lookup", {"passkey": "c" * 20}, status=404)
        assert "c" * 20 not in page.source
        await send(browser, "/users/lookup", status=404)
    async with private.admin.browser("read") as reader:
        await send(reader, "/users/lookup", {"passkey": ALICE}, status=403)


async def test_a_user_is_created_with_a_name_and_a_passkey(private: Private) -> None:
    async with private.admin.browser() as browser:
        await send(browser, "/users", {"user_id": "7", "name": "Alice", "passkey": ALICE}, status=200)
        await send(browser, "/users", {"passkey": "short"}, status=422)
    assert (await private.store.users.find(ALICE)).name == "Alice"


async def test_a_user_is_created_with_totals_and_disabled_with_a_reason(private: Private) -> None:
    fields = {"uploaded": "100", "downloaded": "50", "snatches": "3", "disabled": "1", "reason": "unpaid"}
    async with private.admin.browser() as browser:
        page = await get(browser, "/users")
        assert all(f'name="{name}"' in page.source for name in fields)
        await send(browser, "/users", {"user_id": "7", **fields}, status=200)
        await send(browser, "/users", {"user_id": "8", "uploaded": "1e9"}, status=422)
    user = await private.store.users.find("7")
    assert (user.uploaded, user.downloaded, user.snatches) == (100, 50, 3)
    assert (user.enabled, user.reason, user.can_leech) == (False, "unpaid", False)


async def test_selected_users_are_changed_together(private: Private) -> None:
    """One entry of the audit log for the call. Back to the same page of the list."""
    users = private.store.users
    for user_id in ("1", "2", "3"):
        await users.add(user_id, uploaded=5)
    async with private.admin.browser() as browser:
        form = [("user_id", "1"), ("user_id", "3"), ("user_id", "99"), ("action", "disable")]
        done = await send(browser, "/users/bulk?sort=ratio&page=2", [*form, ("disable_reason", "no")], status=303)
        assert done.location == "/users?sort=ratio&page=2&notice=changed"
        found = [await users.find(user_id) for user_id in ("1", "2", "3")]
        assert [(user.enabled, user.reason) for user in found] == [(False, "no"), (True, ""), (False, "no")]
        (entry, *_), _ = await private.store.audit.page(AuditFilter())
        assert (entry.operation, entry.counts) == ("user.bulk", {"selected": 3, "changed": 2})
        assert [each.id for each in entry.objects] == ["1", "3"]
        assert entry.details == {"action": "disable"}
        for action, expected in (("enable", (True, True)), ("block_leech", (True, False))):
            await send(browser, "/users/bulk", {"user_id": "1", "action": action})
            user = await users.find("1")
            assert (user.enabled, user.can_leech) == expected
        assert "Nothing was selected." in (await post_form(browser, "/users/bulk", action="enable")).text
        for wrong in ({"action": "delete", "user_id": "1"}, {"action": "enable", "user_id": ALICE}):
            await send(browser, "/users/bulk", wrong, status=422)
        await send(browser, "/users/bulk/delete", {"user_id": "1"})
    assert await users.count() == 2


async def test_only_admins_delete_selected_users(private: Private) -> None:
    await private.store.users.add("1")
    async with private.admin.browser("operate") as browser:
        assert "Delete users" not in (await get(browser, "/users")).text
        await send(browser, "/users/bulk/delete", {"user_id": "1"}, status=403)
        await send(browser, "/users/bulk", {"user_id": "1", "action": "forgive"})
    assert await private.store.users.count() == 1


async def test_the_size_of_a_page_is_chosen(private: Private) -> None:
    for user_id in range(1, 60):
        await private.store.users.add(str(user_id))
    async with private.admin.browser() as browser:
        page = await get(browser, "/users?size=25&page=3")
        assert len(page.all("input", name="user_id", type="checkbox")) == 9
        assert "51–59 of 59" in page.text
        assert {"/users?size=25", "/users?size=25&page=2"} <= set(page.hrefs)
        assert len((await get(browser, "/users?size=7")).all("input", name="user_id", type="checkbox")) == 50


async def test_groups_are_added_changed_and_deleted(private: Private) -> None:
    async with private.admin.browser() as browser:
        assert "No groups yet" in (await get(browser, "/users/groups")).text
        fields = {"group_id": "20", "name": "vip", "download_multiplier": "0", "max_downloads": "8"}
        page = await send(
            browser, "/users/groups", {**fields, "may_announce": "0", "can_leech": "0", "hnr_exempt": "1"}
        )
        assert page.location == "/users/groups?notice=saved"
        page = await get(browser, "/users/groups")
        assert {"freeleech", "may not announce", "no hit-and-runs"} <= {e.text for e in page.all("span")}
        await private.store.users.add("7", ALICE, group=20)
        assert {"vip", "freeleech", "group may not announce"} <= {
            e.text for e in (await get(browser, "/users/7")).all("span")
        }
        form = await get(browser, "/users/groups?edit=20")
        values = {e.attributes.get("name"): e.attributes.get("value") for e in form.all("input")}
        assert set(GROUP_FIELDS) <= set(values)
        assert (values["name"], values["download_multiplier"], values["max_downloads"]) == ("vip", "0", "8")
        await send(browser, "/users/groups", {**fields, "download_multiplier": "", "max_downloads": ""})
        assert await private.store.groups.get(20) == Group(
            20, "vip", may_announce=False, can_leech=False, hnr_exempt=True
        )
        for wrong in ({**fields, "max_downloads": "x"}, {**fields, "group_id": "0"}):
            await send(browser, "/users/groups", wrong, status=422)
        assert (await send(browser, "/users/groups/delete", {"group_id": "20"})).location
        await send(browser, "/users/groups/delete", {"group_id": "20"}, status=422)
    assert await private.store.groups.all() == []
