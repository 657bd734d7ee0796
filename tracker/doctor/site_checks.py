"""Checks of a site's own database, where the settings name one."""

from collections.abc import AsyncIterator

from tracker.doctor import Finding
from tracker.errors import StartupError
from tracker.settings.model import Settings
from tracker.store.store import Store
from tracker.workers.site.mapping import check_libraries, load_mapping

REMEDY = "see docs/sync.md"


async def check_site(store: Store, settings: Settings) -> AsyncIterator[Finding]:
    """What is wrong with its tables, rights and clock."""
    if settings.site.database is None:
        return
    try:
        check_libraries()
        from tracker.workers.site.sync import open_sync  # noqa: PLC0415

        async with open_sync(store, settings.site, store.counters.count) as sync:
            wrong = await sync.problems()
    except StartupError as error:
        yield Finding("wrong", "site", str(error), REMEDY)
        return
    for text in wrong:
        yield Finding("wrong", "site", text, REMEDY)
    if load_mapping(settings.site.mapping).slots != settings.users.beyond_max_downloads == "refusal":
        text = "downloads beyond a user's slots are refused; the site's former tracker warns, and gives no peers"
        yield Finding("warning", "site", text, "unset TRACKER_USERS__BEYOND_MAX_DOWNLOADS")
    if not wrong:
        yield Finding("ok", "site", "the tables of the site's database fit the mapping")
