"""Lists of torrents as the API, its exports, the dashboard and the command line show them."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace

from tracker.errors import ClientError
from tracker.store.store import Store
from tracker.store.torrents.filter import TorrentFilter
from tracker.store.torrents.listing import ListPage

_PAGE = 500
_PLACE = re.compile(r"f([0-9]{1,12})", re.ASCII)


async def find_torrents(store: Store, wanted: TorrentFilter, text: str, cursor: str = "", count: int = 100) -> ListPage:
    """At most ``count`` torrents that fit and match ``text``. A page may be short before the end.

    Without a filter, the text may also be the start of an info hash. Raises ClientError for an invalid cursor.
    """
    if not text and not wanted.is_selective:
        place = _PLACE.fullmatch(cursor or "f0")
        if place is None:
            raise ClientError("invalid cursor")
        return await store.torrent_listing.page(wanted, int(place[1]), count)
    if text and not wanted.is_selective:
        after, found = await store.torrents.search(text, count, cursor)
        return ListPage(found, after)
    return await store.torrent_listing.filtered(replace(wanted, name=text), cursor, count)


async def listed_torrents(store: Store, wanted: TorrentFilter, text: str, limit: int) -> AsyncIterator[ListPage]:
    """The first ``limit`` torrents of the list, in pages."""
    cursor = ""
    while limit > 0:
        page = await find_torrents(store, wanted, text, cursor, min(limit, _PAGE))
        yield page
        limit -= len(page.torrents)
        cursor = page.cursor
        if not cursor:
            return
