"""Forms of the dashboard: texts, page numbers, and the rule for names."""

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admin.pages.page import post_form, send
from tests.store.harness import Store, info_hash
from tests.test_names import DROPPED, KEPT
from tracker.admin.pages.forms import clean, cursor_number, page_number


@pytest.mark.parametrize(
    ("text", "page"),
    [("", 1), ("0", 1), ("3", 3), ("-3", 1), ("x", 1), ("²", 1), ("٣", 1), ("9" * 7, 1_000_000), ("9" * 8, 1)],
)
def test_a_page_number_is_bounded(text: str, page: int) -> None:
    assert page_number(text) == page


@pytest.mark.parametrize(
    ("text", "cursor"),
    [
        ("", 0),
        ("-1", 0),
        ("x", 0),
        ("٣", 0),
        ("17", 17),
        (str(2**64 - 1), 2**64 - 1),
        (str(2**64), 0),
        ("9" * 20, 0),
        ("9" * 5000, 0),
    ],
)
def test_a_cursor_is_a_valid_number_of_the_store(text: str, cursor: int) -> None:
    assert cursor_number(text) == cursor


@given(st.text(st.characters()))
def test_texts_can_be_encoded(text: str) -> None:
    cleaned = clean(text, 50)
    cleaned.encode()
    assert len(cleaned) <= 50 and cleaned == cleaned.strip(" \t\r\n\v\f")


@pytest.mark.parametrize("kept", KEPT)
async def test_names_follow_the_rule_of_all_names(store: Store, browser: aiohttp.ClientSession, kept: str) -> None:
    """What letters need is stored, what moves the cursor or reorders text is not, in every form with a name or text."""
    given, torrent = f"x{DROPPED}{kept}\u3000", info_hash(1)
    name = f"x{kept}\u3000"
    await send(browser, "/torrents/add", {"info_hash": torrent.hex(), "name": given})
    assert await store.redis.hget(store.keys.torrent(torrent), "name") == name.encode()
    await send(browser, f"/torrents/{torrent.hex()}/edit", {"name": f"{given}2"})
    assert await store.redis.hget(store.keys.torrent(torrent), "name") == f"{name}2".encode()
    await send(browser, f"/torrents/{torrent.hex()}/deny", {"reason": given})
    assert await store.redis.get(store.keys.deny(torrent)) == name.encode()
    await post_form(browser, "/clients/allow", prefix="-XX", text=given)
    assert (await store.allow_list.page(0))[1] == [(b"-XX", name)]
    await post_form(browser, "/clients/deny", prefix="-YY", text=given)
    assert await store.deny_list.all() == {b"-YY": name}
