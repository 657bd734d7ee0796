"""A browser that loads an image from an announce URL joins no swarm; clients built on browser parts do."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.http.harness import ANNOUNCE, INFO_HASH, RecordingTracker, on_loops, talking
from tracker.frontends.http.request_heads import RequestHeadCache
from tracker.settings.public import HttpSettings

RECORDED: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "recorded.json").read_text())
FIREFOX = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
SAFARI = (
    "User-Agent: Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/17.6 Safari/605.1.15"
)
ELECTRON = (
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) WebTorrent/0.24.0 "
    "Chrome/94.0.4606.81 Electron/15.5.7 Safari/537.36"
)
BROWSERS = {
    "a picture over HTTP": (FIREFOX, "Accept: image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5"),
    "a picture in Safari": (SAFARI, "Accept: image/webp,image/avif,video/*;q=0.8,image/png,image/*;q=0.8,*/*;q=0.5"),
    "a frame over HTTP": (FIREFOX, "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    "in capitals": (FIREFOX, "ACCEPT: Text/HTML"),
    "a picture over HTTPS": (
        FIREFOX,
        "Accept: */*",
        "Sec-Fetch-Dest: image",
        "Sec-Fetch-Mode: no-cors",
        "Sec-Fetch-Site: cross-site",
    ),
    "fetch() of a page over HTTPS": (
        FIREFOX,
        "Accept: */*",
        "sec-fetch-dest: empty",
        "sec-fetch-mode: cors",
        "sec-fetch-site: cross-site",
    ),
}
CLIENTS = {
    "WebTorrent on Node.js": (
        "User-Agent: WebTorrent/2.8.5 (https://webtorrent.io)",
        "Accept: */*",
        "Accept-Language: *",
        "Sec-Fetch-Mode: cors",
        "Accept-Encoding: gzip, deflate",
    ),
    "a client in Electron": (ELECTRON, "Accept: */*"),
    "an agent that says Mozilla": ("User-Agent: Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)",),
    "Java's own Accept": (
        "User-Agent: Azureus 4.3.0.6;Windows XP;Java 1.6.0_22",
        "Accept: text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2",
    ),
    "Transmission": ("User-Agent: Transmission/3.00", "Accept: */*", "Accept-Encoding: deflate, gzip, br, zstd"),
    "aria2": ("User-Agent: aria2/1.36.0", "Accept: */*", "Want-Digest: SHA-512;q=1, SHA-256;q=1, SHA;q=0.1"),
    "rtorrent": ("User-Agent: rtorrent/0.9.8/0.13.8", "Accept: */*", "Accept-Encoding: deflate, gzip, br, zstd"),
    "Deluge": ("User-Agent: Deluge/2.0.3 libtorrent/2.0.8.0", "Accept-Encoding: gzip"),
    "qBittorrent": ("User-Agent: qBittorrent/4.5.2", "Accept-Encoding: gzip"),
    "ctorrent": ("User-Agent: Enhanced-CTorrent/dnh3.3.2",),
    "no header at all": (),
}
SCRAPE = "/scrape?info_hash=" + "".join(f"%{byte:02x}" for byte in INFO_HASH)
TEXT = "this address is for BitTorrent clients"


@pytest.mark.parametrize("target", [ANNOUNCE, "/" + 20 * "p" + ANNOUNCE, SCRAPE])
@pytest.mark.parametrize("headers", BROWSERS.values(), ids=list(BROWSERS))
@on_loops("asyncio")
async def test_a_browser_is_refused_and_joins_nothing(headers: tuple[str, ...], target: str) -> None:
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        for _ in range(2):  # the second one on the same connection
            assert (await client.get(target, *headers)).failure == TEXT
    assert not tracker.announces and not tracker.scrapes
    assert set(tracker.kinds) == {"scrapes" if target == SCRAPE else "announces"}


@pytest.mark.parametrize("headers", CLIENTS.values(), ids=list(CLIENTS))
@on_loops("asyncio")
async def test_clients_are_served(headers: tuple[str, ...]) -> None:
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        assert b"peers" in (await client.get(ANNOUNCE, *headers)).reply
        assert b"files" in (await client.get(SCRAPE, *headers)).reply


@pytest.mark.parametrize("recorded", RECORDED["requests"], ids=lambda r: f"{r['client']} {r['version']}")
@on_loops("asyncio")
async def test_recorded_requests_of_clients_are_served(recorded: dict[str, str]) -> None:
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        client.send(recorded["head"].encode("latin-1"))
        assert b"failure reason" not in (await client.receive()).reply
    assert len(tracker.announces) + len(tracker.scrapes) == 1


async def test_heads_of_clients_stay_on_the_fast_path() -> None:
    heads = RequestHeadCache(HttpSettings())
    for headers in CLIENTS.values():
        assert heads.read_and_cache("\r\n".join(("1", "Host: t", *headers, "", "")).encode()) is not None
    for headers in BROWSERS.values():
        assert heads.read_and_cache("\r\n".join(("1", "Host: t", *headers, "", "")).encode()) is None
