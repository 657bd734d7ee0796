"""Another tracker over HTTP: no cookies, no proxies of the environment, bounded answers, and no way to another host."""

import asyncio
from collections.abc import Sequence

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from yarl import URL

from tracker import __version__
from tracker.bittorrent import Announce, AnnounceReply, InfoHash, ScrapeFile
from tracker.errors import TrackerRefusal, TrackerReplyError
from tracker.tracker_url import TrackerUrl
from tracker.wire.replies import MAX_BYTES, announce_query, parse_announce, parse_scrape, scrape_query
from tracker.workers.upstreams.answers import Unreachable

MAX_SCRAPE = 50
"""Torrents in one scrape: a request line of 3,600 bytes, which every server takes."""
_CONNECTIONS_PER_HOST = 4
_REDIRECTS = 2
_REDIRECTED = (301, 302, 303, 307, 308)
_TOO_MANY_REQUESTS = 429


def open_session() -> ClientSession:
    """What all trackers over HTTP are asked through; to be closed."""
    return ClientSession(
        connector=TCPConnector(limit_per_host=_CONNECTIONS_PER_HOST),
        cookie_jar=DummyCookieJar(),
        # Compressed answers could unfold to any size.
        headers={"User-Agent": f"swarmkeeper/{__version__}", "Accept-Encoding": "identity"},
        auto_decompress=False,
        trust_env=False,
        timeout=ClientTimeout(total=None),
    )


class HttpTracker:
    """Asks one tracker. Raises TrackerRefusal, TrackerReplyError and Unreachable."""

    def __init__(self, url: TrackerUrl, session: ClientSession, timeout_seconds: float) -> None:
        self._url = url
        self._session = session
        self._timeout = timeout_seconds
        self.max_scrape = MAX_SCRAPE

    @property
    def scrapes(self) -> bool:
        """Does its URL say where its scrape is?"""
        return self._url.scrape_target is not None

    async def scrape(self, info_hashes: Sequence[InfoHash]) -> dict[InfoHash, ScrapeFile]:
        """The figures of at most ``max_scrape`` torrents; what the tracker does not mention has nobody."""
        assert self._url.scrape_target is not None
        files = parse_scrape(await self._get(self._url.scrape_target, scrape_query(info_hashes)), info_hashes)
        return {info_hash: files.get(info_hash, ScrapeFile()) for info_hash in info_hashes}

    async def announce(self, announce: Announce) -> AnnounceReply:
        reply = await self._get(self._url.target or "/", announce_query(announce))
        return parse_announce(reply, max_peers=announce.peers_wanted or 0)

    async def close(self) -> None:
        """Nothing of its own: the session is everybody's."""

    async def _get(self, target: str, query: str) -> bytes:
        joint = "&" if "?" in target else "?"
        credentials = f"{self._url.credentials}@" if self._url.credentials else ""
        scheme, _, address = self._url.origin.partition("://")
        url = URL(f"{scheme}://{credentials}{address}{target}{joint}{query}", encoded=True)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow(url)
        except TimeoutError:
            raise Unreachable("does not answer in time") from None
        except (ClientError, OSError, ValueError) as error:
            # Their texts name the URL, and so the passkey.
            raise Unreachable(f"cannot be reached ({type(error).__name__})") from None

    async def _follow(self, url: URL) -> bytes:
        for _ in range(_REDIRECTS + 1):
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status not in _REDIRECTED:
                    return await _body(response)
                url = _redirected(url, response.headers.get("Location", ""))
        raise TrackerReplyError("it redirects again and again")


def _redirected(url: URL, location: str) -> URL:
    """Where an answer points to: the same server, or the same host by https, and nowhere else."""
    there = url.join(URL(location, encoded=True))
    upgraded = (there.scheme, there.port) == ("https", 443)
    if there.host != url.host or not (there.origin() == url.origin() or upgraded):
        raise TrackerReplyError("it redirects to another place")
    return there.with_user(url.user).with_password(url.password) if url.user else there


async def _body(response: ClientResponse) -> bytes:
    """What was answered, whole. A refusal may come with any status below 500, anything else only with 200."""
    if response.status >= 500 or response.status == _TOO_MANY_REQUESTS:
        raise Unreachable(f"answers with status {response.status}")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise TrackerReplyError("its answer is compressed, which was not asked for")
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BYTES:
            raise TrackerReplyError("its answer is too large")
    if response.status != 200 and not body.startswith(b"d"):
        raise TrackerRefusal(f"status {response.status}")
    return bytes(body)
