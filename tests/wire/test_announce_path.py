"""Paths of announce URLs, over HTTP and in the options of an announce over UDP (BEP 41)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import Accounts
from tracker.errors import ClientError
from tracker.wire.announce_path import Route, find_route, passkey_in


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
    with pytest.raises(ClientError):
        find_route(path)


@pytest.mark.parametrize(
    ("url", "accounts", "passkey"),
    [
        (b"/0a1b/announce", "required", "0a1b"),
        (b"/0a1b/announce?x=1&y", "required", "0a1b"),
        (b"/0a%31b/announce/", "optional", "0a1b"),
        (b"", "required", None),
        (b"/", "required", None),
        (b"/announce", "required", None),
        (b"/announce?passkey=0a1b", "required", None),
        (b"/0a1b/scrape", "required", None),
        (b"/0a1b", "required", None),
        (b"/a/b/announce", "required", None),
        (b"/a:b/announce", "required", None),
        (b"/a:b/announce", "optional", "?"),
        (b"0a1b/announce", "required", None),
        (b"http://tracker.test/0a1b/announce", "required", None),
    ],
)
def test_an_announce_over_udp_has_the_passkey_of_its_path(
    url: bytes, accounts: Accounts, passkey: str | None
) -> None:
    assert passkey_in(url, accounts) == passkey


@given(st.binary(max_size=100), st.sampled_from(["off", "optional", "required"]))
def test_any_bytes_have_a_passkey_or_none(url: bytes, accounts: Accounts) -> None:
    for data in (url, b"/" + url + b"/announce"):
        found = passkey_in(data, accounts)
        assert found is None or (found.isascii() and 0 < len(found) <= 128)
