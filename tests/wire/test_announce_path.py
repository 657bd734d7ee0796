"""Paths of announce URLs, over HTTP and in the options of an announce over UDP (BEP 41)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import Accounts
from tracker.refusals import Refusal
from tracker.wire.announce_path import PasskeyForms, Route, find_route, passkey_in

ALL = PasskeyForms("required", after=True, parameter=True)
TWO, MALFORMED = "the announce URL has two passkeys", "the passkey in the announce URL is malformed"
NO_PATH = "no such path: announce to /announce or /<passkey>/announce"


@pytest.mark.parametrize(
    ("path", "kind", "passkey"),
    [
        ("/announce", "announce", None),
        ("/announce/", "announce", None),
        ("//announce", "announce", None),
        ("//announce//", "announce", None),
        ("/%61nnounce", "announce", None),
        ("http://tracker.test:6969/announce", "announce", None),
        ("http://tracker.test", "index", None),
        ("/scrape", "scrape", None),
        ("/scrape/", "scrape", None),
        ("/0a1b-passkey/announce", "announce", "0a1b-passkey"),
        ("//0a1b//announce/", "announce", "0a1b"),
        ("/0a%31b/scrape", "scrape", "0a1b"),
        ("http://tracker.test/0a1b/scrape", "scrape", "0a1b"),
        ("/", "index", None),
        ("//", "index", None),
        ("/favicon.ico", "other", None),
        ("/a/b/c", "other", None),
    ],
)
def test_paths_have_the_routes_that_clients_expect(path: str, kind: str, passkey: str | None) -> None:
    assert find_route(path) == Route(kind, passkey)


@pytest.mark.parametrize(
    "path",
    [
        *("/announce.php", "/Announce", "/announce/passkey", "/a/b/announce", "/announce/announce/x"),
        *("/scrape.php", "/scrape/announce/x", "/ann%C3%A9/announce", "/a%2Fb/announce", "/%ff/scrape"),
        *("/" + "k" * 129 + "/announce", "/a:b/announce", "/%/announce"),
    ],
)
def test_near_misses_of_the_announce_path_are_refused(path: str) -> None:
    with pytest.raises(Refusal):
        find_route(path)


@pytest.mark.parametrize(
    ("path", "query", "kind", "passkey"),
    [
        ("/announce", "", "announce", None),
        ("/announce", "info_hash=x", "announce", None),
        ("/0a1b/announce", "info_hash=x", "announce", "0a1b"),
        ("/announce/0a1b", "info_hash=x", "announce", "0a1b"),
        ("//announce//0a%31b/", "", "announce", "0a1b"),
        ("http://tracker.test/scrape/0a1b", "", "scrape", "0a1b"),
        ("/scrape/announces", "", "scrape", "announces"),
        ("/announce", "passkey=0a1b&info_hash=x", "announce", "0a1b"),
        ("/announce/", "a&passkey=0a%31b", "announce", "0a1b"),
        ("/scrape", "info_hash=x&passkey=0a1b", "scrape", "0a1b"),
        ("/announce", "peer_id=passkey=0a1b", "announce", None),
        ("/announce", "xpasskey=0a1b&Passkey=0a1b&passkey", "announce", None),
        ("/health", "passkey=0a1b&passkey=", "other", None),
        ("/announce", "passkey=0a1b?info_hash=x", "announce", "0a1b"),
        ("/announce", "a=1&passkey=0a%31b?info_hash=x?&b", "announce", "0a1b"),
        ("/scrape", "passkey=0a1b?", "scrape", "0a1b"),
    ],
)
@pytest.mark.parametrize("ending", ["", ".php"])
def test_the_passkey_may_follow_the_path_or_be_in_the_query(
    path: str, query: str, kind: str, passkey: str | None, ending: str
) -> None:
    path = re.sub(r"/(announce|scrape)(?=/|$)", rf"/\1{ending}", path)
    assert find_route(path, query, ALL) == Route(kind, passkey)
    if kind == "announce" and path.startswith("/"):
        assert passkey_in(f"{path}?{query}".encode(), ALL) == passkey


@pytest.mark.parametrize("passkey", ["announce.php", "announce"])
def test_the_part_before_the_last_may_look_like_a_path(passkey: str) -> None:
    last = "announce" if passkey == "announce.php" else "announce.php"
    assert find_route(f"/{passkey}/{last}", "", ALL) == Route("announce", passkey)


@pytest.mark.parametrize("accounts", ["optional", "required"])
@pytest.mark.parametrize(
    ("path", "query", "text"),
    [
        ("/0a1b/announce/0a1b", "", TWO),
        ("/announce/announce/0a1b", "", TWO),
        ("/0a1b/announce", "passkey=0a1b", TWO),
        ("/announce/0a1b", "x&passkey=", TWO),
        ("/announce", "passkey=0a1b&passkey=0a1b", TWO),
        ("/a/b/announce/c", "", NO_PATH),
        ("/a/b/announce", "passkey=c", NO_PATH),
        ("/announce/a/b", "", NO_PATH),
        ("/a/announce.php/b", "", TWO),
        ("/announce.php/a", "passkey=b?x", TWO),
        ("/announce.phpx", "passkey=a", NO_PATH),
        ("/Announce.php", "passkey=a", NO_PATH),
    ],
)
def test_a_url_with_two_passkeys_is_refused(path: str, query: str, text: str, accounts: Accounts) -> None:
    forms = ALL._replace(accounts=accounts)
    with pytest.raises(Refusal) as refusal:
        find_route(path, query, forms)
    assert refusal.value.text == text
    if text == TWO:
        with pytest.raises(Refusal) as refusal:
            passkey_in(f"{path}?{query}".encode(), forms)
        assert refusal.value.text == text


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/announce/a:b", ""),
        (f"/announce/{'k' * 129}", ""),
        ("/announce/%00", ""),
        ("/announce", "passkey="),
        ("/announce", "passkey=?info_hash=x"),
        ("/announce.php", "passkey=a:b?info_hash=x"),
        ("/announce", "passkey=a%20b&x=1"),
        ("/announce", f"passkey={'k' * 129}"),
        ("/announce", "passkey=\udcff"),
    ],
)
def test_a_malformed_passkey_is_refused_or_anonymous_where_accounts_are_optional(path: str, query: str) -> None:
    with pytest.raises(Refusal) as refusal:
        find_route(path, query, ALL)
    assert refusal.value.text == MALFORMED
    assert find_route(path, query, ALL._replace(accounts="optional")).passkey == "?"


@pytest.mark.parametrize("accounts", ["off", "optional", "required"])
def test_forms_that_are_off_are_no_passkeys(accounts: Accounts) -> None:
    forms = PasskeyForms(accounts)
    assert find_route("/announce", "passkey=0a1b&passkey=a:b", forms) == Route("announce")
    assert find_route("/0a1b/announce", "passkey=0a1b", forms) == Route("announce", "0a1b")
    for path in ("/announce/0a1b", "/announce.php", "/scrape.php", "/0a1b/announce.php"):
        with pytest.raises(Refusal) as refusal:
            find_route(path, "passkey=0a1b", forms)
        assert refusal.value.text == NO_PATH
    assert passkey_in(b"/announce/0a1b", forms) is None
    assert passkey_in(b"/announce?passkey=0a1b", forms) is None


@pytest.mark.parametrize(
    ("url", "accounts", "passkey"),
    [
        (b"/0a1b/announce", "required", "0a1b"),
        (b"/0a1b/announce?x=1&y", "required", "0a1b"),
        (b"/0a%31b/announce/", "optional", "0a1b"),
        (b"", "required", None),
        (b"/", "required", None),
        (b"/announce", "required", None),
        (b"/0a1b/scrape", "required", None),
        (b"/0a1b", "required", None),
        (b"/a/b/announce", "required", None),
        (b"/a:b/announce", "optional", "?"),
        (b"/announce/a:b", "optional", "?"),
        (b"/announce/0a1b", "required", "0a1b"),
        (b"/announce/0a1b?x=1", "optional", "0a1b"),
        (b"/announce?passkey=0a1b", "required", "0a1b"),
        (b"/announce/?x=1&passkey=0a1b", "optional", "0a1b"),
        (b"/scrape/0a1b", "required", None),
        (b"/announce?passkey=0a1b?", "required", "0a1b"),
        (b"/announce.php?passkey=0a1b?info_hash=x", "optional", "0a1b"),
        (b"/announce.php?passkey=0a1b", "required", "0a1b"),
        (b"/0a1b/announce.php", "required", "0a1b"),
        (b"/scrape.php?passkey=0a1b", "required", None),
        (b"0a1b/announce", "required", None),
        (b"http://tracker.test/0a1b/announce", "required", None),
    ],
)
def test_an_announce_over_udp_has_the_passkey_of_its_url(url: bytes, accounts: Accounts, passkey: str | None) -> None:
    assert passkey_in(url, ALL._replace(accounts=accounts)) == passkey


def test_a_malformed_passkey_over_udp_is_refused() -> None:
    for url in (b"/a:b/announce", b"/announce/a:b", b"/announce?passkey="):
        with pytest.raises(Refusal) as refusal:
            passkey_in(url, ALL)
        assert refusal.value.text == MALFORMED


@given(st.binary(max_size=100), st.sampled_from(["optional", "required"]))
def test_any_bytes_have_a_passkey_or_none_or_are_refused(url: bytes, accounts: Accounts) -> None:
    for data in (url, b"/" + url + b"/announce", b"/announce/" + url, b"/announce?passkey=" + url):
        try:
            found = passkey_in(data, ALL._replace(accounts=accounts))
        except Refusal as error:
            found, refusals = None, {TWO, MALFORMED} if accounts == "required" else {TWO}
            assert refusals >= {error.text}  # noqa: PT017  # most inputs are not refused
        assert found is None or (found.isascii() and 0 < len(found) <= 128)
