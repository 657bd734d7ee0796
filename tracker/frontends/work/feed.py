"""The torrents that need seeders most, as RSS 2.0 for clients that subscribe to feeds."""

from collections.abc import Sequence
from dataclasses import dataclass

from tracker.frontends.work.rendering import environment

TORRENT_TYPE = "application/x-bittorrent"
MAGNET_TYPE = "application/x-bittorrent;x-scheme-handler/magnet"
MINUTES = 30
"""How long readers may keep the feed."""


@dataclass(frozen=True, slots=True)
class FeedItem:
    """``url`` is that of a .torrent file, or a magnet link; ``date`` as in RFC 822, or empty."""

    info_hash: str
    title: str
    url: str
    size: int
    about: str
    date: str

    @property
    def type(self) -> str:
        return MAGNET_TYPE if self.url.startswith("magnet:") else TORRENT_TYPE


def rss(title: str, link: str, items: Sequence[FeedItem]) -> bytes:
    """``link`` is the URL of the project's page."""
    template = environment().get_template("feed.xml")
    return template.render(title=title, link=link, minutes=MINUTES, items=items).encode()
