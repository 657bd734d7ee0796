"""Announce URLs of other trackers: parsed, or rejected with ValueError; no secret in them is shown."""

import re
from collections.abc import Iterable

from tracker.wire.tracker_url import MASK, parse_tracker_url

MAX_LENGTH = 300


def check(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        url = parse_tracker_url(text)
    except ValueError:
        return
    assert url.scheme in ("http", "https", "udp") and 0 < url.port < 65536 and url.host
    assert url.target.isascii() and not re.search(r"[\s#\\]", url.target)
    shown, mark, asked = url.masked.partition("?")
    assert not mark or asked == MASK
    words = shown.partition("://")[2].split("/")[1:]
    assert all(word in ("", MASK) or re.fullmatch(r"(announce|scrape)(\.[a-z]{1,5})?", word) for word in words)
    credentials, at, _ = shown.partition("://")[2].partition("/")[0].rpartition("@")
    assert (credentials, at) == ((MASK, "@") if url.credentials else ("", ""))
    url.hide(f"refused: {text}")
    if url.scrape_target is not None:
        assert url.scrape_target.startswith("/") and "/scrape" in url.scrape_target
    again = parse_tracker_url(f"{url.origin}{url.target}")
    assert (again.scheme, again.host, again.port, again.target) == (url.scheme, url.host, url.port, url.target)


def seeds() -> Iterable[bytes]:
    return [
        b"http://tracker.example/announce",
        b"https://user:secret@tracker.example:8443/0123456789abcdef/announce.php?passkey=0123456789",
        b"udp://[2001:db8::1]:6969/announce?x=y",
        b"UDP://Tracker.Example:80",
        b"http://1.2.3.4?x",
    ]
