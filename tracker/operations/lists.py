"""Lists of torrents and users as the API, its exports and the dashboard show them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace

from tracker.errors import StoreUnavailable
from tracker.store.sharding.unavailable import named, noting_unavailable_shards
from tracker.store.store import Store
from tracker.store.torrents.filter import TorrentFilter
from tracker.store.torrents.listing import ListPage
from tracker.store.torrents.torrents import Torrent
from tracker.store.users.fields import User
from tracker.store.users.listing import UserFilter

MAX_EXPORTED = 100_000
"""Rows of one export. ``tracker export`` has no limit."""
_PAGE = 500


async def find_torrents(
    store: Store, wanted: TorrentFilter, text: str, cursor: str = "", count: int = 100
) -> ListPage:
    """At most ``count`` torrents that fit and match ``text``. A page may be short before the end.

    Without a filter, the text may also be the start of an info hash. Raises ClientError for an invalid cursor.
    """
    if text and not wanted.is_selective:
        after, found = await store.torrents.search(text, count, cursor)
        return ListPage(found, after)
    return await store.torrent_listing.filtered(replace(wanted, name=text), cursor, count)


async def listed_torrents(
    store: Store, wanted: TorrentFilter, text: str, limit: int
) -> AsyncIterator[ListPage]:
    """The first ``limit`` torrents of the list, in pages."""
    cursor, offset, is_walk = "", 0, bool(text) or wanted.is_selective
    while offset < limit:
        count = min(limit - offset, _PAGE)
        if is_walk:
            page = await find_torrents(store, wanted, text, cursor, count)
        else:
            page = await store.torrent_listing.page(wanted, offset, count)
        yield page
        offset += len(page.torrents) if is_walk else count
        cursor = page.cursor
        if not cursor if is_walk else offset >= (page.total or 0):
            return


async def exported_torrents(store: Store, wanted: TorrentFilter, text: str) -> AsyncIterator[list[Torrent]]:
    """The first MAX_EXPORTED of the list, in pages."""
    pages = listed_torrents(store, wanted, text, MAX_EXPORTED)
    while True:
        with _of_all_shards():
            page = await anext(pages, None)
        if page is None:
            return
        yield page.torrents


async def exported_users(store: Store, wanted: UserFilter) -> AsyncIterator[list[User]]:
    """The first MAX_EXPORTED of the list, in pages."""
    cursor, left = "", MAX_EXPORTED
    while left > 0:
        with _of_all_shards():
            cursor, users, *_ = await store.user_listing.page(wanted, cursor, min(left, _PAGE))
        yield users
        left -= len(users)
        if not cursor:
            return


@contextmanager
def _of_all_shards() -> Iterator[None]:
    """Raises StoreUnavailable if what was read leaves out a shard: an export is complete, or cut off."""
    with noting_unavailable_shards() as missing:
        yield
    if missing:
        raise StoreUnavailable(f"the store does not answer for {named(missing)}")
