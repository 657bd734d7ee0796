"""Lists of users' pending hit-and-runs and freeleech tokens, with the names of the torrents."""

from typing import Any

from tracker.operations.peers import to_integer
from tracker.store.store import Store

_RENAMED = {"total_seconds": "total_time", "seed_seconds": "seed_time"}
_ACCOUNT_TOTALS = {"downloaded": "downloaded", "uploaded": "uploaded", **_RENAMED}
"""Fields of a user's account on a torrent, by name."""


async def pending_hit_and_runs(store: Store, offset: int = 0, count: int = 100) -> list[dict[str, Any]]:
    """``count`` torrents whose users are in the grace period, from ``offset`` on; the next to be decided first.

    They become hit-and-runs at ``at`` (epoch s). Bytes and seconds; ``info_hash`` None: the torrent was removed.
    """
    found = await store.hit_and_runs.pending(offset, count)
    accounts = await store.users.accounts([(pending.user_id, pending.torrent_id) for pending in found])
    totals = [
        {n: to_integer(account.get(stored)) for n, stored in _ACCOUNT_TOTALS.items()} for account in accounts
    ]
    rows = await _with_names(store, [pending._asdict() for pending in found])
    return [{**row, **numbers} for row, numbers in zip(rows, totals, strict=True)]


async def freeleech_tokens(
    store: Store, user_id: str, offset: int = 0, count: int = 100
) -> list[dict[str, Any]]:
    """``count`` freeleech tokens of a user, from ``offset`` on. ``info_hash`` None: the torrent was removed."""
    return await _with_names(store, [t._asdict() for t in await store.freeleech.page(user_id, offset, count)])


async def _with_names(store: Store, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds info hash and name to rows with a ``torrent_id``."""
    found = await store.torrents.by_ids([row["torrent_id"] for row in rows])
    names = {t.torrent_id: {"info_hash": t.info_hash.hex(), "name": t.name} for t in found}
    return [{**row, **names.get(row["torrent_id"], {"info_hash": None, "name": ""})} for row in rows]
