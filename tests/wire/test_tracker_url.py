"""Announce URLs of other trackers: parsing, the scrape URL, and masked secrets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.wire.tracker_url import MAX_LENGTH, TrackerUrl, parse_tracker_url

KEY = "0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("http://tracker.example/announce", ("http", "tracker.example", 80, "/announce")),
        ("HTTPS://Tracker.Example:8443/a/announce?x=1", ("https", "tracker.example", 8443, "/a/announce?x=1")),
        ("udp://tracker.example:6969", ("udp", "tracker.example", 6969, "")),
        ("udp://[2001:DB8:0::1]:6969/announce", ("udp", "2001:db8::1", 6969, "/announce")),
        ("http://127.0.0.1:1?key", ("http", "127.0.0.1", 1, "/?key")),
    ],
)
def test_an_announce_url_splits_into_its_parts(text: str, parts: tuple[str, str, int, str]) -> None:
    url = parse_tracker_url(text)
    assert (url.scheme, url.host, url.port, url.target) == parts
    assert parse_tracker_url(url.origin + url.target) == url


@pytest.mark.parametrize(
    "text",
    [
        *("", "tracker.example", "http://", "http:///announce", "ftp://h/announce", "wss://h/announce"),
        *("udp://h/announce", "udp://user:hunter2@h:1/announce", "http://h:0/", "http://h:65536/"),
        *("http://h:/announce", "http://h:80x/", "http://h h/announce", "http://h/an nounce", "http://h/é"),
        *("http://[::1/announce", "http://[12345::]/announce", "http://[1.2.3.4]/", "http://-h/", "http://h-/"),
        *("http://h/announce#x", "http://h\\@evil/announce", "http://h/a\nnounce", "http://h/announce\n"),
        *("http://a..b/", "http://.a/", "http://a./", f"http://{'a' * 64}/"),
        f"http://h/{'a' * MAX_LENGTH}",
    ],
)
def test_an_invalid_url_is_rejected_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not an announce URL$"):
        parse_tracker_url(text)


@pytest.mark.parametrize(
    ("announce", "scrape"),
    [
        # The examples in BEP 48.
        ("/announce", "/scrape"),
        ("/x/announce", "/x/scrape"),
        ("/announce.php", "/scrape.php"),
        ("/a", None),
        ("/announce?x2%0644", "/scrape?x2%0644"),
        ("/announce?x=2/4", None),
        ("/x%064announce", None),
        ("", None),
        (f"/announce/{KEY}", None),
    ],
)
def test_the_scrape_target_follows_the_last_path_segment(announce: str, scrape: str | None) -> None:
    assert parse_tracker_url(f"http://example.com{announce}").scrape_target == scrape


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://h:8080/announce", "http://h:8080/announce"),
        (f"http://h/{KEY}/announce.php", "http://h/***/announce.php"),
        (f"https://h/announce/{KEY}", "https://h/announce/***"),
        (f"http://h/announce?passkey={KEY}&x=1", "http://h/announce?***"),
        (f"http://site:{KEY}@h/announce", "http://***@h/announce"),
        (f"udp://[::1]:80/{KEY}/announce", "udp://[::1]:80/***/announce"),
        (f"http://h//{KEY}//scrape", "http://h//***//scrape"),
    ],
)
def test_possible_secrets_are_masked(text: str, shown: str) -> None:
    url = parse_tracker_url(text)
    assert url.masked == shown
    assert KEY not in repr(url)


def test_a_secret_is_masked_in_any_text() -> None:
    url = parse_tracker_url("http://site:hunter2@h/abc%2Fdef/announce?passkey=0123456789")
    said = "no such key 0123456789 (abc/def, abc%2Fdef) of site, hunter2: announce again"
    assert url.hide(said) == "no such key *** (***, ***) of ***, ***: announce again"


paths = st.lists(st.text("abcdef%0123456789._-", max_size=12), max_size=4).map(lambda parts: "/" + "/".join(parts))


@given(paths, st.text("abcdef0123456789=&/", max_size=20))
def test_only_known_words_of_a_path_are_shown(path: str, query: str) -> None:
    url = TrackerUrl("http", "h", 80, f"{path}?{query}")
    words = set(url.masked.removeprefix("http://h").replace("?", "/").split("/"))
    assert words <= {"", "***"}


@given(st.text())
def test_parsing_raises_value_errors_only(text: str) -> None:
    for candidate in (text, f"http://{text}", f"udp://h:1/{text}"):
        try:
            parse_tracker_url(candidate)
        except ValueError as error:
            assert str(error) == "not an announce URL"  # noqa: PT017  # most are valid
