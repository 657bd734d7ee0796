"""A client for trackers over HTTP. It bounds replies, and stays on the same host."""

import asyncio
from collections.abc import Sequence

from aiohttp import ClientError, ClientResponse, ClientSession
from yarl import URL

from tracker.bittorrent import Announce, AnnounceReply, InfoHash, ScrapeFile
from tracker.errors import TrackerRefusal, TrackerReplyError, Unreachable
from tracker.system.http_client import read_body
from tracker.wire.http_reply import MAX_BYTES, parse_announce, parse_scrape
from tracker.wire.http_request import encode_announce, encode_scrape
from tracker.wire.tracker_url import TrackerUrl

MAX_SCRAPE = 50
"""Torrents in one scrape: a request line of 3,600 bytes, which every server accepts."""
_REDIRECTS = 2
_REDIRECTED = (301, 302, 303, 307, 308)
_TOO_MANY_REQUESTS = 429


class HttpTracker:
    """A client for one tracker. Raises TrackerRefusal, TrackerReplyError and Unreachable."""

    def __init__(self, url: TrackerUrl, session: ClientSession, timeout_seconds: float) -> None:
        self._url = url
        self._session = session
        self._timeout = timeout_seconds
        self.max_scrape = MAX_SCRAPE

    @property
    def scrapes(self) -> bool:
        """Whether a scrape URL can be derived from the announce URL."""
        return self._url.scrape_target is not None

    async def scrape(self, info_hashes: Sequence[InfoHash]) -> dict[InfoHash, ScrapeFile]:
        """The counts of at most ``max_scrape`` torrents; 0 for those that the reply does not mention."""
        assert self._url.scrape_target is not None
        files = parse_scrape(await self._get(self._url.scrape_target, encode_scrape(info_hashes)), info_hashes)
        return {info_hash: files.get(info_hash, ScrapeFile()) for info_hash in info_hashes}

    async def announce(self, announce: Announce) -> AnnounceReply:
        reply = await self._get(self._url.target or "/", encode_announce(announce))
        return parse_announce(reply, max_peers=announce.peers_wanted or 0)

    async def _get(self, target: str, query: str) -> bytes:
        separator = "&" if "?" in target else "?"
        credentials = f"{self._url.credentials}@" if self._url.credentials else ""
        scheme, _, address = self._url.origin.partition("://")
        url = URL(f"{scheme}://{credentials}{address}{target}{separator}{query}", encoded=True)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._get_following(url)
        except TimeoutError:
            raise Unreachable("no reply in time") from None
        except (ClientError, OSError, ValueError) as error:
            # Their texts contain the URL, and so the passkey.
            raise Unreachable(f"unreachable ({type(error).__name__})") from None

    async def _get_following(self, url: URL) -> bytes:
        for _ in range(_REDIRECTS + 1):
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status not in _REDIRECTED:
                    return await _body(response)
                url = _redirected(url, response.headers.get("Location", ""))
        raise TrackerReplyError("too many redirects")


def _redirected(url: URL, location: str) -> URL:
    """The target of a redirect: only the same server, or the same host with https."""
    target = url.join(URL(location, encoded=True))
    upgraded = (target.scheme, target.port) == ("https", 443)
    if target.host != url.host or not (target.origin() == url.origin() or upgraded):
        raise TrackerReplyError("redirect to another host")
    return target.with_user(url.user).with_password(url.password) if url.user else target


async def _body(response: ClientResponse) -> bytes:
    """The whole body. A refusal may have any status below 500, any other reply only 200."""
    if response.status >= 500 or response.status == _TOO_MANY_REQUESTS:
        raise Unreachable(f"status {response.status}")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise TrackerReplyError("reply is compressed although identity was requested")
    body = await read_body(response, MAX_BYTES, TrackerReplyError("reply too large"))
    if response.status != 200 and not body.startswith(b"d"):
        raise TrackerRefusal(f"status {response.status}")
    return body
