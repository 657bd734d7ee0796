"""A site beside a store: users and torrents on both sides, announces, and the sync between them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from loadtest.databases import Site
from tests.store.harness import Store, info_hash, update
from tests.store.jobs.harness import Metrics
from tracker.workers.site.database import SiteDatabase
from tracker.workers.site.mapping import SiteMapping, load_mapping
from tracker.workers.site.sync import SiteSync


def passkey(user: int) -> str:
    return f"{user:032x}"


async def register(store: Store, users: Sequence[int], torrents: Sequence[int] = (1,)) -> None:
    """Users and torrents of the store, with the numbers as their ids."""
    for user in users:
        await store.users.add(str(user), passkey(user))
    await store.torrents.add_many([(info_hash(number), {"torrent_id": str(number)}) for number in torrents])


async def members(store: Store, site: Site, users: Sequence[int], torrents: Sequence[int] = (1,)) -> None:
    """Users and torrents that both sides have, with totals of zero."""
    await register(store, users, torrents)
    site.sql(
        *(f"INSERT INTO users (id, username, passkey) VALUES ({user}, 'u{user}', '{passkey(user)}')" for user in users),
        *(
            f"INSERT INTO torrents (id, name, info_hash) VALUES ({number}, 't{number}', 0x{info_hash(number).hex()})"
            for number in torrents
        ),
    )


async def announce(
    store: Store, user: int, event: str = "u", torrent: int = 1, up: int = 0, down: int = 0, left: int = 1000
) -> None:
    await store.announce(
        update(user, event, torrent, passkey=passkey(user), uploaded=up, downloaded=down, bytes_left=left)
    )


@asynccontextmanager
async def syncing(
    store: Store,
    site: Site,
    mapping: SiteMapping | None = None,
    metrics: Metrics | None = None,
    url: str = "",
    zone: str = "UTC",
) -> AsyncIterator[SiteSync]:
    """A sync that has adopted the site."""
    async with SiteDatabase(url or site.url, zone) as database:
        if metrics is not None:
            metrics.follow(store)
        found = mapping or load_mapping("unit3d")
        sync = SiteSync(store, database, found)
        await sync.adopt()
        yield sync
